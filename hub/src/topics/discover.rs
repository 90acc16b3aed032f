//! What a topic says about itself: its hubs, its canonical URL, its Capability List (WebSub section 4).
//!
//! `Link` headers come first; what they lack is looked for in the content, as far as it is HTML, Atom or RSS (W-030).

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LINK};
use http::{HeaderMap, HeaderValue};
use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use resync_core::websub::LinkHeader;
use url::Url;

/// How much of a page is looked through: links stand in its head (W-026).
const LOOKED_THROUGH: usize = 512 * 1024;
/// How many links of a page are taken.
const MOST_LINKS: usize = 256;

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
pub(super) fn discover(url: &Url, headers: &HeaderMap, body: &Bytes) -> Discovered {
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
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    let essence = content_type.unwrap_or_default();
    let essence = essence.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if essence == b"text/html" {
        return html_links(&String::from_utf8_lossy(&body[..body.len().min(LOOKED_THROUGH)]));
    }
    if essence.ends_with(b"xml") { feed_links(&String::from_utf8_lossy(body)) } else { LinkHeader::default() }
}

/// The links of an Atom feed or an RSS channel: those of the feed itself, not those of its entries.
fn feed_links(text: &str) -> LinkHeader {
    let mut reader = Reader::from_str(text);
    let mut links = LinkHeader::default();
    let mut depth = 0_usize;
    loop {
        let (start, empty) = match reader.read_event() {
            Ok(Event::Start(start)) => (start, false),
            Ok(Event::Empty(start)) => (start, true),
            Ok(Event::End(_)) => {
                depth = depth.saturating_sub(1);
                continue;
            }
            Ok(Event::Eof) | Err(_) => return links,
            Ok(_) => continue,
        };
        let name = start.local_name();
        let root_is_known = depth > 0 || matches!(name.as_ref(), "feed" | "rss" | "RDF" | "html");
        // An HTML head in XML form is two deep, like an RSS channel; an Atom feed is one deep.
        let entry = matches!(name.as_ref(), "entry" | "item" | "body");
        if !root_is_known || entry || links.iter().len() >= MOST_LINKS {
            return links;
        }
        if name.as_ref() == "link" && (1..=2).contains(&depth) {
            links = with_xml_link(links, &start);
        }
        depth += usize::from(!empty);
    }
}

fn with_xml_link(links: LinkHeader, start: &BytesStart<'_>) -> LinkHeader {
    let value = |wanted: &str| {
        let attribute = start.attributes().flatten().find(|one| one.key.as_ref() == wanted)?;
        attribute.normalized_value(XmlVersion::Implicit1_0).ok().map(Cow::into_owned)
    };
    match (value("rel"), value("href")) {
        (Some(rel), Some(href)) => links.push(href, rel),
        _ => links,
    }
}

/// The links in the head of a page.
fn html_links(page: &str) -> LinkHeader {
    // Lower case of ASCII only keeps every byte where it is.
    let lower = page.to_ascii_lowercase();
    let mut links = LinkHeader::default();
    let mut at = 0;
    while let Some(begin) = lower[at..].find('<').map(|offset| at + offset) {
        at = begin + 1;
        let rest = &lower[at..];
        if rest.starts_with("!--") {
            at = rest.find("-->").map_or(lower.len(), |end| at + end);
        } else if let Some(raw) =
            ["script", "style", "title", "template", "noscript"].iter().find(|raw| is_tag(rest, raw))
        {
            at = rest.find(&format!("</{raw}")).map_or(lower.len(), |end| at + end);
        } else if is_tag(rest, "body") || rest.starts_with("/head") || links.iter().len() >= MOST_LINKS {
            break;
        } else if is_tag(rest, "link") {
            links = with_html_link(links, &page[at + "link".len()..]);
        }
    }
    links
}

fn is_tag(rest: &str, name: &str) -> bool {
    rest.strip_prefix(name)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-'))
}

/// `rest` is what follows the name of a `link` tag.
fn with_html_link(links: LinkHeader, rest: &str) -> LinkHeader {
    let (mut rel, mut href) = (None, None);
    for (name, value) in attributes(rest) {
        let place = match name.to_ascii_lowercase().as_str() {
            "rel" => &mut rel,
            "href" => &mut href,
            _ => continue,
        };
        place.get_or_insert_with(|| unescape(value).map_or_else(|_| value.to_owned(), Cow::into_owned));
    }
    match (rel, href) {
        (Some(rel), Some(href)) => links.push(href, rel),
        _ => links,
    }
}

/// The attributes of a tag up to its end, with and without quotes.
fn attributes(mut rest: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        let end = rest
            .find(|c: char| c.is_ascii_whitespace() || matches!(c, '=' | '>' | '/'))
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.is_empty() {
            return found;
        }
        let Some(value) = after.trim_ascii_start().strip_prefix('=') else {
            rest = after;
            continue;
        };
        let value = value.trim_ascii_start();
        let (value, after) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split_once(quote).unwrap_or((&value[1..], "")),
            _ => value
                .split_at(value.find(|c: char| c.is_ascii_whitespace() || c == '>').unwrap_or(value.len())),
        };
        found.push((name, value));
        rest = after;
    }
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
    fn w025_w026_the_links_of_a_pages_head_are_found_however_they_are_written() {
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
