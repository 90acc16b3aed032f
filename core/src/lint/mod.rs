//! A whole site checked: every document that one document leads to, and what they say of each other (IN-001 to IN-003).
//!
//! [`rules`](crate::rules) see one document. This room follows its links (`up`, `index`, `archives`, `contents`, the
//! entries of Source Descriptions, Capability Lists, indexes and archives), checks each document it comes to, and then
//! whether they agree: the way up ends at the Source Description, indexes and their documents name each other and the
//! same times, changes go on from one list to the next, manifests are equal in content to those in their packages.
//! Channels are not followed, since a topic is no document (FN-063).
//!
//! How bytes are come by is the caller's: [`Fetch`] is a web client, a folder or a map.
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
//!         let bytes = self.0.get(url).ok_or_else(|| FetchFailure::new("404 Not Found"))?;
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
//! assert!(lost.violations.to_string().starts_with("IN-002: "));
//! # Ok::<(), resync_core::rules::Violations>(())
//! ```

mod chain;
mod fetch;
mod reading;
mod relations;
mod report;
mod site;
#[cfg(test)]
mod tests;

pub use chain::check_chain;
pub use fetch::{Fetch, FetchFailure, Fetched};
pub use report::{Checked, Kind, Report};

use site::Site;

/// Most documents of one check, unless [`Check::documents`] says otherwise.
pub const MAX_DOCUMENTS: usize = 10_000;
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
}

impl Check {
    /// How many documents are looked at; what lies beyond is counted in [`Report::omitted`].
    pub fn documents(mut self, most: usize) -> Self {
        self.documents = most;
        self
    }

    /// Checks everything that the document at `start` leads to.
    pub fn run(self, fetch: &mut (impl Fetch + ?Sized), start: &str) -> Report {
        self.run_all(fetch, [start])
    }

    /// The same from several documents, such as all of a folder when none leads to the others.
    pub fn run_all<'u>(
        self,
        fetch: &mut (impl Fetch + ?Sized),
        starts: impl IntoIterator<Item = &'u str>,
    ) -> Report {
        let mut site = Site::new(self.documents);
        site.crawl(fetch, starts);
        relations::check(&mut site);
        site.into_report()
    }
}

impl Default for Check {
    fn default() -> Self {
        Self { documents: MAX_DOCUMENTS }
    }
}
