//! The documents that lead to the lists: Capability List and Source Description.

use resync_core::{
    document::{Capability, CapabilityList, Document, SourceDescription},
    rules::Violations,
    xml,
};

use crate::{
    settings::{HubUrl, PageUrl},
    site::{Location, Site},
};

/// A document ready to be written, which stands alone.
#[derive(Clone, Debug)]
pub(super) struct Composed {
    pub(super) location: Location,
    pub(super) capability: Capability,
    pub(super) bytes: Vec<u8>,
}

/// The Source Description, which leads to the Capability List of each set, and to the pages that describe the Source and the sets.
pub(super) fn source_description(
    site: &Site,
    described_by: Option<&PageUrl>,
    sets: impl IntoIterator<Item = (String, Option<String>)>,
) -> Result<Composed, Violations> {
    let mut description = SourceDescription::new();
    if let Some(page) = described_by {
        description = description.described_by(page.as_str());
    }
    let description = sets.into_iter().fold(description, |description, (list, page)| match page {
        Some(page) => description.capability_list_described_by(list, page),
        None => description.capability_list(list),
    });
    Ok(composed(site.source_description(), &description.build()?))
}

/// The Capability List, which leads to the page that describes the set, to the Resource List, to the Change Lists, to `more` and, with a hub, to both
/// channels (CN-019, FN-060).
pub(super) fn capability_list(
    site: &Site,
    described_by: Option<&PageUrl>,
    hubs: &[HubUrl],
    more: impl IntoIterator<Item = (Capability, String)>,
) -> Result<Composed, Violations> {
    let mut list = CapabilityList::new(site.source_description().url)
        .capability(Capability::ResourceList, site.resource_list().url)
        .capability(Capability::ChangeList, site.change_list().url);
    if let Some(page) = described_by {
        list = list.described_by(page.as_str());
    }
    list = more.into_iter().fold(list, |list, (capability, url)| list.capability(capability, url));
    if !hubs.is_empty() {
        let hubs = || hubs.iter().map(HubUrl::as_str);
        list = list.channel(Capability::ChangeNotification, site.change_topic(), hubs()).channel(
            Capability::FrameworkNotification,
            site.topic(),
            hubs(),
        );
    }
    Ok(composed(site.capability_list(), &list.build()?))
}

fn composed(location: Location, document: &Document) -> Composed {
    Composed { location, capability: document.capability().clone(), bytes: xml::write(document) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::BaseUrl;

    #[test]
    fn cn019_fn060_both_channels_are_advertised_with_every_hub_and_only_with_one() {
        let site = Site::new(BaseUrl::parse("http://example.org/").unwrap());
        let hubs = ["http://a.example/hub", "http://b.example/hub"].map(|hub| HubUrl::parse(hub).unwrap());
        let list = |hubs: &[HubUrl]| {
            let bytes = capability_list(&site, None, hubs, []).unwrap().bytes;
            xml::read(&bytes).unwrap().into_document().unwrap()
        };
        let with = list(&hubs);
        assert_eq!(with.entries()[2].capability(), Some(&Capability::ChangeNotification));
        let channel = &with.entries()[3];
        assert_eq!(channel.loc, "http://example.org/resync/framework/");
        assert_eq!(channel.capability(), Some(&Capability::FrameworkNotification));
        assert_eq!(channel.links_with(&resync_core::document::Relation::Hub).count(), 2);
        assert_eq!(list(&[]).entries().len(), 2);
    }
}
