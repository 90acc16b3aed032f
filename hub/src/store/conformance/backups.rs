//! Backups of stores that are used meanwhile, and what is restored from them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::{
    Place, append, at, callback, named, on_every_engine, pinged, posted, secret, subscribe, the, topic,
    within,
};
use crate::store::{
    BESIDE, BackupError, Credentials, Keyring, NewNotification, Offset, PingClient, Store, StoreError, Topic,
    verify,
};
use crate::trace_context::TraceContext;

on_every_engine!(
    what_was_there_before_a_backup_began_is_there_after_a_restore_into_any_engine,
    a_backup_of_a_store_that_changes_all_the_time_is_that_store_at_one_moment,
    nothing_is_restored_over_anything,
    nothing_is_written_of_a_backup_that_is_damaged_or_cut_off,
    secrets_stay_under_their_key,
    files_beside_the_store_come_along,
    a_backup_in_which_somebody_planted_a_file_restores_nothing,
    credentials_are_left_out_where_the_backup_is_not_trusted,
);

/// Where tests keep their backups, and restore them to.
pub(super) struct Elsewhere {
    folder: tempfile::TempDir,
    pub(super) into: Place,
}

impl Elsewhere {
    /// For a backup of what is here.
    pub(super) fn than(place: &Place) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), into: place.another() }
    }

    pub(super) fn backup(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    /// Why a restore of it is refused.
    fn refused(&self) -> BackupError {
        let keys = Keyring::none();
        self.into.store.restore(&keys, Credentials::Restored, &self.backup()).unwrap_err()
    }

    /// Restores all of it there.
    fn whole(&self, into: &Place) {
        let keys = Keyring::none();
        let (_, found) = into.store.restore(&keys, Credentials::Restored, &self.backup()).unwrap();
        assert_eq!(found.faults, [""; 0]);
    }

    pub(super) async fn take(&self, store: &dyn Store) {
        let copied = store.back_up(Vec::new(), Box::new(File::create(self.backup()).unwrap())).await.unwrap();
        assert_eq!(copied.bytes, fs::metadata(self.backup()).unwrap().len());
        assert_eq!(verify(File::open(self.backup()).unwrap()).unwrap().1, copied);
    }
}

async fn what_was_there_before_a_backup_began_is_there_after_a_restore_into_any_engine(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let (shard, subscription) = subscribe(&*store, &url, &callback("d")).await;
    for number in 0..20 {
        let new = named(posted(&url, vec![b'x'; number * 20_000]), &number.to_string(), at(1));
        append(&*store, NewNotification { trace: Some(TraceContext::begin()), ..new }).await;
    }
    let client = PingClient { network: Some([192, 0, 2, 1].into()), is_trusted: true };
    let ping = store.put_ping(url.clone(), Some(TraceContext::begin()), client).await.unwrap();
    let elsewhere = Elsewhere::than(&place);
    elsewhere.take(&*store).await;
    for into in Place::of_every_engine() {
        elsewhere.whole(&into);
        let restored = into.open().await;
        assert_eq!(pinged(&*restored).await, std::slice::from_ref(&ping));
        let (kept, of) = (the(&*restored, &url).await, the(&*store, &url).await);
        assert_eq!(
            kept,
            Topic { head: of.head.leap(), ..of },
            "what the old hub may have given out is not given again"
        );
        let kept = restored.subscription(shard, subscription.topic, subscription.id).await.unwrap();
        assert_eq!(kept.as_ref(), Some(&subscription));
        let (_, first) = append(&*restored, posted(&topic("later"), "first")).await;
        assert!(first > Offset::default().leap(), "the old hub may have given out its first ones");
        let (_, next) = append(&*restored, posted(&url, "next")).await;
        for offset in [Offset(21), Offset(1_000_000), of.head.leap()] {
            let found = restored.notification_from(subscription.topic, offset).await.unwrap().unwrap();
            assert_eq!(found.offset, next, "what is leaped over is passed");
        }
        restored.trim(at(4_000_000_000), within(0)).await.unwrap();
        drop(restored);
        assert_eq!(into.faults(), [""; 0], "retention passes it too");
    }
    for into in Place::of_every_engine() {
        elsewhere.whole(&into);
        let restored = into.open().await;
        for offset in (1..=20).map(Offset) {
            let of = |store: Arc<dyn Store>| async move {
                store.notification_from(subscription.topic, offset).await
            };
            let kept = of(Arc::clone(&restored)).await.unwrap();
            assert!(kept.as_ref().is_some_and(|kept| kept.trace.is_some()));
            assert_eq!(kept, of(Arc::clone(&store)).await.unwrap());
        }
    }
}

