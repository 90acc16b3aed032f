//! `Link` header fields (RFC 8288): read from anybody, written for the strictest reader (sections 4 and 7, H-08).

use std::{fmt, slice};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use url::Url;

/// The most links that are read from one message; what follows is skipped.
pub const MAX_LINKS: usize = 256;

/// Characters that no URI may contain.
const ILLEGAL: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// One link: a target and how it relates to what the message is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkValue {
    /// A URI or relative reference, its illegal characters percent-encoded.
    pub target: String,
    /// At least one relation, in lower case.
    pub rels: Vec<String>,
    /// The other parameters in the order given, names in lower case, values of visible ASCII characters and spaces.
    pub params: Vec<(String, String)>,
}

impl LinkValue {
    /// The value of its first parameter of this name, which is given in lower case.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether it has this relation.
    pub fn has_rel(&self, rel: &str) -> bool {
        self.rels.iter().any(|known| known.eq_ignore_ascii_case(rel))
    }

    /// The absolute target (W-034), whose base is `base` where it is relative; `None` where it makes no URL.
    pub fn target_from(&self, base: &Url) -> Option<String> {
        if Url::parse(&self.target).is_ok() {
            return Some(self.target.clone());
        }
        Some(legal_target(base.join(&self.target).ok()?.as_str()))
    }
}

impl fmt::Display for LinkValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>; rel=\"{}\"", self.target, self.rels.join(" "))?;
        for (name, value) in &self.params {
            write!(f, "; {name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))?;
        }
        Ok(())
    }
}

/// The links of a message.
///
/// [`parse`](Self::parse) takes what the world sends; `Display` gives one header value in the form that every known
/// reader understands (W-146, H-08).
///
/// ```
/// use resync_core::websub::LinkHeader;
///
/// let found = LinkHeader::parse(["<https://hub.example/>; rel=hub, </changes.xml> ;REL=\"Self up\""]);
/// assert_eq!(found.with_rel("hub").collect::<Vec<_>>(), ["https://hub.example/"]);
/// assert_eq!(found.first("self"), Some("/changes.xml"));
///
/// let sent = LinkHeader::default().push("https://hub.example/", "hub").push("https://source.example/changes.xml", "self");
/// assert_eq!(
///     sent.to_string(),
///     r#"<https://hub.example/>; rel="hub", <https://source.example/changes.xml>; rel="self""#
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkHeader(Vec<LinkValue>);

impl LinkHeader {
    /// Reads every field of that name. Never fails: links that cannot be read, or that name no relation, are skipped,
    /// and so is everything after [`MAX_LINKS`].
    pub fn parse(fields: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut links = Vec::new();
        for field in fields {
            let text = String::from_utf8_lossy(field.as_ref());
            let mut scanner = Scanner { rest: &text };
            while links.len() < MAX_LINKS
                && let Some(target) = scanner.target()
            {
                links.extend(scanner.link(target));
            }
        }
        Self(links)
    }

    /// Adds a link. Characters that a target must not contain are percent-encoded; a relation may be several, separated
    /// by spaces. Where no legal relation is left nothing is added.
    #[must_use]
    pub fn push(mut self, target: impl AsRef<str>, rel: impl AsRef<str>) -> Self {
        let rels = relations(rel.as_ref());
        if !rels.is_empty() {
            self.0.push(LinkValue { target: legal_target(target.as_ref()), rels, params: Vec::new() });
        }
        self
    }

    /// Gives the link that was added last a parameter, such as `type`. A name that is no token, and a value with other than
    /// visible ASCII characters and spaces, cannot be written and is left out.
    ///
    /// ```
    /// use resync_core::websub::LinkHeader;
    ///
    /// let sent = LinkHeader::default().push("https://s.example/map", "timemap").param("type", "application/link-format");
    /// assert_eq!(sent.to_string(), r#"<https://s.example/map>; rel="timemap"; type="application/link-format""#);
    /// ```
    #[must_use]
    pub fn param(mut self, name: &str, value: impl Into<String>) -> Self {
        if let Some(link) = self.0.last_mut() {
            link.params.extend(legal_parameter(name, value.into()));
        }
        self
    }

