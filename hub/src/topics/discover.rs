//! Discovery on a topic that was fetched (WebSub section 4), as far as its links have room in a notification.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LINK};
use http::{HeaderMap, HeaderValue};
use resync_core::websub::{Advertised, LinkHeader, embedded_links, legal_target};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use url::Url;

use super::length_limits::{LinkBudget, Oversized, check_links};
use super::topic_client::Fetched;
use crate::store::NotificationLinks;

/// A body beyond this is looked through where it holds up no other task.
const LARGE: usize = 32 * 1024;
/// So many of them at once: meanwhile each takes its size several times, more where it is no UTF-8.
static LARGE_AT_ONCE: Semaphore = Semaphore::const_new(4);

/// Finds the links of an answer whose content came from `url`. Relative targets are made absolute (W-034), link by link as long as
/// there is room: each may become as long as the topic's URL, and there may be hundreds.
fn discover(url: &Url, headers: &HeaderMap, body: &Bytes) -> Result<Advertised, Oversized> {
    let header = LinkHeader::parse(headers.get_all(LINK).iter().map(HeaderValue::as_bytes));
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content = || embedded_links(content_type.unwrap_or_default(), body);
    let mut budget = LinkBudget::new();
    Advertised::discover(&header, content, |_, link| budget.resolve(link, url))
}

/// Discovers without holding up other tasks while a large body is looked through.
///
/// # Errors
/// [`Oversized::Links`]
pub(super) async fn discover_in(fetched: &Fetched) -> Result<Advertised, Oversized> {
    let Fetched { url, answer, .. } = fetched;
    if answer.body.len() <= LARGE {
        return discover(url, &answer.headers, &answer.body);
    }
    // It is never closed.
    let _turn = LARGE_AT_ONCE.acquire().await;
    let (url, headers, body) = (url.clone(), answer.headers.clone(), answer.body.clone());
    // It does not panic, and it is not aborted but where the hub stops: then nobody asks any more.
    spawn_blocking(move || discover(&url, &headers, &body))
        .await
        .unwrap_or_else(|_| Ok(Advertised::default()))
}

/// The links of a notification about content that came from `url`. One that names no hub has this one (D-12).
///
/// # Errors
/// [`Oversized::Links`]
pub(super) fn notification_links(
    found: Advertised,
    url: &Url,
    hub: &str,
) -> Result<NotificationLinks, Oversized> {
    let Advertised { mut hubs, canonical, resourcesync } = found;
    if hubs.is_empty() {
        hubs.push(legal_target(hub));
    }
    // As it will be sent, so that it weighs what it is.
    let canonical = canonical.unwrap_or_else(|| legal_target(url.as_str()));
    let links = NotificationLinks { hubs, canonical, resourcesync };
    check_links(&links)?;
    Ok(links)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(headers: &[(&'static str, &str)], body: &str) -> Advertised {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let url = Url::parse("http://blog.example/dir/feed").unwrap();
        discover(&url, &map, &Bytes::copy_from_slice(body.as_bytes())).unwrap()
    }

    fn expected(hubs: &[&str], canonical: Option<&str>) -> Advertised {
        Advertised {
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
        assert_eq!(found(&[("content-type", "text/plain")], rss), Advertised::default());
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

    #[test]
    fn the_hubs_of_a_json_feed_are_found() {
        let body = r#"{"version": "https://jsonfeed.org/version/1.1", "feed_url": "/feed.json",
                       "hubs": [{"type": "WebSub", "url": "/hub"}]}"#;
        let wanted = expected(&["http://blog.example/hub"], Some("http://blog.example/feed.json"));
        assert_eq!(found(&[("content-type", "application/feed+json")], body), wanted);
    }

    fn resolved(base: &Url, links: &LinkHeader) -> Result<NotificationLinks, Oversized> {
        let mut budget = LinkBudget::new();
        let found = Advertised::discover(links, LinkHeader::default, |_, link| budget.resolve(link, base))?;
        notification_links(found, base, "http://hub.example/websub/")
    }

    #[test]
    fn hundreds_of_links_against_a_long_url_end_at_the_first_that_has_no_room() {
        let base: Url = format!("http://blog.example/{}/", "d".repeat(1_900)).parse().unwrap();
        let links = (0..255).fold(LinkHeader::default(), |links, hub| links.push(format!("{hub}"), "hub"));
        assert_eq!(resolved(&base, &links), Err(Oversized::Links));
        let few = LinkHeader::default().push("hub", "hub");
        let taken = resolved(&base, &few).unwrap();
        assert!(taken.weight() <= 4_096 && taken.hubs[0].len() > 1_900);
    }

    #[test]
    fn a_link_that_is_longer_than_all_may_be_is_not_even_resolved_and_only_what_goes_out_counts() {
        let base: Url = "http://blog.example/feed".parse().unwrap();
        let long = "x".repeat(5_000);
        for rel in ["hub", "self", "resourcesync", "icon hub"] {
            let links = LinkHeader::default().push(&long, rel);
            assert_eq!(resolved(&base, &links), Err(Oversized::Links), "{rel}");
        }
        let icon = LinkHeader::default().push(format!("data:image/png;base64,{long}"), "icon");
        let taken = resolved(&base, &icon).unwrap();
        assert_eq!(taken.hubs, ["http://hub.example/websub/"]);
        assert_eq!(taken.canonical, "http://blog.example/feed");
    }

    #[test]
    fn the_error_tells_the_topics_owner_what_to_do() {
        let said = Oversized::Links.to_string();
        assert!(said.contains("4096 bytes") && said.contains("name fewer hubs"), "{said}");
    }

    proptest! {
        #[test]
        fn whatever_is_named_what_is_taken_has_room_and_weighs_at_least_what_is_sent(
            targets in prop::collection::vec(
                ("[a-z0-9/|{} ü:.]{0,40}", prop::sample::select(vec!["hub", "self", "resourcesync", "hub self", "up"]), 1_usize..40),
                0..40,
            ),
            path in "[a-z/|{}ü]{0,60}", times in 1_usize..40,
        ) {
            let base = Url::parse(&format!("http://blog.example/{}?q={{", path.repeat(times))).unwrap();
            let links = targets.iter().fold(LinkHeader::default(), |links, (target, rel, times)| {
                links.push(target.repeat(*times), *rel)
            });
            if let Ok(taken) = resolved(&base, &links) {
                prop_assert!(taken.weight() <= 4_096);
                let sent = taken.hubs.iter().fold(LinkHeader::default(), |sent, hub| sent.push(hub, "hub"));
                let sent = sent.push(&taken.canonical, "self");
                let sent = match &taken.resourcesync {
                    Some(list) => sent.push(list, "resourcesync"),
                    None => sent,
                };
                prop_assert!(sent.to_string().len() as u64 <= taken.weight());
            }
        }

        #[test]
        fn whatever_the_content_it_is_looked_through(text in "(<|</|link|feed|head|rel=|href|hub|[>='\"/ü! -]|-->|<!--){0,40}") {
            found(&[HTML], &text);
            found(&[ATOM], &text);
        }
    }
}
