//! What the end-to-end tests and `resync-load` stand on: real processes, raw HTTP, subscribers whose temper can change, and
//! the three roles on one screen.

#![deny(missing_docs)]

pub mod demo;
pub mod harness;
pub mod tree;
