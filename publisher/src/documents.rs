//! From an inventory to the documents of the site, and what each of them *means*.
//!
//! The meaning of a document is all it says except when its snapshot was taken (`at`, `completed`). Two snapshots of an unchanged
//! collection mean the same, so the second one is neither written nor notified.

use resync_core::{
    datetime::{DateTime, DateTimeError},
    digest::{Algorithm, Digest},
    document::{
        Capability, CapabilityList, Document, Resource, ResourceList, ResourceListIndex, SourceDescription,
    },
    rules::Violations,
    xml,
};

use crate::{
    inventory::{Inventory, Item},
    settings::HubUrl,
    site::{Location, Site},
    state::Part,
};

/// A document ready to be written.
#[derive(Clone, Debug)]
pub struct Composed {
    /// Where it goes.
    pub location: Location,
    /// What it is.
    pub capability: Capability,
    /// Its place among documents that form one snapshot together.
    pub part: Part,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Digest of what it says apart from the time of the snapshot.
    pub meaning: Digest,
}

/// All documents of a site.
#[derive(Clone, Debug)]
pub struct Documents {
    /// The Resource List, or its components and then their index: one snapshot, kept or replaced together.
    pub resource_lists: Vec<Composed>,
    /// The Capability List.
    pub capability_list: Composed,
    /// The Source Description.
    pub source_description: Composed,
}

/// Composes the documents of `site` for what `inventory` found; with a hub, the Capability List advertises the framework channel (FN-060).
pub fn compose(site: &Site, hubs: &[HubUrl], inventory: &Inventory) -> Result<Documents, Violations> {
    Ok(Documents {
        resource_lists: resource_lists(site, inventory)?,
        capability_list: capability_list(site, hubs)?,
        source_description: source_description(site)?,
    })
}

fn source_description(site: &Site) -> Result<Composed, Violations> {
    let document = SourceDescription::new().capability_list(site.capability_list().url).build()?;
    composed(site.source_description(), Part::Whole, document)
}

fn capability_list(site: &Site, hubs: &[HubUrl]) -> Result<Composed, Violations> {
    let mut list = CapabilityList::new(site.source_description().url)
        .capability(Capability::ResourceList, site.resource_list().url);
    if !hubs.is_empty() {
        let hubs = hubs.iter().map(HubUrl::as_str);
        list = list.channel(Capability::FrameworkNotification, site.topic(), hubs);
    }
    composed(site.capability_list(), Part::Whole, list.build()?)
}

fn resource_lists(site: &Site, inventory: &Inventory) -> Result<Vec<Composed>, Violations> {
    let parts = split(&inventory.resources);
    if let [only] = parts.as_slice() {
        let list = resource_list(site, inventory, only, None)?;
        return Ok(vec![composed(site.resource_list(), Part::Whole, list)?]);
    }
    let index = site.resource_list();
    let mut index_document =
        ResourceListIndex::new(inventory.started, site.capability_list().url).completed(inventory.completed);
    let mut documents = Vec::with_capacity(parts.len() + 1);
    for (number, items) in (1..).zip(parts) {
        let location = site.resource_list_component(number);
        index_document =
            index_document.list(location.url.clone(), Some(inventory.started), Some(inventory.completed));
        let list = resource_list(site, inventory, items, Some(&index.url))?;
        documents.push(composed(location, Part::Component { index: index.url.clone() }, list)?);
    }
    documents.push(composed(index, Part::Index, index_document.build()?)?);
    Ok(documents)
}

fn resource_list(
    site: &Site,
    inventory: &Inventory,
    items: &[Item],
    index: Option<&str>,
) -> Result<Document, Violations> {
    let mut list =
        ResourceList::new(inventory.started, site.capability_list().url).completed(inventory.completed);
    if let Some(index) = index {
        list = list.index(index);
    }
    for item in items {
        list = list.resource(resource(item));
    }
    list.build()
}

fn resource(item: &Item) -> Resource {
    let mut resource = Resource::new(item.url.as_str()).lastmod(item.modified).hashes(item.hashes.clone());
    if let Some(length) = item.length {
        resource = resource.length(length);
    }
    if let Some(media_type) = &item.media_type {
        resource = resource.media_type(media_type.as_str());
    }
    resource
}

