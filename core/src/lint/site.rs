//! The documents of a site and the links between them, gathered link by link.

use std::collections::HashMap;
use std::hash::RandomState;

use url::Url;

use super::package::{self, Found};
use super::reading::{self, MAX_URL, PackageListing, Reading, Reference, Role, Summary};
use super::versions::{TRIED, VersionKind};
use super::{Checked, Fetch, FetchFailure, Fetched, MAX_KEPT, Report, Stopped, topic};
use crate::media_type::{essence, is_generic_xml};
use crate::package::PackageReadLimits;
use crate::rules::{Place, Rule, Times, Violations};
use crate::xml::MAX_ENTRIES;

/// How many links are kept for each document on average, so that documents without end that link in circles use up no
/// memory.
const LINKS_PER_DOCUMENT: usize = 20;

/// What was found so far.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    /// What is reported besides the documents.
    pub(super) outcome: Report,
    pub(super) is_under_way: bool,
    /// How many bytes of packages may still be uncompressed.
    unpackable: u64,
    by_url: HashMap<String, usize>,
    max_nodes: usize,
    max_edges: usize,
    max_requests: usize,
    requests: usize,
    /// How many links to versions were tried, by kind.
    tried: [usize; VersionKind::COUNT],
    kept: usize,
    key: RandomState,
}

/// One document, or what should have been one.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) checked: Checked,
    pub(super) summary: Option<Summary>,
    /// The node that stands for the same document, reached by a redirect.
    alias: Option<usize>,
    /// A manifest in a package is read when its package is found.
    read: bool,
    /// It is checked by itself: its links are not followed.
    alone: bool,
}

/// One link between documents.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) role: Role,
    pub(super) place: Place,
    pub(super) times: Times,
}

impl Site {
    pub(super) fn new(max_nodes: usize, max_requests: usize) -> Self {
        Self {
            nodes: Vec::new(),
            edges: Vec::new(),
            outcome: Report::default(),
            is_under_way: false,
            unpackable: PackageReadLimits::default().bytes,
            by_url: HashMap::new(),
            max_nodes,
            max_edges: max_nodes.saturating_mul(LINKS_PER_DOCUMENT).max(MAX_ENTRIES),
            max_requests,
            requests: 0,
            tried: [0; VersionKind::COUNT],
            kept: 0,
            key: RandomState::new(),
        }
    }

