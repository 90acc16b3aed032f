//! A resource as one line of JSON.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use resync_core::{
    build::{Item, Known, Stamp},
    datetime::DateTime,
    digest::Hashes,
    document::{Link, Relation},
};
use serde::{Deserialize, Serialize};

use crate::stored::text_option;

/// A resource; its URL comes first, by which lines are found.
#[derive(Serialize, Deserialize)]
pub(in crate::inventory) struct Line<'a> {
    pub(in crate::inventory) loc: Cow<'a, str>,
    /// It has been there, and is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gone: bool,
    #[serde(default, with = "text_option")]
    lastmod: Option<DateTime>,
    #[serde(default)]
    length: Option<u64>,
    #[serde(default, with = "digests")]
    hashes: Cow<'a, Hashes>,
    #[serde(default)]
    media_type: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    links: Vec<LinkLine>,
    #[serde(default, with = "text_option", skip_serializing_if = "Option::is_none")]
    stamp: Option<Stamp>,
}

impl std::fmt::Debug for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("loc", &self.loc).field("gone", &self.gone).finish_non_exhaustive()
    }
}

impl<'a> Line<'a> {
    pub(in crate::inventory) fn of(item: &'a Item, stamp: Option<Stamp>) -> Self {
        let Item { loc, lastmod, length, hashes, media_type, encoding, links } = item;
        Self {
            loc: loc.into(),
            gone: false,
            lastmod: *lastmod,
            length: *length,
            hashes: Cow::Borrowed(hashes),
            media_type: media_type.as_ref().map(Cow::from),
            encoding: encoding.as_ref().map(Cow::from),
            links: links.iter().cloned().map(LinkLine::from).collect(),
            stamp,
        }
    }

    /// Of a resource that is gone.
    pub(in crate::inventory) fn gone(loc: &'a str) -> Self {
        Self {
            loc: loc.into(),
            gone: true,
            lastmod: None,
            length: None,
            hashes: Cow::default(),
            media_type: None,
            encoding: None,
            links: Vec::new(),
            stamp: None,
        }
    }

    pub(in crate::inventory) fn into_known(self) -> Option<Known> {
        if self.gone {
            return None;
        }
        let Self { loc, gone: _, lastmod, length, hashes, media_type, encoding, links, stamp } = self;
        let item = Item {
            loc: loc.into_owned(),
            lastmod,
            length,
            hashes: hashes.into_owned(),
            media_type: media_type.map(Cow::into_owned),
            encoding: encoding.map(Cow::into_owned),
            links: links.into_iter().map(Link::from).collect(),
        };
        Some(Known { item, stamp })
    }
}

impl<'a> From<&'a Known> for Line<'a> {
    fn from(Known { item, stamp }: &'a Known) -> Self {
        Self::of(item, *stamp)
    }
}

pub(in crate::inventory) fn write_line(lines: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *lines, line)?;
    lines.write_all(b"\n")
}

/// Writes a resource as [`write_line`] does. Nearly all are of one form, which is written here in half the time; `text` is room for that.
pub(in crate::inventory) fn write_known(
    lines: &mut impl Write,
    text: &mut String,
    known: &Known,
) -> io::Result<()> {
    text.clear();
    match push_plain(text, known) {
        Ok(true) => lines.write_all(text.as_bytes()),
        Ok(false) | Err(std::fmt::Error) => write_line(lines, &Line::from(known)),
    }
}

/// Says whether the resource is of that form.
fn push_plain(text: &mut String, known: &Known) -> Result<bool, std::fmt::Error> {
    use std::fmt::Write as _;
    let Known { item: Item { loc, lastmod, length, hashes, media_type, encoding, links }, stamp } = known;
    let is_plain = |text: &str| text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    let (Some(lastmod), Some(length), true) = (lastmod, length, hashes.unknown().is_empty()) else {
        return Ok(false);
    };
    if encoding.is_some()
        || !links.is_empty()
        || !is_plain(loc)
        || !media_type.iter().all(|one| is_plain(one))
    {
        return Ok(false);
    }
    for part in ["{\"loc\":\"", loc, "\",\"lastmod\":\""] {
        text.push_str(part);
    }
    write!(text, "{lastmod}\",\"length\":{length},\"hashes\":\"")?;
    let mut gap = "";
    for digest in hashes {
        write!(text, "{gap}{digest}")?;
        gap = " ";
    }
    let (quote, media_type) = media_type.as_ref().map_or(("", "null"), |media_type| ("\"", media_type));
    for part in ["\",\"media_type\":", quote, media_type, quote] {
        text.push_str(part);
    }
    if let Some(stamp) = stamp {
        write!(text, ",\"stamp\":\"{stamp}\"")?;
    }
    text.push_str("}\n");
    Ok(true)
}

