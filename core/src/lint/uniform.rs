//! Whether a Resource List and a Resource Dump of one moment hold the same resources (RS-007).

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use super::reading::{Role, Summary};
use super::site::{Edge, Site};
use crate::document::{Capability, Entry, Root};
use crate::rules::{Place, Rule, Violation};

/// Which resources a document lists, as their number and the sum of their keyed hashes: equal for equal sets in whatever order they come,
/// and of one size however many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    count: usize,
    sum: u64,
}

impl Tally {
    pub(super) fn add(&mut self, entry: &Entry, key: &RandomState) {
        *self = self.and(Self { count: 1, sum: key.hash_one(&entry.loc) });
    }

    fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }
}

/// Compares what one Capability List lists with the same `at`. What was not read whole is not compared.
pub(super) fn check(site: &mut Site, edges: &[Edge]) {
    let parts = Parts::of(edges);
    let mut told = Vec::new();
    for list in edges.iter().filter(|edge| edge.role == Role::Listed(Capability::ResourceList)) {
        let is_beside =
            |edge: &&Edge| edge.from == list.from && edge.role == Role::Listed(Capability::ResourceDump);
        for dump in edges.iter().filter(is_beside) {
            let at = |node: usize| summary(site, node)?.times.at;
            if at(list.to).is_none() || at(list.to) != at(dump.to) {
                continue;
            }
            let (Some(listed), Some(packed)) = (parts.listed(site, list.to), parts.packed(site, dump.to))
            else {
                continue;
            };
            if listed != packed {
                let detail = format!(
                    "{} of the same moment lists {}, this one packs {}",
                    site.nodes[list.to].checked.url, listed.count, packed.count
                );
                told.push((dump.to, detail));
            }
        }
    }
    for (node, detail) in told {
        site.tell(node, Rule::SetsDiffer, Place::default(), detail);
    }
}

/// What the documents consist of.
struct Parts {
    components: HashMap<usize, Vec<usize>>,
    /// For each dump and the number of its entry, the manifest of the package.
    manifests: HashMap<usize, HashMap<usize, usize>>,
}

impl Parts {
    fn of(edges: &[Edge]) -> Self {
        let mut parts = Self { components: HashMap::new(), manifests: HashMap::new() };
        for &Edge { from, to, ref role, place, .. } in edges {
            match (role, place.entry) {
                (Role::Component, _) => parts.components.entry(from).or_default().push(to),
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
        self.sum(site, node, &|document| {
            // What one lists twice, or is no list at all, was told.
            let is_set =
                |told: &Violation| !matches!(told.rule, Rule::ResourceRepeated | Rule::IndexAsUrlset);
            let is_list = site.nodes[document].checked.violations.iter().all(is_set);
            summary(site, document)?.resources.filter(|_| is_list)
        })
    }

    /// The same of the packages of a Resource Dump, or of those of an index.
    fn packed(&self, site: &Site, node: usize) -> Option<Tally> {
        self.sum(site, node, &|document| {
            let manifests = self.manifests.get(&document);
            let manifests: Vec<usize> =
                manifests.into_iter().flatten().map(|(_, &manifest)| manifest).collect();
            let is_whole = manifests.len() == summary(site, document)?.entries;
            let tallies = manifests.into_iter().map(|manifest| summary(site, manifest)?.resources);
            tallies.sum::<Option<Tally>>().filter(|_| is_whole)
        })
    }

    fn sum(&self, site: &Site, node: usize, of: &impl Fn(usize) -> Option<Tally>) -> Option<Tally> {
        let Summary { kind, entries, .. } = summary(site, node)?;
        if kind.root != Root::SitemapIndex {
            return of(node);
        }
        let components = self.components.get(&node).map_or(&[][..], Vec::as_slice);
        let is_whole = components.len() == *entries;
        components.iter().map(|&component| of(component)).sum::<Option<Tally>>().filter(|_| is_whole)
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Self::and)
    }
}

fn summary(site: &Site, node: usize) -> Option<&Summary> {
    site.nodes[node].summary.as_ref()
}
