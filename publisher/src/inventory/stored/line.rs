//! A resource as one line of JSON.

use std::io::{self, Write};

use resync_core::{
    build::{Item, Known, Stamp},
    datetime::DateTime,
    digest::Hashes,
    document::{Link, Relation},
};
use serde::{Deserialize, Serialize};

use crate::helpers::serde_text::text_option;

/// A resource. Its URL comes first: lines are found by it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::inventory) struct Line {
    pub(in crate::inventory) loc: String,
    /// Whether the resource was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gone: bool,
    #[serde(default, with = "text_option")]
    lastmod: Option<DateTime>,
    length: Option<u64>,
    #[serde(default, with = "digests")]
    hashes: Hashes,
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    links: Vec<LinkLine>,
    #[serde(default, with = "text_option", skip_serializing_if = "Option::is_none")]
    stamp: Option<Stamp>,
}

impl Line {
    pub(in crate::inventory) fn of(item: Item, stamp: Option<Stamp>) -> Self {
        let Item { loc, lastmod, length, hashes, media_type, encoding, links } = item;
        let links = links.into_iter().map(LinkLine::from).collect();
        Self { loc, gone: false, lastmod, length, hashes, media_type, encoding, links, stamp }
    }

    /// A resource that was deleted.
    pub(in crate::inventory) fn gone(loc: &str) -> Self {
        Self { loc: loc.to_owned(), gone: true, ..Self::default() }
    }

    pub(in crate::inventory) fn into_known(self) -> Option<Known> {
        let Self { loc, gone, lastmod, length, hashes, media_type, encoding, links, stamp } = self;
        let links = links.into_iter().map(Link::from).collect();
        let item = Item { loc, lastmod, length, hashes, media_type, encoding, links };
        (!gone).then_some(Known { item, stamp })
    }
}

impl From<&Known> for Line {
    fn from(Known { item, stamp }: &Known) -> Self {
        Self::of(item.clone(), *stamp)
    }
}

pub(in crate::inventory) fn write_line(lines: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *lines, line)?;
    lines.write_all(b"\n")
}

/// Writes a resource as [`write_line`] does. Nearly all have one form, which this writes in half the time; `text` is its buffer.
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

/// Writes a resource of that form; `false` for others.
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

/// Digests as the text of a `hash` attribute.
mod digests {
    use resync_core::digest::Hashes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Hashes, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Hashes, D::Error> {
        String::deserialize(input).map(|text| Hashes::parse(&text))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct LinkLine {
    #[serde(with = "relation")]
    rel: Relation,
    href: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    #[serde(default, with = "digests", skip_serializing_if = "Hashes::is_empty")]
    hash: Hashes,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(default, with = "text_option", skip_serializing_if = "Option::is_none")]
    modified: Option<DateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pri: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// Its path in a package, and attributes of other namespaces, are of no use here.
impl From<Link> for LinkLine {
    fn from(link: Link) -> Self {
        let Link { rel, href, encoding, hash, length, modified, pri, media_type, profile, .. } = link;
        Self { rel, href, encoding, hash, length, modified, pri, media_type, profile }
    }
}

impl From<LinkLine> for Link {
    fn from(line: LinkLine) -> Self {
        let LinkLine { rel, href, encoding, hash, length, modified, pri, media_type, profile } = line;
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
