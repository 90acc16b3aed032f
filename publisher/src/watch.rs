//! Watching collections: what changes is built and told within moments, in bursts and one by one.
//!
//! Events only say *where* something changed; what did is found by a build, which looks there and reads the files that are not as they were.
//! So an event too many does no harm, and a rescan now and then, which looks at all files, finds what no event told. Building waits for a
//! pause in the events, though not for long; telling the hubs goes on beside it, so that a hub that is away holds up no build.

mod telling;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::timeout,
};
use watcher::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use self::telling::tell_hubs;
use crate::{
    notify::{NotifyError, Token, Told, unblocked},
    publish::{self, BuildError, Built, Pace, Rest, build_again},
    settings::Settings,
};

/// How patient a watch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
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

impl Default for Patience {
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
    /// The events of a collection cannot be had; only rescans see its changes.
    Blind(PathBuf, String),
    /// A build is through.
    Built(PathBuf, Box<Built>),
    /// A build failed; the next one is tried at the next change or rescan.
    NotBuilt(PathBuf, BuildError),
    /// A hub was told, or could not be, and will be tried again.
    Told(PathBuf, Box<Told>),
    /// What keeps hubs from being told; it will be tried again.
    NotTold(PathBuf, NotifyError),
}

impl Report {
    /// The folder of the set's documents.
    pub fn out(&self) -> &Path {
        match self {
            Self::Blind(out, _)
            | Self::Built(out, _)
            | Self::NotBuilt(out, _)
            | Self::Told(out, _)
            | Self::NotTold(out, _) => out,
        }
    }
}

/// More names than this are not kept apart: all files are looked at.
const MOST_PATHS: usize = 100_000;

/// When a Resource List or a dump is written that is due: changes are told first.
#[derive(Clone, Copy, Debug)]
struct PutOff {
    quiet: Instant,
    latest: Instant,
}

impl PutOff {
    /// When nothing has changed for so long,
    const QUIET: Duration = Duration::from_secs(2);
    /// or so long after the first of the changes.
    const LATEST: Duration = Duration::from_secs(30);

    fn after(before: Option<Self>, now: Instant) -> Self {
        Self { quiet: now + Self::QUIET, latest: before.map_or(now + Self::LATEST, |before| before.latest) }
    }

    fn due(self) -> Instant {
        self.quiet.min(self.latest)
    }
}

/// Where something has changed since the last build.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Everywhere,
    /// Paths below the collection.
    At(HashSet<PathBuf>),
}

impl Heard {
    fn nothing() -> Self {
        Self::At(HashSet::new())
    }

    fn hear(&mut self, event: &watcher::Result<watcher::Event>, folder: &Path) {
        let Self::At(known) = self else { return };
        let named = event.as_ref().ok().filter(|event| !event.need_rescan() && !event.paths.is_empty());
        let below = |path: &PathBuf| {
            let path = path.strip_prefix(folder).ok()?;
            (!path.as_os_str().is_empty()).then(|| path.to_owned())
        };
        let paths = named.and_then(|event| event.paths.iter().map(below).collect::<Option<Vec<_>>>());
        match paths {
            Some(paths) if known.len() < MOST_PATHS => known.extend(paths),
            _ => *self = Self::Everywhere,
        }
    }
}

/// One set under watch.
struct Watched {
    out: PathBuf,
    settings: Settings,
    heard: Arc<Mutex<Heard>>,
    has_news: Arc<Notify>,
    rest: Rest,
    put_off: Option<PutOff>,
    /// Events end when this is dropped.
    _watcher: Option<RecommendedWatcher>,
}

/// Builds every set, tells its hubs, and goes on with that whenever a file changes, until `shutdown` is ready. Reports go to `tell` as they come.
pub async fn watch(
    sets: Vec<(PathBuf, Settings)>,
    tokens: Vec<Token>,
    patience: Patience,
    shutdown: impl Future<Output = ()>,
    mut tell: impl FnMut(Report),
) {
    let changed = Arc::new(Notify::new());
    let (report, mut reports) = mpsc::unbounded_channel();
    let mut tellers = JoinSet::new();
    let mut watched = Vec::new();
    for (out, settings) in sets {
        let one = Watched::start(out, settings, &changed, &report);
        let (out, news) = (one.out.clone(), Arc::clone(&one.has_news));
        tellers.spawn(tell_hubs(out, news, tokens.clone(), patience, report.clone()));
        watched.push(one);
    }
    let building = keep_built(watched, &changed, patience, &report);
    tokio::pin!(building, shutdown);
    loop {
        tokio::select! {
            () = &mut building => return,
            () = &mut shutdown => return,
            Some(one) = reports.recv() => tell(one),
        }
    }
}

