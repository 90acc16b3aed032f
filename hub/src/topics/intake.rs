//! Posted content: a Source's notification, checked, authorised, appended to its topic's log, and only then acknowledged.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LINK};
use resync_core::datetime::DateTime;
use resync_core::document::{Capability, Header, RawDocument, Root};
use resync_core::media_type::{self, is_generic_xml};
use resync_core::rules::Violations;
use resync_core::websub::{LinkHeader, NotificationId, TopicUrl, UrlError};
use resync_core::xml::{self, Options, ReadError};
use tracing::info;

use super::authority::{Authority, Denied, Grant};
use super::length_limits::{Oversized, check_content_type, check_links};
use crate::content_coding::content_coding;
use crate::store::{
    Appended, ContentKind, Interval, NewNotification, NotificationLinks, Payer, Store, StoreError,
};
use crate::telemetry::{OpenSpan, SpanKind};

/// The header by which a publisher marks a repeated post.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Longer keys are refused.
const LONGEST_KEY: usize = 255;

/// What the header fields of a post say: enough to authorise it before its body is read.
#[derive(Clone, Debug)]
pub struct PostHeader {
    topic: TopicUrl,
    links: NotificationLinks,
    content_type: Bytes,
    idempotency_key: Option<String>,
}

impl PostHeader {
    /// Reads the header fields of a post.
    ///
    /// # Errors
    /// [`Refused`], for what is missing or wrong there.
    pub fn read(headers: &HeaderMap) -> Result<Self, Refused> {
        let content_type = headers.get(CONTENT_TYPE).ok_or(Refused::NoType)?.as_bytes();
        check_content_type(content_type)?;
        if let Some(coding) = content_coding(headers) {
            return Err(Refused::Coded(String::from_utf8_lossy(coding.as_bytes()).into_owned()));
        }
        let header = LinkHeader::parse(headers.get_all(LINK).iter().map(http::HeaderValue::as_bytes));
        if header.is_empty() {
            let essence = essence(content_type);
            if matches!(essence.as_str(), "application/json" | "multipart/form-data") {
                return Err(Refused::NotAPost(essence));
            }
        }
        let topic = topic(&header)?;
        let links = NotificationLinks {
            hubs: header.with_rel("hub").map(str::to_owned).collect(),
            canonical: topic.as_str().to_owned(),
            resourcesync: header.first("resourcesync").map(str::to_owned),
        };
        if links.hubs.is_empty() {
            return Err(Refused::NoHub);
        }
        check_links(&links)?;
        if links.resourcesync.is_some() && !is_generic_xml(content_type) {
            return Err(Refused::NotXml(essence(content_type)));
        }
        let content_type = Bytes::copy_from_slice(content_type);
        Ok(Self { topic, links, content_type, idempotency_key: idempotency_key(headers)? })
    }

    /// The topic that the post is about.
    pub fn topic(&self) -> &TopicUrl {
        &self.topic
    }

    /// The hubs that the post names.
    pub fn hubs(&self) -> &[String] {
        &self.links.hubs
    }
}

