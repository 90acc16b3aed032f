//! Links from resources to their versions (MEM-020, MEM-035).

use std::path::Path;

use ignore::gitignore::Gitignore;
use resync_core::{
    build::{Event, Item, path_of},
    digest::Digest,
    document::{Link, Relation},
    memento::stamp,
};

use crate::{settings::Settings, site::Site};

/// Where versions are served, below the URL of a set's documents.
pub(crate) const VERSIONS_PATH: &str = "resync/versions/";

/// The media type of a TimeMap.
const TIMEMAP_TYPE: &str = "application/link-format";

/// Makes the links of a set whose versions are kept.
pub(crate) struct VersionLinks {
    base: String,
    prefix: String,
    patterns: Option<Gitignore>,
}

impl VersionLinks {
    /// Of a set with these settings; `None` where no versions are kept. Patterns were checked with the settings.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let patterns = settings.versions.patterns().ok().flatten();
        let prefix = Site::of(settings).place(VERSIONS_PATH).url;
        settings.versions.are_kept().then(|| Self { base: settings.base_url.to_string(), prefix, patterns })
    }

    /// Whether versions of a resource are kept.
    pub(crate) fn applies(&self, loc: &str) -> bool {
        let Some(patterns) = &self.patterns else { return true };
        let path = loc.strip_prefix(&self.base).and_then(path_of);
        path.is_some_and(|path| patterns.matched_path_or_any_parents(Path::new(&path), false).is_ignore())
    }

    /// From an entry to the version that it tells.
    pub(crate) fn memento(&self, event: &Event, ordinal: u64, digest: Digest) -> Link {
        let Event { moment, item, .. } = event;
        let href = format!("{}{}/{}", self.prefix, stamp(*moment, ordinal), item.loc);
        Link {
            hash: digest.into(),
            length: item.length,
            modified: Some(*moment),
            media_type: item.media_type.clone(),
            ..Link::new(Relation::Memento, href)
        }
    }

    /// From a resource to where its versions are negotiated and listed.
    pub(crate) fn negotiation(&self, loc: &str) -> [Link; 2] {
        let list = Link::new(Relation::TimeMap, format!("{}timemap/link/{loc}", self.prefix));
        let list = Link { media_type: Some(TIMEMAP_TYPE.to_owned()), ..list };
        [Link::new(Relation::TimeGate, format!("{}{loc}", self.prefix)), list]
    }

    /// Whether a link is one of these.
    pub(crate) fn is_own(&self, link: &Link) -> bool {
        link.href.starts_with(&self.prefix)
    }

    /// About how many bytes the link to a version takes.
    pub(crate) fn length(&self, item: &Item) -> usize {
        let media_type = item.media_type.as_ref().map_or(0, String::len);
        300 + self.prefix.len() + 2 * item.loc.len() + media_type
    }
}
