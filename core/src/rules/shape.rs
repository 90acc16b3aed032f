//! The matrices RS-060 and RS-061 as one table: which attribute and link stands where in which kind of document.

use super::Rule;
use super::shape::Need::{Advised, Forbidden, May, Must, Unforeseen};
use crate::datetime::DateTime;
use crate::model::Capability::{
    self, CapabilityList, ChangeDump, ChangeDumpArchive, ChangeDumpManifest, ChangeList, ChangeListArchive,
    ChangeNotification, Description, FrameworkNotification, ResourceDump, ResourceDumpArchive,
    ResourceDumpManifest, ResourceList, ResourceListArchive,
};
use crate::model::Metadata;
use crate::model::Relation::{self, Contents, DescribedBy, Hub, Index};
use crate::model::Root::{self, SitemapIndex, UrlSet};

/// What a cell of the matrices says of one attribute or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It must be there.
    Must,
    /// It should be there.
    Advised,
    /// It may be there.
    May,
    /// Nothing is said about it; a Destination ignores it.
    Unforeseen,
    /// It must not be there.
    Forbidden,
}

/// One row: one kind of document.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) capability: Capability,
    pub(super) root: Root,
    pub(super) head: Head,
    pub(super) entry: EntryShape,
    pub(super) links: Links,
    pub(super) order: Order,
    pub(super) parts: Parts,
    pub(super) once: Once,
}

impl Shape {
    /// Whether the entries are packages.
    pub(super) fn is_dump(&self) -> bool {
        matches!(self.links, Links::Only([Contents]))
    }
}

/// The root's `rs:md` and `rs:ln`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) times: Times,
    pub(super) up: Need,
    pub(super) index: Need,
    pub(super) archives: Need,
    pub(super) described_by: Need,
}

/// The four times of a `rs:md`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) at: Need,
    pub(super) completed: Need,
    pub(super) from: Need,
    pub(super) until: Need,
}

/// An entry's `rs:md`.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryShape {
    pub(super) lastmod: Need,
    pub(super) times: Times,
    pub(super) capability: Need,
    pub(super) change: Need,
    pub(super) datetime: Need,
    /// `hash` and `encoding`.
    pub(super) representation: Need,
    pub(super) length: Need,
    pub(super) media_type: Need,
    pub(super) path: Need,
}

/// Which relations an entry's links may have; relations that no specification names may stand anywhere (RS-057).
#[derive(Clone, Copy, Debug)]
pub(super) enum Links {
    /// Those of RS-170 to RS-180.
    Related,
    Only(&'static [Relation]),
}

/// How entries follow each other, and which rule is broken when they do not.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Free,
    ByDatetime(Rule),
    ByFrom(Rule),
}

impl Order {
    /// The time that decides.
    pub(super) fn time(self, metadata: &Metadata) -> Option<DateTime> {
        match self {
            Self::Free => None,
            Self::ByDatetime(_) => metadata.datetime,
            Self::ByFrom(_) => metadata.from,
        }
    }
}

/// How the times of the entries are related to those of the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// Not at all.
    Plain,
    /// They are snapshots that make up the one of the root (RS-095).
    Snapshots,
    /// They are intervals that make up the one of the root (RS-125, RS-141).
    Intervals,
    /// They are intervals that have ended (AR-016).
    Archived,
}

/// What no two entries have in common.
#[derive(Clone, Copy, Debug)]
pub(super) enum Once {
    Nothing,
    Capability,
    /// Of documents.
    Loc,
    /// The `loc` of resources (RS-091).
    Resource,
    Path,
    /// The index that a new document lies under (FN-007).
    NewUnderIndex,
}

/// The row for a kind of document; `None` for a root this capability cannot have, and for capabilities of others.
pub(super) fn shape(capability: &Capability, root: Root) -> Option<&'static Shape> {
    TABLE.iter().find(|shape| shape.capability == *capability && shape.root == root)
}

