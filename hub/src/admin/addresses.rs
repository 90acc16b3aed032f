//! Replaced addresses of status pages: an old address no longer works.
//!
//! A small file beside the store has a random part for the address of each such page; all other pages have their first address. So no
//! old address works again after an older backup is restored.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use resync_core::durable;
use resync_core::websub::Secret;
use tokio::task::spawn_blocking;

use super::self_service::PageId;

type Replaced = BTreeMap<String, String>;

/// The replaced addresses. Clones share them.
#[derive(Clone, Debug)]
pub struct Addresses {
    file: PathBuf,
    replaced: Arc<RwLock<Replaced>>,
    /// Held while the file is written. Readers of pages do not wait for it.
    writing: Arc<Mutex<()>>,
}

impl Addresses {
    /// Reads the file; there is none before the first address is replaced.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(file: &Path) -> io::Result<Self> {
        let replaced = match std::fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { file: file.to_owned(), replaced: Arc::new(RwLock::new(replaced)), writing: Arc::default() })
    }

    /// The random part of this page's address, if it was replaced.
    pub(super) fn part(&self, page: PageId) -> Option<String> {
        self.replaced.read().unwrap_or_else(PoisonError::into_inner).get(&page.to_string()).cloned()
    }

    /// Replaces the address of this page. It is durable when this returns.
    pub(super) async fn replace(&self, page: PageId) -> io::Result<()> {
        let part = String::from_utf8_lossy(Secret::random().as_bytes()).into_owned();
        self.change(move |replaced| drop(replaced.insert(page.to_string(), part))).await
    }

    /// The pages whose addresses were replaced.
    pub(super) fn pages(&self) -> Vec<PageId> {
        let replaced = self.replaced.read().unwrap_or_else(PoisonError::into_inner);
        replaced.keys().filter_map(|page| page.parse().ok()).collect()
    }

    /// Forgets these pages, whose subscriptions have ended.
    pub(super) async fn forget(&self, over: Vec<PageId>) -> io::Result<()> {
        if over.is_empty() {
            return Ok(());
        }
        self.change(move |replaced| over.iter().for_each(|page| drop(replaced.remove(&page.to_string()))))
            .await
    }

    async fn change(&self, change: impl FnOnce(&mut Replaced) + Send + 'static) -> io::Result<()> {
        let addresses = self.clone();
        let written = spawn_blocking(move || {
            let _writing = addresses.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let mut after = addresses.replaced.read().unwrap_or_else(PoisonError::into_inner).clone();
            change(&mut after);
            durable::replace(&addresses.file, &serde_json::to_vec(&after)?)?;
            *addresses.replaced.write().unwrap_or_else(PoisonError::into_inner) = after;
            Ok(())
        });
        written.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_replaced_alone_and_for_good_and_none_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status-pages.json");
        let (one, other): (PageId, PageId) =
            ("7.1763800000123".parse().unwrap(), "8.1763800000123".parse().unwrap());
        let addresses = Addresses::open(&file).unwrap();
        addresses.replace(one).await.unwrap();
        let leaked = addresses.part(one).unwrap();
        // As if a backup of before had been restored, which does not know of it.
        std::fs::remove_file(&file).unwrap();
        let addresses = Addresses::open(&file).unwrap();
        addresses.replace(one).await.unwrap();
        let read = Addresses::open(&file).unwrap();
        assert_eq!(read.part(one), addresses.part(one));
        assert!(read.part(one).is_some_and(|part| part != leaked) && read.part(other).is_none());
        assert_eq!(read.pages(), [one]);
        read.forget(vec![one]).await.unwrap();
        assert_eq!(Addresses::open(&file).unwrap().pages(), []);
        std::fs::write(&file, "{").unwrap();
        assert!(Addresses::open(&file).is_err(), "what cannot be read is not taken for nothing");
    }
}
