//! Accepted notifications: how each of them fares.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use http::StatusCode;
use resync_core::websub::NotificationId;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::reply::{json, refuse, unavailable};
use crate::store::{Offset, Standing, Store, StoreError, TopicId};
use crate::topics::Tickets;

/// Tells how notifications fare.
#[derive(Clone, Debug)]
pub struct Statuses {
    store: Arc<dyn Store>,
    tickets: Tickets,
    hub_url: Arc<str>,
    /// Counting reads every subscription of a topic: one at a time, so that nobody can keep the disk busy by asking.
    turn: Arc<Semaphore>,
}

/// What a publisher sees of its notification; no callback, and no subscription by itself.
#[derive(Debug, Serialize)]
struct Status {
    notification: String,
    topic: String,
    received_at: String,
    subscriptions: Counts,
}

#[derive(Debug, Serialize)]
struct Counts {
    delivered: u64,
    owing: u64,
    skipped: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Ticket {
    #[serde(default)]
    ticket: String,
}

impl Statuses {
    /// `hub_url` is what the URLs of statuses begin with.
    pub fn new(store: Arc<dyn Store>, tickets: Tickets, hub_url: Arc<str>) -> Self {
        Self { store, tickets, hub_url, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Where the status of a notification is.
    pub(super) fn url(&self, id: NotificationId) -> String {
        format!("{}notifications/{id}?ticket={}", self.hub_url, self.tickets.of(id))
    }

    /// The status of a notification, for somebody who may see it.
    pub(super) async fn show(&self, id: NotificationId) -> Response {
        match self.status(id).await {
            Ok(Some(status)) => json(StatusCode::OK, &status),
            Ok(None) => refuse(StatusCode::GONE, "the log no longer holds this notification"),
            Err(error) => unavailable(&error),
        }
    }

    async fn status(&self, id: NotificationId) -> Result<Option<Status>, StoreError> {
        let (topic, offset) = (TopicId(id.topic), Offset(id.offset));
        let found = self.store.notification_from(topic, offset).await?;
        let Some(notification) = found.filter(|found| found.offset == offset) else { return Ok(None) };
        // Nobody ever closes the semaphore.
        let _turn = self.turn.acquire().await;
        let Standing { delivered, owing, skipped } = self.store.standing(topic, offset).await?;
        Ok(Some(Status {
            notification: id.to_string(),
            topic: notification.links.canonical.clone(),
            received_at: notification.received_at.to_string(),
            subscriptions: Counts { delivered, owing, skipped },
        }))
    }
}

/// `GET /websub/notifications/ID?ticket=…`. Without its ticket a notification does not even exist.
pub(super) async fn status(
    State(statuses): State<Statuses>,
    Path(id): Path<String>,
    Query(Ticket { ticket }): Query<Ticket>,
) -> Response {
    match id.parse() {
        Ok(id) if statuses.tickets.admits(&ticket, id) => statuses.show(id).await,
        Ok(_) | Err(_) => refuse(
            StatusCode::NOT_FOUND,
            "no such notification, or not with this ticket: use the Location that the hub answered to the post",
        ),
    }
}
