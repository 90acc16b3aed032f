//! Versions beside a copy: each that changes tell of between two runs is kept in a directory of its own (MEM-070 to MEM-072).
//!
//! The copy never waits for a version. While a run reads changes, it writes down all of them (`reading/told.rs`). Once the copy is in step,
//! it keeps those whose bytes are here: the newest ones, from the copy itself, and those in the packages of a Change Dump
//! (`harvest.rs`). The others wait in the state (`queue.rs`), from before the run saves how far it came, so that none is forgotten; they
//! are fetched afterwards, by nobody else at the same time (`fetching.rs`). `store.rs` writes each once.

mod batches;
mod fetching;
mod harvest;
mod local;
mod queue;
mod store;

pub use fetching::fetch_versions;
pub(crate) use harvest::Telling;
