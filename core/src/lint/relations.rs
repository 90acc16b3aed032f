//! What documents say of each other, checked link by link once all of them were read.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Kind;
use super::chain;
use super::reading::{Role, Summary, archived};
use super::site::{Edge, Site};
use super::uniform;
use crate::document::{Capability, Root};
use crate::rules::{Place, Rule, Times};

/// Checks every link, and the documents of each index against each other.
pub(super) fn check(site: &mut Site, is_in_order: bool) {
    let edges = std::mem::take(&mut site.edges);
    let links = Links::new(&edges);
    for edge in &edges {
        Pair::new(site, &links, edge).check();
    }
    check_contents(site, &edges);
    check_indexes(site, &edges);
    uniform::check(site, &edges);
    check_channels(site, is_in_order);
}

/// Which documents list which, and which say that they lie under an index.
struct Links {
    /// By an entry of whatever kind: (from, to).
    listed: HashSet<(usize, usize)>,
    /// The indexes that a document lies under, as it says or as they say.
    indexes: HashMap<usize, Vec<usize>>,
    points_at_index: HashSet<usize>,
    /// Documents that lie in an archive.
    archived: HashSet<usize>,
}

impl Links {
    fn new(edges: &[Edge]) -> Self {
        let mut links = Self {
            listed: HashSet::new(),
            indexes: HashMap::new(),
            points_at_index: HashSet::new(),
            archived: HashSet::new(),
        };
        for &Edge { from, to, ref role, .. } in edges {
            match role {
                Role::Listed(_) | Role::Component => drop(links.listed.insert((from, to))),
                Role::Archived => drop(links.archived.insert(to)),
                Role::Index => drop(links.points_at_index.insert(from)),
                _ => {}
            }
            match role {
                Role::Index => links.indexes.entry(from).or_default().push(to),
                Role::Component => links.indexes.entry(to).or_default().push(from),
                _ => {}
            }
        }
        links
    }

    fn indexes(&self, document: usize) -> &[usize] {
        self.indexes.get(&document).map_or(&[], Vec::as_slice)
    }

    /// Whether a Capability List or a Source Description leads to a document, by way of its index if need be.
    fn lists(&self, list: usize, document: usize) -> bool {
        self.listed.contains(&(list, document))
            || self.indexes(document).iter().any(|&index| self.listed.contains(&(list, index)))
    }

    fn is_archived(&self, document: usize) -> bool {
        self.archived.contains(&document)
            || self.indexes(document).iter().any(|index| self.archived.contains(index))
    }
}

/// A link between two documents.
struct Pair<'a> {
    site: &'a mut Site,
    links: &'a Links,
    edge: &'a Edge,
}

impl<'a> Pair<'a> {
    fn new(site: &'a mut Site, links: &'a Links, edge: &'a Edge) -> Self {
        Self { site, links, edge }
    }

    fn check(mut self) {
        let (Some(from), Some(to)) = (self.kind(self.edge.from), self.kind(self.edge.to)) else { return };
        match &self.edge.role {
            Role::Up => self.check_up(&from, &to),
            Role::Index => self.check_index(&from, &to),
            Role::Component => self.check_component(&from, &to),
            Role::Archived => self.check_archived(&from, &to),
            Role::Listed(capability) => self.expect(capability, &to, Rule::EntryTarget),
            Role::Archives => {
                if to.capability.as_ref().and_then(archived) != from.capability {
                    self.report(Rule::ArchivesTarget, format!("{} is a {to}", self.target()));
                }
            }
            Role::Contents | Role::Package(_) => {
                let manifest = match from.capability {
                    Some(Capability::ChangeDump) => Capability::ChangeDumpManifest,
                    _ => Capability::ResourceDumpManifest,
                };
                self.expect(&manifest, &to, Rule::EntryTarget);
                self.check_times();
            }
            Role::Sample | Role::Topic(_) | Role::Version(..) => {}
        }
    }

    /// The way up goes over the Capability List to the Source Description, and what points up is listed there.
    fn check_up(&mut self, from: &Kind, to: &Kind) {
        let is = |capability: &Capability| to.is(capability);
        let fits = match &from.capability {
            Some(Capability::CapabilityList) => is(&Capability::Description),
            Some(capability) if capability.is_notification() => {
                is(&Capability::CapabilityList) || is(&Capability::Description)
            }
            _ => is(&Capability::CapabilityList),
        };
        if !fits {
            let is_index = to.root == Root::SitemapIndex && to.capability == from.capability;
            let rule = if is_index { Rule::UpIsIndex } else { Rule::UpTarget };
            return self.report(rule, format!("{} is a {to}", self.target()));
        }
        let Edge { from: document, to: list, .. } = *self.edge;
        // What was not read cannot be missed.
        if !self.site.is_complete() || self.links.lists(list, document) {
            return;
        }
        match &from.capability {
            Some(Capability::CapabilityList) if to.root == Root::SitemapIndex => {}
            Some(Capability::CapabilityList) => {
                self.report(Rule::CapabilityListUnlisted, format!("{} does not", self.target()));
            }
            Some(
                Capability::ResourceDumpManifest | Capability::ChangeDumpManifest | Capability::Other(_),
            )
            | None => {}
            Some(capability) if capability.is_notification() || self.links.is_archived(document) => {}
            Some(_) => self.report(Rule::DocumentUnlisted, format!("{} does not", self.target())),
        }
    }

