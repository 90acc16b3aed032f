//! `GET /websub/notifications` and `/websub/notifications.xml`: reading a topic's log again.
//!
//! Pages are JSON, since every language reads it without a library: the body stands in it as text where it is UTF-8, which
//! loses no byte, else as base64.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::response::{IntoResponse, Response};
use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, LINK};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use resync_core::websub::{LinkHeader, TopicUrl, XML_CONTENT_TYPE};
use serde::{Serialize, Serializer};

use super::client_limit::{ClientPermit, Readers};
use super::endpoint_state::EndpointState;
use super::reply::{later, refuse, too_many, unavailable};
use crate::store::{Notification, Offset};
use crate::topics::{CatchUpError, Page, Reservation};

/// Notifications of a page, unless the query says otherwise.
const USUAL: usize = 100;
/// Notifications of a page at most.
const MOST: usize = 1_000;
/// `Retry-After` when the memory for pages is used up.
const ROOM_RETRY: u64 = 5;

#[derive(Serialize)]
struct PageView<'a> {
    topic: &'a str,
    first: u64,
    head: u64,
    notifications: Vec<NotificationView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a str>,
}

#[derive(Serialize)]
struct NotificationView<'a> {
    id: String,
    offset: u64,
    received_at: String,
    content_type: String,
    links: LinksView<'a>,
    #[serde(flatten)]
    body: BodyView<'a>,
}

#[derive(Serialize)]
struct LinksView<'a> {
    hub: &'a [String],
    #[serde(rename = "self")]
    canonical: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resourcesync: Option<&'a str>,
}

#[derive(Serialize)]
enum BodyView<'a> {
    #[serde(rename = "body")]
    Text(&'a str),
    #[serde(rename = "body_base64", serialize_with = "as_base64")]
    Bytes(&'a [u8]),
}

/// Without a copy of the whole.
fn as_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Base64Display::new(bytes, &BASE64_STANDARD))
}

/// The parameters of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUpQuery {
    /// The topic of the log.
    pub topic: TopicUrl,
    /// Begin after this notification; `None`: with the first.
    pub after: Option<Offset>,
    /// How many notifications at most; 1 to 1,000.
    pub limit: usize,
}

pub(super) async fn read(
    State(state): State<Arc<EndpointState>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    uri: Uri,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let client = state.client(peer, &headers).map_err(too_many)?;
    let raw = raw.unwrap_or_default();
    let query = CatchUpQuery::parse(&raw).map_err(|why| refuse(StatusCode::BAD_REQUEST, why))?;
    let Ok(permit) = state.readers.take(client) else {
        let why =
            format_args!("{} answers to your address are not read yet: read them first", Readers::ANSWERS);
        return Err(later(StatusCode::TOO_MANY_REQUESTS, ROOM_RETRY, why));
    };
    let as_list = uri.path() == "/websub/notifications.xml" || prefers_xml(&headers);
    let read = async {
        if !state.open_log && !state.publish.intake.has_token(&headers, &query.topic) {
            state.catch_up.check_proof(&raw, &query.topic).await?;
        }
        if as_list {
            let list = state.catch_up.change_list(&query.topic, query.after, client).await?;
            return Ok(answer(XML_CONTENT_TYPE, list.bytes, (list.reservation, permit)));
        }
        let (after, limit) = (query.after, query.limit);
        let page = state.catch_up.page(&query.topic, after, limit, write_one).await?;
        page_answer(page, &query, &state.hub_url, (client, permit)).await
    };
    read.await.map_err(|why| not_read(&why))
}

