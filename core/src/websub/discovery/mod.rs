//! What a topic advertises about itself: its hubs, its canonical URL, its Capability List (WebSub, section 4).
//!
//! `Link` headers come first; what they lack is looked for in the content: in the head of an HTML page, in an Atom feed,
//! an RSS channel or a JSON Feed (W-024…W-026, W-030).

mod feed;
mod html;
mod json_feed;

use super::{LinkHeader, LinkValue};
use crate::media_type;

/// How much of an HTML page is looked through: links stand in its head (W-026).
const MAX_HTML: usize = 512 * 1024;
/// How many attributes of a link are looked at.
const MAX_ATTRIBUTES: usize = 64;

/// What a topic advertises. Targets are as the caller of [`discover`](Self::discover) resolved them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// `rel="hub"`, in the topic's order.
    pub hubs: Vec<String>,
    /// `rel="self"`.
    pub canonical: Option<String>,
    /// `rel="resourcesync"`.
    pub resourcesync: Option<String>,
}

impl Advertised {
    /// Finds the links of an answer. `content` gives those of its content, and is called only where the header names no
    /// hub or no canonical URL (W-030). `resolve` makes the target of a link absolute, for a relation; it leaves the link
    /// out with `None`.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use resync_core::websub::{Advertised, LinkHeader, embedded_links};
    /// use url::Url;
    ///
    /// let url = Url::parse("https://blog.example/feed.json")?;
    /// let header = LinkHeader::parse(["</feed.json>; rel=self"]);
    /// let body = br#"{"version": "https://jsonfeed.org/version/1.1", "hubs": [{"type": "WebSub", "url": "/hub"}]}"#;
    /// let content = || embedded_links("application/feed+json", body);
    /// let Ok(found) = Advertised::discover(&header, content, |_, link| Ok::<_, Infallible>(link.target_from(&url)));
    /// assert_eq!(found.hubs, ["https://blog.example/hub"]);
    /// assert_eq!(found.canonical.as_deref(), Some("https://blog.example/feed.json"));
    /// # Ok::<(), url::ParseError>(())
    /// ```
    pub fn discover<E>(
        header: &LinkHeader,
        content: impl FnOnce() -> LinkHeader,
        mut resolve: impl FnMut(&str, &LinkValue) -> Result<Option<String>, E>,
    ) -> Result<Self, E> {
        let mut found = Self::default();
        found.take(header, &mut resolve)?;
        if found.hubs.is_empty() || found.canonical.is_none() {
            found.take(&content(), &mut resolve)?;
        }
        Ok(found)
    }

    /// Takes the links of relations that are still missing.
    fn take<E>(
        &mut self,
        links: &LinkHeader,
        resolve: &mut impl FnMut(&str, &LinkValue) -> Result<Option<String>, E>,
    ) -> Result<(), E> {
        let wants_hubs = self.hubs.is_empty();
        for link in links {
            if self.canonical.is_none() && link.has_rel("self") {
                self.canonical = resolve("self", link)?;
            }
            if self.resourcesync.is_none() && link.has_rel("resourcesync") {
                self.resourcesync = resolve("resourcesync", link)?;
            }
            if wants_hubs && link.has_rel("hub") {
                self.hubs.extend(resolve("hub", link)?);
            }
        }
        Ok(())
    }
}

/// The links of content of this type, as they are written; none if it is no HTML, no XML and no JSON Feed.
///
/// ```
/// use resync_core::websub::embedded_links;
///
/// let links = embedded_links("text/html; charset=utf-8", b"<link rel=hub href=/hub>");
/// assert_eq!(links.first("hub"), Some("/hub"));
/// ```
pub fn embedded_links(content_type: &str, body: &[u8]) -> LinkHeader {
    match media_type::essence(content_type).to_ascii_lowercase().as_str() {
        "text/html" => html::links(&String::from_utf8_lossy(&body[..body.len().min(MAX_HTML)])),
        "application/feed+json" | "application/json" => json_feed::links(body),
        xml if media_type::is_any_xml(xml) => feed::links(&String::from_utf8_lossy(body)),
        _ => LinkHeader::default(),
    }
}

/// Whether two URLs are those of one hub: also if one has a slash at the end and the other has none.
///
/// ```
/// use resync_core::websub::is_same_hub;
///
/// assert!(is_same_hub("https://hub.example/websub/", "https://hub.example/websub"));
/// assert!(!is_same_hub("https://hub.example/websub/", "https://hub.example/"));
/// ```
pub fn is_same_hub(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websub::MAX_LINKS;

    fn hubs(content_type: &str, text: &str) -> Vec<String> {
        embedded_links(content_type, text.as_bytes()).with_rel("hub").map(str::to_owned).collect()
    }

    #[test]
    fn d20_a_page_of_tags_without_an_end_is_read_once() {
        for part in ["<link a ", "<link ", "<link rel=hub href='", "<link a=b/", "<link\n=", "<!-- <link a "]
        {
            let page = part.repeat(MAX_HTML / part.len());
            assert!(hubs("text/html", &page).len() <= MAX_LINKS, "{part}");
        }
        let feed = format!("<feed><link {}rel='hub' href='/hub'/></feed>", "a='' ".repeat(40_000));
        assert!(hubs("application/atom+xml", &feed).is_empty());
    }

    #[test]
    fn d20_of_a_tag_with_endless_attributes_a_few_are_looked_at_and_the_next_tag_counts() {
        let (few, many) = ("a ".repeat(MAX_ATTRIBUTES - 2), "a ".repeat(MAX_ATTRIBUTES));
        let page = format!("<link {few}rel=hub href=/1><link {many}rel=hub href=/2><link rel=hub href=/3>");
        assert_eq!(hubs("text/html", &page), ["/1", "/3"]);
    }
}
