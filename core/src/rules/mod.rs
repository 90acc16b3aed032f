//! What a conforming document must satisfy: one named [`Rule`] per requirement, and a [`Checker`] that needs one pass.
//!
//! A rule is either about one value, about what may stand where (one table holds the matrices), or about how entries
//! follow each other. [`check`] looks at a whole document; [`Checker`] sees a header and then one entry at a
//! time, so that a list of any length is checked in constant memory (but for what no two entries may have in
//! common, of which a hash is kept).

mod cells;
mod characters;
mod checker;
mod entry;
mod framework;
mod header;
mod links;
mod path;
mod registered;
#[cfg(test)]
mod requirements;
mod rule;
mod seen;
mod sequence;
mod shape;
mod syntax;
#[cfg(test)]
mod tests;
mod times;
mod values;
mod violation;

pub(crate) use characters::{forbidden_character, has_any, is_allowed};
pub(crate) use checker::check_header;
pub use checker::{Checker, check};
pub(crate) use framework::is_possible;
pub use path::PathFlaw;
pub(crate) use path::member_name;
pub use rule::{Rule, Severity};
pub(crate) use times::Times;
pub(crate) use values::OLD_NOTIFICATION_TOKEN;
pub use violation::{Place, Violation, Violations};

/// How many violations are kept of one document; the rest is only counted.
pub const MAX_VIOLATIONS: usize = 1_000;
