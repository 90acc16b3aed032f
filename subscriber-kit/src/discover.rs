//! Discovery: from any URL of a Source to its sets, their lists and their notification channels.
//!
//! The search goes by RS-164: the URL itself if it is a ResourceSync document, else its `Link:
//! rel="resourcesync"` header (RS-161, RS-165), else the well-known places of its directory and its host.

use std::fmt::Write as _;
use std::io::BufReader;

use resync_core::document::{Capability, Entry, Header, Relation, Root};
use resync_core::websub::key::TopicUrl;
use resync_core::xml::{ReadError, Reader};
use url::Url;

use crate::fetch::{Client, FetchError, Fetched};

/// How many sets of one Source are read.
pub const MAX_SETS: usize = 256;

/// Where a Source Description should be (RS-071).
const WELL_KNOWN: &str = ".well-known/resourcesync";

/// How many Source Descriptions an index may lead to.
const MAX_DESCRIPTIONS: usize = 32;

/// What a Source offers.
#[derive(Clone, Debug)]
pub struct Source {
    /// The directory that the URL asked for stands for: where the `DIR` of a copy begins.
    pub base: Url,
    /// The document that the search ended at.
    pub found_at: Url,
    /// The Source Description, if one was seen or named.
    pub description: Option<Url>,
    /// The sets that could be read.
    pub sets: Vec<Set>,
    /// The sets that could not be read, and why.
    pub unreadable: Vec<Unreadable>,
}

/// One set of resources: what a Capability List covers.
#[derive(Clone, Debug)]
pub struct Set {
    /// The Capability List; `None` when all there is is a bare list.
    pub capability_list: Option<Url>,
    /// The Resource List or its index (RS-014: only reading it tells).
    pub resource_list: Option<Url>,
    /// Everything the Capability List names, in its order.
    pub capabilities: Vec<(Capability, Url)>,
    /// Where Framework Notifications are sent (FN-060).
    pub framework_channel: Option<Channel>,
    /// Where Change Notifications are sent (CN-019).
    pub change_channel: Option<Channel>,
    /// A description of the set.
    pub described_by: Option<Url>,
}

/// A notification channel: a topic and the hubs that carry it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The topic URI as the Capability List writes it.
    pub topic: TopicUrl,
    /// Its hubs in the order named (FN-062).
    pub hubs: Vec<Url>,
}

/// A set that was named but could not be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// The document.
    pub url: Url,
    /// What went wrong with it.
    pub reason: String,
}

/// Why discovery ended without what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// The text is no absolute URL.
    #[error("{text:?} is not a URL ({reason}): give one such as https://example.org/")]
    Url {
        /// What was given.
        text: String,
        /// Why it is none.
        reason: url::ParseError,
    },
    /// The Source cannot be reached at all.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Nothing at the URL nor at any well-known place.
    #[error(
        "no ResourceSync document at {url}; looked at:{}\ngive the URL of a Source Description, a Capability List or a Resource List",
        list(tried)
    )]
    NothingFound {
        /// Where the search began.
        url: Url,
        /// What was tried, and what each place said.
        tried: Vec<Unreadable>,
    },
    /// The Source names sets, none of which can be read.
    #[error("none of the Source's sets can be read:{}", list(sets))]
    NoReadableSet {
        /// The sets.
        sets: Vec<Unreadable>,
    },
    /// The Source has several sets and none was chosen.
    #[error("the Source has {} sets; choose one with --set:\n  {}", sets.len(), sets.join("\n  "))]
    SeveralSets {
        /// Their names: the URLs of their Capability Lists.
        sets: Vec<String>,
    },
    /// The chosen set does not exist, or the choice fits several.
    #[error("{wanted:?} names {} of the Source's sets; they are:\n  {}", if *several { "several" } else { "none" }, sets.join("\n  "))]
    UnknownSet {
        /// What was chosen.
        wanted: String,
        /// Whether it fits more than one set.
        several: bool,
        /// The names there are.
        sets: Vec<String>,
    },
}

fn list(places: &[Unreadable]) -> String {
    places.iter().fold(String::new(), |mut text, place| {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {}: {}", place.url, place.reason);
        text
    })
}

