//! Discovery: from any URL of a Source to its sets, lists and notification channels.
//!
//! The order of the search (RS-160, RS-164): the URL itself, if it is a ResourceSync document; what its
//! `Link: rel="resourcesync"` header or its HTML `<link>` names (RS-161, RS-165); the well-known places of its directory and
//! host; the Resource Lists among the Sitemaps in the host's robots.txt (RS-162, RS-163); the usual names of lists and Sitemaps.
//! If the given URL names a document that cannot be used, the search ends: another place may have another set.

mod hints;
mod measure;
mod misplaced;
mod saved;
mod source;
mod time_map;
mod topic;

use std::io::{BufRead, BufReader, Seek as _};

use resync_core::document::{Capability, Entry, Header, Relation, Root};
use resync_core::misplaced::{SOURCE_DESCRIPTION, base_of, folder_of, names_a_document};
use resync_core::websub::key::TopicUrl;
use resync_core::xml::{Limit, ReadError, Reader};
use url::Url;

use crate::blocking::blocking;
use crate::fetch::{Client, FetchError, Fetched, led_to};
pub use measure::{Measure, measure};
pub(crate) use saved::SavedSource;
pub(crate) use source::is_same_document;
pub use source::{Channel, DiscoverError, Set, Source, Unreadable};
pub use time_map::{KnownVersion, TimeMap, UnreadablePage, versions_of};
pub use topic::{channel_at, channels};

/// How many sets of a Source are read.
pub const MAX_SETS: usize = 256;

/// How many Source Descriptions an index may lead to.
const MAX_DESCRIPTIONS: usize = 32;

/// How many hubs of a channel are used.
const MAX_HUBS: usize = 16;

/// How many documents a page or a robots.txt may lead to.
const MAX_HINTS: usize = 32;

/// How many entries and links of a document that leads further are read.
const MAX_LISTED: usize = 10_000;

/// Discovers what the Source at `url` offers.
///
/// `url` may be a Source's base, its Source Description, a Capability List, a Resource List or any page with
/// a `Link: rel="resourcesync"` header. At most [`MAX_SETS`] sets are read.
///
/// ```
/// use resync_subscriber_kit::discover::discover;
/// use resync_subscriber_kit::fetch::{Client, ClientOptions, AddressPolicy};
/// # use resync_publisher::{BaseUrl, Settings, build, serve::serve};
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let place = tempfile::tempdir()?;
/// # let (collection, out) = (place.path().join("collection"), place.path().join("site"));
/// # std::fs::create_dir(&collection)?;
/// # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let url = format!("http://{}/", listener.local_addr()?);
/// # build(&Settings::new(&collection, BaseUrl::parse(&url)?), &out)?;
/// # tokio::spawn(serve(listener, out, std::future::pending()));
///
/// // Of a Source without a hub at `url`:
/// let address_policy = AddressPolicy::NetworkOf(vec![url.parse()?]);
/// let client = Client::new(ClientOptions { address_policy, ..ClientOptions::default() })?;
/// let source = discover(&client, &url).await?;
/// let set = &source.sets[0];
/// assert_eq!(set.resource_list, Some(source.base.join("resync/resourcelist.xml")?));
/// assert_eq!(set.change_channel, None);
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`DiscoverError`].
pub async fn discover(client: &Client, url: &str) -> Result<Source, DiscoverError> {
    let url = Url::parse(url).map_err(|reason| DiscoverError::Url { text: url.to_owned(), reason })?;
    let mut search = Search { client, tried: Vec::new() };
    if let Some(source) = search.explicit(&url).await? {
        return Ok(Source { base: base_of_source(&url, source.description.as_ref()), ..source });
    }
    let searched = |source| Source { base: folder_of(&url), ..source };
    let [descriptions, lists] = well_known_places(&url);
    for place in descriptions {
        if let Some(source) = search.search(&place).await? {
            return Ok(searched(source));
        }
    }
    // If the Source is temporarily unreachable, the search ends: other places may have unrelated lists.
    if search.tried.iter().any(|place| place.retry_may_help) {
        return Err(DiscoverError::NothingFound { url, tried: search.tried });
    }
    if let Some(source) = search.robots(&url).await {
        return Ok(searched(source));
    }
    for place in lists {
        if let Some(source) = search.search(&place).await? {
            return Ok(searched(source));
        }
    }
    Err(DiscoverError::NothingFound { url, tried: search.tried })
}