    /// Visits everything that `starts` lead to, nearest first, and then what of `others` was not come to.
    pub(super) fn crawl<'u>(
        &mut self,
        fetch: &mut (impl Fetch + ?Sized),
        starts: impl IntoIterator<Item = &'u str>,
        others: impl IntoIterator<Item = &'u str>,
    ) {
        for start in starts {
            self.node(without_fragment(start), None);
        }
        let is_whole = !self.nodes.is_empty();
        self.visit_from(fetch, 0);
        for other in others {
            let url = without_fragment(other);
            if self.by_url.contains_key(&url) {
                continue;
            }
            let Some(node) = self.node(url, None) else { continue };
            self.nodes[node].alone = true;
            self.nodes[node].checked.is_unreached = is_whole;
            self.visit_from(fetch, node);
        }
        for index in 0..self.edges.len() {
            self.edges[index].to = self.resolved(self.edges[index].to);
        }
        self.outcome.omitted += self.nodes.iter().filter(|node| node.is_left_out()).count();
    }

    fn visit_from(&mut self, fetch: &mut (impl Fetch + ?Sized), mut next: usize) {
        while next < self.nodes.len() && self.outcome.stopped.is_none() {
            if !self.nodes[next].read {
                fetch.ahead(self.nodes.len() - next);
                self.visit(fetch, next);
            }
            next += 1;
        }
    }

    pub(super) fn into_report(self) -> Report {
        let documents = self.nodes.into_iter().filter(|node| node.alias.is_none() && !node.is_left_out());
        Report { documents: documents.map(|node| node.checked).collect(), ..self.outcome }
    }

    /// Whether nothing was left out.
    pub(super) fn is_complete(&self) -> bool {
        self.outcome.is_complete()
    }

    /// The document that a URL leads to, if the check came to it.
    pub(super) fn document(&self, url: &str) -> Option<usize> {
        self.by_url.get(url).map(|&node| self.resolved(node))
    }

    /// Asks for something, unless the check has come to its end; a failure is reported at `node`.
    fn ask<F: Fetch + ?Sized, T>(
        &mut self,
        fetch: &mut F,
        node: usize,
        place: Place,
        rule: Rule,
        about: &str,
        request: impl FnOnce(&mut F) -> Result<T, FetchFailure>,
    ) -> Option<T> {
        match self.count(|| request(fetch))? {
            Ok(found) => Some(found),
            Err(failure) => {
                self.report(node, rule, place, format!("{about}{failure}"));
                None
            }
        }
    }

    /// Makes a request, unless the check has come to its end or does so by it.
    fn count<T>(
        &mut self,
        request: impl FnOnce() -> Result<T, FetchFailure>,
    ) -> Option<Result<T, FetchFailure>> {
        if self.outcome.stopped.is_some() {
            return None;
        }
        if self.requests == self.max_requests {
            self.outcome.stopped = Some(Stopped::Requests(self.max_requests));
            return None;
        }
        self.requests += 1;
        match request() {
            Err(failure) if failure.is_last() => {
                self.outcome.stopped = Some(Stopped::Fetch(failure));
                None
            }
            answer => Some(answer),
        }
    }

    /// Notes a violation of the document of a node.
    pub(super) fn report(&mut self, node: usize, rule: Rule, place: Place, detail: impl Into<String>) {
        let mut found = Violations::default();
        found.push(rule, place, detail);
        self.take(node, found);
    }

    fn take(&mut self, node: usize, found: Violations) {
        let violations = &mut self.nodes[node].checked.violations;
        let before = violations.iter().len();
        violations.append(found);
        violations.keep_at_most(before + MAX_KEPT.saturating_sub(self.kept));
        self.kept += violations.iter().len() - before;
    }

    fn visit(&mut self, fetch: &mut (impl Fetch + ?Sized), node: usize) {
        let url = self.nodes[node].checked.url.clone();
        let whole = Place::default();
        let Some(Fetched { bytes, content_type, last_url }) =
            self.ask(fetch, node, whole, Rule::Unreachable, "", |fetch| fetch.get(&url))
        else {
            return;
        };
        let last_url = without_fragment(&last_url);
        let same = *self.by_url.entry(last_url.clone()).or_insert(node);
        let same = self.resolved(same);
        if same != node {
            self.nodes[node].alias = Some(same);
            return;
        }
        let references = self.record(node, reading::read(&bytes, &self.key));
        drop(bytes);
        let base = Url::parse(&last_url).ok();
        let absolute = |href: &str| match base.as_ref().map(|base| base.join(href)) {
            Some(Ok(url)) => without_fragment(url.as_str()),
            _ => without_fragment(href),
        };
        if let Some(summary) = &mut self.nodes[node].summary {
            summary.up = summary.up.as_deref().map(absolute);
            self.check_content_type(node, content_type.as_deref());
        }
        if self.nodes[node].alone {
            self.outcome.links_unfollowed += references.len();
            return;
        }
        for reference in references {
            let href = absolute(&reference.href);
            self.follow(fetch, node, reference, href);
        }
    }

    fn record(&mut self, node: usize, reading: Reading) -> Vec<Reference> {
        self.nodes[node].checked.kind = reading.summary.as_ref().map(|summary| summary.kind.clone());
        self.nodes[node].summary = reading.summary;
        self.nodes[node].read = true;
        self.take(node, reading.violations);
        reading.references
    }

    fn follow(&mut self, fetch: &mut (impl Fetch + ?Sized), from: usize, reference: Reference, href: String) {
        let Reference { role, place, times, .. } = reference;
        if href.len() > MAX_URL {
            let detail = format!("a URL of {} characters is not followed", href.len());
            return self.report(from, Rule::Unreachable, place, detail);
        }
        let to = match &role {
            Role::Sample => return self.look_at(fetch, from, place, &href),
            Role::Topic(hubs) => return self.ask_topic(fetch, from, place, &href, hubs),
            Role::Version(kind, original) => {
                return self.try_version(fetch, from, place, *kind, &href, original);
            }
            Role::Package(said) => self.package(fetch, from, place, &href, said),
            _ => self.node(href, Some(from)),
        };
        let Some(to) = to else { return };
        if self.edges.len() < self.max_edges {
            self.edges.push(Edge { from, to, role, place, times });
        } else {
            self.outcome.omitted += 1;
        }
    }

    /// The manifest in a package; `None` where there is none, or packages are not looked into.
    fn package(
        &mut self,
        fetch: &mut (impl Fetch + ?Sized),
        from: usize,
        place: Place,
        url: &str,
        said: &PackageListing,
    ) -> Option<usize> {
        let manifest = format!("{url}!/manifest.xml");
        if let Some(&known) = self.by_url.get(&manifest) {
            return Some(known);
        }
        let about = format!("{url}: ");
        if self.unpackable == 0 {
            self.outcome.packages_skipped += 1;
            return None;
        }
        let asked = self.ask(fetch, from, place, Rule::Unreachable, &about, |fetch| fetch.package(url));
        self.outcome.packages_skipped += usize::from(matches!(asked, Some(None)));
        let bytes = asked??;
        let found = package::examine(bytes, said, self.unpackable, &mut || fetch.end());
        let Found { manifest: text, of_package, of_bitstreams, taken, is_cut_off, end } = found;
        self.unpackable -= taken.min(self.unpackable);
        if is_cut_off {
            self.outcome.packages_skipped += 1;
            self.unpackable = 0;
        }
        self.outcome.stopped = self.outcome.stopped.take().or(end.map(Stopped::Fetch));
        for (rule, detail) in of_package {
            self.report(from, rule, place, format!("{about}{detail}"));
        }
        let text = text?;
        let node = self.node(manifest, Some(from))?;
        let references = self.record(node, reading::read(&text, &self.key));
        for (entry, rule, detail) in of_bitstreams {
            let violations = &self.nodes[node].checked.violations;
            let mut same_place = violations.iter().filter(|known| known.place.entry == Some(entry));
            let position = same_place.clone().find_map(|known| known.place.position);
            // The rules have found the same flaw of a path, and know the line.
            if !same_place.any(|known| known.rule == rule) {
                self.report(node, rule, Place { position, entry: Some(entry) }, detail);
            }
        }
        for reference in references.into_iter().filter(|reference| reference.role == Role::Up) {
            let href = without_fragment(&reference.href);
            self.follow(fetch, node, reference, href);
        }
        Some(node)
    }

    fn ask_topic(
        &mut self,
        fetch: &mut (impl Fetch + ?Sized),
        from: usize,
        place: Place,
        url: &str,
        hubs: &[String],
    ) {
        for (method, name) in topic::METHODS {
            let about = format!("{name} {url}: ");
            let answer = self
                .ask(fetch, from, place, Rule::TopicUnreachable, &about, |fetch| fetch.topic(url, method));
            self.outcome.topics_skipped += usize::from(matches!(answer, Some(None)));
            let Some(Some(answer)) = answer else { continue };
            for (rule, detail) in topic::flaws(&answer, url, hubs) {
                self.report(from, rule, place, format!("{about}{detail}"));
            }
        }
    }

    /// Asks for a version, or where versions are.
    fn try_version(
        &mut self,
        fetch: &mut (impl Fetch + ?Sized),
        from: usize,
        place: Place,
        kind: VersionKind,
        url: &str,
        original: &str,
    ) {
        if self.tried[kind.index()] == TRIED {
            return;
        }
        self.tried[kind.index()] += 1;
        for &(method, name) in kind.methods() {
            let about = format!("{name} {url}: ");
            let answer =
                self.ask(fetch, from, place, kind.rule(), &about, |fetch| fetch.version(url, method));
            self.outcome.versions_skipped += usize::from(matches!(answer, Some(None)));
            let Some(Some(answer)) = answer else { continue };
            for detail in kind.flaws(&answer, url, original) {
                self.report(from, kind.rule(), place, format!("{about}{detail}"));
            }
        }
    }

    /// Whether an entry of a document is a document of the same kind, so that the document is an index in fact.
    fn look_at(&mut self, fetch: &mut (impl Fetch + ?Sized), from: usize, place: Place, href: &str) {
        let Some(Ok(fetched)) = self.count(|| fetch.get(href)) else { return };
        let found = reading::read(&fetched.bytes, &self.key).summary.map(|summary| summary.kind);
        let kind = self.nodes[from].checked.kind.as_ref();
        if found.is_some_and(|found| kind.is_some_and(|kind| found.capability == kind.capability)) {
            // Its entries are no resources.
            if let Some(summary) = &mut self.nodes[from].summary {
                summary.resources = None;
            }
            let detail = format!("this is a urlset, but {href} is a document of the same kind");
            self.report(from, Rule::IndexAsUrlset, place, detail);
        }
    }

    fn check_content_type(&mut self, node: usize, content_type: Option<&str>) {
        let Some(text) = content_type else {
            return self.report(node, Rule::ContentTypeMissing, Place::default(), "there is none");
        };
        let essence = essence(text).to_ascii_lowercase();
        let is_compressed = ["application/gzip", "application/x-gzip"].contains(&essence.as_str());
        if !is_generic_xml(text) && !is_compressed && !essence.ends_with("+xml") {
            self.report(node, Rule::ContentTypeWrong, Place::default(), format!("it is {essence:?}"));
        }
    }

    /// The node of a URL; `None` when it is unknown and there are too many already.
    fn node(&mut self, url: String, linked_from: Option<usize>) -> Option<usize> {
        if let Some(&node) = self.by_url.get(&url) {
            return Some(node);
        }
        if self.nodes.len() == self.max_nodes {
            self.outcome.omitted += 1;
            return None;
        }
        let node = self.nodes.len();
        self.by_url.insert(url.clone(), node);
        let linked_from = linked_from.map(|from| self.nodes[from].checked.url.clone());
        let violations = Violations::default();
        let checked = Checked { url, linked_from, kind: None, is_unreached: false, violations };
        self.nodes.push(Node { checked, summary: None, alias: None, read: false, alone: false });
        Some(node)
    }

    /// The node that was read for this one. An alias is only ever given for a node that has none, so there are no circles.
    fn resolved(&self, mut node: usize) -> usize {
        while let Some(same) = self.nodes[node].alias {
            node = same;
        }
        node
    }
}

impl Node {
    /// The check ended before it came here.
    fn is_left_out(&self) -> bool {
        !self.read && self.alias.is_none() && self.checked.violations.is_empty()
    }
}

/// The normal form of a URL as far as two spellings of it name one document.
fn without_fragment(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut url) => {
            url.set_fragment(None);
            url.into()
        }
        Err(_) => url.to_owned(),
    }
}
