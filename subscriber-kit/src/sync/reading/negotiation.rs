//! Which representation a generic URI is asked for, where a server may have several (RS-172).

use resync_core::document::{Entry, Relation};
use resync_core::media_type::essence;

use super::provenance::MAX_MEDIA_TYPE;
use crate::sync::files::local::Facts;

/// How many types are named.
const MAX_TYPES: usize = 8;

/// What is asked for by the `Accept` header: the representation that the list describes, or, where it describes none, what is preferred.
/// Anything else is welcome, too: who cannot negotiate sends what there is.
pub(super) fn accept(entry: &Entry, facts: &Facts, prefer: &[String]) -> Option<String> {
    let is_described = facts.algorithm().is_some() || facts.length.is_some();
    let has_several = entry.link(&Relation::Alternate).is_some();
    let listed = entry.metadata.as_ref().and_then(|metadata| metadata.media_type.as_deref());
    let mut wanted: Vec<&str> = listed.filter(|_| has_several).into_iter().collect();
    if !is_described && !prefer.is_empty() {
        wanted = prefer.iter().map(String::as_str).collect();
    }
    let wanted = wanted.into_iter().map(essence).filter(|range| is_media_range(range));
    let wanted: Vec<_> = wanted.take(MAX_TYPES).collect();
    if wanted.is_empty() {
        return None;
    }
    let weighed = (0..).zip(wanted).map(|(place, range)| match place {
        0 => range.to_owned(),
        _ => format!("{range};q=0.{}", 10 - place),
    });
    Some(weighed.chain(["*/*;q=0.1".to_owned()]).collect::<Vec<_>>().join(", "))
}

/// A star stands for all types, or for all of one kind.
fn is_media_range(text: &str) -> bool {
    let is_token = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    let is_range = |(kind, name): (&str, &str)| is_token(kind) && (is_token(name) || name == "*");
    text.len() <= MAX_MEDIA_TYPE && text.split_once('/').is_some_and(is_range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::document::{Link, Metadata};

    #[test]
    fn rs172_the_described_representation_is_asked_for_or_else_the_preferred_ones() {
        let metadata =
            Metadata { media_type: Some("text/html; charset=utf-8".to_owned()), ..Metadata::default() };
        let mut entry = Entry::with_metadata("http://a.example/x", metadata);
        let described = Facts { length: Some(3), ..Facts::default() };
        let prefer = ["application/pdf", "image/*", "*xml*", "a/b, c/d"].map(str::to_owned);
        assert_eq!(accept(&entry, &described, &prefer), None, "there is only one");
        let preferred = "application/pdf, image/*;q=0.9, */*;q=0.1";
        assert_eq!(accept(&entry, &Facts::default(), &prefer).as_deref(), Some(preferred));
        entry.links.push(Link::new(Relation::Alternate, "http://a.example/x.pdf"));
        let listed = Some("text/html, */*;q=0.1");
        assert_eq!(accept(&entry, &described, &prefer).as_deref(), listed);
        assert_eq!(accept(&entry, &Facts::default(), &[]).as_deref(), listed);
        assert_eq!(accept(&entry, &Facts::default(), &prefer).as_deref(), Some(preferred));
        let many: Vec<_> = (0..20).map(|number| format!("a/{number}")).collect();
        let accepted = accept(&entry, &Facts::default(), &many).unwrap();
        assert!(accepted.ends_with(", a/7;q=0.3, */*;q=0.1"), "{accepted}");
    }

    #[test]
    fn a_media_type_that_is_longer_than_any_is_not_asked_for() {
        let asked = |length: usize| {
            let media_type = Some(format!("a/{}", "b".repeat(length - 2)));
            let metadata = Metadata { media_type, ..Metadata::default() };
            let mut entry = Entry::with_metadata("http://a.example/x", metadata);
            entry.links.push(Link::new(Relation::Alternate, "http://a.example/y"));
            accept(&entry, &Facts::of(&entry), &[]).is_some()
        };
        assert_eq!([MAX_MEDIA_TYPE, MAX_MEDIA_TYPE + 1].map(asked), [true, false]);
    }
}