impl Source {
    /// The set that `wanted` names (its Capability List's URL or a part of it that no other set has), or the
    /// only one.
    ///
    /// # Errors
    /// [`DiscoverError::SeveralSets`] and [`DiscoverError::UnknownSet`], both with the names to choose from.
    pub fn choose(&self, wanted: Option<&str>) -> Result<&Set, DiscoverError> {
        let names = || self.sets.iter().map(Set::name).collect();
        let Some(wanted) = wanted else {
            return match self.sets.as_slice() {
                [only] => Ok(only),
                _ => Err(DiscoverError::SeveralSets { sets: names() }),
            };
        };
        if let Some(exact) = self.sets.iter().find(|set| set.name() == wanted) {
            return Ok(exact);
        }
        let fitting: Vec<&Set> = self.sets.iter().filter(|set| set.name().contains(wanted)).collect();
        match fitting.as_slice() {
            [only] => Ok(only),
            _ => Err(DiscoverError::UnknownSet {
                wanted: wanted.to_owned(),
                several: fitting.len() > 1,
                sets: names(),
            }),
        }
    }
}

impl Set {
    /// What the set is called: the URL of its Capability List, or of the only list it has.
    #[must_use]
    pub fn name(&self) -> String {
        let url = self.capability_list.as_ref().or(self.resource_list.as_ref());
        url.map(ToString::to_string).unwrap_or_default()
    }

    fn bare(resource_list: Url) -> Self {
        Self {
            capability_list: None,
            resource_list: Some(resource_list),
            capabilities: Vec::new(),
            framework_channel: None,
            change_channel: None,
            described_by: None,
        }
    }

    fn from_capability_list(document: &Parsed) -> Self {
        let mut set =
            Self { capability_list: Some(document.url.clone()), ..Self::bare(document.url.clone()) };
        set.resource_list = None;
        set.described_by = document.link(&Relation::DescribedBy);
        for entry in &document.entries {
            let (Some(capability), Some(url)) = (entry.capability(), document.resolve(&entry.loc)) else {
                continue;
            };
            match capability {
                Capability::ResourceList => set.resource_list = Some(url.clone()),
                Capability::FrameworkNotification => set.framework_channel = document.channel(entry),
                Capability::ChangeNotification => set.change_channel = document.channel(entry),
                _ => {}
            }
            set.capabilities.push((capability.clone(), url));
        }
        set
    }
}

impl Channel {
    /// The hub to subscribe at: the first https one, else the first (W-182).
    #[must_use]
    pub fn hub(&self) -> Option<&Url> {
        self.hubs.iter().find(|hub| hub.scheme() == "https").or_else(|| self.hubs.first())
    }
}

/// Finds out what the Source at `url` offers.
///
/// `url` may be a Source's base, its Source Description, a Capability List, a Resource List or any page with
/// a `Link: rel="resourcesync"` header. At most [`MAX_SETS`] sets are read.
///
/// # Errors
/// Named causes, each with what to do: see [`DiscoverError`].
pub async fn discover(client: &Client, url: &str) -> Result<Source, DiscoverError> {
    let url = Url::parse(url).map_err(|reason| DiscoverError::Url { text: url.to_owned(), reason })?;
    let mut search = Search { client, tried: Vec::new() };
    if let Some(source) = search.explicit(&url).await? {
        return Ok(Source { base: base_of_source(&url, source.description.as_ref()), ..source });
    }
    for place in well_known_places(&url) {
        if let Some(source) = search.look(&place).await? {
            return Ok(Source { base: folder_of(&url), ..source });
        }
    }
    Err(DiscoverError::NothingFound { url, tried: search.tried })
}

/// The directory that was asked for, else the one whose Source Description it is, else the directory of the
/// document.
fn base_of_source(asked: &Url, description: Option<&Url>) -> Url {
    let described = description.filter(|description| {
        description.path().ends_with(WELL_KNOWN) && description.origin() == asked.origin()
    });
    base_of(described.filter(|_| !asked.path().ends_with('/')).unwrap_or(asked))
}

/// The directory of a document; for a Source Description at its well-known place the one above `.well-known`.
fn base_of(url: &Url) -> Url {
    let mut base = url.clone();
    base.set_query(None);
    base.set_fragment(None);
    let path = base.path().strip_suffix(WELL_KNOWN).unwrap_or(base.path());
    let directory = path.rfind('/').map_or("/", |end| &path[..=end]).to_owned();
    base.set_path(&directory);
    base
}

