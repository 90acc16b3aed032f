//! What a list says of a resource that one who publishes the copy on has to say too (RS-180 to RS-183).

use resync_core::document::{Entry, Relation};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::fetch::led_to;

/// How many links of one relation are inherited.
const MAX_LINKS: usize = 4;

/// The longest media type that is used, in bytes: its two names have at most 127 each (RFC 6838, section 4.2).
pub(super) const MAX_MEDIA_TYPE: usize = 255;

/// The relations that hold for any copy of a resource (RS-183). Others do not: mirrors, alternates and versions are those of the Source's own
/// resource, and a patch begins at a version of it.
const INHERITED: [Relation; 3] = [Relation::Canonical, Relation::Collection, Relation::DescribedBy];

/// What is known of the original of a resource besides its representation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    /// The original, if the Source has the resource from somewhere else: the first Source of all counts, not each hop (RS-181).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) original: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    /// Relation and target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) links: Vec<(String, String)>,
}

impl Provenance {
    pub(crate) fn of(entry: &Entry, url: &Url) -> Self {
        let original = entry.link(&Relation::Via).and_then(|link| led_to(url, &link.href)).map(String::from);
        let media_type = entry
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.media_type.clone())
            .filter(|media_type| media_type.len() <= MAX_MEDIA_TYPE);
        let mut links = Vec::new();
        for relation in &INHERITED {
            let targets = entry.links_with(relation).filter_map(|link| led_to(url, &link.href));
            let targets = targets.take(MAX_LINKS).map(|target| (relation.as_str().to_owned(), target.into()));
            links.extend(targets);
        }
        Self { original, media_type, links }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.original.is_none() && self.media_type.is_none() && self.links.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::document::{Link, Metadata};

    #[test]
    fn a_media_type_that_is_longer_than_any_is_not_inherited() {
        let inherited = |length: usize| {
            let media_type = Some("t".repeat(length));
            let metadata = Metadata { media_type, ..Metadata::default() };
            let entry = Entry::with_metadata("http://b.example/x", metadata);
            Provenance::of(&entry, &Url::parse(&entry.loc).unwrap()).media_type.map(|found| found.len())
        };
        assert_eq!([MAX_MEDIA_TYPE, MAX_MEDIA_TYPE + 1].map(inherited), [Some(MAX_MEDIA_TYPE), None]);
    }

    #[test]
    fn rs181_rs183_the_first_source_is_the_original_and_only_what_holds_for_a_copy_is_inherited() {
        let mut entry = Entry::new("http://b.example/x");
        let targets = [
            (Relation::Via, "http://a.example/x"),
            (Relation::Canonical, "/generic"),
            (Relation::Duplicate, "http://mirror.example/x"),
            (Relation::TimeGate, "http://b.example/timegate/x"),
            (Relation::Collection, "http://b.example/c"),
        ];
        entry.links.extend(targets.map(|(relation, target)| Link::new(relation, target)));
        let found = Provenance::of(&entry, &Url::parse(&entry.loc).unwrap());
        assert_eq!(found.original.as_deref(), Some("http://a.example/x"));
        let link = |relation: &str, target: &str| (relation.to_owned(), target.to_owned());
        let expected =
            [link("canonical", "http://b.example/generic"), link("collection", "http://b.example/c")];
        assert_eq!(found.links, expected);
        assert!(Provenance::of(&Entry::new("x"), &Url::parse("http://b.example/x").unwrap()).is_empty());
    }
}
