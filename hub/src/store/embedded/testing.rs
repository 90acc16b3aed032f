//! An engine for tests: a map in memory whose commits can be held up, counted, and made to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use bytes::Bytes;
use tokio::sync::watch;

use super::Embedded;
use super::engine::{Batch, Change, Engine, Keys, Scan, Space};
use super::fjall::Fjall;
use super::reserve::DiskReserve;
use super::shared::Shared;
use crate::store::{Epoch, Keyring, Lapse, Result, Shard, Spread, Store, StoreError, StoreEvent};

#[derive(Clone, Debug, Default)]
pub(super) struct Fragile(Arc<State>);

#[derive(Debug, Default)]
struct State {
    records: RwLock<BTreeMap<(Space, Vec<u8>), Bytes>>,
    full: AtomicBool,
    /// Commits until the disk is full.
    left: Mutex<Option<usize>>,
    keeps_failed: AtomicBool,
    panics: AtomicBool,
    half_done: Mutex<Option<Batch>>,
    commits: AtomicUsize,
    parts_read: AtomicUsize,
    scans: Mutex<Vec<(Space, Keys)>>,
    unreadable: Mutex<Option<Space>>,
    hold: Mutex<()>,
}

impl Fragile {
    /// Whether the disk is full.
    pub(super) fn set_full(&self, full: bool) {
        self.0.full.store(full, Ordering::SeqCst);
    }

    /// The next commit panics.
    pub(super) fn panic_next(&self) {
        self.0.panics.store(true, Ordering::SeqCst);
    }

    /// The disk is full after so many commits.
    pub(super) fn break_after(&self, commits: usize) {
        *self.0.left.lock().unwrap() = Some(commits);
    }

    pub(super) fn commits(&self) -> usize {
        self.0.commits.load(Ordering::SeqCst)
    }

    /// How many parts of large bodies were read.
    pub(super) fn parts_read(&self) -> usize {
        self.0.parts_read.load(Ordering::SeqCst)
    }

    /// The ranges of a space that were read, in their order.
    pub(super) fn scans(&self, space: Space) -> Vec<Keys> {
        let scans = self.0.scans.lock().unwrap();
        scans.iter().filter(|(of, _)| *of == space).map(|(_, keys)| keys.clone()).collect()
    }

    /// From now on this space is unreadable behind its first record.
    pub(super) fn set_unreadable(&self, space: Space) {
        *self.0.unreadable.lock().unwrap() = Some(space);
    }

    /// What fails from now on turns out to be on the disk after all when the engine recovers.
    pub(super) fn keep_failed(&self) {
        self.0.keeps_failed.store(true, Ordering::SeqCst);
    }

    fn apply(&self, batch: &Batch) {
        let mut records = self.0.records.write().unwrap();
        for (space, key, change) in batch.iter() {
            match change {
                Change::Put(value) => records.insert((space, key.to_vec()), Bytes::copy_from_slice(value)),
                Change::Remove => records.remove(&(space, key.to_vec())),
            };
        }
    }

    /// Commits wait as long as the guard lives.
    pub(super) fn hold(&self) -> std::sync::MutexGuard<'_, ()> {
        self.0.hold.lock().unwrap()
    }
}

fn copy(batch: &Batch) -> Batch {
    let mut copied = Batch::default();
    for (space, key, change) in batch.iter() {
        match change {
            Change::Put(value) => copied.put(space, key.to_vec(), value.clone()),
            Change::Remove => copied.remove(space, key.to_vec()),
        }
    }
    copied
}

impl Engine for Fragile {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        self.0.parts_read.fetch_add(usize::from(space == Space::Bodies), Ordering::SeqCst);
        Ok(self.0.records.read().unwrap().get(&(space, key.to_vec())).cloned())
    }

    fn scan(&self, space: Space, keys: &Keys) -> Scan<'_> {
        self.0.scans.lock().unwrap().push((space, keys.clone()));
        let records = self.0.records.read().unwrap();
        let inside = |key: &[u8]| key >= keys.from.as_slice() && keys.to.as_deref().is_none_or(|to| key < to);
        let mut found: Vec<_> = records
            .iter()
            .filter(|((of, key), _)| *of == space && inside(key))
            .map(|((_, key), value)| Ok((Bytes::from(key.clone()), value.clone())))
            .collect();
        if *self.0.unreadable.lock().unwrap() == Some(space) {
            found.truncate(1);
            found.push(Err(StoreError::Read("a block is damaged".into())));
        }
        Box::new(found.into_iter())
    }

    fn commit(&self, batch: &Batch) -> Result<()> {
        self.0.commits.fetch_add(1, Ordering::SeqCst);
        assert!(!self.0.panics.load(Ordering::SeqCst), "this commit was to panic");
        let _held = self.hold();
        let mut left = self.0.left.lock().unwrap();
        match left.as_mut() {
            Some(0) => {
                *left = None;
                self.set_full(true);
            }
            Some(more) => *more -= 1,
            None => {}
        }
        drop(left);
        if self.0.full.load(Ordering::SeqCst) {
            if self.0.keeps_failed.load(Ordering::SeqCst) {
                self.0.half_done.lock().unwrap().get_or_insert_with(|| copy(batch));
            }
            return Err(StoreError::Write("no space left on device".into()));
        }
        self.apply(batch);
        Ok(())
    }

    fn recover(&self) -> Result<()> {
        if self.0.full.load(Ordering::SeqCst) {
            return Err(StoreError::Write("no space left on device".into()));
        }
        if let Some(batch) = self.0.half_done.lock().unwrap().take() {
            self.apply(&batch);
        }
        Ok(())
    }

    fn disk_size(&self) -> Result<u64> {
        Ok(0)
    }
}