/// The URL of a line, which comes first in it.
pub(super) fn loc_of(line: &[u8]) -> io::Result<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Place {
        loc: String,
    }
    // Almost none has a character that is written another way.
    if let Some(rest) = line.strip_prefix(b"{\"loc\":\"")
        && let Some(end) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))
        && rest[end] == b'"'
        && let Ok(loc) = std::str::from_utf8(&rest[..end])
    {
        return Ok(loc.into());
    }
    let Place { loc } = serde_json::from_slice(line)?;
    Ok(loc.into())
}

/// Digests as the text of a `hash` attribute.
mod digests {
    use std::borrow::Cow;

    use resync_core::digest::Hashes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Hashes, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Cow<'static, Hashes>, D::Error> {
        String::deserialize(input).map(|text| Cow::Owned(Hashes::parse(&text)))
    }
}

#[derive(Serialize, Deserialize)]
struct LinkLine {
    #[serde(with = "relation")]
    rel: Relation,
    href: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    hashes: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(default, with = "text_option", skip_serializing_if = "Option::is_none")]
    modified: Option<DateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pri: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
}

mod relation {
    use resync_core::document::Relation;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Relation, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(value.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Relation, D::Error> {
        String::deserialize(input).map(|text| Relation::from(text.as_str()))
    }
}

/// Where it lies in a package, and what other communities say of it, is of no use here.
impl From<Link> for LinkLine {
    fn from(link: Link) -> Self {
        let Link { rel, href, encoding, hash, length, modified, pri, media_type, profile, .. } = link;
        Self { rel, href, encoding, hashes: hash.to_string(), length, modified, pri, media_type, profile }
    }
}

impl From<LinkLine> for Link {
    fn from(line: LinkLine) -> Self {
        let LinkLine { rel, href, encoding, hashes, length, modified, pri, media_type, profile } = line;
        let hash = Hashes::parse(&hashes);
        Self { encoding, hash, length, modified, pri, media_type, profile, ..Self::new(rel, href) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_written_by_hand_as_it_is_by_serde() {
        let plain = Item {
            lastmod: Some("2026-01-02T03:04:05.25Z".parse().unwrap()),
            length: Some(0),
            hashes: Hashes::parse(
                "md5:900150983cd24fb0d6963f7d28e17f72 sha-1:a9993e364706816aba3e25717850c26c9cd0d89d",
            ),
            media_type: Some("text/plain".into()),
            ..Item::new("http://example.org/%20a'b")
        };
        let others = [
            Item { media_type: None, hashes: Hashes::default(), ..plain.clone() },
            Item { loc: "http://example.org/\"\\\n".into(), ..plain.clone() },
            Item { media_type: Some("a\"b".into()), ..plain.clone() },
            Item { lastmod: None, ..plain.clone() },
            Item { length: None, ..plain.clone() },
            Item { encoding: Some("gzip".into()), ..plain.clone() },
            Item { hashes: Hashes::parse("whirlpool:00"), ..plain.clone() },
            Item { links: vec![Link::new(Relation::Via, "http://example.org/v")], ..plain.clone() },
        ];
        let mut text = String::new();
        for stamp in [None, Some("1:-2:3:4".parse().unwrap())] {
            for item in std::iter::once(&plain).chain(&others) {
                let known = Known { item: item.clone(), stamp };
                let (mut by_hand, mut by_serde) = (Vec::new(), Vec::new());
                write_known(&mut by_hand, &mut text, &known).unwrap();
                write_line(&mut by_serde, &Line::from(&known)).unwrap();
                assert_eq!(String::from_utf8(by_hand), String::from_utf8(by_serde));
            }
        }
        assert!(push_plain(&mut text, &Known { item: plain, stamp: None }).unwrap());
    }

    #[test]
    fn a_resource_is_kept_with_all_that_is_known_of_it() {
        let link = Link {
            length: Some(3),
            pri: Some(1),
            media_type: Some("text/html".into()),
            ..Link::new(Relation::Alternate, "http://example.org/a.html")
        };
        let item = Item {
            lastmod: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            length: Some(7),
            hashes: Hashes::parse("md5:900150983cd24fb0d6963f7d28e17f72"),
            media_type: Some("text/plain".into()),
            encoding: Some("gzip".into()),
            links: vec![link],
            ..Item::new("http://example.org/a")
        };
        let stamp = Some("1:2:3:4".parse().unwrap());
        let known = Known { item, stamp };
        let text = serde_json::to_string(&Line::from(&known)).unwrap();
        assert!(text.starts_with("{\"loc\":"), "{text}");
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap().into_known(), Some(known));
    }
}
