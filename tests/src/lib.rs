//! What the end-to-end tests and `resync-load` stand on: real processes, raw HTTP, subscribers whose temper can change,
//! the three roles on one screen, and load.

#![deny(missing_docs)]

pub mod demo;
pub mod harness;
pub mod load;
pub mod tree;
