//! One `url` or `sitemap` element (RS-045, RS-047).

use thiserror::Error;

use super::tokens::tokens;
use super::{Capability, Change, Link, Metadata, Priority, Relation};
use crate::datetime::DateTime;

/// One entry of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The URI of what the entry is about. Empty where a reader found none, which breaks RS-047.
    pub loc: String,
    /// When the representation was last modified; never the moment of a change (RS-031).
    pub lastmod: Option<DateTime>,
    /// How often it is expected to change.
    pub changefreq: Option<ChangeFrequency>,
    /// How important it is among the entries of its site, which only the sitemap protocol asks.
    pub priority: Option<Priority>,
    /// The entry's `rs:md`.
    pub metadata: Option<Metadata>,
    /// The entry's `rs:ln`, in document order.
    pub links: Vec<Link>,
}

impl Entry {
    /// An entry with a `loc` and nothing else.
    pub fn new(loc: impl Into<String>) -> Self {
        Self { loc: loc.into(), ..Self::default() }
    }

    /// An entry with a `loc` and an `rs:md`.
    pub fn with_metadata(loc: impl Into<String>, metadata: Metadata) -> Self {
        Self { metadata: Some(metadata), ..Self::new(loc) }
    }

    /// What the document that the entry points at is.
    pub fn capability(&self) -> Option<&Capability> {
        self.metadata.as_ref().and_then(|metadata| metadata.capability.as_ref())
    }

    /// How the entry's resource changed.
    pub fn change(&self) -> Option<Change> {
        self.metadata.as_ref().and_then(|metadata| metadata.change)
    }

    /// The first link with this relation.
    pub fn link(&self, relation: &Relation) -> Option<&Link> {
        self.links_with(relation).next()
    }

    /// Every link with this relation, in document order.
    pub fn links_with<'a>(&'a self, relation: &Relation) -> impl Iterator<Item = &'a Link> {
        self.links.iter().filter(move |link| link.rel == *relation)
    }
}

tokens! {
    /// How often something is expected to change (RS-032), most often first.
    ChangeFrequency or ChangeFrequencyError {
        /// On each access.
        Always = "always";
        /// Every hour.
        Hourly = "hourly";
        /// Every day.
        Daily = "daily";
        /// Every week.
        Weekly = "weekly";
        /// Every month.
        Monthly = "monthly";
        /// Every year.
        Yearly = "yearly";
        /// Never: it is archived.
        Never = "never";
    }
}

/// A `changefreq` value other than the seven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a change frequency is one of always, hourly, daily, weekly, monthly, yearly, never")]
pub struct ChangeFrequencyError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rs032_every_frequency_is_read_back() {
        for frequency in ChangeFrequency::ALL {
            assert_eq!(frequency.token().parse(), Ok(frequency));
        }
        assert!("sometimes".parse::<ChangeFrequency>().is_err());
    }

    #[test]
    fn links_are_found_by_relation_in_document_order() {
        let mut entry = Entry::new("http://example.org/a");
        for href in ["http://hub.example.org/1", "http://hub.example.org/2"] {
            entry.links.push(Link::new(Relation::Hub, href));
            entry.links.push(Link::new(Relation::Via, "http://example.org/origin"));
        }
        let hubs: Vec<_> = entry.links_with(&Relation::Hub).map(|link| link.href.as_str()).collect();
        assert_eq!(hubs, ["http://hub.example.org/1", "http://hub.example.org/2"]);
        assert_eq!(entry.link(&Relation::Up), None);
    }
}
