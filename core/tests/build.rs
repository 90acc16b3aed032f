//! The generators judged from outside: what they write is read back, checked by the rules and by the check of a whole site, after
//! every single step of publishing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "building/attacks.rs"]
mod attacks;
#[path = "building/broken.rs"]
mod broken;
#[path = "building/changes.rs"]
mod changes;
#[path = "building/dumps.rs"]
mod dumps;
#[path = "building/generations.rs"]
mod generations;
#[path = "building/lists.rs"]
mod lists;
#[path = "building/site.rs"]
mod site;
