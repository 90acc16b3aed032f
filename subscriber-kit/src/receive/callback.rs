//! The callback that hubs send requests to, as a [`tower_service::Service`] that axum and hyper mount.
//!
//! A GET is a verification of intent or a denial, a POST a delivery. Each subscription has its own unguessable last path
//! segment, so one callback, mounted under any prefix, serves all of them.
//!
//! # In axum
//! ```
//! use resync_subscriber_kit::receive::{Callback, CallbackOptions};
//! use resync_subscriber_kit::state::Subscriptions;
//!
//! let (callback, _deliveries) = Callback::new(&Subscriptions::in_memory(), CallbackOptions::default());
//! let app: axum::Router = axum::Router::new().nest_service("/resync", callback);
//! ```
//!
//! # In hyper
//! ```
//! use hyper_util::service::TowerToHyperService;
//! use resync_subscriber_kit::receive::{Callback, CallbackOptions};
//! use resync_subscriber_kit::state::Subscriptions;
//!
//! async fn serve(stream: tokio::net::TcpStream, callback: Callback) -> Result<(), hyper::Error> {
//!     let service = TowerToHyperService::new(callback);
//!     let io = hyper_util::rt::TokioIo::new(stream);
//!     hyper::server::conn::http1::Builder::new().serve_connection(io, service).await
//! }
//! # let (callback, _deliveries) = Callback::new(&Subscriptions::in_memory(), CallbackOptions::default());
//! # let _ = |stream| serve(stream, callback);
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, LINK, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use resync_common::words::Size;
use resync_core::datetime::DateTime;
use resync_core::websub::identity::{NotificationId, WEBHOOK_ID, WEBHOOK_TEST};
use resync_core::websub::key::TopicUrl;
use resync_core::websub::link_header::LinkHeader;
use resync_core::websub::query_signature::{X_HUB_QUERY_SIGNATURE, is_query_signed};
use resync_core::websub::secret::Secret;
use resync_core::websub::signature::{SignatureError, SignedBody, X_HUB_SIGNATURE};
use resync_core::websub::verification::Verification;
use tokio::time::Instant;

use super::inbox::{Deliveries, NotAccepted, Queue, Received, accept};
use super::incoming_bytes::{IncomingBytes, Reservation};
use crate::state::{Subscriptions, VerificationAnswer};

/// The answer to a delivery whose signature is missing or wrong. It is never handed over (W-171).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadSignature {
    /// 403, so that the operator of a hub with a wrong key notices.
    #[default]
    Refuse,
    /// 202 as for any other, so that nobody learns from guessing (W-172).
    AcceptAndIgnore,
}

/// Options of a [`Callback`].
#[derive(Clone, Debug)]
pub struct CallbackOptions {
    /// The largest accepted body, in bytes; more is 413.
    pub max_body: usize,
    /// How long a body may take, in addition to the time that [`min_rate`](Self::min_rate) gives it; longer is 408.
    pub body_timeout: Duration,
    /// For how many bytes a body gets another second.
    pub min_rate: u64,
    /// How many notifications may wait for the receiver; more are 503, and the hub tries again.
    pub capacity: usize,
    /// How many bytes of notifications may wait, and how many may be arriving, a quarter of them for one subscription; more
    /// are 503 too.
    pub max_waiting_bytes: u64,
    /// The `Retry-After` of that 503.
    pub retry_after: Duration,
    /// The answer to a bad signature.
    pub bad_signature: BadSignature,
}

impl Default for CallbackOptions {
    fn default() -> Self {
        Self {
            max_body: 1024 * 1024,
            body_timeout: Duration::from_secs(10),
            min_rate: 8 * 1024,
            capacity: 64,
            max_waiting_bytes: 64 * 1024 * 1024,
            retry_after: Duration::from_secs(5),
            bad_signature: BadSignature::default(),
        }
    }
}

impl CallbackOptions {
    /// Accepts bodies of up to `max_body` bytes, of which at least four may wait.
    #[must_use]
    pub fn with_max_body(self, max_body: usize) -> Self {
        let max_waiting_bytes = self.max_waiting_bytes.max((max_body as u64).saturating_mul(4));
        Self { max_body, max_waiting_bytes, ..self }
    }
}

