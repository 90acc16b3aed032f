//! What is copied from where: found at the start, and again whenever it may have moved.

use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::{Event, ListenError, ListenOptions};
use crate::discover::{Channel, DiscoverError, KnownSource, Set, discover};
use crate::fetch::Client;
use crate::notification::changes;
use crate::pause::{LONGEST_RETRY, pauses};
use crate::state::Subscriptions;
use crate::sync::{
    Depth, Offer, Report, SyncError, SyncOptions, Target, blocking, synchronise_with_notified,
};

/// The copy and what it is a copy of.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    client: Client,
    wanted: Wanted,
    pub(super) set: Set,
    offer: Offer,
    base: Url,
    target: Target,
    options: SyncOptions,
    /// Whether `set` is from a look of this run.
    pub(super) is_current: bool,
}

impl Mirror {
    /// Looks for the Source until it is found, or begins from what an earlier run found.
    pub(super) async fn find_with_retries(
        options: &ListenOptions,
        client: Client,
        subscriptions: &Subscriptions,
        state: &Path,
        events: &mut (impl FnMut(Event) + Send),
    ) -> Result<Self, ListenError> {
        let mut pause = pauses(LONGEST_RETRY);
        let known = subscriptions.known_discovery();
        let known = known.and_then(|known| known.recall(&options.source, options.set.as_deref()));
        loop {
            let wanted = Wanted::new(options, known.as_ref().map(|(_, set)| set.name()));
            let error = match wanted.search(&client).await {
                Ok((base, set)) => return Self::new(options, client, base, set, state, true),
                Err(error) if error.is_transient() => error,
                Err(error) => return Err(error),
            };
            if let Some((base, set)) = known {
                tracing::warn!(%error, "the Source is unreachable; using what was found before");
                return Self::new(options, client, base, set, state, false);
            }
            let retry_in = pause.after_failure().max(error.retry_after().unwrap_or_default());
            tracing::warn!(%error, ?retry_in, "the Source is unreachable");
            events(Event::SyncFailed { cause: error.to_string(), retry_in });
            tokio::time::sleep(retry_in).await;
        }
    }

    fn new(
        options: &ListenOptions,
        client: Client,
        base: Url,
        set: Set,
        state: &Path,
        is_current: bool,
    ) -> Result<Self, ListenError> {
        let offer = offer_of(&set, &options.sync)?;
        let no_directory = |source| ListenError::Directory { directory: options.into.clone(), source };
        let stands_for = options.base.clone().unwrap_or_else(|| base.clone());
        let target = Target::open(&options.into, stands_for).map_err(no_directory)?.with_state(state);
        let wanted = Wanted::new(options, Some(set.name()));
        let options = options.sync.clone();
        Ok(Self { client, wanted, set, offer, base, target, options, is_current })
    }

    /// Where the set's notifications come from, of lists and of changes; none without a hub.
    pub(super) fn channels(&self) -> Vec<Channel> {
        let channels = [&self.set.framework_channel, &self.set.change_channel].into_iter().flatten();
        let mut wanted: Vec<Channel> = channels.filter(|one| !one.hubs.is_empty()).cloned().collect();
        wanted.dedup();
        wanted
    }

    /// What a later run may begin from.
    pub(super) fn known(&self) -> KnownSource {
        KnownSource::new(&self.wanted.source, self.wanted.set.as_deref(), &self.base, &self.set)
    }

    /// Where the lists are may have changed; while that cannot be found out, the known ones are used.
    pub(super) async fn find_again(&mut self) {
        let found = self.wanted.search(&self.client).await;
        let found = found.and_then(|(_, set)| Ok((offer_of(&set, &self.options)?, set)));
        self.is_current = found.is_ok();
        match found {
            Ok((offer, set)) => (self.offer, self.set) = (offer, set),
            Err(error) => tracing::warn!(%error, "discovery failed; using what was found before"),
        }
    }

    /// Whether there is a document to find out from what was not told.
    pub(super) fn lists_changes(&self) -> bool {
        self.offer.changes(self.options.changes).is_some()
    }

    /// Also what these Change Notifications tell of, where the lists do not have it yet.
    pub(super) async fn synchronise(
        &self,
        how: Depth,
        notifications: Vec<Vec<u8>>,
    ) -> Result<Report, SyncError> {
        let told = blocking(move || changes(&notifications)).await;
        synchronise_with_notified(&self.client, &self.offer, &self.target, &self.options, how, &told).await
    }
}

/// What to look for.
#[derive(Clone, Debug)]
struct Wanted {
    source: String,
    set: Option<String>,
    directory: PathBuf,
    /// The set that the copy is of, once that is known: it becomes no copy of another one.
    name: Option<String>,
}

impl Wanted {
    fn new(options: &ListenOptions, name: Option<String>) -> Self {
        let (source, set, directory) = (options.source.clone(), options.set.clone(), options.into.clone());
        Self { source, set, directory, name }
    }

    async fn search(&self, client: &Client) -> Result<(Url, Set), ListenError> {
        let found = discover(client, &self.source).await?;
        let set = match &self.name {
            None => found.choose(self.set.as_deref())?,
            Some(name) => {
                let is_the_one = found.sets.iter().find(|set| set.is_called(name));
                is_the_one.ok_or_else(|| ListenError::OtherSet {
                    directory: self.directory.clone(),
                    set: name.clone(),
                    sets: found.sets.iter().map(Set::name).collect(),
                    retry_may_help: found.retry_may_help(),
                })?
            }
        };
        Ok((found.base.clone(), set.clone()))
    }
}

fn offer_of(set: &Set, options: &SyncOptions) -> Result<Offer, ListenError> {
    let offer = Offer::of(set);
    if offer.base(options.baseline).is_none() {
        return Err(ListenError::NothingOffered { set: set.name() });
    }
    Ok(offer)
}

impl ListenError {
    /// How long the Source asks to be left alone, if it does.
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