const SNAPSHOT: Times = Times { at: Must, completed: May, from: Forbidden, until: Forbidden };
const SNAPSHOT_PART: Times = Times { at: May, ..SNAPSHOT };
const INTERVAL: Times = Times { at: Forbidden, completed: Forbidden, from: Must, until: May };
const INTERVAL_PART: Times = Times { from: Advised, ..INTERVAL };
const CLOSED_INTERVAL: Times = Times { until: Must, ..INTERVAL };
const ANY_INTERVAL: Times = Times { from: May, ..INTERVAL };
const TIMELESS: Times = Times { at: Forbidden, completed: Forbidden, from: Forbidden, until: Forbidden };
const UNDEFINED: Times = Times { at: Unforeseen, completed: Unforeseen, from: Unforeseen, until: Unforeseen };

/// A document right below the Capability List that may itself lie under an index.
const LIST: Head = Head { times: TIMELESS, up: Must, index: May, archives: May, described_by: May };
const INDEX: Head = Head { index: Unforeseen, ..LIST };
const MANIFEST: Head = Head { index: Unforeseen, archives: Unforeseen, ..LIST };
const ARCHIVE: Head = Head { times: UNDEFINED, archives: Unforeseen, ..LIST };
const ARCHIVE_INDEX: Head = Head { index: Unforeseen, ..ARCHIVE };
const NOTIFICATION: Head = Head { up: May, index: Unforeseen, archives: Unforeseen, ..LIST };

/// Entries that only point at documents.
const POINTER: EntryShape = EntryShape {
    lastmod: May,
    times: TIMELESS,
    capability: Unforeseen,
    change: Forbidden,
    datetime: Forbidden,
    representation: Unforeseen,
    length: Unforeseen,
    media_type: Unforeseen,
    path: Forbidden,
};
/// Entries that point at documents which change without notice (RS-049).
const LASTING: EntryShape = EntryShape { lastmod: Unforeseen, ..POINTER };
const RESOURCE: EntryShape = EntryShape { representation: May, length: May, media_type: May, ..POINTER };
const PACKAGE: EntryShape =
    EntryShape { representation: May, length: Advised, media_type: Advised, ..POINTER };
const CHANGE: EntryShape = EntryShape { change: Must, datetime: May, ..RESOURCE };

