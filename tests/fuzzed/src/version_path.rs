//! Any text behind the prefix of a Source's versions: no panic, what is understood has one URI, and what is said of a version there is read
//! as it was meant.

use std::sync::LazyLock;

use resync_core::memento::{
    Described, Layout, LinkFormatReader, Stamp, TimeMapLink, VersionPath, Versions, is_same_original,
    link_format,
};
use resync_core::websub::{LinkHeader, TopicUrl, legal_target};
use url::Url;

static LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout::new("https://s.example/resync/versions"));
static BASE: LazyLock<Url> = LazyLock::new(|| Url::parse(LAYOUT.prefix()).expect("it is a URL"));

/// What is kept beside what was asked for.
const KEPT: [&str; 4] = ["20240101000000", "20240601120000", "20240601120000-1", "20250101000000"];

/// No link of this original is too long for the reader.
const SHORT: usize = 30_000;

/// Runs the target over one input.
pub fn run(text: &str) {
    let Some(path) = VersionPath::parse(text) else { return };
    let original = path.original();
    let (uri, asked) = match &path {
        VersionPath::TimeGate { .. } => (LAYOUT.time_gate(original), None),
        VersionPath::TimeMap { from: None, .. } => (LAYOUT.time_map(original), None),
        VersionPath::TimeMap { from: Some(first), .. } => {
            (LAYOUT.time_map_page(*first, original), Some(*first))
        }
        VersionPath::Memento { stamp, .. } => (LAYOUT.memento(*stamp, original), Some(*stamp)),
    };
    assert_eq!(LAYOUT.read(&uri).as_ref(), Some(&path), "{uri}");
    assert!(is_same_original(original, original));
    if let Ok(url) = TopicUrl::parse(original) {
        assert!(is_same_original(original, url.key()), "{original}");
    }
    describe(original, asked);
}

/// A TimeGate and a TimeMap of this original tell its versions to whoever reads them.
fn describe(original: &str, asked: Option<Stamp>) {
    let known = KEPT.iter().map(|text| text.parse::<Stamp>().expect("it is one"));
    let mut kept: Vec<Stamp> = known.chain(asked).collect();
    kept.sort_unstable();
    kept.dedup();
    let versions = Versions::of(&kept);
    let at = asked.map(|asked| asked.at);
    let chosen = versions.choose(at).expect("there are versions");
    let naive = kept.iter().rposition(|stamp| at.is_none_or(|at| stamp.at <= at));
    assert_eq!(chosen, naive.unwrap_or(0));

    let described = Described { layout: &LAYOUT, original };
    let said = described.links(versions, chosen);
    let header = said.to_string();
    assert!(header.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{header:?}");
    assert_eq!(LinkHeader::parse([&header]), said, "{header}");

    let map = described.time_map(versions, None).expect("there are versions");
    if original.len() < SHORT / 3 {
        let mut reader = LinkFormatReader::new(u64::MAX);
        let mut read = reader.read(link_format::write(&map).as_bytes()).expect("there is no bound");
        let end = reader.end();
        read.extend(end.links);
        assert_eq!((read.iter().eq(map.iter()), end.skipped), (true, 0), "{map}");
    }
    // What is no URI is made one, and then names another original.
    if legal_target(original) == original {
        let expected: Vec<_> = kept.iter().map(|stamp| LAYOUT.memento(*stamp, original)).collect();
        assert_eq!(mementos(&map), expected);
        let expected = |stamp: &Stamp| VersionPath::Memento { original: original.to_owned(), stamp: *stamp };
        let read = mementos(&map).iter().filter_map(|uri| LAYOUT.read(uri)).collect::<Vec<_>>();
        assert_eq!(read, kept.iter().map(expected).collect::<Vec<_>>());
    }
}

fn mementos(links: &LinkHeader) -> Vec<String> {
    let said = links.iter().flat_map(|link| TimeMapLink::read(link, &BASE));
    let uri = |link: TimeMapLink| {
        let TimeMapLink::Memento { uri, .. } = link else { return None };
        Some(uri)
    };
    said.filter_map(uri).collect()
}