impl CatchUpQuery {
    /// Reads a query as it was sent. Parameters that are not known are ignored.
    ///
    /// # Errors
    /// What is wrong with it, in words for whoever wrote it.
    pub fn parse(query: &str) -> Result<Self, String> {
        let (mut topic, mut after, mut limit) = (None, None, USUAL);
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let number =
                || value.parse::<u64>().map_err(|_| format!("{name} must be a whole number, not {value:?}"));
            match &*name {
                "topic" => topic = Some(TopicUrl::parse(&value).map_err(|error| format!("topic: {error}"))?),
                "after" => after = Some(Offset(number()?)),
                "limit" => limit = usize::try_from(number()?).unwrap_or(MOST).clamp(1, MOST),
                _ => {}
            }
        }
        let topic = topic.ok_or("name the topic: ?topic=…&after=OFFSET, where OFFSET is what follows the dot in the last webhook-id")?;
        Ok(Self { topic, after, limit })
    }

    /// The query for what comes next.
    pub fn going_on(&self, after: Offset) -> String {
        let (after, limit) = (after.to_string(), self.limit.to_string());
        url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("topic", self.topic.as_str()), ("after", &after), ("limit", &limit)])
            .finish()
    }
}

fn prefers_xml(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let first = accept.split([',', ';']).next().unwrap_or_default().trim();
    matches!(first, "application/xml" | "text/xml")
}

/// An answer that keeps its memory and permit until the last byte is written.
struct Held {
    bytes: Vec<u8>,
    _takes: (Reservation, ClientPermit),
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn answer(content_type: &'static str, bytes: Vec<u8>, takes: (Reservation, ClientPermit)) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    let body = Body::from(Bytes::from_owner(Held { bytes, _takes: takes }));
    (StatusCode::OK, headers, body).into_response()
}

async fn page_answer(
    page: Page,
    query: &CatchUpQuery,
    hub_url: &str,
    (client, permit): (IpAddr, ClientPermit),
) -> Result<Response, CatchUpError> {
    let last = page.notifications.last().filter(|_| page.more);
    // Whoever signs its queries signs this one anew.
    let next = last.map(|last| format!("{hub_url}notifications?{}", query.going_on(last.offset)));
    let link = next
        .as_ref()
        .and_then(|next| HeaderValue::try_from(LinkHeader::default().push(next, "next").to_string()).ok());
    let written =
        page.encode(client, move |page, notifications, out| write(page, notifications, next.as_deref(), out));
    let (bytes, reservation) = written.await?;
    let mut response = answer("application/json", bytes, (reservation, permit));
    if let Some(link) = link {
        response.headers_mut().insert(LINK, link);
    }
    Ok(response)
}

/// Writes the page with these notifications as JSON.
fn write(
    page: &Page,
    notifications: &[Arc<Notification>],
    next: Option<&str>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let view = PageView {
        topic: page.topic.url.as_str(),
        first: page.topic.first.0,
        head: page.topic.head.0,
        notifications: notifications.iter().map(|notification| view(notification)).collect(),
        next,
    };
    serde_json::to_writer(out, &view)?;
    Ok(())
}

/// Writes a notification as it stands in a page.
fn write_one(notification: &Notification, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer(out, &view(notification))?;
    Ok(())
}

fn view(notification: &Notification) -> NotificationView<'_> {
    let links = &notification.links;
    NotificationView {
        id: notification.id().to_string(),
        offset: notification.offset.0,
        received_at: notification.received_at.to_string(),
        content_type: String::from_utf8_lossy(&notification.content_type).into_owned(),
        links: LinksView {
            hub: &links.hubs,
            canonical: &links.canonical,
            resourcesync: links.resourcesync.as_deref(),
        },
        body: std::str::from_utf8(&notification.body)
            .map_or(BodyView::Bytes(&notification.body), BodyView::Text),
    }
}

