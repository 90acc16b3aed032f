use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use url::Url;
use walkdir::WalkDir;

use super::super::folder::CopyFolder;
use super::*;
use crate::fetch::{AddressPolicy, Client, ClientOptions};
use crate::sync::{Depth, Offer, SyncOptions, Target, synchronise};

#[cfg(target_os = "linux")]
#[test]
fn only_kernels_that_tell_of_every_failed_write_sync_many_files_by_one_call() {
    for (release, tells) in [
        ("5.8.0", true),
        ("5.7.19-200.fc32", false),
        ("4.18.0-553.el8", false),
        ("6.12-rc1\n", true),
        ("odd", false),
    ] {
        assert_eq!(is_since_5_8(release), tells, "{release}");
    }
}

/// What a disk was told to make durable.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    File(u64),
    Folder(PathBuf),
    All,
}

/// Where every file of the copy was at that moment, by its number, and how long it was.
type Lay = HashMap<u64, (PathBuf, u64)>;

/// Syncs nothing, and notes what lay where when it was told to.
#[derive(Debug)]
struct Watched {
    copy: PathBuf,
    /// Whether it makes all durable by one call.
    together: bool,
    moments: Mutex<Vec<(Call, Lay)>>,
}

impl Watched {
    fn on(copy: &Path, together: bool) -> Arc<Self> {
        Arc::new(Self { copy: copy.canonicalize().unwrap(), together, moments: Mutex::default() })
    }

    fn lay(&self) -> Lay {
        let entries = WalkDir::new(&self.copy).into_iter().filter_map(Result::ok);
        let files = entries.filter(|entry| entry.file_type().is_file());
        let place = |path: &Path| path.strip_prefix(&self.copy).unwrap().to_owned();
        files
            .filter_map(|file| {
                let data = file.metadata().ok()?;
                Some((data.ino(), (place(file.path()), data.len())))
            })
            .collect()
    }

    fn note(&self, told: Call) {
        let lay = self.lay();
        self.moments.lock().unwrap().push((told, lay));
    }
}

impl Disk for Watched {
    fn sync_file(&self, file: &File) -> io::Result<()> {
        self.note(Call::File(file.metadata()?.ino()));
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.note(Call::Folder(folder.strip_prefix(&self.copy).unwrap().to_owned()));
        Ok(())
    }

    fn sync_all(&self, _: &File) -> io::Result<()> {
        self.note(Call::All);
        Ok(())
    }

    fn sync_all_reports_errors(&self, _: &File) -> bool {
        self.together
    }
}

/// A Source of these documents and resources.
fn serve(published: Arc<Mutex<BTreeMap<String, String>>>) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let request = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let path = request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
            let body = published.lock().unwrap().get(&path).cloned();
            let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
            let body = body.unwrap_or_default();
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            )
            .ok();
        }
    });
    base.parse().unwrap()
}

fn document(metadata: &str, entries: &str) -> String {
    format!(
        r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md {metadata}/>{entries}</urlset>"#
    )
}

