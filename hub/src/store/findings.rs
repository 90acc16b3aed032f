//! What a check of every record of a store has found, and what came of mending it.

/// The result of [`check`](super::check).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// How many records there are.
    pub records: u64,
    /// What is wrong, fault by fault.
    pub faults: Vec<String>,
}

/// The result of [`repair`](super::repair).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// What was done.
    pub mended: Vec<Mended>,
    /// What the store is like now.
    pub left: Findings,
}

/// Something in a store that was mended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mended {
    /// It could not be saved.
    #[error("lost: {0}")]
    Lost(String),
    /// It was made anew from what is there.
    #[error("rebuilt: {0}")]
    Rebuilt(String),
}
