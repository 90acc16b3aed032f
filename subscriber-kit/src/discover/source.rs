//! What a Source offers: its sets, lists and notification channels.

use std::fmt::Write as _;

use resync_core::document::{Capability, Relation};
use resync_core::websub::key::{TopicUrl, UrlError};
use serde::{Deserialize, Serialize};
use url::Url;

use super::Parsed;
use crate::fetch::FetchError;
use crate::text;

/// How many capabilities of a set are kept that ResourceSync does not define.
const MAX_UNKNOWN: usize = 32;

/// What a Source offers.
#[derive(Clone, Debug)]
pub struct Source {
    /// The directory of the given URL, which corresponds to the `DIR` of a copy.
    pub base: Url,
    /// The document where the search ended.
    pub found_at: Url,
    /// The Source Description, if one was found or named.
    pub description: Option<Url>,
    /// The sets that could be read.
    pub sets: Vec<Set>,
    /// The sets that could not be read, and why.
    pub unreadable: Vec<Unreadable>,
}

/// A set: the resources of one Capability List.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// The Capability List; `None` for a single list without one.
    pub capability_list: Option<Url>,
    /// The Resource List or its index (RS-014).
    pub resource_list: Option<Url>,
    /// The entries of the Capability List in its order: the first of each capability, and a bounded number of unknown ones.
    #[serde(with = "capabilities")]
    pub capabilities: Vec<(Capability, Url)>,
    /// The channel of Framework Notifications (FN-060).
    pub framework_channel: Option<Channel>,
    /// The channel of Change Notifications (CN-019).
    pub change_channel: Option<Channel>,
    /// A description of the set.
    pub described_by: Option<Url>,
}

/// A notification channel: a topic and its hubs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// The topic URI as the Capability List writes it.
    #[serde(with = "text")]
    pub topic: TopicUrl,
    /// Its hubs in the order named (FN-062).
    pub hubs: Vec<Url>,
}

/// A set that was named but could not be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// The document.
    pub url: Url,
    /// Why it cannot be read.
    pub reason: String,
    /// Whether a retry may succeed.
    pub retry_may_help: bool,
    /// Whether the server has nothing at its URL.
    pub(super) is_absent: bool,
}

/// Why discovery failed.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// The text is not an absolute URL.
    #[error("{text:?} is not a URL ({reason}): give one such as https://example.org/")]
    Url {
        /// What was given.
        text: String,
        /// Why.
        reason: url::ParseError,
    },
    /// The Source cannot be reached at all.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Nothing at the URL nor at any well-known place.
    #[error(
        "no ResourceSync document at {url}; tried:{}\ngive the URL of a Source Description, a Capability List or a Resource List",
        list(tried)
    )]
    NothingFound {
        /// Where the search began.
        url: Url,
        /// The places that were tried, and why each failed.
        tried: Vec<Unreadable>,
    },
    /// There is no hub.
    #[error(
        "{url} names no hub, so it cannot be subscribed to; give one with --hub if you know it, or poll it instead"
    )]
    NoHub {
        /// The topic or Source.
        url: Url,
    },
    /// The URL cannot be a topic.
    #[error("{url} cannot be a topic: {source}")]
    Topic {
        /// The URL.
        url: Box<Url>,
        /// Why.
        source: UrlError,
    },
    /// Nothing says where the versions of a resource are.
    #[error(
        "nothing says where the versions of {original} are: neither its own answer nor the Resource List names a TimeMap or TimeGate"
    )]
    NoTimeMap {
        /// The resource.
        original: Box<Url>,
    },
    /// A TimeMap cannot be used (MEM-058).
    #[error("cannot read the TimeMap {url}: {reason}")]
    TimeMap {
        /// Where it is.
        url: Box<Url>,
        /// Why.
        reason: String,
    },
    /// The Source names sets, none of which can be read.
    #[error("cannot read any set of the Source:{}", list(sets))]
    NoReadableSet {
        /// The sets.
        sets: Vec<Unreadable>,
    },
    /// Some sets of the Source cannot be read now, so not all channels are known.
    #[error("cannot read all sets of {url}, so some channels are unknown:{}", list(sets))]
    Incomplete {
        /// The document that names them.
        url: Url,
        /// Those that cannot be read.
        sets: Vec<Unreadable>,
    },
    /// The Source has several sets and none was chosen.
    #[error("the Source has {} sets; choose one with --set:\n  {}", sets.len(), sets.join("\n  "))]
    SeveralSets {
        /// Their names: the URLs of their Capability Lists.
        sets: Vec<String>,
    },
    /// None was chosen, and only one set can be read, which may be the wrong one.
    #[error(
        "only one set of the Source can be read; to use it, choose it with --set:\n  {readable}\nthese sets cannot be read:{}",
        list(sets)
    )]
    UnreadableSets {
        /// The name of the set that can be read.
        readable: String,
        /// Those that cannot.
        sets: Vec<Unreadable>,
    },
    /// The chosen set does not exist, or the choice fits several.
    #[error("{wanted:?} matches {} of the Source's sets:\n  {}", if *several { "several" } else { "none" }, sets.join("\n  "))]
    UnknownSet {
        /// What was chosen.
        wanted: String,
        /// Whether it fits more than one set.
        several: bool,
        /// Whether it may be one of those that cannot be read now.
        unreadable: bool,
        /// The names of the sets.
        sets: Vec<String>,
    },
}

