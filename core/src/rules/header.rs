//! What stands before the first entry.

use super::cells::{Cell, Subject, check_cell, check_times};
use super::shape::{Need, Shape};
use super::{Rule, values};
use crate::model::{Capability, Header, Relation};

pub(super) fn check(header: &Header, shape: Option<&Shape>, broken: &mut impl FnMut(Rule, String)) {
    let metadata = &header.metadata;
    match header.capability() {
        None => broken(Rule::CapabilityMissing, format!("the {} names none", header.root.element())),
        Some(capability) if capability.token().is_empty() => {
            broken(Rule::CapabilityMissing, "the capability is empty".to_owned());
        }
        Some(capability) => {
            if shape.is_none() && !matches!(capability, Capability::Other(_)) {
                broken(root_rule(capability), format!("the root is a {}", header.root.element()));
            }
        }
    }
    values::check_metadata(metadata, Need::Unforeseen, broken);
    let speaks_of_representation = metadata.change.is_some()
        || metadata.datetime.is_some()
        || metadata.encoding.is_some()
        || !metadata.hash.is_empty()
        || metadata.length.is_some()
        || metadata.path.is_some()
        || metadata.media_type.is_some();
    if speaks_of_representation {
        broken(Rule::RootAttribute, "it has attributes that belong to entries".to_owned());
    }
    for link in &header.links {
        values::check_link(link, Need::Forbidden, broken);
    }
    check_navigation(header, broken);
    if let (Some(shape), Some(capability)) = (shape, header.capability()) {
        check_head_shape(header, capability, shape, broken);
    }
}

/// There is one way up, and it does not lead to the index (RS-053).
fn check_navigation(header: &Header, broken: &mut impl FnMut(Rule, String)) {
    for relation in [Relation::Up, Relation::Index, Relation::Archives] {
        let count = header.links.iter().filter(|link| link.rel == relation).count();
        if count > 1 {
            broken(Rule::HeadLinkRepeated, format!("there are {count} {relation} links"));
        }
    }
    if let (Some(up), Some(index)) = (header.link(&Relation::Up), header.link(&Relation::Index))
        && up.href == index.href
    {
        broken(Rule::UpIsIndex, "up and index go to the same document".to_owned());
    }
}

/// Which rule says that this kind of document has no index.
fn root_rule(capability: &Capability) -> Rule {
    match capability {
        Capability::CapabilityList => Rule::CapabilityListIndex,
        Capability::ChangeNotification => Rule::NotificationRoot,
        Capability::FrameworkNotification => Rule::FrameworkRoot,
        _ => Rule::ShapeRoot,
    }
}

fn check_head_shape(
    header: &Header,
    document: &Capability,
    shape: &Shape,
    broken: &mut impl FnMut(Rule, String),
) {
    let missing = match document {
        Capability::ChangeNotification => Rule::NotificationInterval,
        _ => Rule::TimeMissing,
    };
    let subject = Subject { document, what: "root" };
    check_times(&header.metadata, shape.head.times, subject, missing, broken);

    let head = &shape.head;
    let cells = [
        (Relation::Up, head.up, Rule::UpMissing, "up link"),
        (Relation::Index, head.index, Rule::ShapeMissing, "index link"),
        (Relation::Archives, head.archives, Rule::ShapeMissing, "archives link"),
        (Relation::DescribedBy, head.described_by, Rule::ShapeMissing, "describedby link"),
    ];
    for (relation, need, missing, name) in cells {
        let rules = Cell { missing, unforeseen: Rule::RelationPlace, ..Cell::SHAPE };
        check_cell(need, header.link(&relation).is_some(), name, subject, rules, broken);
    }
    let root_relations = [Relation::Up, Relation::Index, Relation::Archives, Relation::DescribedBy];
    for link in &header.links {
        if !matches!(link.rel, Relation::Other(_)) && !root_relations.contains(&link.rel) {
            broken(Rule::RelationPlace, format!("the root has a {} link", link.rel));
        }
    }
}
