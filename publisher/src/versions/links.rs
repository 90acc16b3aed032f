//! Links from resources to their versions (MEM-020, MEM-035).

use std::path::Path;

use ignore::gitignore::Gitignore;
use resync_core::{
    build::{Event, Item, path_of},
    digest::Digest,
    document::{Link, Relation},
    memento::{LINK_FORMAT_TYPE, Layout, Stamp, VERSIONS_PATH},
};
use serde::{Deserialize, Serialize};

use crate::{helpers::serde_text::text, settings::Settings, site::Site};

/// The version that a change led to, as far as the change does not tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memento {
    /// How many versions of the resource came before it in the same second (MEM-032).
    pub(super) ordinal: u64,
    /// The SHA-256 of its bytes.
    #[serde(with = "text")]
    pub(super) digest: Digest,
}

/// Makes the links of a set whose versions are kept.
pub(crate) struct VersionLinks {
    base: String,
    layout: Layout,
    patterns: Option<Gitignore>,
}

impl VersionLinks {
    /// Of a set with these settings; `None` where no versions are kept. Patterns were checked with the settings.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let patterns = settings.versions.patterns().ok().flatten();
        let layout = Layout::new(Site::of(settings).place(VERSIONS_PATH).url);
        settings.versions.are_kept().then(|| Self { base: settings.base_url.to_string(), layout, patterns })
    }

    /// What the URIs of all versions begin with.
    fn prefix(&self) -> &str {
        self.layout.prefix()
    }

    /// Whether versions of a resource are kept.
    pub(crate) fn applies(&self, loc: &str) -> bool {
        let Some(patterns) = &self.patterns else { return true };
        let path = loc.strip_prefix(&self.base).and_then(path_of);
        path.is_some_and(|path| patterns.matched_path_or_any_parents(Path::new(&path), false).is_ignore())
    }

    /// From an entry to the version that it tells.
    pub(crate) fn memento(&self, event: &Event, memento: Memento) -> Link {
        let (Event { moment, item, .. }, Memento { ordinal, digest }) = (event, memento);
        let href = self.layout.memento(Stamp::new(*moment, ordinal), &item.loc);
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
        let list = Link::new(Relation::TimeMap, self.layout.time_map(loc));
        let list = Link { media_type: Some(LINK_FORMAT_TYPE.to_owned()), ..list };
        [Link::new(Relation::TimeGate, self.layout.time_gate(loc)), list]
    }

    /// Whether a link leads to one of these versions.
    pub(crate) fn is_memento(&self, link: &Link) -> bool {
        link.rel == Relation::Memento && link.href.starts_with(self.prefix())
    }

    /// About how many bytes the link to a version takes.
    pub(crate) fn length(&self, item: &Item) -> usize {
        let media_type = item.media_type.as_ref().map_or(0, String::len);
        300 + self.prefix().len() + 2 * item.loc.len() + media_type
    }
}
