//! The admin API `/api/v1`. Each route is declared together with its description.

#![allow(clippy::unused_async, reason = "handlers are async, whether they wait or not")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use resync_common::pace::Leeway;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, OpenApi as _, PartialSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::{body, reply};
use super::AdminState;
use super::auth::NotAdmitted;
use super::openapi::{self, Document};
use super::parameters::{check_query, misunderstood, unknown_field};
use super::pipe::pipe;
use super::problem::Problem;
use super::token::shown;
use crate::admin::{
    By, Denied, Done, Draining, Entry, Export, Host, Laggard, LogLevel, Lost, NewPublisher, Overview, Page,
    PageRequest, Paused, Publisher, Rotated, Skipped, Status, StatusPage, Subscription, SubscriptionDetail,
    Target, ToAdd, ToDeny, Topic, TopicDetail,
};
use crate::topics::Reservation;

/// No order is larger: it may name two hundred thousand subscriptions.
const BODY_LIMIT: usize = 2 * 1024 * 1024;

/// Every route with its description.
pub(super) fn described() -> OpenApiRouter<AdminState> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(document))
        .routes(routes!(status))
        .routes(routes!(overview))
        .routes(routes!(topics))
        .routes(routes!(topic))
        .routes(routes!(topic_subscriptions))
        .routes(routes!(subscriptions))
        .routes(routes!(subscription))
        .routes(routes!(replace_address))
        .routes(routes!(deny))
        .routes(routes!(laggards))
        .routes(routes!(skips))
        .routes(routes!(lost))
        .routes(routes!(hosts))
        .routes(routes!(paused))
        .routes(routes!(retry))
        .routes(routes!(skip))
        .routes(routes!(replay))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(tokens, add_token))
        .routes(routes!(revoke_token))
        .routes(routes!(audit))
        .routes(routes!(rotate_secrets))
        .routes(routes!(backup))
        .routes(routes!(draining, drain, end_drain))
        .routes(routes!(log_level, set_log_level))
        .routes(routes!(export))
        .routes(routes!(export_callback))
}

/// The routes; all need the token.
pub(super) fn routes(state: &AdminState) -> Router<AdminState> {
    let (router, _) = described().split_for_parts();
    router
        .route_layer(from_fn(check_query))
        .fallback(|| async {
            Problem::new(StatusCode::NOT_FOUND, "no such path: /api/v1/openapi.json lists all")
        })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong method: /api/v1/openapi.json lists all")
        })
        .layer(from_fn_with_state(state.clone(), require_token))
}

async fn require_token(
    State(state): State<AdminState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let opened = shown(request.headers()).map(|token| state.auth.check(token, peer.ip(), Instant::now()));
    match opened {
        Some(Ok(())) => next.run(request).await,
        Some(Err(too_many @ NotAdmitted::TooMany(wait))) => {
            let mut response = Problem::new(StatusCode::TOO_MANY_REQUESTS, too_many).into_response();
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
            response
        }
        Some(Err(NotAdmitted::Wrong)) | None => {
            let why = "send Authorization: Bearer and the admin token of this hub";
            Problem::new(StatusCode::UNAUTHORIZED, why).into_response()
        }
    }
}

/// What an answer is: a value as JSON, or a problem.
type Answer<T> = Result<Json<T>, Problem>;

struct Json<T>(T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        reply::json(StatusCode::OK, &self.0)
    }
}

/// A query that can be understood.
struct Asked<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(error) => Err(Problem::new(StatusCode::BAD_REQUEST, misunderstood(&error.body_text()))),
        }
    }
}

/// A body that came in time, with its reserved memory.
struct Sent {
    body: Bytes,
    _room: Reservation,
}

impl FromRequest<AdminState> for Sent {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AdminState) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        match body::read(&head.headers, body, BODY_LIMIT, state.pace, state.bodies.reserve()).await {
            Ok((body, reservation)) => Ok(Self { body, _room: reservation }),
            Err(unread) => Err(Problem::new(unread.status(), unread)),
        }
    }
}

