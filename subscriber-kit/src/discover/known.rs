//! What a discovery found, in the form in which it is kept for a start at which the Source is away.

use resync_core::document::Capability;
use resync_core::websub::key::TopicUrl;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Channel, Set};

/// One set of a Source, as far as a copy needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownSource {
    source: String,
    wanted_set: Option<String>,
    base: String,
    capability_list: Option<String>,
    resource_list: Option<String>,
    /// The other documents that a copy may be made and followed by.
    #[serde(default)]
    change_list: Option<String>,
    #[serde(default)]
    resource_dump: Option<String>,
    #[serde(default)]
    change_dump: Option<String>,
    topic: Option<String>,
    hubs: Vec<String>,
    /// The channel of changes.
    #[serde(default)]
    change_topic: Option<String>,
    #[serde(default)]
    change_hubs: Vec<String>,
}

impl KnownSource {
    pub(crate) fn new(source: &str, wanted_set: Option<&str>, base: &Url, set: &Set) -> Self {
        let (topic, hubs) = written(set.framework_channel.as_ref());
        let (change_topic, change_hubs) = written(set.change_channel.as_ref());
        let named = |capability| set.named(&capability).map(Url::to_string);
        Self {
            source: source.to_owned(),
            wanted_set: wanted_set.map(str::to_owned),
            base: base.to_string(),
            capability_list: set.capability_list.as_ref().map(Url::to_string),
            resource_list: set.resource_list.as_ref().map(Url::to_string),
            change_list: named(Capability::ChangeList),
            resource_dump: named(Capability::ResourceDump),
            change_dump: named(Capability::ChangeDump),
            topic,
            hubs,
            change_topic,
            change_hubs,
        }
    }

    /// The base and the set, if they are what a search for these found.
    pub(crate) fn recall(&self, source: &str, wanted_set: Option<&str>) -> Option<(Url, Set)> {
        if self.source != source || self.wanted_set.as_deref() != wanted_set {
            return None;
        }
        let url = |text: &Option<String>| text.as_deref().and_then(|text| Url::parse(text).ok());
        let named = [
            (Capability::ChangeList, &self.change_list),
            (Capability::ResourceDump, &self.resource_dump),
            (Capability::ChangeDump, &self.change_dump),
        ];
        let set = Set {
            capability_list: url(&self.capability_list),
            framework_channel: read(self.topic.as_deref(), &self.hubs),
            capabilities: named.into_iter().filter_map(|(name, place)| Some((name, url(place)?))).collect(),
            resource_list: url(&self.resource_list),
            change_channel: read(self.change_topic.as_deref(), &self.change_hubs),
            described_by: None,
        };
        Some((Url::parse(&self.base).ok()?, set))
    }
}

fn written(channel: Option<&Channel>) -> (Option<String>, Vec<String>) {
    let hubs = channel.map(|channel| channel.hubs.iter().map(Url::to_string).collect());
    (channel.map(|channel| channel.topic.as_str().to_owned()), hubs.unwrap_or_default())
}

fn read(topic: Option<&str>, hubs: &[String]) -> Option<Channel> {
    let topic = topic.and_then(|topic| TopicUrl::parse(topic).ok())?;
    Some(Channel { topic, hubs: hubs.iter().filter_map(|hub| Url::parse(hub).ok()).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_for_the_same_finds_again_what_a_copy_needs() {
        let url = |text: &str| Url::parse(text).unwrap();
        let channel = Channel {
            topic: TopicUrl::parse("http://a.example/topic").unwrap(),
            hubs: vec![url("https://h.example/")],
        };
        let of_changes =
            Channel { topic: TopicUrl::parse("http://a.example/changes").unwrap(), ..channel.clone() };
        let set = Set {
            capability_list: Some(url("http://a.example/cl.xml")),
            framework_channel: Some(channel.clone()),
            change_channel: Some(of_changes.clone()),
            ..Set::bare(url("http://a.example/rl.xml"))
        };
        let known = KnownSource::new("http://a.example", None, &url("http://a.example/data/"), &set);
        let kept = serde_json::from_str::<KnownSource>(&serde_json::to_string(&known).unwrap()).unwrap();
        let (base, found) = kept.recall("http://a.example", None).unwrap();
        assert_eq!(base.as_str(), "http://a.example/data/");
        assert_eq!((found.name(), found.resource_list), (set.name(), set.resource_list));
        assert_eq!((found.framework_channel, found.change_channel), (Some(channel), Some(of_changes)));
        assert!(kept.recall("http://b.example", None).is_none());
        assert!(kept.recall("http://a.example", Some("two")).is_none());
    }
}
