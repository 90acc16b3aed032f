//! The addresses of status pages that were replaced, one at a time: one that got around opens nothing any more.
//!
//! A small file beside the store says how often that was done for which page; every other page has its first address.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use resync_core::durable;

use super::self_service::PageId;

/// How often the address of each page was replaced.
#[derive(Clone, Debug)]
pub struct Addresses {
    file: PathBuf,
    replaced: Arc<RwLock<BTreeMap<String, u32>>>,
}

impl Addresses {
    /// As the file has them; there is none before the first one is replaced.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(file: &Path) -> io::Result<Self> {
        let replaced = match std::fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { file: file.to_owned(), replaced: Arc::new(RwLock::new(replaced)) })
    }

    /// How often that of this page was replaced.
    pub(super) fn number(&self, page: PageId) -> u32 {
        let replaced = self.replaced.read().unwrap_or_else(PoisonError::into_inner);
        replaced.get(&page.to_string()).copied().unwrap_or_default()
    }

    /// Replaces that of this page once more. It holds when this returns.
    pub(super) fn replace(&self, page: PageId) -> io::Result<()> {
        let mut replaced = self.replaced.write().unwrap_or_else(PoisonError::into_inner);
        let mut after = replaced.clone();
        *after.entry(page.to_string()).or_default() += 1;
        durable::replace(&self.file, &serde_json::to_vec(&after)?)?;
        *replaced = after;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_replaced_alone_and_for_good() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status-pages.json");
        let (one, other): (PageId, PageId) =
            ("7.1763800000123".parse().unwrap(), "8.1763800000123".parse().unwrap());
        let addresses = Addresses::open(&file).unwrap();
        addresses.replace(one).unwrap();
        addresses.replace(one).unwrap();
        let read = Addresses::open(&file).unwrap();
        for addresses in [addresses, read] {
            assert_eq!((addresses.number(one), addresses.number(other)), (2, 0));
        }
        std::fs::write(&file, "{").unwrap();
        assert!(Addresses::open(&file).is_err(), "what cannot be read is not taken for nothing");
    }
}
