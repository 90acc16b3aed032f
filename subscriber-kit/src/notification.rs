//! What a notification means for a copy: when to synchronise again (FN-001), and how.
//!
//! What is not expected, such as a deleted Change List, or is about a document that the copy does not know, is a reason to look
//! (FN-012).
//!
//! After a Change Notification, the Change List is read from where the copy stands. So lost, repeated and late notifications do
//! no harm: the list has each change once and in order (CN-016). Changes that the list does not contain yet are taken from the
//! notification itself, except deletions: a hub can sign what the Source never said.

use std::collections::BTreeSet;

use resync_core::datetime::DateTime;
use resync_core::document::{Capability, Change, Entry, FrameworkChange, FrameworkNotification};
use resync_core::xml::{self, Options, Read, ReadError};
use url::Url;

use crate::discover::Set;

/// The time whose changes a Change Notification lists (CN-007).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// Where the previous one ended (CN-008).
    pub from: DateTime,
    /// Where the next one begins.
    pub until: DateTime,
}

/// What to do about a notification.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meaning {
    /// This is not expected, or about a document that the copy does not know: see what the Source has now (FN-012).
    Look {
        /// How the document changed.
        change: Change,
        /// What the document is.
        capability: Capability,
    },
    /// The Change List or Change Dump changed: handle the changes.
    Changes,
    /// Resources changed in this time: handle the changes.
    ChangeNotification(Interval),
    /// The Resource List changed, or the Resource Dump if there is no list: synchronise.
    Synchronise,
    /// A list under the known index changed (FN-006): synchronise, even if the index is the same.
    LookInside,
    /// The lists may have moved: discover again, then synchronise.
    DiscoverAgain,
}

/// Why a delivery is not a notification.
#[derive(Debug, thiserror::Error)]
pub enum NotificationError {
    /// It is not a ResourceSync document.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// It breaks rules of the specification.
    #[error("it breaks rules of the specification:\n{0}")]
    Violations(#[from] resync_core::rules::Violations),
    /// It is a document of another kind.
    #[error("it is a {0}, not a notification")]
    OtherKind(String),
}

/// Checks the body by the rules of the specification, and determines all that it means for `set`; nothing if it is about a
/// document that a copy does not use.
///
/// # Errors
/// [`NotificationError`]: such a delivery is logged and acknowledged, since another attempt would be the same.
pub fn meaning(body: &[u8], set: &Set) -> Result<BTreeSet<Meaning>, NotificationError> {
    let document = read(body)?.into_document()?;
    if *document.capability() == Capability::ChangeNotification {
        let root = &document.header().metadata;
        // Older notifications need no interval.
        let interval = root.from.zip(root.until).map(|(from, until)| Interval { from, until });
        return Ok([interval.map_or(Meaning::Changes, Meaning::ChangeNotification)].into());
    }
    let changes = FrameworkNotification::changes(&document)
        .ok_or_else(|| NotificationError::OtherKind(document.capability().to_string()))?;
    Ok(changes.iter().filter_map(|change| meaning_of(change, set)).collect())
}

/// A change with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatedChange {
    pub(crate) at: DateTime,
    pub(crate) entry: Entry,
}

impl DatedChange {
    /// Whether the resource was deleted.
    pub(crate) fn is_deletion(&self) -> bool {
        self.entry.change() == Some(Change::Deleted)
    }
}

/// The changes in Change Notifications, oldest first. Those without a time are left to the Change List.
pub(crate) fn changes(bodies: &[Vec<u8>]) -> Vec<DatedChange> {
    let documents = bodies.iter().filter_map(|body| read(body).ok()?.into_document().ok());
    let documents = documents.filter(|document| *document.capability() == Capability::ChangeNotification);
    let entries = documents.flat_map(|document| document.into_raw().entries);
    let dated = |entry: Entry| Some(DatedChange { at: entry.metadata.as_ref()?.datetime?, entry });
    let mut changes: Vec<_> = entries.filter_map(dated).collect();
    changes.sort_by_key(|change| change.at);
    changes
}

