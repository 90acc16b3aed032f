//! The status of accepted notifications.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::Response;
use http::StatusCode;
use resync_core::websub::NotificationId;
use serde::Serialize;

use super::reply::{json, later, refuse, unavailable};
use super::search_queue::{NotGranted, SearchQueue};
use super::status_cache::StatusCache;
use crate::store::{NotificationProgress, Offset, Store, StoreError, TopicId};
use crate::topics::Tickets;

/// How long a request waits for its turn, and `Retry-After` in seconds.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
const TURN_RETRY: u64 = 5;

/// Finds the status of notifications.
#[derive(Clone, Debug)]
pub struct Statuses {
    store: Arc<dyn Store>,
    tickets: Tickets,
    hub_url: Arc<str>,
    /// Counting reads every subscription of a topic: one search at a time, so that nobody can keep the disk busy.
    searches: SearchQueue,
    /// What was counted last, so that a flood of queries does not count again and again.
    counted: StatusCache<Arc<Status>>,
}

/// What a publisher sees of its notification: no callback, and no single subscription.
#[derive(Debug, Serialize)]
struct Status {
    notification: String,
    topic: String,
    received_at: String,
    counted_at: String,
    subscriptions: Counts,
}

#[derive(Debug, Serialize)]
struct Counts {
    delivered: u64,
    owing: u64,
    skipped: u64,
}

impl Statuses {
    /// `hub_url` is what the URLs of statuses begin with.
    pub fn new(store: Arc<dyn Store>, tickets: Tickets, hub_url: Arc<str>) -> Self {
        Self { store, tickets, hub_url, searches: SearchQueue::new(), counted: StatusCache::new() }
    }

    /// Where the status of a notification is.
    pub(super) fn url(&self, id: NotificationId) -> String {
        format!("{}notifications/{id}?ticket={}", self.hub_url, self.tickets.of(id))
    }

    /// Whether this ticket shows the status of the notification.
    pub(super) fn admits(&self, ticket: &str, id: NotificationId) -> bool {
        self.tickets.admits(ticket, id)
    }

    /// The status of a notification, for a client that may see it, in its turn.
    pub(super) async fn show(&self, client: IpAddr, id: NotificationId) -> Response {
        if let Some(status) = self.counted.get(id, Instant::now()) {
            return json(StatusCode::OK, &*status);
        }
        let statuses = self.clone();
        let shown = self.searches.during(client, TURN_TIMEOUT, async move { statuses.status(id).await });
        match shown.await {
            Ok(Ok(Some(status))) => json(StatusCode::OK, &*status),
            Ok(Ok(None)) => refuse(StatusCode::GONE, "the log no longer holds this notification"),
            Ok(Err(error)) => unavailable(&error),
            Err(NotGranted::TooMany) => {
                let why = "too many status requests from this address or its IPv6 /48 network are waiting: send one after the other";
                later(StatusCode::TOO_MANY_REQUESTS, TURN_RETRY, why)
            }
            Err(NotGranted::TimedOut) => {
                let why = "too many status requests are waiting: try again after the seconds in Retry-After";
                later(StatusCode::SERVICE_UNAVAILABLE, TURN_RETRY, why)
            }
        }
    }

    async fn status(&self, id: NotificationId) -> Result<Option<Arc<Status>>, StoreError> {
        let began = Instant::now();
        // Somebody may have counted while this one waited.
        if let Some(status) = self.counted.get(id, began) {
            return Ok(Some(status));
        }
        let Some(status) = self.count(id).await?.map(Arc::new) else { return Ok(None) };
        self.counted.put(id, Arc::clone(&status), status.topic.len(), began, Instant::now());
        Ok(Some(status))
    }

    async fn count(&self, id: NotificationId) -> Result<Option<Status>, StoreError> {
        let (topic, offset, counted_at) = (TopicId(id.topic), Offset(id.offset), self.store.now());
        let found = self.store.notification_from(topic, offset).await?;
        let Some(notification) = found.filter(|found| found.offset == offset) else { return Ok(None) };
        let NotificationProgress { delivered, owing, skipped } = self.store.standing(topic, offset).await?;
        Ok(Some(Status {
            notification: id.to_string(),
            topic: notification.links.canonical.clone(),
            received_at: notification.received_at.to_string(),
            counted_at: counted_at.to_string(),
            subscriptions: Counts { delivered, owing, skipped },
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt as _;
    use resync_core::websub::Secret;
    use tokio::runtime::Builder;
    use tokio::task::{spawn_blocking, yield_now};

    use super::*;
    use crate::store::{self, Engine, Keyring, posted};

    #[test]
    fn a_status_request_that_hangs_up_has_its_turn_until_the_store_has_searched() {
        // The store searches in threads of this runtime, of which there is one.
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
            let new = posted(&"http://source.example/topic".parse().unwrap(), "news");
            let id = store.append(new, Duration::ZERO).await.unwrap().id();
            let statuses =
                Statuses::new(store, Tickets::new(Secret::random()), "http://hub.example/websub/".into());
            let (stranger, publisher) = (IpAddr::from([192, 0, 2, 66]), IpAddr::from([192, 0, 2, 1]));
            let (go_on, held) = mpsc::channel::<()>();
            let holding = spawn_blocking(move || held.recv());

            let mut first = Box::pin(statuses.show(stranger, id));
            assert!((&mut first).now_or_never().is_none());
            drop(first);
            for _ in 0..10 {
                yield_now().await;
                assert!(statuses.searches.is_taken(), "the store has yet to search");
            }
            let mut second = Box::pin(statuses.show(publisher, id));
            assert!((&mut second).now_or_never().is_none());
            go_on.send(()).unwrap();
            holding.await.unwrap().unwrap();
            assert_eq!(second.await.status(), StatusCode::OK);
            assert!(!statuses.searches.is_taken());
        });
    }
}
