//! Links to related resources: each relation with what it may carry (RS-170 to RS-183).

use super::{Link, Relation};
use crate::datetime::DateTime;
use crate::digest::Hashes;

/// The related resources of C14. What a relation asks for is a parameter, what it may carry is a method.
///
/// ```
/// use resync_core::document::{Link, Resource};
///
/// let resource = Resource::new("https://example.org/report")
///     .link(Link::mirror("https://mirror.example.net/report").pri(1))
///     .link(Link::alternate("https://example.org/report.pdf").media_type("application/pdf"))
///     .link(Link::described_by("https://example.org/report.dc.xml"))
///     .link(Link::timegate("https://example.org/timegate/report"));
/// # let _ = resource;
/// ```
impl Link {
    /// The same resource elsewhere, which the Source prefers to `loc` (RS-171).
    pub fn mirror(href: impl Into<String>) -> Mirror {
        Mirror(Self::new(Relation::Duplicate, href))
    }

    /// Another representation at a URI of its own (RS-172).
    pub fn alternate(href: impl Into<String>) -> Related {
        Related(Self::new(Relation::Alternate, href))
    }

    /// The generic URI of which `loc` is a specific one (RS-173).
    pub fn canonical(href: impl Into<String>) -> Related {
        Related(Self::new(Relation::Canonical, href))
    }

    /// What makes the new version from the previous one; the media type says how (RS-174).
    pub fn patch(href: impl Into<String>, media_type: impl Into<String>) -> Patch {
        Patch(Self { media_type: Some(media_type.into()), ..Self::new(Relation::Patch, href) })
    }

    /// Metadata about the resource (RS-177).
    pub fn described_by(href: impl Into<String>) -> Related {
        Related(Self::new(Relation::DescribedBy, href))
    }

    /// The resource that this metadata is about (RS-177).
    pub fn describes(href: impl Into<String>) -> Related {
        Related(Self::new(Relation::Describes, href))
    }

    /// The kind of metadata that this resource is: the URI of a namespace or schema (RS-177).
    pub fn profile(href: impl Into<String>) -> Self {
        Self::new(Relation::Profile, href)
    }

    /// This very version at a URI of its own (RS-178).
    pub fn memento(href: impl Into<String>) -> Related {
        Related(Self::new(Relation::Memento, href))
    }

    /// Where versions are negotiated by date; carries nothing else (RS-178).
    pub fn timegate(href: impl Into<String>) -> Self {
        Self::new(Relation::TimeGate, href)
    }

    /// The list of versions (RS-178).
    pub fn timemap(href: impl Into<String>) -> Related {
        Related(Self::new(Relation::TimeMap, href))
    }

    /// A collection that the resource belongs to (RS-179).
    pub fn collection(href: impl Into<String>) -> Self {
        Self::new(Relation::Collection, href)
    }

    /// The resource at the original Source, for one who publishes it again (RS-180); only the original, not every hop
    /// (RS-181).
    pub fn via(href: impl Into<String>) -> Related {
        Related(Self::new(Relation::Via, href))
    }
}

/// A link to a mirror. What it has in common with the resource is not said again (RS-171).
#[derive(Clone, Debug)]
#[must_use]
pub struct Mirror(Link);

/// A link to a patch, for the `patch` of [`ResourceChange`](super::ResourceChange) and
/// [`PackedChange`](super::PackedChange) only (RS-174).
#[derive(Clone, Debug)]
#[must_use]
pub struct Patch(Link);

/// A link to something that has a representation of its own.
#[derive(Clone, Debug)]
#[must_use]
pub struct Related(Link);

macro_rules! link_methods {
    ($link:ident: $($method:ident)*) => {
        impl $link {
            $(link_method!($method);)*
        }
    };
}

macro_rules! link_method {
    (pri) => {
        /// Preference among links of the same relation: 1 comes first, 999999 last (RS-041).
        pub fn pri(mut self, pri: u32) -> Self {
            self.0.pri = Some(pri);
            self
        }
    };
    (modified) => {
        /// When the target was last modified.
        pub fn modified(mut self, modified: DateTime) -> Self {
            self.0.modified = Some(modified);
            self
        }
    };
    (hashes) => {
        /// Digests of the target.
        pub fn hashes(mut self, hashes: Hashes) -> Self {
            self.0.hash = hashes;
            self
        }
    };
    (length) => {
        /// Length of the target in bytes.
        pub fn length(mut self, length: u64) -> Self {
            self.0.length = Some(length);
            self
        }
    };
    (media_type) => {
        /// Media type of the target.
        pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
            self.0.media_type = Some(media_type.into());
            self
        }
    };
    (encoding) => {
        /// What `Content-Encoding` says of the target.
        pub fn encoding(mut self, encoding: impl Into<String>) -> Self {
            self.0.encoding = Some(encoding.into());
            self
        }
    };
    (profile) => {
        /// A URI that makes the media type of the target more precise (RS-019).
        pub fn with_profile(mut self, profile: impl Into<String>) -> Self {
            self.0.profile = Some(profile.into());
            self
        }
    };
}

link_methods!(Mirror: pri modified);
link_methods!(Patch: pri modified hashes length encoding profile);
link_methods!(Related: pri modified hashes length media_type encoding profile);

impl Patch {
    pub(super) fn into_link(self) -> Link {
        self.0
    }
}

impl From<Mirror> for Link {
    fn from(mirror: Mirror) -> Self {
        mirror.0
    }
}

impl From<Related> for Link {
    fn from(related: Related) -> Self {
        related.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rs171_to_rs180_each_constructor_makes_its_relation() {
        let href = "http://example.org/x";
        let links: [(Link, &str); 12] = [
            (Link::mirror(href).pri(2).into(), "duplicate"),
            (Link::alternate(href).into(), "alternate"),
            (Link::canonical(href).into(), "canonical"),
            (
                Link::patch(href, "application/json-patch+json").into_link(),
                "http://www.openarchives.org/rs/terms/patch",
            ),
            (Link::described_by(href).into(), "describedby"),
            (Link::describes(href).into(), "describes"),
            (Link::profile(href), "profile"),
            (Link::memento(href).into(), "memento"),
            (Link::timegate(href), "timegate"),
            (Link::timemap(href).into(), "timemap"),
            (Link::collection(href), "collection"),
            (Link::via(href).into(), "via"),
        ];
        for (link, relation) in links {
            assert_eq!((link.rel.as_str(), link.href.as_str()), (relation, href));
        }
    }
}