impl DiscoverError {
    /// Whether the URL is wrong.
    pub(crate) fn is_configuration(&self) -> bool {
        matches!(self, Self::Url { .. } | Self::Topic { .. } | Self::Fetch(FetchError::Scheme { .. }))
    }

    /// Whether the same search may succeed a little later: the Source, or a part of it, is unreachable.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Fetch(error) => error.is_transient(),
            Self::NothingFound { tried, .. } => tried.iter().any(|place| place.retry_may_help),
            Self::NoReadableSet { sets }
            | Self::UnreadableSets { sets, .. }
            | Self::Incomplete { sets, .. } => sets.iter().any(|set| set.retry_may_help),
            Self::UnknownSet { unreadable, several, .. } => *unreadable && !several,
            Self::Url { .. }
            | Self::NoHub { .. }
            | Self::Topic { .. }
            | Self::NoTimeMap { .. }
            | Self::TimeMap { .. }
            | Self::SeveralSets { .. } => false,
        }
    }
}

impl Unreadable {
    pub(super) fn new(url: &Url, reason: impl Into<String>) -> Self {
        Self { url: url.clone(), reason: reason.into(), retry_may_help: false, is_absent: false }
    }

    /// Of a request that failed.
    pub(super) fn away(url: &Url, error: &FetchError) -> Self {
        let is_absent = matches!(error.status(), Some(404 | 410));
        Self { retry_may_help: error.is_transient(), is_absent, ..Self::new(url, error.about(url.as_str())) }
    }
}

fn list(places: &[Unreadable]) -> String {
    places.iter().fold(String::new(), |mut text, place| {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {}: {}", place.url, place.reason);
        text
    })
}

impl Source {
    /// The set that `wanted` names by its Capability List's URL, or by a part of it that no other set has. Without `wanted`, the
    /// only set; if others cannot be read, only if its list was given itself.
    ///
    /// # Errors
    /// [`DiscoverError::SeveralSets`], [`DiscoverError::UnreadableSets`] and [`DiscoverError::UnknownSet`], all with the
    /// names of the sets.
    pub fn choose(&self, wanted: Option<&str>) -> Result<&Set, DiscoverError> {
        let names = || self.sets.iter().map(Set::name).collect();
        let Some(wanted) = wanted else {
            let is_certain = |only: &Set| {
                self.unreadable.is_empty() || only.resource_list.as_ref() == Some(&self.found_at)
            };
            return match self.sets.as_slice() {
                [only] if is_certain(only) => Ok(only),
                [only] => Err(DiscoverError::UnreadableSets {
                    readable: only.name(),
                    sets: self.unreadable.clone(),
                }),
                _ => Err(DiscoverError::SeveralSets { sets: names() }),
            };
        };
        if let Some(exact) = self.sets.iter().find(|set| set.name() == wanted) {
            return Ok(exact);
        }
        let fitting: Vec<&Set> = self.sets.iter().filter(|set| set.name().contains(wanted)).collect();
        match fitting.as_slice() {
            [only] => Ok(only),
            _ => Err(DiscoverError::UnknownSet {
                wanted: wanted.to_owned(),
                several: fitting.len() > 1,
                unreadable: self.retry_may_help(),
                sets: names(),
            }),
        }
    }

