//! The hubs that share the database as they were found last: however many ask, one at a time asks the database.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use resync_common::locks::lock;
use tokio::sync::Mutex as AsyncMutex;

use crate::store::{Hubs, Result};

/// What was found last.
#[derive(Debug, Default)]
pub(super) struct KnownHubs {
    /// Held by who asks the database.
    asking: AsyncMutex<()>,
    found: Mutex<Option<Found>>,
}

#[derive(Clone, Debug)]
struct Found {
    at: Instant,
    hubs: Result<Hubs>,
}

impl KnownHubs {
    /// What `ask` finds, or has found within `fresh`; while somebody asks, what was found before that.
    pub(super) async fn get<F>(&self, fresh: Duration, ask: impl FnOnce() -> F) -> Result<Hubs>
    where
        F: Future<Output = Result<Hubs>>,
    {
        let began = Instant::now();
        let asking = match (self.asking.try_lock(), self.found()) {
            (Ok(asking), _) => asking,
            (Err(_), Some(older)) => return older.hubs,
            (Err(_), None) => self.asking.lock().await,
        };
        let is_fresh = |found: &Found| found.at > began || found.at.elapsed() < fresh;
        if let Some(found) = self.found().filter(is_fresh) {
            return found.hubs;
        }
        let hubs = ask().await;
        *lock(&self.found) = Some(Found { at: Instant::now(), hubs: hubs.clone() });
        drop(asking);
        hubs
    }

    fn found(&self) -> Option<Found> {
        // What it guards is complete between any two statements.
        lock(&self.found).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};
    use std::pin::pin;

    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;
    use crate::store::{Shard, StoreError};

    const HOUR: Duration = Duration::from_secs(3_600);

    fn hubs(unowned: u16) -> Hubs {
        Hubs { unowned: vec![Shard(unowned)], ..Hubs::default() }
    }

    fn nobody_asks() -> Ready<Result<Hubs>> {
        panic!("the database is asked once more")
    }

    fn shard(hubs: Result<Hubs>) -> u16 {
        hubs.unwrap().unowned[0].0
    }

    #[tokio::test]
    async fn however_many_ask_at_a_time_the_database_is_asked_once() {
        let (known, (answer, asked)) = (KnownHubs::default(), oneshot::channel());
        let mut first = pin!(known.get(HOUR, || async { asked.await.unwrap() }));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = pin!(known.get(HOUR, nobody_asks));
        assert!(second.as_mut().now_or_never().is_none(), "nothing is known yet");
        answer.send(Ok(hubs(1))).unwrap();
        assert_eq!((shard(first.await), shard(second.await)), (1, 1));
        assert_eq!(shard(known.get(HOUR, nobody_asks).await), 1, "it was found a moment ago");
        assert_eq!(shard(known.get(Duration::ZERO, || ready(Ok(hubs(2)))).await), 2, "that is too long ago");
    }

    #[tokio::test]
    async fn while_somebody_asks_others_are_shown_what_was_found_before() {
        let (known, (answer, asked)) = (KnownHubs::default(), oneshot::channel());
        assert_eq!(shard(known.get(HOUR, || ready(Ok(hubs(1)))).await), 1);
        let mut asking = pin!(known.get(Duration::ZERO, || async { asked.await.unwrap() }));
        assert!(asking.as_mut().now_or_never().is_none());
        assert_eq!(shard(known.get(Duration::ZERO, nobody_asks).await), 1);
        answer.send(Ok(hubs(2))).unwrap();
        assert_eq!(shard(asking.await), 2);
        assert_eq!(shard(known.get(HOUR, nobody_asks).await), 2);
    }

    #[tokio::test]
    async fn a_database_that_gives_no_answer_is_not_asked_by_each_either() {
        let known = KnownHubs::default();
        let away = || ready(Err(StoreError::Away("it is gone".to_owned())));
        assert!(known.get(HOUR, away).await.is_err());
        assert!(known.get(HOUR, nobody_asks).await.is_err());
    }
}
