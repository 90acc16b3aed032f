//! The operator's listener: health for everybody who may reach it, the admin API behind a token.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use resync_core::websub::{NotificationId, TopicUrl};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::info;

use super::reply::{json, refuse, text};
use crate::config::SecretsConfig;
use crate::delivery::{Counters, Operator, Totals};
use crate::metrics::{self, Metrics};
use crate::store::{
    Chain, ChainBreak, KeyringError, NewDenial, Offset, Refusal, Shard, Slot, Store, StoreError, Topic,
};
use crate::subscriptions::Denials;

/// What the operator's listener shows.
#[derive(Clone, Debug)]
pub struct AdminState {
    /// The records.
    pub store: Arc<dyn Store>,
    /// What delivery counts.
    pub counters: Arc<Counters>,
    /// What denies subscriptions.
    pub denials: Denials,
    /// The hand on delivery.
    pub operator: Operator,
    /// SHA-256 of the admin token, so that comparing takes the same time whatever is presented.
    pub token_hash: [u8; 32],
    /// What is counted and measured.
    pub metrics: Metrics,
    /// Where the keys of the secrets are.
    pub secrets: SecretsConfig,
}

#[derive(Serialize)]
struct Status {
    version: &'static str,
    topics: usize,
    subscriptions: usize,
    deliveries: Totals,
}

#[derive(Serialize)]
struct TopicView {
    id: String,
    url: String,
    first: u64,
    head: u64,
    /// How its Change Notifications follow each other (CN-008); only where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<ChainView>,
}

#[derive(Serialize)]
struct ChainView {
    /// Where the next Change Notification has to start.
    until: String,
    broken: u64,
    /// The newest breaks.
    breaks: Vec<BreakView>,
}

#[derive(Serialize)]
struct BreakView {
    notification: String,
    kind: &'static str,
    ended: String,
    started: String,
}

impl TopicView {
    fn new(topic: &Topic, chain: Option<Chain>) -> Self {
        let of = |offset: Offset| NotificationId { topic: topic.id.0, offset: offset.0 }.to_string();
        let broken = |ChainBreak { offset, ended, started }: ChainBreak| BreakView {
            notification: of(offset),
            kind: if ended < started { "gap" } else { "overlap" },
            ended: ended.to_string(),
            started: started.to_string(),
        };
        Self {
            id: format!("{:016x}", topic.id.0),
            url: topic.url.as_str().to_owned(),
            first: topic.first.0,
            head: topic.head.0,
            chain: chain.map(|chain| ChainView {
                until: chain.until.to_string(),
                broken: chain.broken,
                breaks: chain.breaks.into_iter().map(broken).collect(),
            }),
        }
    }
}

#[derive(Serialize)]
struct SubscriptionView {
    id: u64,
    topic: String,
    /// Never the whole callback: it is a capability (W-195).
    callback_origin: String,
    start: u64,
    lease_end: String,
}

