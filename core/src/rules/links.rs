//! What a `rs:ln` must satisfy wherever it stands, and what particular relations ask for.

use super::Rule;
use super::shape::{Links, Need};
use super::syntax;
use crate::document::{Capability, Link, Relation};

/// Tells each rule that one link breaks by itself.
pub(super) fn check_link(link: &Link, path: Need, mut broken: impl FnMut(Rule, String)) {
    let rel = link.rel.as_str();
    if !syntax::is_relation(rel) {
        broken(Rule::RelationShape, format!("rel is {rel:?}"));
    }
    if link.href.is_empty() {
        broken(Rule::LinkIncomplete, format!("the {rel} link has no href"));
    } else if let Some(flaw) = syntax::uri_flaw(&link.href) {
        broken(Rule::LinkTarget, format!("the {rel} link goes to {:?}: {flaw}", link.href));
    }
    if let Some(pri) = link.pri.filter(|pri| !(1..=999_999).contains(pri)) {
        broken(Rule::Priority, format!("pri is {pri}"));
    }
    match &link.path {
        Some(text) if path == Need::Forbidden => {
            broken(Rule::PathPlace, format!("path is {text:?}"));
        }
        Some(text) => check_path(text, &mut broken),
        None => {}
    }
    if link.rel == Relation::TimeGate && has_more_than_href(link) {
        broken(Rule::TimeGateAttributes, "the link has further attributes".to_owned());
    }
}

/// Tells each rule that a path in a manifest breaks.
pub(super) fn check_path(path: &str, broken: &mut impl FnMut(Rule, String)) {
    if !syntax::is_path(path) {
        broken(Rule::PathShape, format!("path is {path:?}"));
    } else if syntax::is_unsafe_path(path) {
        broken(Rule::PathUnsafe, format!("path is {path:?}"));
    }
}

/// Tells each rule that a patch link breaks in this kind of document (RS-146, RS-174).
pub(super) fn check_patch(link: &Link, document: &Capability, mut broken: impl FnMut(Rule, String)) {
    if link.media_type.is_none() {
        broken(Rule::PatchType, format!("the patch {:?} has no type", link.href));
    }
    match document {
        Capability::ChangeDumpManifest if link.path.is_none() => {
            broken(Rule::PatchPath, format!("the patch {:?} has no path", link.href));
        }
        Capability::ChangeList | Capability::ChangeDumpManifest => {}
        other => broken(Rule::PatchPlace, format!("this is a {other}")),
    }
}

/// Whether a relation is foreseen for the entries of a kind of document.
pub(super) fn is_foreseen(relation: &Relation, links: Links) -> bool {
    match (relation, links) {
        (Relation::Other(_), _) => true,
        (_, Links::Only(allowed)) => allowed.contains(relation),
        (_, Links::Related) => !matches!(
            relation,
            Relation::Up | Relation::Index | Relation::Archives | Relation::Contents | Relation::Hub
        ),
    }
}

fn has_more_than_href(link: &Link) -> bool {
    let bare = Link { foreign: link.foreign.clone(), ..Link::new(link.rel.clone(), link.href.clone()) };
    *link != bare
}
