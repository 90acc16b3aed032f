//! The D-Lib paper of January 2013: the elements of today in another namespace, with other attributes and relations
//! (DL-005, DL-006).

use crate::datetime::DateTime;
use crate::document::{Capability, Change, Entry, ForeignAttribute, Header, Link, Metadata, Relation, Root};
use crate::xml::DLIB_NAMESPACE;
use crate::xml::namespaces::Namespace;

/// The prefix under which its own attributes are kept.
const PREFIX: &str = "dlib";
const MODIFIED: &str = "modified";
const ETAG: &str = "etag";
const TOP: &str = "top";

/// An attribute of `rs:md` that no later form has, as one of another community; `None` for any other.
pub(in crate::xml) fn attribute(namespace: Namespace, name: &str, value: &str) -> Option<ForeignAttribute> {
    (namespace == Namespace::DLib && matches!(name, MODIFIED | ETAG)).then(|| ForeignAttribute {
        namespace: DLIB_NAMESPACE.to_owned(),
        prefix: PREFIX.to_owned(),
        name: name.to_owned(),
        value: value.to_owned(),
    })
}

/// Turns a header into one of 1.1, and gives the moment at which the document was last modified.
pub(super) fn header(header: &mut Header) -> Option<DateTime> {
    use Capability::{
        CapabilityList, ChangeDumpArchive, ChangeListArchive, Description, ResourceDump, ResourceDumpArchive,
        ResourceDumpManifest, ResourceList, ResourceListArchive,
    };
    header.links.iter_mut().for_each(relation);
    let modified = modified(&header.metadata);
    match header.metadata.capability {
        Some(ResourceList | ResourceDump | ResourceDumpManifest) => {
            header.metadata.at = header.metadata.at.or(modified);
        }
        // Archives were indexes without a layer of archives below them (AR-018).
        Some(ResourceListArchive | ResourceDumpArchive | ChangeListArchive | ChangeDumpArchive) => {
            header.root = Root::UrlSet;
        }
        // What listed the Capability Lists of a Source is a Source Description today (RS-070, RS-083).
        Some(CapabilityList) if header.root == Root::SitemapIndex => {
            header.root = Root::UrlSet;
            header.metadata.capability = Some(Description);
        }
        _ => {}
    }
    modified
}

/// Gives an entry the moment of its change, which was in `lastmod`.
pub(super) fn entry(header: &Header, entry: &mut Entry) {
    if header.capability() == Some(&Capability::Description) {
        entry.metadata.get_or_insert_default().capability.get_or_insert(Capability::CapabilityList);
    }
    let Some(metadata) = &mut entry.metadata else { return };
    if metadata.change.is_some() && metadata.datetime.is_none() {
        metadata.datetime = entry.lastmod;
    }
    if metadata.change == Some(Change::Deleted) {
        entry.lastmod = None;
    }
}

fn relation(link: &mut Link) {
    link.rel = match &link.rel {
        Relation::Up => Relation::Index,
        Relation::Other(name) if **name == *TOP => Relation::Up,
        other => other.clone(),
    };
}

