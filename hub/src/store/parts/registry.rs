//! What hubs of one store share beside it: small documents, and the log of operators' commands.

use std::fmt;
use std::io;

/// A small document that all hubs of a store share. Its text is the same wherever it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Document {
    /// The publishers' tokens.
    PublisherTokens,
    /// When each of these was used last.
    TokenUses,
    /// The key of the URLs of status pages.
    TicketKey,
    /// The replaced addresses of subscribers' pages.
    PageAddresses,
    /// The sessions of the admin pages that were ended. Only hubs that share a store have it.
    EndedSessions,
}

/// Distinguishes the versions of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentVersion(pub [u64; 3]);

/// What is to become of a document, given what it is; `None` leaves it as it is.
pub type Change<'a> = dyn FnMut(Option<Vec<u8>>) -> Option<Vec<u8>> + 'a;

/// The documents and the log. What fails says so as the disk does. Whatever is changed is durable when the call returns.
pub trait Registry: fmt::Debug + Send + Sync + 'static {
    /// Where a document is kept, for people.
    fn place(&self, of: Document) -> String;

    /// Which version of a document is known here; `None` where there is none. It is the newest but for what another hub has changed within
    /// the last second. Takes microseconds.
    fn version(&self, of: Document) -> Option<DocumentVersion>;

    /// That version of the document, or a newer one; `None` where there is none. Takes no longer than to read a small file.
    fn read(&self, of: Document) -> io::Result<Option<Vec<u8>>>;

    /// Changes a document, which nobody else changes meanwhile. `change` is called once at most. May wait for the disk or for a server.
    fn change(&self, of: Document, change: &mut Change<'_>) -> io::Result<()>;

    /// Where the log is kept, for people.
    fn log_place(&self) -> String;

    /// Makes the log if there is none, and ends a line of it that a crash has left half-written.
    fn open_log(&self) -> io::Result<()>;

    /// Drops the older half of a log that has more bytes than these.
    fn shorten_log(&self, longest: u64) -> io::Result<()>;

    /// Appends a line, with its end. May wait for the disk or for a server, as do the others.
    fn append_to_log(&self, line: &[u8]) -> io::Result<()>;

    /// All lines, the oldest first.
    fn read_log(&self) -> io::Result<Vec<u8>>;
}