#[rustfmt::skip]
static TABLE: &[Shape] = &[
    Shape { capability: Description, root: UrlSet, order: Order::Free, links: Links::Only(&[DescribedBy]),
        parts: Parts::Plain, once: Once::Loc,
        head: Head { up: Unforeseen, archives: Unforeseen, described_by: Advised, ..LIST },
        entry: EntryShape { capability: Advised, ..LASTING } },
    Shape { capability: Description, root: SitemapIndex, order: Order::Free, links: Links::Only(&[]),
        parts: Parts::Plain, once: Once::Loc,
        head: Head { up: Unforeseen, archives: Unforeseen, ..INDEX }, entry: LASTING },
    Shape { capability: CapabilityList, root: UrlSet, order: Order::Free, links: Links::Only(&[Hub]),
        parts: Parts::Plain, once: Once::Capability,
        head: Head { described_by: Advised, ..MANIFEST }, entry: EntryShape { capability: Must, ..LASTING } },

    Shape { capability: ResourceList, root: UrlSet, order: Order::Free, links: Links::Related,
        parts: Parts::Plain, once: Once::Resource,
        head: Head { times: SNAPSHOT, ..LIST }, entry: RESOURCE },
    Shape { capability: ResourceList, root: SitemapIndex, order: Order::Free, links: Links::Only(&[]),
        parts: Parts::Snapshots, once: Once::Loc,
        head: Head { times: SNAPSHOT, ..INDEX }, entry: EntryShape { times: SNAPSHOT_PART, ..POINTER } },
    Shape { capability: ResourceDump, root: UrlSet, order: Order::Free, links: Links::Only(&[Contents]),
        parts: Parts::Snapshots, once: Once::Loc,
        head: Head { times: SNAPSHOT, ..LIST }, entry: EntryShape { times: SNAPSHOT_PART, ..PACKAGE } },
    Shape { capability: ResourceDump, root: SitemapIndex, order: Order::Free, links: Links::Only(&[]),
        parts: Parts::Snapshots, once: Once::Loc,
        head: Head { times: SNAPSHOT, ..INDEX }, entry: EntryShape { times: SNAPSHOT_PART, ..POINTER } },
    Shape { capability: ResourceDumpManifest, root: UrlSet, order: Order::Free, links: Links::Related,
        parts: Parts::Plain, once: Once::Path,
        head: Head { times: SNAPSHOT, ..MANIFEST }, entry: EntryShape { path: Must, media_type: Advised, ..RESOURCE } },

    Shape { capability: ChangeList, root: UrlSet, order: Order::ByDatetime(Rule::ChangeOrder), links: Links::Related,
        parts: Parts::Plain, once: Once::Nothing,
        head: Head { times: INTERVAL, ..LIST }, entry: EntryShape { datetime: Advised, ..CHANGE } },
    Shape { capability: ChangeList, root: SitemapIndex, order: Order::ByFrom(Rule::IndexOrder), links: Links::Only(&[]),
        parts: Parts::Intervals, once: Once::Loc,
        head: Head { times: INTERVAL, ..INDEX }, entry: EntryShape { times: INTERVAL_PART, ..POINTER } },
    Shape { capability: ChangeDump, root: UrlSet, order: Order::ByFrom(Rule::DumpOrder), links: Links::Only(&[Contents]),
        parts: Parts::Intervals, once: Once::Loc,
        head: Head { times: INTERVAL, ..LIST }, entry: EntryShape { times: INTERVAL_PART, ..PACKAGE } },
    Shape { capability: ChangeDump, root: SitemapIndex, order: Order::ByFrom(Rule::DumpIndexOrder), links: Links::Only(&[]),
        parts: Parts::Intervals, once: Once::Loc,
        head: Head { times: INTERVAL, ..INDEX }, entry: EntryShape { times: INTERVAL_PART, ..POINTER } },
    // The path is a must but for deletions, which the checker knows (RS-144).
    Shape { capability: ChangeDumpManifest, root: UrlSet, order: Order::ByDatetime(Rule::ManifestOrder), links: Links::Related,
        parts: Parts::Plain, once: Once::Path,
        head: Head { times: INTERVAL, ..MANIFEST }, entry: EntryShape { path: Must, media_type: Advised, ..CHANGE } },

    Shape { capability: ResourceListArchive, root: UrlSet, order: Order::Free, links: Links::Only(&[]),
        parts: Parts::Plain, once: Once::Loc,
        head: ARCHIVE, entry: EntryShape { times: SNAPSHOT_PART, ..POINTER } },
    Shape { capability: ResourceListArchive, root: SitemapIndex, order: Order::Free, links: Links::Only(&[]),
        parts: Parts::Plain, once: Once::Loc,
        head: ARCHIVE_INDEX, entry: LASTING },
    Shape { capability: ResourceDumpArchive, root: UrlSet, order: Order::Free, links: Links::Only(&[]),
        parts: Parts::Plain, once: Once::Loc,
        head: ARCHIVE, entry: EntryShape { times: SNAPSHOT_PART, ..POINTER } },
    Shape { capability: ResourceDumpArchive, root: SitemapIndex, order: Order::Free, links: Links::Only(&[]),
        parts: Parts::Plain, once: Once::Loc,
        head: ARCHIVE_INDEX, entry: LASTING },
    Shape { capability: ChangeListArchive, root: UrlSet, order: Order::ByFrom(Rule::ArchiveOrder), links: Links::Only(&[]),
        parts: Parts::Archived, once: Once::Loc,
        head: ARCHIVE, entry: EntryShape { times: ANY_INTERVAL, ..POINTER } },
    Shape { capability: ChangeListArchive, root: SitemapIndex, order: Order::Free, links: Links::Only(&[]),
        parts: Parts::Plain, once: Once::Loc,
        head: ARCHIVE_INDEX, entry: LASTING },
    Shape { capability: ChangeDumpArchive, root: UrlSet, order: Order::ByFrom(Rule::ArchiveOrder), links: Links::Only(&[]),
        parts: Parts::Archived, once: Once::Loc,
        head: ARCHIVE, entry: EntryShape { times: ANY_INTERVAL, ..POINTER } },
    Shape { capability: ChangeDumpArchive, root: SitemapIndex, order: Order::Free, links: Links::Only(&[]),
        parts: Parts::Plain, once: Once::Loc,
        head: ARCHIVE_INDEX, entry: LASTING },

    Shape { capability: ChangeNotification, root: UrlSet, order: Order::ByDatetime(Rule::NotificationOrder), links: Links::Related,
        parts: Parts::Plain, once: Once::Nothing,
        head: Head { times: CLOSED_INTERVAL, ..NOTIFICATION }, entry: CHANGE },
    Shape { capability: FrameworkNotification, root: UrlSet, order: Order::Free, links: Links::Only(&[Index]),
        parts: Parts::Plain, once: Once::NewUnderIndex,
        head: Head { times: ANY_INTERVAL, ..NOTIFICATION },
        entry: EntryShape { capability: Must, change: Must, datetime: May, ..POINTER } },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// RS-060 as the specification prints it: root at, root from, entry at, entry from, for urlset and then sitemapindex.
    #[test]
    fn rs060_the_table_says_what_the_normative_matrix_says() {
        const N: Need = Forbidden;
        let matrix = [
            (ResourceList, [Must, N, N, N], Some([Must, N, May, N])),
            (ResourceDump, [Must, N, May, N], Some([Must, N, May, N])),
            (ResourceDumpManifest, [Must, N, N, N], None),
            (ChangeList, [N, Must, N, N], Some([N, Must, N, Advised])),
            (ChangeDump, [N, Must, N, Advised], Some([N, Must, N, Advised])),
            (ChangeDumpManifest, [N, Must, N, N], None),
            (Description, [N, N, N, N], Some([N, N, N, N])),
            (CapabilityList, [N, N, N, N], None),
            (ChangeNotification, [N, Must, N, N], None),
            (FrameworkNotification, [N, May, N, N], None),
        ];
        for (capability, plain, index) in matrix {
            for (root, wanted) in [(UrlSet, Some(plain)), (SitemapIndex, index)] {
                let found = shape(&capability, root).map(|shape| {
                    let (head, entry) = (shape.head.times, shape.entry.times);
                    [head.at, head.from, entry.at, entry.from]
                });
                assert_eq!(found, wanted, "{capability} {root:?}");
            }
        }
    }

    #[test]
    fn rs024_completed_and_until_go_only_where_at_and_from_go() {
        for shape in TABLE {
            for times in [shape.head.times, shape.entry.times] {
                assert_eq!(times.at == Forbidden, times.completed == Forbidden, "{}", shape.capability);
                assert_eq!(times.from == Forbidden, times.until == Forbidden, "{}", shape.capability);
            }
        }
    }

    #[test]
    fn every_defined_capability_has_a_row_and_no_row_stands_twice() {
        for capability in Capability::DEFINED {
            assert!(shape(&capability, UrlSet).is_some(), "{capability}");
        }
        for (number, row) in TABLE.iter().enumerate() {
            assert!(
                !TABLE[..number]
                    .iter()
                    .any(|other| other.capability == row.capability && other.root == row.root)
            );
        }
    }
}
