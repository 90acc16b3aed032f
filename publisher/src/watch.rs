//! Watching collections: what changes is built and told within moments, in bursts and one by one.
//!
//! Events only say *where* something changed; what did is found by a build, which looks there and reads the files that are not as they were.
//! So an event too many does no harm, and a rescan now and then, which looks at all files, finds what no event told. Building waits for a
//! pause in the events, though not for long; telling the hubs goes on beside it, so that a hub that is away holds up no build.

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
    listening::{ChangedPaths, Listener},
    notifying::notify_hubs,
};
use crate::{
    blocking::unblocked,
    debounce::Debounce,
    notify::{self, HubReport, Hubs, NotifyError, Token},
    publish::{
        self, Build, BuildError, BuildMode, Built, Claim, DumpBackoff, MaintenanceReport, Written,
        make_due_dumps_with_backoff,
    },
    settings::Settings,
    state::State,
};

/// How patient a watch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A build begins when nothing has changed for so long,
    pub quiet: Duration,
    /// or so long after the first change.
    pub most: Duration,
    /// All files are looked at so long after the last time, whatever events say.
    pub rescan: Duration,
    /// The first pause before a hub that could not be told is tried again; the next ones double.
    pub first_pause: Duration,
    /// The longest such pause.
    pub last_pause: Duration,
}

impl Timing {
    /// Before a hub that could not be told is tried again.
    fn pauses(&self) -> Backoff {
        Backoff::new(self.first_pause, self.last_pause)
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

/// What happened while watching, with the folder of the set's documents.
#[derive(Debug)]
#[non_exhaustive]
pub enum Report {
    /// Events of a collection cannot be had, or not all of them; rescans see what they do not tell, and try again to have them.
    Blind(PathBuf, String),
    /// A build is through.
    Built(PathBuf, Box<Built>),
    /// A dump that was due is made, or could not be, and will be tried again.
    Dumped(PathBuf, MaintenanceReport),
    /// A build failed; the next one is tried at the next change or rescan.
    BuildFailed(PathBuf, BuildError),
    /// A hub was told, or could not be, and will be tried again.
    Notified(PathBuf, Box<HubReport>),
    /// What keeps hubs from being told; it will be tried again.
    NotifyFailed(PathBuf, NotifyError),
}

impl Report {
    /// The folder of the set's documents.
    pub fn out(&self) -> &Path {
        match self {
            Self::Blind(out, _)
            | Self::Built(out, _)
            | Self::Dumped(out, _)
            | Self::BuildFailed(out, _)
            | Self::Notified(out, _)
            | Self::NotifyFailed(out, _) => out,
        }
    }
}

/// What ends a watch.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Hubs cannot be told with these tokens, or at all.
    #[error(transparent)]
    Notify(#[from] NotifyError),
    /// The site is built from another configuration file now.
    #[error(transparent)]
    TakenOver(BuildError),
}

/// One set under watch. Each is built by a task of its own, so that one that takes long keeps no other waiting.
struct Watched {
    out: PathBuf,
    claim: Option<Claim>,
    settings: Settings,
    listener: Listener,
    /// Told by the listener of whatever it hears, and by a dump that is through.
    changed: Arc<Notify>,
    has_news: Arc<Notify>,
    observers: Observers,
    /// Held by the sets whose dumps are made. What is built is soon told and waits for nobody; a dump keeps a core busy, perhaps for hours.
    dump_turns: Arc<Semaphore>,
    backoff: DumpBackoff,
    /// A Resource List or a dump that is due: changes are told first.
    debounce: Option<Debounce>,
    wants_dump: bool,
    /// When a dump comes due, or may be tried again, though nothing changes.
    next_dump: Option<Instant>,
    dumping: Option<oneshot::Receiver<(MaintenanceReport, DumpBackoff)>>,
}

/// Builds every set, tells its hubs, and goes on with that whenever a file changes, until `shutdown` is ready. Reports go to `tell` as they come.
///
/// A token without a URL is refused where the sets have more than one hub together. Ends where the site was claimed and is another's by then.
pub async fn watch(
    sets: Vec<(PathBuf, Settings)>,
    claim: Option<Claim>,
    tokens: Vec<Token>,
    timing: Timing,
    shutdown: impl Future<Output = ()>,
    mut tell: impl FnMut(Report),
) -> Result<(), WatchError> {
    let tokens = all_hubs(&sets).name(&tokens)?;
    let client = notify::client()?;
    let (report, mut reports) = mpsc::unbounded_channel();
    let all_news: Arc<[_]> = sets.iter().map(|_| Arc::new(Notify::new())).collect();
    let observers = Observers { report: report.clone(), all_news: Arc::clone(&all_news) };
    let dump_turns = Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from)));
    let (mut notifiers, mut builders) = (JoinSet::new(), JoinSet::new());
    let outs = all_outs(&sets);
    for ((out, settings), has_news) in sets.into_iter().zip(all_news.iter()) {
        let changed = Arc::new(Notify::new());
        let folders = (out.clone(), settings.directory.clone());
        let listener = Listener::new(folders, outs.clone(), Arc::clone(&changed), report.clone());
        let (has_news, news) = (Arc::clone(has_news), Arc::clone(has_news));
        notifiers.spawn(notify_hubs(
            out.clone(),
            news,
            client.clone(),
            tokens.clone(),
            timing,
            report.clone(),
        ));
        let (claim, backoff, observers) = (claim.clone(), DumpBackoff::default(), observers.clone());
        let dump_turns = Arc::clone(&dump_turns);
        let (debounce, wants_dump, next_dump, dumping) = (None, false, None, None);
        let set = Watched {
            out,
            claim,
            settings,
            listener,
            changed,
            has_news,
            observers,
            dump_turns,
            backoff,
            debounce,
            wants_dump,
            next_dump,
            dumping,
        };
        builders.spawn(set.keep_built(timing));
    }
    for out in left_sets(&outs) {
        let news = Arc::new(Notify::new());
        news.notify_one();
        notifiers.spawn(notify_hubs(out, news, client.clone(), tokens.clone(), timing, report.clone()));
    }
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            Some(ended) = builders.join_next() => {
                let error = ended.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
                return Err(WatchError::TakenOver(error));
            }
            () = &mut shutdown => return Ok(()),
            Some(one) = reports.recv() => tell(one),
        }
    }
}

