//! What is saved about a copy between runs.

pub(crate) mod cache;
pub(crate) mod copied_source;
pub(crate) mod copy_state;
pub(crate) mod earlier_files;
