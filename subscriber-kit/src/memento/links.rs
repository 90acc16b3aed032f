//! What an entry of a list says about the versions of its resource (RS-178).

use resync_core::document::{Entry, Relation};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::fetch::led_to;

/// Where an entry says that versions of its resource are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionLinks {
    /// The very version that the entry is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memento: Option<String>,
    /// Where a version is negotiated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timegate: Option<String>,
}

impl VersionLinks {
    /// The http and https URLs of an entry, whose relative links are resolved from `base`.
    pub(crate) fn of(entry: &Entry, base: &Url) -> Self {
        let target = |relation: &Relation| {
            let target = entry.link(relation).and_then(|link| led_to(base, &link.href));
            target.filter(|url| matches!(url.scheme(), "http" | "https")).map(String::from)
        };
        Self { memento: target(&Relation::Memento), timegate: target(&Relation::TimeGate) }
    }

    /// For an older version than that of the entry.
    pub(crate) fn of_an_older_version(self) -> Self {
        Self { memento: None, ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memento.is_none() && self.timegate.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::document::{Link, Resource};

    #[test]
    fn rs178_the_links_to_versions_are_found_and_only_those_that_can_be_asked() {
        let base = Url::parse("http://a.example/x").unwrap();
        let links = |memento: &str, timegate: &str| {
            let resource = Resource::new(base.as_str());
            let resource = resource.link(Link::memento(memento)).link(Link::timegate(timegate));
            VersionLinks::of(&Entry::from(resource), &base)
        };
        let found = links("/versions/1/x", "https://b.example/http://a.example/x");
        assert_eq!(found.memento.as_deref(), Some("http://a.example/versions/1/x"));
        assert_eq!(found.timegate.as_deref(), Some("https://b.example/http://a.example/x"));
        assert!(links("file:///etc/passwd", "urn:x").is_empty());
        assert_eq!(found.of_an_older_version().memento, None);
    }
}