fn modified(metadata: &Metadata) -> Option<DateTime> {
    let own =
        |attribute: &&ForeignAttribute| attribute.namespace == DLIB_NAMESPACE && attribute.name == MODIFIED;
    metadata.foreign.iter().find(own).and_then(|attribute| attribute.value.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Algorithm;
    use crate::rules::Rule;
    use crate::xml::{Dialect, Read, Reader, read};

    fn dlib(root: &str, content: &str) -> Vec<u8> {
        format!(
            "<{root} xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/'>\n\
             {content}\n</{root}>"
        )
        .into_bytes()
    }

    fn told(read: &Read) -> Vec<Rule> {
        read.violations.iter().map(|violation| violation.rule).collect()
    }

    const LIST: &str = "<rs:md capability='resourcelist' modified='2012-11-02T09:00:00Z'/>
        <rs:ln rel='up' href='http://example.org/index.xml'/><rs:ln rel='top' href='http://example.org/capabilities.xml'/>
        <url><loc>http://example.org/page</loc><lastmod>2012-11-01T09:00:00Z</lastmod>
        <rs:md hash='md5:900150983cd24fb0d6963f7d28e17f72' length='3' etag='1-2-3' type='text/plain'/></url>";

    #[test]
    fn dl005_a_resource_list_becomes_one_of_1_1_with_one_warning() {
        let read = read(&dlib("urlset", LIST)).unwrap();
        assert_eq!(read.dialect, Dialect::DLib2013);
        assert_eq!(told(&read), [Rule::Dialect]);
        let header = &read.document.header;
        assert_eq!(header.metadata.at.unwrap().to_string(), "2012-11-02T09:00:00Z");
        assert_eq!(header.link(&Relation::Up).unwrap().href, "http://example.org/capabilities.xml");
        assert_eq!(header.link(&Relation::Index).unwrap().href, "http://example.org/index.xml");
        let metadata = read.document.entries[0].metadata.clone().unwrap();
        assert!(metadata.hash.get(Algorithm::Md5).is_some());
        assert_eq!(metadata.foreign, [attribute(Namespace::DLib, "etag", "1-2-3").unwrap()]);
        assert!(read.into_document().is_ok());
    }

    #[test]
    fn dl006_changes_listed_newest_first_are_turned_round() {
        let content = "<rs:md capability='changelist' modified='2012-11-02T11:00:00Z'/>
            <rs:ln rel='top' href='http://example.org/capabilities.xml'/>
            <url><loc>http://example.org/c</loc><lastmod>2012-11-01T18:00:00Z</lastmod><rs:md change='deleted'/></url>
            <url><loc>http://example.org/b2</loc><lastmod>2012-11-01T13:00:00Z</lastmod><rs:md change='updated'/></url>
            <url><loc>http://example.org/b1</loc><lastmod>2012-11-01T13:00:00Z</lastmod><rs:md change='updated'/></url>
            <url><loc>http://example.org/a</loc><lastmod>2012-11-01T11:00:00Z</lastmod><rs:md change='created'/></url>";
        let read = read(&dlib("urlset", content)).unwrap();
        assert_eq!(told(&read), [Rule::Dialect]);
        let document = read.into_document().unwrap();
        let locs: Vec<_> =
            document.entries().iter().map(|entry| &entry.loc["http://example.org/".len()..]).collect();
        assert_eq!(locs, ["a", "b1", "b2", "c"]);
        assert_eq!(document.header().metadata.from.unwrap().to_string(), "2012-11-01T11:00:00Z");
        let gone = document.entries().last().unwrap();
        assert_eq!(gone.lastmod, None);
        assert_eq!(gone.metadata.as_ref().unwrap().datetime.unwrap().to_string(), "2012-11-01T18:00:00Z");
    }

    #[test]
    fn rs083_an_index_of_capability_lists_becomes_a_source_description() {
        let content = "<rs:md capability='capabilitylist' modified='2012-11-02T11:00:00Z'/>
            <sitemap><loc>http://example.org/set1.xml</loc></sitemap>";
        let read = read(&dlib("sitemapindex", content)).unwrap();
        assert!(read.violations.is_conforming(), "{}", read.violations);
        let document = read.into_document().unwrap();
        assert_eq!((document.root(), document.capability()), (Root::UrlSet, &Capability::Description));
        assert_eq!(document.entries()[0].capability(), Some(&Capability::CapabilityList));
    }

    #[test]
    fn ar018_an_archive_that_was_an_index_becomes_a_urlset() {
        let content =
            "<rs:md capability='changelist-archive'/><rs:ln rel='top' href='http://example.org/c.xml'/>
            <sitemap><loc>http://example.org/changes1.xml</loc></sitemap>";
        let document = read(&dlib("sitemapindex", content)).unwrap().into_document().unwrap();
        assert_eq!(document.root(), Root::UrlSet);
    }

    #[test]
    fn a_streaming_reader_knows_the_dialect_before_the_first_entry() {
        let bytes = dlib("urlset", LIST);
        let reader = Reader::new(bytes.as_slice()).unwrap();
        assert_eq!(reader.dialect(), Dialect::DLib2013);
        assert!(reader.header().metadata.at.is_some());
    }
}
