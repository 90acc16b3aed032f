//! What a hub gets: the notification's bytes, the `Link` header, and the key by which it recognises a repetition.

use std::collections::BTreeMap;

use resync_core::{
    digest::{Algorithm, Digest},
    document::{Capability, FrameworkChange, FrameworkNotification},
    rules::Violations,
    websub::link_header::LinkHeader,
    xml,
};

use crate::{
    settings::HubUrl,
    state::{NotifiedDocument, State},
};

/// One notification for one hub. It depends on the documents alone, not on the clock.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) topic: String,
    pub(super) links: String,
    pub(super) key: String,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// A Change Notification from the outbox. A number comes twice under one topic only if the state was lost; the body then has
    /// another interval.
    pub(super) fn of_changes(topic: &str, links: &str, number: u64, body: Vec<u8>) -> Self {
        let mut content = format!("{topic} {number}\n").into_bytes();
        content.extend_from_slice(&body);
        Self { topic: topic.to_owned(), links: links.to_owned(), key: key_of(&content), body }
    }

    /// A Framework Notification of `changes` for `hub`, which acknowledges `documents`.
    pub(super) fn new(
        state: &State,
        topic: &str,
        hub: &HubUrl,
        changes: &[FrameworkChange],
        documents: &BTreeMap<String, NotifiedDocument>,
    ) -> Result<Self, Violations> {
        let body = notification(state, changes)?;
        Ok(Self {
            topic: topic.to_owned(),
            links: links(state, topic, hub),
            key: key(topic, documents, &body),
            body,
        })
    }
}

fn notification(state: &State, changes: &[FrameworkChange]) -> Result<Vec<u8>, Violations> {
    let mut notification = FrameworkNotification::new();
    if let Some(up) = up(state, changes) {
        notification = notification.up(up);
    }
    for change in changes {
        notification = notification.change(change.clone());
    }
    Ok(xml::write(&notification.build()?))
}

/// The Capability List for changes of its own documents, the Source Description for changes of the Capability List, and none where that would be ambiguous
/// (FN-022, FN-026).
fn up(state: &State, changes: &[FrameworkChange]) -> Option<String> {
    let only = |kind: &Capability| changes.iter().all(|change| &change.capability == kind);
    let has = |kind: &Capability| changes.iter().any(|change| &change.capability == kind);
    let target = if only(&Capability::CapabilityList) {
        Capability::Description
    } else if has(&Capability::CapabilityList) || has(&Capability::Description) {
        return None;
    } else {
        Capability::CapabilityList
    };
    state.document(&target).map(|document| document.url.clone())
}

/// `self`, the hub that is addressed, and the Capability List (FN-033, FN-034).
pub(super) fn links(state: &State, topic: &str, hub: &HubUrl) -> String {
    let links = LinkHeader::default().push(topic, "self").push(hub.as_str(), "hub");
    match state.document(&Capability::CapabilityList) {
        Some(list) => links.push(list.url.as_str(), "resourcesync").to_string(),
        None => links.to_string(),
    }
}

/// Equal for a repetition, and different for other versions, even if the clock was set back and the bytes are those of an earlier notification.
fn key(topic: &str, documents: &BTreeMap<String, NotifiedDocument>, body: &[u8]) -> String {
    let mut content = format!("{topic}\n").into_bytes();
    for (url, document) in documents {
        content.extend(format!("{url} {}\n", document.version).bytes());
    }
    content.extend_from_slice(body);
    key_of(&content)
}

fn key_of(content: &[u8]) -> String {
    let digest = Digest::of(Algorithm::Sha256, content).to_string();
    digest.rsplit(':').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Part;

    #[test]
    fn the_key_depends_on_topic_versions_and_content_alone() {
        let known = |version| {
            let known = NotifiedDocument { capability: Capability::ResourceList, part: Part::Whole, version };
            BTreeMap::from([("http://example.org/rl.xml".to_owned(), known)])
        };
        let first = key("http://t/", &known(1), b"<a/>");
        assert_eq!(first, key("http://t/", &known(1), b"<a/>"));
        assert_ne!(first, key("http://u/", &known(1), b"<a/>"));
        assert_ne!(first, key("http://t/", &known(2), b"<a/>"));
        assert_ne!(first, key("http://t/", &known(1), b"<b/>"));
        assert_eq!(first.len(), 64);
    }
}