fn entry(base: &Url, name: &str, content: &str, more: &str) -> String {
    let length = content.len();
    format!(r#"<url><loc>{base}{name}</loc><rs:md {more} length="{length}"/></url>"#)
}

/// Each file that is in place was durable before it was, and its name before it is remembered how far the copy is.
fn is_in_order(disk: &Watched, names: &[String]) {
    let moments = std::mem::take(&mut *disk.moments.lock().unwrap());
    let lay = disk.lay();
    let place_of = |path: &Path| {
        lay.iter().find(|(_, (found, _))| found == path).map(|(number, (_, length))| (*number, *length))
    };
    let (state, _) =
        place_of(Path::new(".resync-destination/point.json")).expect("it is remembered how far the copy is");
    for name in names {
        let (number, length) = place_of(Path::new(name)).expect(name);
        let is_aside = |lay: &Lay| {
            lay.get(&number).is_some_and(|(path, long)| path != Path::new(name) && *long == length)
        };
        let is_durable = |(told, _): &(Call, Lay)| *told == Call::All || *told == Call::File(number);
        assert!(
            moments.iter().any(|moment| is_durable(moment) && is_aside(&moment.1)),
            "{name} was put in place before it was durable: {moments:?}"
        );
        let is_named = |(told, _): &(Call, Lay)| {
            *told == Call::All || *told == Call::Folder(Path::new(name).parent().unwrap().to_owned())
        };
        let is_there = |lay: &Lay| lay.get(&number).is_some_and(|(path, _)| path == Path::new(name));
        let is_remembered = |lay: &Lay| lay.get(&state).is_some_and(|(path, _)| path.ends_with("point.json"));
        assert!(
            moments.iter().any(|moment| is_named(moment) && is_there(&moment.1) && !is_remembered(&moment.1)),
            "{name} was not sure to be in place when it was remembered how far the copy is: {moments:?}"
        );
    }
    let is_its_own = |(told, _): &(Call, Lay)| *told == Call::File(state);
    assert!(moments.iter().any(is_its_own), "what is remembered is durable before it counts");
}

#[tokio::test]
async fn files_are_durable_before_they_are_in_place_and_both_before_it_is_remembered() {
    for (together, count) in [(true, 20), (true, 2), (false, 20)] {
        let published = Arc::<Mutex<BTreeMap<String, String>>>::default();
        let base = serve(Arc::clone(&published));
        let names: Vec<_> = (0..count).map(|number| format!("{}/{number}.txt", number % 3)).collect();
        let publish = |content: &str, changes: &str| {
            let of = |name: &String| (name.clone(), format!("{content} of {name}"));
            let resources: BTreeMap<_, _> = names.iter().map(of).collect();
            let told = |more: &str| {
                resources.iter().map(|(name, content)| entry(&base, name, content, more)).collect::<String>()
            };
            let change = r#"change="updated" datetime="2026-01-03T10:00:00Z""#;
            let changes = if changes.is_empty() { String::new() } else { told(change) };
            let lists = [
                ("list.xml", document(r#"capability="resourcelist" at="2026-01-03T09:00:00Z""#, &told(""))),
                ("changes.xml", document(r#"capability="changelist" from="2026-01-03T09:00:00Z""#, &changes)),
            ];
            let lists = lists.map(|(name, text)| (name.to_owned(), text));
            *published.lock().unwrap() = resources.into_iter().chain(lists).collect();
        };
        let copy = tempfile::tempdir().unwrap();
        let disk = Watched::on(copy.path(), together);
        let target = Target::open(copy.path(), base.clone()).unwrap().on(Arc::<Watched>::clone(&disk));
        let offer = Offer {
            resource_list: Some(base.join("list.xml").unwrap()),
            change_list: Some(base.join("changes.xml").unwrap()),
            ..Offer::default()
        };
        let options = ClientOptions { address_policy: AddressPolicy::Everywhere, ..ClientOptions::default() };
        let client = Client::new(options).unwrap();
        let options = SyncOptions::default();
        publish("first", "");
        let report = synchronise(&client, &offer, &target, &options, Depth::Full).await.unwrap();
        assert_eq!((report.created, report.failed), (count, 0));
        is_in_order(&disk, &names);
        publish("second content", "all");
        let report = synchronise(&client, &offer, &target, &options, Depth::Changes).await.unwrap();
        assert_eq!((report.updated, report.failed), (count, 0));
        is_in_order(&disk, &names);
    }
}

/// Loses a folder when it is told of any, and notes of which it was told.
#[derive(Debug)]
struct Loses {
    folder: PathBuf,
    told: Mutex<Vec<PathBuf>>,
}

impl Disk for Loses {
    fn sync_file(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(&self.folder).ok();
        self.told.lock().unwrap().push(folder.to_owned());
        Ok(())
    }

    fn sync_all(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_all_reports_errors(&self, _: &File) -> bool {
        false
    }
}

#[test]
fn after_a_killed_run_each_folder_is_synced_as_it_is_found_and_none_is_held_until_all_are() {
    let copy = tempfile::tempdir().unwrap();
    let target = Target::open(copy.path(), Url::parse("http://a.example/").unwrap()).unwrap();
    let killed = CopyFolder::open(&target).unwrap();
    killed.unfinished().unwrap().keep().unwrap();
    drop(killed);
    let root = target.directory().to_owned();
    let (kept, lost) = (root.join("kept/below"), root.join("lost/below"));
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::create_dir_all(&lost).unwrap();
    let disk = Arc::new(Loses { folder: root.join("lost"), told: Mutex::default() });
    let _next = CopyFolder::open(&target.on(Arc::<Loses>::clone(&disk))).unwrap();
    let told = disk.told.lock().unwrap();
    assert!(told.contains(&root) && told.contains(&kept));
    assert!(!told.contains(&lost), "it was gone when its turn came");
}

/// Cannot make the names in a folder durable the first time, and notes how often it was told to.
#[derive(Debug)]
struct RefusesOnce {
    folder: PathBuf,
    told: Mutex<u32>,
}

impl Disk for RefusesOnce {
    fn sync_file(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        if folder != self.folder {
            return Ok(());
        }
        let mut told = self.told.lock().unwrap();
        *told += 1;
        if *told == 1 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync_all(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_all_reports_errors(&self, _: &File) -> bool {
        false
    }
}

#[tokio::test]
async fn the_names_that_a_run_left_unsynced_are_synced_by_the_next_though_it_changes_nothing() {
    let published = Arc::<Mutex<BTreeMap<String, String>>>::default();
    let base = serve(Arc::clone(&published));
    let hash = r#"hash="sha-256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad""#;
    let listed = entry(&base, "below/a", "abc", hash);
    let list = document(r#"capability="resourcelist" at="2026-01-03T09:00:00Z""#, &listed);
    *published.lock().unwrap() = [("below/a", "abc".to_owned()), ("list.xml", list)]
        .map(|(name, text)| (name.to_owned(), text))
        .into();
    let copy = tempfile::tempdir().unwrap();
    let target = Target::open(copy.path(), base.clone()).unwrap();
    let disk = Arc::new(RefusesOnce { folder: target.directory().join("below"), told: Mutex::default() });
    let target = target.on(Arc::<RefusesOnce>::clone(&disk));
    let offer = Offer::list(base.join("list.xml").unwrap());
    let options = ClientOptions { address_policy: AddressPolicy::Everywhere, ..ClientOptions::default() };
    let (client, options) = (Client::new(options).unwrap(), SyncOptions::default());
    let sync = || synchronise(&client, &offer, &target, &options, Depth::Full);
    assert!(sync().await.is_err());
    assert_eq!(*disk.told.lock().unwrap(), 1);
    for run in ["next", "last"] {
        assert_eq!(sync().await.unwrap().unchanged, 1, "{run}");
        assert_eq!(*disk.told.lock().unwrap(), 2, "{run}: once, and never after a run that ended");
    }
}

/// Tells of a failed write once, as an operating system does, and only when another thread had the time to ask too.
#[derive(Debug)]
struct FailsOnce {
    asked: Mutex<Sender<()>>,
    asked_again: Mutex<Option<Receiver<()>>>,
}

impl Disk for FailsOnce {
    fn sync_file(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self, _: &File) -> io::Result<()> {
        let first = self.asked_again.lock().unwrap().take();
        self.asked.lock().unwrap().send(()).unwrap();
        let Some(asked_again) = first else { return Ok(()) };
        // Nobody asks: the other is kept waiting.
        asked_again.recv_timeout(Duration::from_millis(200)).ok();
        Err(io::ErrorKind::StorageFull.into())
    }

    fn sync_all_reports_errors(&self, _: &File) -> bool {
        true
    }
}

#[test]
fn a_failed_write_that_is_told_to_one_batch_counts_for_the_one_beside_it() {
    let copy = tempfile::tempdir().unwrap();
    let ((asked, hears), (again, asked_again)) = (channel(), channel());
    let disk = FailsOnce { asked: Mutex::new(asked), asked_again: Mutex::new(Some(asked_again)) };
    let base = Url::parse("http://a.example/").unwrap();
    let target = Target::open(copy.path(), base).unwrap().on(Arc::new(disk));
    let folder = CopyFolder::open(&target).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| folder.sync_files(20));
        hears.recv().unwrap();
        let second = scope.spawn(|| folder.sync_files(20));
        // The second one's question, if it may ask before the first has its answer.
        if hears.recv_timeout(Duration::from_millis(100)).is_ok() {
            again.send(()).unwrap();
        }
        assert!(!first.join().unwrap(), "it failed");
        assert!(!second.join().unwrap(), "what failed may have been of this one");
    });
}
