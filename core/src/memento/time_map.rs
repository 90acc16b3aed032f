//! What the links of a TimeMap mean, read from anybody's (RFC 7089, section 5; MEM-054, MEM-058).

use url::Url;

use crate::websub::LinkValue;

use super::HttpDate;

/// One thing that a TimeMap says. All URIs are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeMapLink {
    /// Of which resource it has the versions.
    Original(String),
    /// Where a version is negotiated.
    TimeGate(String),
    /// Another TimeMap with further versions (MEM-034).
    TimeMap {
        /// Where it is.
        uri: String,
        /// The moment of its first version, where it is given.
        from: Option<HttpDate>,
        /// The moment of its last version, where it is given.
        until: Option<HttpDate>,
    },
    /// One version.
    Memento {
        /// Where it is.
        uri: String,
        /// Its moment.
        at: HttpDate,
    },
}

impl TimeMapLink {
    /// What one link says: several things where it has several relations, nothing where it has none of these. A memento without a
    /// date that can be read says nothing, and neither does the link of a TimeMap to itself.
    pub fn read(link: &LinkValue, base: &Url) -> Vec<Self> {
        let Some(uri) = link.target_from(base) else { return Vec::new() };
        let date = |name| link.param(name).and_then(|text| text.parse().ok());
        let original = link.has_rel("original").then(|| Self::Original(uri.clone()));
        let time_gate = link.has_rel("timegate").then(|| Self::TimeGate(uri.clone()));
        let is_other = link.has_rel("timemap") && !link.has_rel("self");
        let time_map =
            is_other.then(|| Self::TimeMap { uri: uri.clone(), from: date("from"), until: date("until") });
        let memento = date("datetime").filter(|_| link.has_rel("memento"));
        let memento = memento.map(|at| Self::Memento { uri: uri.clone(), at });
        [original, time_gate, time_map, memento].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websub::LinkHeader;

    fn read(text: &str) -> Vec<TimeMapLink> {
        let base = Url::parse("https://archive.example/timemap/x").unwrap();
        LinkHeader::parse([text]).iter().flat_map(|link| TimeMapLink::read(link, &base)).collect()
    }

    #[test]
    fn mem058_relations_dates_and_relative_targets_are_understood() {
        let at = "Tue, 20 Jun 2000 18:02:59 GMT";
        assert_eq!(
            read("</web/1>; rel=\"first memento\"; datetime=\"Tue, 20 Jun 2000 18:02:59 GMT\""),
            [TimeMapLink::Memento {
                uri: "https://archive.example/web/1".to_owned(),
                at: at.parse().unwrap()
            }]
        );
        assert_eq!(
            read("<https://s.example/>; rel=\"original timegate\""),
            [
                TimeMapLink::Original("https://s.example/".to_owned()),
                TimeMapLink::TimeGate("https://s.example/".to_owned())
            ]
        );
        assert_eq!(
            read("<2>; rel=timemap; from=\"Tue, 20 Jun 2000 18:02:59 GMT\"; until=\"soon\""),
            [TimeMapLink::TimeMap {
                uri: "https://archive.example/timemap/2".to_owned(),
                from: at.parse().ok(),
                until: None
            }]
        );
    }

    #[test]
    fn mem058_a_memento_without_a_date_and_a_time_map_itself_say_nothing() {
        let silent = [
            "</web/1>; rel=memento",
            "</web/1>; rel=memento; datetime=\"2000-06-20\"",
            "</web/1>; rel=license; datetime=\"Tue, 20 Jun 2000 18:02:59 GMT\"",
            "<x>; rel=\"self timemap\"",
            "<x>; rel=self",
            "<http://[>; rel=original",
        ];
        for text in silent {
            assert_eq!(read(text), [], "{text}");
        }
    }
}