fn understood<T: DeserializeOwned + PartialSchema>(body: &Bytes, example: &str) -> Result<T, Problem> {
    if let Some(why) = unknown_field::<T>(body) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, why));
    }
    serde_json::from_slice(body).map_err(|error| {
        let why = format_args!("the body cannot be used ({error}): write for example {example}");
        Problem::new(StatusCode::BAD_REQUEST, why)
    })
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "hub", responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
async fn document() -> Response {
    ([(CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], openapi::TEXT.as_str())
        .into_response()
}

/// The hub in a few numbers
#[utoipa::path(get, path = "/status", tag = "hub", responses(
    (status = 200, description = "The numbers", body = Status), (status = "default", description = "A problem", body = Problem)))]
async fn status(State(state): State<AdminState>) -> Answer<Status> {
    Ok(Json(state.service.status().await?))
}

/// The hub at a glance
#[utoipa::path(get, path = "/overview", tag = "hub", responses(
    (status = 200, description = "The hub", body = Overview), (status = "default", description = "A problem", body = Problem)))]
async fn overview(State(state): State<AdminState>) -> Answer<Overview> {
    Ok(Json(state.service.overview().await?))
}

/// Topics in the order of their URLs
#[utoipa::path(get, path = "/topics", tag = "topics", params(PageRequest), responses(
    (status = 200, description = "A page", body = Page<Topic>), (status = "default", description = "A problem", body = Problem)))]
async fn topics(State(state): State<AdminState>, Asked(page): Asked<PageRequest>) -> Answer<Page<Topic>> {
    Ok(Json(state.service.topics(&page).await?))
}

/// One topic: its subscribers, its log, who may publish
#[utoipa::path(get, path = "/topics/{topic}", tag = "topics", params(("topic" = String, Path, description = "Its id")), responses(
    (status = 200, description = "The topic", body = TopicDetail), (status = "default", description = "A problem", body = Problem)))]
async fn topic(State(state): State<AdminState>, Path(id): Path<String>) -> Answer<TopicDetail> {
    Ok(Json(state.service.topic(&id).await?))
}

/// The subscriptions of a topic
#[utoipa::path(get, path = "/topics/{topic}/subscriptions", tag = "topics", params(("topic" = String, Path, description = "Its id"), PageRequest), responses(
    (status = 200, description = "A page", body = Page<Subscription>), (status = "default", description = "A problem", body = Problem)))]
async fn topic_subscriptions(
    State(state): State<AdminState>,
    Path(id): Path<String>,
    Asked(page): Asked<PageRequest>,
) -> Answer<Page<Subscription>> {
    Ok(Json(state.service.subscriptions(Some(&id), &page).await?))
}

/// All subscriptions in force
#[utoipa::path(get, path = "/subscriptions", tag = "subscriptions", params(PageRequest), responses(
    (status = 200, description = "A page", body = Page<Subscription>), (status = "default", description = "A problem", body = Problem)))]
async fn subscriptions(
    State(state): State<AdminState>,
    Asked(page): Asked<PageRequest>,
) -> Answer<Page<Subscription>> {
    Ok(Json(state.service.subscriptions(None, &page).await?))
}

/// One subscription: its lease, what failed, what it waits for
#[utoipa::path(get, path = "/subscriptions/{subscription}", tag = "subscriptions", params(("subscription" = u64, Path, description = "Its number")), responses(
    (status = 200, description = "The subscription", body = SubscriptionDetail), (status = "default", description = "A problem", body = Problem)))]
async fn subscription(State(state): State<AdminState>, Path(id): Path<String>) -> Answer<SubscriptionDetail> {
    let id = id.parse().map_err(|_| Problem::new(StatusCode::NOT_FOUND, "no such subscription"))?;
    Ok(Json(state.service.subscription(id).await?))
}

/// Give the status page of a subscription another address: the old one stops working
#[utoipa::path(post, path = "/subscriptions/{subscription}/address", tag = "subscriptions", params(("subscription" = u64, Path, description = "Its number")), responses(
    (status = 200, description = "The new address", body = StatusPage), (status = "default", description = "A problem", body = Problem)))]