/// The given directory, or else the one of the Source Description, or else the one of the document.
fn base_of_source(requested: &Url, description: Option<&Url>) -> Url {
    let described = description.filter(|description| {
        description.path().ends_with(SOURCE_DESCRIPTION) && description.origin() == requested.origin()
    });
    base_of(described.filter(|_| !requested.path().ends_with('/')).unwrap_or(requested))
}

/// The places after the given URL in the order of RS-164: Source Descriptions, and lists.
fn well_known_places(url: &Url) -> [Vec<Url>; 2] {
    let (directory, host) = (folder_of(url), host_of(url));
    let places = |candidates: &[(&Url, &str)]| {
        let mut places: Vec<Url> = Vec::new();
        for place in candidates.iter().filter_map(|(base, name)| base.join(name).ok()) {
            if place != *url && !places.contains(&place) {
                places.push(place);
            }
        }
        places
    };
    let lists = [(&directory, "resourcelist.xml"), (&directory, "sitemap.xml"), (&host, "sitemap.xml")];
    [places(&[(&directory, SOURCE_DESCRIPTION), (&host, SOURCE_DESCRIPTION)]), places(&lists)]
}

fn host_of(url: &Url) -> Url {
    url.join("/").unwrap_or_else(|_| url.clone())
}

/// One search, and the places that it tried.
struct Search<'c> {
    client: &'c Client,
    tried: Vec<Unreadable>,
}

