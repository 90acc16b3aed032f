//! Configuration files: every mistake is named with its file and line, and an unknown key with the one that was meant.
//!
//! Neither `figment` nor `config` does this: both stop at the first mistake and pass over a key that nobody knows, and they would have to
//! guess where the section ends in `RESYNC_HUB_DELIVERY_PER_HOST`.
//!
//! * [`Source`] is the text of a file, and what is wrong with it;
//! * [`Keys`] reads its tables, for who says key by key what they mean;
//! * [`Layers`] puts files, variables and flags over a table of defaults;
//! * [`with_values`] prints a configuration.

mod keys;
mod layers;
mod print;
mod source;

use std::path::{Path, PathBuf};
use std::{fs, io};

use toml::Table;

pub use keys::{Keys, number, plain, whole};
pub use layers::{Layers, Names, dotted, value};
pub use print::with_values;
pub use source::{Mistake, Source};

/// From what likeness on a key is taken for a misspelt one.
const ALIKE: f64 = 0.75;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Its file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// All that is wrong with it.
    #[error("the configuration has errors:\n{}", .0.iter().map(|problem| format!("  - {problem}")).collect::<Vec<_>>().join("\n"))]
    Problems(Vec<String>),
}

/// The text of a file.
///
/// # Errors
/// [`ConfigError::Read`]
pub fn read(path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// What is written in a file, whatever it means.
///
/// # Errors
/// [`ConfigError`], also where that is no TOML.
pub fn table(path: &Path) -> Result<Table, ConfigError> {
    let text = read(path)?;
    let source = Source::new(&text);
    let table = source.table();
    source.settle(table, path)
}

/// The one of the known keys that was meant by an unknown one, if there is one like it.
///
/// ```
/// use resync_common::config::meant;
///
/// let known = ["delivery.per_host", "lease.max"];
/// assert_eq!(meant("per_hosts", known), Some("delivery.per_host"));
/// assert_eq!(meant("zzz", known), None);
/// ```
pub fn meant<'k>(key: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let likeness =
        |name: &str| strsim::jaro_winkler(key, name).max(strsim::jaro_winkler(&last(key), &last(name)));
    let nearest = known.into_iter().map(|name| (likeness(name), name));
    nearest
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .filter(|(alike, _)| *alike > ALIKE)
        .map(|found| found.1)
}

/// What to say of an unknown name: the one that was `meant`, or else where to find all.
pub fn hint(meant: Option<&str>, listing: &str) -> String {
    meant.map_or_else(|| listing.to_owned(), |name| format!("did you mean {name}?"))
}

fn on_one_line(error: &toml::de::Error) -> String {
    error.message().trim().replace('\n', " ")
}
