//! The versions of a resource that somebody keeps: finds its TimeMap, and reads it (RFC 7089, section 5; MEM-058).

use std::collections::{HashSet, VecDeque};
use std::io::BufReader;

use http::HeaderMap;
use resync_core::datetime::DateTime;
use resync_core::document::{Entry, Relation, Root};
use resync_core::memento::{LinkFormatReader, MAX_TIME_MAP, TimeMapLink, is_same_original};
use resync_core::websub::{LinkHeader, LinkValue};
use resync_core::xml::{ReadError, Reader};
use serde::Serialize;
use url::Url;

use super::{DiscoverError, Source};
use crate::blocking::blocking;
use crate::fetch::{Client, Deadline, FetchError, Fetched, Follow, MAX_URL, is_moved, led_to};
use crate::text;

/// How many pages of a TimeMap are read.
const MAX_PAGES: usize = 1000;

/// How many bytes the URIs of all versions may have: resolved against a long base, short references become long ones.
const MAX_URIS: u64 = 50_000_000;

/// How many lists are searched for a resource.
const MAX_LISTS: usize = 1000;

/// The versions of a resource, as a TimeMap lists them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TimeMap {
    /// The resource.
    pub original: Url,
    /// Where the TimeMap is.
    pub time_map: Url,
    /// Where a version is negotiated by its time.
    pub time_gate: Option<String>,
    /// The versions, oldest first.
    pub versions: Vec<KnownVersion>,
    /// How many of its links could not be read.
    pub skipped: u64,
    /// Further TimeMaps that it leads to and that could not be read.
    pub unreadable: Vec<UnreadablePage>,
}

/// A further TimeMap that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnreadablePage {
    /// Where it is.
    pub url: Url,
    /// Why it cannot be read.
    pub reason: String,
}

/// A version in a TimeMap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct KnownVersion {
    /// Its moment.
    #[serde(rename = "datetime", with = "text")]
    pub at: DateTime,
    /// Where it is.
    pub url: String,
}

/// Finds the TimeMap of a resource and reads it, with all its pages.
///
/// What the resource itself answers says where it is, or else its entry in a Resource List of the Source, or else a TimeGate that one of
/// these names (MEM-021, MEM-035). Its further pages may be at the origins of the resource, of the Source and of its first page, and at
/// those of the `others`, or at any if these are `None` (MEM-059). Pages elsewhere are among [the unreadable ones](TimeMap::unreadable).
///
/// # Errors
/// [`DiscoverError::NoTimeMap`], [`DiscoverError::TimeMap`] and [`DiscoverError::Fetch`].
pub async fn versions_of(
    client: &Client,
    source: &Source,
    original: &Url,
    others: Option<&[Url]>,
) -> Result<TimeMap, DiscoverError> {
    let time_map = find(client, source, original).await?;
    let own = [original, &source.base, &time_map];
    let allowed = others.map(|others| own.into_iter().chain(others).cloned().collect());
    Reading { allowed, ..Reading::of(original, time_map) }.run(client).await
}

/// Where versions of a resource are.
#[derive(Debug, Default)]
struct Places {
    time_map: Option<Url>,
    time_gate: Option<Url>,
}

impl Places {
    fn in_links(links: &LinkHeader) -> Self {
        let place = |rel| links.first(rel).and_then(|target| Url::parse(target).ok()).filter(is_usable);
        Self { time_map: place("timemap"), time_gate: place("timegate") }
    }

    fn in_entry(entry: &Entry, document: &Url) -> Self {
        let place = |rel| entry.link(rel).and_then(|link| led_to(document, &link.href)).filter(is_usable);
        Self { time_map: place(&Relation::TimeMap), time_gate: place(&Relation::TimeGate) }
    }

    /// What is known of both; `self` goes before.
    fn or(self, other: Self) -> Self {
        Self { time_map: self.time_map.or(other.time_map), time_gate: self.time_gate.or(other.time_gate) }
    }
}

fn is_usable(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.as_str().len() <= MAX_URL
}

async fn find(client: &Client, source: &Source, original: &Url) -> Result<Url, DiscoverError> {
    let mut places = match asked(client, original).await {
        Ok(places) => places,
        // The lists may know it all the same.
        Err(error) => {
            tracing::debug!(%error, "a resource does not say where its versions are");
            Places::default()
        }
    };
    if places.time_map.is_none() {
        places = places.or(listed(client, source, original).await);
    }
    let time_map = match (places.time_map, places.time_gate) {
        (None, Some(time_gate)) => asked(client, &time_gate).await?.time_map,
        (time_map, _) => time_map,
    };
    time_map.ok_or_else(|| DiscoverError::NoTimeMap { original: Box::new(original.clone()) })
}

/// What the headers of an answer say, whatever its status: one who deleted a resource may keep its versions.
async fn asked(client: &Client, url: &Url) -> Result<Places, FetchError> {
    let mut deadline = Deadline::after(client.options().document_timeout);
    let reply = client.ask(url, Follow::Anywhere, HeaderMap::new(), &mut deadline).await?;
    Ok(Places::in_links(&reply.links))
}