    fn check_index(&mut self, from: &Kind, to: &Kind) {
        let target = self.target();
        if to.capability != from.capability {
            self.report(Rule::IndexLinkTarget, format!("{target} is a {to}"));
        } else if self.links.is_archived(self.edge.from) {
            // What is archived keeps its content, its index link too: the index goes on without it (AR-016), or is one no more.
        } else if to.root == Root::UrlSet {
            let listed_by = self.site.nodes[self.edge.from].checked.url.clone();
            self.site.report(
                self.edge.to,
                Rule::IndexAsUrlset,
                Place::default(),
                format!("this is a urlset, but the index of {listed_by}"),
            );
        } else if self.site.is_complete() && !self.links.listed.contains(&(self.edge.to, self.edge.from)) {
            self.report(Rule::IndexLinkTarget, format!("{target} does not list this document"));
        }
    }

    fn check_component(&mut self, from: &Kind, to: &Kind) {
        if to.root == Root::SitemapIndex {
            return self.report(Rule::IndexNested, format!("{} is a {to}", self.target()));
        }
        if let Some(capability) = &from.capability {
            self.expect(capability, to, Rule::EntryTarget);
        }
        if to.capability == from.capability && !self.links.points_at_index.contains(&self.edge.to) {
            let index = self.site.nodes[self.edge.from].checked.url.clone();
            let place = Place::default();
            self.site.report(self.edge.to, Rule::IndexLinkMissing, place, format!("it lies under {index}"));
        }
        self.check_closing();
        self.check_times();
    }

    fn check_archived(&mut self, from: &Kind, to: &Kind) {
        if let Some(capability) = from.capability.as_ref().and_then(archived) {
            self.expect(&capability, to, Rule::EntryTarget);
        }
        let open = self.times(self.edge.to).is_some_and(|times| times.is_open());
        if open && self.edge.times.until.is_some() {
            self.report(Rule::ArchivedOpen, format!("{} has no until", self.target()));
        }
        self.check_times();
    }

    /// An entry has until when its document is closed, and only then (RS-125).
    fn check_closing(&mut self) {
        let Some(times) = self.times(self.edge.to).filter(|times| times.from.is_some()) else { return };
        match (self.edge.times.until, times.until) {
            (None, Some(_)) if self.site.is_under_way => self.site.outcome.indexes_late += 1,
            (None, Some(until)) => {
                self.report(Rule::UntilMissing, format!("{} ended at {until}", self.target()));
            }
            (Some(_), None) => self.report(Rule::UntilOnOpen, format!("{} has no until", self.target())),
            _ => {}
        }
    }

    /// The times that an entry gives are those of its document.
    fn check_times(&mut self) {
        let Some(own) = self.times(self.edge.to) else { return };
        let found = self.edge.times;
        for (name, found, own) in [
            ("at", found.at, own.at),
            ("completed", found.completed, own.completed),
            ("from", found.from, own.from),
            ("until", found.until, own.until),
        ] {
            if let (Some(found), Some(own)) = (found, own)
                && found != own
            {
                let target = self.target();
                self.report(Rule::EntryTimes, format!("{name} is {found}, but {own} in {target}"));
            }
        }
    }

    fn expect(&mut self, capability: &Capability, found: &Kind, rule: Rule) {
        if !found.is(capability) {
            self.report(rule, format!("{} is a {found}, not a {capability}", self.target()));
        }
    }

    fn kind(&self, node: usize) -> Option<Kind> {
        self.site.nodes[node].summary.as_ref().map(|summary| summary.kind.clone())
    }

    fn times(&self, node: usize) -> Option<Times> {
        self.site.nodes[node].summary.as_ref().map(|summary| summary.times)
    }

    fn target(&self) -> &str {
        &self.site.nodes[self.edge.to].checked.url
    }

    fn report(&mut self, rule: Rule, detail: String) {
        self.site.report(self.edge.from, rule, self.edge.place, detail);
    }
}

