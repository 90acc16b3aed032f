//! The generators judged from outside: what they write is read back, checked by the rules and by the check of a whole site, after
//! every single step of publishing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attacks;
mod broken;
mod changes;
mod dumps;
mod generations;
mod lists;
mod site;
