//! File system events of a collection, as long as its name stands for the same folder.

use std::{
    collections::HashSet,
    fs, io,
    path::{Component, Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use resync_common::locks::lock;
use tokio::sync::{Notify, mpsc};
use watcher::{Config, ErrorKind, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::Report;
use crate::{helpers::blocking::unblocked, publish::OWN_FOLDERS};

/// With more changed paths than this, all files are looked at.
const MOST_PATHS: usize = 100_000;

/// Where something has changed since the last build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChangedPaths {
    Everywhere,
    /// Paths below the collection.
    At(HashSet<PathBuf>),
}

impl ChangedPaths {
    pub(super) fn nothing() -> Self {
        Self::At(HashSet::new())
    }

    fn record(&mut self, event: &watcher::Result<watcher::Event>, folder: &Path) {
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

/// Receives the events of one collection, and collects the changed paths.
pub(super) struct Listener {
    setup: WatchSetup,
    folder_watch: Option<FolderWatch>,
}

/// What is watched, and where its events go.
#[derive(Clone)]
struct WatchSetup {
    /// The folder of the set's documents, for reports.
    out: PathBuf,
    directory: PathBuf,
    /// The folders of all documents.
    outs: Vec<PathBuf>,
    changed_paths: Arc<Mutex<ChangedPaths>>,
    changed: Arc<Notify>,
    report: mpsc::UnboundedSender<Report>,
}

/// Events end when this is dropped.
struct FolderWatch {
    at: FolderIdentity,
    /// Whether the system reports only some of the events.
    is_incomplete: Arc<AtomicBool>,
    _watcher: RecommendedWatcher,
}

/// What the name of a folder stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FolderIdentity {
    path: PathBuf,
    /// Its device and number, on systems that have them.
    number: (u64, u64),
}

impl Listener {
    /// Receives events from the first [`listen`](Self::listen) on, and then signals `changed`. What builds write below `outs` is no event.
    pub(super) fn new(
        out: &Path,
        directory: &Path,
        outs: &[PathBuf],
        changed: &Arc<Notify>,
        report: mpsc::UnboundedSender<Report>,
    ) -> Self {
        let setup = WatchSetup {
            out: out.to_owned(),
            directory: directory.to_owned(),
            outs: outs.to_owned(),
            changed_paths: Arc::new(Mutex::new(ChangedPaths::Everywhere)),
            changed: Arc::clone(changed),
            report,
        };
        Self { setup, folder_watch: None }
    }

    /// Replaces the collected paths; returns those before.
    pub(super) fn replace(&self, changed_paths: ChangedPaths) -> ChangedPaths {
        std::mem::replace(&mut lock(&self.setup.changed_paths), changed_paths)
    }

    /// Watches the folder that the collection's name stands for now, unless it does already; reports a failure.
    pub(super) async fn listen(&mut self) {
        self.change(WatchSetup::listen).await;
    }

    /// Tries once more to get all events, if that failed.
    pub(super) async fn listen_again(&mut self) {
        self.change(WatchSetup::listen_again).await;
    }

    /// Off the runtime, since many folders take long.
    async fn change(&mut self, change: fn(&WatchSetup, Option<FolderWatch>) -> Option<FolderWatch>) {
        let (setup, folder_watch) = (self.setup.clone(), self.folder_watch.take());
        self.folder_watch = unblocked(move || change(&setup, folder_watch)).await;
    }
}

impl WatchSetup {
    fn listen(&self, folder_watch: Option<FolderWatch>) -> Option<FolderWatch> {
        match self.watch_present_folder(folder_watch) {
            Ok(folder_watch) => Some(folder_watch),
            Err(error) => {
                // A receiver that is gone has ended the watch.
                let _ = self.report.send(Report::EventsFailed(self.out.clone(), error.to_string()));
                None
            }
        }
    }

    fn listen_again(&self, folder_watch: Option<FolderWatch>) -> Option<FolderWatch> {
        match folder_watch {
            // Some events are better than none.
            Some(partial) if partial.is_incomplete.load(Ordering::Relaxed) => {
                self.listen(None).or(Some(partial))
            }
            folder_watch => self.listen(folder_watch),
        }
    }

    fn watch_present_folder(&self, folder_watch: Option<FolderWatch>) -> watcher::Result<FolderWatch> {
        let at = FolderIdentity::of(&self.directory).map_err(watcher::Error::io)?;
        if let Some(folder_watch) = folder_watch
            && folder_watch.at == at
        {
            return Ok(folder_watch);
        }
        let is_incomplete = Arc::new(AtomicBool::new(false));
        let own: Vec<_> = self.outs.iter().map(|out| real(out)).collect();
        let (changed_paths, changed, folder) =
            (Arc::clone(&self.changed_paths), Arc::clone(&self.changed), at.path.clone());
        let (incomplete, report, out) = (Arc::clone(&is_incomplete), self.report.clone(), self.out.clone());
        let record = move |event: watcher::Result<watcher::Event>| {
            if let Err(error) = &event
                && matches!(error.kind, ErrorKind::MaxFilesWatch)
                && !incomplete.swap(true, Ordering::Relaxed)
            {
                let _ = report.send(Report::EventsFailed(out.clone(), error.to_string()));
            }
            if is_of_interest(&event, &own) {
                lock(&changed_paths).record(&event, &folder);
                changed.notify_one();
            }
        };
        // A link to a folder is no resource, and events of the folder would name the link only.
        let mut watcher = RecommendedWatcher::new(record, Config::default().with_follow_symlinks(false))?;
        watcher.watch(&at.path, RecursiveMode::Recursive)?;
        Ok(FolderWatch { at, is_incomplete, _watcher: watcher })
    }
}

impl FolderIdentity {
    fn of(folder: &Path) -> io::Result<Self> {
        let path = folder.canonicalize()?;
        let number = number(&fs::metadata(&path)?);
        Ok(Self { path, number })
    }
}

#[cfg(unix)]
fn number(metadata: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn number(_: &fs::Metadata) -> (u64, u64) {
    (0, 0)
}

fn real(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

/// What builds write is no change of a collection, even inside of it.
fn is_of_interest(event: &watcher::Result<watcher::Event>, outs: &[PathBuf]) -> bool {
    let Ok(event) = event else { return true };
    let is_own = |path: &PathBuf| outs.iter().any(|out| path.strip_prefix(out).is_ok_and(is_written));
    !matches!(event.kind, EventKind::Access(_)) && (event.paths.is_empty() || !event.paths.iter().all(is_own))
}

/// Whether builds or servers write to a path below OUT.
fn is_written(below: &Path) -> bool {
    let first = below.components().next().map(Component::as_os_str);
    first.is_none_or(|name| OWN_FOLDERS.iter().any(|own| name == *own))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;
    use watcher::event::{AccessKind, CreateKind, Event};

    use super::*;

    #[test]
    fn changed_paths_are_collected_until_an_event_does_not_name_them() {
        let folder = Path::new("/srv/data");
        let at = |path: &str| Ok(Event::new(EventKind::Create(CreateKind::Any)).add_path(path.into()));
        let mut changed_paths = ChangedPaths::nothing();
        changed_paths.record(&at("/srv/data/b/c"), folder);
        changed_paths.record(&at("/srv/data/a"), folder);
        assert_eq!(changed_paths, ChangedPaths::At(["a", "b/c"].map(PathBuf::from).into()));
        for cannot in [at("/srv/data"), at("/srv/other"), Err(watcher::Error::generic("overflow"))] {
            let mut changed_paths = changed_paths.clone();
            changed_paths.record(&cannot, folder);
            assert_eq!(changed_paths, ChangedPaths::Everywhere, "{cannot:?}");
        }
    }

    #[test]
    fn what_a_build_writes_and_who_reads_is_no_change_and_all_else_is() {
        let outs = ["/srv/data", "/srv/data/one", "/srv/data/two"].map(PathBuf::from);
        let counts = |kind, path: &str| is_of_interest(&Ok(Event::new(kind).add_path(path.into())), &outs);
        let created = EventKind::Create(CreateKind::Any);
        assert!(counts(created, "/srv/data/a.txt") && counts(created, "/srv/other"));
        for path in
            ["resync/changelist.xml", ".resync-source/plan.json", ".well-known/resourcesync", "two/resync/x"]
        {
            assert!(!counts(created, &format!("/srv/data/{path}")), "{path}");
        }
        assert!(!counts(EventKind::Access(AccessKind::Any), "/srv/data/a.txt"));
        assert!(is_of_interest(&Err(watcher::Error::generic("overflow")), &outs));
    }

    struct Place {
        folder: tempfile::TempDir,
        changed: Arc<Notify>,
        reports: mpsc::UnboundedReceiver<Report>,
        listener: Listener,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let (changed, (report, reports)) = (Arc::new(Notify::new()), mpsc::unbounded_channel());
            let (out, data) = (folder.path().join("site"), folder.path().join("data"));
            let listener = Listener::new(&out, &data, &[], &changed, report);
            Self { folder, changed, reports, listener }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// Whether an event names a file that is written. A late one of the folder that was there before names none: then it is written again.
        async fn notices(&self, name: &str) -> bool {
            let noticed = async {
                let mut known = ChangedPaths::Everywhere;
                loop {
                    match known {
                        ChangedPaths::At(paths) if paths.contains(Path::new(name)) => break,
                        ChangedPaths::At(_) => self.changed.notified().await,
                        ChangedPaths::Everywhere => {
                            self.listener.replace(ChangedPaths::nothing());
                            fs::write(self.path("data").join(name), "x").unwrap();
                        }
                    }
                    known = self.listener.setup.changed_paths.lock().unwrap().clone();
                }
            };
            timeout(Duration::from_secs(60), noticed).await.is_ok()
        }
    }

    #[tokio::test]
    async fn a_missing_or_replaced_folder_is_watched_once_it_exists() {
        let mut place = Place::new();
        place.listener.listen().await;
        assert!(matches!(place.reports.try_recv(), Ok(Report::EventsFailed(..))));
        for round in 0..2 {
            fs::create_dir(place.path("data")).unwrap();
            place.listener.listen().await;
            assert!(place.notices("a").await, "round {round}");
            fs::rename(place.path("data"), place.path(&format!("old{round}"))).unwrap();
        }
        assert!(place.reports.try_recv().is_err(), "nothing else was reported");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_link_to_a_folder_does_not_hide_events_of_the_folder() {
        let mut place = Place::new();
        fs::create_dir_all(place.path("data/real")).unwrap();
        for name in ["a", "z", "zz"] {
            std::os::unix::fs::symlink("real", place.path("data").join(name)).unwrap();
        }
        place.listener.listen().await;
        assert!(place.notices("real/x").await);
    }
}
