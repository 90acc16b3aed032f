//! Any bytes as a TimeMap in chunks: no panic, the chunks make no difference, and what is written is read as the same.

use std::sync::LazyLock;

use resync_core::memento::{HttpDate, LinkFormatReader, TimeMapLink};
use resync_core::websub::LinkValue;
use url::Url;

static BASE: LazyLock<Url> =
    LazyLock::new(|| Url::parse("https://archive.example/timemap/link/x").expect("it is a URL"));

/// A link that is not too long for the reader when it is written, with all that has to be escaped.
const SHORT: usize = 32_000;

/// Runs the target over one input.
pub fn run(bytes: &[u8]) {
    let (links, skipped) = read(bytes, usize::MAX);
    assert_eq!(read(bytes, 3), (links.clone(), skipped));
    let text: Vec<String> = links.iter().map(LinkValue::to_string).collect();
    if text.iter().all(|link| link.len() < SHORT) {
        assert_eq!(read(text.join(",\n").as_bytes(), 7), (links.clone(), 0), "{text:?}");
    }
    for said in links.iter().flat_map(|link| TimeMapLink::read(link, &BASE)) {
        if let TimeMapLink::Memento { uri, at } = said {
            assert!(Url::parse(&uri).is_ok() && at.to_string().parse::<HttpDate>() == Ok(at));
        }
    }
}

fn read(bytes: &[u8], size: usize) -> (Vec<LinkValue>, u64) {
    let mut reader = LinkFormatReader::new(u64::MAX);
    let chunks = bytes.chunks(size);
    let mut links: Vec<_> = chunks.flat_map(|chunk| reader.read(chunk).expect("there is no bound")).collect();
    let end = reader.end();
    links.extend(end.links);
    (links, end.skipped)
}
