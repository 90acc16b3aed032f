//! The documents of a site and the links between them, gathered link by link.

use std::collections::HashMap;
use std::hash::RandomState;

use url::Url;

use super::reading::{self, Lead, Reading, Role, Summary, Times};
use super::{Checked, Fetch, Fetched, MAX_KEPT, Report};
use crate::rules::{Place, Rule, Violations};
use crate::xml::MAX_ENTRIES;

/// How many links are kept for each document on average, so that documents without end that link in circles use up no
/// memory.
const LINKS_PER_DOCUMENT: usize = 20;

/// What was found so far.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    pub(super) omitted: usize,
    by_url: HashMap<String, usize>,
    max_nodes: usize,
    max_edges: usize,
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
    pub(super) fn new(max_nodes: usize) -> Self {
        Self {
            nodes: Vec::new(),
            edges: Vec::new(),
            omitted: 0,
            by_url: HashMap::new(),
            max_nodes,
            max_edges: max_nodes.saturating_mul(LINKS_PER_DOCUMENT).max(MAX_ENTRIES),
            kept: 0,
            key: RandomState::new(),
        }
    }

    /// Visits everything that `starts` lead to, nearest first.
    pub(super) fn crawl<'u>(
        &mut self,
        fetch: &mut (impl Fetch + ?Sized),
        starts: impl IntoIterator<Item = &'u str>,
    ) {
        for start in starts {
            self.node(without_fragment(start), None);
        }
        let mut next = 0;
        while next < self.nodes.len() {
            if !self.nodes[next].read {
                self.visit(fetch, next);
            }
            next += 1;
        }
        for index in 0..self.edges.len() {
            self.edges[index].to = self.resolved(self.edges[index].to);
        }
    }

    pub(super) fn into_report(self) -> Report {
        let documents = self.nodes.into_iter().filter(|node| node.alias.is_none()).map(|node| node.checked);
        Report { documents: documents.collect(), omitted: self.omitted }
    }

    /// Notes a violation of the document of a node.
    pub(super) fn tell(&mut self, node: usize, rule: Rule, place: Place, detail: impl Into<String>) {
        let mut told = Violations::default();
        told.push(rule, place, detail);
        self.take(node, told);
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
        let Fetched { bytes, content_type, last_url } = match fetch.get(&url) {
            Ok(fetched) => fetched,
            Err(failure) => {
                return self.tell(node, Rule::Unreachable, Place::default(), failure.to_string());
            }
        };
        let last_url = without_fragment(&last_url);
        let same = *self.by_url.entry(last_url.clone()).or_insert(node);
        let same = self.resolved(same);
        if same != node {
            self.nodes[node].alias = Some(same);
            return;
        }
        let leads = self.note(node, reading::read(&bytes, &self.key));
        drop(bytes);
        if self.nodes[node].summary.is_some() {
            self.check_content_type(node, content_type.as_deref());
        }
        let base = Url::parse(&last_url).ok();
        for lead in leads {
            let href = match base.as_ref().map(|base| base.join(&lead.href)) {
                Some(Ok(url)) => without_fragment(url.as_str()),
                _ => lead.href.clone(),
            };
            self.follow(fetch, node, lead, href);
        }
    }

    fn note(&mut self, node: usize, reading: Reading) -> Vec<Lead> {
        self.nodes[node].checked.kind = reading.summary.as_ref().map(|summary| summary.kind.clone());
        self.nodes[node].summary = reading.summary;
        self.nodes[node].read = true;
        self.take(node, reading.violations);
        reading.leads
    }

    fn follow(&mut self, fetch: &mut (impl Fetch + ?Sized), from: usize, lead: Lead, href: String) {
        let Lead { role, place, times, .. } = lead;
        let to = match role {
            Role::Sample => return self.look_at(fetch, from, place, &href),
            Role::Package => self.package(fetch, from, place, &href),
            _ => self.node(href, Some(from)),
        };
        let Some(to) = to else { return };
        if self.edges.len() < self.max_edges {
            self.edges.push(Edge { from, to, role, place, times });
        } else {
            self.omitted += 1;
        }
    }

    /// The manifest in a package; `None` where packages are not looked into.
    fn package(
        &mut self,
        fetch: &mut (impl Fetch + ?Sized),
        from: usize,
        place: Place,
        package: &str,
    ) -> Option<usize> {
        let url = format!("{package}!/manifest.xml");
        if let Some(&known) = self.by_url.get(&url) {
            return Some(known);
        }
        match fetch.manifest(package) {
            Ok(None) => None,
            Ok(Some(bytes)) => {
                let node = self.node(url, Some(from))?;
                let leads = self.note(node, reading::read(&bytes, &self.key));
                for lead in leads.into_iter().filter(|lead| lead.role == Role::Up) {
                    let href = without_fragment(&lead.href);
                    self.follow(fetch, node, lead, href);
                }
                Some(node)
            }
            Err(failure) => {
                self.tell(from, Rule::Unreachable, place, format!("{package}: {failure}"));
                None
            }
        }
    }

    /// Whether an entry of a document is a document of the same kind, so that the document is an index in fact.
    fn look_at(&mut self, fetch: &mut (impl Fetch + ?Sized), from: usize, place: Place, href: &str) {
        let Ok(fetched) = fetch.get(href) else { return };
        let found = reading::read(&fetched.bytes, &self.key).summary.map(|summary| summary.kind);
        let kind = self.nodes[from].checked.kind.as_ref();
        if found.is_some_and(|found| kind.is_some_and(|kind| found.capability == kind.capability)) {
            let detail = format!("this is a urlset, but {href} is a document of the same kind");
            self.tell(from, Rule::IndexAsUrlset, place, detail);
        }
    }

    fn check_content_type(&mut self, node: usize, content_type: Option<&str>) {
        let Some(text) = content_type else {
            return self.tell(node, Rule::ContentTypeMissing, Place::default(), "there is none");
        };
        let essence = text.split(';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let known = ["application/xml", "text/xml", "application/gzip", "application/x-gzip"];
        if !known.contains(&essence.as_str()) && !essence.ends_with("+xml") {
            self.tell(node, Rule::ContentTypeWrong, Place::default(), format!("it is {essence:?}"));
        }
    }

    /// The node of a URL; `None` when it is unknown and there are too many already.
    fn node(&mut self, url: String, linked_from: Option<usize>) -> Option<usize> {
        if let Some(&node) = self.by_url.get(&url) {
            return Some(node);
        }
        if self.nodes.len() == self.max_nodes {
            self.omitted += 1;
            return None;
        }
        let node = self.nodes.len();
        self.by_url.insert(url.clone(), node);
        let linked_from = linked_from.map(|from| self.nodes[from].checked.url.clone());
        let checked = Checked { url, linked_from, kind: None, violations: Violations::default() };
        self.nodes.push(Node { checked, summary: None, alias: None, read: false });
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