/// Why posted content is refused. Every message says what would be right.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No `Content-Type`.
    #[error(
        "the post has no Content-Type: send Content-Type: application/xml for a ResourceSync notification, or the topic's own type"
    )]
    NoType,
    /// The type of a ResourceSync notification is not XML (FN-033).
    #[error(
        "a ResourceSync notification (Link rel=\"resourcesync\") is XML: send Content-Type: application/xml, not {0}"
    )]
    NotXml(String),
    /// The body is compressed, which deliveries cannot say.
    #[error("the body has Content-Encoding: {0}, which this hub does not pass on: send it uncompressed")]
    Coded(String),
    /// The `Link` header names no topic.
    #[error(
        "the post does not say which topic it is about: send Link: <topic URI>; rel=\"self\", <hub URI>; rel=\"hub\""
    )]
    NoTopic,
    /// The `Link` header names more than one topic.
    #[error("the post names several topics with rel=\"self\": send one post for each")]
    SeveralTopics,
    /// The `Link` header names no hub.
    #[error("the post does not name its hub: add <hub URI>; rel=\"hub\" to the Link header")]
    NoHub,
    /// The topic is no URL.
    #[error("the topic in Link rel=\"self\" cannot be used: {0}")]
    Topic(UrlError),
    /// The links or the content type are longer than deliveries carry.
    #[error(transparent)]
    Oversized(#[from] Oversized),
    /// No links, and the type of a request to subscribe or to ping that is not sent as a form.
    #[error(
        "posted content needs Link: <topic URI>; rel=\"self\", <hub URI>; rel=\"hub\"; a request to subscribe or to ping is sent as application/x-www-form-urlencoded, not as {0}"
    )]
    NotAPost(String),
    /// The key was used for other content.
    #[error(
        "this Idempotency-Key was used for other content, accepted as {0}: use a new key for new content"
    )]
    KeyReused(NotificationId),
    /// The key is not usable.
    #[error("Idempotency-Key must be 1 to {LONGEST_KEY} visible ASCII characters")]
    Key,
    /// The body is empty.
    #[error("the post has no body: the notification itself goes into the body")]
    Empty,
    /// The body claims to be XML and is not.
    #[error("the notification cannot be read: {0}")]
    Unreadable(#[from] ReadError),
    /// The document is no notification.
    #[error(
        "the document is a {0}, which is not sent as a notification: post a change-notification or a framework-notification that names it"
    )]
    NoNotification(String),
    /// The document breaks rules.
    #[error("the notification does not conform to ResourceSync:\n{0}")]
    Document(Violations),
    /// The publisher may not speak for this topic.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// It could not be made durable.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Accepts posted content.
#[derive(Clone, Debug)]
pub struct Intake {
    store: Arc<dyn Store>,
    authority: Authority,
    remember: Duration,
}

impl Intake {
    /// `remember` is how long idempotency keys are remembered.
    pub fn new(store: Arc<dyn Store>, authority: Authority, remember: Duration) -> Self {
        Self { store, authority, remember }
    }

    /// Checks the header of a post: whether it is one, and whether its sender may speak for its topic.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn announce(&self, headers: &HeaderMap) -> Result<PostHeader, Refused> {
        let announced = PostHeader::read(headers)?;
        self.authority.allows(bearer(headers), &announced.topic)?;
        Ok(announced)
    }

    /// The topics that the sender's token allows, whatever the policy.
    pub fn grant(&self, headers: &HeaderMap) -> Option<Grant> {
        self.authority.grant(bearer(headers))
    }

    /// Whether senders need no token.
    pub fn is_open(&self) -> bool {
        self.authority.is_open()
    }

    /// Whether the sender has a token for this topic, whatever the policy.
    pub fn has_token(&self, headers: &HeaderMap, topic: &TopicUrl) -> bool {
        self.authority.knows(bearer(headers), topic).is_ok()
    }

    /// Checks the body and appends the notification to its topic's log. When this returns, it is durable. The spans of its deliveries
    /// are children of `span`.
    ///
    /// # Errors
    /// [`Refused`], which leaves nothing behind.
    pub async fn post(
        &self,
        announced: PostHeader,
        body: Bytes,
        span: &OpenSpan,
    ) -> Result<NotificationId, Refused> {
        let notification =
            NewNotification { trace: span.context(), ..check(announced, body, self.store.now())? };
        let topic = notification.topic.clone();
        let bytes = notification.weight();
        let append = span.child("append", SpanKind::Internal);
        let appended = self.store.append(notification, self.remember).await;
        // A refusal has no span.
        if !matches!(appended, Ok(Appended::KeyReused(_))) {
            append.end_with(&appended);
        }
        let appended = appended?;
        match appended {
            Appended::New(id) => info!(%id, topic = topic.as_str(), bytes, "notification accepted"),
            Appended::Repeated(id) => {
                info!(%id, topic = topic.as_str(), "notification repeated by its publisher");
            }
            Appended::KeyReused(id) => return Err(Refused::KeyReused(id)),
        }
        Ok(appended.id())
    }
}

