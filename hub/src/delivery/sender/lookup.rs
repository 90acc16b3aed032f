//! Which notification an attempt sends: reads it from the log, or finds out why there is none to send.

use std::cell::RefCell;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use resync_core::websub::TopicUrl;
use tracing::warn;

use crate::delivery::scheduler::{Attempt, Find, Finished};
use crate::store::{ContentKind, Notification, Offset, Store, StoreError, Topic, TopicId};

/// Damaged records that were logged: notifications, which every attempt for them finds, and subscriptions, again and again.
#[derive(Debug)]
pub(super) struct LoggedOnce<K: Eq + Hash>(RefCell<LruCache<(TopicId, K), ()>>);

/// So many are remembered, by their numbers: where there are more, it is no longer a few records that are damaged.
const LOGGED: NonZeroUsize = NonZeroUsize::new(1_024).expect("1024 is not zero");

impl<K: Eq + Hash> LoggedOnce<K> {
    pub(super) fn new() -> Self {
        Self(RefCell::new(LruCache::new(LOGGED)))
    }

    /// Whether this one was not logged yet; it counts as logged from now on.
    pub(super) fn is_first(&self, topic: TopicId, one: K) -> bool {
        self.0.borrow_mut().put((topic, one), ()).is_none()
    }
}

/// What an attempt sends.
#[derive(Debug)]
pub(super) enum Looked {
    /// This notification.
    Found(Arc<Notification>),
    /// None that can be read. This is what became of the attempt.
    Without(Finished),
}

/// Finds notifications in the logs.
#[derive(Debug)]
pub(super) struct Lookup {
    store: Arc<dyn Store>,
    damaged: LoggedOnce<Offset>,
}

