//! One notification of a log, with what its publisher posted.

use std::sync::Arc;

use resync_core::websub::NotificationId;

use super::queries::parse_topic;
use super::responses::{LogEntry, topic_id};
use super::{AdminService, Failed};
use crate::store::{Notification, Offset};

/// Bytes of a text that are shown.
const SHOWN: usize = 32 * 1024;

/// A notification, to be looked at.
#[derive(Clone, Debug)]
pub struct NotificationView {
    /// The identity of its topic.
    pub topic_id: String,
    /// The URL of its topic.
    pub topic: String,
    /// Its identity: the `webhook-id` of its deliveries.
    pub id: String,
    /// When and how it came in.
    pub entry: LogEntry,
    /// The one before it in the log, if that is still there …
    pub previous: Option<u64>,
    /// … and the one after it.
    pub next: Option<u64>,
    notification: Arc<Notification>,
}

impl NotificationView {
    /// The targets of its links, each with its relation.
    pub fn links(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let links = &self.notification.links;
        let hubs = links.hubs.iter().map(|hub| ("hub", hub.as_str()));
        let list = links.resourcesync.iter().map(|list| ("resourcesync", list.as_str()));
        [("self", links.canonical.as_str())].into_iter().chain(hubs).chain(list)
    }

    /// All of its body.
    pub fn body(&self) -> bytes::Bytes {
        self.notification.body.clone()
    }

    /// The beginning of its body, if that is a text, and whether that is all. What its publisher calls it does not matter.
    pub fn text(&self) -> Option<(&str, bool)> {
        let body = &self.notification.body;
        let beginning = &body[..body.len().min(SHOWN)];
        let text = match std::str::from_utf8(beginning) {
            Ok(text) => text,
            // A character may be cut in two.
            Err(error) if error.error_len().is_none() && beginning.len() < body.len() => {
                std::str::from_utf8(&beginning[..error.valid_up_to()]).ok()?
            }
            Err(_) => return None,
        };
        let is_text = !text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r'));
        is_text.then_some((text, beginning.len() == body.len()))
    }
}

impl AdminService {
    /// One notification of a log.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn notification(&self, topic: &str, offset: u64) -> Result<NotificationView, Failed> {
        let topic = self.topic_by_id(parse_topic(topic)?).await?;
        let found = self.store.notification_from(topic.id, Offset(offset)).await?;
        let notification =
            found.filter(|found| found.offset.0 == offset).ok_or(Failed::Unknown("notification"))?;
        Ok(NotificationView {
            topic_id: topic_id(topic.id),
            topic: topic.url.as_str().to_owned(),
            id: NotificationId { topic: topic.id.0, offset }.to_string(),
            entry: LogEntry::new(&notification),
            previous: offset.checked_sub(1).filter(|previous| *previous >= topic.first.0),
            next: offset.checked_add(1).filter(|next| *next <= topic.head.0),
            notification,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{self, Appended, Engine, Keyring};

    async fn shown(body: Vec<u8>) -> Option<(String, bool)> {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, folder.path(), Keyring::none(), 0).unwrap();
        let sent = store::posted(&"https://source.example/t".parse().unwrap(), body);
        let sent = store.append(sent, std::time::Duration::ZERO).await.unwrap();
        let Appended::New(id) = sent else { panic!("{sent:?}") };
        let service = AdminService::where_nothing_is_delivered(store, folder.path());
        let view = service.notification(&format!("{:016x}", id.topic), id.offset).await.unwrap();
        view.text().map(|(text, all)| (text.to_owned(), all))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_text_is_shown_to_a_bound_and_nothing_else_is() {
        assert_eq!(shown("Grüße,\r\n\tall".into()).await, Some(("Grüße,\r\n\tall".to_owned(), true)));
        let long = format!("x{}", "ü".repeat(SHOWN));
        let (text, all) = shown(long.clone().into()).await.unwrap();
        assert!(!all && text.len() == SHOWN - 1 && long.starts_with(&text), "{}", text.len());
        for binary in [&b"\x00\x01"[..], b"\xff\xfe", b"PK\x03\x04", b"\x1b[31mred", b"cut: \xc3"] {
            assert_eq!(shown(binary.to_vec()).await, None, "{binary:?}");
        }
    }
}
