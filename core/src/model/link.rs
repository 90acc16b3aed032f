//! `rs:ln`: how a document or an entry is related to something else (RS-019, RS-058).

use std::fmt;

use super::ForeignAttribute;
use crate::datetime::DateTime;
use crate::digest::Hashes;

/// A link relation: those the specifications use, and any other (RS-057).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Relation {
    /// `up`: one level towards the Source Description (RS-053).
    Up,
    /// `index`: the index that the document lies under (RS-054, FN-006).
    Index,
    /// `describedby`: a description of this (RS-056).
    DescribedBy,
    /// `archives`: the archive of this kind of document (AR-004).
    Archives,
    /// `contents`: an external copy of a package's manifest (RS-103).
    Contents,
    /// `duplicate`: a mirror (RS-171).
    Duplicate,
    /// `alternate`: another representation (RS-172).
    Alternate,
    /// `canonical`: the generic URI (RS-173).
    Canonical,
    /// `http://www.openarchives.org/rs/terms/patch`: a change against the previous version (RS-174).
    Patch,
    /// `describes`: what this describes (RS-177).
    Describes,
    /// `memento`: this version at a URI of its own (RS-178).
    Memento,
    /// `timegate`: negotiation between versions (RS-178).
    TimeGate,
    /// `timemap`: a list of versions (RS-178).
    TimeMap,
    /// `collection`: a collection this belongs to (RS-179).
    Collection,
    /// `via`: the original Source's resource (RS-180).
    Via,
    /// `profile`: the kind of metadata (RS-177).
    Profile,
    /// `hub`: the hub of a channel (FN-060).
    Hub,
    /// Any other registered relation or URI, kept as written. Make it with `Relation::from`, which knows those above.
    Other(Box<str>),
}

impl Relation {
    /// Every relation that the specifications use.
    pub const DEFINED: [Self; 17] = [
        Self::Up,
        Self::Index,
        Self::DescribedBy,
        Self::Archives,
        Self::Contents,
        Self::Duplicate,
        Self::Alternate,
        Self::Canonical,
        Self::Patch,
        Self::Describes,
        Self::Memento,
        Self::TimeGate,
        Self::TimeMap,
        Self::Collection,
        Self::Via,
        Self::Profile,
        Self::Hub,
    ];

    /// The value of the `rel` attribute.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Up => "up",
            Self::Index => "index",
            Self::DescribedBy => "describedby",
            Self::Archives => "archives",
            Self::Contents => "contents",
            Self::Duplicate => "duplicate",
            Self::Alternate => "alternate",
            Self::Canonical => "canonical",
            Self::Patch => "http://www.openarchives.org/rs/terms/patch",
            Self::Describes => "describes",
            Self::Memento => "memento",
            Self::TimeGate => "timegate",
            Self::TimeMap => "timemap",
            Self::Collection => "collection",
            Self::Via => "via",
            Self::Profile => "profile",
            Self::Hub => "hub",
            Self::Other(relation) => relation,
        }
    }
}

impl From<&str> for Relation {
    fn from(text: &str) -> Self {
        Self::DEFINED
            .into_iter()
            .find(|relation| relation.as_str() == text)
            .unwrap_or_else(|| Self::Other(text.into()))
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One `rs:ln`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// How the target is related.
    pub rel: Relation,
    /// The target's URI.
    pub href: String,
    /// What `Content-Encoding` says of the target's representation.
    pub encoding: Option<String>,
    /// Digests of the target.
    pub hash: Hashes,
    /// Length of the target in bytes.
    pub length: Option<u64>,
    /// When the target was last modified.
    pub modified: Option<DateTime>,
    /// Where the target lies in the package, in manifests only (RS-040).
    pub path: Option<String>,
    /// Preference among links of the same relation, 1 (first) to 999999 (last, as when absent) (RS-041).
    pub pri: Option<u32>,
    /// The media type of the target; the attribute is called `type`.
    pub media_type: Option<String>,
    /// A URI that makes the media type more precise (RS-019).
    pub profile: Option<String>,
    /// Attributes of other communities (RS-016), kept for a round trip.
    pub foreign: Vec<ForeignAttribute>,
}

impl Link {
    /// A link with the two attributes that are mandatory.
    pub fn new(rel: Relation, href: impl Into<String>) -> Self {
        Self {
            rel,
            href: href.into(),
            encoding: None,
            hash: Hashes::default(),
            length: None,
            modified: None,
            path: None,
            pri: None,
            media_type: None,
            profile: None,
            foreign: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rs058_every_relation_is_read_back_and_any_other_is_kept() {
        for relation in Relation::DEFINED {
            assert_eq!(Relation::from(relation.as_str()), relation);
        }
        assert_eq!(Relation::from("license").as_str(), "license");
    }
}
