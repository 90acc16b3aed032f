//! The result of a discovery as it is saved, for a start while the Source is unreachable.

use serde::{Deserialize, Serialize};
use url::Url;

use super::Set;

/// A set of a Source, and what was searched for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedSource {
    source: String,
    wanted_set: Option<String>,
    base: Url,
    set: Set,
}

impl SavedSource {
    pub(crate) fn new(source: &str, wanted_set: Option<&str>, base: &Url, set: &Set) -> Self {
        Self {
            source: source.to_owned(),
            wanted_set: wanted_set.map(str::to_owned),
            base: base.clone(),
            set: set.clone(),
        }
    }

    /// The base and the set, if a search for the same found them.
    pub(crate) fn find(&self, source: &str, wanted_set: Option<&str>) -> Option<(Url, Set)> {
        let is_the_same = self.source == source && self.wanted_set.as_deref() == wanted_set;
        is_the_same.then(|| (self.base.clone(), self.set.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Channel;
    use super::*;
    use resync_core::websub::key::TopicUrl;

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
        let saved = SavedSource::new("http://a.example", None, &url("http://a.example/data/"), &set);
        let loaded = serde_json::from_str::<SavedSource>(&serde_json::to_string(&saved).unwrap()).unwrap();
        let (base, found) = loaded.find("http://a.example", None).unwrap();
        assert_eq!(base.as_str(), "http://a.example/data/");
        assert_eq!((found.name(), found.resource_list), (set.name(), set.resource_list));
        assert_eq!((found.framework_channel, found.change_channel), (Some(channel), Some(of_changes)));
        assert!(loaded.find("http://b.example", None).is_none());
        assert!(loaded.find("http://a.example", Some("two")).is_none());
    }
}