async fn replace_address(State(state): State<AdminState>, Path(id): Path<String>) -> Answer<StatusPage> {
    let id = id.parse().map_err(|_| Problem::new(StatusCode::NOT_FOUND, "no such subscription"))?;
    Ok(Json(state.service.replace_address(By::Api, id).await?))
}

/// End subscriptions now and tell their callbacks
#[utoipa::path(post, path = "/subscriptions/deny", tag = "subscriptions", request_body = ToDeny, responses(
    (status = 200, description = "How many", body = Denied), (status = "default", description = "A problem", body = Problem)))]
async fn deny(State(state): State<AdminState>, sent: Sent) -> Answer<Denied> {
    let example = "{\"ids\": [7], \"reason\": \"moved\"} or {\"topic\": \"https://…\"}";
    Ok(Json(state.service.deny(By::Api, understood(&sent.body, example)?).await?))
}

/// Subscriptions that are behind
#[utoipa::path(get, path = "/deliveries/laggards", tag = "deliveries", params(PageRequest), responses(
    (status = 200, description = "A page", body = Page<Laggard>), (status = "default", description = "A problem", body = Problem)))]
async fn laggards(State(state): State<AdminState>, Asked(page): Asked<PageRequest>) -> Answer<Page<Laggard>> {
    Ok(Json(state.service.laggards(&page).await?))
}

/// Notifications that were given up for a subscription
#[utoipa::path(get, path = "/deliveries/skips", tag = "deliveries", params(PageRequest), responses(
    (status = 200, description = "A page", body = Page<Skipped>), (status = "default", description = "A problem", body = Problem)))]
async fn skips(State(state): State<AdminState>, Asked(page): Asked<PageRequest>) -> Answer<Page<Skipped>> {
    Ok(Json(state.service.skips(&page).await?))
}

/// Notifications that were gone from the log before a subscription got them
#[utoipa::path(get, path = "/deliveries/lost", tag = "deliveries", params(PageRequest), responses(
    (status = 200, description = "A page", body = Page<Lost>), (status = "default", description = "A problem", body = Problem)))]
async fn lost(State(state): State<AdminState>, Asked(page): Asked<PageRequest>) -> Answer<Page<Lost>> {
    Ok(Json(state.service.lost(&page).await?))
}

/// Hosts with an open circuit breaker
#[utoipa::path(get, path = "/deliveries/hosts", tag = "deliveries", responses(
    (status = 200, description = "All of them", body = Vec<Host>), (status = "default", description = "A problem", body = Problem)))]
async fn hosts(State(state): State<AdminState>) -> Answer<Vec<Host>> {
    Ok(Json(state.service.hosts().await?))
}

/// Topics of which nothing is delivered for now
#[utoipa::path(get, path = "/deliveries/paused", tag = "deliveries", responses(
    (status = 200, description = "All of them", body = Vec<Paused>), (status = "default", description = "A problem", body = Problem)))]
async fn paused(State(state): State<AdminState>) -> Answer<Vec<Paused>> {
    Ok(Json(state.service.paused().await?))
}

/// Try again now what waits for another attempt: of a topic, a subscription or a host
#[utoipa::path(post, path = "/deliveries/retry", tag = "deliveries",
    params(("topic" = Option<String>, Query, description = "The URL of a topic"),
        ("subscription" = Option<u64>, Query, description = "The number of a subscription"),
        ("host" = Option<String>, Query, description = "An origin of callbacks")), responses(
    (status = 200, description = "How many", body = Done), (status = "default", description = "A problem", body = Problem)))]
async fn retry(State(state): State<AdminState>, Asked(target): Asked<Target>) -> Answer<Done> {
    Ok(Json(state.service.retry(By::Api, &target).await?))
}

/// Give up the next notification for a late subscription
#[utoipa::path(post, path = "/deliveries/skip", tag = "deliveries",
    params(("subscription" = u64, Query, description = "The number of a subscription")), responses(
    (status = 200, description = "How many", body = Done), (status = "default", description = "A problem", body = Problem)))]
async fn skip(State(state): State<AdminState>, Asked(target): Asked<Target>) -> Answer<Done> {
    Ok(Json(state.service.skip(By::Api, &target).await?))
}