/// The handler for a hub's requests. Cheap to clone; clones share everything.
///
/// | request | answer |
/// |---|---|
/// | GET for a pending request | 200 with the challenge as `application/octet-stream` (W-116, W-187, W-188) |
/// | GET for an active subscription, signed with its secret (`X-Hub-Query-Signature`) | 200 with the challenge; nothing changes (W-065) |
/// | GET with `hub.mode=denied` | 200, the subscription is denied from then on |
/// | any other GET | 404 (W-117) |
/// | POST with a good signature | 204 once it is durable; handed over unless it is a repetition |
/// | POST with a good signature and `webhook-test` | 204; it is a test that somebody asked for at the hub, and handed over to nobody |
/// | POST with a bad or no signature | 403 or 202, see [`BadSignature`] |
/// | POST while too many wait, or if it cannot be made durable | 503 with `Retry-After` |
/// | POST after the subscription was ended | 410 (W-150) |
/// | another path | 404 |
/// | another method | 405 with `Allow` |
#[derive(Clone, Debug)]
pub struct Callback {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    subscriptions: Subscriptions,
    queue: Queue,
    incoming: IncomingBytes,
    options: CallbackOptions,
}

type Answer = Response<Full<Bytes>>;

impl Callback {
    /// A callback for these subscriptions, and the receiver of its notifications. Those that an earlier run did not handle come
    /// first.
    #[must_use]
    pub fn new(subscriptions: &Subscriptions, options: CallbackOptions) -> (Self, Deliveries) {
        let (queue, deliveries) = Deliveries::new(subscriptions, options.capacity.max(1));
        let incoming = IncomingBytes::new(options.max_waiting_bytes);
        let shared = Shared { subscriptions: subscriptions.clone(), queue, incoming, options };
        (Self { shared: Arc::new(shared) }, deliveries)
    }

    /// Whether the path belongs to one of its subscriptions.
    pub(super) fn serves(&self, path: &str) -> bool {
        self.shared.subscriptions.with(token(path), |_| ()).is_some()
    }
}

/// The unguessable last segment of a path.
fn token(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

impl<B> tower_service::Service<Request<B>> for Callback
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { Ok(shared.handle(request).await) })
    }
}

/// A body that arrives in pieces.
trait RequestBody: http_body::Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send {}

impl<B: http_body::Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send> RequestBody for B {}

/// What a delivery needs from its subscription.
struct Recipient {
    topic: TopicUrl,
    /// Several while a secret is being replaced.
    secrets: Vec<Secret>,
    ended: bool,
}

/// Why a delivery is refused.
enum Refusal {
    UnknownPath,
    Ended,
    TooLarge,
    CutOff,
    TooSlow,
    BadSignature(SignatureError),
    NotAccepted(NotAccepted),
}

