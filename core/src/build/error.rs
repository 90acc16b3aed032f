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
    /// Changes are listed in the order they happened (RS-121), none before the moment that the list goes on from.
    #[error("a change at {moment} comes after {after}; list changes oldest first")]
    ChangeOrder {
        /// When it happened.
        moment: DateTime,
        /// What came before.
        after: DateTime,
    },
    /// A Change Dump brings a copy to the state at its end, which these changes cannot: the bytes of the last one are gone (RS-143), or
    /// those that make up for them come so late that no package can hold all that lies in between.
    #[error(
        "the bytes of `{loc}` as of {moment} are gone, and no later change brings others; end the dump before that moment, or make it \
         when the resource has changed again"
    )]
    BytesGone {
        /// The resource.
        loc: String,
        /// The first of its changes that cannot be listed.
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
    #[error(
        "more than {limit} documents under one index; archive the oldest, or divide the resources into several sets"
    )]
    TooManyDocuments {
        /// How many an index lists.
        limit: usize,
    },
    /// What was to be written would break rules; an inventory can hold what no document may.
    #[error("the document would break rules:\n{0}")]
    Violations(#[from] Violations),
    /// A document that was published before, and that is to go on, cannot be read.
    #[error("`{name}` cannot be read: {source}; restore it, or remove it and start again")]
    Published {
        /// The name of the document.
        name: String,
        /// The reason.
        source: ReadError,
    },
    /// A document that was published before is not the one to go on with.
    #[error("`{name}` cannot be continued: {reason}; restore it, or remove it and start again")]
    NotContinuable {
        /// The name of the document.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A document was not written. What was published before is whole, and running again goes on.
    #[error("cannot write `{name}`: {source}; check free space and permissions there, then run again")]
    Write {
        /// The name of the document.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// The documents are published, but one that nobody needs any more stays; the next run removes it.
    #[error("cannot remove `{name}`: {source}; check the permissions there, or remove it yourself")]
    Remove {
        /// The name of the document.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// The documents that are there cannot be listed.
    #[error("cannot list the documents `{prefix}...`: {source}; make their folder readable")]
    Names {
        /// How their names begin.
        prefix: String,
        /// The reason.
        source: io::Error,
    },
    /// A temporary file failed.
    #[error("cannot use a temporary file in `{}`: {source}; make room there, then run again", folder.display())]
    Scratch {
        /// Where it is.
        folder: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The bytes of a resource cannot be read, so that they cannot be packed.
    #[error(
        "cannot read the bytes of `{loc}`: {source}; make them readable, or leave it out of the inventory"
    )]
    Content {
        /// The resource.
        loc: String,
        /// The reason.
        source: io::Error,
    },
    /// The folder cannot be made ready for documents.
    #[error("cannot use the folder `{}`: {source}; check the permissions there", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Somebody else writes documents into the folder; two writers would take away each other's documents.
    #[error("another process writes into `{}`; wait until it has ended, or write into another folder", folder.display())]
    FolderInUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A closure that an inventory was given panicked, so that the inventory is incomplete.
    #[error("the inventory stopped because a callback panicked; see the message of the panic")]
    BrokenOff,
    /// An inventory failed, for a reason that has no name of its own here.
    #[error("cannot go on: {0}")]
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
