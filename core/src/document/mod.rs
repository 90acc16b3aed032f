//! One model for every ResourceSync document: a header, and entries under one of two roots (RS-002, RS-013).
//!
//! [`RawDocument`] is what stands on the page and may break rules; [`Document`] is the proof that it breaks none. Each
//! kind of document has a typed constructor whose methods are what the matrices RS-060 and RS-061 allow; archives are
//! made by [`build::Archives`](crate::build::Archives).

mod capability_list;
mod change_dump;
mod change_list;
mod change_notification;
mod draft;
mod framework_notification;
mod related;
mod resource_dump;
mod resource_list;
mod source_description;

pub use capability_list::CapabilityList;
pub use change_dump::{ChangeDump, ChangeDumpIndex, ChangeDumpManifest, ChangePackage, PackedChange};
pub use change_list::{ChangeList, ChangeListIndex, ResourceChange};
pub use change_notification::ChangeNotification;
pub use framework_notification::{FrameworkChange, FrameworkNotification};
pub use related::{Mirror, Patch, Related};
pub use resource_dump::{Bitstream, Package, ResourceDump, ResourceDumpIndex, ResourceDumpManifest};
pub use resource_list::{Resource, ResourceList, ResourceListIndex};
pub use source_description::{SourceDescription, SourceDescriptionIndex};

pub use crate::model::{
    Capability, Change, ChangeError, ChangeFrequency, ChangeFrequencyError, Entry, ForeignAttribute, Header,
    Link, Metadata, Priority, PriorityError, RawDocument, Relation, Root, ZIP,
};

use crate::rules::{self, Violations};

/// A document that breaks no rule of severity [`Error`](rules::Severity::Error).
///
/// Only the check makes one: `TryFrom<RawDocument>`, the `build` of a typed constructor, or
/// [`Read::into_document`](crate::xml::Read::into_document).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document(RawDocument);

impl Document {
    /// What stands before the first entry.
    pub fn header(&self) -> &Header {
        &self.0.header
    }

    /// The entries, in document order.
    pub fn entries(&self) -> &[Entry] {
        &self.0.entries
    }

    /// The root element.
    pub fn root(&self) -> Root {
        self.0.header.root
    }

    /// The document's capability.
    pub fn capability(&self) -> &Capability {
        self.0.header.capability().expect("RS-010 is an error, so a checked document names its capability")
    }

    /// The first root link with this relation.
    pub fn link(&self, relation: &Relation) -> Option<&Link> {
        self.0.header.link(relation)
    }

    /// Gives the parts back, to change them and have them checked again.
    pub fn into_raw(self) -> RawDocument {
        self.0
    }

    /// For a caller that has already run the rules over this very document.
    pub(crate) fn from_checked(raw: RawDocument, violations: Violations) -> Result<Self, Violations> {
        if violations.is_conforming() { Ok(Self(raw)) } else { Err(violations) }
    }
}

impl TryFrom<RawDocument> for Document {
    type Error = Violations;

    /// Checks every rule; warnings do not stand in the way and are dropped.
    fn try_from(raw: RawDocument) -> Result<Self, Violations> {
        let violations = rules::check(&raw);
        Self::from_checked(raw, violations)
    }
}
