//! What a topic says about itself: its hubs, its canonical URL, its Capability List (WebSub section 4).
//!
//! `Link` headers come first; what they lack is looked for in the content, as far as it is HTML, Atom or RSS (W-030).

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LINK};
use http::{HeaderMap, HeaderValue};
use resync_core::websub::{LinkHeader, embedded_links};
use tokio::task::spawn_blocking;
use url::Url;

use super::get::Fetched;

/// A body beyond this is looked through where it holds up no other task.
const LARGE: usize = 32 * 1024;

/// What discovery on a topic yields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Discovered {
    /// `rel="hub"`, in the topic's order.
    pub(super) hubs: Vec<String>,
    /// `rel="self"`.
    pub(super) canonical: Option<String>,
    /// `rel="resourcesync"`.
    pub(super) resourcesync: Option<String>,
}

/// Finds the links of an answer whose content came from `url`. Relative targets are made absolute (W-034).
fn discover(url: &Url, headers: &HeaderMap, body: &Bytes) -> Discovered {
    let header = LinkHeader::parse(headers.get_all(LINK).iter().map(HeaderValue::as_bytes)).resolve(url);
    let mut found = Discovered::of(&header);
    if found.hubs.is_empty() || found.canonical.is_none() {
        let embedded = Discovered::of(&embedded(headers, body).resolve(url));
        if found.hubs.is_empty() {
            found.hubs = embedded.hubs;
        }
        found.canonical = found.canonical.or(embedded.canonical);
        found.resourcesync = found.resourcesync.or(embedded.resourcesync);
    }
    found
}

/// The same, without holding up other tasks while a large body is looked through.
pub(super) async fn discover_in(fetched: &Fetched) -> Discovered {
    let Fetched { url, answer, .. } = fetched;
    if answer.body.len() <= LARGE {
        return discover(url, &answer.headers, &answer.body);
    }
    let (url, headers, body) = (url.clone(), answer.headers.clone(), answer.body.clone());
    // It does not panic, and it is not aborted but where the hub stops: then nobody asks any more.
    spawn_blocking(move || discover(&url, &headers, &body)).await.unwrap_or_default()
}

impl Discovered {
    fn of(links: &LinkHeader) -> Self {
        Self {
            hubs: links.with_rel("hub").map(str::to_owned).collect(),
            canonical: links.first("self").map(str::to_owned),
            resourcesync: links.first("resourcesync").map(str::to_owned),
        }
    }
}

fn embedded(headers: &HeaderMap, body: &Bytes) -> LinkHeader {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    embedded_links(content_type.unwrap_or_default(), body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(headers: &[(&'static str, &str)], body: &str) -> Discovered {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let url = Url::parse("http://blog.example/dir/feed").unwrap();
        discover(&url, &map, &Bytes::copy_from_slice(body.as_bytes()))
    }

    fn expected(hubs: &[&str], canonical: Option<&str>) -> Discovered {
        Discovered {
            hubs: hubs.iter().map(|hub| (*hub).to_owned()).collect(),
            canonical: canonical.map(str::to_owned),
            resourcesync: None,
        }
    }

    const HTML: (&str, &str) = ("content-type", "Text/HTML; charset=utf-8");
    const ATOM: (&str, &str) = ("content-type", "application/atom+xml");

    #[test]
    fn w022_w023_w034_links_of_headers_come_in_order_and_absolute() {
        let headers = [
            ("link", "</hub1>; rel=hub, <http://h.example/2>; rel=\"hub\""),
            ("link", "<feed?x=1>; rel=self"),
        ];
        assert_eq!(
            found(&headers, ""),
            expected(
                &["http://blog.example/hub1", "http://h.example/2"],
                Some("http://blog.example/dir/feed?x=1")
            )
        );
    }

    #[test]
    fn w024_the_links_of_a_feed_are_found_and_those_of_its_entries_are_not() {
        let atom = "<?xml version='1.0'?><feed xmlns='http://www.w3.org/2005/Atom'><title>t</title>\
                    <link rel='hub' href='/hub?a=1&amp;b=2'/><link rel='self' href='http://blog.example/feed'></link>\
                    <entry><link rel='self' href='/entry'/><link rel='hub' href='/other'/></entry></feed>";
        let wanted = expected(&["http://blog.example/hub?a=1&b=2"], Some("http://blog.example/feed"));
        assert_eq!(found(&[ATOM], atom), wanted);
        let rss = "<rss version='2.0' xmlns:atom='http://www.w3.org/2005/Atom'><channel><link>http://blog.example/</link>\
                   <atom:link rel='hub' href='/hub?a=1&amp;b=2'/><atom:link rel='self' href='http://blog.example/feed'/>\
                   <item><atom:link rel='hub' href='/other'/></item></channel></rss>";
        assert_eq!(found(&[("content-type", "application/rss+xml")], rss), wanted);
        assert_eq!(found(&[("content-type", "text/plain")], rss), Discovered::default());
    }

    #[test]
    fn w025_w026_w181_the_links_of_a_pages_head_are_found_however_they_are_written() {
        for page in [
            "<!doctype html><head><title><link rel=hub href=/no></title><link rel=\"hub\" href=\"/hub\"><link href='/me' rel='self'></head>",
            "<HTML><LINK HREF=/hub REL=Hub ><LINK HREF=/me REL=\"alternate self\"/>",
            "<!-- <link rel=hub href=/no> --><script>'<link rel=hub href=/no>'</script><link rel=hub href=/hub>\
             <link rel=self href=/me><body><link rel=hub href=/no>",
        ] {
            assert_eq!(
                found(&[HTML], page),
                expected(&["http://blog.example/hub"], Some("http://blog.example/me")),
                "{page}"
            );
        }
    }

    #[test]
    fn w030_what_the_headers_say_is_not_looked_for_elsewhere() {
        let page = "<link rel=hub href=/other><link rel=self href=/me>";
        let headers = [HTML, ("link", "</hub>; rel=hub")];
        assert_eq!(
            found(&headers, page),
            expected(&["http://blog.example/hub"], Some("http://blog.example/me"))
        );
    }

    proptest! {
        #[test]
        fn whatever_the_content_it_is_looked_through(text in "(<|</|link|feed|head|rel=|href|hub|[>='\"/ü! -]|-->|<!--){0,40}") {
            found(&[HTML], &text);
            found(&[ATOM], &text);
        }
    }
}
