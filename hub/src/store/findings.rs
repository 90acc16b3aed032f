//! What a check of every record of a store has found, and what a repair has done.

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
    pub steps: Vec<RepairStep>,
    /// What the store is like now.
    pub left: Findings,
}

/// Something that a repair has done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairStep {
    /// This is lost.
    #[error("lost: {0}")]
    Lost(String),
    /// This was made anew from what is there.
    #[error("rebuilt: {0}")]
    Rebuilt(String),
}
