//! A test delivery to the callback of one subscription, at the wish of its subscriber. How often is limited, whatever the configuration
//! says: else anybody with a page could have the hub send requests at will.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::self_service::{remedy, words};
use super::{AdminService, Failed, Lasting, PageId};
use crate::config::Rate;
use crate::delivery::{AttemptOutcome, TestDelivery, TestSender};
use crate::rate_limiter::RateLimiter;

/// For one subscription, and for all that have their callbacks at one origin.
const OF_SUBSCRIPTION: Rate = Rate { per_second: 0.1, burst: 3 };
const OF_ORIGIN: Rate = Rate { per_second: 0.5, burst: 10 };
/// Tests that wait for their answers at once.
const AT_ONCE: usize = 16;
/// When another may be tried while so many wait.
const RETRY: Duration = Duration::from_secs(5);

/// What sends test deliveries, and how often.
#[derive(Clone, Debug)]
pub struct TestDeliveries {
    sender: TestSender,
    subscriptions: RateLimiter,
    origins: RateLimiter,
    permits: Arc<Semaphore>,
}

/// What came of the wish.
#[derive(Clone, Debug)]
pub enum Tested {
    /// It was sent.
    Sent(TestResult),
    /// Too many were sent to this callback; it may be sent after this time.
    TooMany(Duration),
    /// Too many wait for their answers in the whole hub; it may be sent after this time.
    Busy(Duration),
    /// The subscription has ended.
    Over,
}

/// What a test delivery has shown.
#[derive(Clone, Debug)]
pub struct TestResult {
    /// The callback took it.
    pub delivered: bool,
    /// The answer, as a sentence.
    pub came: String,
    /// What would help.
    pub remedy: Option<&'static str>,
}

impl TestDeliveries {
    /// Sends by this.
    pub fn new(sender: TestSender) -> Self {
        Self {
            sender,
            subscriptions: RateLimiter::new(true, OF_SUBSCRIPTION),
            origins: RateLimiter::new(true, OF_ORIGIN),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl AdminService {
    /// Sends a test delivery for the owner of this page. Neither the progress of the subscription nor its failures change. What is
    /// refused has asked neither the workers nor the store, except where its origin has had too many.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn test_delivery(&self, page: PageId) -> Result<Tested, Failed> {
        let (tests, id, now) = (&self.tests, page.subscription(), Instant::now());
        let Ok(_permit) = tests.permits.try_acquire() else { return Ok(Tested::Busy(RETRY)) };
        // It counts whatever comes of it: else looking it up would be free.
        if let Err(wait) = tests.subscriptions.admit(id, now) {
            return Ok(Tested::TooMany(wait));
        }
        let found = match self.record(id).await {
            Ok((_, found)) if PageId::new(found.id, found.created_at) == page => found,
            Ok(_) | Err(Failed::Unknown(_)) => return Ok(Tested::Over),
            Err(error) => return Err(error),
        };
        if let Err(wait) = tests.origins.admit(found.callback.origin(), now) {
            return Ok(Tested::TooMany(wait));
        }
        Ok(Tested::Sent(tests.sender.send(&found, &self.hub_url).await.into()))
    }
}

impl From<TestDelivery> for TestResult {
    /// How long no answer took is not told: it would show which addresses the hub refuses (D-20).
    fn from(TestDelivery { outcome, status, took }: TestDelivery) -> Self {
        let came = match status {
            Some(status) => format!("the callback answered {status} after {}", Lasting(took)),
            None => words(outcome),
        };
        Self { delivered: outcome == AttemptOutcome::Delivered, came, remedy: remedy(outcome) }
    }
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;

    use super::*;
    use crate::store::{self, Engine, Keyring, SubscriptionId};

    /// Nobody is subscribed: whoever is looked up is over.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn b33_a_test_delivery_beyond_the_limits_is_refused_before_anything_is_looked_up() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, folder.path(), Keyring::none(), 0).unwrap();
        let service = AdminService::where_nothing_is_delivered(store, folder.path());
        let page = |number| PageId::new(SubscriptionId(number), DateTime::now());
        for _ in 0..OF_SUBSCRIPTION.burst {
            assert!(matches!(service.test_delivery(page(1)).await, Ok(Tested::Over)));
        }
        assert!(matches!(service.test_delivery(page(1)).await, Ok(Tested::TooMany(_))));
        assert!(matches!(service.test_delivery(page(2)).await, Ok(Tested::Over)));

        let all = service.tests.permits.try_acquire_many(AT_ONCE.try_into().unwrap()).unwrap();
        assert!(matches!(service.test_delivery(page(3)).await, Ok(Tested::Busy(RETRY))));
        drop(all);
        assert!(matches!(service.test_delivery(page(3)).await, Ok(Tested::Over)));
    }
}