/// What the Resource Lists say. One that cannot be read says nothing.
async fn listed(client: &Client, source: &Source, original: &Url) -> Places {
    let roots = source.sets.iter().filter_map(|set| set.resource_list.clone());
    let (mut open, mut seen) = (roots.collect::<VecDeque<_>>(), HashSet::new());
    while let Some(list) = open.pop_front() {
        if seen.len() >= MAX_LISTS || !seen.insert(list.clone()) {
            continue;
        }
        let fetched = match client.document(&list).await {
            Ok(fetched) => fetched,
            Err(error) => {
                tracing::debug!(%error, "cannot search a list for a resource");
                continue;
            }
        };
        let wanted = original.clone();
        match blocking(move || searched(&fetched, &wanted)).await {
            Ok((Some(places), _)) => return places,
            Ok((None, parts)) => open.extend(parts),
            Err(error) => tracing::debug!(%error, %list, "cannot search a list for a resource"),
        }
    }
    Places::default()
}

/// What one list says of the resource, and the lists of an index.
fn searched(fetched: &Fetched, wanted: &Url) -> Result<(Option<Places>, Vec<Url>), ReadError> {
    let mut reader = Reader::new(BufReader::new(&fetched.file))?;
    let is_index = reader.header().root == Root::SitemapIndex;
    let mut parts = Vec::new();
    for entry in reader.by_ref() {
        let entry = entry?;
        let Some(url) = led_to(&fetched.url, &entry.loc) else { continue };
        if is_index && parts.len() < MAX_LISTS {
            parts.push(url);
        } else if url == *wanted {
            return Ok((Some(Places::in_entry(&entry, &fetched.url)), Vec::new()));
        }
    }
    Ok((None, parts))
}

/// A TimeMap that is being read.
struct Reading {
    found: TimeMap,
    /// At whose origins its pages may be; `None` for any.
    allowed: Option<Vec<Url>>,
    open: VecDeque<Url>,
    /// So that pages that lead to each other end.
    seen: HashSet<Url>,
    /// How many more bytes are read.
    room: u64,
    /// How many more bytes of URIs are kept.
    uri_room: u64,
    is_one: bool,
    /// Whether it has more pages than are read.
    has_more_pages: bool,
}

impl Reading {
    fn of(original: &Url, time_map: Url) -> Self {
        let found = TimeMap {
            original: original.clone(),
            time_map: time_map.clone(),
            time_gate: None,
            versions: Vec::new(),
            skipped: 0,
            unreadable: Vec::new(),
        };
        let seen = HashSet::from([time_map.clone()]);
        let open = VecDeque::from([time_map]);
        let (is_one, has_more_pages) = (false, false);
        let (room, uri_room) = (MAX_TIME_MAP, MAX_URIS);
        Self { found, allowed: None, open, seen, room, uri_room, is_one, has_more_pages }
    }

    async fn run(mut self, client: &Client) -> Result<TimeMap, DiscoverError> {
        while let Some(page) = self.open.pop_front() {
            if !self.may_ask(&page) {
                let reason = "it has another origin; if you trust it, allow it with --origin".to_owned();
                self.found.unreadable.push(UnreadablePage { url: page, reason });
                continue;
            }
            match self.page(client, &page).await {
                Ok(()) => {}
                // The other pages have versions too.
                Err(DiscoverError::Fetch(error)) if page != self.found.time_map => {
                    let reason = error.about(page.as_str());
                    self.found.unreadable.push(UnreadablePage { url: page, reason });
                }
                Err(error) => return Err(error),
            }
        }
        if !self.is_one {
            return Err(self.wrong("it is no TimeMap"));
        }
        self.found.versions.sort();
        self.found.versions.dedup();
        Ok(self.found)
    }

