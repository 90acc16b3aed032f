//! The links that a Source gives with an original and its versions, and its TimeMaps (MEM-021, MEM-024, MEM-028, MEM-033, MEM-034).

use std::ops::Range;

use crate::websub::LinkHeader;

use super::{HttpDate, LINK_FORMAT_TYPE, Layout, Stamp, Version, Versions};

/// Most versions in one TimeMap (MEM-034).
pub const MAX_MEMENTOS: usize = 5_000;

/// One original and where its versions are.
///
/// Each relation has a link of its own, and each parameter is quoted: pywb reads no other form (MEM-024).
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// The URIs of the Source.
    pub layout: &'a Layout,
    /// The URI of the original, as the lists have it.
    pub original: &'a str,
}

impl Described<'_> {
    /// What an answer of the original itself says beside `links` (MEM-021).
    #[must_use]
    pub fn offer(self, links: LinkHeader) -> LinkHeader {
        links
            .push(self.layout.time_gate(self.original), "timegate")
            .push(self.layout.time_map(self.original), "timemap")
            .param("type", LINK_FORMAT_TYPE)
    }

    /// What a TimeGate says that leads to the version `chosen`, and what this version says itself (MEM-024, MEM-028).
    pub fn links(self, versions: Versions<'_, impl Version>, chosen: usize) -> LinkHeader {
        let links = self.offer(LinkHeader::default().push(self.original, "original"));
        versions.around(chosen).into_iter().fold(links, |links, (index, relation)| {
            match versions.stamp(index) {
                Some(stamp) => self.memento(links, stamp, &relation),
                None => links,
            }
        })
    }

    /// The TimeMap, or its page that begins with the version `from` or what came next (MEM-033). Above [`MAX_MEMENTOS`] versions
    /// it is one of pages (MEM-034). `None` where no version is left to tell.
    pub fn time_map(self, versions: Versions<'_, impl Version>, from: Option<Stamp>) -> Option<LinkHeader> {
        let (head, page) = self.time_map_in_parts(versions, from)?;
        let listed = page.filter_map(|index| versions.stamp(index));
        Some(listed.fold(head, |links, stamp| self.memento(links, stamp, "memento")))
    }

    /// The same in two parts, for who writes it piece by piece: its first links, and the positions of the versions that follow, each
    /// with [`listed`](Self::listed).
    pub fn time_map_in_parts(
        self,
        versions: Versions<'_, impl Version>,
        from: Option<Stamp>,
    ) -> Option<(LinkHeader, Range<usize>)> {
        let count = versions.count();
        let first = from.map_or(0, |from| versions.not_before(from));
        let page = first..first.saturating_add(MAX_MEMENTOS).min(count);
        if from.is_none() && page.end < count {
            return Some((self.pages(versions)?, 0..0));
        }
        let uri = match from {
            None => self.layout.time_map(self.original),
            Some(from) => self.layout.time_map_page(from, self.original),
        };
        let span = (versions.stamp(first)?.at, versions.stamp(page.end.checked_sub(1)?)?.at);
        Some((self.head(&uri, span), page))
    }

    /// The link to one version in a TimeMap.
    pub fn listed(self, stamp: Stamp) -> LinkHeader {
        self.memento(LinkHeader::default(), stamp, "memento")
    }

    fn pages(self, versions: Versions<'_, impl Version>) -> Option<LinkHeader> {
        let last = versions.count().checked_sub(1)?;
        let span = (versions.stamp(0)?.at, versions.stamp(last)?.at);
        let head = self.head(&self.layout.time_map(self.original), span);
        (0..=last).step_by(MAX_MEMENTOS).try_fold(head, |links, first| {
            let from = versions.stamp(first)?;
            let until = versions.stamp(last.min(first + MAX_MEMENTOS - 1))?;
            let uri = self.layout.time_map_page(from, self.original);
            Some(spanning(links.push(uri, "timemap"), (from.at, until.at)))
        })
    }

    /// How each TimeMap begins.
    fn head(self, uri: &str, span: (HttpDate, HttpDate)) -> LinkHeader {
        let links = LinkHeader::default()
            .push(self.original, "original")
            .push(self.layout.time_gate(self.original), "timegate")
            .push(uri, "self");
        spanning(links, span)
    }

    fn memento(self, links: LinkHeader, stamp: Stamp, relation: &str) -> LinkHeader {
        links
            .push(self.layout.memento(stamp, self.original), relation)
            .param("datetime", stamp.at.to_string())
    }
}

