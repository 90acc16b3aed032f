//! Replaced addresses of status pages: an old address no longer works.
//!
//! A small document beside the store has a random part for the address of each such page; all other pages have their first address. So
//! no old address works again after an older backup is restored.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, RwLock, RwLockReadGuard};

use resync_common::locks;
use resync_core::websub::Secret;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::self_service::PageId;
use crate::store::{Document, DocumentVersion, Registry};

/// The document.
const ADDRESSES: Document = Document::PageAddresses;

type Replaced = BTreeMap<String, String>;

/// The replaced addresses. Clones share them.
#[derive(Clone, Debug)]
pub struct Addresses {
    registry: Arc<dyn Registry>,
    known: Arc<RwLock<Known>>,
}

/// The document as it was read or written last.
#[derive(Debug)]
struct Known {
    /// `None`: there was none, or it is not known which version this is.
    version: Option<DocumentVersion>,
    replaced: Replaced,
}

impl Addresses {
    /// Reads the document; there is none before the first address is replaced.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(registry: Arc<dyn Registry>) -> io::Result<Self> {
        let version = registry.version(ADDRESSES);
        let replaced = read(&*registry)?.unwrap_or_default();
        let known = Arc::new(RwLock::new(Known { version, replaced }));
        Ok(Self { registry, known })
    }

    /// The random part of this page's address, if it was replaced.
    pub(super) fn part(&self, page: PageId) -> Option<String> {
        self.refresh();
        self.known().replaced.get(&page.to_string()).cloned()
    }

    /// Replaces the address of this page. It is durable when this returns.
    pub(super) async fn replace(&self, page: PageId) -> io::Result<()> {
        let part = String::from_utf8_lossy(Secret::random().as_bytes()).into_owned();
        self.change(move |replaced| drop(replaced.insert(page.to_string(), part))).await
    }

    /// The pages whose addresses were replaced.
    pub(super) fn pages(&self) -> Vec<PageId> {
        self.refresh();
        self.known().replaced.keys().filter_map(|page| page.parse().ok()).collect()
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
        let written = spawn_blocking(move || addresses.write(change));
        written.await.map_err(io::Error::other)?
    }

    fn write(&self, change: impl FnOnce(&mut Replaced)) -> io::Result<()> {
        let (mut change, mut made) = (Some(change), Ok(None));
        self.registry.change(ADDRESSES, &mut |kept: Option<Vec<u8>>| {
            let change = change.take()?;
            let changed = self.changed(kept, change);
            let written = changed.and_then(|replaced| Ok((serde_json::to_vec(&replaced)?, replaced)));
            let (text, replaced) = written.map_err(|error| made = Err(error)).ok()?;
            made = Ok(Some(replaced));
            Some(text)
        })?;
        if let Some(replaced) = made? {
            // Of this or of a later change: the next look reads it, and what others have changed meanwhile.
            let version = None;
            *locks::write(&self.known) = Known { version, replaced };
        }
        Ok(())
    }

    /// A document that somebody has removed is made again.
    fn changed(&self, kept: Option<Vec<u8>>, change: impl FnOnce(&mut Replaced)) -> io::Result<Replaced> {
        let mut replaced = match kept {
            Some(kept) => serde_json::from_slice(&kept)?,
            None => self.known().replaced.clone(),
        };
        change(&mut replaced);
        Ok(replaced)
    }

    /// Reads what another hub has changed. What cannot be read, or is gone, leaves all addresses as they are.
    fn refresh(&self) {
        if self.known().version == self.registry.version(ADDRESSES) {
            return;
        }
        // Held while it is read, so that nobody puts back an older text; and the version first, than which the text may be newer.
        let mut known = locks::write(&self.known);
        known.version = self.registry.version(ADDRESSES);
        match read(&*self.registry) {
            Ok(Some(replaced)) => known.replaced = replaced,
            Ok(None) => {}
            Err(error) => {
                warn!(%error, place = %self.registry.place(ADDRESSES), "replaced addresses of pages not read again: those of before hold");
            }
        }
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        locks::read(&self.known)
    }
}

fn read(registry: &dyn Registry) -> io::Result<Option<Replaced>> {
    Ok(registry.read(ADDRESSES)?.map(|kept| serde_json::from_slice(&kept)).transpose()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Files;

    #[tokio::test]
    async fn an_address_is_replaced_alone_and_for_good_and_none_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status-pages.json");
        let open = || Addresses::open(Arc::new(Files::in_folder(folder.path())));
        let (one, other): (PageId, PageId) =
            ("7.1763800000123".parse().unwrap(), "8.1763800000123".parse().unwrap());
        let addresses = open().unwrap();
        addresses.replace(one).await.unwrap();
        let leaked = addresses.part(one).unwrap();
        // As if a backup of before had been restored, which does not know of it.
        std::fs::remove_file(&file).unwrap();
        let addresses = open().unwrap();
        addresses.replace(one).await.unwrap();
        let read = open().unwrap();
        assert_eq!(read.part(one), addresses.part(one));
        assert!(read.part(one).is_some_and(|part| part != leaked) && read.part(other).is_none());
        assert_eq!(read.pages(), [one]);
        read.forget(vec![one]).await.unwrap();
        assert_eq!(open().unwrap().pages(), []);
        std::fs::write(&file, "{").unwrap();
        assert!(open().is_err(), "what cannot be read is not taken for nothing");
    }

    #[tokio::test]
    async fn what_another_hub_replaces_counts_here_and_a_document_that_is_gone_brings_no_old_address_back() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Addresses::open(Arc::new(Files::in_folder(folder.path()))).unwrap();
        let (here, there) = (open(), open());
        let page: PageId = "7.1763800000123".parse().unwrap();
        assert_eq!(here.part(page), None);
        there.replace(page).await.unwrap();
        let replaced = there.part(page);
        assert!(replaced.is_some() && here.part(page) == replaced);
        std::fs::remove_file(folder.path().join("status-pages.json")).unwrap();
        assert_eq!((here.part(page), there.part(page)), (replaced.clone(), replaced));
    }
}
