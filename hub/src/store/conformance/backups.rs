//! Backups of stores that are used meanwhile, and what is restored from them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Handle;

use super::{
    Place, append, at, callback, named, on_every_engine, posted, secret, subscribe, the, topic, within,
};
use crate::store::{
    BESIDE, BackupError, Credentials, Engine, Keyring, NewNotification, Offset, Store, StoreError, Topic,
    back_up, check, open, restore, verify,
};
use crate::trace_context::TraceContext;

on_every_engine!(
    what_was_there_before_a_backup_began_is_there_after_a_restore_into_any_engine,
    a_backup_of_a_store_that_changes_all_the_time_is_that_store_at_one_moment,
    a_store_that_is_closed_is_backed_up_without_its_keys,
    nothing_is_restored_over_anything,
    only_what_a_restore_makes_is_removed_where_one_was_not_finished,
    nothing_is_written_of_a_backup_that_is_damaged_or_cut_off,
    secrets_stay_under_their_key,
    files_beside_the_store_come_along,
    a_backup_in_which_somebody_planted_a_file_restores_nothing,
    credentials_are_left_out_where_the_backup_is_not_trusted,
);

/// Where tests keep their backups, and restore them to.
struct Elsewhere(tempfile::TempDir);

impl Elsewhere {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn backup(&self) -> PathBuf {
        self.0.path().join("backup")
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    /// Why a restore of it is refused.
    fn refused(&self, engine: Engine) -> BackupError {
        restore(engine, &self.data(), &Keyring::none(), Credentials::Restored, &self.backup()).unwrap_err()
    }