impl Shared {
    async fn handle<B: RequestBody>(&self, request: Request<B>) -> Answer {
        let (parts, body) = request.into_parts();
        let token = token(parts.uri.path());
        match parts.method {
            Method::GET => {
                let query = parts.uri.query().unwrap_or_default();
                self.verify(token, query, parts.headers.get(X_HUB_QUERY_SIGNATURE)).await
            }
            Method::POST => match self.deliver(token, &parts.headers, body).await {
                Ok(()) => self.accepted(),
                Err(refusal) => self.refuse(&refusal),
            },
            _ => {
                let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "a callback answers GET and POST");
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST"));
                answer
            }
        }
    }

    async fn verify(&self, token: &str, query: &str, signature: Option<&HeaderValue>) -> Answer {
        let Ok(verification) = Verification::parse(query) else { return not_found() };
        // A signed verification is about the active subscription, and confirms no pending request.
        if let Some(signature) = signature {
            let is_signed = |secrets: &[Secret]| {
                signature.to_str().is_ok_and(|header| is_query_signed(header, secrets, query))
            };
            let challenge = self.subscriptions.reverify(token, &verification, is_signed);
            return challenge.map_or_else(not_found, echo);
        }
        match self.subscriptions.verify(token, verification).await {
            Ok(VerificationAnswer::Echo(challenge)) => echo(challenge),
            Ok(VerificationAnswer::Denied) => {
                tracing::warn!("the hub denied a subscription");
                plain(StatusCode::OK, "recorded")
            }
            Ok(VerificationAnswer::NotPending) => not_found(),
            Err(error) => {
                tracing::error!(%error, "cannot save a verification, so it is not answered");
                plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot save the state")
            }
        }
    }

    /// Checks a delivery, the cheapest check first, and hands it to the inbox.
    async fn deliver<B: RequestBody>(
        &self,
        token: &str,
        headers: &HeaderMap,
        body: B,
    ) -> Result<(), Refusal> {
        let recipient = self.recipient(token).ok_or(Refusal::UnknownPath)?;
        if recipient.ended {
            return Err(Refusal::Ended);
        }
        let mut reservation = self.incoming.begin(token);
        let body = self.read(&recipient.topic, headers, body, &mut reservation).await?;
        let body = signed(headers, &recipient.secrets, &body).map_err(Refusal::BadSignature)?;
        if headers.contains_key(WEBHOOK_TEST) {
            tracing::info!(topic = recipient.topic.as_str(), "a test delivery of the hub has arrived");
            return Ok(());
        }
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let received = Received {
            id: text(WEBHOOK_ID).and_then(|id| id.parse::<NotificationId>().ok()),
            topic: recipient.topic,
            content_type: text(CONTENT_TYPE.as_str()).map(str::to_owned),
            links: LinkHeader::parse(headers.get_all(LINK).iter().map(HeaderValue::as_bytes)),
            body,
        };
        let max_waiting = self.options.max_waiting_bytes;
        let accepted = accept(&self.subscriptions, token, received, &self.queue, max_waiting).await;
        accepted.map_err(Refusal::NotAccepted)
    }

    fn recipient(&self, token: &str) -> Option<Recipient> {
        let now = DateTime::now().unix_millis();
        self.subscriptions.with(token, |record| Recipient {
            topic: record.topic.clone(),
            secrets: record.secrets(now),
            ended: record.ended,
        })
    }

    async fn read<B: RequestBody>(
        &self,
        topic: &TopicUrl,
        headers: &HeaderMap,
        body: B,
        reservation: &mut Reservation<'_>,
    ) -> Result<Bytes, Refusal> {
        let max = self.options.max_body;
        let announced =
            headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let too_large = || {
            tracing::warn!(
                topic = topic.as_str(),
                length = announced,
                max,
                "refused a notification that is too large"
            );
            Err(Refusal::TooLarge)
        };
        if announced.is_some_and(|length| length > max as u64) {
            return too_large();
        }
        let begun = Instant::now();
        let mut body = pin!(Limited::new(body, max));
        let mut bytes = BytesMut::new();
        loop {
            match tokio::time::timeout_at(begun + self.allowed_time(bytes.len()), body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    // Trailers say nothing here.
                    if let Ok(data) = frame.into_data() {
                        if !reservation.reserve(data.remaining()) {
                            return Err(Refusal::NotAccepted(NotAccepted::Full));
                        }
                        bytes.put(data);
                    }
                }
                Ok(Some(Err(error))) if error.is::<LengthLimitError>() => return too_large(),
                Ok(Some(Err(_))) => return Err(Refusal::CutOff),
                Ok(None) => return Ok(bytes.freeze()),
                Err(_elapsed) => return Err(Refusal::TooSlow),
            }
        }
    }

    /// How long a body may take of which `received` bytes arrived.
    fn allowed_time(&self, received: usize) -> Duration {
        let earned = (received as u64).saturating_mul(1000) / self.options.min_rate.max(1);
        self.options.body_timeout + Duration::from_millis(earned)
    }

    fn accepted(&self) -> Answer {
        empty(match self.options.bad_signature {
            BadSignature::Refuse => StatusCode::NO_CONTENT,
            BadSignature::AcceptAndIgnore => StatusCode::ACCEPTED,
        })
    }

    fn refuse(&self, refusal: &Refusal) -> Answer {
        match refusal {
            Refusal::UnknownPath => not_found(),
            Refusal::Ended => plain(StatusCode::GONE, "this subscription was ended"),
            Refusal::TooLarge => {
                let text = format!("the limit is {}", Size(self.options.max_body as u64));
                plain(StatusCode::PAYLOAD_TOO_LARGE, &text)
            }
            Refusal::CutOff => plain(StatusCode::BAD_REQUEST, "the body ended too early"),
            Refusal::TooSlow => plain(StatusCode::REQUEST_TIMEOUT, "the body arrives too slowly"),
            Refusal::BadSignature(error) => self.ignore(error),
            Refusal::NotAccepted(why) => self.unavailable(match why {
                NotAccepted::Full => "too many notifications wait here",
                NotAccepted::Closed => "this Destination is shutting down",
                NotAccepted::InProgress => "another attempt of this delivery is in progress",
                NotAccepted::NotSaved => "cannot store the notification",
                NotAccepted::BeingForgotten => "this subscription is being forgotten",
            }),
        }
    }

    fn ignore(&self, error: &SignatureError) -> Answer {
        tracing::warn!(%error, "rejected a delivery without a valid signature");
        match self.options.bad_signature {
            BadSignature::Refuse => {
                plain(StatusCode::FORBIDDEN, &format!("the signature is not valid for this body: {error}"))
            }
            BadSignature::AcceptAndIgnore => self.accepted(),
        }
    }

    fn unavailable(&self, why: &str) -> Answer {
        tracing::warn!(why, "refused a delivery for now");
        let mut answer = plain(StatusCode::SERVICE_UNAVAILABLE, why);
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(self.options.retry_after.as_secs()));
        answer
    }
}

