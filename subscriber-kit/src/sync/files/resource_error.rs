//! Why one resource is not in step, and whether a retry may help.

use resync_common::words::Size;
use resync_core::digest::Hashes;

use crate::disk_error::remedy;
use crate::fetch::FetchError;
use crate::memento::MementoError;
use crate::sync::PathError;

/// Why one resource is not in step.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// It has no safe path in the directory.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A file that is not of this copy stands in its place.
    #[error("another file was here before the copy, and stays; `sync --adopt` replaces it")]
    EarlierFile,
    /// It has another origin than its list (RS-200).
    #[error("it is not at the list's origin {list}; if you trust it, allow it with --origin")]
    OtherOrigin {
        /// The list's origin.
        list: String,
    },
    /// It could not be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Its state of a past moment was not to be had, or not proven (MEM-062).
    #[error(transparent)]
    Memento(#[from] MementoError),
    /// It was fetched twice, and differs from the listed length (RS-199).
    #[error("the list says {listed} bytes, but the Source sent {}; the list may be out of date", describe(*.sent))]
    Length {
        /// The listed length.
        listed: u64,
        /// The received length; `None` for more than listed.
        sent: Option<u64>,
    },
    /// It was fetched twice, and differs from the listed hash (RS-199).
    #[error("the list says {listed}, but the Source sent {sent}; the list may be out of date")]
    Hash {
        /// The listed hashes.
        listed: Hashes,
        /// Those of the received bytes.
        sent: Hashes,
    },
    /// It is larger than allowed.
    #[error("it is larger than {}; increase --max-resource-size if you trust this Source", Size(*.max))]
    TooLarge {
        /// The limit.
        max: u64,
    },
    /// The run has reached its transfer limit; the next run continues.
    #[error("the run reached its limit of {}; the next run continues", Size(*.max))]
    RunFull {
        /// The limit.
        max: u64,
    },
    /// The disk has not enough space.
    #[error("it has {}, but the disk has only {} left; free some space", Size(*.needed), Size(*.free))]
    NoSpace {
        /// How many bytes are needed.
        needed: u64,
        /// How many bytes may be used.
        free: u64,
    },
    /// Its file here could not be read.
    #[error("its file cannot be read ({}); {}", .0, remedy(.0))]
    Read(std::io::Error),
    /// It could not be written.
    #[error("it cannot be written ({}); {}", .0, remedy(.0))]
    Write(#[from] std::io::Error),
    /// It was deleted at the Source, and cannot be removed here.
    #[error("it cannot be removed ({}); {}", .0, remedy(.0))]
    Remove(std::io::Error),
}

fn describe(sent: Option<u64>) -> String {
    sent.map_or_else(|| "more".to_owned(), |sent| sent.to_string())
}

impl ResourceError {
    /// Whether the received bytes differ from the list; they may be newer (RS-199).
    pub(crate) fn is_mismatch(&self) -> bool {
        matches!(self, Self::Length { .. } | Self::Hash { .. })
    }

    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Fetch(error) if error.is_transient())
    }

    /// Whether the Source has not changed it.
    pub(crate) fn is_unchanged(&self) -> bool {
        matches!(self, Self::Fetch(FetchError::Status { status: 304, .. }))
    }

    /// Whether it is missing at the Source.
    pub(crate) fn is_not_there(&self) -> bool {
        matches!(self, Self::Fetch(FetchError::Status { status: 404 | 410, .. }))
    }

    /// Whether another URL may have it.
    pub(super) fn may_be_elsewhere(&self) -> bool {
        self.is_mismatch() || matches!(self, Self::Fetch(_))
    }

    /// Whether a retry may succeed although the list stays the same. A bad name, a foreign origin or a 404 does not change; bytes
    /// that differ from the list may be newer than it (RS-199), or from a stale cache.
    pub(crate) fn retry_may_help(&self) -> bool {
        match self {
            Self::Path(_)
            | Self::EarlierFile
            | Self::OtherOrigin { .. }
            | Self::Memento(_)
            | Self::TooLarge { .. } => false,
            Self::Fetch(error) => error.is_transient(),
            Self::Length { .. }
            | Self::Hash { .. }
            | Self::RunFull { .. }
            | Self::NoSpace { .. }
            | Self::Read(_)
            | Self::Write(_)
            | Self::Remove(_) => true,
        }
    }

    /// Whether later runs try it again. A missing resource may appear, and an obstacle here may be removed; until then the copy is
    /// not in step.
    pub(crate) fn is_for_later(&self) -> bool {
        match self {
            Self::OtherOrigin { .. } | Self::TooLarge { .. } => false,
            Self::Path(error) => error.is_about_what_is_there(),
            _ => true,
        }
    }
}
