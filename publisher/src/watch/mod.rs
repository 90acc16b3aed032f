//! Watches collections: builds soon after each change, and notifies the hubs.
//!
//! Events only say *where* something changed. A build finds what changed: it looks there and reads changed files. So an event too many does no harm,
//! and a rescan of all files now and then finds what events missed. A build waits for a pause in the events, but not for long. Notifying goes on
//! meanwhile, so that an unreachable hub does not delay builds.

mod links;
mod listening;
mod notifying;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    thread::available_parallelism,
    time::{Duration, Instant},
};

use resync_common::backoff::Backoff;
use resync_core::document::Capability;
use tokio::{
    sync::{Notify, Semaphore, mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

use self::{
    links::Links,
    listening::{ChangedPaths, Listener},
    notifying::{Notifying, notify_set},
};
use crate::{
    error::Error,
    helpers::{blocking::unblocked, debounce::Debounce},
    notify::{self, HubReport, Hubs, Token},
    publish::{self, Build, BuildMode, Built, Claim, DueDumps, DumpBackoff, MaintenanceReport, Written},
    settings::Settings,
    state::State,
};

/// The times of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A build begins after this pause in changes,
    pub quiet: Duration,
    /// or this long after the first change.
    pub most: Duration,
    /// All files are looked at this long after the last time, whatever events say; zero for never.
    pub rescan: Duration,
    /// The first pause before a hub that could not be notified is tried again; the next ones double.
    pub first_pause: Duration,
    /// The longest such pause.
    pub last_pause: Duration,
}

impl Timing {
    fn pauses(&self) -> Backoff {
        Backoff::new(self.first_pause, self.last_pause)
    }

    /// When all files are looked at again, if ever.
    fn next_rescan(&self) -> Option<Instant> {
        if self.rescan.is_zero() { None } else { Instant::now().checked_add(self.rescan) }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            quiet: Duration::from_millis(100),
            most: Duration::from_millis(250),
            rescan: Duration::from_secs(600),
            first_pause: Duration::from_secs(1),
            last_pause: Duration::from_secs(300),
        }
    }
}

/// How to watch.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// When another configuration takes over this site, the watch ends.
    pub claim: Option<Claim>,
    /// The tokens of the hubs.
    pub tokens: Vec<Token>,
    /// The times of the watch.
    pub timing: Timing,
    /// Whether to publish that all resources of a set are gone, see [`Build::allow_empty`].
    pub allow_empty: bool,
}

/// What happened while watching, with the folder of the set's documents.
#[derive(Debug)]
#[non_exhaustive]
pub enum Report {
    /// The system reports no events of a collection, or not all of them. Rescans find the missed changes, and try again to get events.
    EventsFailed(PathBuf, String),
    /// A build succeeded.
    Built(PathBuf, Box<Built>),
    /// A due dump was made, or failed and will be tried again.
    Dumped(PathBuf, MaintenanceReport),
    /// A build failed; the next one is tried at the next change or rescan. That a collection is empty is reported once.
    BuildFailed(PathBuf, Error),
    /// A hub was notified, or that failed and will be tried again.
    Notified(PathBuf, Box<HubReport>),
    /// Hubs could not be notified for a reason on this side; it will be tried again.
    NotifyFailed(PathBuf, Error),
}

impl Report {
    /// The folder of the set's documents.
    pub fn out(&self) -> &Path {
        match self {
            Self::EventsFailed(out, _)
            | Self::Built(out, _)
            | Self::Dumped(out, _)
            | Self::BuildFailed(out, _)
            | Self::Notified(out, _)
            | Self::NotifyFailed(out, _) => out,
        }
    }
}