/// The body, if one of the signatures proves it (W-193): a sender may use several methods or keys.
fn signed(headers: &HeaderMap, secrets: &[Secret], body: &[u8]) -> Result<SignedBody, SignatureError> {
    let signatures = headers.get_all(X_HUB_SIGNATURE).iter().map(|value| value.to_str().ok());
    let mut refused = SignatureError::Missing;
    for signature in signatures {
        match SignedBody::check(signature, secrets, body) {
            Ok(signed) => return Ok(signed),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// In a type that no browser runs, without sniffing (W-118, W-187, W-188).
fn echo(challenge: String) -> Answer {
    with_body(StatusCode::OK, "application/octet-stream", challenge.into())
}

fn not_found() -> Answer {
    plain(StatusCode::NOT_FOUND, "nothing here")
}

fn plain(status: StatusCode, text: &str) -> Answer {
    with_body(status, "text/plain; charset=utf-8", Bytes::from(format!("{text}\n")))
}

fn with_body(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::new()));
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use resync_core::websub::signature::{SignatureMethod, SigningKey};
    use tower_service::Service as _;

    /// What is answered to a body of so many pieces, of ten bytes each, with a second before each.
    async fn answer_to(pieces: usize) -> StatusCode {
        let subscriptions = Subscriptions::in_memory();
        let topic = TopicUrl::parse("http://source.example/topic").unwrap();
        let id = subscriptions.add(&topic, &"http://hub.example/".parse().unwrap()).await.unwrap();
        let secret = subscriptions.with(&id.0, |record| record.secret.clone()).unwrap();
        let body = vec![b'x'; 10 * pieces];
        let signature = SigningKey::new(SignatureMethod::Sha256, &secret).sign(&body).to_string();
        let slowly = stream::unfold(pieces, |left| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let piece = Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"xxxxxxxxxx")));
            (left > 0).then(|| (piece, left - 1))
        });
        let request = Request::post(format!("/{}", id.0)).header(X_HUB_SIGNATURE, signature);
        // Ten bytes are half the time that ten bytes take.
        let options = CallbackOptions {
            body_timeout: Duration::from_secs(5),
            min_rate: 20,
            ..CallbackOptions::default()
        };
        let (mut callback, _deliveries) = Callback::new(&subscriptions, options);
        callback.call(request.body(StreamBody::new(slowly)).unwrap()).await.unwrap().status()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_taken_as_long_as_it_comes_fast_enough_and_not_for_a_fixed_time() {
        assert_eq!(answer_to(7).await, StatusCode::NO_CONTENT, "after 8 s, of which it had 5 and earned 3.5");
        assert_eq!(answer_to(100).await, StatusCode::REQUEST_TIMEOUT);
    }
}
