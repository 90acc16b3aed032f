//! What a document is for, and how a thing changed (RS-011, RS-012, RS-033).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The capability a document or an entry stands for; an index has the capability of what it groups (RS-013).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// `description`: Source Description.
    Description,
    /// `capabilitylist`: Capability List.
    CapabilityList,
    /// `resourcelist`: Resource List.
    ResourceList,
    /// `resourcedump`: Resource Dump.
    ResourceDump,
    /// `resourcedump-manifest`: the manifest inside a package of a Resource Dump.
    ResourceDumpManifest,
    /// `changelist`: Change List.
    ChangeList,
    /// `changedump`: Change Dump.
    ChangeDump,
    /// `changedump-manifest`: the manifest inside a package of a Change Dump.
    ChangeDumpManifest,
    /// `resourcelist-archive`: archive of Resource Lists.
    ResourceListArchive,
    /// `resourcedump-archive`: archive of Resource Dumps.
    ResourceDumpArchive,
    /// `changelist-archive`: archive of Change Lists.
    ChangeListArchive,
    /// `changedump-archive`: archive of Change Dumps.
    ChangeDumpArchive,
    /// `change-notification`: changes of resources, pushed.
    ChangeNotification,
    /// `framework-notification`: changes of ResourceSync documents, pushed.
    FrameworkNotification,
    /// A token of another community, kept as written. Make it with `Capability::from`, which knows the tokens above.
    Other(Box<str>),
}

impl Capability {
    /// Every capability that the specifications define.
    pub const DEFINED: [Self; 14] = [
        Self::Description,
        Self::CapabilityList,
        Self::ResourceList,
        Self::ResourceDump,
        Self::ResourceDumpManifest,
        Self::ChangeList,
        Self::ChangeDump,
        Self::ChangeDumpManifest,
        Self::ResourceListArchive,
        Self::ResourceDumpArchive,
        Self::ChangeListArchive,
        Self::ChangeDumpArchive,
        Self::ChangeNotification,
        Self::FrameworkNotification,
    ];

    /// The value of the `capability` attribute.
    pub fn token(&self) -> &str {
        match self {
            Self::Description => "description",
            Self::CapabilityList => "capabilitylist",
            Self::ResourceList => "resourcelist",
            Self::ResourceDump => "resourcedump",
            Self::ResourceDumpManifest => "resourcedump-manifest",
            Self::ChangeList => "changelist",
            Self::ChangeDump => "changedump",
            Self::ChangeDumpManifest => "changedump-manifest",
            Self::ResourceListArchive => "resourcelist-archive",
            Self::ResourceDumpArchive => "resourcedump-archive",
            Self::ChangeListArchive => "changelist-archive",
            Self::ChangeDumpArchive => "changedump-archive",
            Self::ChangeNotification => "change-notification",
            Self::FrameworkNotification => "framework-notification",
            Self::Other(token) => token,
        }
    }

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

impl From<&str> for Capability {
    fn from(token: &str) -> Self {
        Self::DEFINED
            .into_iter()
            .find(|capability| capability.token() == token)
            .unwrap_or_else(|| Self::Other(token.into()))
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

/// How a resource or a document changed (RS-033).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// It is new.
    Created,
    /// It was there and is different now.
    Updated,
    /// It is gone.
    Deleted,
}

/// A `change` value other than the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a change is one of created, updated, deleted")]
pub struct ChangeError;

impl Change {
    /// Every change.
    pub const ALL: [Self; 3] = [Self::Created, Self::Updated, Self::Deleted];

    /// The value of the `change` attribute.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }
}

impl FromStr for Change {
    type Err = ChangeError;

    fn from_str(text: &str) -> Result<Self, ChangeError> {
        Self::ALL.into_iter().find(|change| change.token() == text).ok_or(ChangeError)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

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
