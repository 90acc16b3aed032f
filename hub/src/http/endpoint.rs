//! The hub endpoint `/websub/`: subscription requests, pings and posted content, distinguished by media type.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use resync_core::websub::{self, CallbackUrl, FormError, TopicUrl, is_form};
use url::Url;

use super::endpoint_state::EndpointState;
use super::reply::{later, method_not_allowed, refuse, text, too_many, unavailable};
use super::self_service::{self, SelfService};
use super::ticket_query::TicketQuery;
use super::{body, catch_up};
use crate::subscriptions::{Full, NotAccepted, Requester};

/// The longest form. It has three URLs and a secret at most.
const FORM_LIMIT: usize = 64 * 1024;
/// A hint for those who take another URL of the hub for the one to write to.
const WHERE: &str = ": the hub's endpoint is /websub/";
/// A note for a client that sends a secret to a hub without TLS (D-06).
const OVERHEARD: &str = "\nnote: this hub is reached by plain http; others may read hub.secret on its way";
/// `Retry-After` while too many requests wait for verification.
const BUSY_RETRY: u64 = 10;
/// `Retry-After` while the hub is drained, in seconds.
const DRAIN_RETRY: u64 = 30;

/// The public routes; `own` has the pages for subscribers.
pub fn public(state: Arc<EndpointState>, own: SelfService) -> Router {
    Router::new()
        .route("/websub", any(endpoint))
        .route("/websub/", any(endpoint))
        .route("/websub/notifications", get(catch_up::read))
        .route("/websub/notifications.xml", get(catch_up::read))
        .route("/websub/notifications/{id}", get(notification_status))
        .route("/", get(|state: State<Arc<EndpointState>>| async move { about(&state.hub_url) }))
        .method_not_allowed_fallback(|| async { method_not_allowed("GET, HEAD", WHERE) })
        .fallback(|| async { text(StatusCode::NOT_FOUND, format_args!("no such path{WHERE}")) })
        .with_state(state)
        .merge(self_service::routes(own))
}

async fn endpoint(
    State(state): State<Arc<EndpointState>>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    request: Request<Body>,
) -> Response {
    match *request.method() {
        // In a box: on its way through the router a handler's future is copied several times, whatever it holds room for.
        Method::POST => Box::pin(post(state, client, request)).await.into_response(),
        Method::GET | Method::HEAD => about(&state.hub_url),
        _ => method_not_allowed("GET, HEAD, POST", ""),
    }
}

async fn post(
    state: Arc<EndpointState>,
    peer: SocketAddr,
    request: Request<Body>,
) -> Result<Response, Response> {
    let Some(admission) = state.drain.admit() else {
        let why =
            "this hub is about to stop and accepts nothing new: send the same request again in a moment";
        return Err(later(StatusCode::SERVICE_UNAVAILABLE, DRAIN_RETRY, why));
    };
    let client = state.client(peer, request.headers()).map_err(too_many)?;
    let (head, body) = request.into_parts();
    let form = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(is_form);
    if !form {
        return Ok(state.publish.content(client, &head.headers, body, admission).await);
    }
    let bodies = &state.publish.bodies;
    let read = body::read(&head.headers, body, FORM_LIMIT, bodies.pace, bodies.forms.reserve(client)).await;
    let (body, room) = read.map_err(IntoResponse::into_response)?;
    let handling = async move {
        let answer = state.forms.during(handle_form(&state, client, &head.headers, &body)).await;
        drop(room);
        answer
    };
    admission.complete(handling).await
}

