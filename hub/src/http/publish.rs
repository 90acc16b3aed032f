//! The publishers' half of the hub endpoint: posted content and pings.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT_ENCODING, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use resync_core::websub::{self, FormError, MAX_PARAMETERS, NotificationId, is_same_hub};
use tokio::time::timeout;

use super::body::{self, Bodies};
use super::meters::PublishMeters;
use super::notifications::Statuses;
use super::ping_limit::PingLimit;
use super::reply::{later, refuse, text, unavailable};
use crate::admin::Admission;
use crate::concurrency::{Client, ClientClass};
use crate::rate_limiter::{Refusal, network};
use crate::telemetry::{OpenSpan, SpanKind, TraceContext, Tracer};
use crate::topics::{Denied, Grant, Intake, Pings, PostHeader, Refused};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const REPRESENTATION: &str = "return=representation";
/// How long a publisher waits for the status; after that it gets 202.
const REPRESENTATION_TIMEOUT: Duration = Duration::from_secs(1);
/// Topics that one ping without a token may name. Some programs name all feeds of a site, each as `hub.url` and as `hub.topic` (C-05),
/// and do not look at the answer.
const NAMED_BY_STRANGERS: usize = 500;

/// What handles publishers' requests.
#[derive(Clone, Debug)]
pub struct PublishState {
    /// Posted content.
    pub intake: Intake,
    /// Pings.
    pub pings: Pings,
    /// Rate limits for pings without a token.
    pub ping_limit: PingLimit,
    /// Limits of bodies.
    pub bodies: Bodies,
    /// The status of accepted notifications.
    pub statuses: Statuses,
    /// The largest posted content, in bytes.
    pub max_body: usize,
    /// Metrics.
    pub meters: PublishMeters,
    /// Begins or continues the traces of publishers' requests.
    pub tracer: Tracer,
    /// The hub's own URL, as Sources and subscribers use it.
    pub hub_url: Arc<str>,
}

impl PublishState {
    /// How many topics a ping of this sender may name. Each costs a look whether anybody has subscribed to it, for which many count as
    /// further requests, and nothing more where nobody has.
    pub(super) fn most_named(&self, grant: Option<&Grant>) -> usize {
        if grant.is_none() && self.ping_limit.is_on() { NAMED_BY_STRANGERS } else { MAX_PARAMETERS }
    }

    /// Refuses a ping that names more than [`Self::most_named`].
    pub(super) fn refuse_ping(&self, error: &FormError) -> Response {
        let response = refuse(StatusCode::PAYLOAD_TOO_LARGE, error);
        self.meters.ping(response.status());
        response
    }

    /// Takes a ping, and counts its answer in the metrics.
    pub(super) async fn ping(
        &self,
        client: IpAddr,
        headers: &HeaderMap,
        grant: Option<Grant>,
        ping: websub::Publish,
    ) -> Response {
        let mut span = None;
        let taken = self.handle_ping(client, headers, grant, ping, &mut span).await;
        let response = taken.map_or_else(|refusal| refusal, |()| StatusCode::NO_CONTENT.into_response());
        self.meters.ping(response.status());
        answered(span, response.status());
        response
    }

    /// Takes posted content, and counts its answer in the metrics.
    pub(super) async fn content(
        &self,
        client: IpAddr,
        headers: &HeaderMap,
        body: Body,
        admission: Arc<Admission>,
    ) -> Response {
        let mut span = None;
        let response = match self.handle_content(headers, body, admission, &mut span).await {
            Ok((id, note)) => accepted(&self.statuses, client, id, &note, headers).await,
            Err(refusal) => refusal,
        };
        self.meters.post(response.status());
        answered(span, response.status());
        response
    }

    /// The span of a request whose sender may publish; the `traceparent` of others is ignored.
    fn begin(&self, headers: &HeaderMap, what: &'static str) -> OpenSpan {
        let mut span = self.tracer.begin(TraceContext::of(headers), "POST /websub/", SpanKind::Server);
        span.note("http.request.method", || "POST");
        span.note("http.route", || "/websub/");
        span.note("websub.publish", || what);
        span
    }

