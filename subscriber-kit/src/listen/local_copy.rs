//! The set that is copied: discovered at the start, and again whenever it may have moved.

use std::time::Duration;

use url::Url;

use super::{Events, ListenError, ListenEvent, ListenOptions};
use crate::blocking::blocking;
use crate::discover::{Channel, DiscoverError, SavedSource, Set, discover};
use crate::fetch::Client;
use crate::notification::changes;
use crate::subscribe::Subscriber;
use crate::sync::{
    CopiedSource, Depth, Offer, Report, SyncError, SyncOptions, Target, VersionsReport, fetch_versions,
    synchronise_with_notified,
};
use crate::timing::{LONGEST_RETRY, pauses};

/// A copy and its set.
#[derive(Clone, Debug)]
pub(super) struct LocalCopy {
    client: Client,
    options: ListenOptions,
    /// The name of the set. The copy must not become one of another set.
    name: String,
    pub(super) set: Set,
    offer: Offer,
    base: Url,
    target: Target,
    /// Whether the last discovery succeeded.
    pub(super) is_current: bool,
}

impl LocalCopy {
    /// Searches for the Source until it is found, or uses what an earlier run found.
    pub(super) async fn find_with_retries(
        options: &ListenOptions,
        subscriber: &Subscriber,
        events: &Events,
    ) -> Result<Self, ListenError> {
        let mut pause = pauses(LONGEST_RETRY);
        let client = subscriber.client().clone();
        // One that is switched follows no earlier set.
        let saved = subscriber.subscriptions().saved_source().filter(|_| !options.sync.switch_source);
        let saved = saved.and_then(|saved| saved.find(&options.source, options.set.as_deref()));
        loop {
            let name = saved.as_ref().map(|(_, set)| set.name());
            let error = match search(&client, options, name.as_deref()).await {
                Ok((base, set)) => return Self::new(options, client, base, set, true),
                Err(error) if error.is_transient() => error,
                Err(error) => return Err(error),
            };
            if let Some((base, set)) = saved {
                tracing::warn!(%error, "the Source is unreachable; using what was found before");
                return Self::new(options, client, base, set, false);
            }
            let retry_in = pause.after_failure().max(error.retry_after().unwrap_or_default());
            events.send(ListenEvent::SyncFailed { cause: error.to_string(), retry_in });
            tokio::time::sleep(retry_in).await;
        }
    }

    /// The copy of a set that was found.
    pub(super) fn new(
        options: &ListenOptions,
        client: Client,
        base: Url,
        set: Set,
        is_current: bool,
    ) -> Result<Self, ListenError> {
        let offer = offer_of(&set, &options.sync)?;
        CopiedSource::of(&offer).allow(&options.into, &options.sync)?;
        let no_directory = |source| ListenError::Directory { directory: options.into.clone(), source };
        let target_base = options.base.clone().unwrap_or_else(|| base.clone());
        let target = Target::open(&options.into, target_base)
            .map_err(no_directory)?
            .with_state(&options.state_folder());
        let (options, name) = (options.clone(), set.name());
        Ok(Self { client, options, name, set, offer, base, target, is_current })
    }

    /// The set's channels that have a hub.
    pub(super) fn channels(&self) -> Vec<Channel> {
        let channels = [&self.set.framework_channel, &self.set.change_channel].into_iter().flatten();
        let mut wanted: Vec<Channel> = channels.filter(|one| !one.hubs.is_empty()).cloned().collect();
        wanted.dedup();
        wanted
    }

    /// What is saved for later runs.
    pub(super) fn source(&self) -> SavedSource {
        SavedSource::new(&self.options.source, self.options.set.as_deref(), &self.base, &self.set)
    }

    /// Discovers the set again; if that fails, the known one is used.
    pub(super) async fn discover_again(&mut self) {
        let found = search(&self.client, &self.options, Some(&self.name)).await;
        let found = found.and_then(|(_, set)| Ok((offer_of(&set, &self.options.sync)?, set)));
        self.is_current = found.is_ok();
        match found {
            Ok((offer, set)) => (self.offer, self.set) = (offer, set),
            Err(error) => tracing::warn!(%error, "discovery failed; using what was found before"),
        }
    }

    /// Whether the Source has a Change List or Change Dump.
    pub(super) fn lists_changes(&self) -> bool {
        self.offer.changes(self.options.sync.changes).is_some()
    }

    /// Synchronises. Also applies the changes in these notifications that no list contains yet.
    pub(super) async fn synchronise(
        &self,
        depth: Depth,
        notifications: Vec<Vec<u8>>,
    ) -> Result<Report, SyncError> {
        let notified = blocking(move || changes(&notifications)).await;
        synchronise_with_notified(
            &self.client,
            &self.offer,
            &self.target,
            &self.options.sync,
            depth,
            &notified,
        )
        .await
    }

    /// Fetches the versions that wait. The copy may be synchronised meanwhile.
    pub(super) async fn fetch_versions(&self) -> Option<Box<VersionsReport>> {
        fetch_versions(&self.client, &self.offer, &self.target, &self.options.sync).await
    }
}

/// The set of this name, or else the wanted one.
async fn search(
    client: &Client,
    options: &ListenOptions,
    name: Option<&str>,
) -> Result<(Url, Set), ListenError> {
    let found = discover(client, &options.source).await?;
    let set = match name {
        None => found.choose(options.set.as_deref())?,
        Some(name) => {
            found.sets.iter().find(|set| set.is_called(name)).ok_or_else(|| ListenError::OtherSet {
                directory: options.into.clone(),
                set: name.to_owned(),
                sets: found.sets.iter().map(Set::name).collect(),
                retry_may_help: found.retry_may_help(),
            })?
        }
    };
    Ok((found.base.clone(), set.clone()))
}

fn offer_of(set: &Set, options: &SyncOptions) -> Result<Offer, ListenError> {
    let offer = Offer::of(set);
    if offer.base(options.baseline).is_none() {
        return Err(ListenError::NothingOffered { set: set.name() });
    }
    Ok(offer)
}

impl ListenError {
    /// The pause that the Source asks for.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Discover(DiscoverError::Fetch(error)) => error.retry_after(),
            _ => None,
        }
    }

    fn is_transient(&self) -> bool {
        match self {
            Self::Discover(error) => error.is_transient(),
            Self::OtherSet { retry_may_help, .. } => *retry_may_help,
            _ => false,
        }
    }
}
