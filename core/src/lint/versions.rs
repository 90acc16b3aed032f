//! What TimeGates, TimeMaps and mementos answer that entries link to, held against RFC 7089 (MEM-022, MEM-028, MEM-033).

use url::Url;

use super::{Method, VersionAnswer};
use crate::document::Relation;
use crate::media_type::essence;
use crate::memento::{
    ACCEPT_DATETIME, HttpDate, LINK_FORMAT_TYPE, LinkFormatReader, MAX_TIME_MAP, is_same_original,
};
use crate::rules::Rule;
use crate::websub::{LinkHeader, LinkValue};

/// Links of one kind that are tried in a whole site: there may be one for each entry, and one server answers them all.
pub(super) const TRIED: usize = 10;

/// What an entry links to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionKind {
    TimeGate,
    TimeMap,
    Memento,
}

impl VersionKind {
    /// How many there are.
    pub(super) const COUNT: usize = 3;

    pub(super) fn of(relation: &Relation) -> Option<Self> {
        match relation {
            Relation::TimeGate => Some(Self::TimeGate),
            Relation::TimeMap => Some(Self::TimeMap),
            Relation::Memento => Some(Self::Memento),
            _ => None,
        }
    }

    /// Its place among the kinds.
    pub(super) fn index(self) -> usize {
        match self {
            Self::TimeGate => 0,
            Self::TimeMap => 1,
            Self::Memento => 2,
        }
    }

    pub(super) fn rule(self) -> Rule {
        match self {
            Self::TimeGate => Rule::TimeGateAnswer,
            Self::TimeMap => Rule::TimeMapAnswer,
            Self::Memento => Rule::MementoAnswer,
        }
    }

    /// How it is asked, and the name of that.
    pub(super) fn methods(self) -> &'static [(Method, &'static str)] {
        match self {
            Self::TimeGate => &[(Method::Get, "GET"), (Method::Head, "HEAD")],
            Self::TimeMap | Self::Memento => &[(Method::Get, "GET")],
        }
    }

    /// What is wrong with its answer.
    pub(super) fn flaws(self, answer: &VersionAnswer, url: &str, original: &str) -> Vec<String> {
        match self {
            Self::TimeGate => time_gate(answer, original),
            Self::TimeMap => time_map(answer, url, original),
            Self::Memento => memento(answer, original),
        }
    }
}

/// An original that negotiates itself may answer 200 with the version (RFC 7089, section 4.1.2).
fn time_gate(answer: &VersionAnswer, original: &str) -> Vec<String> {
    let mut flaws = Vec::new();
    let mut flaw = |is_one: bool, detail: &str| flaws.extend(is_one.then(|| detail.to_owned()));
    match answer.status {
        302 => {
            flaw(answer.location.is_none(), "there is no Location");
            flaw(answer.memento_datetime.is_some(), "it has Memento-Datetime, which only a memento has");
        }
        200 => flaw(answer.memento_datetime.is_none(), "it answers 200, and is no memento"),
        status => return vec![format!("it answers {status}")],
    }
    let names = answer.vary.iter().flat_map(|vary| vary.split(','));
    let is_told = names.map(str::trim).any(|name| name == "*" || name.eq_ignore_ascii_case(ACCEPT_DATETIME));
    flaw(!is_told, "Vary does not name accept-datetime");
    flaws.extend(of_another(&answer.links, original));
    flaws
}

/// A version that is no longer kept answers 410, and the links to it stay (MEM-013).
fn memento(answer: &VersionAnswer, original: &str) -> Vec<String> {
    match answer.status {
        410 => return Vec::new(),
        200 => {}
        status => return vec![format!("it answers {status}")],
    }
    let date = match &answer.memento_datetime {
        None => Some("there is no Memento-Datetime".to_owned()),
        Some(text) if text.parse::<HttpDate>().is_err() => Some(format!("its Memento-Datetime is {text:?}")),
        Some(_) => None,
    };
    date.into_iter().chain(of_another(&answer.links, original)).collect()
}

fn time_map(answer: &VersionAnswer, url: &str, original: &str) -> Vec<String> {
    if answer.status != 200 {
        return vec![format!("it answers {}", answer.status)];
    }
    let essence = essence(answer.content_type.as_deref().unwrap_or_default());
    if !essence.eq_ignore_ascii_case(LINK_FORMAT_TYPE) {
        return vec![format!("it is {essence:?} and not {LINK_FORMAT_TYPE}")];
    }
    let mut reader = LinkFormatReader::new(MAX_TIME_MAP);
    let Ok(mut links) = reader.read(&answer.body) else { return vec!["it is too long".to_owned()] };
    if answer.is_whole {
        links.extend(reader.end().links);
    }
    let mut flaws: Vec<String> = of_links(&links, url).collect();
    if answer.is_whole {
        flaws.extend(missing(&links, original));
    }
    flaws
}

/// What is wrong with links of a TimeMap, each kind of flaw told once.
fn of_links(links: &[LinkValue], url: &str) -> impl Iterator<Item = String> {
    let relative = links.iter().find(|link| Url::parse(&link.target).is_err());
    let mementos = || links.iter().filter(|link| link.has_rel("memento"));
    let undated = mementos().find(|link| date(link).is_none());
    let dates: Vec<HttpDate> = mementos().filter_map(date).collect();
    let is_unordered = !dates.is_sorted();
    let relative = relative.map(|link| format!("{} is no absolute URI", link.target));
    let undated = undated.map(|link| format!("the memento {} has no datetime", link.target));
    let unordered = is_unordered.then(|| format!("the mementos of {url} do not ascend"));
    [relative, undated, unordered].into_iter().flatten()
}

fn date(link: &LinkValue) -> Option<HttpDate> {
    link.param("datetime")?.parse().ok()
}

/// What a whole TimeMap does not say.
fn missing(links: &[LinkValue], original: &str) -> Vec<String> {
    let has = |rel: &str| links.iter().any(|link| link.has_rel(rel));
    let itself = links.iter().find(|link| link.has_rel("self"));
    let is_empty = !has("memento") && !has("timemap");
    let said = [
        (!has("timegate"), "no link has rel timegate"),
        (itself.is_none(), "no link has rel self"),
        (itself.is_some_and(|link| link.param("type").is_none()), "its link to itself has no type"),
        (is_empty, "it lists no memento"),
    ];
    let is_of = |link: &LinkValue| link.has_rel("original") && is_same_original(&link.target, original);
    let other = (!links.iter().any(is_of)).then(|| format!("no link with rel original is {original}"));
    let said = said.into_iter().filter(|(is_one, _)| *is_one).map(|(_, detail)| detail.to_owned());
    said.chain(other).collect()
}

fn of_another(links: &LinkHeader, original: &str) -> Option<String> {
    let is_of = links.with_rel("original").any(|target| is_same_original(target, original));
    (!is_of).then(|| match links.first("original") {
        None => "no link has rel original".to_owned(),
        Some(other) => format!("its original is {other}"),
    })
}
