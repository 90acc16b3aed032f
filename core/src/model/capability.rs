//! What a document is for, and how a thing changed (RS-011, RS-012, RS-033).

use thiserror::Error;

use super::tokens::{open_tokens, tokens};

open_tokens! {
    /// The capability a document or an entry stands for; an index has the capability of what it groups (RS-013).
    Capability,
    /// The value of the `capability` attribute.
    token {
        /// `description`: Source Description.
        Description = "description";
        /// `capabilitylist`: Capability List.
        CapabilityList = "capabilitylist";
        /// `resourcelist`: Resource List.
        ResourceList = "resourcelist";
        /// `resourcedump`: Resource Dump.
        ResourceDump = "resourcedump";
        /// `resourcedump-manifest`: the manifest inside a package of a Resource Dump.
        ResourceDumpManifest = "resourcedump-manifest";
        /// `changelist`: Change List.
        ChangeList = "changelist";
        /// `changedump`: Change Dump.
        ChangeDump = "changedump";
        /// `changedump-manifest`: the manifest inside a package of a Change Dump.
        ChangeDumpManifest = "changedump-manifest";
        /// `resourcelist-archive`: archive of Resource Lists.
        ResourceListArchive = "resourcelist-archive";
        /// `resourcedump-archive`: archive of Resource Dumps.
        ResourceDumpArchive = "resourcedump-archive";
        /// `changelist-archive`: archive of Change Lists.
        ChangeListArchive = "changelist-archive";
        /// `changedump-archive`: archive of Change Dumps.
        ChangeDumpArchive = "changedump-archive";
        /// `change-notification`: changes of resources, pushed.
        ChangeNotification = "change-notification";
        /// `framework-notification`: changes of ResourceSync documents, pushed.
        FrameworkNotification = "framework-notification";
    }
    /// A token of another community, kept as written. Make it with `Capability::from`, which knows the tokens above.
    Other
}

impl Capability {
    /// What the specification calls such a document, as `Resource List`; of one that it does not know the token.
    pub fn name(&self) -> &str {
        match self {
            Self::Description => "Source Description",
            Self::CapabilityList => "Capability List",
            Self::ResourceList => "Resource List",
            Self::ResourceDump => "Resource Dump",
            Self::ResourceDumpManifest => "Resource Dump Manifest",
            Self::ChangeList => "Change List",
            Self::ChangeDump => "Change Dump",
            Self::ChangeDumpManifest => "Change Dump Manifest",
            Self::ResourceListArchive => "Resource List Archive",
            Self::ResourceDumpArchive => "Resource Dump Archive",
            Self::ChangeListArchive => "Change List Archive",
            Self::ChangeDumpArchive => "Change Dump Archive",
            Self::ChangeNotification => "Change Notification",
            Self::FrameworkNotification => "Framework Notification",
            Self::Other(token) => token,
        }
    }

    /// Whether an entry with this capability is a channel: its `loc` is a topic, not a document (FN-063).
    pub fn is_notification(&self) -> bool {
        matches!(self, Self::ChangeNotification | Self::FrameworkNotification)
    }
}

tokens! {
    /// How a resource or a document changed (RS-033).
    Change or ChangeError {
        /// It is new.
        Created = "created";
        /// It was there and is different now.
        Updated = "updated";
        /// It is gone.
        Deleted = "deleted";
    }
}

/// A `change` value other than the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a change is one of created, updated, deleted")]
pub struct ChangeError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rs011_every_token_is_read_back_as_its_capability_and_an_unknown_one_is_kept() {
        for capability in Capability::DEFINED {
            assert_eq!(Capability::from(capability.token()), capability);
        }
        assert_eq!(Capability::from("audio-stream").token(), "audio-stream");
        assert_eq!(Capability::from("ResourceList"), Capability::Other("ResourceList".into()));
    }

    #[test]
    fn rs033_changes_are_lower_case_and_closed() {
        for change in Change::ALL {
            assert_eq!(change.token().parse(), Ok(change));
        }
        assert_eq!("Created".parse::<Change>(), Err(ChangeError));
    }
}