/// The parameters of a link to a TimeMap with the versions of `span`.
fn spanning(links: LinkHeader, (from, until): (HttpDate, HttpDate)) -> LinkHeader {
    links.param("type", LINK_FORMAT_TYPE).param("from", from.to_string()).param("until", until.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use url::Url;

    use super::*;
    use crate::{
        datetime::DateTime,
        memento::{TimeMapLink, VersionPath, link_format},
    };

    const A: &str = "https://s.example/a";

    fn layout() -> Layout {
        Layout::new("https://s.example/v/")
    }

    /// Versions that came to be in these seconds, which ascend.
    fn kept(seconds: impl IntoIterator<Item = i64>) -> Vec<Stamp> {
        let mut kept: Vec<Stamp> = Vec::new();
        for second in seconds {
            let first = Stamp::new(DateTime::from_unix_millis(second * 1000).unwrap(), 0);
            let ordinal = kept.last().filter(|last| last.at == first.at).map_or(0, |last| last.ordinal + 1);
            kept.push(Stamp { ordinal, ..first });
        }
        kept
    }

    /// What a TimeMap says, by our reader.
    fn said(links: &LinkHeader) -> Vec<TimeMapLink> {
        let base = Url::parse("https://s.example/").unwrap();
        links.iter().flat_map(|link| TimeMapLink::read(link, &base)).collect()
    }

    fn stamps(links: &LinkHeader) -> Vec<Stamp> {
        let layout = layout();
        let stamp = |link: TimeMapLink| {
            let TimeMapLink::Memento { uri, .. } = link else { return None };
            let Some(VersionPath::Memento { stamp, .. }) = layout.read(&uri) else { return None };
            Some(stamp)
        };
        said(links).into_iter().filter_map(stamp).collect()
    }

    #[test]
    fn mem021_an_original_names_its_time_gate_and_its_time_map_beside_its_other_links() {
        let links = LinkHeader::default().push("https://s.example/capabilitylist.xml", "resourcesync");
        assert_eq!(
            Described { layout: &layout(), original: A }.offer(links).to_string(),
            "<https://s.example/capabilitylist.xml>; rel=\"resourcesync\", \
             <https://s.example/v/https://s.example/a>; rel=\"timegate\", \
             <https://s.example/v/timemap/link/https://s.example/a>; rel=\"timemap\"; type=\"application/link-format\""
        );
    }

    #[test]
    fn mem024_a_time_gate_names_original_time_map_and_the_neighbours_with_their_dates() {
        let kept = kept([0, 60, 120]);
        let links = Described { layout: &layout(), original: A }.links(Versions::of(&kept), 1);
        assert_eq!(
            links.to_string(),
            "<https://s.example/a>; rel=\"original\", \
             <https://s.example/v/https://s.example/a>; rel=\"timegate\", \
             <https://s.example/v/timemap/link/https://s.example/a>; rel=\"timemap\"; type=\"application/link-format\", \
             <https://s.example/v/19700101000000/https://s.example/a>; rel=\"first prev memento\"; \
             datetime=\"Thu, 01 Jan 1970 00:00:00 GMT\", \
             <https://s.example/v/19700101000100/https://s.example/a>; rel=\"memento\"; \
             datetime=\"Thu, 01 Jan 1970 00:01:00 GMT\", \
             <https://s.example/v/19700101000200/https://s.example/a>; rel=\"next last memento\"; \
             datetime=\"Thu, 01 Jan 1970 00:02:00 GMT\""
        );
    }

    #[test]
    fn mem033_a_time_map_tells_its_span_and_each_version_ascending() {
        let kept = kept([0, 0, 60]);
        let links = Described { layout: &layout(), original: A }.time_map(Versions::of(&kept), None);
        assert_eq!(
            link_format::write(&links.unwrap()),
            "<https://s.example/a>; rel=\"original\",\n\
             <https://s.example/v/https://s.example/a>; rel=\"timegate\",\n\
             <https://s.example/v/timemap/link/https://s.example/a>; rel=\"self\"; type=\"application/link-format\"; \
             from=\"Thu, 01 Jan 1970 00:00:00 GMT\"; until=\"Thu, 01 Jan 1970 00:01:00 GMT\",\n\
             <https://s.example/v/19700101000000/https://s.example/a>; rel=\"memento\"; \
             datetime=\"Thu, 01 Jan 1970 00:00:00 GMT\",\n\
             <https://s.example/v/19700101000000-1/https://s.example/a>; rel=\"memento\"; \
             datetime=\"Thu, 01 Jan 1970 00:00:00 GMT\",\n\
             <https://s.example/v/19700101000100/https://s.example/a>; rel=\"memento\"; \
             datetime=\"Thu, 01 Jan 1970 00:01:00 GMT\"\n"
        );
    }

    #[test]
    fn mem034_above_5_000_versions_a_time_map_is_one_of_time_maps() {
        let layout = layout();
        let described = Described { layout: &layout, original: A };
        let just_enough = kept(0..5_000);
        assert_eq!(stamps(&described.time_map(Versions::of(&just_enough), None).unwrap()).len(), 5_000);
        let too_many = kept(0..5_001);
        let index = described.time_map(Versions::of(&too_many), None).unwrap();
        assert!(stamps(&index).is_empty());
        let pages =
            said(&index).into_iter().filter(|link| matches!(link, TimeMapLink::TimeMap { .. })).count();
        assert_eq!(pages, 2);
    }

    #[test]
    fn mem034_a_page_whose_first_version_was_removed_begins_with_the_next() {
        let layout = layout();
        let described = Described { layout: &layout, original: A };
        let kept = kept([60, 120]);
        let page = |from: &str| described.time_map(Versions::of(&kept), Some(from.parse().unwrap()));
        assert_eq!(stamps(&page("19700101000000").unwrap()).len(), 2);
        assert_eq!(stamps(&page("19700101000101").unwrap()).len(), 1);
        assert_eq!(page("19700101000201"), None);
        assert_eq!(described.time_map(Versions::<Stamp>::of(&[]), None), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn mem034_the_pages_of_a_time_map_have_each_version_once(step in 0_i64..3, count in 4_990_i64..16_000) {
            let layout = layout();
            let described = Described { layout: &layout, original: A };
            let kept = kept((0..count).map(|n| n * step));
            let versions = Versions::of(&kept);
            let whole = described.time_map(versions, None).unwrap();
            let mut found = stamps(&whole);
            for link in said(&whole) {
                let TimeMapLink::TimeMap { uri, .. } = link else { continue };
                let Some(VersionPath::TimeMap { from, .. }) = layout.read(&uri) else {
                    return Err(TestCaseError::fail(uri));
                };
                found.extend(stamps(&described.time_map(versions, from).unwrap()));
            }
            let expected: Vec<Stamp> = (0..versions.count()).filter_map(|index| versions.stamp(index)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