/// Cuts the resources into lists that respect the limits on entries and on bytes (RS-042, RS-043); an empty collection is one empty list.
fn split(items: &[Item]) -> Vec<&[Item]> {
    split_by(items, xml::MAX_ENTRIES, usize::try_from(xml::MAX_BYTES).unwrap_or(usize::MAX))
}

fn split_by(items: &[Item], max_entries: usize, max_bytes: usize) -> Vec<&[Item]> {
    const HEAD_AND_END: usize = 8 * 1024;
    let (mut parts, mut start, mut bytes) = (Vec::new(), 0, HEAD_AND_END);
    for (number, item) in items.iter().enumerate() {
        let size = at_most_bytes(item);
        if number - start == max_entries || (number > start && bytes + size > max_bytes) {
            parts.push(&items[start..number]);
            (start, bytes) = (number, HEAD_AND_END);
        }
        bytes += size;
    }
    parts.push(&items[start..]);
    parts
}

/// An upper bound of an entry's length in a document: three digests, a time and the markup need less than 600 bytes.
fn at_most_bytes(item: &Item) -> usize {
    const LONGEST_REFERENCE: usize = "&quot;".len();
    let escaped =
        item.url.bytes().filter(|byte| matches!(byte, b'&' | b'\'')).count() * (LONGEST_REFERENCE - 1);
    600 + item.url.len() + escaped + item.media_type.as_ref().map_or(0, String::len)
}

fn composed(location: Location, part: Part, document: Document) -> Result<Composed, Violations> {
    let capability = document.capability().clone();
    let bytes = xml::write(&document);
    Ok(Composed { location, capability, part, bytes, meaning: meaning(document)? })
}

fn meaning(document: Document) -> Result<Digest, Violations> {
    let mut raw = document.into_raw();
    let entries = raw.entries.iter_mut().filter_map(|entry| entry.metadata.as_mut());
    for metadata in entries.chain([&mut raw.header.metadata]) {
        metadata.completed = None;
        if metadata.at.is_some() {
            metadata.at = Some(some_instant());
        }
    }
    let timeless = xml::write(&Document::try_from(raw)?);
    Ok(Digest::of(Algorithm::Sha256, &timeless))
}