impl Search<'_> {
    /// The given URL. If it is unreachable, no other place is tried.
    async fn explicit(&mut self, url: &Url) -> Result<Option<Source>, DiscoverError> {
        let found = match self.client.document(url).await {
            Ok(fetched) => self.follow(url, fetched).await?,
            Err(error @ FetchError::Status { .. }) if !error.is_transient() => {
                self.tried.push(Unreadable::away(url, &error));
                None
            }
            Err(error) => return Err(error.into()),
        };
        if found.is_none() && names_a_document(url) {
            let tried = std::mem::take(&mut self.tried);
            return Err(DiscoverError::NothingFound { url: url.clone(), tried });
        }
        Ok(found)
    }

    async fn search(&mut self, url: &Url) -> Result<Option<Source>, DiscoverError> {
        match self.client.document(url).await {
            Ok(fetched) => self.follow(url, fetched).await,
            Err(error) => {
                self.tried.push(Unreadable::away(url, &error));
                Ok(None)
            }
        }
    }

    async fn follow(&mut self, requested: &Url, fetched: Fetched) -> Result<Option<Source>, DiscoverError> {
        let mut linked: Vec<Url> =
            fetched.links.with_rel("resourcesync").filter_map(|target| Url::parse(target).ok()).collect();
        let parsed = parse(fetched).await;
        if let Err(page) = &parsed {
            linked.extend(page.linked.iter().take(MAX_HINTS).cloned());
        }
        match parsed {
            Ok(document) if document.is_of_resourcesync() => self.read_document(document).await,
            Ok(document) if linked.is_empty() => Ok(Some(Source::with_set(Set::bare(document.url)))),
            Err(page) if linked.is_empty() => {
                let reason = format!("not a ResourceSync document: {}", page.error);
                self.tried.push(Unreadable::new(requested, reason));
                Ok(None)
            }
            Ok(_) | Err(_) => {
                let mut source = Source::empty(requested.clone());
                self.read_sets(&mut source, linked).await;
                self.with_sets(source).await.map(Some)
            }
        }
    }

    /// RS-160, RS-162: the Resource Lists among the Sitemaps that robots.txt names, each with its set.
    async fn robots(&mut self, url: &Url) -> Option<Source> {
        let place = host_of(url).join("robots.txt").ok()?;
        let robots = match self.client.document(&place).await {
            Ok(robots) => robots,
            Err(error) => {
                self.tried.push(Unreadable::away(&place, &error));
                return None;
            }
        };
        let mut source = Source::empty(place.clone());
        for sitemap in hints::sitemaps(robots.file).into_iter().take(MAX_HINTS) {
            match self.read(&sitemap).await {
                // RS-163: others are plain Sitemaps.
                Ok(list) if list.capability() == Some(&Capability::ResourceList) => {
                    let found = self.read_list(list).await;
                    source.description = source.description.or(found.description);
                    let new = found.sets.into_iter().filter(|set| !source.sets.contains(set));
                    let new: Vec<Set> = new.collect();
                    source.sets.extend(new);
                }
                Ok(_) => {}
                // It may be the list of another set.
                Err(unreadable) if unreadable.retry_may_help => source.unreadable.push(unreadable),
                Err(unreadable) => self.tried.push(unreadable),
            }
        }
        if source.sets.is_empty() {
            self.tried.push(Unreadable::new(&place, "it names no readable Resource List"));
            self.tried.append(&mut source.unreadable);
            return None;
        }
        Some(source)
    }

    async fn read_document(&mut self, document: Parsed) -> Result<Option<Source>, DiscoverError> {
        match document.capability() {
            Some(Capability::Description) => self.read_description(document).await.map(Some),
            Some(Capability::CapabilityList) => {
                let mut source = Source::with_set(Set::from_capability_list(&document));
                source.description = document.link(&Relation::Up);
                Ok(Some(source))
            }
            Some(Capability::ResourceList) => Ok(Some(self.read_list(document).await)),
            _ => self.read_member(document).await,
        }
    }

    /// A Source Description, or an index of several (RS-074, RS-075).
    async fn read_description(&mut self, document: Parsed) -> Result<Source, DiscoverError> {
        let mut source = Source::empty(document.url.clone());
        source.description = Some(document.url.clone());
        let mut lists = Vec::new();
        if document.header.root == Root::SitemapIndex {
            for url in document.locations().into_iter().take(MAX_DESCRIPTIONS) {
                match self.read(&url).await {
                    Ok(part) if part.capability() == Some(&Capability::Description) => {
                        // One more than are read, so that this is reported.
                        let room = (MAX_SETS + 1).saturating_sub(lists.len());
                        lists.extend(part.locations().into_iter().take(room));
                    }
                    Ok(_) => source.unreadable.push(Unreadable::new(&url, "not a Source Description")),
                    Err(unreadable) => source.unreadable.push(unreadable),
                }
            }
        } else {
            lists = document.locations();
        }
        self.read_sets(&mut source, lists).await;
        self.with_sets(source).await
    }

    /// A given Resource List is used itself; its Capability List only names the channels.
    async fn read_list(&mut self, document: Parsed) -> Source {
        let Some(up) = document.link(&Relation::Up) else {
            // A Sitemap of the alpha draft has no Capability List, and names the Change Set itself (ALPHA-020).
            let current = document.current_change_set().map(|url| (Capability::ChangeList, url));
            let bare = Set::bare(document.url);
            return Source::with_set(Set { capabilities: current.into_iter().collect(), ..bare });
        };
        let mut source = Source::empty(document.url.clone());
        self.read_sets(&mut source, vec![up]).await;
        match source.sets.first_mut() {
            Some(set) => set.resource_list = Some(document.url),
            None => source.sets.push(Set::bare(document.url)),
        }
        source
    }

    /// Any other document of a set links `up` to its Capability List (RS-053).
    async fn read_member(&mut self, document: Parsed) -> Result<Option<Source>, DiscoverError> {
        let Some(up) = document.link(&Relation::Up) else {
            let reason = "it has no link up to its Capability List";
            self.tried.push(Unreadable::new(&document.url, reason));
            return Ok(None);
        };
        let mut source = Source::empty(document.url);
        self.read_sets(&mut source, vec![up]).await;
        self.with_sets(source).await.map(Some)
    }

    async fn read_sets(&mut self, source: &mut Source, lists: Vec<Url>) {
        for url in lists {
            if source.sets.len() + source.unreadable.len() >= MAX_SETS {
                let reason = "the Source has more sets than are read; give the Capability List's URL";
                return source.unreadable.push(Unreadable::new(&url, reason));
            }
            match self.read(&url).await {
                Ok(document) if document.capability() == Some(&Capability::CapabilityList) => {
                    source.description = source.description.take().or_else(|| document.link(&Relation::Up));
                    source.sets.push(Set::from_capability_list(&document));
                }
                Ok(_) => source.unreadable.push(Unreadable::new(&url, "not a Capability List")),
                Err(unreadable) => source.unreadable.push(unreadable),
            }
        }
    }

    async fn read(&self, url: &Url) -> Result<Parsed, Unreadable> {
        let fetched = self.client.document(url).await.map_err(|error| Unreadable::away(url, &error))?;
        parse(fetched).await.map_err(|page| Unreadable::new(url, page.error.to_string()))
    }
}

