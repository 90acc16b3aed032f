//! Versions of resources: the bytes as each change left them, and a journal of when that was (MEM-010 to MEM-014).
//!
//! A run takes the bytes of what it sees for the first time while it takes the inventory ([`Taking`]), and writes what it saw into the
//! next file of the journal. Both are on the disk before the run's plan is. The state names the files of the journal
//! ([`crate::state::KeptVersions`]), so the Change Lists and the journal advance in one step. [`retention`] removes the oldest bytes
//! after that. What [`Forgotten`] names is never kept again. [`Journal`] is how the rest is read.

mod forgotten;
mod journal;
mod links;
pub(crate) mod retention;
mod segments;
mod sharing;
mod store;
mod taken;
mod taking;

pub use self::taken::Unkept;
pub(crate) use self::{
    forgotten::Forgotten,
    journal::{Journal, Version, VersionLine, spellings},
    links::{Memento, VersionLinks},
    segments::{Merge, advanced, remove_all, sweep},
    sharing::{Sharers, sharers},
    store::{Content, Store},
    taken::{Merged, Taken},
    taking::{Records, Taking},
};
