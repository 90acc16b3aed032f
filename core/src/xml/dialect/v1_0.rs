//! ResourceSync 1.0: the same elements as 1.1, with the moment of a change in `lastmod` (V-2).

use crate::document::{Capability, Entry, Header};

/// Whether a document of changes that begins with this entry was written as 1.0 asked: `lastmod`, no `datetime`.
///
/// In 1.1 a `lastmod` may be older than the interval, since it is not the moment of the change (RS-031); in 1.0 it may not.
pub(super) fn is_first_entry(header: &Header, first: &Entry) -> bool {
    let of_changes =
        matches!(header.capability(), Some(Capability::ChangeList | Capability::ChangeDumpManifest));
    let Some((metadata, lastmod)) = first.metadata.as_ref().zip(first.lastmod) else { return false };
    let inside = header.metadata.from.is_none_or(|from| from <= lastmod)
        && header.metadata.until.is_none_or(|until| lastmod <= until);
    of_changes && metadata.change.is_some() && metadata.datetime.is_none() && inside
}

#[cfg(test)]
mod tests {
    use crate::rules::Rule;
    use crate::xml::{Dialect, read};

    fn change_list(entry: &str) -> Vec<u8> {
        format!(
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/'>
             <rs:md capability='changelist' from='2013-01-03T00:00:00Z'/><rs:ln rel='up' href='http://example.org/c.xml'/>
             <url><loc>http://example.org/a</loc>{entry}</url>
             <url><loc>http://example.org/b</loc><lastmod>2013-01-03T12:00:00Z</lastmod><rs:md change='created'/></url>
             </urlset>"
        )
        .into_bytes()
    }

    #[test]
    fn v2_a_change_list_of_1_0_is_recognised_by_its_first_entry_and_told_once() {
        let read =
            read(&change_list("<lastmod>2013-01-03T09:00:00Z</lastmod><rs:md change='updated'/>")).unwrap();
        assert_eq!(read.dialect, Dialect::V1_0);
        let told = read.violations.iter().filter(|violation| violation.rule == Rule::Dialect).count();
        assert_eq!(told, 1);
        let moments: Vec<_> =
            read.document.entries.iter().map(|entry| read.dialect.change_time(entry)).collect();
        assert!(moments.iter().all(Option::is_some));
        assert!(read.into_document().is_ok());
    }

    #[test]
    fn rs031_a_lastmod_that_cannot_be_the_moment_of_the_change_makes_no_1_0() {
        for entry in [
            "<lastmod>2012-12-03T09:00:00Z</lastmod><rs:md change='updated'/>",
            "<lastmod>2013-01-03T09:00:00Z</lastmod><rs:md change='updated' datetime='2013-01-03T10:00:00Z'/>",
            "<rs:md change='updated'/>",
        ] {
            assert_eq!(read(&change_list(entry)).unwrap().dialect, Dialect::V1_1, "{entry}");
        }
    }
}