/// A Resource List without `at` would break a rule (RS-090), so all get the same one.
fn some_instant() -> DateTime {
    let epoch: Result<_, DateTimeError> = DateTime::from_unix_millis(0);
    epoch.expect("the Unix epoch is within every range of times")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use resync_core::{
        digest::Hashes,
        document::{Relation, Root},
    };

    use super::*;
    use crate::settings::BaseUrl;

    fn site() -> Site {
        Site::new(BaseUrl::parse("http://example.org/").unwrap())
    }

    fn item(number: usize) -> Item {
        Item {
            path: PathBuf::from(number.to_string()),
            url: format!("http://example.org/{number}"),
            modified: "2026-01-02T03:04:05Z".parse().unwrap(),
            length: Some(3),
            hashes: Hashes::from_iter([Digest::of(Algorithm::Sha256, b"abc")]),
            media_type: Some("text/plain".into()),
        }
    }

    fn inventory(count: usize, started: &str) -> Inventory {
        let started = started.parse().unwrap();
        Inventory {
            started,
            completed: started,
            resources: (0..count).map(item).collect(),
            skipped: vec![],
            unportable: vec![],
        }
    }

    fn read(composed: &Composed) -> Document {
        xml::read(&composed.bytes).unwrap().into_document().unwrap()
    }

    #[test]
    fn rs021_rs090_a_resource_list_says_when_it_was_taken_and_where_its_capability_list_is() {
        let documents = compose(&site(), &[], &inventory(2, "2026-02-01T00:00:00Z")).unwrap();
        let list = read(&documents.resource_lists[0]);
        assert_eq!(list.header().metadata.at, Some("2026-02-01T00:00:00Z".parse().unwrap()));
        assert_eq!(list.link(&Relation::Up).unwrap().href, "http://example.org/resync/capabilitylist.xml");
        let metadata = list.entries()[1].metadata.as_ref().unwrap();
        assert_eq!(metadata.length, Some(3));
        assert!(metadata.hash.get(Algorithm::Sha256).is_some());
    }

    #[test]
    fn fn060_the_channel_is_advertised_with_every_hub_and_only_with_one() {
        let hubs = ["http://a.example/hub", "http://b.example/hub"].map(|hub| HubUrl::parse(hub).unwrap());
        let with = compose(&site(), &hubs, &inventory(1, "2026-02-01T00:00:00Z")).unwrap();
        let list = read(&with.capability_list);
        let channel = &list.entries()[1];
        assert_eq!(channel.loc, "http://example.org/resync/framework/");
        assert_eq!(channel.capability(), Some(&Capability::FrameworkNotification));
        assert_eq!(channel.links_with(&Relation::Hub).count(), 2);
        let without = compose(&site(), &[], &inventory(1, "2026-02-01T00:00:00Z")).unwrap();
        assert_eq!(read(&without.capability_list).entries().len(), 1);
    }

    #[test]
    fn the_meaning_ignores_when_the_snapshot_was_taken_and_nothing_else() {
        let meaning = |inventory| compose(&site(), &[], &inventory).unwrap().resource_lists[0].meaning;
        let first = meaning(inventory(3, "2026-02-01T00:00:00Z"));
        assert_eq!(first, meaning(inventory(3, "2026-02-02T00:00:00Z")));
        assert_ne!(first, meaning(inventory(2, "2026-02-01T00:00:00Z")));
        let mut touched = inventory(3, "2026-02-01T00:00:00Z");
        touched.resources[1].hashes = Hashes::from_iter([Digest::of(Algorithm::Sha256, b"abd")]);
        assert_ne!(first, meaning(touched));
    }

    #[test]
    fn rs043_fn006_above_50_000_resources_there_are_components_under_an_index() {
        let documents = compose(&site(), &[], &inventory(50_001, "2026-02-01T00:00:00Z")).unwrap();
        let [first, second, index] = documents.resource_lists.as_slice() else { panic!("three documents") };
        assert_eq!((read(first).entries().len(), read(second).entries().len()), (50_000, 1));
        let link = read(second).link(&Relation::Index).unwrap().href.clone();
        assert_eq!(link, index.location.url);
        let index = read(index);
        assert_eq!(index.root(), Root::SitemapIndex);
        let listed: Vec<_> = index.entries().iter().map(|entry| entry.loc.as_str()).collect();
        assert_eq!(listed, [first.location.url.as_str(), second.location.url.as_str()]);
    }

    #[test]
    fn rs042_exactly_50_000_resources_are_one_list() {
        assert_eq!(split(&inventory(50_000, "2026-02-01T00:00:00Z").resources).len(), 1);
        assert_eq!(split(&[]).len(), 1);
    }

    #[test]
    fn rs042_the_estimate_of_bytes_is_never_below_the_truth() {
        let mut many = inventory(300, "2026-02-01T00:00:00Z");
        for item in &mut many.resources {
            item.url = format!("{}{}", item.url, "&'".repeat(500));
            item.hashes = Algorithm::ALL.iter().map(|&algorithm| Digest::of(algorithm, b"abc")).collect();
            item.media_type =
                Some("application/vnd.openxmlformats-officedocument.wordprocessingml.document".into());
        }
        let parts = split_by(&many.resources, 50_000, 200_000);
        assert!(parts.len() > 1);
        assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 300);
        for part in parts {
            let inventory = Inventory { resources: part.to_vec(), ..many.clone() };
            assert!(compose(&site(), &[], &inventory).unwrap().resource_lists[0].bytes.len() <= 200_000);
        }
    }

    #[test]
    fn rs095_an_index_and_all_its_components_carry_one_and_the_same_time() {
        let started = "2026-02-01T00:00:00Z".parse().unwrap();
        let completed = "2026-02-01T00:10:00Z".parse().unwrap();
        let inventory = Inventory { completed, ..inventory(50_001, "2026-02-01T00:00:00Z") };
        let documents = compose(&site(), &[], &inventory).unwrap();
        for document in documents.resource_lists.iter().map(read) {
            let metadata = &document.header().metadata;
            assert_eq!((metadata.at, metadata.completed), (Some(started), Some(completed)));
            if document.root() == Root::SitemapIndex {
                let times = document.entries().iter().map(|entry| entry.metadata.as_ref().unwrap());
                assert!(times.into_iter().all(|metadata| metadata.at == Some(started)));
            }
        }
    }
}