/// A store over this engine.
pub(super) fn over(engine: &Fragile) -> Embedded {
    Embedded::over(Box::new(engine.clone()), Keyring::none(), None, DiskReserve::new(|| None, 0)).unwrap()
}

/// A store in memory, and what a test does to it.
pub(crate) fn in_memory() -> (Arc<dyn Store>, InMemory) {
    let engine = Fragile::default();
    let store = over(&engine);
    let (other_hub, shared) = (store.other_hub.clone(), Arc::clone(&store.shared));
    (Arc::new(store), InMemory { engine, other_hub, shared })
}

/// What a test does to a store in memory.
#[derive(Debug)]
pub(crate) struct InMemory {
    engine: Fragile,
    other_hub: OtherHub,
    shared: Arc<Shared>,
}

impl InMemory {
    /// Whether its disk is full.
    pub(crate) fn set_full(&self, full: bool) {
        self.engine.set_full(full);
    }

    /// Commits wait as long as this lives.
    pub(crate) fn hold(&self) -> Held<'_> {
        Held { _commits: self.engine.hold() }
    }

    /// How many commits have begun.
    pub(crate) fn commits(&self) -> usize {
        self.engine.commits()
    }

    /// Another hub owns this shard, or no longer.
    pub(crate) fn own_elsewhere(&self, shard: Shard, owned: bool) {
        let mut shards = self.other_hub.0.shards.lock().unwrap();
        if owned {
            shards.insert(shard);
        } else {
            shards.remove(&shard);
        }
    }

    /// Which shards were released, in that order.
    pub(crate) fn released(&self) -> Vec<Shard> {
        self.other_hub.0.released.lock().unwrap().clone()
    }

    /// It is shared by so many hubs from now on: this one has its share of what nobody owns elsewhere.
    pub(crate) fn share_among(&self, hubs: usize) {
        self.other_hub.0.hubs.store(hubs, Ordering::SeqCst);
    }

    /// That hub says that it has changed how the shards are spread.
    pub(crate) fn change_spread(&self) {
        self.other_hub.0.spread_changes.send_replace(());
    }

    /// From now on nobody is told how the shards are spread.
    pub(crate) fn hang_spread(&self) {
        self.other_hub.0.spread_hangs.store(true, Ordering::SeqCst);
    }

    /// From now on no shard is read.
    pub(crate) fn hang_loads(&self) {
        self.other_hub.0.loads_hang.store(true, Ordering::SeqCst);
    }

    /// How many reads of a shard hang, or did.
    pub(crate) fn hanging_loads(&self) -> usize {
        self.other_hub.0.hanging_loads.load(Ordering::SeqCst)
    }

    /// From now on the other hubs cannot be told that this one stops.
    pub(crate) fn refuse_stop(&self) {
        self.other_hub.0.refuses_stop.store(true, Ordering::SeqCst);
    }

    /// How often this hub has said that it stops, or tried to.
    pub(crate) fn announced_stops(&self) -> usize {
        self.other_hub.0.announced_stops.load(Ordering::SeqCst)
    }

    /// Others may have taken this hub for dead.
    pub(crate) fn lapse(&self) {
        self.other_hub.set_lapse(true);
    }

    /// From now on nobody is told what happens, or everybody is told to read again, and of what happens then.
    pub(crate) fn lose_events(&self, is_lost: bool) {
        self.shared.set_mute(is_lost);
        self.shared.tell(&[StoreEvent::Resync]);
    }

    /// How many claims were refused because of that.
    pub(crate) fn refused_claims(&self) -> usize {
        self.other_hub.0.refused.load(Ordering::SeqCst)
    }
}

/// Holds commits up.
pub(crate) struct Held<'a> {
    _commits: MutexGuard<'a, ()>,
}

