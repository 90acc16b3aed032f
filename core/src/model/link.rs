//! `rs:ln`: how a document or an entry is related to something else (RS-019, RS-058).

use super::ForeignAttribute;
use super::tokens::open_tokens;
use crate::datetime::DateTime;
use crate::digest::Hashes;

open_tokens! {
    /// A link relation: those the specifications use, and any other (RS-057).
    Relation,
    /// The value of the `rel` attribute.
    as_str {
        /// `up`: one level towards the Source Description (RS-053).
        Up = "up";
        /// `index`: the index that the document lies under (RS-054, FN-006).
        Index = "index";
        /// `describedby`: a description of this (RS-056).
        DescribedBy = "describedby";
        /// `archives`: the archive of this kind of document (AR-004).
        Archives = "archives";
        /// `contents`: an external copy of a package's manifest (RS-103).
        Contents = "contents";
        /// `duplicate`: a mirror (RS-171).
        Duplicate = "duplicate";
        /// `alternate`: another representation (RS-172).
        Alternate = "alternate";
        /// `canonical`: the generic URI (RS-173).
        Canonical = "canonical";
        /// `http://www.openarchives.org/rs/terms/patch`: a change against the previous version (RS-174).
        Patch = "http://www.openarchives.org/rs/terms/patch";
        /// `describes`: what this describes (RS-177).
        Describes = "describes";
        /// `memento`: this version at a URI of its own (RS-178).
        Memento = "memento";
        /// `timegate`: negotiation between versions (RS-178).
        TimeGate = "timegate";
        /// `timemap`: a list of versions (RS-178).
        TimeMap = "timemap";
        /// `collection`: a collection this belongs to (RS-179).
        Collection = "collection";
        /// `via`: the original Source's resource (RS-180).
        Via = "via";
        /// `profile`: the kind of metadata (RS-177).
        Profile = "profile";
        /// `hub`: the hub of a channel (FN-060).
        Hub = "hub";
    }
    /// Any other registered relation or URI, kept as written. Make it with `Relation::from`, which knows those above.
    Other
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
