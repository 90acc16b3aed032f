//! Files: from the plan to the files of the copy.

pub(crate) mod batch;
pub(crate) mod content;
pub(crate) mod delete;
pub(crate) mod disk;
pub(crate) mod download;
pub(crate) mod dump;
pub(crate) mod executor;
pub(crate) mod folder;
pub(crate) mod local;
pub(crate) mod memento;
pub(crate) mod past;
pub(crate) mod patch;
pub(crate) mod place;
pub(crate) mod resource_error;
pub(crate) mod run_outcome;
pub(crate) mod unpack;
