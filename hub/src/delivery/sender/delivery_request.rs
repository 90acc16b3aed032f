//! The delivery request (WebSub section 7): header fields, body and signature.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, LINK, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, Method, Request};
use http_body_util::Full;
use resync_common::client;
use resync_common::locks::lock;
use resync_core::websub::{LinkHeader, SigningKey, WEBHOOK_ATTEMPT, WEBHOOK_ID, WEBHOOK_TEST};

use crate::egress;
use crate::store::{Notification, Offset, TopicId};
use crate::telemetry::{TRACEPARENT, TraceContext};
use crate::weighted_cache::WeightedCache;

/// The header of a signed delivery (W-166).
const SIGNATURE: HeaderName = HeaderName::from_static("x-hub-signature");
const ATTEMPT: HeaderName = HeaderName::from_static(WEBHOOK_ATTEMPT);

/// Bytes of header fields that are kept: of the usual size those of some thousand notifications, more than are on their way at once.
const KEPT: usize = 4 * 1024 * 1024;
/// What those of one notification take beside the links and the content type.
const ONE: usize = 1_024;

/// The header fields that all requests of a notification share, made once: by topic and offset.
#[derive(Debug)]
pub(super) struct SharedHeaders(Mutex<WeightedCache<(TopicId, Offset), HeaderMap>>);

impl SharedHeaders {
    pub(super) fn new() -> Self {
        Self(Mutex::new(WeightedCache::new(KEPT)))
    }

    fn of(&self, notification: &Notification) -> Result<HeaderMap, http::Error> {
        let key = (notification.topic, notification.offset);
        // Nothing in here can panic half-way.
        let mut made = lock(&self.0);
        if let Some(headers) = made.get(&key) {
            return Ok(headers.clone());
        }
        let headers = shared_headers(notification)?;
        let texts = headers.values().map(HeaderValue::len).sum::<usize>();
        made.put(key, headers.clone(), ONE + texts);
        Ok(headers)
    }

    /// The request for one attempt, but for its target.
    pub(super) fn request(
        &self,
        Content { notification, body, trace }: Content<'_>,
        key: Option<&SigningKey>,
        attempt: u16,
    ) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut headers = self.of(notification)?;
        if let Some(trace) = trace {
            headers.insert(TRACEPARENT, trace.header());
        }
        request(key, headers, body, attempt)
    }
}

/// The request for a test delivery with this content, but for its target. What a subscriber's software would recognise it by as a
/// notification is replaced.
pub(super) fn test_request(
    content: &Notification,
    key: Option<&SigningKey>,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let mut headers = shared_headers(content)?;
    let id = format!("test-{}", content.received_at.unix_millis());
    headers.insert(WEBHOOK_ID, HeaderValue::from_maybe_shared(Bytes::from(id))?);
    headers.insert(WEBHOOK_TEST, HeaderValue::from_static("true"));
    request(key, headers, content.body.clone(), 1)
}

/// What a subscriber gets with one attempt.
#[derive(Clone)]
pub(super) struct Content<'a> {
    pub(super) notification: &'a Notification,
    /// Of a feed, what is new to the subscriber.
    pub(super) body: Bytes,
    pub(super) trace: Option<TraceContext>,
}

/// The header fields of a notification, with the identity that lets a Destination recognise repetitions. Those that differ by
/// request have their slots, so that no copy has to grow.
fn shared_headers(notification: &Notification) -> Result<HeaderMap, http::Error> {
    let mut headers = HeaderMap::with_capacity(8);
    for differs in [HOST, CONTENT_LENGTH, ATTEMPT, SIGNATURE] {
        headers.insert(differs, HeaderValue::from_static(""));
    }
    if notification.trace.is_some() {
        headers.insert(TRACEPARENT, HeaderValue::from_static(""));
    }
    // A copy: what was read from the store is a part of the whole record, which would stay with it.
    headers.insert(CONTENT_TYPE, HeaderValue::from_bytes(&notification.content_type)?);
    headers.insert(LINK, HeaderValue::from_maybe_shared(Bytes::from(links(notification).to_string()))?);
    headers.insert(WEBHOOK_ID, HeaderValue::from_maybe_shared(Bytes::from(notification.id().to_string()))?);
    headers.insert(USER_AGENT, HeaderValue::from_static(egress::USER_AGENT));
    Ok(headers)
}

