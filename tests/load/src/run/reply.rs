//! What a request of a hub leads to, and what it gets.

use std::time::Duration;

/// The answer of a receiver that has what it wants.
pub(super) const DONE: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

/// A delivery that was understood.
#[derive(Clone, Copy)]
pub(super) struct Delivery {
    pub(super) subscriber: usize,
    pub(super) post: u32,
    /// Since the beginning of the run.
    pub(super) at: Duration,
}

/// What a connection leads to.
pub(super) struct Here {
    pub(super) host: usize,
    /// As callbacks name it.
    pub(super) authority: String,
    /// Its number.
    pub(super) connection: u64,
}

/// What a request gets.
pub(super) enum Reply {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A 2xx.
    Accept(Delivery),
    /// A 2xx after so long.
    Later(Duration, Delivery),
    /// A 2xx, byte by byte, over so long.
    Drip(Duration, Delivery),
    /// Nothing, ever.
    Hang,
    /// The end of its connection.
    Reset,
}
