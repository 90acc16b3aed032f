//! How records become bytes: in the spaces of an embedded store, in a backup, and where a database keeps what it need not look into.
//!
//! | file | subject |
//! |---|---|
//! | `space` | the kinds of records |
//! | `key` | the key of each record |
//! | `layout`, `fields` | the fields of each record; their bytes |
//! | `codec` | the frame around them, and the secrets in them |

pub(in crate::store) mod codec;
pub(in crate::store) mod fields;
pub(in crate::store) mod key;
pub(in crate::store) mod layout;
mod space;

pub(in crate::store) use self::space::Space;

/// The version of the data format that this code writes and reads; a store in a folder and a backup say theirs. Whoever raises it keeps a data
/// folder of the version before in `tests/tests/hub/stores`, and has the mark of that pass.
pub(in crate::store) const FORMAT: u16 = 1;
