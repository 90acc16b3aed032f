//! The URIs of TimeGates, TimeMaps and mementos: a prefix, and the whole URI of the original behind it (MEM-020).

use crate::websub::TopicUrl;

use super::Stamp;

/// Where the versions of a Source are, below its base URL.
pub const VERSIONS_PATH: &str = "resync/versions/";

/// What stands between the prefix and the original in the URI of a TimeMap.
const TIME_MAP: &str = "timemap/link/";

/// Web archives give the bytes as they were at a URI with this mark. Here they always do.
const AS_IT_WAS: &str = "id_";

/// The URIs of one Source, or of another archive with the layout of web archives.
///
/// ```
/// use resync_core::memento::{Layout, VersionPath};
///
/// let layout = Layout::new("https://example.org/resync/versions/");
/// let uri = layout.time_map("https://example.org/a.txt?b=c");
/// assert_eq!(uri, "https://example.org/resync/versions/timemap/link/https://example.org/a.txt?b=c");
/// assert_eq!(
///     layout.read(&uri),
///     Some(VersionPath::TimeMap { original: "https://example.org/a.txt?b=c".to_owned(), from: None })
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    prefix: String,
}

/// What a URI behind the prefix names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionPath {
    /// Where a version of the original is negotiated.
    TimeGate {
        /// The URI of the original.
        original: String,
    },
    /// The list of the original's versions.
    TimeMap {
        /// The URI of the original.
        original: String,
        /// The first version of this page, where the list has several (MEM-034).
        from: Option<Stamp>,
    },
    /// One version of the original.
    Memento {
        /// The URI of the original.
        original: String,
        /// Which one.
        stamp: Stamp,
    },
}

impl Layout {
    /// URIs that begin with `prefix`, to which a missing `/` is added.
    pub fn new(prefix: impl Into<String>) -> Self {
        let mut prefix = prefix.into();
        if !prefix.ends_with('/') {
            prefix.push('/');
        }
        Self { prefix }
    }

    /// What all of them begin with. It ends in `/`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The URI of an original's TimeGate.
    pub fn time_gate(&self, original: &str) -> String {
        format!("{}{original}", self.prefix)
    }

    /// The URI of an original's TimeMap.
    pub fn time_map(&self, original: &str) -> String {
        format!("{}{TIME_MAP}{original}", self.prefix)
    }

    /// The URI of the page of an original's TimeMap that begins with the version `first` (MEM-034).
    pub fn time_map_page(&self, first: Stamp, original: &str) -> String {
        format!("{}{TIME_MAP}{first}/{original}", self.prefix)
    }

    /// The URI of an original's version.
    pub fn memento(&self, stamp: Stamp, original: &str) -> String {
        format!("{}{stamp}/{original}", self.prefix)
    }

    /// What a URI with this prefix names; `None` where it is nothing of the layout.
    pub fn read(&self, uri: &str) -> Option<VersionPath> {
        VersionPath::parse(uri.strip_prefix(&self.prefix)?)
    }
}

impl VersionPath {
    /// Reads what stands behind the prefix, with the query, exactly as it was sent: a query belongs to the original.
    pub fn parse(rest: &str) -> Option<Self> {
        if let Some(original) = original(rest) {
            return Some(Self::TimeGate { original });
        }
        if let Some(rest) = rest.strip_prefix(TIME_MAP) {
            if let Some(original) = original(rest) {
                return Some(Self::TimeMap { original, from: None });
            }
            let (first, rest) = rest.split_once('/')?;
            return Some(Self::TimeMap { from: Some(first.parse().ok()?), original: original(rest)? });
        }
        let (stamp, rest) = rest.split_once('/')?;
        let stamp = stamp.strip_suffix(AS_IT_WAS).unwrap_or(stamp).parse().ok()?;
        Some(Self::Memento { stamp, original: original(rest)? })
    }

    /// The URI of the original.
    pub fn original(&self) -> &str {
        match self {
            Self::TimeGate { original } | Self::TimeMap { original, .. } | Self::Memento { original, .. } => {
                original
            }
        }
    }
}

/// Whether two URIs name one original (MEM-054): both are the same but for what makes no difference to HTTP.
///
/// ```
/// use resync_core::memento::is_same_original;
///
/// assert!(is_same_original("https://Example.org:443/%7Ea", "https://example.org/~a"));
/// assert!(!is_same_original("https://example.org/a", "https://example.org/A"));
/// ```
pub fn is_same_original(one: &str, other: &str) -> bool {
    one == other
        || matches!((TopicUrl::parse(one), TopicUrl::parse(other)), (Ok(one), Ok(other)) if one == other)
}