/// The token of `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn check(announced: PostHeader, body: Bytes, received_at: DateTime) -> Result<NewNotification, Refused> {
    let PostHeader { topic, links, content_type, idempotency_key } = announced;
    if body.is_empty() {
        return Err(Refused::Empty);
    }
    let interval =
        if is_generic_xml(&content_type) { check_xml(&body, links.resourcesync.is_some())? } else { None };
    Ok(NewNotification {
        topic,
        content_type,
        links,
        body,
        kind: ContentKind::Posted,
        payer: Payer::Publishers,
        idempotency_key,
        interval,
        validators: None,
        received_at,
        trace: None,
    })
}

/// Checks that what a topic shows is a ResourceSync notification, like those that its Source posts.
pub(super) fn check_notification(content_type: &[u8], body: &[u8]) -> Result<(), Refused> {
    if !is_generic_xml(content_type) {
        return Err(Refused::NotXml(essence(content_type)));
    }
    check_xml(body, true).map(drop)
}

/// The media type without its parameters, in lower case.
fn essence(content_type: &[u8]) -> String {
    media_type::essence(&String::from_utf8_lossy(content_type)).to_ascii_lowercase()
}

fn topic(header: &LinkHeader) -> Result<TopicUrl, Refused> {
    let mut named = header.with_rel("self");
    let first = named.next().ok_or(Refused::NoTopic)?;
    if named.any(|other| other != first) {
        return Err(Refused::SeveralTopics);
    }
    TopicUrl::parse(first).map_err(Refused::Topic)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Refused> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = value.to_str().map_err(|_| Refused::Key)?.trim();
    let is_visible = key.bytes().all(|byte| byte.is_ascii_graphic());
    if (1..=LONGEST_KEY).contains(&key.len()) && is_visible {
        Ok(Some(key.to_owned()))
    } else {
        Err(Refused::Key)
    }
}