impl Source {
    fn empty(found_at: Url) -> Self {
        let base = base_of(&found_at);
        let (sets, unreadable) = (Vec::new(), Vec::new());
        Self { base, found_at, description: None, sets, unreadable }
    }

    fn with_set(set: Set) -> Self {
        let found_at = set.capability_list.clone().or_else(|| set.resource_list.clone());
        let mut source = Self::empty(found_at.expect("a set has a Capability List or a Resource List"));
        source.sets.push(set);
        source
    }
}

/// A document. Only those that lead further have entries.
struct Parsed {
    url: Url,
    header: Header,
    entries: Vec<Entry>,
}

impl Parsed {
    fn capability(&self) -> Option<&Capability> {
        self.header.capability()
    }

    fn is_of_resourcesync(&self) -> bool {
        self.capability().is_some()
    }

    /// RS-047: a relative URI is meant relative to its document.
    fn resolve(&self, reference: &str) -> Option<Url> {
        led_to(&self.url, reference)
    }

    fn link(&self, relation: &Relation) -> Option<Url> {
        self.header.link(relation).and_then(|link| self.resolve(&link.href))
    }

    fn current_change_set(&self) -> Option<Url> {
        self.header.change_set("current").and_then(|link| self.resolve(&link.href))
    }

    /// RS-073: an entry without a capability counts as a Capability List too.
    fn locations(&self) -> Vec<Url> {
        let leads_on = |entry: &&Entry| {
            matches!(entry.capability(), None | Some(Capability::CapabilityList | Capability::Description))
        };
        self.entries.iter().filter(leads_on).filter_map(|entry| self.resolve(&entry.loc)).collect()
    }

    /// The topic stays as written, since hub and callback compare it as text.
    fn channel(&self, entry: &Entry) -> Option<Channel> {
        let topic = TopicUrl::parse(&entry.loc).or_else(|error| {
            self.resolve(&entry.loc).map_or(Err(error), |url| TopicUrl::parse(url.as_str()))
        });
        let hubs = entry.links_with(&Relation::Hub).filter_map(|link| self.resolve(&link.href));
        Some(Channel { topic: topic.ok()?, hubs: hubs.take(MAX_HUBS).collect() })
    }
}

/// A page that is not a ResourceSync document, and its links.
struct Page {
    error: ReadError,
    linked: Vec<Url>,
}

async fn parse(fetched: Fetched) -> Result<Parsed, Page> {
    let Fetched { url, mut file, .. } = fetched;
    blocking(move || {
        read_parsed(&url, &file).map_err(|error| {
            // A page that cannot be read again has no links.
            let linked = if file.rewind().is_ok() { hints::linked_from_html(file, &url) } else { Vec::new() };
            Page { error, linked }
        })
    })
    .await
}

fn read_parsed(url: &Url, file: &std::fs::File) -> Result<Parsed, ReadError> {
    let mut reader = Reader::new(BufReader::new(file))?;
    let header = reader.header().clone();
    let leads_on = matches!(header.capability(), Some(Capability::Description | Capability::CapabilityList));
    let entries = if leads_on { all_entries(&mut reader, MAX_LISTED)? } else { Vec::new() };
    if reader.refused() > 0 {
        // A Capability List or a list may be among them.
        let (refused, violations) = (reader.refused(), reader.take_violations());
        let first = violations.errors().next().map(ToString::to_string);
        tracing::warn!(%url, refused, first, "ignored unreadable entries of a document");
    }
    Ok(Parsed { url: url.clone(), header, entries })
}