/// One set under watch. Each is built by a task of its own, so that a slow build does not delay other sets.
struct Watched {
    out: PathBuf,
    claim: Option<Claim>,
    settings: Settings,
    allow_empty: bool,
    /// Whether the last build was refused since all resources seem to be gone.
    is_emptied: bool,
    listener: Listener,
    links: Links,
    /// Signalled by each event, and by the end of a dump.
    changed: Arc<Notify>,
    /// Signalled when there may be something to notify the hubs of.
    published: Arc<Notify>,
    observers: Observers,
    /// Limits how many dumps are made at once. Builds need no limit: they are short, but a dump keeps a core busy, perhaps for hours.
    dump_permits: Arc<Semaphore>,
    backoff: DumpBackoff,
    /// A Resource List or a dump is due: changes are published first.
    debounce: Option<Debounce>,
    wants_dump: bool,
    /// When a dump comes due, or may be tried again, though nothing changes.
    next_dump: Option<Instant>,
    dumping: Option<oneshot::Receiver<(MaintenanceReport, DumpBackoff)>>,
}

/// Builds every set and notifies its hubs, now and whenever a file changes, until `shutdown` is ready. Calls `observe` with each report.
///
/// Refuses a token without a URL if the sets have more than one hub together. Fails when another configuration takes over the claimed site.
pub async fn watch(
    sets: Vec<(PathBuf, Settings)>,
    options: Options,
    shutdown: impl Future<Output = ()>,
    mut observe: impl FnMut(Report),
) -> Result<(), Error> {
    let Options { claim, tokens, timing, allow_empty } = options;
    let outs = all_outs(&sets);
    let retired = retired_sets(&outs);
    let tokens = all_hubs(&sets, &retired).name(&tokens)?;
    let client = notify::client()?;
    let (report, mut reports) = mpsc::unbounded_channel();
    let all_published: Arc<[_]> = sets.iter().map(|_| Arc::new(Notify::new())).collect();
    let observers = Observers { report: report.clone(), all_published: Arc::clone(&all_published) };
    let notifying = Notifying { client, tokens, timing, report: report.clone() };
    let dump_permits = Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from)));
    let (mut notifiers, mut builders) = (JoinSet::new(), JoinSet::new());
    for ((out, settings), published) in sets.into_iter().zip(all_published.iter()) {
        let changed = Arc::new(Notify::new());
        let listener = Listener::new(&out, &settings.directory, &outs, &changed, report.clone());
        notifiers.spawn(notify_set(notifying.clone(), out.clone(), Arc::clone(published)));
        let set = Watched {
            out,
            claim: claim.clone(),
            settings,
            allow_empty,
            is_emptied: false,
            listener,
            links: Links::default(),
            changed,
            published: Arc::clone(published),
            observers: observers.clone(),
            dump_permits: Arc::clone(&dump_permits),
            backoff: DumpBackoff::default(),
            debounce: None,
            wants_dump: false,
            next_dump: None,
            dumping: None,
        };
        builders.spawn(set.keep_built(timing));
    }
    for out in retired {
        let published = Arc::new(Notify::new());
        published.notify_one();
        notifiers.spawn(notify_set(notifying.clone(), out, published));
    }
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            Some(ended) = builders.join_next() => {
                let error = ended.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
                return Err(error);
            }
            () = &mut shutdown => return Ok(()),
            Some(one) = reports.recv() => observe(one),
        }
    }
}

/// The hubs of all sets: those of the settings, and former ones.
fn all_hubs(sets: &[(PathBuf, Settings)], retired: &BTreeSet<PathBuf>) -> Hubs {
    let current: BTreeSet<_> = sets.iter().flat_map(|(_, settings)| settings.hubs.iter().cloned()).collect();
    let outs = sets.iter().map(|(out, _)| out).chain(retired);
    let states = outs.filter_map(|out| State::load(out).ok());
    let known = states.flat_map(|state| state.hubs.into_keys());
    let all = current.iter().cloned().chain(known).collect();
    Hubs { current, all }
}

/// The sets that the configuration no longer lists, and whose hubs are still to be notified of that.
fn retired_sets(outs: &[PathBuf]) -> BTreeSet<PathBuf> {
    outs.iter().filter_map(|out| publish::retired_sets(out).ok()).flatten().collect()
}

