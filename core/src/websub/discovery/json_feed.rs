//! The hubs and the URL that a JSON Feed names (version 1 and 1.1).

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::websub::{LinkHeader, MAX_LINKS};

/// How the `version` of every JSON Feed begins.
const VERSION: &str = "https://jsonfeed.org/version/";
/// The `type` of a hub that speaks WebSub; others have protocols of their own.
const WEBSUB: &str = "WebSub";

/// The links of a feed; none if it is other JSON. What stands before an error counts, since the end may be missing.
pub(super) fn links(body: &[u8]) -> LinkHeader {
    let mut feed = Feed::default();
    if let Err(error) = serde_json::Deserializer::from_slice(body).deserialize_map(&mut feed)
        && error.is_syntax()
    {
        return LinkHeader::default();
    }
    if feed.is_feed { feed.links } else { LinkHeader::default() }
}

#[derive(Default)]
struct Feed {
    is_feed: bool,
    links: LinkHeader,
}

impl<'de> Visitor<'de> for &mut Feed {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON Feed")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key.0 {
                "version" => self.is_feed = map.next_value::<Text<'de>>()?.0.starts_with(VERSION),
                "feed_url" => self.push(&map.next_value::<Text<'de>>()?.0, "self"),
                "hubs" => {
                    let Hubs(urls) = map.next_value()?;
                    for url in &urls {
                        self.push(url, "hub");
                    }
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl Feed {
    fn push(&mut self, target: &str, rel: &str) {
        if self.links.iter().len() < MAX_LINKS {
            self.links = std::mem::take(&mut self.links).push(target, rel);
        }
    }
}

/// A text, taken from the body where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Hub<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    url: Cow<'a, str>,
}

/// The URLs of the hubs for WebSub.
struct Hubs<'a>(Vec<Cow<'a, str>>);

impl<'de> Deserialize<'de> for Hubs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Hubs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of hubs")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Hubs<'de>, A::Error> {
                let mut urls = Vec::new();
                while let Some(Hub { kind, url }) = list.next_element()? {
                    if kind.eq_ignore_ascii_case(WEBSUB) && urls.len() < MAX_LINKS {
                        urls.push(url);
                    }
                }
                Ok(Hubs(urls))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(body: &str, rel: &str) -> Vec<String> {
        links(body.as_bytes()).with_rel(rel).map(str::to_owned).collect()
    }

    const FEED: &str = r#"{"version": "https://jsonfeed.org/version/1.1", "title": "t", "feed_url": "https:\/\/a.example\/feed",
        "hubs": [{"type": "rssCloud", "url": "/cloud"}, {"type": "WebSub", "url": "/hub", "more": [1]}],
        "items": [{"id": "1", "hubs": [{"type": "WebSub", "url": "/other"}]}]}"#;

    #[test]
    fn the_hubs_and_the_url_of_a_json_feed_are_found() {
        assert_eq!(named(FEED, "hub"), ["/hub"]);
        assert_eq!(named(FEED, "self"), ["https://a.example/feed"]);
    }

    #[test]
    fn what_stands_before_the_end_of_a_cut_feed_counts_and_other_json_has_no_links() {
        assert_eq!(named(&FEED[..FEED.len() - 20], "hub"), ["/hub"]);
        for other in [
            r#"{"hubs": [{"type": "WebSub", "url": "/hub"}]}"#,
            r#"{"version": "https://jsonfeed.org/version/1.1", "hubs": [{"type": "WebSub", "url": "/hub"}]]"#,
            "[]",
            "",
            "null",
        ] {
            assert!(links(other.as_bytes()).is_empty(), "{other}");
        }
    }

    #[test]
    fn of_endless_hubs_some_are_taken() {
        let hubs = r#"{"type":"WebSub","url":"/h"},"#.repeat(1_000);
        let body = format!(
            r#"{{"version":"https://jsonfeed.org/version/1","hubs":[{}]}}"#,
            hubs.trim_end_matches(',')
        );
        assert_eq!(named(&body, "hub").len(), MAX_LINKS);
    }

    proptest! {
        #[test]
        fn whatever_the_json_it_is_looked_through(body in "([\\[\\]{},:]|\"(version|hubs|url|type|feed_url)\"|\"[a-z]\"|1){0,40}") {
            links(body.as_bytes());
        }
    }
}