/// A file; after some of its first writes the store changes in every way: a new notification, fewer old ones, one subscription more.
struct Meddling {
    file: File,
    store: Arc<dyn Store>,
    handle: Handle,
    written: usize,
}

impl Write for Meddling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written += 1;
        if self.written.is_multiple_of(3) && self.written < 100 {
            self.handle.block_on(meddle(&*self.store, self.written));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

async fn meddle(store: &dyn Store, number: usize) {
    let url = topic(&format!("t{}", number % 5));
    append(store, posted(&url, vec![b'y'; number * 100])).await;
    subscribe(store, &url, &callback(&number.to_string())).await;
    store.trim(at(0), within(2_000_000)).await.unwrap();
}

async fn a_backup_of_a_store_that_changes_all_the_time_is_that_store_at_one_moment(place: Place) {
    let store = place.open().await;
    for number in 0..40 {
        append(&*store, posted(&topic(&format!("t{}", number % 5)), vec![b'x'; 90_000])).await;
    }
    for number in 1_000..1_012 {
        meddle(&*store, number).await;
    }
    let before = the(&*store, &topic("t1")).await.head;
    let elsewhere = Elsewhere::than(&place);
    let file = File::create(elsewhere.backup()).unwrap();
    let out = Meddling { file, store: Arc::clone(&store), handle: Handle::current(), written: 0 };
    store.back_up(Vec::new(), Box::new(out)).await.unwrap();
    elsewhere.whole(&elsewhere.into);
    let restored = elsewhere.into.open().await;
    let mut moments = Vec::new();
    for number in 0..5 {
        let url = topic(&format!("t{number}"));
        let (kept, now) = (the(&*restored, &url).await, the(&*store, &url).await);
        let last = kept.newest();
        assert_eq!(kept.head, last.leap());
        assert!(last <= now.head && kept.first <= now.first, "{kept:?} {now:?}");
        // What both have is the same, to the last byte.
        for offset in (now.first.0..=last.0).map(Offset) {
            let of = |store: Arc<dyn Store>| {
                let id = kept.id;
                async move { store.notification_from(id, offset).await.unwrap() }
            };
            assert_eq!(of(Arc::clone(&restored)).await, of(Arc::clone(&store)).await);
        }
        moments.push(last);
    }
    // A database copies the moment when the backup began; a folder is copied as it is at the end.
    let goes_on = before < moments[1];
    assert!(before <= moments[1] && goes_on == place.is_in_folder(), "{before} {moments:?}");
    // Each change is one notification and one subscription, so that as many of both are there at any moment.
    let subscriptions = |store: Arc<dyn Store>| async move {
        let mut all = 0;
        for shard in (0..store.shards()).map(super::Shard) {
            all += store.ids(shard).await.unwrap().len() as u64;
        }
        all
    };
    let (posted, kept) = (moments.iter().map(|last| last.0).sum::<u64>() - 40, subscriptions(restored).await);
    assert!(
        kept > 10 && (kept == posted || kept + 1 == posted),
        "{kept} subscriptions, {posted} notifications"
    );
    assert!(kept <= subscriptions(store).await);
}

async fn nothing_is_restored_over_anything(place: Place) {
    let store = place.open().await;
    append(&*store, posted(&topic("t"), "kept")).await;
    let elsewhere = Elsewhere::than(&place);
    elsewhere.take(&*store).await;
    drop(store);
    let keys = Keyring::none();
    let error = place.store.restore(&keys, Credentials::Restored, &elsewhere.backup()).unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty { .. } | BackupError::InDatabase), "{error}");
    assert_eq!(the(&*place.open().await, &topic("t")).await.head, Offset(1));
}

async fn nothing_is_written_of_a_backup_that_is_damaged_or_cut_off(place: Place) {
    let store = place.open().await;
    append(&*store, posted(&topic("t"), vec![b'x'; 300_000])).await;
    let elsewhere = Elsewhere::than(&place);
    elsewhere.take(&*store).await;
    let bytes = fs::read(elsewhere.backup()).unwrap();
    let mut bent = bytes.clone();
    bent[bytes.len() / 2] ^= 1;
    for (damaged, told) in
        [(&bytes[..bytes.len() - 1], "cut off after"), (&bent, "is damaged"), (b"hello", "no backup")]
    {
        fs::write(elsewhere.backup(), damaged).unwrap();
        let error = elsewhere.refused();
        assert!(error.to_string().contains(told), "{error}");
        assert!(elsewhere.into.is_empty());
    }
}