/// The folders of the documents of all sets, and those of the sites that they are part of: any of them may lie in any collection.
fn all_outs(sets: &[(PathBuf, Settings)]) -> Vec<PathBuf> {
    let whole = sets.iter().filter(|(_, settings)| settings.root.is_some());
    let whole = whole.filter_map(|(out, _)| out.parent());
    let outs: BTreeSet<_> = sets.iter().map(|(out, _)| out.as_path()).chain(whole).collect();
    outs.into_iter().map(Path::to_owned).collect()
}

/// Who gets reports of builds: the caller of the watch, and the notifiers of all sets.
#[derive(Clone)]
struct Observers {
    report: mpsc::UnboundedSender<Report>,
    all_published: Arc<[Arc<Notify>]>,
}

impl Observers {
    fn report(&self, report: Report) {
        // A receiver that is gone has ended the watch.
        let _ = self.report.send(report);
    }
}

impl Watched {
    /// Builds what has changed, again and again: quickly after events, and in full when there is time. Ends when the site is taken over.
    async fn keep_built(mut self, timing: Timing) -> Error {
        let mut rescan = timing.next_rescan();
        loop {
            if let Err(taken_over) = self.catch_up().await {
                return taken_over;
            }
            let next = self.next().into_iter().chain(rescan).min();
            let pause = next.map_or(Duration::MAX, |next| next.saturating_duration_since(Instant::now()));
            if timeout(pause, self.changed.notified()).await.is_ok() {
                let first = Instant::now();
                while first.elapsed() < timing.most
                    && timeout(timing.quiet, self.changed.notified()).await.is_ok()
                {}
            }
            if rescan.is_some_and(|rescan| rescan <= Instant::now()) {
                rescan = timing.next_rescan();
                self.listener.listen_again().await;
                self.listener.replace(ChangedPaths::Everywhere);
            }
        }
    }

    /// Does what is due by now. Fails only when the site is taken over.
    async fn catch_up(&mut self) -> Result<(), Error> {
        self.end_dump();
        let changed_paths = self.listener.replace(ChangedPaths::nothing());
        if changed_paths == ChangedPaths::Everywhere {
            // Before anything is looked at, so that no change is missed.
            self.listener.listen().await;
        }
        if changed_paths != ChangedPaths::nothing() {
            self.build(changed_paths, BuildMode::Quick).await?;
        }
        if self.debounce.is_some_and(|debounce| debounce.due() <= Instant::now()) {
            self.build(ChangedPaths::nothing(), BuildMode::WithoutDumps).await?;
        }
        let is_time = self.next_dump.is_some_and(|next| next <= Instant::now());
        if (std::mem::take(&mut self.wants_dump) || is_time) && self.dumping.is_none() {
            self.begin_dump();
        }
        Ok(())
    }

    /// Looks at changed paths, and reports. Fails only when the site is taken over.
    async fn build(&mut self, changed_paths: ChangedPaths, mode: BuildMode) -> Result<(), Error> {
        let (out, claim) = (self.out.clone(), self.claim.clone());
        let (settings, allow_empty) = (self.settings.clone(), self.allow_empty);
        let mut backoff = std::mem::take(&mut self.backoff);
        let paths = match changed_paths {
            ChangedPaths::Everywhere => None,
            ChangedPaths::At(mut paths) => {
                if !paths.is_empty() {
                    paths.extend(self.links.to_look_at());
                }
                Some(paths)
            }
        };
        let is_everywhere = paths.is_none();
        let work = move || {
            let build = Build::new(&settings, &out).claim(claim.as_ref()).mode(mode);
            let build = build.allow_empty(allow_empty).backoff(&mut backoff);
            let built = match paths {
                Some(paths) => build.only(paths).run(),
                None => build.run(),
            };
            (built, backoff)
        };
        let (mut built, backoff) = unblocked(work).await;
        if let Err(taken_over @ Error::TakenOver { .. }) = built {
            return Err(taken_over);
        }
        self.backoff = backoff;
        let is_due = |built: &Built| built.list_is_due || built.dump_is_due && self.dumping.is_none();
        self.debounce = match &built {
            Ok(built) if is_due(built) && mode == BuildMode::Quick => {
                Some(Debounce::after(self.debounce, Instant::now()))
            }
            _ => None,
        };
        self.wants_dump =
            mode == BuildMode::WithoutDumps && built.as_ref().is_ok_and(|built| built.dump_is_due);
        if let Ok(built) = &mut built {
            self.next_dump = built.next_dump;
            self.links.found(std::mem::take(&mut built.links), is_everywhere);
        } else {
            // The paths of this build are lost.
            self.listener.replace(ChangedPaths::Everywhere);
        }
        let is_description = |written: &Written| written.capability == Capability::Description;
        let is_described = built.as_ref().is_ok_and(|built| built.written.iter().any(is_description));
        let is_emptied = built.as_ref().is_err_and(Error::is_of_emptiness);
        let is_known = std::mem::replace(&mut self.is_emptied, is_emptied) && is_emptied;
        if !is_known {
            self.observers.report(match built {
                Ok(built) => Report::Built(self.out.clone(), Box::new(built)),
                Err(error) => Report::BuildFailed(self.out.clone(), error),
            });
        }
        if is_described && self.settings.root.is_some() {
            self.describe().await;
        }
        self.published.notify_one();
        Ok(())
    }

