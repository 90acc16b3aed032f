//! All three roles on one screen, and the tests that need more than one crate (in `tests/`); both stand on `resync-harness`.

#![deny(missing_docs)]

pub mod demo;