impl Lookup {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, damaged: LoggedOnce::new() }
    }

    /// The notification that this attempt is about.
    pub(super) async fn owed(&self, topic: &TopicUrl, attempt: &Attempt) -> Result<Looked, StoreError> {
        let mut sought = attempt.sought();
        loop {
            let found = match self.store.notification_from(attempt.topic, sought).await {
                Ok(Some(found)) => found,
                Ok(None) => {
                    let Some(log) = self.store.topic(topic).await? else {
                        return Ok(Looked::Without(Finished::Postponed));
                    };
                    return Ok(Looked::Without(match log {
                        // All of it had to make room, the newest too.
                        Topic { first, .. } if first > sought => Finished::Gap { from: sought, next: first },
                        Topic { head, .. } if head >= sought => Finished::Passed { next: head.next() },
                        Topic { .. } => Finished::Postponed,
                    }));
                }
                Err(error @ StoreError::Damaged { .. }) => {
                    let first = self.first(topic, sought).await?;
                    return Ok(Looked::Without(self.without(attempt, sought, first, &error)));
                }
                Err(error) => return Err(error),
            };
            match attempt.judge(sought, found.offset, found.kind) {
                Find::Send => return Ok(Looked::Found(found)),
                Find::Gap => {
                    // What the log still goes back to was not removed: a restore skipped it.
                    let (from, next) = (sought, found.offset);
                    let skipped = self.first(topic, next).await? <= sought;
                    let finished =
                        if skipped { Finished::Passed { next } } else { Finished::Gap { from, next } };
                    return Ok(Looked::Without(finished));
                }
                Find::Later => return Ok(Looked::Without(Finished::Superseded)),
                Find::Pass => sought = found.offset.next(),
            }
        }
    }

    /// With which notification the log of a topic begins; `otherwise` where there is no such topic.
    async fn first(&self, topic: &TopicUrl, otherwise: Offset) -> Result<Offset, StoreError> {
        Ok(self.store.topic(topic).await?.map_or(otherwise, |topic| topic.first))
    }

    /// What became of an attempt whose notification cannot be read, in a log that begins with `first`. It never will be readable again,
    /// and must not hold up the others.
    fn without(&self, attempt: &Attempt, sought: Offset, first: Offset, error: &StoreError) -> Finished {
        match attempt.judge(sought, sought.max(first), ContentKind::Posted) {
            Find::Later => Finished::Superseded,
            Find::Gap => Finished::Gap { from: sought, next: first },
            Find::Send | Find::Pass => {
                if self.damaged.is_first(attempt.topic, sought) {
                    warn!(%error, topic = attempt.topic.0, offset = sought.0, "notification is lost");
                }
                Finished::Gap { from: sought, next: sought.next() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use resync_core::datetime::DateTime;

    use super::*;
    use crate::store::{self, Credentials, Engine, Keyring, Shares};
    use crate::topics::{BodyBudget, CatchUp};

    fn attempt(topic: TopicId, offset: u64) -> Attempt {
        Attempt::first(topic, Offset(offset))
    }

    async fn found(lookup: &Lookup, url: &TopicUrl, attempt: &Attempt) -> Arc<Notification> {
        match lookup.owed(url, attempt).await.unwrap() {
            Looked::Found(notification) => notification,
            Looked::Without(finished) => panic!("{finished:?}"),
        }
    }

    async fn without(lookup: &Lookup, url: &TopicUrl, attempt: &Attempt) -> Finished {
        match lookup.owed(url, attempt).await.unwrap() {
            Looked::Found(notification) => panic!("{notification:?}"),
            Looked::Without(finished) => finished,
        }
    }

    #[test]
    fn of_damaged_records_that_are_found_in_turn_each_is_logged_once() {
        let logged = LoggedOnce::new();
        let sweep = || [1, 5, 9].map(|offset| logged.is_first(TopicId(1), Offset(offset)));
        assert_eq!(sweep(), [true; 3]);
        assert_eq!(sweep(), [false; 3]);
        assert!(logged.is_first(TopicId(2), Offset(1)));
    }

    /// A store with so many notifications, of which retention has left the newest ones, and the first of these is damaged.
    async fn damaged(posts: usize, left: usize) -> (tempfile::TempDir, Arc<dyn Store>, TopicUrl, TopicId) {
        let directory = tempfile::tempdir().unwrap();
        let url: TopicUrl = "http://source.example/framework/".parse().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let mut topic = TopicId(0);
        for _ in 0..posts {
            topic = TopicId(store.append(store::posted(&url, "1"), Duration::ZERO).await.unwrap().id().topic);
        }
        let publishers = left as u64 * store::posted(&url, "1").weight();
        let shares = Shares { publishers, strangers: 0 };
        store.trim(DateTime::from_system_time(SystemTime::UNIX_EPOCH), shares).await.unwrap();
        drop(store);
        store::damage_log(directory.path());
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        (directory, store, url, topic)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_notification_that_cannot_be_read_is_a_gap_of_one() {
        let (_directory, store, url, topic) = damaged(2, 2).await;
        let lookup = Lookup::new(store);
        let gap = Finished::Gap { from: Offset(1), next: Offset(2) };
        assert_eq!(without(&lookup, &url, &attempt(topic, 1)).await, gap);
        let next = found(&lookup, &url, &attempt(topic, 2)).await;
        assert_eq!(next.offset, Offset(2));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_cannot_be_read_behind_a_gap_is_reached_in_one_step() {
        let (_directory, store, url, topic) = damaged(9, 3).await;
        let lookup = Lookup::new(store);
        for (sought, next) in [(1, 7), (7, 8)] {
            let gap = Finished::Gap { from: Offset(sought), next: Offset(next) };
            assert_eq!(without(&lookup, &url, &attempt(topic, sought)).await, gap);
        }
        let newest = Attempt { newest_only: true, newest_fetched: Offset(4), ..attempt(topic, 1) };
        assert_eq!(without(&lookup, &url, &newest).await, Finished::Superseded);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_restore_skips_is_no_gap_and_readers_of_the_log_go_on_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, file] = ["old", "new", "backup"].map(|name| folder.path().join(name));
        let url: TopicUrl = "http://source.example/framework/".parse().unwrap();
        let store = store::open(Engine::Fjall, &old, Keyring::none(), 0).unwrap();
        for _ in 0..2 {
            store.append(store::posted(&url, "1"), Duration::ZERO).await.unwrap();
        }
        store.back_up(Vec::new(), Box::new(std::fs::File::create(&file).unwrap())).await.unwrap();
        store::restore(Engine::Fjall, &new, &Keyring::none(), Credentials::Restored, &file).unwrap();
        let restored = store::open(Engine::Fjall, &new, Keyring::none(), 0).unwrap();
        let (topic, lookup) =
            (store.topic(&url).await.unwrap().unwrap().id, Lookup::new(Arc::clone(&restored)));
        let pages = CatchUp::new(Arc::clone(&restored), BodyBudget::new(1_000_000));
        let passed = Finished::Passed { next: Offset((1 << 32) + 1) };
        assert_eq!(without(&lookup, &url, &attempt(topic, 3)).await, passed);
        let nothing = pages.page(&url, Some(Offset(2)), 10, |_, _| Ok(())).await.unwrap();
        assert!(nothing.notifications.is_empty() && !nothing.more);

        let next =
            Offset(restored.append(store::posted(&url, "2"), Duration::ZERO).await.unwrap().id().offset);
        assert_eq!(without(&lookup, &url, &attempt(topic, 3)).await, passed);
        assert_eq!(found(&lookup, &url, &attempt(topic, next.0)).await.offset, next);
        // One that has read what the old hub took after the backup, too.
        for after in [2, 3, 1_000] {
            let page = pages.page(&url, Some(Offset(after)), 10, |_, _| Ok(())).await.unwrap();
            assert_eq!(page.notifications.iter().map(|one| one.offset).collect::<Vec<_>>(), [next]);
            assert!(!page.more);
        }
    }
}