    /// A ping needs no token, since the hub fetches the topic itself. Without one it is limited (C-04, C-05), whatever the policy, and
    /// not traced if the policy requires tokens.
    async fn handle_ping(
        &self,
        client: IpAddr,
        headers: &HeaderMap,
        grant: Option<Grant>,
        ping: websub::Publish,
        span: &mut Option<OpenSpan>,
    ) -> Result<(), Response> {
        let (known, strange): (Vec<_>, Vec<_>) = ping
            .topics
            .into_iter()
            .partition(|topic| grant.as_ref().is_some_and(|grant| grant.covers(topic)));
        let fetched = async |topics| self.pings.fetched(topics).await.map_err(|error| unavailable(&error));
        let (known, strange) = (fetched(known).await?, fetched(strange).await?);
        self.ping_limit.admit(client, &strange, Instant::now()).map_err(too_many_pings)?;
        let open = self.intake.is_open();
        if open || !known.is_empty() {
            *span = Some(self.begin(headers, "ping"));
        }
        for (topics, class) in [(known, ClientClass::Trusted), (strange, ClientClass::Stranger)] {
            let client = Client { network: Some(network(client)), class };
            let traced = span.as_ref().filter(|_| open || class == ClientClass::Trusted);
            let trace = traced.and_then(OpenSpan::context);
            self.pings.accept_all(topics, client, trace).await.map_err(|error| unavailable(&error))?;
        }
        Ok(())
    }

    /// The accepted notification, and a note for its publisher. The sender is authorised before the body is read, so that strangers cost
    /// only a header.
    async fn handle_content(
        &self,
        headers: &HeaderMap,
        body: Body,
        admission: Arc<Admission>,
        span: &mut Option<OpenSpan>,
    ) -> Result<(NotificationId, String), Response> {
        let announced = self.intake.announce(headers).map_err(|refused| refuse_content(&refused))?;
        let mut opened = self.begin(headers, "content");
        opened.note("websub.topic", || announced.topic().as_str().to_owned());
        let note = other_hub(&announced, &self.hub_url);
        let read =
            body::read(headers, body, self.max_body, self.bodies.pace, self.bodies.posts.reserve()).await;
        let (body, room) = match read {
            Ok(read) => read,
            Err(unread) => {
                *span = Some(opened);
                return Err(unread.into_response());
            }
        };
        let (bytes, begun) = (body.len(), Instant::now());
        let intake = self.intake.clone();
        let post = async move {
            let posted = intake.post(announced, body, &opened).await;
            drop(room);
            (posted, opened)
        };
        let (posted, opened) = admission.complete(post).await;
        let span = span.insert(opened);
        let id = posted.map_err(|refused| refuse_content(&refused))?;
        span.note("websub.notification", || id.to_string());
        self.meters.stored(bytes, begun.elapsed());
        Ok((id, note))
    }
}

/// Ends the span of a publisher's request. Refusals are not exported, failures of the hub are.
fn answered(span: Option<OpenSpan>, status: StatusCode) {
    let Some(mut span) = span.filter(|_| !status.is_client_error()) else { return };
    span.note("http.response.status_code", || status.as_u16());
    if status.is_server_error() {
        span.fail(|| status.to_string());
    }
    span.end();
}