/// Another hub, of which an embedded store knows in tests alone.
#[derive(Clone, Debug, Default)]
pub(super) struct OtherHub(Arc<Elsewhere>);

#[derive(Debug, Default)]
struct Elsewhere {
    shards: Mutex<BTreeSet<Shard>>,
    refused: AtomicUsize,
    /// What this hub owns.
    own: Mutex<BTreeMap<Shard, Epoch>>,
    /// What it has released.
    released: Mutex<Vec<Shard>>,
    /// How many hubs share the store; 0: nobody shares it.
    hubs: AtomicUsize,
    has_lapsed: AtomicBool,
    spread_changes: watch::Sender<()>,
    spread_hangs: AtomicBool,
    loads_hang: AtomicBool,
    hanging_loads: AtomicUsize,
    refuses_stop: AtomicBool,
    announced_stops: AtomicUsize,
}

impl OtherHub {
    /// Refuses a claim of a shard that it owns.
    pub(super) fn check(&self, shard: Shard) -> Result<()> {
        if !self.0.shards.lock().unwrap().contains(&shard) {
            return Ok(());
        }
        self.0.refused.fetch_add(1, Ordering::SeqCst);
        Err(StoreError::Owned)
    }

    /// This hub owns a shard from now on.
    pub(super) fn claimed(&self, shard: Shard, epoch: Epoch) {
        self.0.own.lock().unwrap().insert(shard, epoch);
    }

    /// Nobody does.
    pub(super) fn released(&self, shard: Shard) {
        self.0.own.lock().unwrap().remove(&shard);
        self.0.released.lock().unwrap().push(shard);
    }

    /// How all these shards are spread, where the store is shared.
    pub(super) fn spread(&self, mut all: Vec<Shard>) -> Option<Spread> {
        let hubs = self.0.hubs.load(Ordering::SeqCst);
        let elsewhere = self.0.shards.lock().unwrap();
        all.retain(|shard| !elsewhere.contains(shard));
        let own = self.0.own.lock().unwrap();
        let own = own.iter().filter(|(shard, _)| !elsewhere.contains(shard));
        let own = own.map(|(shard, epoch)| (*shard, *epoch)).collect();
        (hubs > 0).then_some(Spread { hubs, sharing: hubs, shares: true, free: all, own })
    }

    /// Changes when it says so, where the store is shared.
    pub(super) fn watch_spread(&self) -> Option<watch::Receiver<()>> {
        let is_shared = self.0.hubs.load(Ordering::SeqCst) > 0;
        is_shared.then(|| self.0.spread_changes.subscribe())
    }

    /// Never returns where the spread is asked for in vain.
    pub(super) async fn unless_spread_hangs(&self) {
        if self.0.spread_hangs.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
    }

    /// Never returns where shards are read in vain.
    pub(super) async fn unless_loads_hang(&self) {
        if self.0.loads_hang.load(Ordering::SeqCst) {
            self.0.hanging_loads.fetch_add(1, Ordering::SeqCst);
            pending::<()>().await;
        }
    }

    /// This hub stops.
    pub(super) fn hear_of_stop(&self) -> Result<()> {
        self.0.announced_stops.fetch_add(1, Ordering::SeqCst);
        let refuses = self.0.refuses_stop.load(Ordering::SeqCst);
        if refuses { Err(StoreError::Away("it is told nothing".into())) } else { Ok(()) }
    }

    pub(super) fn lapse(&self) -> Option<Lapse> {
        self.0.has_lapsed.load(Ordering::SeqCst).then_some(Lapse(1))
    }

    pub(super) fn set_lapse(&self, has_lapsed: bool) {
        self.0.has_lapsed.store(has_lapsed, Ordering::SeqCst);
    }
}

/// Flips a bit in the first record of a space.
pub(super) fn damage(engine: &dyn Engine, space: Space) {
    let (key, value) = engine.scan(space, &Keys::all()).next().unwrap().unwrap();
    let mut value = value.to_vec();
    let middle = value.len() / 2;
    value[middle] ^= 1;
    let mut batch = Batch::default();
    batch.put(space, key.to_vec(), value);
    engine.commit(&batch).unwrap();
}

/// Makes the first subscription of a closed store of fjall unreadable.
pub(crate) fn damage_subscription(directory: &Path) {
    damage_closed(directory, Space::Subscriptions);
}

/// Makes the first pair of a closed store of fjall lead nowhere.
pub(crate) fn damage_subscription_index(directory: &Path) {
    damage_closed(directory, Space::SubscriptionIndex);
}

/// Makes the first notification of a closed store of fjall unreadable.
pub(crate) fn damage_log(directory: &Path) {
    damage_closed(directory, Space::Log);
}

fn damage_closed(directory: &Path, space: Space) {
    damage(&Fjall::open(&directory.join("fjall")).unwrap(), space);
}
