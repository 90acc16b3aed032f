//! A page for one subscriber: why does nothing arrive?
//!
//! It opens by its unguessable address, or by the subscription's secret. Either is exchanged for a cookie (a visit), so that what opens
//! the page for ever does not stay in the browser's address bar. The hub contacts nobody for it, except by its button for a test
//! delivery. It has no scripts, and what strangers chose is text.

mod page;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use bytes::Bytes;
use http::header::{RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use resync_core::websub::{CallbackUrl, TopicUrl};
use url::{Url, form_urlencoded};

use super::body::{self, Bodies};
use super::client::TrustedProxies;
use super::cookies::cookie;
use super::endpoint_state::EndpointState;
use super::layout;
use super::limits::{Limits, TooMany};
use super::page_headers::page_headers;
use super::same_site::is_from_here;
use super::search_queue::{NotGranted, SearchQueue};
use super::ticket_query::TicketQuery;
use crate::admin::{AdminService, Failed, PageId, TestResult, Tested};
use crate::config::Rate;
use crate::rate_limiter::{SharedRateLimiter, network};
use crate::topics::Reservation;

/// The longest form: two URLs and a secret.
const FORM_LIMIT: usize = 16 * 1024;
/// The cookie of a visit.
const VISIT: &str = "resync-page";
/// The rate at which one client may try secrets for one callback; all clients together five times as often.
const TRIES: Rate = Rate { per_second: 0.1, burst: 10 };
/// `Retry-After` while the store does not work, in seconds.
const STORE_RETRY: u64 = 10;
/// How long a request waits for its turn, and `Retry-After`.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
const TURN_RETRY: u64 = 5;

const ROBOTS: HeaderName = HeaderName::from_static("x-robots-tag");
/// Pages load only from this hub, send nothing elsewhere, and cannot be framed.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The state of the pages.
#[derive(Clone, Debug)]
pub struct SelfService {
    service: AdminService,
    limits: Limits,
    proxies: TrustedProxies,
    bodies: Bodies,
    /// The path below which this hub is reached.
    base: Arc<str>,
    /// The origin at which it is reached.
    origin: Arc<str>,
    /// The pages are reached without TLS.
    overheard: bool,
    tries: SharedRateLimiter,
    searches: SearchQueue,
}

impl SelfService {
    /// Pages with the endpoint's limits, below its URL. Trying secrets is always limited, also with `limits.enabled = false`.
    pub fn new(service: AdminService, endpoint: &EndpointState) -> Self {
        let hub_url = &endpoint.hub_url;
        let url = Url::parse(hub_url).ok();
        let base = url.as_ref().map_or("/websub/", |url| url.path());
        let origin = url.as_ref().map_or_else(String::new, |url| url.origin().ascii_serialization());
        Self {
            service,
            limits: endpoint.limits.clone(),
            proxies: endpoint.proxies.clone(),
            bodies: endpoint.publish.bodies.clone(),
            base: base.into(),
            origin: origin.into(),
            overheard: hub_url.starts_with("http:"),
            tries: SharedRateLimiter::new(true, TRIES),
            searches: SearchQueue::new(),
        }
    }
}

/// The routes, below the hub's endpoint.
pub(super) fn routes(state: SelfService) -> Router {
    Router::new()
        .route("/websub/subscriptions", get(ask).post(open))
        .route("/websub/subscriptions/{page}", get(show).post(test))
        .route(&format!("/websub/{}", page::STYLE), get(layout::style))
        .route(&format!("/websub/{}", page::ICON), get(layout::icon))
        .with_state(state)
        .layer(map_response(guarded))
}

async fn guarded(mut answer: Response) -> Response {
    // The address of a page opens it: it must not be in a referrer or a cache.
    page_headers(&mut answer, POLICY, "no-referrer");
    answer.headers_mut().insert(ROBOTS, HeaderValue::from_static("noindex, nofollow"));
    answer
}

async fn ask(State(state): State<SelfService>) -> Response {
    page::login(StatusCode::OK, &state.base, state.overheard, None)
}

/// `GET /websub/subscriptions/ID?ticket=…`, or without the ticket during a visit. For others the answer does not show whether the
/// subscription exists.
async fn show(
    State(state): State<SelfService>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(id): Path<String>,
    Query(TicketQuery { ticket }): Query<TicketQuery>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let id = id.parse::<PageId>();
    // Nobody should wait with the ticket in the browser's address bar.
    if let Ok(id) = id
        && !ticket.is_empty()
        && state.service.admits(&ticket, id)
    {
        return Ok(state.let_in(id));
    }
    let client = state.client(peer, &headers).map_err(|early| state.too_many(early))?;
    match (id, cookie(&headers, VISIT)) {
        (Ok(id), Some(visit)) if ticket.is_empty() && state.service.is_visit(visit, id) => {
            Ok(state.view(id, client, visit, None).await)
        }
        (Ok(_) | Err(()), _) => Err(page::unknown(&state.base)),
    }
}

/// `POST /websub/subscriptions/ID` during a visit: sends a test delivery, and shows the page with what came of it.
async fn test(
    State(state): State<SelfService>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Response, Response> {
    let (head, body) = request.into_parts();
    let client = state.client(peer, &head.headers).map_err(|early| state.too_many(early))?;
    let visit = cookie(&head.headers, VISIT);
    let (Ok(id), Some(visit)) = (id.parse::<PageId>(), visit) else { return Err(page::unknown(&state.base)) };
    if !state.service.is_visit(visit, id) {
        return Err(page::unknown(&state.base));
    }
    let (body, _room) = state.read_form(client, &head.headers, body).await?;
    let token = form_urlencoded::parse(&body).find(|(name, _)| name == page::CSRF_FIELD);
    let is_own = is_from_here(&head.headers, Some(&state.origin))
        && token.is_some_and(|(_, token)| state.service.is_form_word(&token, visit));
    if !is_own {
        return Err(page::foreign(&state.base));
    }
    match state.service.test_delivery(id).await.map_err(|error| state.unavailable(&error))? {
        Tested::Sent(result) => Ok(state.view(id, client, visit, Some(&result)).await),
        Tested::TooMany(wait) => {
            let why = "Too many test deliveries were sent to this callback.";
            Err(state.later(StatusCode::TOO_MANY_REQUESTS, wait.as_secs() + 1, why))
        }
        Tested::Busy(wait) => {
            let why = "The hub has too many test deliveries under way now.";
            Err(state.later(StatusCode::SERVICE_UNAVAILABLE, wait.as_secs(), why))
        }
        Tested::Over => Err(page::over(&state.base)),
    }
}

/// The form: topic, callback and secret lead to the page.
async fn open(
    State(state): State<SelfService>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request<Body>,
) -> Result<Response, Response> {
    let (head, body) = request.into_parts();
    let client = state.client(peer, &head.headers).map_err(|early| state.too_many(early))?;
    let (body, _room) = state.read_form(client, &head.headers, body).await?;
    let fields: Vec<_> = form_urlencoded::parse(&body).collect();
    let field = |wanted| fields.iter().find(|(name, _)| name == wanted).map_or("", |(_, value)| value);
    let (Ok(topic), Ok(callback)) =
        (field("topic").trim().parse::<TopicUrl>(), field("callback").trim().parse::<CallbackUrl>())
    else {
        return Err(page::login(StatusCode::BAD_REQUEST, &state.base, state.overheard, Some(page::NO_URLS)));
    };
    let pair = (topic.key(), callback.key());
    if let Err(wait) = state.tries.admit(Some(network(client)), pair, Instant::now()) {
        let why = "Too many secrets were tried for this callback.";
        return Err(state.later(StatusCode::TOO_MANY_REQUESTS, wait.as_secs() + 1, why));
    }
    let found = state.service.page_by_secret(&topic, &callback, field("secret")).await;
    let id = found.map_err(|error| state.unavailable(&error))?.ok_or_else(|| {
        page::login(StatusCode::FORBIDDEN, &state.base, state.overheard, Some(page::NO_MATCH))
    })?;
    Ok(state.let_in(id))
}

impl SelfService {
    /// Who asks, within the rate limit of its address.
    fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> Result<IpAddr, TooMany> {
        let client = self.proxies.client(peer.ip(), headers);
        self.limits.client(client, Instant::now()).map(|()| client)
    }

    /// The body of a form, with the memory that is reserved for it.
    async fn read_form(
        &self,
        client: IpAddr,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Bytes, Reservation), Response> {
        let read =
            body::read(headers, body, FORM_LIMIT, self.bodies.pace, self.bodies.forms.reserve(client)).await;
        read.map_err(IntoResponse::into_response)
    }

    /// Begins a visit.
    fn let_in(&self, id: PageId) -> Response {
        let to = format!("{}subscriptions/{id}", self.base);
        // Links on other sites lead here, and a stricter cookie would not be sent after the redirect.
        let secure = if self.overheard { "" } else { "; Secure" };
        let (visit, lasting) = self.service.begin_visit(id);
        let cookie = format!(
            "{VISIT}={visit}; Path={to}; HttpOnly; SameSite=Lax; Max-Age={}{secure}",
            lasting.as_secs()
        );
        let mut answer = Redirect::to(&to).into_response();
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            answer.headers_mut().insert(SET_COOKIE, cookie);
        }
        answer
    }

    async fn view(&self, id: PageId, client: IpAddr, visit: &str, tested: Option<&TestResult>) -> Response {
        let service = self.service.clone();
        match self.searches.during(client, TURN_TIMEOUT, async move { service.own_view(id).await }).await {
            Ok(Ok(Some(view))) => page::view(&self.base, id, &self.service.form_word(visit), &view, tested),
            Ok(Ok(None)) => page::over(&self.base),
            Ok(Err(error)) => self.unavailable(&error),
            Err(NotGranted::TooMany | NotGranted::TimedOut) => {
                let why = "Too many pages are being read now.";
                self.later(StatusCode::SERVICE_UNAVAILABLE, TURN_RETRY, why)
            }
        }
    }

    fn unavailable(&self, error: &Failed) -> Response {
        tracing::debug!(%error, "no status page");
        let why = "The hub cannot use its store now.";
        self.later(StatusCode::SERVICE_UNAVAILABLE, STORE_RETRY, why)
    }

    fn too_many(&self, early: TooMany) -> Response {
        let why = "Too many requests came from this address.";
        self.later(StatusCode::TOO_MANY_REQUESTS, early.seconds(), why)
    }

    fn later(&self, status: StatusCode, seconds: u64, why: &str) -> Response {
        let mut answer = page::later(status, &self.base, seconds, why);
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        answer
    }
}