    /// Lists the sets that were built meanwhile in the Source Description, and has all hubs notified of it (FN-004).
    async fn describe(&self) {
        let out = self.out.clone();
        if let Err(error) = unblocked(move || publish::describe(&out)).await {
            self.observers.report(Report::BuildFailed(self.out.clone(), error));
        }
        for published in self.observers.all_published.iter() {
            published.notify_one();
        }
    }

    /// When there is something to do even without events.
    fn next(&self) -> Option<Instant> {
        let next_dump = self.next_dump.filter(|_| self.dumping.is_none());
        self.debounce.map(Debounce::due).into_iter().chain(next_dump).min()
    }

    /// Makes the dumps that are due, while builds go on.
    fn begin_dump(&mut self) {
        let (done, dumping) = oneshot::channel();
        (self.dumping, self.next_dump) = (Some(dumping), None);
        let (out, claim, mut backoff) =
            (self.out.clone(), self.claim.clone(), std::mem::take(&mut self.backoff));
        let (changed, permits) = (Arc::clone(&self.changed), Arc::clone(&self.dump_permits));
        tokio::spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire_owned().await;
            if done.is_closed() {
                return;
            }
            let made = unblocked(move || {
                let report = DueDumps::new(&out).claim(claim.as_ref()).backoff(&mut backoff).make();
                (report, backoff)
            });
            let made = made.await;
            // A receiver that is gone has ended the watch.
            let _ = done.send(made);
            changed.notify_one();
        });
    }

    /// Reports a dump that ended.
    fn end_dump(&mut self) {
        let made = match self.dumping.as_mut().map(oneshot::Receiver::try_recv) {
            None | Some(Err(oneshot::error::TryRecvError::Empty)) => return,
            Some(made) => made,
        };
        self.dumping = None;
        let Ok((maintenance, backoff)) = made else { return };
        (self.backoff, self.next_dump) = (backoff, maintenance.next_dump);
        if !maintenance.written.is_empty() {
            // Changes of that time may make another one due.
            self.debounce = Some(Debounce::after(self.debounce, Instant::now()));
        }
        self.observers.report(Report::Dumped(self.out.clone(), maintenance));
        self.published.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::settings::{Root, Rules, SetName};

    use super::*;

    /// A set of one file under watch, of which no dump may be made for now.
    fn watched(place: &Path, rules: Rules) -> (Watched, mpsc::UnboundedReceiver<Report>) {
        let (directory, out) = (place.join("data"), place.join("site"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("a"), "1").unwrap();
        let base_url = crate::BaseUrl::parse("http://example.org/").unwrap();
        let settings = Settings { rules, ..Settings::new(&directory, base_url) };
        let (report, reports) = mpsc::unbounded_channel();
        let changed = Arc::new(Notify::new());
        let listener = Listener::new(&out, &directory, std::slice::from_ref(&out), &changed, report.clone());
        let set = Watched {
            out,
            claim: None,
            settings,
            allow_empty: false,
            is_emptied: false,
            listener,
            links: Links::default(),
            changed,
            published: Arc::default(),
            observers: Observers { report, all_published: Arc::default() },
            dump_permits: Arc::new(Semaphore::new(0)),
            backoff: DumpBackoff::default(),
            debounce: None,
            wants_dump: false,
            next_dump: None,
            dumping: None,
        };
        (set, reports)
    }

    #[tokio::test]
    async fn a_set_whose_files_seem_to_be_gone_is_reported_once_and_looked_at_again_and_again() {
        let place = tempfile::tempdir().unwrap();
        let (mut set, mut reports) = watched(place.path(), Rules::default());
        let (file, aside) = (place.path().join("data/a"), place.path().join("a"));
        for _ in 0..2 {
            set.build(ChangedPaths::Everywhere, BuildMode::Quick).await.unwrap();
            let report = reports.try_recv();
            assert!(matches!(report, Ok(Report::Built(..))), "{report:?}");
            fs::rename(&file, &aside).unwrap();
            for looked in [ChangedPaths::At(["a"].map(PathBuf::from).into()), ChangedPaths::Everywhere] {
                set.build(looked, BuildMode::Quick).await.unwrap();
                let next = set.listener.replace(ChangedPaths::nothing());
                assert_eq!(next, ChangedPaths::Everywhere, "all files are looked at next");
            }
            let report = reports.try_recv();
            assert!(
                matches!(&report, Ok(Report::BuildFailed(_, error)) if error.is_of_emptiness()),
                "{report:?}"
            );
            assert!(reports.try_recv().is_err(), "it is said once");
            fs::rename(&aside, &file).unwrap();
        }
        fs::remove_file(&file).unwrap();
        set.allow_empty = true;
        set.build(ChangedPaths::Everywhere, BuildMode::Quick).await.unwrap();
        let Ok(Report::Built(_, built)) = reports.try_recv() else { panic!("it is allowed") };
        assert_eq!(built.changes.deleted, 1);
    }

    #[test]
    fn a_rescan_comes_after_its_pause_and_never_where_that_is_zero_or_without_end() {
        let after = |rescan| Timing { rescan, ..Timing::default() }.next_rescan();
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        assert!(after(second).is_some_and(|next| next >= now + second));
        assert_eq!((after(Duration::ZERO), after(Duration::MAX)), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dump_waits_for_a_permit_that_those_of_other_sets_have() {
        let place = tempfile::tempdir().unwrap();
        let rules = Rules { resource_dump_seconds: Some(0), ..Rules::default() };
        let (mut set, mut reports) = watched(place.path(), rules);
        Build::new(&set.settings, &set.out).mode(BuildMode::Quick).run().unwrap();
        set.begin_dump();
        let an_hour = Duration::from_secs(3600);
        assert!(timeout(an_hour, set.changed.notified()).await.is_err(), "nothing is made meanwhile");
        set.dump_permits.add_permits(1);
        set.changed.notified().await;
        set.end_dump();
        let Some(Report::Dumped(_, maintenance)) = reports.recv().await else { panic!("it is reported") };
        assert!(maintenance.written.iter().any(|written| written.capability == Capability::ResourceDump));
    }

    #[test]
    fn what_any_set_writes_is_no_change_of_any_other() {
        let base_url = crate::BaseUrl::parse("http://example.org/").unwrap();
        let set = |name: &str| {
            let root =
                Root { base_url: base_url.clone(), name: SetName::parse(name).unwrap(), described_by: None };
            let settings = Settings { root: Some(root), ..Settings::new("/data", base_url.clone()) };
            (Path::new("/data/site").join(name), settings)
        };
        let expected = ["/data/site", "/data/site/one", "/data/site/two"].map(PathBuf::from);
        assert_eq!(all_outs(&[set("two"), set("one")]), expected);
        let alone = ("/site".into(), Settings::new("/data", base_url.clone()));
        assert_eq!(all_outs(&[alone]), [PathBuf::from("/site")]);
    }
}
