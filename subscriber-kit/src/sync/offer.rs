//! Which documents of a Source a copy is kept in step by.

use resync_core::document::Capability;
use url::Url;

use super::{BaselineFrom, ChangesFrom};
use crate::discover::Set;

/// The documents to synchronise from, each a plain one or an index (RS-014).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The Capability List, by which a copy knows whose it is. Without one, it knows that by the documents below.
    pub capability_list: Option<Url>,
    /// The Resource List.
    pub resource_list: Option<Url>,
    /// The Change List.
    pub change_list: Option<Url>,
    /// The Resource Dump.
    pub resource_dump: Option<Url>,
    /// The Change Dump.
    pub change_dump: Option<Url>,
}

impl Offer {
    /// A Resource List and nothing else.
    #[must_use]
    pub fn list(resource_list: Url) -> Self {
        Self { resource_list: Some(resource_list), ..Self::default() }
    }

    /// What a set offers.
    #[must_use]
    pub fn of(set: &Set) -> Self {
        Self {
            capability_list: set.capability_list.clone(),
            resource_list: set.resource_list.clone(),
            change_list: set.named(&Capability::ChangeList).cloned(),
            resource_dump: set.named(&Capability::ResourceDump).cloned(),
            change_dump: set.named(&Capability::ChangeDump).cloned(),
        }
    }

    /// What a copy is made from: the Resource List, or else the Resource Dump (RS-190).
    #[must_use]
    pub fn base(&self, how: BaselineFrom) -> Option<&Url> {
        let dump = self.resource_dump.as_ref().filter(|_| how != BaselineFrom::List);
        self.resource_list.as_ref().or(dump)
    }

    /// The document that lists changes.
    #[must_use]
    pub fn changes(&self, how: ChangesFrom) -> Option<&Url> {
        match how {
            ChangesFrom::List => self.change_list.as_ref().or(self.change_dump.as_ref()),
            ChangesFrom::Dump => self.change_dump.as_ref().or(self.change_list.as_ref()),
        }
    }
}