async fn handle_form(
    state: &EndpointState,
    client: IpAddr,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Response> {
    let grant = state.publish.intake.grant(headers);
    match websub::Request::parse_within(body, state.publish.most_named(grant.as_ref())) {
        Ok(websub::Request::Subscribe(request)) => {
            if let Some(hub) = &state.moved_to {
                return Ok(moved(hub));
            }
            let who = within_limits(state, client, &request.topic, &request.callback).await?;
            let overheard = request.secret.is_some() && state.hub_url.starts_with("http:");
            let note = if overheard { OVERHEARD } else { "" };
            Ok(accepted(state.requests.subscribe(who, request).await, note))
        }
        Ok(websub::Request::Unsubscribe(request)) => {
            let who = within_limits(state, client, &request.topic, &request.callback).await?;
            Ok(accepted(state.requests.unsubscribe(who, request).await, ""))
        }
        Ok(websub::Request::Publish(ping)) => {
            if grant.is_none() {
                state.limits.named(client, ping.topics.len(), Instant::now());
            }
            Ok(state.publish.ping(client, headers, grant, ping).await)
        }
        Err(error @ FormError::TooManyTopics { .. }) => Err(state.publish.refuse_ping(&error)),
        Err(error) => Err(refuse(StatusCode::BAD_REQUEST, error)),
    }
}

/// Applies the rate limits, since every accepted request makes the hub ask a callback.
async fn within_limits(
    state: &EndpointState,
    client: IpAddr,
    topic: &TopicUrl,
    callback: &CallbackUrl,
) -> Result<Requester, Response> {
    let who = state.requests.requester(client, topic, callback).await;
    let who = who.map_err(|error| unavailable(&error))?;
    state.limits.subscription(who, topic, callback, Instant::now()).map_err(too_many)?;
    Ok(who)
}

/// `GET /websub/notifications/ID?ticket=…`. Without the ticket the answer does not show whether the notification exists.
async fn notification_status(
    State(state): State<Arc<EndpointState>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(id): Path<String>,
    Query(TicketQuery { ticket }): Query<TicketQuery>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let client = state.client(peer, &headers).map_err(too_many)?;
    let statuses = &state.publish.statuses;
    match id.parse() {
        Ok(id) if statuses.admits(&ticket, id) => Ok(statuses.show(client, id).await),
        Ok(_) | Err(_) => Err(refuse(
            StatusCode::NOT_FOUND,
            "no such notification, or a wrong ticket: use the Location of the hub's answer to the post",
        )),
    }
}

/// Subscriptions here are served until they end, so only new ones are redirected (W-091, W-092).
fn moved(hub: &Url) -> Response {
    let why = format_args!("this hub has moved: send the same request to {hub}");
    let mut response = text(StatusCode::PERMANENT_REDIRECT, why);
    if let Ok(location) = HeaderValue::try_from(hub.as_str()) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn accepted(result: Result<(), NotAccepted>, note: &str) -> Response {
    match result {
        Ok(()) => {
            let next = format_args!("accepted: the hub will now verify the callback{note}");
            text(StatusCode::ACCEPTED, next)
        }
        Err(NotAccepted::Store(error)) => unavailable(&error),
        Err(error @ NotAccepted::BreakerOpen { wait }) => {
            later(StatusCode::TOO_MANY_REQUESTS, wait.as_secs().max(1), error)
        }
        Err(NotAccepted::Full(full)) => {
            let status = match full {
                Full::Client(_) => StatusCode::TOO_MANY_REQUESTS,
                Full::Hub(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            later(status, full.wait().as_secs(), full)
        }
        Err(error @ NotAccepted::Busy) => later(StatusCode::SERVICE_UNAVAILABLE, BUSY_RETRY, error),
        Err(error) => refuse(StatusCode::BAD_REQUEST, error),
    }
}

fn about(hub_url: &str) -> Response {
    text(
        StatusCode::OK,
        format_args!(
            "This is a WebSub hub for ResourceSync: {hub_url}\n\n\
             Subscribe    POST hub.mode=subscribe&hub.topic=…&hub.callback=… as {form}\n\
             Unsubscribe  POST hub.mode=unsubscribe&hub.topic=…&hub.callback=…\n\
             Publish      POST the notification itself with Content-Type and Link: <topic>; rel=\"self\", <{hub_url}>; rel=\"hub\"\n\
             Ping         POST hub.mode=publish&hub.url=… and the hub fetches the topic\n\
             Catch up     GET {hub_url}notifications?topic=…&after=OFFSET, or notifications.xml for a Change List\n\n\
             Why does nothing arrive? {hub_url}subscriptions",
            form = websub::FORM_CONTENT_TYPE
        ),
    )
}