    fn may_ask(&self, page: &Url) -> bool {
        let origin = page.origin();
        let is_of = |one: &Url| one.origin() == origin || is_moved(&one.origin(), &origin);
        self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(is_of))
    }

    /// Reads one page while it arrives.
    async fn page(&mut self, client: &Client, page: &Url) -> Result<(), DiscoverError> {
        let mut deadline = Deadline::after(client.options().document_timeout);
        let is_first = *page == self.found.time_map;
        let follow = match &self.allowed {
            Some(allowed) if !is_first => Follow::Among(allowed, page),
            _ => Follow::Anywhere,
        };
        let answer = client.get(page, follow, HeaderMap::new(), &mut deadline).await?;
        let mut answer = answer.ok_or_else(|| FetchError::of_status(page, 304))?;
        self.seen.insert(answer.url.clone());
        if is_first && let Some(allowed) = &mut self.allowed {
            allowed.push(answer.url.clone());
        }
        let mut reader = LinkFormatReader::new(self.room);
        while let Some(chunk) = deadline.meet(page, answer.chunk()).await?? {
            self.room = self.room.saturating_sub(chunk.len() as u64);
            let links = reader.read(&chunk).map_err(|error| self.wrong(&error.to_string()))?;
            self.take(&links, &answer.url)?;
        }
        let end = reader.end();
        self.found.skipped += end.skipped;
        self.take(&end.links, &answer.url)
    }

    fn take(&mut self, links: &[LinkValue], page: &Url) -> Result<(), DiscoverError> {
        for link in links.iter().flat_map(|link| TimeMapLink::read(link, page)) {
            self.is_one = true;
            match link {
                TimeMapLink::Original(uri) => self.is_of(&uri)?,
                TimeMapLink::TimeGate(uri)
                | TimeMapLink::TimeMap { uri, .. }
                | TimeMapLink::Memento { uri, .. }
                    if uri.len() > MAX_URL =>
                {
                    self.found.skipped += 1;
                }
                TimeMapLink::TimeGate(uri) => {
                    self.found.time_gate.get_or_insert(uri);
                }
                TimeMapLink::TimeMap { uri, .. } => self.leads_to(&uri),
                TimeMapLink::Memento { uri, at } => {
                    self.keep(KnownVersion { at: at.datetime(), url: uri })?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn keep(&mut self, version: KnownVersion) -> Result<(), DiscoverError> {
        let left = self.uri_room.checked_sub(version.url.len() as u64);
        self.uri_room = left.ok_or_else(|| {
            self.wrong(&format!("the URIs of its versions have more than {MAX_URIS} bytes"))
        })?;
        self.found.versions.push(version);
        Ok(())
    }

    /// An error if it is of another resource.
    fn is_of(&self, original: &str) -> Result<(), DiscoverError> {
        if is_same_original(original, self.found.original.as_str()) {
            return Ok(());
        }
        Err(self.wrong(&format!("it is of {original}")))
    }

    fn leads_to(&mut self, uri: &str) {
        let Some(next) = Url::parse(uri).ok().filter(is_usable) else { return };
        if self.seen.contains(&next) {
            return;
        }
        if self.seen.len() >= MAX_PAGES {
            // The others would say the same.
            if !std::mem::replace(&mut self.has_more_pages, true) {
                let reason = format!("the TimeMap has more than {MAX_PAGES} pages");
                self.found.unreadable.push(UnreadablePage { url: next, reason });
            }
            return;
        }
        self.seen.insert(next.clone());
        self.open.push_back(next);
    }

    fn wrong(&self, reason: &str) -> DiscoverError {
        DiscoverError::TimeMap { url: Box::new(self.found.time_map.clone()), reason: reason.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of these links on a page whose URL has so many bytes.
    fn take(reading: &mut Reading, links: &str, page_bytes: usize) -> Result<(), DiscoverError> {
        let start = "http://a.example/";
        let page = format!("{start}{}/", "x".repeat(page_bytes - start.len() - 1));
        let mut reader = LinkFormatReader::new(MAX_TIME_MAP);
        let mut found = reader.read(links.as_bytes()).unwrap();
        found.extend(reader.end().links);
        reading.take(&found, &Url::parse(&page).unwrap())
    }

    fn reading() -> Reading {
        let url = |path: &str| Url::parse(&format!("http://a.example/{path}")).unwrap();
        Reading::of(&url("a"), url("map"))
    }

    /// A link to a version.
    fn memento(reference: &str) -> String {
        format!("<{reference}>; rel=\"memento\"; datetime=\"Fri, 20 Nov 2026 09:00:00 GMT\",\n")
    }

    #[test]
    fn mem058_short_references_to_versions_cannot_become_gigabytes() {
        let mut reading = Reading { uri_room: 10_000, ..reading() };
        take(&mut reading, &memento("v").repeat(2), 4000).unwrap();
        let error = take(&mut reading, &memento("v"), 4000).unwrap_err();
        assert!(error.to_string().contains("more than 50000000 bytes"), "{error}");
        assert_eq!(reading.found.versions.len(), 2);
    }

    #[test]
    fn mem058_links_that_are_too_long_once_they_are_resolved_are_left_out() {
        let mut reading = reading();
        let others = "<gate>; rel=\"timegate\",\n<next>; rel=\"timemap\",\n";
        take(
            &mut reading,
            &format!("{others}{}{}", memento("version"), memento("http://a.example/v")),
            MAX_URL,
        )
        .unwrap();
        assert_eq!((reading.found.skipped, reading.found.time_gate.is_none()), (3, true));
        assert_eq!(reading.found.versions.len(), 1, "only the one that is short all the same");
        assert_eq!(reading.open.len(), 1);
    }

    #[test]
    fn mem058_that_there_are_too_many_pages_is_said_once() {
        let mut reading = reading();
        let pages = (0..3 * MAX_PAGES).map(|number| format!("<page-{number}>; rel=\"timemap\",\n"));
        take(&mut reading, &pages.collect::<String>(), 100).unwrap();
        assert_eq!(reading.open.len(), MAX_PAGES);
        let said: Vec<_> = reading.found.unreadable.iter().map(|page| page.reason.as_str()).collect();
        assert_eq!(said, ["the TimeMap has more than 1000 pages"]);
    }
}