    /// Whether unreadable sets may be readable a little later.
    pub(crate) fn retry_may_help(&self) -> bool {
        self.unreadable.iter().any(|set| set.retry_may_help)
    }
}

impl Set {
    /// The name of the set: the URL of its Capability List, or else of its Resource List.
    #[must_use]
    pub fn name(&self) -> String {
        let url = self.capability_list.as_ref().or(self.resource_list.as_ref());
        url.map(ToString::to_string).unwrap_or_default()
    }

    /// Whether this is the name of the set, by its Capability List or its Resource List.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let names = self.capability_list.iter().chain(&self.resource_list);
        names.map(Url::as_str).any(|own| is_same_document(own, name))
    }

    /// Whether its Capability List has this capability.
    #[must_use]
    pub fn offers(&self, wanted: &Capability) -> bool {
        self.capabilities.iter().any(|(capability, _)| capability == wanted)
    }

    /// The URL of this capability.
    pub(crate) fn named(&self, wanted: &Capability) -> Option<&Url> {
        self.capabilities.iter().find(|(capability, _)| capability == wanted).map(|(_, url)| url)
    }

    /// A set of which only the Resource List is known.
    pub(crate) fn bare(resource_list: Url) -> Self {
        Self {
            capability_list: None,
            resource_list: Some(resource_list),
            capabilities: Vec::new(),
            framework_channel: None,
            change_channel: None,
            described_by: None,
        }
    }

    pub(super) fn from_capability_list(document: &Parsed) -> Self {
        let mut set =
            Self { capability_list: Some(document.url.clone()), ..Self::bare(document.url.clone()) };
        set.resource_list = None;
        set.described_by = document.link(&Relation::DescribedBy);
        let mut unknown = 0;
        for entry in &document.entries {
            let (Some(capability), Some(url)) = (entry.capability(), document.resolve(&entry.loc)) else {
                continue;
            };
            let is_unknown = matches!(capability, Capability::Other(_));
            if set.offers(capability) || (is_unknown && unknown == MAX_UNKNOWN) {
                tracing::debug!(%capability, %url, "ignored a repeated capability, or one too many");
                continue;
            }
            unknown += usize::from(is_unknown);
            match capability {
                Capability::ResourceList => set.resource_list = Some(url.clone()),
                Capability::FrameworkNotification => set.framework_channel = document.channel(entry),
                Capability::ChangeNotification => set.change_channel = document.channel(entry),
                _ => {}
            }
            set.capabilities.push((capability.clone(), url));
        }
        set
    }
}

/// Whether two URLs lead to the same document. http and https do.
pub(crate) fn is_same_document(one: &str, other: &str) -> bool {
    let without_scheme = |url: &str| url.split_once("://").map(|(_, rest)| rest.to_owned());
    without_scheme(one) == without_scheme(other)
}

impl Channel {
    /// The hubs in the order to try, without repetitions: https first (W-182).
    #[must_use]
    pub fn hubs_by_preference(&self) -> Vec<&Url> {
        let (secure, plain): (Vec<&Url>, Vec<&Url>) =
            self.hubs.iter().partition(|hub| hub.scheme() == "https");
        let mut hubs = Vec::new();
        for hub in secure.into_iter().chain(plain) {
            if !hubs.contains(&hub) {
                hubs.push(hub);
            }
        }
        hubs
    }

    /// The hub to subscribe at first.
    #[must_use]
    pub fn hub(&self) -> Option<&Url> {
        self.hubs_by_preference().first().copied()
    }
}

/// Capabilities by their tokens.
mod capabilities {
    use super::{Capability, Url};
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(all: &[(Capability, Url)], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(|(capability, url)| (capability.token(), url)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(Capability, Url)>, D::Error> {
        let all = Vec::<(String, Url)>::deserialize(from)?;
        Ok(all.into_iter().map(|(token, url)| (Capability::from(token.as_str()), url)).collect())
    }
}
