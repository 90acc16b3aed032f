//! The changes of documents that a hub has not acknowledged (FN-003 to FN-013).

use std::collections::{BTreeMap, BTreeSet};

use resync_core::document::{Capability, Change, FrameworkChange};

use crate::state::{DocumentRecord, HubRecord, NotifiedDocument, Part};

/// The changes of `documents` that `hub` has not acknowledged, in the order in which the documents are written.
///
/// What is in doubt is repeated, with the same bytes. An index has no change of its own: the components under it give a single change that links to it.
pub(crate) fn unacknowledged(documents: &[DocumentRecord], hub: &HubRecord) -> Vec<FrameworkChange> {
    let mut changes: Vec<FrameworkChange> = Vec::new();
    let mut indexes = BTreeSet::new();
    for document in documents {
        match &document.part {
            Part::Whole => changes.extend(change_of(document, hub)),
            Part::Index => {}
            Part::Component { index } => {
                if indexes.insert(index.as_str()) {
                    changes.extend(change_under(index, documents, hub));
                }
            }
        }
    }
    changes.extend(deletions(documents, hub));
    changes
}

/// What a hub has acknowledged once it accepted a notification of all changes.
pub(crate) fn as_acknowledged(documents: &[DocumentRecord]) -> BTreeMap<String, NotifiedDocument> {
    let as_notified = |document: &DocumentRecord| NotifiedDocument {
        capability: document.capability.clone(),
        part: document.part.clone(),
        version: document.version,
    };
    let notified = documents.iter().filter(|document| document.part != Part::Index);
    notified.map(|document| (document.url.clone(), as_notified(document))).collect()
}

/// The kind of change does not depend on what is in doubt, so that a repetition has the same bytes.
fn change_of(document: &DocumentRecord, hub: &HubRecord) -> Option<FrameworkChange> {
    let change = match hub.acknowledged.get(&document.url) {
        None => Change::Created,
        Some(known) if known.version == document.version => return None,
        Some(_) => newer_version(&document.capability),
    };
    Some(framework_change(change, document))
}

/// A dump made anew is `created`; every other document is `updated` (FN-010, FN-011).
fn newer_version(capability: &Capability) -> Change {
    match capability {
        Capability::ResourceDump | Capability::ChangeDump => Change::Created,
        _ => Change::Updated,
    }
}

/// The one change that stands for all components under `index` (FN-007): a new component if there is one, else the first that changed. If components
/// only went away, it is the first that is left.
fn change_under(index: &str, documents: &[DocumentRecord], hub: &HubRecord) -> Option<FrameworkChange> {
    let is_under = |part: &Part| matches!(part, Part::Component { index: of } if of == index);
    let components: Vec<_> = documents.iter().filter(|document| is_under(&document.part)).collect();
    let changes: Vec<_> = components.iter().filter_map(|document| change_of(document, hub)).collect();
    let created = changes.iter().find(|change| change.change == Change::Created);
    if let Some(change) = created.or(changes.first()) {
        return Some(change.clone());
    }
    let listed = |url: &str| components.iter().any(|document| document.url == url);
    // Of change documents only the open one is on record. Closed ones still exist.
    let stays =
        |capability: &Capability| matches!(capability, Capability::ChangeList | Capability::ChangeDump);
    let shrunk =
        hub.notified().any(|(url, known)| is_under(&known.part) && !stays(&known.capability) && !listed(url));
    let first = components.first().filter(|_| shrunk)?;
    Some(framework_change(newer_version(&first.capability), first))
}

/// Only these two kinds are ever `deleted`; the withdrawal of another shows as an updated Capability List (FN-010, FN-011).
fn deletions(documents: &[DocumentRecord], hub: &HubRecord) -> Vec<FrameworkChange> {
    let gone = |url: &str| !documents.iter().any(|document| document.url == url);
    let can_be_deleted =
        |capability: &Capability| matches!(capability, Capability::CapabilityList | Capability::Description);
    hub.notified()
        .filter(|(url, known)| can_be_deleted(&known.capability) && gone(url))
        .map(|(url, known)| FrameworkChange::new(Change::Deleted, known.capability.clone(), url.as_str()))
        .collect()
}

fn framework_change(change: Change, document: &DocumentRecord) -> FrameworkChange {
    let change = FrameworkChange::new(change, document.capability.clone(), document.url.as_str())
        .datetime(document.changed);
    match &document.part {
        Part::Component { index } => change.index(index.as_str()),
        Part::Whole | Part::Index => change,
    }
}

#[cfg(test)]
mod tests {
    use resync_core::{
        datetime::DateTime,
        digest::{Algorithm, Digest},
    };

    use super::*;

    const INDEX: &str = "http://example.org/rl.xml";

    fn record(capability: Capability, name: &str, part: Part, says: &str) -> DocumentRecord {
        DocumentRecord {
            path: name.into(),
            url: format!("http://example.org/{name}"),
            capability,
            part,
            content: Digest::of(Algorithm::Sha256, says.as_bytes()),
            stamp: None,
            version: says.bytes().fold(0, |version, byte| version * 256 + u64::from(byte)),
            changed: "2026-01-02T03:04:05Z".parse::<DateTime>().unwrap(),
        }
    }

    fn whole(capability: Capability, says: &str) -> DocumentRecord {
        let name = format!("{}.xml", capability.token());
        record(capability, &name, Part::Whole, says)
    }

    fn component(name: &str, says: &str) -> DocumentRecord {
        record(Capability::ResourceList, name, Part::Component { index: INDEX.into() }, says)
    }

