//! `rs:md` and `rs:ln` from attributes, with a violation for each value that cannot be understood.

use std::borrow::Cow;
use std::io::BufRead;

use super::ReadError;
use super::dialect;
use super::namespaces::Namespace;
use super::tokens::{Attribute, Tokens};
use crate::datetime::DateTime;
use crate::digest::Hashes;
use crate::document::{Capability, ForeignAttribute, Link, Metadata, Relation};
use crate::rules::{OLD_NOTIFICATION_TOKEN, Rule};

/// The prefix that the writer gives to ResourceSync, and what a foreign attribute that came with it is given instead.
const RS_PREFIX: &str = "rs";
const RENAMED_PREFIX: &str = "rs-ext";

/// Reads a `rs:md` into empty metadata; a value that cannot be understood is left out and reported.
pub(super) fn metadata<R: BufRead>(
    tokens: &mut Tokens<R>,
    metadata: &mut Metadata,
    report: &mut impl FnMut(Rule, String),
) -> Result<(), ReadError> {
    let namespace = tokens.namespace();
    tokens.attributes(|attribute| {
        let Some(Attribute { name, value, .. }) = own(attribute, &mut metadata.foreign, report) else {
            return;
        };
        match name {
            "capability" => metadata.capability = Some(capability(&value, report)),
            "change" => match value.trim_ascii().parse() {
                Ok(change) => metadata.change = Some(change),
                Err(_) => report(Rule::ChangeValue, format!("change is {value:?}")),
            },
            "datetime" => metadata.datetime = datetime(name, &value, report),
            "at" => metadata.at = datetime(name, &value, report),
            "completed" => metadata.completed = datetime(name, &value, report),
            "from" => metadata.from = datetime(name, &value, report),
            "until" => metadata.until = datetime(name, &value, report),
            "encoding" => metadata.encoding = Some(value.into_owned()),
            "hash" => metadata.hash = hashes(&value, report),
            "length" => metadata.length = length(&value, report),
            "path" => metadata.path = Some(value.into_owned()),
            "type" => metadata.media_type = Some(value.into_owned()),
            other => match dialect::metadata_attribute(namespace, other, &value) {
                Some(attribute) => metadata.foreign.push(attribute),
                None => unknown(other, report),
            },
        }
    })?;
    count(tokens, &metadata.foreign)
}

/// Reads a `rs:ln`; `None` when it lacks its relation or target.
pub(super) fn link<R: BufRead>(
    tokens: &mut Tokens<R>,
    report: &mut impl FnMut(Rule, String),
) -> Result<Option<Link>, ReadError> {
    let mut rel = None;
    let mut href = None;
    let mut link = Link::new(Relation::Up, "");
    tokens.attributes(|attribute| {
        let Some(Attribute { name, value, .. }) = own(attribute, &mut link.foreign, report) else { return };
        match name {
            "rel" => rel = Some(Relation::from(value.trim_ascii())),
            "href" => href = Some(trimmed(value)),
            "encoding" => link.encoding = Some(value.into_owned()),
            "hash" => link.hash = hashes(&value, report),
            "length" => link.length = length(&value, report),
            "modified" => link.modified = datetime(name, &value, report),
            "path" => link.path = Some(value.into_owned()),
            "pri" => match value.trim_ascii().parse() {
                Ok(pri) => link.pri = Some(pri),
                Err(_) => report(Rule::Priority, format!("pri is {value:?}")),
            },
            "type" => link.media_type = Some(value.into_owned()),
            "profile" => link.profile = Some(value.into_owned()),
            other => unknown(other, report),
        }
    })?;
    count(tokens, &link.foreign)?;
    match (rel, href) {
        (Some(rel), Some(href)) => Ok(Some(Link { rel, href, ..link })),
        (rel, _) => {
            let missing = if rel.is_none() { "rel" } else { "href" };
            report(Rule::LinkIncomplete, format!("{missing} is missing, so the link is left out"));
            Ok(None)
        }
    }
}

/// Keeps foreign attributes and passes on those of ResourceSync.
fn own<'a>(
    attribute: Attribute<'a>,
    foreign: &mut Vec<ForeignAttribute>,
    report: &mut impl FnMut(Rule, String),
) -> Option<Attribute<'a>> {
    match attribute.namespace {
        Namespace::None => Some(attribute),
        Namespace::Rs => {
            report(Rule::AttributePrefixed, format!("{}:{} is left out", attribute.prefix, attribute.name));
            None
        }
        Namespace::Sitemap | Namespace::DLib | Namespace::Xhtml | Namespace::Foreign => {
            let prefix = if attribute.prefix == RS_PREFIX { RENAMED_PREFIX } else { attribute.prefix };
            foreign.push(ForeignAttribute {
                namespace: attribute.uri.to_owned(),
                prefix: prefix.to_owned(),
                name: attribute.name.to_owned(),
                value: attribute.value.into_owned(),
            });
            None
        }
    }
}

/// Counts the foreign attributes of an element to those of its header or entry.
fn count<R: BufRead>(tokens: &mut Tokens<R>, foreign: &[ForeignAttribute]) -> Result<(), ReadError> {
    let text =
        |one: &ForeignAttribute| one.namespace.len() + one.prefix.len() + one.name.len() + one.value.len();
    let bytes: usize = foreign.iter().map(|one| size_of::<ForeignAttribute>() + text(one)).sum();
    tokens.count_growth(bytes)
}

fn capability(value: &str, report: &mut impl FnMut(Rule, String)) -> Capability {
    if value == OLD_NOTIFICATION_TOKEN {
        report(Rule::NotificationToken, "it is read as change-notification".to_owned());
        return Capability::ChangeNotification;
    }
    Capability::from(value)
}

fn datetime(name: &str, value: &str, report: &mut impl FnMut(Rule, String)) -> Option<DateTime> {
    const TO_THE_SECOND: usize = "2013-01-03T09:00:00Z".len();
    match value.parse() {
        Ok(datetime) => {
            if value.trim_ascii().len() < TO_THE_SECOND {
                report(Rule::DatetimePartial, format!("{name} is {value:?}, read as {datetime}"));
            }
            Some(datetime)
        }
        Err(error) => {
            report(Rule::Datetime, format!("{name} is {value:?}: {error}"));
            None
        }
    }
}

fn length(value: &str, report: &mut impl FnMut(Rule, String)) -> Option<u64> {
    let length = value.trim_ascii().parse().ok();
    if length.is_none() {
        report(Rule::Length, format!("length is {value:?}"));
    }
    length
}

fn hashes(value: &str, report: &mut impl FnMut(Rule, String)) -> Hashes {
    Hashes::parse_noting(value, |token| report(Rule::HashBase64, format!("{token:?} is read as base64")))
}

fn unknown(name: &str, report: &mut impl FnMut(Rule, String)) {
    report(Rule::AttributeUnknown, format!("{name} is left out"));
}

fn trimmed(value: Cow<'_, str>) -> String {
    match value.trim_ascii() {
        same if same.len() == value.len() => value.into_owned(),
        shorter => shorter.to_owned(),
    }
}