/// 202, or the status if it was asked for and is available. Either way the notification is accepted.
async fn accepted(
    statuses: &Statuses,
    client: IpAddr,
    id: NotificationId,
    note: &str,
    headers: &HeaderMap,
) -> Response {
    let status = async { timeout(REPRESENTATION_TIMEOUT, statuses.show(client, id)).await.ok() };
    let shown = if wants_representation(headers) { status.await } else { None };
    let mut response = match shown.filter(|shown| shown.status() == StatusCode::OK) {
        Some(mut shown) => {
            shown.headers_mut().insert(PREFERENCE_APPLIED, HeaderValue::from_static(REPRESENTATION));
            shown
        }
        None => text(StatusCode::ACCEPTED, format_args!("accepted as {id}{note}")),
    };
    // The hub's own URL with hexadecimal digits is a valid header value.
    if let Ok(location) = HeaderValue::try_from(statuses.url(id)) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Whether a publisher asks for 200 and the notification's status instead of 202 (RFC 7240, FN-035).
pub fn wants_representation(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split([',', ';']));
    preferences.any(|one| one.replace(['"', ' '], "").eq_ignore_ascii_case(REPRESENTATION))
}

fn too_many_pings(refusal: Refusal) -> Response {
    match refusal {
        Refusal::Later(wait) => {
            let why = "too many pings for this topic, this host or from this address: slow down, or ping with a token";
            later(StatusCode::TOO_MANY_REQUESTS, wait.as_secs() + 1, why)
        }
        Refusal::Never(most) => {
            let why = format_args!(
                "too many topics with subscribers in one ping: name at most {most} of them, or ping with a token"
            );
            refuse(StatusCode::PAYLOAD_TOO_LARGE, why)
        }
    }
}

fn refuse_content(refused: &Refused) -> Response {
    let status = match refused {
        Refused::Store(error) => return unavailable(error),
        Refused::Denied(denied) => return deny(denied),
        Refused::Coded(_) => return coded(refused),
        Refused::NoType | Refused::NotXml(_) | Refused::NotAPost(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Refused::Oversized(_) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Refused::KeyReused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::BAD_REQUEST,
    };
    refuse(status, refused)
}

/// 415 with the accepted codings (RFC 9110, 15.5.16).
fn coded(refused: &Refused) -> Response {
    let mut response = refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, refused);
    response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    response
}

/// A note for a Source that names only other hubs: its content is accepted, but subscribers will not find this hub.
fn other_hub(announced: &PostHeader, hub_url: &str) -> String {
    if announced.hubs().iter().any(|named| is_same_hub(named, hub_url)) {
        return String::new();
    }
    format!("\nnote: Link rel=\"hub\" does not name this hub, which is <{hub_url}>")
}

/// 401 without a valid token, else 403.
pub(super) fn deny(denied: &Denied) -> Response {
    match denied {
        Denied::NoToken => {
            let mut response = refuse(StatusCode::UNAUTHORIZED, denied);
            let challenge = HeaderValue::from_static("Bearer realm=\"hub\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            response
        }
        Denied::OtherTopics => refuse(StatusCode::FORBIDDEN, denied),
    }
}

#[cfg(test)]
mod tests {
    use resync_core::websub::Secret;

    use super::*;
    use crate::store::{self, Engine, Keyring};
    use crate::topics::Tickets;

    #[test]
    fn rfc7240_the_preference_is_found_however_it_is_written() {
        let wants = |value: &str| {
            wants_representation(&HeaderMap::from_iter([(PREFER, HeaderValue::try_from(value).unwrap())]))
        };
        assert!(wants("return=representation"));
        assert!(wants("respond-async, Return = \"representation\"; foo=1"));
        assert!(!wants("return=minimal"));
        assert!(!wants("handling=lenient"));
        assert!(!wants_representation(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn fn035_what_is_accepted_is_answered_202_even_if_its_status_cannot_be_shown() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let statuses =
            Statuses::new(store, Tickets::new(Secret::random()), "http://hub.example/websub/".into());
        // As if the log had let it go already.
        let id = NotificationId { topic: 7, offset: 1 };
        let client = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(statuses.show(client, id).await.status(), StatusCode::GONE);
        let headers = HeaderMap::from_iter([(PREFER, HeaderValue::from_static(REPRESENTATION))]);
        let answer = accepted(&statuses, client, id, "", &headers).await;
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
        assert!(
            answer.headers().contains_key(LOCATION) && !answer.headers().contains_key(PREFERENCE_APPLIED)
        );
    }
}