/// The operator's routes.
pub fn admin(state: AdminState) -> Router {
    let api = Router::new()
        .route("/status", get(status))
        .route("/topics", get(topics))
        .route("/subscriptions", get(subscriptions))
        .route("/subscriptions/deny", post(deny))
        .route("/secrets/rotate", post(rotate_secrets))
        .nest("/deliveries", super::deliveries::routes())
        .layer(from_fn_with_state(state.clone(), require_token))
        .with_state(state.clone());
    Router::new()
        .route("/livez", get(|| async { text(StatusCode::OK, "alive") }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(state)
        .nest("/api/v1", api)
        .fallback(|| async {
            text(StatusCode::NOT_FOUND, "nothing here: try /livez, /readyz, /metrics or /api/v1/status")
        })
}

async fn require_token(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let presented =
        request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    match presented {
        Some(token) if Sha256::digest(token.trim())[..] == state.token_hash => next.run(request).await,
        Some(_) | None => {
            text(StatusCode::UNAUTHORIZED, "send Authorization: Bearer and the admin token of this hub")
        }
    }
}

async fn ready(State(state): State<AdminState>) -> Response {
    match state.store.health() {
        Ok(()) => text(StatusCode::OK, "ready"),
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, format_args!("not ready: {error}")),
    }
}

/// No topic and no callback is named in it, so it needs no token.
async fn metrics(State(state): State<AdminState>) -> Response {
    match state.metrics.write() {
        Ok(metrics) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

/// Reads the keys anew and rewrites every secret that is not under the first of them.
async fn rotate_secrets(State(state): State<AdminState>) -> Response {
    let keys = match state.secrets.keyring() {
        Ok(keys) => keys,
        Err(error) => return text(StatusCode::CONFLICT, error),
    };
    let Some(key) = keys.writes_with() else {
        return text(StatusCode::CONFLICT, KeyringError::None);
    };
    match state.store.rotate_secrets(keys).await {
        Ok(rewritten) => {
            info!(%key, rewritten, "secrets are encrypted");
            text(StatusCode::OK, format_args!("{rewritten} secrets rewritten, all are under key {key}"))
        }
        Err(error @ StoreError::SecretsKey { .. }) => text(StatusCode::CONFLICT, error),
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, error),
    }
}

async fn status(State(state): State<AdminState>) -> Response {
    let counted = async {
        let topics = state.store.topics().await?.len();
        let subscriptions = state.counters.subscriptions();
        let deliveries = state.counters.totals();
        Ok(Status { version: env!("CARGO_PKG_VERSION"), topics, subscriptions, deliveries })
    };
    answer(counted.await)
}

async fn topics(State(state): State<AdminState>) -> Response {
    let listed = async {
        let mut found = Vec::new();
        for topic in state.store.topics().await? {
            let chain = state.store.chain(topic.id).await?;
            found.push(TopicView::new(&topic, chain));
        }
        found.sort_by(|a, b| a.url.cmp(&b.url));
        Ok(found)
    };
    answer(listed.await)
}

async fn subscriptions(State(state): State<AdminState>) -> Response {
    answer(slots(&state).await)
}

/// Which subscriptions to deny, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToDeny {
    /// By their ids …
    #[serde(default)]
    ids: Vec<u64>,
    /// … or all of this topic.
    topic: Option<String>,
    #[serde(default)]
    reason: String,
}

#[derive(Serialize)]
struct DeniedView {
    denied: usize,
}

/// The longest reason in bytes: it travels in a URL.
const REASON_LIMIT: usize = 500;

/// Ends subscriptions and tells their callbacks (W-098, W-102). When the answer comes, they get nothing any more.
async fn deny(State(state): State<AdminState>, body: Bytes) -> Response {
    let wish: ToDeny = match serde_json::from_slice(&body) {
        Ok(wish) => wish,
        Err(error) => {
            let example =
                "write for example {\"ids\": [7], \"reason\": \"moved\"} or {\"topic\": \"https://…\"}";
            return refuse(
                StatusCode::BAD_REQUEST,
                format_args!("the body cannot be used ({error}): {example}"),
            );
        }
    };
    if wish.reason.len() > REASON_LIMIT || wish.reason.chars().any(char::is_control) {
        let why = format_args!("a reason is one line of at most {REASON_LIMIT} bytes");
        return refuse(StatusCode::BAD_REQUEST, why);
    }
    let topic = match wish.topic.as_deref().map(TopicUrl::parse).transpose() {
        Ok(topic) => topic,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, format_args!("topic: {error}")),
    };
    answer(deny_all(&state, &wish, topic.as_ref()).await.map(|denied| DeniedView { denied }))
}

async fn deny_all(state: &AdminState, wish: &ToDeny, topic: Option<&TopicUrl>) -> Result<usize, StoreError> {
    let mut denied = 0;
    let topic = match topic {
        Some(url) => state.store.topic(url).await?.map(|topic| topic.id),
        None => None,
    };
    for shard in (0..state.store.shards()).map(Shard) {
        let slots = state.store.slots(shard).await?;
        let meant = |slot: &&Slot| wish.ids.contains(&slot.id.0) || topic == Some(slot.topic);
        for slot in slots.iter().filter(meant) {
            let Some(found) = state.store.subscription(shard, slot.topic, slot.id).await? else {
                continue;
            };
            let denial = NewDenial {
                topic: found.topic_url.clone(),
                callback: found.callback.clone(),
                reason: wish.reason.clone(),
                refusal: Refusal::Pair,
            };
            denied += usize::from(state.denials.deny(denial).await?);
        }
    }
    Ok(denied)
}

async fn slots(state: &AdminState) -> Result<Vec<SubscriptionView>, StoreError> {
    let mut found = Vec::new();
    let mut urls = HashMap::new();
    for shard in (0..state.store.shards()).map(Shard) {
        let slots = state.store.slots(shard).await?;
        // After the slots: a topic is there before its subscriptions are.
        urls.extend(state.store.topics().await?.into_iter().map(|topic| (topic.id, topic.url)));
        found.extend(slots.iter().map(|slot| SubscriptionView {
            id: slot.id.0,
            topic: urls.get(&slot.topic).map_or("", TopicUrl::as_str).to_owned(),
            callback_origin: slot.origin.to_string(),
            start: slot.start.0,
            lease_end: slot.lease_end.to_string(),
        }));
    }
    Ok(found)
}

fn answer<T: Serialize>(answer: Result<T, StoreError>) -> Response {
    match answer {
        Ok(value) => json(StatusCode::OK, &value),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}
