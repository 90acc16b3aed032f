//! What a Source offers: its sets, their lists and their notification channels.

use std::fmt::Write as _;

use resync_core::document::{Capability, Relation};
use resync_core::websub::key::TopicUrl;
use serde::{Deserialize, Serialize};
use url::Url;

use super::Parsed;
use crate::fetch::FetchError;
use crate::text;

/// How many capabilities of a set are remembered that are not ResourceSync's own.
const MAX_UNKNOWN: usize = 32;

/// What a Source offers.
#[derive(Clone, Debug)]
pub struct Source {
    /// The directory that the URL asked for stands for: where the `DIR` of a copy begins.
    pub base: Url,
    /// The document that the search ended at.
    pub found_at: Url,
    /// Whether the URL asked for is itself a document of the Source; else a page with a link, or a search of the host, led
    /// to what is found.
    pub is_direct: bool,
    /// The Source Description, if one was seen or named.
    pub description: Option<Url>,
    /// The sets that could be read.
    pub sets: Vec<Set>,
    /// The sets that could not be read, and why.
    pub unreadable: Vec<Unreadable>,
}

/// One set of resources: what a Capability List covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// The Capability List; `None` when all there is is a bare list.
    pub capability_list: Option<Url>,
    /// The Resource List or its index (RS-014: only reading it tells).
    pub resource_list: Option<Url>,
    /// What the Capability List names, in its order: of each capability the first, and a bounded number of unknown ones.
    #[serde(with = "capabilities")]
    pub capabilities: Vec<(Capability, Url)>,
    /// Where Framework Notifications are sent (FN-060).
    pub framework_channel: Option<Channel>,
    /// Where Change Notifications are sent (CN-019).
    pub change_channel: Option<Channel>,
    /// A description of the set.
    pub described_by: Option<Url>,
}

/// A set and the URL of a document of it, by which it was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// The URL.
    pub url: String,
    /// The set's [name](Set::name).
    pub set: String,
}

/// A notification channel: a topic and the hubs that carry it.
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
    /// What went wrong with it.
    pub reason: String,
    /// Whether it may well be readable a little later.
    pub retry_may_help: bool,
}

/// Why discovery ended without what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// The text is no absolute URL.
    #[error("{text:?} is not a URL ({reason}): give one such as https://example.org/")]
    Url {
        /// What was given.
        text: String,
        /// Why it is none.
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
        /// What was tried, and what each place said.
        tried: Vec<Unreadable>,
    },
    /// There is no hub.
    #[error("{url} lists no hub, so it cannot be subscribed to; poll it instead")]
    NoHub {
        /// The topic or Source.
        url: Url,
    },
    /// The Source names sets, none of which can be read.
    #[error("cannot read any set of the Source:{}", list(sets))]
    NoReadableSet {
        /// The sets.
        sets: Vec<Unreadable>,
    },
    /// Some of the Source's sets cannot be read at this moment, so that not all its channels are known.
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
    /// None was chosen, and the only set that can be read need not be the one that is meant.
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
    /// What is found is another set than the one that the URL was a document of.
    #[error(
        "{url} no longer belongs to the set {followed}; it leads to the set {found}. Give the URL of the set you want, or another directory"
    )]
    OtherSet {
        /// What was asked for.
        url: String,
        /// The set that it was a document of.
        followed: String,
        /// The set that is found.
        found: String,
    },
    /// The chosen set does not exist, or the choice fits several.
    #[error("{wanted:?} matches {} of the Source's sets:\n  {}", if *several { "several" } else { "none" }, sets.join("\n  "))]
    UnknownSet {
        /// What was chosen.
        wanted: String,
        /// Whether it fits more than one set.
        several: bool,
        /// Whether it may be one that cannot be read at this moment.
        unreadable: bool,
        /// The names there are.
        sets: Vec<String>,
    },
}

impl DiscoverError {
    /// Whether the same search may well succeed a little later: the Source, or a part of it, is away.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Fetch(error) => error.is_transient(),
            Self::NothingFound { tried, .. } => tried.iter().any(|place| place.retry_may_help),
            Self::NoReadableSet { sets }
            | Self::UnreadableSets { sets, .. }
            | Self::Incomplete { sets, .. } => sets.iter().any(|set| set.retry_may_help),
            Self::UnknownSet { unreadable, several, .. } => *unreadable && !several,
            Self::Url { .. } | Self::NoHub { .. } | Self::SeveralSets { .. } | Self::OtherSet { .. } => false,
        }
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
    /// The set that `wanted` names (its Capability List's URL or a part of it that no other set has), or the
    /// only one, if that is certain: where others cannot be read, only a list that was asked for itself is.
    ///
    /// # Errors
    /// [`DiscoverError::SeveralSets`], [`DiscoverError::UnreadableSets`] and [`DiscoverError::UnknownSet`], all with the
    /// names to choose from.
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

    /// The same for a copy that may have been made from `url` before. A list that became a page leads to no other set, unless
    /// that is named.
    ///
    /// # Errors
    /// As for [`choose`](Self::choose), and [`DiscoverError::OtherSet`].
    pub fn choose_again(
        &self,
        url: &str,
        wanted: Option<&str>,
        followed: Option<&Followed>,
    ) -> Result<&Set, DiscoverError> {
        let set = self.choose(wanted)?;
        if let Some(followed) = followed.filter(|followed| followed.url == url)
            && !self.is_direct
            && wanted.is_none()
            && !set.is_called(&followed.set)
        {
            let (url, followed) = (url.to_owned(), followed.set.clone());
            return Err(DiscoverError::OtherSet { url, followed, found: set.name() });
        }
        Ok(set)
    }

    /// Whether sets that cannot be read may be readable a little later.
    pub(crate) fn retry_may_help(&self) -> bool {
        self.unreadable.iter().any(|set| set.retry_may_help)
    }
}

impl Set {
    /// What the set is called: the URL of its Capability List, or of the only list it has.
    #[must_use]
    pub fn name(&self) -> String {
        let url = self.capability_list.as_ref().or(self.resource_list.as_ref());
        url.map(ToString::to_string).unwrap_or_default()
    }

    /// Whether it is the set of that name, which was that of its Resource List if no Capability List could be read. A Source
    /// that moves to https moves its sets with it.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let without_scheme = |url: &str| url.split_once("://").map(|(_, rest)| rest.to_owned());
        let names = self.capability_list.iter().chain(&self.resource_list);
        names.map(Url::as_str).any(|own| without_scheme(own) == without_scheme(name))
    }

    /// Whether its Capability List names this.
    #[must_use]
    pub fn offers(&self, wanted: &Capability) -> bool {
        self.capabilities.iter().any(|(capability, _)| capability == wanted)
    }

    /// The URL that its Capability List gives for this.
    pub(crate) fn named(&self, wanted: &Capability) -> Option<&Url> {
        self.capabilities.iter().find(|(capability, _)| capability == wanted).map(|(_, url)| url)
    }

    pub(super) fn bare(resource_list: Url) -> Self {
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
                tracing::debug!(%capability, %url, "ignored a capability that is listed twice, or one too many");
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

impl Channel {
    /// The hubs in the order in which to subscribe: first the https ones (W-182), each once.
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
