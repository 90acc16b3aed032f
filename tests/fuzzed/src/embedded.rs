//! Any bytes as a page and as a feed: no panic, no more links than tags, none that breaks a header, and the type counts however
//! it is written.

use resync_core::websub::{LinkHeader, MAX_LINKS, embedded_links};

/// Runs the target over one input.
pub fn run(body: &[u8]) {
    let tags = body.windows(4).filter(|four| four.eq_ignore_ascii_case(b"link")).count();
    for (content_type, respelled) in
        [("text/html", "Text/HTML ;charset=utf-8"), ("application/atom+xml", "APPLICATION/ATOM+XML; x")]
    {
        let links = embedded_links(content_type, body);
        let found = links.iter().count();
        assert!(found <= tags && found <= MAX_LINKS, "{found} links in {tags} tags");
        assert_eq!(embedded_links(respelled, body), links);
        let written = links.to_string();
        assert!(!written.contains(['\r', '\n']), "{written:?}");
        assert_eq!(LinkHeader::parse([&written]), links, "{written}");
    }
    assert!(embedded_links("application/feed+json", body).iter().count() <= MAX_LINKS);
    assert!(embedded_links("text/plain", body).is_empty());
}