fn not_read(why: &CatchUpError) -> Response {
    match why {
        CatchUpError::NoProof => refuse(StatusCode::UNAUTHORIZED, why),
        CatchUpError::UnknownTopic | CatchUpError::NoChanges | CatchUpError::NoCapabilityList => {
            refuse(StatusCode::NOT_FOUND, why)
        }
        CatchUpError::Expired { .. } => refuse(StatusCode::GONE, why),
        CatchUpError::List(_) => refuse(StatusCode::CONFLICT, why),
        CatchUpError::Busy(_) | CatchUpError::TopicBusy => {
            later(StatusCode::SERVICE_UNAVAILABLE, ROOM_RETRY, why)
        }
        CatchUpError::Store(error) => unavailable(error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;

    use super::super::client_limit::ClientLimit;
    use super::*;
    use crate::store::{self, Engine, Keyring};
    use crate::topics::{BodyBudget, BudgetExhausted, CatchUp};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_page_is_measured_before_it_is_written_and_holds_what_it_takes_then() {
        const WHOLE: usize = 256 * 1_024;
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let topic: TopicUrl = "http://source.example/t".parse().unwrap();
        for body in [vec![1; 10_000], vec![0xff; 10_000], b"text".to_vec()] {
            store.append(store::posted(&topic, body), Duration::ZERO).await.unwrap();
        }
        let budget = BodyBudget::new(WHOLE as u64);
        let page = CatchUp::new(store, budget.clone()).page(&topic, None, 10, write_one).await.unwrap();
        let (reader, next) = ([192, 0, 2, 1].into(), Some("http://hub.example/websub/notifications?after=3"));
        let written =
            page.encode(reader, move |page, notifications, out| write(page, notifications, next, out));
        let (bytes, _room) = written.await.unwrap();
        // A control character takes six, and three bytes take four as base64.
        assert!(bytes.len() > 6 * 10_000 + 13_000);
        assert_eq!(bytes.capacity(), bytes.len(), "nothing had to grow");
        let page: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let base64 = page["notifications"][1]["body_base64"].as_str().unwrap();
        assert_eq!(base64.len(), 10_000_usize.div_ceil(3) * 4);
        let (left, mut other) = (WHOLE - bytes.len().next_multiple_of(1_024), budget.reserve());
        assert_eq!(other.grow_to(left + 1, Duration::ZERO).await, Err(BudgetExhausted));
        assert_eq!(other.grow_to(left, Duration::ZERO).await, Ok(()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_page_ends_by_what_its_notifications_take_once_they_are_written_and_always_has_one() {
        const MOST_WRITTEN: usize = 4 * 1_024 * 1_024;
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let topic: TopicUrl = "http://source.example/t".parse().unwrap();
        // Each byte takes six, so that three of the short ones have room.
        for length in [200_000, 200_000, 200_000, 200_000, 800_000, 1] {
            store.append(store::posted(&topic, vec![1_u8; length]), Duration::ZERO).await.unwrap();
        }
        let log = CatchUp::new(store, BodyBudget::new(32 * 1_024 * 1_024));
        let mut after = None;
        for (count, most) in [(3, MOST_WRITTEN), (1, MOST_WRITTEN), (1, 6 * 800_000 + 1_024), (1, 1_024)] {
            let page = log.page(&topic, after, 10, write_one).await.unwrap();
            after = page.notifications.last().map(|last| last.offset);
            assert_eq!((page.notifications.len(), page.more), (count, after != Some(page.topic.head)));
            let mut written = Vec::new();
            for one in &page.notifications {
                write_one(one, &mut written).unwrap();
            }
            assert!(written.len() <= most, "{}", written.len());
        }
    }

    #[tokio::test]
    async fn an_answer_keeps_its_memory_and_its_permit_until_its_last_byte_is_sent() {
        let (budget, client) = (BodyBudget::new(1_024), [192, 0, 2, 1].into());
        let limit = ClientLimit::for_each_client(1);
        let (mut reservation, mut other) = (budget.reserve(), budget.reserve());
        reservation.grow_to(1_024, Duration::ZERO).await.unwrap();
        let takes = (reservation, limit.take(client).unwrap());
        let mut response = answer("application/json", b"{}".to_vec(), takes);
        assert_eq!(other.grow_to(1, Duration::ZERO).await, Err(BudgetExhausted));
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        drop(response);
        assert_eq!(other.grow_to(1, Duration::ZERO).await, Err(BudgetExhausted), "it may still be unwritten");
        assert!(limit.take(client).is_err());
        assert_eq!(frame.into_data().unwrap(), "{}");
        assert_eq!(other.grow_to(1, Duration::ZERO).await, Ok(()));
        assert!(limit.take(client).is_ok());
    }
}
