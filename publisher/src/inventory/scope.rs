//! The files that a run looks at when the caller knows that nothing else changed.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use resync_core::build::{BuildError, Known};

use super::stored::StoredInventory;
use crate::settings::BaseUrl;

/// Files, and folders with all that is in them, by their paths below the collection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    named: HashSet<PathBuf>,
    above: HashSet<PathBuf>,
}

impl Scope {
    pub(crate) fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let named: HashSet<PathBuf> = paths.into_iter().collect();
        let above = named.iter().flat_map(|path| path.ancestors().skip(1)).map(Path::to_owned).collect();
        Self { named, above }
    }

    /// Whether a path is in the scope, or leads to one that is.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.above.contains(path) || path.ancestors().any(|path| self.named.contains(path))
    }

    /// What the last inventory says of it.
    pub(super) fn known(&self, last: &StoredInventory, base: &BaseUrl) -> Result<Vec<Known>, BuildError> {
        let mut known = BTreeMap::new();
        let mut finder = last.finder()?;
        let locs: BTreeSet<_> = self.named.iter().map(|path| base.join(path)).collect();
        for loc in &locs {
            if let Some(one) = finder.find(loc)? {
                known.insert(one.item.loc.clone(), one);
            }
        }
        let folders: BTreeSet<_> = locs.into_iter().map(|loc| loc + "/").collect();
        let mut finder = last.finder()?;
        for folder in &folders {
            let of_folder = finder.below(folder)?;
            known.extend(of_folder.into_iter().map(|one| (one.item.loc.clone(), one)));
        }
        Ok(known.into_values().collect())
    }
}