    async fn take(&self, store: &dyn Store) {
        let copied = store.back_up(Vec::new(), Box::new(File::create(self.backup()).unwrap())).await.unwrap();
        assert_eq!(copied.bytes, fs::metadata(self.backup()).unwrap().len());
        assert_eq!(verify(File::open(self.backup()).unwrap()).unwrap().1, copied);
    }
}

fn whole(engine: Engine, data: &Path, backup: &Path) {
    let (_, found) = restore(engine, data, &Keyring::none(), Credentials::Restored, backup).unwrap();
    assert_eq!(found.faults, [""; 0]);
}

async fn what_was_there_before_a_backup_began_is_there_after_a_restore_into_any_engine(place: Place) {
    let store = place.open();
    let url = topic("t");
    let (shard, subscription) = subscribe(&*store, &url, &callback("d")).await;
    for number in 0..20 {
        let new = named(posted(&url, vec![b'x'; number * 20_000]), &number.to_string(), at(1));
        append(&*store, NewNotification { trace: Some(TraceContext::begin()), ..new }).await;
    }
    let elsewhere = Elsewhere::new();
    elsewhere.take(&*store).await;
    for &engine in Engine::ALL {
        let data = elsewhere.0.path().join(format!("{engine:?}"));
        whole(engine, &data, &elsewhere.backup());
        let restored = open(engine, &data, Keyring::none(), 0).unwrap();
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
        let left = check(engine, &data, &Keyring::none()).unwrap();
        assert_eq!(left.faults, [""; 0], "retention passes it too");
    }
    for &engine in Engine::ALL {
        let data = elsewhere.0.path().join(format!("once more {engine:?}"));
        whole(engine, &data, &elsewhere.backup());
        let restored = open(engine, &data, Keyring::none(), 0).unwrap();
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
        let (store, number) = (Arc::clone(&self.store), self.written);
        if number % 3 == 0 && number < 100 {
            self.handle.block_on(async {
                let url = topic(&format!("t{}", number % 5));
                append(&*store, posted(&url, vec![b'y'; number * 100])).await;
                subscribe(&*store, &url, &callback(&number.to_string())).await;
                store.trim(at(0), within(2_000_000)).await.unwrap();
            });
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

async fn a_backup_of_a_store_that_changes_all_the_time_is_that_store_at_one_moment(place: Place) {
    let store = place.open();
    for number in 0..40 {
        append(&*store, posted(&topic(&format!("t{}", number % 5)), vec![b'x'; 90_000])).await;
    }
    let before = the(&*store, &topic("t1")).await.head;
    let elsewhere = Elsewhere::new();
    let file = File::create(elsewhere.backup()).unwrap();
    let out = Meddling { file, store: Arc::clone(&store), handle: Handle::current(), written: 0 };
    store.back_up(Vec::new(), Box::new(out)).await.unwrap();
    whole(place.engine, &elsewhere.data(), &elsewhere.backup());
    let restored = open(place.engine, &elsewhere.data(), Keyring::none(), 0).unwrap();
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
    assert!(before < moments[1], "{before} {moments:?}");
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

async fn a_store_that_is_closed_is_backed_up_without_its_keys(place: Place) {
    let keys = Keyring::parse(&Keyring::generate()).unwrap();
    let store = place.open_with(keys.clone()).unwrap();
    subscribe(&*store, &topic("t"), &callback("d")).await;
    let elsewhere = Elsewhere::new();
    let mut file = File::create(elsewhere.backup()).unwrap();
    let error = back_up(place.engine, place.directory.path(), &[], &mut file).unwrap_err();
    assert!(matches!(error, BackupError::Store(StoreError::Locked { .. })), "{error}");
    drop(store);
    back_up(place.engine, place.directory.path(), &[], &mut File::create(elsewhere.backup()).unwrap())
        .unwrap();
    let (_, found) =
        restore(place.engine, &elsewhere.data(), &keys, Credentials::Restored, &elsewhere.backup()).unwrap();
    assert_eq!(found.faults, [""; 0]);
    let nowhere = back_up(place.engine, elsewhere.0.path(), &[], &mut Vec::new()).unwrap_err();
    assert!(nowhere.to_string().contains("there is no store"), "{nowhere}");
}

async fn nothing_is_restored_over_anything(place: Place) {
    let store = place.open();
    append(&*store, posted(&topic("t"), "kept")).await;
    let elsewhere = Elsewhere::new();
    elsewhere.take(&*store).await;
    drop(store);
    let error = restore(
        place.engine,
        place.directory.path(),
        &Keyring::none(),
        Credentials::Restored,
        &elsewhere.backup(),
    )
    .unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty { .. }), "{error}");
    assert_eq!(the(&*place.open(), &topic("t")).await.head, Offset(1));
}

async fn only_what_a_restore_makes_is_removed_where_one_was_not_finished(place: Place) {
    let store = place.open();
    append(&*store, posted(&topic("t"), "kept")).await;
    let elsewhere = Elsewhere::new();
    elsewhere.take(&*store).await;
    drop(store);
    let into = elsewhere.data();
    let left = into.join("sled");
    fs::create_dir_all(&left).unwrap();
    fs::write(into.join("engine"), "restoring 1\n").unwrap();
    fs::write(left.join("of-before"), "half").unwrap();
    let refused = |backup: &Path| {
        restore(place.engine, &into, &Keyring::none(), Credentials::Restored, backup).unwrap_err().to_string()
    };
    for copied in [into.join("hub.backup"), left.join("hub.backup")] {
        fs::copy(elsewhere.backup(), &copied).unwrap();
        let said = refused(&copied);
        assert!(said.contains("put it elsewhere"), "{said}");
        assert_eq!(fs::read(&copied).unwrap(), fs::read(elsewhere.backup()).unwrap());
    }
    let said = refused(&elsewhere.backup());
    assert!(said.contains("(hub.backup is in it)") && into.join("hub.backup").exists(), "{said}");
    fs::remove_file(into.join("hub.backup")).unwrap();
    restore(place.engine, &into, &Keyring::none(), Credentials::Restored, &elsewhere.backup()).unwrap();
    assert!(!left.join("of-before").exists(), "what was left of the other one is gone");
}

async fn nothing_is_written_of_a_backup_that_is_damaged_or_cut_off(place: Place) {
    let store = place.open();
    append(&*store, posted(&topic("t"), vec![b'x'; 300_000])).await;
    let elsewhere = Elsewhere::new();
    elsewhere.take(&*store).await;
    let bytes = fs::read(elsewhere.backup()).unwrap();
    let mut bent = bytes.clone();
    bent[bytes.len() / 2] ^= 1;
    for (damaged, told) in
        [(&bytes[..bytes.len() - 1], "cut off after"), (&bent, "is damaged"), (b"hello", "no backup")]
    {
        fs::write(elsewhere.backup(), damaged).unwrap();
        let error = elsewhere.refused(place.engine);
        assert!(error.to_string().contains(told), "{error}");
        assert!(!elsewhere.data().exists());
    }
}

async fn secrets_stay_under_their_key(place: Place) {
    let keys = Keyring::parse(&Keyring::generate()).unwrap();
    let store = place.open_with(keys.clone()).unwrap();
    subscribe(&*store, &topic("t"), &callback("d")).await;
    let elsewhere = Elsewhere::new();
    elsewhere.take(&*store).await;
    let needle = b"first secret";
    let held = fs::read(elsewhere.backup()).unwrap();
    assert!(!held.windows(needle.len()).any(|window| window == needle));

    let other = Keyring::parse(&Keyring::generate()).unwrap();
    let error = restore(place.engine, &elsewhere.data(), &other, Credentials::Restored, &elsewhere.backup())
        .unwrap_err();
    assert!(matches!(error, BackupError::Store(StoreError::SecretsKey { .. })), "{error}");
    assert!(!elsewhere.data().exists(), "the key is asked for first");
    restore(place.engine, &elsewhere.data(), &keys, Credentials::Restored, &elsewhere.backup()).unwrap();
    let restored = open(place.engine, &elsewhere.data(), keys, 0).unwrap();
    let kept = restored.find_subscription(&topic("t"), &callback("d")).await.unwrap().unwrap();
    assert_eq!(kept.secret, Some(secret("first secret")));
}

async fn files_beside_the_store_come_along(place: Place) {
    let store = place.open();
    let elsewhere = Elsewhere::new();
    let [there, missing] = ["ticket-key", "audit.jsonl"].map(|name| place.directory.path().join(name));
    fs::write(&there, "ticket").unwrap();
    let large = place.directory.path().join("publisher-tokens.json");
    fs::write(&large, (0..70_000_000_u32).map(|number| number.to_le_bytes()[0]).collect::<Vec<_>>()).unwrap();
    store
        .back_up(vec![there, missing, large.clone()], Box::new(File::create(elsewhere.backup()).unwrap()))
        .await
        .unwrap();
    whole(place.engine, &elsewhere.data(), &elsewhere.backup());
    assert_eq!(fs::read_to_string(elsewhere.data().join("ticket-key")).unwrap(), "ticket");
    assert!(!elsewhere.data().join("audit.jsonl").exists());
    let restored = fs::read(elsewhere.data().join("publisher-tokens.json")).unwrap();
    assert!(restored == fs::read(&large).unwrap(), "larger than a frame may be");
    assert_eq!(check(place.engine, &elsewhere.data(), &Keyring::none()).unwrap().faults, [""; 0]);
}

async fn a_backup_in_which_somebody_planted_a_file_restores_nothing(place: Place) {
    let store = place.open();
    let elsewhere = Elsewhere::new();
    for name in ["admin-token", "engine", "hub.toml", ".ssh", "ticket-key.draft"] {
        let planted = elsewhere.0.path().join(name);
        fs::write(&planted, "of whoever made the backup").unwrap();
        let out = File::create(elsewhere.backup()).unwrap();
        store.back_up(vec![planted], Box::new(out)).await.unwrap();
        let error = elsewhere.refused(place.engine);
        let unverified = verify(File::open(elsewhere.backup()).unwrap()).unwrap_err();
        for error in [error, unverified] {
            assert!(matches!(&error, BackupError::Planted { name: found } if found == name), "{error}");
        }
        assert!(!elsewhere.data().exists(), "nothing was made for it");
    }
}

async fn credentials_are_left_out_where_the_backup_is_not_trusted(place: Place) {
    let store = place.open();
    let elsewhere = Elsewhere::new();
    let beside = BESIDE.map(|name| elsewhere.0.path().join(name));
    for file in &beside {
        fs::write(file, "{}").unwrap();
    }
    store.back_up(beside.to_vec(), Box::new(File::create(elsewhere.backup()).unwrap())).await.unwrap();
    let (data, backup) = (elsewhere.data(), elsewhere.backup());
    restore(place.engine, &data, &Keyring::none(), Credentials::LeftOut, &backup).unwrap();
    let restored: Vec<_> = BESIDE.into_iter().filter(|name| data.join(name).exists()).collect();
    assert_eq!(restored, ["publisher-tokens.used.json", "status-pages.json", "audit.jsonl"]);
}
