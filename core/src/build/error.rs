//! What keeps documents from being generated.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::datetime::DateTime;
use crate::rules::Violations;
use crate::xml::{ReadError, WriteError};

/// Why documents were not generated. Where nothing else is said, nothing was published.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file or folder of the inventory cannot be read. An incomplete inventory is never published, since a Destination
    /// could take a missing resource for a deleted one.
    #[error("cannot read `{}`: {source}; make it readable, or leave it out of the inventory", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Resources are listed in the order of their URIs, byte by byte, and each once.
    #[error("`{loc}` comes after `{after}`; list resources in ascending order of their URIs, each once")]
    ResourceOrder {
        /// The resource out of order.
        loc: String,
        /// The one before it.
        after: String,
    },
    /// Changes are told in the order they happened (RS-121), none before the moment that the list goes on from.
    #[error("a change at {moment} comes after {after}; tell changes oldest first")]
    ChangeOrder {
        /// When it happened.
        moment: DateTime,
        /// What came before.
        after: DateTime,
    },
    /// A Change Dump brings a copy to the state at its end, which these changes cannot: the bytes of the last one are gone (RS-143).
    #[error(
        "the bytes of `{loc}` as of {moment} are gone, and no later change brings others; end the dump before that moment, or make it \
         when the resource has changed again"
    )]
    BytesGone {
        /// The resource.
        loc: String,
        /// The first of its changes that cannot be told.
        moment: DateTime,
    },
    /// One entry is longer than a whole document may be.
    #[error("the entry of `{loc}` does not fit into a document of {limit} bytes; raise the limit")]
    EntryTooLong {
        /// The entry.
        loc: String,
        /// The limit that was set.
        limit: u64,
    },
    /// More documents than one index can list, and an index cannot be indexed (RS-044).
    #[error("more than {limit} documents under one index; divide the resources into several sets")]
    TooManyDocuments {
        /// How many an index lists.
        limit: usize,
    },
    /// What was to be written would break rules; an inventory can hold what no document may.
    #[error("the document would break rules:\n{0}")]
    Violations(#[from] Violations),
    /// A document that was published before, and that is to go on, cannot be read.
    #[error("`{name}` cannot be read: {source}; restore it, or remove it and start anew")]
    Published {
        /// The name of the document.
        name: String,
        /// The reason.
        source: ReadError,
    },
    /// A document that was published before is not the one to go on with.
    #[error("`{name}` cannot be continued: {reason}; restore it, or remove it and start anew")]
    NotContinuable {
        /// The name of the document.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The place the documents go to, or a temporary file, failed. Documents before the failing one may be published; all of them
    /// conform, and running again goes on.
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
}

impl From<WriteError> for BuildError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Violations(violations) => Self::Violations(violations),
            WriteError::Io(error) => Self::Io(error),
        }
    }
}
