//! Reading: from the documents of a Source to a plan.

pub(crate) mod change_reader;
pub(crate) mod changes;
pub(crate) mod collector;
pub(crate) mod document;
pub(crate) mod file_map;
pub(crate) mod filter;
pub(crate) mod gaps;
pub(crate) mod later;
pub(crate) mod lists;
mod negotiation;
pub(crate) mod notified;
pub(crate) mod packages;
pub(crate) mod past;
pub(crate) mod path;
pub(crate) mod plan;
pub(crate) mod provenance;
pub(crate) mod snapshot;
pub(crate) mod told;