/// Deliver once more from an offset or a moment on: to a topic's subscriptions, or to one
#[utoipa::path(post, path = "/deliveries/replay", tag = "deliveries",
    params(("topic" = Option<String>, Query, description = "The URL of a topic"),
        ("subscription" = Option<u64>, Query, description = "The number of a subscription"),
        ("from" = Option<u64>, Query, description = "The offset to begin at"),
        ("since" = Option<String>, Query, description = "The moment to begin at")), responses(
    (status = 200, description = "How many", body = Done), (status = "default", description = "A problem", body = Problem)))]
async fn replay(State(state): State<AdminState>, Asked(target): Asked<Target>) -> Answer<Done> {
    Ok(Json(state.service.replay(By::Api, &target).await?))
}

/// Deliver nothing of a topic until it is resumed
#[utoipa::path(post, path = "/deliveries/pause", tag = "deliveries",
    params(("topic" = String, Query, description = "The URL of a topic")), responses(
    (status = 200, description = "It is paused"), (status = "default", description = "A problem", body = Problem)))]
async fn pause(State(state): State<AdminState>, Asked(target): Asked<Target>) -> Answer<()> {
    Ok(Json(state.service.pause(By::Api, &target).await?))
}

/// Let deliveries of a topic go on
#[utoipa::path(post, path = "/deliveries/resume", tag = "deliveries",
    params(("topic" = String, Query, description = "The URL of a topic")), responses(
    (status = 200, description = "It is resumed"), (status = "default", description = "A problem", body = Problem)))]
async fn resume(State(state): State<AdminState>, Asked(target): Asked<Target>) -> Answer<()> {
    Ok(Json(state.service.resume(By::Api, &target).await?))
}

/// The publishers' tokens, without the tokens
#[utoipa::path(get, path = "/tokens", tag = "tokens", responses(
    (status = 200, description = "All of them", body = Vec<Publisher>), (status = "default", description = "A problem", body = Problem)))]
async fn tokens(State(state): State<AdminState>) -> Answer<Vec<Publisher>> {
    Ok(Json(state.service.publishers()?))
}

/// Make a token, which is shown once
#[utoipa::path(post, path = "/tokens", tag = "tokens", request_body = ToAdd, responses(
    (status = 200, description = "The token", body = NewPublisher), (status = "default", description = "A problem", body = Problem)))]
async fn add_token(State(state): State<AdminState>, sent: Sent) -> Answer<NewPublisher> {
    let example = "{\"name\": \"library\", \"topic_prefixes\": [\"https://library.example/\"]}";
    Ok(Json(state.service.add_token(By::Api, understood(&sent.body, example)?).await?))
}

/// Revoke a token at once
#[utoipa::path(delete, path = "/tokens/{name}", tag = "tokens", params(("name" = String, Path, description = "Its name")), responses(
    (status = 200, description = "It is revoked"), (status = "default", description = "A problem", body = Problem)))]
async fn revoke_token(State(state): State<AdminState>, Path(name): Path<String>) -> Answer<()> {
    Ok(Json(state.service.revoke_token(By::Api, &name).await?))
}

/// What operators did, newest first
#[utoipa::path(get, path = "/audit", tag = "hub", params(PageRequest), responses(
    (status = 200, description = "A page", body = Page<Entry>), (status = "default", description = "A problem", body = Problem)))]
async fn audit(State(state): State<AdminState>, Asked(page): Asked<PageRequest>) -> Answer<Page<Entry>> {
    Ok(Json(state.service.audit_entries(&page).await?))
}

/// Read the keys of the secrets anew, and rewrite every secret that is not under the first of them
#[utoipa::path(post, path = "/secrets/rotate", tag = "hub", responses(
    (status = 200, description = "How many", body = Rotated), (status = "default", description = "A problem", body = Problem)))]
async fn rotate_secrets(State(state): State<AdminState>) -> Answer<Rotated> {
    Ok(Json(state.service.rotate_secrets(By::Api).await?))
}

/// A backup of the hub as of one moment, to be restored with `resync-hub restore`
#[utoipa::path(post, path = "/backup", tag = "hub", responses(
    (status = 200, description = "The backup; it is complete only if its end is there", body = Vec<u8>, content_type = "application/octet-stream"),
    (status = "default", description = "A problem", body = Problem)))]