/// All entries of a document, which with their links are at most `max`: a short document that is compressed may hold millions.
pub(crate) fn all_entries<R: BufRead>(reader: &mut Reader<R>, max: usize) -> Result<Vec<Entry>, ReadError> {
    let (mut entries, mut count) = (Vec::new(), 0);
    while let Some(entry) = reader.next().transpose()? {
        count += 1 + entry.links.len();
        if count > max {
            let position = Reader::position(reader);
            return Err(ReadError::Limit { limit: Limit::EntriesAndLinks, max: max as u64, position });
        }
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn rs164_the_well_known_places_are_tried_in_order_and_once() {
        let places = |from: &str| {
            well_known_places(&url(from)).concat().iter().map(Url::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            places("https://a.example/data/"),
            [
                "https://a.example/data/.well-known/resourcesync",
                "https://a.example/.well-known/resourcesync",
                "https://a.example/data/resourcelist.xml",
                "https://a.example/data/sitemap.xml",
                "https://a.example/sitemap.xml",
            ]
        );
        assert_eq!(places("https://a.example/data"), places("https://a.example/data/"));
        assert_eq!(places("https://a.example").len(), 3);
    }

    #[test]
    fn a_copy_begins_at_the_directory_of_the_url_that_was_given() {
        let base = |from: &str| base_of(&url(from)).to_string();
        assert_eq!(folder_of(&url("http://a.example/data")).as_str(), "http://a.example/data/");
        assert_eq!(base("http://a.example"), "http://a.example/");
        assert_eq!(base("http://a.example/data/capabilitylist.xml?x#y"), "http://a.example/data/");
        assert_eq!(base("http://a.example/data/.well-known/resourcesync"), "http://a.example/data/");
    }

    #[test]
    fn a_document_anywhere_in_a_source_stands_for_the_directory_of_its_source_description() {
        let description = url("http://a.example/data/.well-known/resourcesync");
        let base = |requested: &str| base_of_source(&url(requested), Some(&description)).to_string();
        assert_eq!(base("http://a.example/data/resync/capabilitylist.xml"), "http://a.example/data/");
        assert_eq!(base("http://a.example/data/part/"), "http://a.example/data/part/");
        assert_eq!(base("http://b.example/resync/list.xml"), "http://b.example/resync/");
    }

    #[test]
    fn entries_and_links_of_a_capability_list_are_bounded() {
        let read = |entries: usize| {
            let hubs = r#"<rs:ln rel="hub" href="http://h.example/"/>"#.repeat(999);
            let loc = "<loc>http://a.example/topic</loc>";
            let topic = format!(r#"<url>{loc}<rs:md capability="framework-notification"/>{hubs}</url>"#);
            let mut file = tempfile::tempfile().unwrap();
            write!(
                file,
                r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="capabilitylist"/>{}</urlset>"#,
                topic.repeat(entries)
            )
            .unwrap();
            file.rewind().unwrap();
            read_parsed(&url("http://a.example/capabilitylist.xml"), &file).map(|parsed| parsed.entries.len())
        };
        assert!(matches!(read(10), Ok(10)));
        let refused = read(11).unwrap_err().to_string();
        assert!(refused.starts_with("more than 10000 entries and links at"), "{refused}");
    }

    fn set(name: &str) -> Set {
        Set { capability_list: Some(url(name)), ..Set::bare(url("http://a.example/rl.xml")) }
    }

    #[test]
    fn rs164_several_sets_are_asked_about_and_chosen_by_name_or_part() {
        let mut source = Source::with_set(set("http://a.example/one/cl.xml"));
        assert!(source.choose(None).is_ok());
        source.sets.push(set("http://a.example/two/cl.xml"));
        let error = source.choose(None).unwrap_err().to_string();
        assert!(error.contains("/one/cl.xml") && error.contains("/two/cl.xml"), "{error}");
        assert_eq!(source.choose(Some("two")).unwrap().name(), "http://a.example/two/cl.xml");
        assert!(matches!(
            source.choose(Some("cl.xml")),
            Err(DiscoverError::UnknownSet { several: true, .. })
        ));
        assert!(matches!(
            source.choose(Some("three")),
            Err(DiscoverError::UnknownSet { several: false, .. })
        ));
    }

    #[test]
    fn w182_https_hubs_are_preferred_and_each_is_asked_once() {
        let topic = TopicUrl::parse("http://a.example/topic").unwrap();
        let hubs = vec![url("http://h.example/"), url("https://h.example/"), url("http://h.example/")];
        let channel = Channel { topic, hubs };
        assert_eq!(channel.hub().unwrap().scheme(), "https");
        assert_eq!(channel.hubs_by_preference().len(), 2);
    }
}
