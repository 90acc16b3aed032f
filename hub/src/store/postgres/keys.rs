//! The keys of secrets while they are in use: what is sealed with the old ones is committed before a rotation looks for it.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use resync_common::locks::{read, write};
use tokio::sync::{Mutex, MutexGuard, OwnedRwLockReadGuard};

use crate::store::Keyring;

/// The keys in use.
#[derive(Debug)]
pub(super) struct Keys {
    now: RwLock<Keyring>,
    /// Held for reading by whoever has sealed something that is not committed yet.
    sealing: Arc<tokio::sync::RwLock<()>>,
    /// One rotation at a time.
    rotation: Mutex<()>,
    /// Whether the database was told once with which key secrets are written.
    is_noted: AtomicBool,
}

/// Keys to seal with, until what was sealed is committed.
#[derive(Debug)]
pub(super) struct Sealing {
    keys: Keyring,
    _uncommitted: OwnedRwLockReadGuard<()>,
}

impl Keys {
    pub(super) fn new(keys: Keyring) -> Self {
        Self {
            now: RwLock::new(keys),
            sealing: Arc::default(),
            rotation: Mutex::default(),
            is_noted: AtomicBool::new(false),
        }
    }

    /// To read with.
    pub(super) fn now(&self) -> Keyring {
        read(&self.now).clone()
    }

    /// To seal with.
    pub(super) async fn sealing(&self) -> Sealing {
        let uncommitted = Arc::clone(&self.sealing).read_owned().await;
        Sealing { keys: self.now(), _uncommitted: uncommitted }
    }

    /// From now on these are used, and what was sealed with those before is committed.
    pub(super) async fn change(&self, keys: Keyring) {
        let _nobody = self.sealing.write().await;
        *write(&self.now) = keys;
    }

    /// Nobody else changes them meanwhile.
    pub(super) async fn rotation(&self) -> MutexGuard<'_, ()> {
        self.rotation.lock().await
    }

    /// The database knows from now on with which key secrets are written.
    pub(super) fn set_noted(&self) {
        self.is_noted.store(true, Ordering::Relaxed);
    }

    /// Where the database knows that, and nobody is changing it: nobody does meanwhile.
    pub(super) fn noted(&self) -> Option<MutexGuard<'_, ()>> {
        self.rotation.try_lock().ok().filter(|_| self.is_noted.load(Ordering::Relaxed))
    }
}

impl Deref for Sealing {
    type Target = Keyring;

    fn deref(&self) -> &Keyring {
        &self.keys
    }
}