/// A copy of a manifest has the content of the one in its package (RS-103).
fn check_contents(site: &mut Site, edges: &[Edge]) {
    let fingerprint =
        |site: &Site, node: usize| -> Option<u64> { site.nodes[node].summary.as_ref()?.fingerprint };
    let packages: HashMap<_, _> = edges
        .iter()
        .filter(|edge| matches!(edge.role, Role::Package(_)))
        .map(|edge| ((edge.from, edge.place.entry), edge.to))
        .collect();
    for edge in edges.iter().filter(|edge| edge.role == Role::Contents) {
        let Some(&package) = packages.get(&(edge.from, edge.place.entry)) else { continue };
        if let (Some(copy), Some(original)) = (fingerprint(site, edge.to), fingerprint(site, package))
            && copy != original
        {
            let (copy, original) = (&site.nodes[edge.to].checked.url, &site.nodes[package].checked.url);
            let detail = format!("{copy} differs from {original}");
            site.report(edge.from, Rule::ContentsDiffer, edge.place, detail);
        }
    }
}

/// The documents of an index follow each other as its entries do (RS-121, RS-125, RS-127), or lie within it (RS-095).
fn check_indexes(site: &mut Site, edges: &[Edge]) {
    // Entries of one index stand together, and in document order.
    for entries in edges.chunk_by(|one, next| one.from == next.from) {
        let components: Vec<_> = entries.iter().filter(|edge| edge.role == Role::Component).collect();
        for (number, edge) in components.iter().enumerate() {
            let previous = number.checked_sub(1).map(|number| components[number]);
            for (rule, detail) in succession(site, previous, edge) {
                site.report(edge.from, rule, edge.place, detail);
            }
        }
    }
}

/// What is wrong between an entry of an index and the one before it, unless the entries' own times show it already.
fn succession(site: &Site, previous: Option<&Edge>, edge: &Edge) -> Vec<(Rule, String)> {
    let summary = |node: usize| site.nodes[node].summary.as_ref();
    let (Some(index), Some(this)) = (summary(edge.from), summary(edge.to)) else { return Vec::new() };
    let mut found = Vec::new();
    if let (None, Some(part), Some(whole)) = (edge.times.at, this.times.at, index.times.at)
        && part < whole
    {
        found.push((Rule::SnapshotOutside, format!("its at {part} is before {whole}")));
    }
    let is_open = |summary: &Summary| summary.times.is_open();
    if edge.times.from.is_none() && is_open(this) && index.times.until.is_some() {
        found.push((Rule::OpenUnderClosed, "the index has until, and the document has none".to_owned()));
    }
    let Some((before, earlier)) = previous.and_then(|before| Some((before, summary(before.to)?))) else {
        return found;
    };
    if let (Some((_, last)), Some((first, _))) = (earlier.changes, this.changes)
        && first < last
    {
        found.push((
            Rule::IndexOrder,
            format!("it has a change at {first}, and the document before it one at {last}"),
        ));
    }
    let dated = before.times.from.is_some() && before.times.until.is_some() && edge.times.from.is_some();
    if dated {
        return found;
    }
    if before.times.from.is_none() && is_open(earlier) {
        found.push((Rule::OpenBeforeLast, "the document before it is open".to_owned()));
    }
    if let (Some(end), Some(start)) = (earlier.times.until, this.times.from)
        && end != start
    {
        found
            .push((Rule::BoundaryGap, format!("the document before it ends at {end}, it starts at {start}")));
    }
    found
}

/// The Change Notifications of a set of resources follow each other (CN-008).
///
/// Only a Capability List stands for one set: those that point up to a Source Description, to what was not read, or to nothing
/// (CN-010) may be of several sets, so they are held against each other only where the caller says that they come in order.
fn check_channels(site: &mut Site, is_in_order: bool) {
    let mut channels: BTreeMap<Channel, Vec<(usize, Times)>> = BTreeMap::new();
    for (number, node) in site.nodes.iter().enumerate() {
        if let Some(summary) = &node.summary
            && summary.kind.is(&Capability::ChangeNotification)
            && let Some(channel) = channel(site, summary.up.as_deref(), is_in_order)
        {
            channels.entry(channel).or_default().push((number, summary.times));
        }
    }
    let mut found = Vec::new();
    for mut notifications in channels.into_values() {
        if !is_in_order {
            notifications.sort_by_key(|(_, times)| (times.from, times.until));
        }
        let mut last = None;
        for (node, Times { from, until, .. }) in notifications {
            found.extend(chain::flaw(last, from).map(|flaw| (node, flaw)));
            last = until.or(last);
        }
    }
    for (node, flaw) in found {
        site.report(node, Rule::NotificationChain, Place::default(), flaw);
    }
}

/// What Change Notifications have in common that make up a chain.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Channel<'a> {
    /// The Capability List that they point up to.
    Set(usize),
    /// What they point up to was not read; or they do not point up.
    Given(Option<&'a str>),
}

fn channel<'a>(site: &Site, up: Option<&'a str>, is_given: bool) -> Option<Channel<'a>> {
    let document = up.and_then(|up| site.document(up));
    let read = document.and_then(|document| Some((document, site.nodes[document].summary.as_ref()?)));
    match read {
        Some((document, summary)) if summary.kind.is(&Capability::CapabilityList) => {
            Some(Channel::Set(document))
        }
        _ => is_given.then_some(Channel::Given(up)),
    }
}
