//! Any bytes as Link header fields, one a line: no panic, and what is written is read as the same.

use std::sync::LazyLock;

use resync_core::websub::{LinkHeader, MAX_LINKS};
use url::Url;

static BASE: LazyLock<Url> =
    LazyLock::new(|| Url::parse("https://source.example/lists/changes.xml").expect("it is a URL"));

/// Runs the target over one input.
pub fn run(bytes: &[u8]) {
    let links = LinkHeader::parse(bytes.split(|byte| *byte == b'\n'));
    assert!(links.iter().count() <= MAX_LINKS);
    let written = links.to_string();
    assert!(!written.contains(['\r', '\n']), "{written:?}");
    assert_eq!(LinkHeader::parse([&written]), links, "{written}");

    let absolute = links.resolve(&BASE);
    assert!(absolute.iter().all(|link| Url::parse(&link.target).is_ok()));
    assert_eq!(absolute.resolve(&BASE), absolute);
    let _ = (absolute.first("self"), absolute.with_rel("hub").count());
}