async fn backup(
    State(state): State<AdminState>,
    Extension(leeway): Extension<Leeway>,
) -> Result<Response, Problem> {
    leeway.give(state.backup_timeout);
    let (out, mut parts) = pipe();
    let taken = tokio::spawn(async move { state.service.back_up(By::Api, out).await.map(drop) });
    let Some(first) = parts.recv().await else {
        let failed = taken.await.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error))?;
        let why = failed
            .err()
            .map_or_else(|| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "it is empty"), Problem::from);
        return Err(why);
    };
    // What fails from here on shows by the end that is missing; the log and the audit log say why.
    let rest = stream::unfold(parts, |mut parts| async move { Some((parts.recv().await?, parts)) });
    let body = Body::from_stream(stream::iter([first]).chain(rest).map(Ok::<_, Infallible>));
    Ok(([(CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")], body)
        .into_response())
}

/// Whether the hub is drained, and what is left to do
#[utoipa::path(get, path = "/drain", tag = "hub", responses(
    (status = 200, description = "Both", body = Draining), (status = "default", description = "A problem", body = Problem)))]
async fn draining(State(state): State<AdminState>) -> Answer<Draining> {
    Ok(Json(state.service.draining().await?))
}

/// Drain the hub: accept nothing new, and go on delivering
#[utoipa::path(post, path = "/drain", tag = "hub", responses(
    (status = 200, description = "It is drained", body = Draining), (status = "default", description = "A problem", body = Problem)))]
async fn drain(State(state): State<AdminState>) -> Answer<Draining> {
    Ok(Json(state.service.drain(By::Api, true).await?))
}

/// End the drain: accept everything again
#[utoipa::path(delete, path = "/drain", tag = "hub", responses(
    (status = 200, description = "It accepts everything", body = Draining), (status = "default", description = "A problem", body = Problem)))]
async fn end_drain(State(state): State<AdminState>) -> Answer<Draining> {
    Ok(Json(state.service.drain(By::Api, false).await?))
}

/// Which lines go to the log
#[utoipa::path(get, path = "/log", tag = "hub", responses(
    (status = 200, description = "The filter", body = LogLevel), (status = "default", description = "A problem", body = Problem)))]
async fn log_level(State(state): State<AdminState>) -> Answer<LogLevel> {
    Ok(Json(state.service.log_level()?))
}

/// Let other lines go to the log until the next start
#[utoipa::path(put, path = "/log", tag = "hub", request_body = LogLevel, responses(
    (status = 200, description = "The filter in force", body = LogLevel), (status = "default", description = "A problem", body = Problem)))]
async fn set_log_level(State(state): State<AdminState>, sent: Sent) -> Answer<LogLevel> {
    let level = understood(&sent.body, "{\"filter\": \"hub=debug\"}")?;
    Ok(Json(state.service.set_log_level(By::Api, &level).await?))
}

/// Everything that is stored about one subscription, except its secret
#[utoipa::path(get, path = "/subscriptions/{subscription}/export", tag = "subscriptions", params(("subscription" = u64, Path, description = "Its number")), responses(
    (status = 200, description = "All of it", body = Export), (status = "default", description = "A problem", body = Problem)))]
async fn export(State(state): State<AdminState>, Path(id): Path<String>) -> Answer<Export> {
    let id = id.parse().map_err(|_| Problem::new(StatusCode::NOT_FOUND, "no such subscription"))?;
    Ok(Json(state.service.export(By::Api, id).await?))
}

/// A callback, of which everything is asked for.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OfCallback {
    /// Its URL.
    callback: String,
}

/// Everything that is stored about one callback, except its secrets
#[utoipa::path(get, path = "/export", tag = "subscriptions", params(OfCallback), responses(
    (status = 200, description = "All of it", body = Export), (status = "default", description = "A problem", body = Problem)))]
async fn export_callback(State(state): State<AdminState>, Asked(of): Asked<OfCallback>) -> Answer<Export> {
    Ok(Json(state.service.export_callback(By::Api, &of.callback).await?))
}