/// Of plain XML only: a short body that is compressed may grow to more than is meant to be kept of a notification.
fn read(body: &[u8]) -> Result<Read, ReadError> {
    xml::read_with(body, Options::PLAIN)
}

fn meaning_of(change: &FrameworkChange, set: &Set) -> Option<Meaning> {
    let is_offered = set.offers(&change.capability);
    let look = || Meaning::Look { change: change.change, capability: change.capability.clone() };
    Some(match change.capability {
        _ if !change.is_possible() => look(),
        Capability::ResourceList if set.resource_list.is_some() => {
            base_changed(change, set.resource_list.as_ref())
        }
        Capability::ResourceDump if set.resource_list.is_none() => {
            base_changed(change, set.named(&Capability::ResourceDump))
        }
        // Only an empty copy is made from it, if there is a list.
        Capability::ResourceDump if is_offered => return None,
        // A new one is found through its index or the Capability List (FN-007).
        Capability::ChangeList | Capability::ChangeDump if is_offered => Meaning::Changes,
        // A new Resource List, or the lists may have moved.
        Capability::ResourceList | Capability::CapabilityList | Capability::Description => {
            Meaning::DiscoverAgain
        }
        _ => look(),
    })
}

/// The Resource List or Resource Dump changed, or a part of it.
fn base_changed(change: &FrameworkChange, known: Option<&Url>) -> Meaning {
    let names_it = |text: &str| Url::parse(text).ok().as_ref() == known;
    // A list under an index is found through the index (FN-006); an unknown one is a list that moved.
    if names_it(&change.loc) {
        Meaning::Synchronise
    } else if change.index.as_deref().is_some_and(names_it) {
        Meaning::LookInside
    } else {
        Meaning::DiscoverAgain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::document::{ChangeNotification, ResourceChange};

    fn set() -> Set {
        Set::bare(Url::parse("http://a.example/resourcelist.xml").unwrap())
    }

    fn notification(changes: &[FrameworkChange]) -> Vec<u8> {
        let start = FrameworkNotification::new();
        let notification = changes.iter().cloned().fold(start, FrameworkNotification::change);
        xml::write(&notification.build().unwrap())
    }

    fn meant(changes: &[FrameworkChange], set: &Set) -> Vec<Meaning> {
        meaning(&notification(changes), set).unwrap().into_iter().collect()
    }

    fn look(change: Change, capability: Capability) -> Meaning {
        Meaning::Look { change, capability }
    }

    fn updated(capability: Capability, loc: &str) -> FrameworkChange {
        FrameworkChange::new(Change::Updated, capability, loc)
    }

    #[test]
    fn fn001_a_changed_resource_list_means_synchronise() {
        let list = updated(Capability::ResourceList, "http://a.example/resourcelist.xml");
        assert_eq!(meant(&[list], &set()), [Meaning::Synchronise]);
    }

    #[test]
    fn fn001_a_list_that_is_told_of_is_no_changed_resource() {
        let at: DateTime = "2026-11-20T09:07:00Z".parse().unwrap();
        let list =
            FrameworkChange::new(Change::Created, Capability::ChangeList, "http://a.example/list-2.xml");
        let told = notification(&[list.datetime(at)]);
        let resource = ResourceChange::updated("http://a.example/x").datetime(at);
        let from = "2026-11-20T09:00:00Z".parse().unwrap();
        let changed = ChangeNotification::new(from, at).change(resource).build().unwrap();
        let found = changes(&[told, xml::write(&changed)]);
        let locs: Vec<&str> = found.iter().map(|change| change.entry.loc.as_str()).collect();
        assert_eq!(locs, ["http://a.example/x"]);
    }

    #[test]
    fn fn006_a_list_under_the_known_index_means_look_inside() {
        let part = updated(Capability::ResourceList, "http://a.example/part7.xml");
        let under = part.clone().index("http://a.example/resourcelist.xml");
        assert_eq!(meant(&[under], &set()), [Meaning::LookInside]);
        assert_eq!(meant(&[part], &set()), [Meaning::DiscoverAgain]);
    }

    #[test]
    fn fn004_a_changed_source_description_means_discover_again() {
        let both = [
            updated(Capability::ChangeList, "http://a.example/changelist.xml"),
            updated(Capability::Description, "http://a.example/.well-known/resourcesync"),
        ];
        let look = look(Change::Updated, Capability::ChangeList);
        assert_eq!(meant(&both, &set()), [look, Meaning::DiscoverAgain]);
    }

    #[test]
    fn cn001_fn001_changes_and_a_changed_change_list_mean_to_deal_with_the_changes() {
        let list = [updated(Capability::ChangeList, "http://a.example/changelist.xml")];
        let mut with_changes = set();
        with_changes
            .capabilities
            .push((Capability::ChangeList, Url::parse("http://a.example/cl.xml").unwrap()));
        assert_eq!(meant(&list, &with_changes), [Meaning::Changes]);
        let [from, until] = ["2026-11-20T09:00:00Z", "2026-11-20T09:01:00Z"].map(|at| at.parse().unwrap());
        let told = ChangeNotification::new(from, until).change(ResourceChange::updated("http://a.example/x"));
        let meant = meaning(&xml::write(&told.build().unwrap()), &set()).unwrap();
        assert_eq!(meant, [Meaning::ChangeNotification(Interval { from, until })].into());
    }

    /// Of a set that offers everything.
    #[test]
    fn fn012_ar017_what_has_no_place_in_the_table_means_look_and_only_a_dump_beside_a_list_means_nothing() {
        let mut set = set();
        let documents = ["changelist", "changedump", "resourcedump", "changelist-archive", "audio-list"];
        for token in documents {
            let url = Url::parse(&format!("http://a.example/{token}.xml")).unwrap();
            set.capabilities.push((Capability::from(token), url));
        }
        for token in documents.into_iter().chain(["resourcelist", "resourcedump-archive", "capabilitylist"]) {
            for change in Change::ALL {
                let capability = Capability::from(token);
                let told =
                    FrameworkChange::new(change, capability.clone(), format!("http://a.example/{token}.xml"));
                let expected = match (token, change) {
                    ("capabilitylist", _) => vec![Meaning::DiscoverAgain],
                    ("changelist" | "changedump", Change::Created | Change::Updated) => {
                        vec![Meaning::Changes]
                    }
                    ("resourcelist", Change::Created | Change::Updated) => vec![Meaning::Synchronise],
                    ("resourcedump", Change::Created) => vec![],
                    _ => vec![look(change, capability)],
                };
                assert_eq!(meant(&[told], &set), expected, "{token} {change}");
            }
        }
    }

    #[test]
    fn a_notification_that_is_compressed_is_not_unpacked() {
        let [from, until]: [DateTime; 2] =
            ["2026-11-20T09:00:00Z", "2026-11-20T09:01:00Z"].map(|at| at.parse().unwrap());
        let resource = ResourceChange::updated("http://a.example/x").datetime(until);
        let plain = xml::write(&ChangeNotification::new(from, until).change(resource).build().unwrap());
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut gzip, &plain).unwrap();
        let packed = gzip.finish().unwrap();
        assert!(matches!(
            meaning(&packed, &set()),
            Err(NotificationError::Unreadable(ReadError::Encoding { .. }))
        ));
        assert_eq!((changes(&[packed]).len(), changes(&[plain]).len()), (0, 1));
    }

    #[test]
    fn fn046_what_is_no_framework_notification_is_named() {
        assert!(matches!(meaning(b"hello", &set()), Err(NotificationError::Unreadable(_))));
    }
}