    /// The targets of all links with that relation, in the order given.
    pub fn with_rel(&self, rel: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |link| link.has_rel(rel)).map(|link| link.target.as_str())
    }

    /// The target of the first link with that relation.
    pub fn first(&self, rel: &str) -> Option<&str> {
        self.with_rel(rel).next()
    }

    /// All links in the order given.
    pub fn iter(&self) -> slice::Iter<'_, LinkValue> {
        self.0.iter()
    }

    /// Whether there is no link.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// With relative targets made absolute (W-034); absolute ones stay as they are. A link whose target makes no URL is
    /// left out. Each link may become as long as its base: where both are a stranger's, and many, see
    /// [`LinkValue::target_from`].
    #[must_use]
    pub fn resolve(&self, base: &Url) -> Self {
        let absolute = |link: &LinkValue| Some(LinkValue { target: link.target_from(base)?, ..link.clone() });
        Self(self.0.iter().filter_map(absolute).collect())
    }
}

impl<'a> IntoIterator for &'a LinkHeader {
    type Item = &'a LinkValue;
    type IntoIter = slice::Iter<'a, LinkValue>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for LinkHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, link) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{link}")?;
        }
        Ok(())
    }
}

/// A target as a `Link` header can have it: characters that no URI may contain are percent-encoded.
///
/// ```
/// assert_eq!(resync_core::websub::legal_target("http://s.example/a|b"), "http://s.example/a%7Cb");
/// ```
pub fn legal_target(target: &str) -> String {
    utf8_percent_encode(target.trim(), ILLEGAL).to_string()
}

fn relations(text: &str) -> Vec<String> {
    let legal =
        |rel: &&str| rel.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'<' | b'>'));
    text.split_ascii_whitespace().filter(legal).map(str::to_ascii_lowercase).collect()
}

/// What is left of a field.
struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    /// Moves behind the next `<…>` and gives what is in it.
    fn target(&mut self) -> Option<&'a str> {
        let (_, after) = self.rest.split_once('<')?;
        let (inside, rest) = after.split_once('>')?;
        self.rest = rest;
        // A second `<` means that the first was never closed.
        Some(inside.rsplit('<').next().unwrap_or(inside))
    }

    /// Reads the parameters that follow a target; no link without a relation.
    fn link(&mut self, target: &str) -> Option<LinkValue> {
        let mut rels = None;
        let mut params = Vec::new();
        while let Some((name, value)) = self.parameter() {
            if !name.eq_ignore_ascii_case("rel") {
                params.extend(legal_parameter(name, value));
            } else if rels.is_none() {
                // RFC 8288, 3.3: only the first counts.
                rels = Some(relations(&value));
            }
        }
        let rels = rels.filter(|rels| !rels.is_empty())?;
        Some(LinkValue { target: legal_target(target), rels, params })
    }

    /// The next parameter of this link; none at a comma, at the next target or at the end.
    fn parameter(&mut self) -> Option<(&'a str, String)> {
        self.rest = self.rest.trim_start_matches(|c: char| c == ';' || c.is_whitespace());
        if self.rest.is_empty() || self.rest.starts_with([',', '<']) {
            return None;
        }
        let name = self.take_until(|c| matches!(c, '=' | ';' | ',' | '<') || c.is_whitespace());
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix('=') {
            Some(value) => {
                self.rest = value.trim_start();
                Some((name, self.value()))
            }
            None => Some((name, String::new())),
        }
    }

    fn value(&mut self) -> String {
        if let Some(value) = self.quoted() {
            return value;
        }
        let token = self.take_until(|c| matches!(c, ';' | ',' | '<') || c.is_whitespace());
        token.trim_matches(['"', '\'']).to_owned()
    }

    /// A quoted string, unless its end is missing.
    fn quoted(&mut self) -> Option<String> {
        let inside = self.rest.strip_prefix('"')?;
        let mut value = String::new();
        let mut characters = inside.char_indices();
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    self.rest = &inside[at + 1..];
                    return Some(value);
                }
                '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
                other => value.push(other),
            }
        }
        None
    }

    fn take_until(&mut self, end: impl Fn(char) -> bool) -> &'a str {
        let (taken, rest) = self.rest.split_at(self.rest.find(end).unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }
}

/// A parameter that can be written again: a token for a name, visible ASCII and spaces for a value.
fn legal_parameter(name: &str, value: String) -> Option<(String, String)> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let legal = !name.is_empty()
        && name.bytes().all(token)
        && value.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    legal.then(|| (name.to_ascii_lowercase(), value))
}

#[cfg(test)]
mod tests;