    fn index(says: &str) -> DocumentRecord {
        record(Capability::ResourceList, "rl.xml", Part::Index, says)
    }

    fn changes_between(before: &[DocumentRecord], after: &[DocumentRecord]) -> Vec<(Change, String)> {
        changes_for(after, &notified_of(before))
    }

    fn notified_of(documents: &[DocumentRecord]) -> HubRecord {
        HubRecord { acknowledged: as_acknowledged(documents), ..HubRecord::new("http://example.org/topic/") }
    }

    fn changes_for(documents: &[DocumentRecord], hub: &HubRecord) -> Vec<(Change, String)> {
        let changes = unacknowledged(documents, hub);
        changes
            .into_iter()
            .map(|change| (change.change, change.loc.replace("http://example.org/", "")))
            .collect()
    }

    #[test]
    fn an_unchanged_site_has_no_changes() {
        let site = [whole(Capability::ResourceList, "a"), index("i"), component("1", "x")];
        assert_eq!(changes_between(&site, &site), []);
    }

    #[test]
    fn fn010_the_table_of_change_types_is_kept() {
        use Capability as C;
        let rows = [
            (C::ResourceList, Change::Updated, None),
            (C::ResourceDump, Change::Created, None),
            (C::ChangeList, Change::Updated, None),
            (C::ChangeDump, Change::Created, None),
            (C::CapabilityList, Change::Updated, Some(Change::Deleted)),
            (C::Description, Change::Updated, Some(Change::Deleted)),
        ];
        for (capability, on_new_version, on_removal) in rows {
            let (old, new) = ([whole(capability.clone(), "old")], [whole(capability, "new")]);
            let kind = |changes: Vec<(Change, String)>| changes.first().map(|(change, _)| *change);
            assert_eq!(kind(changes_between(&[], &new)), Some(Change::Created));
            assert_eq!(kind(changes_between(&old, &new)), Some(on_new_version));
            assert_eq!(kind(changes_between(&old, &[])), on_removal);
        }
    }

    #[test]
    fn fn005_fn006_fn007_many_new_components_are_one_change_with_their_index() {
        let after = [component("1", "x"), component("2", "y"), component("3", "z"), index("i")];
        let changes = unacknowledged(&after, &notified_of(&[]));
        let [only] = changes.as_slice() else { panic!("one change, not {changes:?}") };
        assert_eq!((only.change, only.index.as_deref()), (Change::Created, Some(INDEX)));
    }

    #[test]
    fn fn007_a_new_component_speaks_for_updated_ones() {
        let before = [component("1", "x"), index("i")];
        let after = [component("1", "x2"), component("2", "y"), index("i2")];
        assert_eq!(changes_between(&before, &after), [(Change::Created, "2".into())]);
    }

    #[test]
    fn a_component_that_went_away_shows_as_an_update_under_the_index() {
        let before = [component("1", "x"), component("2", "y"), index("i")];
        let after = [component("1", "x"), index("i2")];
        assert_eq!(changes_between(&before, &after), [(Change::Updated, "1".into())]);
    }

    #[test]
    fn fn013_an_open_change_list_is_updated_and_its_successor_created() {
        let list = |number: u32, says| {
            let part = Part::Component { index: "http://example.org/cl.xml".into() };
            record(Capability::ChangeList, &format!("cl-{number}.xml"), part, says)
        };
        assert_eq!(changes_between(&[list(1, "a")], &[list(1, "b")]), [(Change::Updated, "cl-1.xml".into())]);
        assert_eq!(changes_between(&[list(1, "a")], &[list(4, "c")]), [(Change::Created, "cl-4.xml".into())]);
        let (one, two) = (list(1, "a"), list(2, "b"));
        let hub =
            HubRecord { unconfirmed: as_acknowledged(&[one]), ..notified_of(std::slice::from_ref(&two)) };
        assert_eq!(changes_for(&[two], &hub), [], "one that is closed is no news");
    }

    #[test]
    fn a_list_that_grows_beyond_one_document_and_back() {
        let one = [record(Capability::ResourceList, "rl.xml", Part::Whole, "few")];
        let many = [component("1", "x"), component("2", "y"), index("i")];
        assert_eq!(changes_between(&one, &many), [(Change::Created, "1".into())]);
        assert_eq!(changes_between(&many, &one), [(Change::Created, "rl.xml".into())]);
    }

    #[test]
    fn content_that_came_back_is_a_new_version_and_told() {
        let known = whole(Capability::ResourceList, "A");
        let came_back = DocumentRecord { version: known.version + 2, ..known.clone() };
        assert_eq!(changes_between(&[known], &[came_back]), [(Change::Updated, "resourcelist.xml".into())]);
    }

    #[test]
    fn a_component_that_the_hub_may_have_heard_of_and_that_went_away_again_shows_under_the_index() {
        let (one, two) = (component("1", "x"), component("2", "y"));
        let known = [one.clone(), index("i")];
        let hub = HubRecord { unconfirmed: as_acknowledged(&[one, two]), ..notified_of(&known) };
        assert_eq!(changes_for(&known, &hub), [(Change::Updated, "1".into())]);
    }

    #[test]
    fn what_is_in_doubt_is_told_again_in_the_same_words() {
        let site = [whole(Capability::ResourceList, "a"), component("1", "x"), index("i")];
        let hub = notified_of(&[]);
        let asked = HubRecord { unconfirmed: as_acknowledged(&site), ..hub.clone() };
        assert_eq!(unacknowledged(&site, &asked), unacknowledged(&site, &hub));
    }
}
