//! Fetches the versions that wait, after the copy is in step, and checks each like any file (MEM-070, MEM-071).

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_core::datetime::DateTime;
use tokio::time::Instant;
use url::Url;

use super::batches::Batches;
use super::local::{Local, LocalVersions};
use super::queue::Queue;
use super::store::VersionStore;
use crate::blocking::blocking;
use crate::fetch::Client;
use crate::memento::{Lifetime, MementoError, VersionLinks};
use crate::sync::failure::{Failure, FailureKind};
use crate::sync::files::download::Received;
use crate::sync::files::memento::{Mementos, Wanted};
use crate::sync::reading::lists::Lists;
use crate::sync::reading::told::{ToldVersion, VersionLines};
use crate::sync::report::VersionsReport;
use crate::sync::{Offer, PathError, ResourceError, SyncError, SyncOptions, Target};
use crate::timing::{left_of_pause, paused_until};

/// How many runs ask for a version that is not there, or is not as told, before it is given up: it may have been told a little too early.
const PROMPT_TRIES: u32 = 3;

/// Fetches the versions that earlier runs of [`synchronise`](super::super::synchronise) left to be fetched, up to
/// [`SyncOptions::max_versions`]. What fails and may mend waits for the next time (MEM-071). The copy may be synchronised meanwhile.
///
/// `None` if none waits, or another process fetches them.
pub async fn fetch_versions(
    client: &Client,
    offer: &Offer,
    target: &Target,
    options: &SyncOptions,
) -> Option<Box<VersionsReport>> {
    let directory = options.versions.clone().filter(|_| !options.dry_run && options.at.is_none())?;
    let queue = Queue::of(target.directory());
    let looking = queue.clone();
    let found = blocking(move || {
        let has_some = !looking.files()?.is_empty();
        // The files are listed once nobody else takes them.
        let lock = if has_some { looking.lock()? } else { None };
        Ok::<_, std::io::Error>(lock.map(|lock| (lock, looking.files())))
    });
    let (lock, files) = match found.await {
        Ok(found) => found?,
        Err(error) => return Some(broken(target, Vec::new(), &error).await),
    };
    let base = target.base.clone();
    let opened = blocking(move || VersionStore::open(&directory, &base)).await;
    let waiting: Vec<PathBuf> = files.iter().flatten().cloned().collect();
    let fetched = async {
        let (files, store) = (files?, Arc::new(opened?));
        let lists = Lists::new(client, offer, target, options, store.staging())?;
        let local = Arc::new(LocalVersions::new(target.directory(), &target.base));
        Fetching { lists, store, local }.all(&queue, files).await
    };
    let report = match fetched.await {
        Ok(report) => report,
        Err(error) => broken(target, waiting, &error).await,
    };
    drop(lock);
    Some(report)
}

/// Nothing can be fetched now, and all of them wait.
async fn broken(target: &Target, files: Vec<PathBuf>, error: &(dyn Error + Sync)) -> Box<VersionsReport> {
    tracing::warn!(%error, "cannot fetch versions; the next run does");
    let cause = format!("versions wait, and cannot be fetched now: {error}");
    let waiting = blocking(move || VersionLines::of_all(files).flatten().count()).await;
    let mut report = VersionsReport { waiting: waiting as u64, ..VersionsReport::default() };
    let directory = target.directory().display().to_string();
    report.fail(Failure::new(&directory, FailureKind::Other, &cause), true);
    Box::new(report)
}

struct Fetching<'s> {
    lists: Lists<'s>,
    store: Arc<VersionStore>,
    local: Arc<LocalVersions>,
}