/// An absolute HTTP URI; proxies that merge slashes made `http:/` of its `http://`.
fn original(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once(":/")?;
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return None;
    }
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    Some(format!("{scheme}://{rest}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "https://example.org/a.txt";

    #[expect(clippy::unnecessary_wraps, reason = "it is compared with what reading gives")]
    fn gate(original: &str) -> Option<VersionPath> {
        Some(VersionPath::TimeGate { original: original.to_owned() })
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is compared with what reading gives")]
    fn memento(stamp: &str, original: &str) -> Option<VersionPath> {
        Some(VersionPath::Memento { stamp: stamp.parse().unwrap(), original: original.to_owned() })
    }

    #[test]
    fn mem020_the_layout_is_that_of_web_archives() {
        let layout = Layout::new("https://example.org/resync/versions");
        let stamp: Stamp = "20240601120000".parse().unwrap();
        assert_eq!(layout.time_gate(A), "https://example.org/resync/versions/https://example.org/a.txt");
        assert_eq!(
            layout.time_map(A),
            "https://example.org/resync/versions/timemap/link/https://example.org/a.txt"
        );
        assert_eq!(
            layout.memento(stamp, A),
            "https://example.org/resync/versions/20240601120000/https://example.org/a.txt"
        );
        assert_eq!(
            VersionPath::parse("20240601120000id_/https://example.org/a.txt"),
            memento("20240601120000", A)
        );
        assert_eq!(
            VersionPath::parse("20240601120000-1id_/https://example.org/a.txt"),
            memento("20240601120000-1", A)
        );
    }

    #[test]
    fn mem020_a_query_belongs_to_the_original_and_a_merged_slash_is_mended() {
        assert_eq!(VersionPath::parse("https://s.example/a?b=//c?d"), gate("https://s.example/a?b=//c?d"));
        assert_eq!(VersionPath::parse("https:/example.org/a.txt"), gate(A));
        assert_eq!(
            VersionPath::parse("20240601120000/https:/example.org/a.txt"),
            memento("20240601120000", A)
        );
        assert_eq!(VersionPath::parse("http://s.example/a//b/"), gate("http://s.example/a//b/"));
    }

    #[test]
    fn mem027_what_names_no_http_resource_is_nothing_of_the_layout() {
        for rest in [
            "",
            "a.txt",
            "ftp://example.org/a.txt",
            "timemap/link/",
            "timemap/json/https://example.org/a.txt",
            "timemap/link/2/https://example.org/a.txt",
            "2024/https://example.org/a.txt",
            "20240601120000/",
            "20240601120000mp_/https://example.org/a.txt",
            "20240601120000/20240601120000/https://example.org/a.txt",
            "javascript:/alert",
        ] {
            assert_eq!(VersionPath::parse(rest), None, "{rest}");
        }
    }

    proptest! {
        #[test]
        fn what_the_layout_writes_it_reads(
            original in "https?://[a-z.]{1,12}(/[a-z0-9./?&=:;%,~-]{0,30})?",
            ordinal in 0_u64..3,
        ) {
            let layout = Layout::new("https://s.example/resync/versions/");
            let stamp = Stamp::new("2024-06-01T12:00:00Z".parse().unwrap(), ordinal);
            let original = original.as_str();
            prop_assert_eq!(layout.read(&layout.time_gate(original)), gate(original));
            prop_assert_eq!(
                layout.read(&layout.memento(stamp, original)),
                Some(VersionPath::Memento { stamp, original: original.to_owned() })
            );
            prop_assert_eq!(
                layout.read(&layout.time_map(original)),
                Some(VersionPath::TimeMap { original: original.to_owned(), from: None })
            );
            prop_assert_eq!(
                layout.read(&layout.time_map_page(stamp, original)),
                Some(VersionPath::TimeMap { original: original.to_owned(), from: Some(stamp) })
            );
        }

        #[test]
        fn nothing_makes_reading_panic_and_an_original_is_always_an_http_uri(rest in "(2024060112000[0-9](-1)?(id_)?/|timemap/link/)?(https?:/{0,4})?\\PC{0,30}") {
            if let Some(path) = VersionPath::parse(&rest) {
                let original = path.original().to_ascii_lowercase();
                prop_assert!(original.starts_with("http://") || original.starts_with("https://"));
            }
        }
    }
}
