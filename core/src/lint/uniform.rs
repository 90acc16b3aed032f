//! Whether a Resource List and a Resource Dump of one moment hold the same resources (RS-007).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::reading::{Role, Summary};
use super::site::{Edge, Site};
use super::tally::Tally;
use crate::document::{Capability, Root};
use crate::rules::{Place, Rule};

/// Compares what one Capability List lists with the same `at`. What was not read whole is not compared.
pub(super) fn check(site: &mut Site, edges: &[Edge]) {
    let parts = Parts::of(edges);
    let mut found = BTreeMap::new();
    for (lists, dumps) in beside(edges).values() {
        let tallied = |nodes: &BTreeSet<usize>, of: &dyn Fn(usize) -> Option<Tally>| -> Vec<_> {
            let at = |node: usize| summary(site, node)?.times.at;
            nodes.iter().filter_map(|&node| Some((node, at(node)?, of(node)?))).collect()
        };
        let lists = tallied(lists, &|list| parts.listed(site, list));
        for (dump, at, packed) in tallied(dumps, &|dump| parts.packed(site, dump)) {
            let differs = |(_, of, listed): &&(usize, _, Tally)| *of == at && *listed != packed;
            if let Some(&(list, _, listed)) = lists.iter().find(differs) {
                found.entry(dump).or_insert((list, listed.count, packed.count));
            }
        }
    }
    for (dump, (list, listed, packed)) in found {
        let list = &site.nodes[list].checked.url;
        let detail = format!("{list} of the same moment lists {listed}, this one packs {packed}");
        site.report(dump, Rule::SetsDiffer, Place::default(), detail);
    }
}

/// The Resource Lists and Resource Dumps of each Capability List.
fn beside(edges: &[Edge]) -> BTreeMap<usize, (BTreeSet<usize>, BTreeSet<usize>)> {
    let mut beside: BTreeMap<usize, (BTreeSet<usize>, BTreeSet<usize>)> = BTreeMap::new();
    for edge in edges {
        match &edge.role {
            Role::Listed(Capability::ResourceList) => beside.entry(edge.from).or_default().0.insert(edge.to),
            Role::Listed(Capability::ResourceDump) => beside.entry(edge.from).or_default().1.insert(edge.to),
            _ => continue,
        };
    }
    beside
}

/// What the documents consist of.
struct Parts {
    components: HashMap<usize, BTreeSet<usize>>,
    /// For each dump and the number of its entry, the manifest of the package.
    manifests: HashMap<usize, HashMap<usize, usize>>,
}

impl Parts {
    fn of(edges: &[Edge]) -> Self {
        let mut parts = Self { components: HashMap::new(), manifests: HashMap::new() };
        for &Edge { from, to, ref role, place, .. } in edges {
            match (role, place.entry) {
                (Role::Component, _) => drop(parts.components.entry(from).or_default().insert(to)),
                (Role::Package(_) | Role::Contents, Some(entry)) => {
                    parts.manifests.entry(from).or_default().insert(entry, to);
                }
                _ => {}
            }
        }
        parts
    }

    /// The resources of a Resource List, or of those of an index; `None` if one of them was not read.
    fn listed(&self, site: &Site, node: usize) -> Option<Tally> {
        self.sum(site, node, &|document| summary(site, document)?.resources)
    }

    /// The same of the packages of a Resource Dump, or of those of an index.
    fn packed(&self, site: &Site, node: usize) -> Option<Tally> {
        let none = HashMap::new();
        self.sum(site, node, &|document| {
            let manifests = self.manifests.get(&document).unwrap_or(&none);
            let is_whole = manifests.len() == summary(site, document)?.entries;
            let tallies = manifests.values().map(|&manifest| summary(site, manifest)?.resources);
            tallies.sum::<Option<Tally>>().filter(|_| is_whole)
        })
    }

    fn sum(&self, site: &Site, node: usize, of: &impl Fn(usize) -> Option<Tally>) -> Option<Tally> {
        let Summary { kind, entries, .. } = summary(site, node)?;
        if kind.root != Root::SitemapIndex {
            return of(node);
        }
        let components = self.components.get(&node)?;
        let is_whole = components.len() == *entries;
        components.iter().map(|&component| of(component)).sum::<Option<Tally>>().filter(|_| is_whole)
    }
}

fn summary(site: &Site, node: usize) -> Option<&Summary> {
    site.nodes[node].summary.as_ref()
}