/// The hubs of all sets: those of the settings, and those that are leaving as far as that is known.
fn all_hubs(sets: &[(PathBuf, Settings)]) -> Hubs {
    let staying: BTreeSet<_> = sets.iter().flat_map(|(_, settings)| settings.hubs.iter().cloned()).collect();
    let states = sets.iter().filter_map(|(out, _)| State::load(out).ok());
    let known = states.flat_map(|state| state.hubs.into_keys());
    let all = staying.iter().cloned().chain(known).collect();
    Hubs { staying, all }
}

/// The sets that the configuration names no more, and whose hubs may not know that yet.
fn left_sets(outs: &[PathBuf]) -> BTreeSet<PathBuf> {
    outs.iter().filter_map(|out| publish::left(out).ok()).flatten().collect()
}

/// The folders of the documents of all sets, and those of the sites that they are part of: any of them may lie in any collection.
fn all_outs(sets: &[(PathBuf, Settings)]) -> Vec<PathBuf> {
    let whole = sets.iter().filter(|(_, settings)| settings.root.is_some());
    let whole = whole.filter_map(|(out, _)| out.parent());
    let outs: BTreeSet<_> = sets.iter().map(|(out, _)| out.as_path()).chain(whole).collect();
    outs.into_iter().map(Path::to_owned).collect()
}

/// Who hears of builds: who started the watch, and the tellers of all sets.
#[derive(Clone)]
struct Observers {
    report: mpsc::UnboundedSender<Report>,
    all_news: Arc<[Arc<Notify>]>,
}

impl Observers {
    fn report(&self, report: Report) {
        // Who listens no more has ended the watch.
        let _ = self.report.send(report);
    }
}

impl Watched {
    /// Builds what has changed, again and again: soon where something was heard of, and thoroughly when there is time for that. Ends where the site is
    /// another's.
    async fn keep_built(mut self, timing: Timing) -> BuildError {
        let mut rescan = Instant::now() + timing.rescan;
        loop {
            if let Err(taken) = self.catch_up().await {
                return taken;
            }
            let next = self.next().map_or(rescan, |next| next.min(rescan));
            let pause = next.saturating_duration_since(Instant::now());
            if timeout(pause, self.changed.notified()).await.is_ok() {
                let first = Instant::now();
                while first.elapsed() < timing.most
                    && timeout(timing.quiet, self.changed.notified()).await.is_ok()
                {}
            }
            if rescan <= Instant::now() {
                rescan = Instant::now() + timing.rescan;
                self.listener.listen_again().await;
                self.listener.replace(ChangedPaths::Everywhere);
            }
        }
    }

