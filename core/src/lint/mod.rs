//! A whole site checked: every document that one document leads to, and what they say of each other (IN-001 to IN-003).
//!
//! [`rules`](crate::rules) see one document. This module follows its links (`up`, `index`, `archives`, `contents`, the
//! entries of Source Descriptions, Capability Lists, indexes and archives), checks each document it comes to, and then
//! whether they agree: the way up ends at the Source Description, indexes and their documents name each other and the
//! same times, changes go on from one list to the next, manifests are equal in content to those in their packages, and
//! packages hold what they say. A topic is no document (FN-063): it is asked only for its links (FN-031). Of the TimeGates, TimeMaps
//! and mementos that entries link to, a few are tried (MEM-022, MEM-028, MEM-033).
//!
//! The caller provides the bytes: [`Fetch`] is a web client, a folder or a map. A site may be hostile: documents, requests,
//! links and what is kept of each are bounded, and a [`Report`] says what was left out.
//!
//! ```
//! use std::collections::HashMap;
//! use resync_core::document::{CapabilityList, SourceDescription};
//! use resync_core::lint::{self, Fetch, FetchFailure, Fetched};
//! use resync_core::xml;
//!
//! struct Site(HashMap<&'static str, Vec<u8>>);
//!
//! impl Fetch for Site {
//!     fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
//!         let bytes = self.0.get(url).ok_or_else(|| FetchFailure::new("there is no such document"))?;
//!         Ok(Fetched {
//!             bytes: bytes.clone(),
//!             content_type: Some("application/xml".to_owned()),
//!             last_url: url.to_owned(),
//!         })
//!     }
//! }
//!
//! const SOURCE: &str = "https://example.org/.well-known/resourcesync";
//! const THESES: &str = "https://example.org/theses/capabilitylist.xml";
//! const ABOUT: &str = "https://example.org/about.html";
//! let description =
//!     SourceDescription::new().described_by(ABOUT).capability_list_described_by(THESES, ABOUT).build()?;
//! let theses = CapabilityList::new("https://example.org/elsewhere.xml").described_by(ABOUT).build()?;
//! let mut site = Site(HashMap::from([(SOURCE, xml::write(&description)), (THESES, xml::write(&theses))]));
//!
//! let report = lint::check(&mut site, SOURCE);
//! assert_eq!((report.errors(), report.warnings()), (1, 0));
//! let lost = &report.documents[2];
//! assert_eq!(lost.url, "https://example.org/elsewhere.xml");
//! assert!(lost.violations.to_string().starts_with("IN-002 Unreachable: "));
//! # Ok::<(), resync_core::rules::Violations>(())
//! ```

mod chain;
mod fetch;
mod package;
mod reading;
mod relations;
mod report;
mod site;
mod tally;
#[cfg(test)]
mod tests;
mod topic;
mod uniform;
mod versions;

pub use fetch::{Fetch, FetchFailure, Fetched, Method, PackageBytes, TopicAnswer, VersionAnswer};
pub use report::{Checked, Kind, Report, Stopped};

use site::Site;

/// Most documents of one check, unless [`Check::documents`] says otherwise.
pub const MAX_DOCUMENTS: usize = 10_000;
/// Most requests of one check, unless [`Check::requests`] says otherwise: documents, packages and topics.
pub const MAX_REQUESTS: usize = 30_000;
/// Most violations that a [`Report`] keeps; the rest is only counted.
pub const MAX_KEPT: usize = 50_000;

/// Checks everything that the document at `start` leads to.
pub fn check(fetch: &mut (impl Fetch + ?Sized), start: &str) -> Report {
    Check::default().run(fetch, start)
}

/// A check with limits of its own.
///
/// Memory depends on how many documents there are and not on how long they are: entries stream by, and of each
/// document only its times and links are kept.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Check {
    documents: usize,
    requests: usize,
    is_in_order: bool,
    is_under_way: bool,
}

impl Check {
    /// How many documents are looked at; what lies beyond is counted in [`Report::omitted`], and the check is not
    /// [complete](Report::is_complete).
    pub fn documents(mut self, most: usize) -> Self {
        self.documents = most;
        self
    }

    /// How often [`Fetch`] is asked for something; then the check ends with what it has ([`Report::stopped`]).
    pub fn requests(mut self, most: usize) -> Self {
        self.requests = most;
        self
    }

    /// The Change Notifications come in the order they were sent, so that one that is out of order is reported (CN-008). Otherwise those that
    /// point up to one Capability List are taken in the order of their intervals, and others may be of several sets.
    pub fn in_order(mut self) -> Self {
        self.is_in_order = true;
        self
    }

    /// A run that writes the documents is under way, or was cut short. A list is closed before its index says so (RS-130), so what an index does
    /// not say yet breaks no rule (RS-125): it is counted in [`Report::indexes_late`].
    pub fn under_way(mut self) -> Self {
        self.is_under_way = true;
        self
    }

    /// Checks everything that the document at `start` leads to.
    pub fn run(self, fetch: &mut (impl Fetch + ?Sized), start: &str) -> Report {
        self.run_all(fetch, [start], [])
    }

    /// Checks everything that several documents lead to. Each of `others` that nothing leads to is checked by itself, and is
    /// [unreached](Checked::is_unreached) where there are starts; its links are not followed.
    ///
    /// ```
    /// use resync_core::lint::{Check, Fetch, FetchFailure, Fetched};
    ///
    /// struct Folder;
    ///
    /// impl Fetch for Folder {
    ///     fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
    ///         let bytes = std::fs::read(url).map_err(|error| FetchFailure::new(error.to_string()))?;
    ///         let content_type = Some("application/xml".to_owned());
    ///         Ok(Fetched { bytes, content_type, last_url: url.to_owned() })
    ///     }
    /// }
    ///
    /// let report = Check::default().in_order().run_all(&mut Folder, [], ["1.xml", "2.xml"]);
    /// assert_eq!(report.documents.len(), 2);
    /// ```
    pub fn run_all<'u>(
        self,
        fetch: &mut (impl Fetch + ?Sized),
        starts: impl IntoIterator<Item = &'u str>,
        others: impl IntoIterator<Item = &'u str>,
    ) -> Report {
        let mut site = Site::new(self.documents, self.requests);
        site.is_under_way = self.is_under_way;
        site.crawl(fetch, starts, others);
        relations::check(&mut site, self.is_in_order);
        site.into_report()
    }
}

impl Default for Check {
    fn default() -> Self {
        Self { documents: MAX_DOCUMENTS, requests: MAX_REQUESTS, is_in_order: false, is_under_way: false }
    }
}