impl Fetching<'_> {
    async fn all(&self, queue: &Queue, files: Vec<PathBuf>) -> Result<Box<VersionsReport>, SyncError> {
        let options = self.lists.options;
        let (began, now) = (Instant::now(), DateTime::now());
        let (beginning, replaced) = (queue.clone(), files.clone());
        let mut waiting = blocking(move || beginning.begin(&replaced)).await?;
        let mut report = VersionsReport::default();
        let mut versions = Batches::of(VersionLines::of_all(files.clone()));
        let (mut work, mut begun, mut is_reading) = (FuturesUnordered::new(), 0, true);
        loop {
            while is_reading && work.len() < options.parallel.max(1) {
                match versions.next().await? {
                    None => is_reading = false,
                    Some(version)
                        if begun >= options.max_versions
                            || version.is_paused_at(now)
                            || began.elapsed() >= options.max_run_time =>
                    {
                        report.lost += u64::from(!waiting.push(&version)?);
                    }
                    Some(version) => {
                        begun += 1;
                        work.push(self.fetch(version));
                    }
                }
            }
            let Some((version, result)) = work.next().await else { break };
            match result {
                Ok(is_new) => report.kept += u64::from(is_new),
                Err(error) => {
                    let later = version.after(&error, now);
                    report.fail(Failure::of(version.place(), &error), later.is_some());
                    if let Some(later) = later {
                        report.lost += u64::from(!waiting.push(&later)?);
                    }
                }
            }
        }
        report.waiting = waiting.count;
        let (store, queue) = (Arc::clone(&self.store), queue.clone());
        blocking(move || store.sync().and_then(|()| queue.end(waiting, &files))).await?;
        Ok(Box::new(report))
    }

    async fn fetch(&self, version: ToldVersion) -> (ToldVersion, Result<bool, ResourceError>) {
        let result = self.try_fetch(&version).await;
        (version, result)
    }

    /// What the list proves by a digest needs no more proof. Anything else has to be negotiated.
    async fn received(&self, version: &ToldVersion) -> Result<Received, ResourceError> {
        let Lists { options, list, .. } = &self.lists;
        let mut links = version.links.clone();
        let why = match version.proven_place() {
            Some(place) if !options.authority.allows(&place, &list.origin()) => {
                ResourceError::OtherOrigin { list: list.origin().ascii_serialization() }
            }
            Some(place) => match self.lists.transfer(&place, &version.facts).run().await {
                // An archive may have it in another form.
                Err(error) if error.is_mismatch() => error,
                Err(error) if error.is_not_there() => {
                    links = links.of_an_older_version();
                    error
                }
                result => return result,
            },
            None => MementoError::NoTimeGate.into(),
        };
        if links.is_empty() && options.timegate.is_none() {
            return Err(why);
        }
        let original = Url::parse(&version.url).map_err(PathError::Uri)?;
        let wanted = Wanted {
            original: &original,
            at: version.at,
            lifetime: version.lifetime(),
            facts: &version.facts,
            links: &links,
        };
        let mementos = Mementos::new(&self.lists, options.timegate.as_ref());
        Ok(Box::pin(mementos.get(&wanted)).await?.into_received())
    }

    async fn try_fetch(&self, version: &ToldVersion) -> Result<bool, ResourceError> {
        let (local, store, wanted) = (Arc::clone(&self.local), Arc::clone(&self.store), version.clone());
        if let Local::Kept(is_new) = blocking(move || local.keep(&store, &wanted)).await? {
            return Ok(is_new);
        }
        let received = self.received(version).await?;
        let (store, wanted) = (Arc::clone(&self.store), version.clone());
        blocking(move || store.put_received(&wanted, received)).await
    }
}

impl ToldVersion {
    /// How reports name it: by a URL of its own, or by the resource's.
    fn place(&self) -> &str {
        self.links.memento.as_deref().unwrap_or(&self.url)
    }

    /// Where the list's own digest proves it: at its memento, or, as the newest, where the resource is.
    fn proven_place(&self) -> Option<Url> {
        let place = match &self.links {
            VersionLinks { memento: Some(memento), .. } => memento,
            VersionLinks { timegate: Some(_), .. } => return None,
            VersionLinks { memento: None, timegate: None } => &self.url,
        };
        self.facts.algorithm().and_then(|_| Url::parse(place).ok())
    }

    /// HTTP dates have whole seconds. Without a digest, only a state of the very second of the change is it.
    fn lifetime(&self) -> Lifetime {
        let next = DateTime::from_unix_millis(self.at.unix_millis().saturating_add(1000));
        Lifetime { since: Some(self.at), until: Some(next.unwrap_or(self.at)) }
    }

    /// As it waits after this failure; `None` if it is given up.
    fn after(&self, error: &ResourceError, now: DateTime) -> Option<Self> {
        let tries = self.tries.saturating_add(1);
        let is_gone = match error {
            ResourceError::Fetch(error) => error.status() == Some(410),
            ResourceError::Memento(error) => {
                matches!(error, MementoError::NoTimeGate | MementoError::NoVersion { status: 410, .. })
            }
            _ => false,
        };
        let may_be_early =
            error.is_not_there() || error.is_mismatch() || matches!(error, ResourceError::Memento(_));
        if is_gone || !error.is_for_later() || (may_be_early && tries >= PROMPT_TRIES) {
            return None;
        }
        let doublings = tries.checked_sub(PROMPT_TRIES);
        let paused_until_unix_millis = doublings.map(|doublings| paused_until(now, doublings));
        Some(Self { tries, paused_until_unix_millis, ..self.clone() })
    }

    /// Whether it is not fetched yet.
    fn is_paused_at(&self, now: DateTime) -> bool {
        !left_of_pause(self.paused_until_unix_millis, now).is_zero()
    }
}