fn request(
    key: Option<&SigningKey>,
    mut headers: HeaderMap,
    body: Bytes,
    attempt: u16,
) -> Result<Request<Full<Bytes>>, http::Error> {
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(ATTEMPT, HeaderValue::from(attempt));
    match key {
        Some(key) => {
            let signature = key.sign(&body).to_string();
            headers.insert(SIGNATURE, HeaderValue::from_maybe_shared(Bytes::from(signature))?);
        }
        None => drop(headers.remove(SIGNATURE)),
    }
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Hubs first, in the order in which the Source gave them (D-12, H-09).
fn links(notification: &Notification) -> LinkHeader {
    let links = &notification.links;
    let header = links.hubs.iter().fold(LinkHeader::default(), |header, hub| header.push(hub, "hub"));
    let header = header.push(&links.canonical, "self");
    match &links.resourcesync {
        Some(capability_list) => header.push(capability_list, "resourcesync"),
        None => header,
    }
}

/// The pause that the subscriber asks for.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    client::retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;
    use resync_core::websub::{Secret, SignatureMethod};

    use super::*;
    use crate::store::{ContentKind, NotificationLinks};

    fn notification() -> Notification {
        Notification {
            topic: TopicId(0xabc),
            offset: Offset(5),
            content_type: Bytes::from_static(b"text/plain;charset=UTF-8"),
            links: NotificationLinks {
                hubs: vec!["http://hub.example/websub/".to_owned()],
                canonical: "http://source.example/framework/".to_owned(),
                resourcesync: Some("http://source.example/capabilitylist.xml".to_owned()),
            },
            body: Bytes::from_static(b"Gr\xc3\xbc\xc3\x9fe\n"),
            kind: ContentKind::Posted,
            received_at: DateTime::now(),
            trace: None,
        }
    }

    fn made(secret: Option<&str>, body: Bytes, attempt: u16) -> Request<Full<Bytes>> {
        let key =
            secret.map(|secret| SigningKey::new(SignatureMethod::Sha256, &Secret::new(secret).unwrap()));
        request(key.as_ref(), shared_headers(&notification()).unwrap(), body, attempt).unwrap()
    }

    #[test]
    fn w080_w141_w145_w166_a_delivery_is_a_post_with_the_topics_type_links_and_signature() {
        let request = made(Some("s3cr3t"), notification().body, 2);
        let header = |name: &str| request.headers().get(name).unwrap().to_str().unwrap();
        assert_eq!(request.method(), "POST");
        assert_eq!(header("content-type"), "text/plain;charset=UTF-8");
        assert_eq!(
            header("link"),
            "<http://hub.example/websub/>; rel=\"hub\", <http://source.example/framework/>; rel=\"self\", \
             <http://source.example/capabilitylist.xml>; rel=\"resourcesync\""
        );
        assert_eq!(
            header("x-hub-signature"),
            "sha256=a7b730e30c5f1b3f41b47c1c24253616889a65a57a8ca56929106f55ae627bbd"
        );
        assert_eq!(header("webhook-id"), "0000000000000abc.5");
        assert_eq!(header("webhook-attempt"), "2");
    }

    #[test]
    fn h10_without_a_secret_there_is_no_signature() {
        assert!(made(None, Bytes::new(), 1).headers().get("x-hub-signature").is_none());
    }

    #[test]
    fn an_answer_asks_for_a_pause_in_its_retry_after_and_gets_an_hour_at_most() {
        let asks = |pause| HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(pause))]);
        assert_eq!(retry_after(&asks("120")), Some(Duration::from_secs(120)));
        assert_eq!(retry_after(&asks("1000000")), Some(Duration::from_secs(3_600)));
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
