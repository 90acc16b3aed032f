//! What a `rs:ln` must satisfy wherever it stands, and what particular relations ask for.

use super::Rule;
use super::path::member_name;
use super::registered::is_registered;
use super::shape::{Links, Need};
use super::syntax;
use crate::model::{Capability, Change, Entry, Link, Relation};

/// Reports each rule that one link breaks by itself.
pub(super) fn check_link(link: &Link, path: Need, mut broken: impl FnMut(Rule, String)) {
    let rel = link.rel.as_str();
    if !syntax::is_relation(rel) {
        broken(Rule::RelationShape, format!("rel is {rel:?}"));
    } else if let Relation::Other(name) = &link.rel
        && syntax::uri_flaw(name).is_some()
        && !is_registered(name)
    {
        // A warning, since a name may have been registered after this was built.
        broken(Rule::RelationUnregistered, format!("rel is {rel:?}"));
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

/// Reports each rule that a path in a manifest breaks.
pub(super) fn check_path(path: &str, broken: &mut impl FnMut(Rule, String)) {
    if !syntax::is_path(path) {
        broken(Rule::PathShape, format!("path is {path:?}"));
    } else if let Err(flaw) = member_name(path) {
        broken(Rule::PathUnsafe, format!("the path {path:?} {flaw}"));
    }
}

/// Reports each rule that the links of an entry break, seen together with the entry (RS-103, RS-171 to RS-181).
pub(super) fn check_related(entry: &Entry, document: &Capability, broken: &mut impl FnMut(Rule, String)) {
    if entry.links.is_empty() {
        return;
    }
    for link in &entry.links {
        match link.rel {
            Relation::Patch => check_patch(link, entry, document, broken),
            Relation::Duplicate => check_mirror(link, entry, broken),
            Relation::Alternate if link.media_type.is_none() => {
                broken(Rule::AlternateType, format!("the alternate {:?} has no type", link.href));
            }
            Relation::Contents if link.media_type.as_deref() != Some("application/xml") => {
                broken(Rule::ContentsType, format!("type is {:?}", link.media_type));
            }
            _ => {}
        }
    }
    let once = [
        (Relation::Contents, Rule::ContentsRepeated),
        (Relation::Memento, Rule::MementoRepeated),
        (Relation::Via, Rule::ViaRepeated),
    ];
    for (relation, rule) in once {
        let count = entry.links_with(&relation).count();
        if count > 1 {
            broken(rule, format!("there are {count} {relation} links"));
        }
    }
}

/// What a patch link must satisfy in this kind of document (RS-146, RS-174).
fn check_patch(link: &Link, entry: &Entry, document: &Capability, broken: &mut impl FnMut(Rule, String)) {
    if link.media_type.is_none() {
        broken(Rule::PatchType, format!("the patch {:?} has no type", link.href));
    }
    match document {
        Capability::ChangeDumpManifest if link.path.is_none() => {
            broken(Rule::PatchPath, format!("the patch {:?} has no path", link.href));
        }
        Capability::ChangeList | Capability::ChangeDumpManifest => {}
        other => {
            broken(Rule::PatchPlace, format!("this is a {other}"));
            return;
        }
    }
    if let Some(change) = entry.change().filter(|&change| change != Change::Updated) {
        broken(Rule::PatchChange, format!("the change is {change}"));
    }
}

/// What is true of the resource is true of its mirror and not said twice (RS-171).
fn check_mirror(link: &Link, entry: &Entry, broken: &mut impl FnMut(Rule, String)) {
    let Some(metadata) = &entry.metadata else { return };
    let repeats = !link.hash.is_empty() && link.hash == metadata.hash
        || link.length.is_some() && link.length == metadata.length
        || link.media_type.is_some() && link.media_type == metadata.media_type
        || link.encoding.is_some() && link.encoding == metadata.encoding;
    if repeats {
        broken(Rule::MirrorRepeats, format!("the mirror {:?} does", link.href));
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
    let Link { encoding, hash, length, modified, path, pri, media_type, profile, .. } = link;
    let has_text = [encoding, path, media_type, profile].into_iter().any(Option::is_some);
    has_text || !hash.is_empty() || length.is_some() || modified.is_some() || pri.is_some()
}