    /// Does what is to be done by now. Fails only where the site is another's.
    async fn catch_up(&mut self) -> Result<(), BuildError> {
        self.end_dump();
        let changed_paths = self.listener.replace(ChangedPaths::nothing());
        if changed_paths == ChangedPaths::Everywhere {
            // Before anything is looked at, so that nothing falls in between.
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

    /// Looks where something was heard of, and tells of it. Fails only where the site is another's.
    async fn build(&mut self, changed_paths: ChangedPaths, mode: BuildMode) -> Result<(), BuildError> {
        let (out, claim) = (self.out.clone(), self.claim.clone());
        let (settings, mut backoff) = (self.settings.clone(), std::mem::take(&mut self.backoff));
        let paths = match changed_paths {
            ChangedPaths::Everywhere => None,
            ChangedPaths::At(paths) => Some(paths),
        };
        let work = move || {
            let build = Build::new(&settings, &out).claim(claim.as_ref()).mode(mode).backoff(&mut backoff);
            let built = match paths {
                Some(paths) => build.only(paths).run(),
                None => build.run(),
            };
            (built, backoff)
        };
        let (built, backoff) = unblocked(work).await;
        if let Err(taken @ BuildError::TakenOver { .. }) = built {
            return Err(taken);
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
        if let Ok(built) = &built {
            self.next_dump = built.next_dump;
        } else {
            // Where this was to look is forgotten.
            self.listener.replace(ChangedPaths::Everywhere);
        }
        let is_description = |written: &Written| written.capability == Capability::Description;
        let is_described = built.as_ref().is_ok_and(|built| built.written.iter().any(is_description));
        self.observers.report(match built {
            Ok(built) => Report::Built(self.out.clone(), Box::new(built)),
            Err(error) => Report::BuildFailed(self.out.clone(), error),
        });
        if is_described && self.settings.root.is_some() {
            self.describe().await;
        }
        self.has_news.notify_one();
        Ok(())
    }

    /// Leads to the sets that others have built meanwhile, and has all hubs hear of it: the Source Description is that of all sets (FN-004).
    async fn describe(&self) {
        let out = self.out.clone();
        if let Err(error) = unblocked(move || publish::describe(&out)).await {
            self.observers.report(Report::BuildFailed(self.out.clone(), error));
        }
        for news in self.observers.all_news.iter() {
            news.notify_one();
        }
    }

    /// When there is something to do though nothing is heard of.
    fn next(&self) -> Option<Instant> {
        let next_dump = self.next_dump.filter(|_| self.dumping.is_none());
        self.debounce.map(Debounce::due).into_iter().chain(next_dump).min()
    }

    /// Makes the dumps that are due while changes go on being told, and says so in the end.
    fn begin_dump(&mut self) {
        let (done, dumping) = oneshot::channel();
        (self.dumping, self.next_dump) = (Some(dumping), None);
        let (out, claim, mut backoff) =
            (self.out.clone(), self.claim.clone(), std::mem::take(&mut self.backoff));
        let (changed, turns) = (Arc::clone(&self.changed), Arc::clone(&self.dump_turns));
        tokio::spawn(async move {
            // It is never closed.
            let _turn = turns.acquire_owned().await;
            if done.is_closed() {
                return;
            }
            let made =
                unblocked(move || (make_due_dumps_with_backoff(&out, claim.as_ref(), &mut backoff), backoff))
                    .await;
            // Who does not wait for it any more has ended the watch.
            let _ = done.send(made);
            changed.notify_one();
        });
    }

    /// Tells of a dump that is through.
    fn end_dump(&mut self) {
        let made = match self.dumping.as_mut().map(oneshot::Receiver::try_recv) {
            None | Some(Err(oneshot::error::TryRecvError::Empty)) => return,
            Some(made) => made,
        };
        self.dumping = None;
        let Ok((maintenance, backoff)) = made else { return };
        (self.backoff, self.next_dump) = (backoff, maintenance.next_dump);
        if !maintenance.written.is_empty() {
            // Changes that came meanwhile may make another one due.
            self.debounce = Some(Debounce::after(self.debounce, Instant::now()));
        }
        self.observers.report(Report::Dumped(self.out.clone(), maintenance));
        self.has_news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::{Root, Rules, SetName};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_dump_waits_until_those_of_other_sets_leave_it_a_turn() {
        let place = tempfile::tempdir().unwrap();
        let (directory, out) = (place.path().join("data"), place.path().join("site"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("a"), "1").unwrap();
        let rules = Rules { resource_dump_seconds: Some(0), ..Rules::default() };
        let base_url = crate::BaseUrl::parse("http://example.org/").unwrap();
        let settings = Settings { rules, ..Settings::new(&directory, base_url) };
        Build::new(&settings, &out).mode(BuildMode::Quick).run().unwrap();
        let (report, mut reports) = mpsc::unbounded_channel();
        let changed = Arc::new(Notify::new());
        let (folders, outs) = ((out.clone(), directory), vec![out.clone()]);
        let mut set = Watched {
            out,
            claim: None,
            settings,
            listener: Listener::new(folders, outs, Arc::clone(&changed), report.clone()),
            changed,
            has_news: Arc::default(),
            observers: Observers { report, all_news: Arc::default() },
            dump_turns: Arc::new(Semaphore::new(0)),
            backoff: DumpBackoff::default(),
            debounce: None,
            wants_dump: false,
            next_dump: None,
            dumping: None,
        };
        set.begin_dump();
        let an_hour = Duration::from_secs(3600);
        assert!(timeout(an_hour, set.changed.notified()).await.is_err(), "nothing is made meanwhile");
        set.dump_turns.add_permits(1);
        set.changed.notified().await;
        set.end_dump();
        let Some(Report::Dumped(_, maintenance)) = reports.recv().await else { panic!("it is told of") };
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
