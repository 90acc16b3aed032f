//! What holds for an entry, a `rs:md` and a `rs:ln` whatever document they stand in.

use super::shape::Need;
use super::{Rule, characters, links, syntax};
use crate::digest::Hashes;
use crate::model::{
    Capability, Change, Entry, ForeignAttribute, Link, Metadata, RS_NAMESPACE, XML_NAMESPACE, XMLNS_NAMESPACE,
};

/// The token of Change Notifications before 1.0.1 (CN-017).
pub(crate) const OLD_NOTIFICATION_TOKEN: &str = "changelist-notification";

/// What holds for an entry whatever document it stands in.
pub(super) fn check_entry(entry: &Entry, path: Need, broken: &mut impl FnMut(Rule, String)) {
    let flaw = syntax::uri_flaw(&entry.loc);
    // An ASCII character that XML cannot carry is none of a URI either.
    if flaw.is_some() || !entry.loc.is_ascii() {
        check_characters("loc", &entry.loc, broken);
    }
    if entry.loc.is_empty() {
        broken(Rule::Loc, "there is no loc".to_owned());
    } else if let Some(flaw) = flaw {
        broken(Rule::Loc, format!("{:?}: {flaw}", shortened(&entry.loc)));
    } else if !syntax::loc_length_fits(&entry.loc) {
        broken(
            Rule::Loc,
            format!("{:?} has {} characters", shortened(&entry.loc), entry.loc.chars().count()),
        );
    }
    if let Some(metadata) = &entry.metadata {
        check_metadata(metadata, path, broken);
        let described =
            !metadata.hash.is_empty() || metadata.length.is_some() || metadata.media_type.is_some();
        if metadata.change == Some(Change::Deleted) && described {
            broken(Rule::DeletedRepresentation, format!("{:?} has", shortened(&entry.loc)));
        }
    }
    for link in &entry.links {
        check_link(link, path, broken);
    }
}

/// Reports each rule that a `rs:md` breaks by itself.
pub(super) fn check_metadata(metadata: &Metadata, path: Need, broken: &mut impl FnMut(Rule, String)) {
    if let Some(Capability::Other(token)) = &metadata.capability {
        let rule = if **token == *OLD_NOTIFICATION_TOKEN {
            Rule::NotificationTokenWritten
        } else {
            Rule::CapabilityUnknown
        };
        broken(rule, format!("capability is {token:?}"));
        check_characters("capability", token, broken);
    }
    if let (Some(at), Some(completed)) = (metadata.at, metadata.completed)
        && completed < at
    {
        broken(Rule::SnapshotReversed, format!("completed {completed} is before at {at}"));
    }
    if let (Some(from), Some(until)) = (metadata.from, metadata.until)
        && until < from
    {
        broken(Rule::IntervalReversed, format!("until {until} is before from {from}"));
    }
    if let Some(text) = metadata.path.as_ref().filter(|_| path != Need::Forbidden) {
        links::check_path(text, broken);
    }
    check_representation(&metadata.hash, metadata.media_type.as_deref(), broken);
    let texts = [("encoding", &metadata.encoding), ("path", &metadata.path), ("type", &metadata.media_type)];
    check_texts(texts, broken);
    check_foreign(&metadata.foreign, broken);
}

/// Reports each rule that a `rs:ln` breaks by itself.
pub(super) fn check_link(link: &Link, path: Need, broken: &mut impl FnMut(Rule, String)) {
    links::check_link(link, path, &mut *broken);
    check_representation(&link.hash, link.media_type.as_deref(), broken);
    check_characters("rel", link.rel.as_str(), broken);
    check_characters("href", &link.href, broken);
    let texts = [
        ("encoding", &link.encoding),
        ("path", &link.path),
        ("type", &link.media_type),
        ("profile", &link.profile),
    ];
    check_texts(texts, broken);
    check_foreign(&link.foreign, broken);
}

fn check_representation(hash: &Hashes, media_type: Option<&str>, broken: &mut impl FnMut(Rule, String)) {
    for token in hash.unknown() {
        broken(Rule::HashUnknown, format!("{:?} is not understood", shortened(token)));
        check_characters("hash", token, broken);
    }
    if let Some(text) = media_type.filter(|text| !syntax::is_media_type(text)) {
        broken(Rule::MediaType, format!("type is {:?}", shortened(text)));
    }
}

fn check_texts<const N: usize>(texts: [(&str, &Option<String>); N], broken: &mut impl FnMut(Rule, String)) {
    for (name, text) in texts {
        if let Some(text) = text {
            check_characters(name, text, broken);
        }
    }
}

fn check_characters(name: &str, text: &str, broken: &mut impl FnMut(Rule, String)) {
    if let Some(character) = characters::forbidden_character(text) {
        broken(Rule::Characters, format!("{name} has U+{:04X}", u32::from(character)));
    }
}

fn check_foreign(attributes: &[ForeignAttribute], broken: &mut impl FnMut(Rule, String)) {
    for (number, attribute) in attributes.iter().enumerate() {
        let ForeignAttribute { namespace, prefix, name, value } = attribute;
        let reserved = [RS_NAMESPACE, XMLNS_NAMESPACE, ""].contains(&namespace.as_str())
            || ["rs", "xmlns"].contains(&prefix.as_str())
            || (prefix == "xml") != (namespace == XML_NAMESPACE);
        let clash = attributes[..number].iter().any(|other| {
            let same_namespace = other.namespace == *namespace;
            same_namespace && other.name == *name || !same_namespace && other.prefix == *prefix
        });
        if reserved || clash || !syntax::is_name(prefix) || !syntax::is_name(name) {
            broken(Rule::AttributeForeign, format!("{prefix}:{name} in {namespace:?}"));
        }
        check_characters(name, value, broken);
        check_characters("a namespace", namespace, broken);
    }
}

/// A text cut so that a hostile document does not fill the log.
fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(120).map_or(text.len(), |(end, _)| end);
    &text[..end]
}