/// RS-164's order after the explicit document.
fn well_known_places(url: &Url) -> Vec<Url> {
    let directory = folder_of(url);
    let mut host = url.clone();
    host.set_path("/");
    host.set_query(None);
    host.set_fragment(None);
    let candidates = [
        (&directory, WELL_KNOWN),
        (&host, WELL_KNOWN),
        (&directory, "resourcelist.xml"),
        (&directory, "sitemap.xml"),
        (&host, "sitemap.xml"),
    ];
    let mut places: Vec<Url> = Vec::new();
    for place in candidates.iter().filter_map(|(base, name)| base.join(name).ok()) {
        if place != *url && !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// The directory of a URL that is no document itself: `http://host/data` names a directory as well as
/// `http://host/data/` does.
fn folder_of(url: &Url) -> Url {
    let mut folder = base_of(url);
    if !url.path().ends_with('/') && !names_a_document(url) && url.query().is_none() {
        folder.set_path(&format!("{}/", url.path()));
    }
    folder
}

fn names_a_document(url: &Url) -> bool {
    let extension = std::path::Path::new(url.path()).extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("xml"))
}

/// One search, with a memory of what was tried.
struct Search<'c> {
    client: &'c Client,
    tried: Vec<Unreadable>,
}

impl Search<'_> {
    /// The given URL: if not even the server answers, further places on it need no try.
    async fn explicit(&mut self, url: &Url) -> Result<Option<Source>, DiscoverError> {
        match self.client.document(url).await {
            Ok(fetched) => self.follow(url, fetched).await,
            Err(error @ FetchError::Status { .. }) => {
                self.note(url, &error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn look(&mut self, url: &Url) -> Result<Option<Source>, DiscoverError> {
        match self.client.document(url).await {
            Ok(fetched) => self.follow(url, fetched).await,
            Err(error) => {
                self.note(url, &error);
                Ok(None)
            }
        }
    }

    fn note(&mut self, url: &Url, reason: &dyn std::fmt::Display) {
        self.tried.push(Unreadable { url: url.clone(), reason: reason.to_string() });
    }

    async fn follow(&mut self, asked: &Url, fetched: Fetched) -> Result<Option<Source>, DiscoverError> {
        let linked: Vec<Url> =
            fetched.links.with_rel("resourcesync").filter_map(|target| Url::parse(target).ok()).collect();
        match parse(fetched).await {
            Ok(document) if document.is_of_resourcesync() => self.read_document(document).await,
            Ok(document) if linked.is_empty() => Ok(Some(Source::with_set(Set::bare(document.url)))),
            Err(error) if linked.is_empty() => {
                self.note(asked, &format!("not a ResourceSync document: {error}"));
                Ok(None)
            }
            Ok(_) | Err(_) => {
                let mut source = Source::empty(asked.clone());
                self.read_sets(&mut source, linked).await;
                source.if_readable().map(Some)
            }
        }
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
                        lists.extend(part.locations());
                    }
                    Ok(_) => source.cannot_read(url, "not a Source Description"),
                    Err(reason) => source.cannot_read(url, &reason),
                }
            }
        } else {
            lists = document.locations();
        }
        self.read_sets(&mut source, lists).await;
        source.if_readable()
    }

    /// An explicit Resource List: it is used itself, its Capability List only tells the channels.
    async fn read_list(&mut self, document: Parsed) -> Source {
        let Some(up) = document.link(&Relation::Up) else { return Source::with_set(Set::bare(document.url)) };
        let mut source = Source::empty(document.url.clone());
        self.read_sets(&mut source, vec![up]).await;
        match source.sets.first_mut() {
            Some(set) => set.resource_list = Some(document.url),
            None => source.sets.push(Set::bare(document.url)),
        }
        source
    }

    /// Any other document of a set: its Capability List is one `up` away (RS-053).
    async fn read_member(&mut self, document: Parsed) -> Result<Option<Source>, DiscoverError> {
        let Some(up) = document.link(&Relation::Up) else {
            self.note(&document.url, &"a document without a link up to its Capability List");
            return Ok(None);
        };
        let mut source = Source::empty(document.url);
        self.read_sets(&mut source, vec![up]).await;
        source.if_readable().map(Some)
    }

    async fn read_sets(&mut self, source: &mut Source, lists: Vec<Url>) {
        for url in lists {
            if source.sets.len() + source.unreadable.len() >= MAX_SETS {
                source.cannot_read(
                    url,
                    "the Source has more sets than are read; give the Capability List's URL",
                );
                return;
            }
            match self.read(&url).await {
                Ok(document) if document.capability() == Some(&Capability::CapabilityList) => {
                    source.description = source.description.take().or_else(|| document.link(&Relation::Up));
                    source.sets.push(Set::from_capability_list(&document));
                }
                Ok(_) => source.cannot_read(url, "not a Capability List"),
                Err(reason) => source.cannot_read(url, &reason),
            }
        }
    }

    async fn read(&self, url: &Url) -> Result<Parsed, String> {
        let fetched = self.client.document(url).await.map_err(|error| error.to_string())?;
        parse(fetched).await.map_err(|error| error.to_string())
    }
}

