//! What the hub, the publisher and the subscriber kit have in common below their subjects: each habit once.
//!
//! Nothing here knows ResourceSync or WebSub. What a program needs and a library does not is behind a feature.
//!
//! * `completions`: completions for shells, and man pages (feature `cli`);
//! * [`space`]: how much room a disk has.
#![deny(missing_docs)]

#[cfg(feature = "cli")]
pub mod completions;
pub mod space;
