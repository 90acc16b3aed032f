//! Subscribers ask the hub: all of them at the beginning, and some again, later, or for the last time while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use futures_util::stream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::checker::secret;
use super::hub::Endpoint;
use super::publishing::Publishers;
use super::world::World;
use crate::Failure;
use crate::scenario::{By, Motion};

/// Connections over which subscriptions are made.
const AT_ONCE: usize = 16;
/// How many of them may wait to be verified.
const AHEAD: u64 = 4_096;
/// How long no verification may come.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same when all leave: nothing depends on it any more.
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(5);
/// Between two looks at who has left.
const LOOK: Duration = Duration::from_millis(20);

/// Whoever asks in the subscribers' names.
#[derive(Clone, Debug)]
pub(super) struct Subscribers {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) world: Arc<World>,
    pub(super) by: By,
    pub(super) port: u16,
    pub(super) lease: Option<Duration>,
}

impl Subscribers {
    /// Subscribes so many and waits until each was verified; how many a second that were.
    pub(super) async fn subscribe_all(&self, count: u32) -> Result<f64, Failure> {
        let (began, next, before) = (Instant::now(), AtomicU32::new(0), self.world.verified());
        let one = || async {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<_, Failure>(());
                }
                self.until_verified((before + u64::from(number)).saturating_sub(AHEAD)).await?;
                self.ask(number, Motion::Subscribe).await?;
            }
        };
        try_join_all((0..AT_ONCE).map(|_| one())).await?;
        self.until_verified(before + u64::from(count)).await?;
        Ok(f64::from(count) / began.elapsed().as_secs_f64())
    }

    /// Ends the subscriptions of the first so many, as far as the hub lets them; how many stay.
    pub(super) async fn leave(&self, count: u32) -> usize {
        let staying = || (0..count).filter(|number| self.world.is_subscribed(*number));
        let asking = stream::iter(staying()).for_each_concurrent(AT_ONCE, async |number| {
            // One that the hub does not let go is counted below.
            let _ = self.ask(number, Motion::Unsubscribe).await;
        });
        asking.await;
        let (mut seen, mut since) = (staying().count(), Instant::now());
        while seen > 0 && since.elapsed() < PATIENCE_AT_THE_END {
            sleep(LOOK).await;
            let left = staying().count();
            if left < seen {
                (seen, since) = (left, Instant::now());
            }
        }
        seen
    }

    /// Asks for a subscription, or for its end.
    ///
    /// # Errors
    /// When the hub refuses.
    pub(super) async fn ask(&self, number: u32, motion: Motion) -> Result<(), Failure> {
        let mode = match motion {
            Motion::Subscribe => "subscribe",
            Motion::Unsubscribe => "unsubscribe",
        };
        self.world.wants(number, motion == Motion::Subscribe);
        let topic = Publishers::topic(self.by, self.port, self.world.topic_of(number));
        let (callback, secret) = (self.world.callback(number, self.port), secret(number as usize));
        let lease = self.lease.map(|lease| lease.as_secs().to_string());
        let mut parameters = vec![
            ("hub.mode", mode),
            ("hub.topic", &topic),
            ("hub.callback", &callback),
            // Hubs of an older protocol ask for it.
            ("hub.verify", "async"),
            ("hub.secret", &secret),
        ];
        parameters.extend(lease.as_deref().map(|lease| ("hub.lease_seconds", lease)));
        let answer = self.endpoint.form(&parameters).await?;
        if (200..300).contains(&answer.status) {
            Ok(())
        } else {
            Err(format!("a request to {mode} was answered {}", answer.status).into())
        }
    }

    /// Lets subscriptions move as planned; how many requests the hub did not take.
    pub(super) async fn move_about(&self, motions: &[(Duration, u32, Motion)]) -> u64 {
        let zero = self.world.zero();
        let failed = Arc::new(AtomicU64::new(0));
        let mut asked = tokio::task::JoinSet::new();
        for (at, who, motion) in motions.iter().copied() {
            sleep_until((zero + at).into()).await;
            let (subscribers, failed) = (self.clone(), Arc::clone(&failed));
            asked.spawn(async move {
                if subscribers.ask(who, motion).await.is_err() {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        asked.join_all().await;
        failed.load(Ordering::Relaxed)
    }

    async fn until_verified(&self, count: u64) -> Result<(), Failure> {
        let mut seen = self.world.verified();
        while seen < count {
            let progress = async {
                while self.world.verified() == seen {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(PATIENCE, progress).await.map_err(|_| {
                format!("the hub verified {seen} of {count} subscriptions, then none for {PATIENCE:?}")
            })?;
            seen = self.world.verified();
        }
        Ok(())
    }
}