impl Source {
    fn empty(found_at: Url) -> Self {
        let base = base_of(&found_at);
        Self { base, found_at, description: None, sets: Vec::new(), unreadable: Vec::new() }
    }

    fn with_set(set: Set) -> Self {
        let found_at = set.capability_list.clone().or_else(|| set.resource_list.clone());
        // A set is only made from a document, so it always has one of the two.
        let mut source = Self::empty(found_at.expect("a set has a Capability List or a Resource List"));
        source.sets.push(set);
        source
    }

    fn cannot_read(&mut self, url: Url, reason: &str) {
        self.unreadable.push(Unreadable { url, reason: reason.to_owned() });
    }

    fn if_readable(self) -> Result<Self, DiscoverError> {
        if self.sets.is_empty() {
            return Err(DiscoverError::NoReadableSet { sets: self.unreadable });
        }
        Ok(self)
    }
}

/// A document as far as discovery needs it: entries only of the two that lead further.
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
        self.url.join(reference.trim()).ok()
    }

    fn link(&self, relation: &Relation) -> Option<Url> {
        self.header.link(relation).and_then(|link| self.resolve(&link.href))
    }

    /// RS-073: an entry without a capability counts as a Capability List too.
    fn locations(&self) -> Vec<Url> {
        let leads_on = |entry: &&Entry| {
            matches!(entry.capability(), None | Some(Capability::CapabilityList | Capability::Description))
        };
        self.entries.iter().filter(leads_on).filter_map(|entry| self.resolve(&entry.loc)).collect()
    }

    /// The topic stays as it is written, since hub and callback compare it as text.
    fn channel(&self, entry: &Entry) -> Option<Channel> {
        let topic = TopicUrl::parse(&entry.loc).or_else(|error| {
            self.resolve(&entry.loc).map_or(Err(error), |url| TopicUrl::parse(url.as_str()))
        });
        let hubs = entry.links_with(&Relation::Hub).filter_map(|link| self.resolve(&link.href)).collect();
        Some(Channel { topic: topic.ok()?, hubs })
    }
}

async fn parse(fetched: Fetched) -> Result<Parsed, ReadError> {
    let Fetched { url, file, .. } = fetched;
    let read = tokio::task::spawn_blocking(move || {
        let mut reader = Reader::new(BufReader::new(file))?;
        let header = reader.header().clone();
        let leads_on =
            matches!(header.capability(), Some(Capability::Description | Capability::CapabilityList));
        let entries = if leads_on { reader.by_ref().collect::<Result<_, _>>()? } else { Vec::new() };
        Ok(Parsed { url, header, entries })
    });
    read.await.expect("reading a document does not panic, and its task is never aborted")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn rs164_the_well_known_places_are_tried_in_order_and_once() {
        let places =
            |from: &str| well_known_places(&url(from)).iter().map(Url::to_string).collect::<Vec<_>>();
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
        let base = |asked: &str| base_of_source(&url(asked), Some(&description)).to_string();
        assert_eq!(base("http://a.example/data/resync/capabilitylist.xml"), "http://a.example/data/");
        assert_eq!(base("http://a.example/data/part/"), "http://a.example/data/part/");
        assert_eq!(base("http://b.example/resync/list.xml"), "http://b.example/resync/");
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
    fn w182_an_https_hub_is_preferred() {
        let topic = TopicUrl::parse("http://a.example/topic").unwrap();
        let hubs = vec![url("http://h.example/"), url("https://h.example/")];
        assert_eq!(Channel { topic, hubs }.hub().unwrap().scheme(), "https");
    }
}