/// ResourceSync notifications must conform. Other XML is not checked, unless the post claims to be ResourceSync.
/// Returns the interval of a Change Notification.
fn check_xml(body: &[u8], claims_resourcesync: bool) -> Result<Option<Interval>, Refused> {
    let read = match xml::read_with(body, Options::PLAIN) {
        Ok(read) => read,
        Err(ReadError::UnknownRoot { .. }) if !claims_resourcesync => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match kind(&read.document) {
        Kind::PlainSitemap if !claims_resourcesync => Ok(None),
        Kind::Notification | Kind::PlainSitemap => {
            read.into_document().map(|document| interval(document.header())).map_err(Refused::Document)
        }
        Kind::Other(capability) => Err(Refused::NoNotification(capability)),
    }
}

/// The interval of a Change Notification (CN-008).
fn interval(header: &Header) -> Option<Interval> {
    if header.capability() != Some(&Capability::ChangeNotification) {
        return None;
    }
    Some(Interval { from: header.metadata.from?, until: header.metadata.until? })
}

enum Kind {
    Notification,
    PlainSitemap,
    Other(String),
}

fn kind(document: &RawDocument) -> Kind {
    match document.header.capability() {
        Some(Capability::ChangeNotification | Capability::FrameworkNotification) => Kind::Notification,
        Some(capability) if document.header.root == Root::SitemapIndex => {
            Kind::Other(format!("{capability} index"))
        }
        Some(capability) => Kind::Other(capability.to_string()),
        None => Kind::PlainSitemap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTIFICATION: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
  <rs:md capability="framework-notification"/>
  <url><loc>http://source.example/resourcelist.xml</loc><rs:md change="updated" capability="resourcelist"/></url>
</urlset>"#;
    const LINKS: &str = "<http://source.example/framework/>; rel=\"self\", <http://hub.example/websub/>; rel=\"hub\", \
                         <http://source.example/capabilitylist.xml>; rel=\"resourcesync\"";

    fn checked(
        content_type: Option<&str>,
        link: Option<&str>,
        body: &str,
    ) -> Result<NewNotification, Refused> {
        let mut headers = HeaderMap::new();
        if let Some(value) = content_type {
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
        }
        if let Some(value) = link {
            headers.insert(LINK, value.parse().unwrap());
        }
        check(PostHeader::read(&headers)?, Bytes::copy_from_slice(body.as_bytes()), DateTime::now())
    }

    #[test]
    fn fn033_a_notification_with_its_links_is_taken_byte_for_byte() {
        let taken = checked(Some("application/xml; charset=UTF-8"), Some(LINKS), NOTIFICATION).unwrap();
        assert_eq!(taken.topic.as_str(), "http://source.example/framework/");
        assert_eq!(taken.links.hubs, ["http://hub.example/websub/"]);
        assert_eq!(taken.links.resourcesync.as_deref(), Some("http://source.example/capabilitylist.xml"));
        assert_eq!(taken.content_type, "application/xml; charset=UTF-8");
        assert_eq!(taken.body, NOTIFICATION);
        assert_eq!(taken.kind, ContentKind::Posted);
    }

    #[test]
    fn fn033_what_a_post_lacks_is_named() {
        let refused = |content_type, link, body| checked(content_type, link, body).unwrap_err().to_string();
        assert!(refused(None, Some(LINKS), NOTIFICATION).contains("Content-Type: application/xml"));
        assert!(refused(Some("text/plain"), Some(LINKS), NOTIFICATION).contains("not text/plain"));
        assert!(refused(Some("application/xml"), None, NOTIFICATION).contains("rel=\"self\""));
        assert!(
            refused(Some("application/xml"), Some("<http://a.example/>; rel=\"self\""), NOTIFICATION)
                .contains("rel=\"hub\"")
        );
        assert!(
            refused(Some("application/xml"), Some("<ftp://a.example/>; rel=\"self\""), NOTIFICATION)
                .contains("self")
        );
        assert!(refused(Some("application/xml"), Some(LINKS), "").contains("body"));
    }

    #[test]
    fn fn020_fn023_a_document_that_breaks_a_rule_is_refused_with_the_rule() {
        let index = NOTIFICATION
            .replace("urlset", "sitemapindex")
            .replace("<url>", "<sitemap>")
            .replace("</url>", "</sitemap>");
        assert!(matches!(checked(Some("application/xml"), Some(LINKS), &index), Err(Refused::Document(_))));
        let without_change = NOTIFICATION.replace("change=\"updated\" ", "");
        let refused = checked(Some("application/xml"), Some(LINKS), &without_change).unwrap_err().to_string();
        assert!(refused.contains("FN-023") && refused.contains("line"), "{refused}");
    }

    #[test]
    fn a_list_is_not_a_notification() {
        let list = NOTIFICATION.replace("framework-notification", "resourcelist");
        let refused = checked(Some("application/xml"), Some(LINKS), &list).unwrap_err().to_string();
        assert!(refused.contains("resourcelist") && refused.contains("framework-notification"), "{refused}");
    }

    #[test]
    fn fn033_gzip_is_not_taken_for_xml() {
        let header_of_gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03";
        for claims_resourcesync in [true, false] {
            let refused = check_xml(header_of_gzip, claims_resourcesync);
            assert!(matches!(refused, Err(Refused::Unreadable(ReadError::Encoding { .. }))), "{refused:?}");
        }
    }

    #[test]
    fn content_of_any_other_type_is_the_topics_own_affair() {
        let link = "<http://blog.example/>; rel=\"self\", <http://hub.example/websub/>; rel=\"hub\"";
        assert!(checked(Some("text/html;charset=x"), Some(link), "\u{0}<p>").is_ok());
        assert!(
            checked(Some("application/xml"), Some(link), "<feed xmlns=\"http://www.w3.org/2005/Atom\"/>")
                .is_ok()
        );
        assert!(matches!(checked(Some("application/xml"), Some(link), "<feed"), Err(Refused::Unreadable(_))));
    }
}
