//! The hub endpoint `/websub/`: subscription requests, pings and posted content, told apart by their type.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use resync_core::websub::{self, is_form};
use tokio::time::timeout;
use tracing::{debug, error};

use super::limits::RateLimit;
use super::reply::{later, method_not_allowed, text};
use crate::store::StoreError;
use crate::subscriptions::{NotAccepted, Requests};
use crate::topics::{Announced, Denied, Intake, Pings, Refused};

/// A form holds three URLs and a secret at most; everything beyond this is refused unread.
const FORM_LIMIT: usize = 64 * 1024;
/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// When a client should come back after the store refused a write.
const STORE_RETRY: u64 = 10;

/// What the endpoint hands requests over to.
#[derive(Clone, Debug)]
pub struct EndpointState {
    /// Subscribe and unsubscribe requests.
    pub requests: Requests,
    /// Pings.
    pub pings: Pings,
    /// Posted content.
    pub intake: Intake,
    /// Rate limits.
    pub limits: RateLimit,
    /// The largest posted content, in bytes.
    pub max_body: usize,
    /// The hub's own URL, as Sources and subscribers use it.
    pub hub_url: Arc<str>,
}

/// The public routes.
pub fn public(state: EndpointState) -> Router {
    Router::new()
        .route("/websub", any(endpoint))
        .route("/websub/", any(endpoint))
        .route("/", get(|state: State<EndpointState>| async move { about(&state.hub_url) }))
        .method_not_allowed_fallback(|| async { method_not_allowed("GET, HEAD") })
        .fallback(|| async { text(StatusCode::NOT_FOUND, "nothing here: the hub's endpoint is /websub/") })
        .with_state(state)
}

async fn endpoint(
    State(state): State<EndpointState>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    request: Request<Body>,
) -> Response {
    match *request.method() {
        Method::POST => post(&state, client, request).await,
        Method::GET | Method::HEAD => about(&state.hub_url),
        _ => method_not_allowed("GET, HEAD, POST"),
    }
}

async fn post(state: &EndpointState, client: SocketAddr, request: Request<Body>) -> Response {
    if let Err(wait) = state.limits.admit(client.ip(), Instant::now()) {
        let why = "too many requests from this address: slow down";
        return later(StatusCode::TOO_MANY_REQUESTS, wait.as_secs().max(1), why);
    }
    let (head, body) = request.into_parts();
    let form = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(is_form);
    let taken = if form {
        match read(&head.headers, body, FORM_LIMIT).await {
            Ok(body) => return take_form(state, &body).await,
            Err(refusal) => Err(refusal),
        }
    } else {
        take_content(state, &head.headers, body).await
    };
    taken.unwrap_or_else(|refusal| refusal)
}

async fn take_form(state: &EndpointState, body: &[u8]) -> Response {
    match websub::Request::parse(body) {
        Ok(websub::Request::Subscribe(request)) => accepted(state.requests.subscribe(request).await),
        Ok(websub::Request::Unsubscribe(request)) => accepted(state.requests.unsubscribe(request).await),
        Ok(websub::Request::Publish(ping)) => take_pings(state, ping).await,
        Err(error) => refuse(StatusCode::BAD_REQUEST, error),
    }
}

fn accepted(result: Result<(), NotAccepted>) -> Response {
    match result {
        Ok(()) => text(StatusCode::ACCEPTED, "accepted: the callback is asked for confirmation next"),
        Err(NotAccepted::Store(error)) => unavailable(&error),
        Err(error) => refuse(StatusCode::BAD_REQUEST, error),
    }
}

async fn take_pings(state: &EndpointState, ping: websub::Publish) -> Response {
    for topic in ping.topics {
        if let Err(error) = state.pings.accept(topic).await {
            return unavailable(&error);
        }
    }
    StatusCode::NO_CONTENT.into_response()
}

/// Who may speak is settled before the body is read: strangers cost a header each.
async fn take_content(state: &EndpointState, headers: &HeaderMap, body: Body) -> Result<Response, Response> {
    let announced = state.intake.announce(headers).map_err(|refused| refuse_content(&refused))?;
    let note = other_hub(&announced, &state.hub_url);
    let body = read(headers, body, state.max_body).await?;
    let id = state.intake.post(announced, body).await.map_err(|refused| refuse_content(&refused))?;
    Ok(text(StatusCode::ACCEPTED, format_args!("accepted as {id}{note}")))
}

fn refuse_content(refused: &Refused) -> Response {
    let status = match refused {
        Refused::Store(error) => return unavailable(error),
        Refused::Denied(denied) => return deny(denied),
        Refused::NoType | Refused::NotXml(_) | Refused::NotAForm(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Refused::KeyReused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::BAD_REQUEST,
    };
    refuse(status, refused)
}

/// A Source that names other hubs only is passed on as it is, but its subscribers will not find this hub: it should know.
fn other_hub(announced: &Announced, hub_url: &str) -> String {
    let same = |named: &String| named.trim_end_matches('/') == hub_url.trim_end_matches('/');
    if announced.hubs().iter().any(same) {
        return String::new();
    }
    format!("\nnote: Link rel=\"hub\" does not name this hub, which is <{hub_url}>")
}

fn deny(denied: &Denied) -> Response {
    match denied {
        Denied::NoToken => {
            let mut response = refuse(StatusCode::UNAUTHORIZED, denied);
            let challenge = HeaderValue::from_static("Bearer realm=\"hub\"");
            response.headers_mut().insert(http::header::WWW_AUTHENTICATE, challenge);
            response
        }
        Denied::OtherTopics => refuse(StatusCode::FORBIDDEN, denied),
    }
}

fn refuse(status: StatusCode, why: impl std::fmt::Display) -> Response {
    debug!(status = status.as_u16(), "request refused");
    text(status, why)
}

/// The store does not take writes: nothing was acknowledged, and the client can try again.
fn unavailable(error: &StoreError) -> Response {
    error!(%error, "request not accepted: it cannot be stored");
    later(StatusCode::SERVICE_UNAVAILABLE, STORE_RETRY, "the hub cannot store this now: try again")
}

async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Response> {
    let too_large =
        || refuse(StatusCode::PAYLOAD_TOO_LARGE, format_args!("the body is larger than {limit} bytes"));
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    match timeout(BODY_TIMEOUT, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(refuse(StatusCode::BAD_REQUEST, "the body ended before it was complete")),
        Err(_) => {
            Err(refuse(StatusCode::REQUEST_TIMEOUT, format_args!("no complete body within {BODY_TIMEOUT:?}")))
        }
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
             Ping         POST hub.mode=publish&hub.url=… and the hub fetches the topic",
            form = websub::FORM_CONTENT_TYPE
        ),
    )
}
