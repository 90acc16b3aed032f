//! What an entry must be in its kind of document, whatever the entries around it.

use super::cells::{Cell, Subject, check_cell, check_times};
use super::shape::{EntryShape, Links, Need, Shape};
use super::{Rule, framework, links};
use crate::model::{Capability, Change, Entry, NO_METADATA, Relation};

/// Reports each rule that an entry breaks in this kind of document.
pub(super) fn check(
    entry: &Entry,
    document: &Capability,
    shape: &Shape,
    broken: &mut impl FnMut(Rule, String),
) {
    check_entry_metadata(entry, document, &shape.entry, broken);
    check_relations(entry, document, shape.links, broken);
    links::check_related(entry, document, broken);
    match document {
        Capability::FrameworkNotification => framework::check_entry(entry, broken),
        Capability::CapabilityList => check_channel(entry, broken),
        _ => {}
    }
}

/// A channel names its hub, and nothing else does (FN-060, CN-019).
fn check_channel(entry: &Entry, broken: &mut impl FnMut(Rule, String)) {
    let Some(capability) = entry.capability() else { return };
    match (capability, entry.link(&Relation::Hub)) {
        (Capability::ChangeNotification, None) => {
            broken(Rule::NotificationHub, format!("the channel {:?} has none", entry.loc));
        }
        (Capability::FrameworkNotification, None) => {
            broken(Rule::FrameworkHub, format!("the channel {:?} has none", entry.loc));
        }
        (capability, Some(_)) if !capability.is_notification() => {
            broken(Rule::HubPlace, format!("the entry is a {capability}"));
        }
        _ => {}
    }
}

fn check_entry_metadata(
    entry: &Entry,
    document: &Capability,
    shape: &EntryShape,
    broken: &mut impl FnMut(Rule, String),
) {
    let metadata = entry.metadata.as_ref().unwrap_or(&NO_METADATA);
    let subject = Subject { document, what: "entry" };
    check_times(metadata, shape.times, subject, Rule::TimeMissing, broken);

    let missing = match document {
        Capability::ChangeNotification => Rule::NotificationEntry,
        Capability::FrameworkNotification => Rule::FrameworkEntry,
        _ => Rule::ShapeMissing,
    };
    let deleted = metadata.change == Some(Change::Deleted);
    // Nothing is left of a deletion that could be described or packed (RS-129, RS-144).
    let unless_deleted = |need| match need {
        Need::Must | Need::Advised if deleted => Need::May,
        need => need,
    };
    // Documents of 1.0 tell the moment of a change by lastmod, which has a rule of its own.
    let lastmod_tells = entry.lastmod.is_some() && metadata.datetime.is_none() && metadata.change.is_some();
    if lastmod_tells && shape.datetime != Need::Forbidden {
        broken(Rule::LastmodForDatetime, "the change has lastmod but no datetime".to_owned());
    }
    let unless_told = |need| if lastmod_tells && need == Need::Advised { Need::May } else { need };
    let rules = Cell { missing, ..Cell::SHAPE };
    let mut cell = |need, present, name| check_cell(need, present, name, subject, rules, broken);
    cell(shape.capability, metadata.capability.is_some(), "capability");
    cell(shape.change, metadata.change.is_some(), "change");
    cell(unless_told(shape.datetime), metadata.datetime.is_some(), "datetime");
    cell(shape.representation, !metadata.hash.is_empty(), "hash");
    cell(shape.representation, metadata.encoding.is_some(), "encoding");
    cell(unless_deleted(shape.length), metadata.length.is_some(), "length");
    cell(unless_deleted(shape.media_type), metadata.media_type.is_some(), "type");
    let rules = Cell { unforeseen: Rule::LastmodOnPointer, ..Cell::SHAPE };
    check_cell(shape.lastmod, entry.lastmod.is_some(), "lastmod", subject, rules, broken);
    let rules = Cell { forbidden: Rule::PathPlace, ..Cell::SHAPE };
    check_cell(unless_deleted(shape.path), metadata.path.is_some(), "path", subject, rules, broken);
}

fn check_relations(
    entry: &Entry,
    document: &Capability,
    allowed: Links,
    broken: &mut impl FnMut(Rule, String),
) {
    // A patch has a rule of its own, and so has a hub in a Capability List.
    for link in entry.links.iter().filter(|link| link.rel != Relation::Patch) {
        if !links::is_foreseen(&link.rel, allowed) {
            broken(Rule::RelationPlace, format!("an entry of a {document} has a {} link", link.rel));
        }
    }
    if let Links::Only([Relation::DescribedBy]) = allowed
        && entry.link(&Relation::DescribedBy).is_none()
    {
        broken(Rule::ShapeAdvised, "the entry has no describedby link".to_owned());
    }
}
