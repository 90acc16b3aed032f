//! Which versions of resources are kept, and for how long (MEM-010, MEM-013).

use std::{path::Path, time::Duration};

use ignore::gitignore::Gitignore;
use serde::{Deserialize, Serialize};

use super::matcher;

/// Which versions are kept: the bytes of a resource as each change left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRules {
    /// Whether, and for how long after a later version took its place.
    pub keep: Keep,
    /// How many bytes the versions may take together. Present versions count, and always stay.
    pub bytes: u64,
    /// Patterns of the resources whose versions are kept, as `.gitignore` has them; empty for all.
    pub only: Vec<String>,
}

/// How long a version is kept that another one has taken the place of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Nothing is kept.
    #[default]
    Never,
    /// For at least so many seconds.
    Seconds(u64),
    /// For ever, as far as there is room.
    Always,
}

impl Keep {
    /// How long at least; `None` for ever, or where nothing is kept.
    #[must_use]
    pub fn age(self) -> Option<Duration> {
        match self {
            Self::Seconds(seconds) => Some(Duration::from_secs(seconds)),
            Self::Never | Self::Always => None,
        }
    }
}

impl Default for VersionRules {
    /// Nothing is kept; where something is, at most 50 GiB.
    fn default() -> Self {
        Self { keep: Keep::Never, bytes: 50 << 30, only: Vec::new() }
    }
}

impl VersionRules {
    /// Whether any versions are kept.
    #[must_use]
    pub fn are_kept(&self) -> bool {
        self.keep != Keep::Never
    }

    /// Which paths below the collection are meant; `None` for all.
    pub(crate) fn patterns(&self) -> Result<Option<Gitignore>, ignore::Error> {
        if self.only.is_empty() { Ok(None) } else { matcher(Path::new(""), &self.only).map(Some) }
    }
}
