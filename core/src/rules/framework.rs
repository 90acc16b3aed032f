//! What only Framework Notifications must satisfy (FN-005, FN-006, FN-010, FN-024).

use super::Rule;
use crate::model::{Capability, Change, Entry, Relation};

/// Reports each rule that an entry of a Framework Notification breaks.
pub(super) fn check_entry(entry: &Entry, broken: &mut impl FnMut(Rule, String)) {
    let indexes: Vec<_> = entry.links_with(&Relation::Index).collect();
    if indexes.iter().any(|index| index.href == entry.loc) {
        broken(Rule::FrameworkIndex, "the loc is the index itself".to_owned());
    }
    if indexes.len() > 1 {
        broken(Rule::FrameworkIndexLink, format!("there are {} index links", indexes.len()));
    }
    let Some(capability) = entry.capability() else { return };
    if *capability == Capability::CapabilityList && !indexes.is_empty() {
        broken(Rule::FrameworkIndexLink, "a Capability List lies under no index".to_owned());
    }
    if !is_document(capability) {
        broken(Rule::FrameworkCapability, format!("{capability} is not a document of its own"));
    } else if let Some(change) = entry.change().filter(|&change| !is_possible(capability, change)) {
        broken(Rule::FrameworkChange, format!("a {capability} is never {change}; treat it as changed"));
    }
}

/// Where a document lies in the tree that `up` links climb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Source,
    Set,
    Document,
}

/// The level of a kind of document; `None` for kinds of other communities.
pub(super) fn level(capability: &Capability) -> Option<Level> {
    match capability {
        Capability::Description => Some(Level::Source),
        Capability::CapabilityList => Some(Level::Set),
        Capability::Other(_) => None,
        _ => Some(Level::Document),
    }
}

/// Channels are no documents, and a manifest lies inside its package.
fn is_document(capability: &Capability) -> bool {
    let manifest = matches!(capability, Capability::ResourceDumpManifest | Capability::ChangeDumpManifest);
    !manifest && !capability.is_notification()
}

/// The table of FN-010; archives have no row and are treated like Change Lists (FN-012).
pub(crate) fn is_possible(capability: &Capability, change: Change) -> bool {
    match capability {
        Capability::Description | Capability::CapabilityList | Capability::Other(_) => true,
        Capability::ResourceDump => change == Change::Created,
        _ => change != Change::Deleted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{FrameworkChange, Link};

    fn broken(entry: &Entry) -> Vec<Rule> {
        let mut rules = Vec::new();
        check_entry(entry, &mut |rule, _| rules.push(rule));
        rules
    }

    /// The table of FN-010: created, updated, deleted.
    #[test]
    fn fn010_changes_outside_the_table_are_warned_of() {
        let table = [
            (Capability::ResourceList, [true, true, false]),
            (Capability::ResourceDump, [true, false, false]),
            (Capability::ChangeList, [true, true, false]),
            (Capability::ChangeDump, [true, true, false]),
            (Capability::CapabilityList, [true, true, true]),
            (Capability::Description, [true, true, true]),
            (Capability::ChangeListArchive, [true, true, false]),
            (Capability::from("audio-list"), [true, true, true]),
        ];
        for (capability, possible) in table {
            for (change, possible) in Change::ALL.into_iter().zip(possible) {
                let entry = FrameworkChange::new(change, capability.clone(), "http://example.org/x").into();
                let wanted = if possible { vec![] } else { vec![Rule::FrameworkChange] };
                assert_eq!(broken(&entry), wanted, "{capability} {change}");
            }
        }
        assert_eq!(Rule::FrameworkChange.severity(), crate::rules::Severity::Warning);
    }

    #[test]
    fn fn005_an_entry_may_not_be_the_index_itself() {
        let change =
            FrameworkChange::new(Change::Updated, Capability::ChangeList, "http://example.org/index.xml");
        assert_eq!(broken(&change.index("http://example.org/index.xml").into()), [Rule::FrameworkIndex]);
    }

    #[test]
    fn fn006_a_document_lies_under_one_index_and_a_capability_list_under_none() {
        let change =
            FrameworkChange::new(Change::Updated, Capability::ChangeList, "http://example.org/1.xml");
        let mut entry = Entry::from(change.index("http://example.org/a.xml"));
        assert_eq!(broken(&entry), []);
        entry.links.push(Link::new(Relation::Index, "http://example.org/b.xml"));
        assert_eq!(broken(&entry), [Rule::FrameworkIndexLink]);

        let change =
            FrameworkChange::new(Change::Updated, Capability::CapabilityList, "http://example.org/1.xml");
        assert_eq!(broken(&change.index("http://example.org/a.xml").into()), [Rule::FrameworkIndexLink]);
    }

    #[test]
    fn fn024_channels_and_manifests_are_no_documents_to_tell_of() {
        for capability in [Capability::ChangeNotification, Capability::ResourceDumpManifest] {
            let change = FrameworkChange::new(Change::Updated, capability, "http://example.org/x");
            assert_eq!(broken(&change.into()), [Rule::FrameworkCapability]);
        }
    }
}
