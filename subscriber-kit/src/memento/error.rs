//! Why no past state of a resource could be taken.

/// Why no past state of a resource could be taken. Servers are named by their origins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MementoError {
    /// Neither the lists nor the Source name a TimeGate for it, and none was given (MEM-050).
    #[error("nothing says who has its state of then; if an archive has it, name that with --timegate")]
    NoTimeGate,
    /// A TimeGate or archive has no state of it (404, 410).
    #[error("{server} has no state of it ({status}); if another archive has one, name that with --timegate")]
    NoVersion {
        /// Which server said so.
        server: String,
        /// What it answered.
        status: u16,
    },
    /// The resource was deleted at that time, although the lists say that it was there (410 with `Memento-Datetime`).
    #[error("{server} says that it was deleted then, and the lists say that it was there")]
    Deleted {
        /// Which server said so.
        server: String,
    },
    /// The answer has no `Memento-Datetime`, or one that is no date (MEM-053).
    #[error("the answer of {server} has no Memento-Datetime, so it is no past state")]
    NoDatetime {
        /// Which server gave it.
        server: String,
    },
    /// The answer does not say that it is of this resource (MEM-054).
    #[error("the answer of {server} does not say that it is a past state of this resource")]
    OtherOriginal {
        /// Which server gave it.
        server: String,
    },
    /// The state may be an older or a later one, and no hash tells (MEM-056).
    #[error(
        "the nearest state at {server} is of {datetime}, and neither a hash nor the lists show that it is the wanted one"
    )]
    Unproven {
        /// Which server gave it.
        server: String,
        /// Of when the state is, as the server writes it.
        datetime: String,
    },
}

impl MementoError {
    /// Whether somebody gave a state, or something like one, and it was not proven to be the wanted one.
    #[must_use]
    pub fn is_unproven(&self) -> bool {
        matches!(self, Self::NoDatetime { .. } | Self::OtherOriginal { .. } | Self::Unproven { .. })
    }
}