async fn secrets_stay_under_their_key(place: Place) {
    let keys = Keyring::parse(&Keyring::generate()).unwrap();
    let store = place.open_with(keys.clone()).await.unwrap();
    subscribe(&*store, &topic("t"), &callback("d")).await;
    let elsewhere = Elsewhere::than(&place);
    elsewhere.take(&*store).await;
    let needle = b"first secret";
    let held = fs::read(elsewhere.backup()).unwrap();
    assert!(!held.windows(needle.len()).any(|window| window == needle));

    let other = Keyring::parse(&Keyring::generate()).unwrap();
    let (into, backup) = (&elsewhere.into, elsewhere.backup());
    let error = into.store.restore(&other, Credentials::Restored, &backup).unwrap_err();
    assert!(matches!(error, BackupError::Store(StoreError::SecretsKey { .. })), "{error}");
    assert!(into.is_empty(), "the key is asked for first");
    into.store.restore(&keys, Credentials::Restored, &backup).unwrap();
    let restored = into.open_with(keys).await.unwrap();
    let kept = restored.find_subscription(&topic("t"), &callback("d")).await.unwrap().unwrap();
    assert_eq!(kept.secret, Some(secret("first secret")));
}

async fn files_beside_the_store_come_along(place: Place) {
    let store = place.open().await;
    let elsewhere = Elsewhere::than(&place);
    fs::create_dir_all(place.data()).unwrap();
    let [there, missing] = ["ticket-key", "audit.jsonl"].map(|name| place.data().join(name));
    fs::write(&there, "ticket").unwrap();
    let large = place.data().join("publisher-tokens.json");
    fs::write(&large, (0..70_000_000_u32).map(|number| number.to_le_bytes()[0]).collect::<Vec<_>>()).unwrap();
    store
        .back_up(vec![there, missing, large.clone()], Box::new(File::create(elsewhere.backup()).unwrap()))
        .await
        .unwrap();
    elsewhere.whole(&elsewhere.into);
    let into = &elsewhere.into;
    assert_eq!(into.beside("ticket-key").await.as_deref(), Some(b"ticket".as_slice()));
    assert_eq!(into.beside("audit.jsonl").await, None);
    let restored = into.beside("publisher-tokens.json").await;
    assert!(restored == fs::read(&large).ok(), "larger than a frame may be");
    assert_eq!(elsewhere.into.faults(), [""; 0]);
}

async fn a_backup_in_which_somebody_planted_a_file_restores_nothing(place: Place) {
    let store = place.open().await;
    let elsewhere = Elsewhere::than(&place);
    for name in ["admin-token", "engine", "hub.toml", ".ssh", "ticket-key.draft"] {
        let planted = elsewhere.folder.path().join(name);
        fs::write(&planted, "of whoever made the backup").unwrap();
        let out = File::create(elsewhere.backup()).unwrap();
        store.back_up(vec![planted], Box::new(out)).await.unwrap();
        let error = elsewhere.refused();
        let unverified = verify(File::open(elsewhere.backup()).unwrap()).unwrap_err();
        for error in [error, unverified] {
            assert!(matches!(&error, BackupError::Planted { name: found } if found == name), "{error}");
        }
        assert!(elsewhere.into.is_empty(), "nothing was made for it");
    }
}

async fn credentials_are_left_out_where_the_backup_is_not_trusted(place: Place) {
    let store = place.open().await;
    let elsewhere = Elsewhere::than(&place);
    let beside = BESIDE.map(|name| elsewhere.folder.path().join(name));
    for file in &beside {
        fs::write(file, "{}").unwrap();
    }
    store.back_up(beside.to_vec(), Box::new(File::create(elsewhere.backup()).unwrap())).await.unwrap();
    let into = &elsewhere.into;
    into.store.restore(&Keyring::none(), Credentials::LeftOut, &elsewhere.backup()).unwrap();
    let mut restored = Vec::new();
    for name in BESIDE {
        restored.extend(into.beside(name).await.map(|_| name));
    }
    assert_eq!(
        restored,
        ["publisher-tokens.used.json", "status-pages.json", "ended-sessions.json", "audit.jsonl"]
    );
}
