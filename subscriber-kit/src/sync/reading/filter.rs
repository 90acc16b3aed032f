//! Which of a Source's resources are wanted.

use resync_core::datetime::DateTime;
use resync_core::document::{Entry, Relation};
use resync_core::media_type::essence;

/// Which resources are copied. Others are not fetched, not deleted, and not counted as missing.
///
/// An empty filter wants everything. In patterns `*` stands for any text, `?` for one character.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Media types, such as `text/html` or `image/*`. A resource without a type matches none.
    pub types: Vec<String>,
    /// Patterns of URIs; one must match.
    pub include: Vec<String>,
    /// Patterns of URIs; none may match.
    pub exclude: Vec<String>,
    /// Only resources modified at this time or later, and those without a time.
    pub modified_since: Option<DateTime>,
    /// URIs of collections; a resource must be in one of them (RS-179).
    pub collections: Vec<String>,
    /// Only resources that describe others (RS-177).
    pub only_metadata: bool,
}

impl Filter {
    /// Whether this resource is wanted.
    #[must_use]
    pub fn admits(&self, entry: &Entry) -> bool {
        self.is_of_type(entry)
            && self.has_a_wanted_uri(&entry.loc)
            && self.is_new_enough(entry)
            && self.is_in_a_collection(entry)
            && (!self.only_metadata || entry.link(&Relation::Describes).is_some())
    }

    fn is_of_type(&self, entry: &Entry) -> bool {
        let written = entry.metadata.as_ref().and_then(|metadata| metadata.media_type.as_deref());
        self.types.is_empty() || self.types.iter().any(|pattern| matches_type(pattern, written))
    }

    /// Whether it excludes no URI.
    pub(crate) fn wants_every_uri(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether the URI is wanted; of deleted resources nothing else may be known.
    pub(crate) fn has_a_wanted_uri(&self, loc: &str) -> bool {
        let fits = |pattern: &String| matches(pattern, loc);
        (self.include.is_empty() || self.include.iter().any(fits)) && !self.exclude.iter().any(fits)
    }

    fn is_new_enough(&self, entry: &Entry) -> bool {
        self.modified_since.is_none_or(|since| entry.lastmod.is_none_or(|modified| modified >= since))
    }

    fn is_in_a_collection(&self, entry: &Entry) -> bool {
        let is_wanted = |link: &resync_core::document::Link| self.collections.contains(&link.href);
        self.collections.is_empty() || entry.links_with(&Relation::Collection).any(is_wanted)
    }
}

/// Whether a media type, without its parameters, matches the pattern.
pub(crate) fn matches_type(pattern: &str, written: Option<&str>) -> bool {
    written.map(essence).is_some_and(|essence| matches(&pattern.to_lowercase(), &essence.to_lowercase()))
}

/// Whether the whole text matches the pattern. Takes at most time proportional to the product of their lengths.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut read) = (0, 0);
    // Where to continue if the part after the last star does not match.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == text[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((place, begin)) = star else { return false };
                star = Some((place, begin + 1));
                (at, read) = (place + 1, begin + 1);
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::document::{Link, Metadata, Resource};

    #[test]
    fn a_pattern_fits_the_whole_text() {
        for (pattern, text) in
            [("*", ""), ("*.xml", "a/b.xml"), ("a?c", "abc"), ("*a*b*", "xxaxxbxx"), ("a*", "a")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "x"), ("*.xml", "b.xml.gz"), ("a?c", "ac"), ("*a*b*", "ba")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_pattern_made_from_a_text_fits_it(text in "[ab/]{0,12}", star in 0_usize..12, one in 0_usize..12) {
            let mut pattern: Vec<char> = text.chars().collect();
            if let Some(place) = pattern.get_mut(one) {
                *place = '?';
            }
            let (begin, _) = pattern.split_at(star.min(pattern.len()));
            let pattern: String = begin.iter().chain(['*'].iter()).collect();
            proptest::prop_assert!(matches(&pattern, &text));
        }
    }

    #[test]
    fn rs177_rs179_each_condition_counts() {
        let entry = |loc: &str| {
            let resource = Resource::new(loc).media_type("text/html; charset=utf-8");
            resource
                .lastmod("2026-11-20T09:00:00Z".parse().unwrap())
                .link(Link::collection("http://a.example/c"))
        };
        let page = Entry::from(entry("http://a.example/page"));
        let bare = Entry { metadata: Some(Metadata::default()), ..Entry::new("http://a.example/bare") };
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let all = Filter::default();
        assert!(all.admits(&page) && all.admits(&bare));
        let html = Filter { types: texts(&["TEXT/*"]), ..Filter::default() };
        assert!(html.admits(&page) && !html.admits(&bare));
        let pages = Filter { include: texts(&["*/page"]), exclude: texts(&["*/bare"]), ..Filter::default() };
        assert!(pages.admits(&page) && !pages.admits(&bare));
        let new =
            Filter { modified_since: Some("2026-11-20T10:00:00Z".parse().unwrap()), ..Filter::default() };
        assert!(!new.admits(&page) && new.admits(&bare), "what does not say is wanted");
        let part = Filter { collections: texts(&["http://a.example/c"]), ..Filter::default() };
        assert!(part.admits(&page) && !part.admits(&bare));
        let metadata = Filter { only_metadata: true, ..Filter::default() };
        let describing =
            Entry::from(entry("http://a.example/m").link(Link::describes("http://a.example/page")));
        assert!(metadata.admits(&describing) && !metadata.admits(&page));
    }
}