impl Watched {
    /// Events are listened to before anything is looked at, so that nothing falls in between.
    fn start(
        out: PathBuf,
        settings: Settings,
        changed: &Arc<Notify>,
        report: &mpsc::UnboundedSender<Report>,
    ) -> Self {
        let heard = Arc::new(Mutex::new(Heard::Everywhere));
        let (hears, changed) = (Arc::clone(&heard), Arc::clone(changed));
        let (own, folder) = (own_folder(&out), own_folder(&settings.directory));
        let at = folder.clone();
        let hear = move |event: watcher::Result<watcher::Event>| {
            if is_of_interest(&event, &own) {
                hears.lock().unwrap_or_else(PoisonError::into_inner).hear(&event, &at);
                changed.notify_one();
            }
        };
        let listening = watcher::recommended_watcher(hear).and_then(|mut watcher| {
            watcher.watch(&folder, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        let watcher =
            listening.map_err(|error| report.send(Report::Blind(out.clone(), error.to_string()))).ok();
        let (has_news, rest) = (Arc::new(Notify::new()), Rest::default());
        Self { out, settings, heard, has_news, rest, put_off: None, _watcher: watcher }
    }

    /// Looks where something was heard of, and tells of it.
    async fn build(&mut self, heard: Heard, pace: Pace, report: &mpsc::UnboundedSender<Report>) {
        let (out, settings, mut rest) =
            (self.out.clone(), self.settings.clone(), std::mem::take(&mut self.rest));
        let paths = match heard {
            Heard::Everywhere => None,
            Heard::At(paths) => Some(paths),
        };
        let work = move || (build_again(&settings, &out, paths, pace, &mut rest), rest);
        let (built, rest) = unblocked(work).await;
        self.rest = rest;
        self.put_off = match &built {
            Ok(built) if built.list_is_due || built.dump_is_due => {
                Some(PutOff::after(self.put_off, Instant::now()))
            }
            _ => None,
        };
        if built.is_err() {
            // Where this was to look is forgotten.
            self.replace(Heard::Everywhere);
        }
        // Who listens no more has ended the watch.
        let _ = report.send(match built {
            Ok(built) => Report::Built(self.out.clone(), Box::new(built)),
            Err(error) => Report::NotBuilt(self.out.clone(), error),
        });
        self.has_news.notify_one();
    }

    /// What was heard since it was asked the last time; from now on this is what was heard before anything else is.
    fn replace(&self, heard: Heard) -> Heard {
        std::mem::replace(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner), heard)
    }
}

/// What a build itself writes is no change of the collection, even should it lie inside.
fn own_folder(out: &Path) -> PathBuf {
    out.canonicalize().unwrap_or_else(|_| out.to_owned())
}

fn is_of_interest(event: &watcher::Result<watcher::Event>, own: &Path) -> bool {
    let Ok(event) = event else { return true };
    let is_own = |path: &PathBuf| {
        path.strip_prefix(own).is_ok_and(|below| {
            let first = below.components().next().map(|name| name.as_os_str().to_owned());
            first.is_none_or(|name| OWN.iter().any(|own| name == *own))
        })
    };
    !matches!(event.kind, EventKind::Access(_)) && (event.paths.is_empty() || !event.paths.iter().all(is_own))
}

/// The names under OUT that builds and servers write to.
const OWN: [&str; 3] = publish::OWN_FOLDERS;

/// Builds what has changed, again and again: soon where something was heard of, and thoroughly when there is time for that.
async fn keep_built(
    mut watched: Vec<Watched>,
    changed: &Notify,
    patience: Patience,
    report: &mpsc::UnboundedSender<Report>,
) {
    let mut rescan = Instant::now() + patience.rescan;
    loop {
        for set in &mut watched {
            let heard = set.replace(Heard::nothing());
            if heard != Heard::nothing() {
                set.build(heard, Pace::Swift, report).await;
            }
            if set.put_off.is_some_and(|put_off| put_off.due() <= Instant::now()) {
                set.build(Heard::nothing(), Pace::Thorough, report).await;
            }
        }
        let next = watched.iter().filter_map(|set| set.put_off).map(PutOff::due).fold(rescan, Instant::min);
        if timeout(next.saturating_duration_since(Instant::now()), changed.notified()).await.is_ok() {
            let first = Instant::now();
            while first.elapsed() < patience.most && timeout(patience.quiet, changed.notified()).await.is_ok()
            {
            }
        }
        if rescan <= Instant::now() {
            rescan = Instant::now() + patience.rescan;
            for set in &watched {
                set.replace(Heard::Everywhere);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use watcher::event::{AccessKind, CreateKind, Event};

    use super::*;

    #[test]
    fn where_something_changed_is_kept_until_that_cannot_be_told() {
        let folder = Path::new("/srv/data");
        let at = |path: &str| Ok(Event::new(EventKind::Create(CreateKind::Any)).add_path(path.into()));
        let mut heard = Heard::nothing();
        heard.hear(&at("/srv/data/b/c"), folder);
        heard.hear(&at("/srv/data/a"), folder);
        assert_eq!(heard, Heard::At(["a", "b/c"].map(PathBuf::from).into()));
        for cannot in [at("/srv/data"), at("/srv/other"), Err(watcher::Error::generic("overflow"))] {
            let mut heard = heard.clone();
            heard.hear(&cannot, folder);
            assert_eq!(heard, Heard::Everywhere, "{cannot:?}");
        }
    }

    #[test]
    fn what_is_put_off_waits_for_a_pause_of_the_changes_though_not_for_long() {
        let first = Instant::now();
        let mut put_off = PutOff::after(None, first);
        assert_eq!(put_off.due(), first + Duration::from_secs(2));
        for second in 1..40 {
            put_off = PutOff::after(Some(put_off), first + Duration::from_secs(second));
            assert_eq!(put_off.due(), first + Duration::from_secs((second + 2).min(30)));
        }
    }

    #[test]
    fn what_a_build_writes_and_who_reads_is_no_change_and_all_else_is() {
        let own = Path::new("/srv/data");
        let hears = |kind, path: &str| is_of_interest(&Ok(Event::new(kind).add_path(path.into())), own);
        let created = EventKind::Create(CreateKind::Any);
        assert!(hears(created, "/srv/data/a.txt") && hears(created, "/srv/other"));
        for path in ["resync/changelist.xml", ".resync-source/plan.json", ".well-known/resourcesync"] {
            assert!(!hears(created, &format!("/srv/data/{path}")), "{path}");
        }
        assert!(!hears(EventKind::Access(AccessKind::Any), "/srv/data/a.txt"));
        assert!(is_of_interest(&Err(watcher::Error::generic("overflow")), own));
    }
}
