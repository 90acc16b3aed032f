//! `resync-source watch`: what changes is told, singly and in bursts, and nothing is lost while a hub is away.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::channel,
    thread::JoinHandle,
    time::Duration,
};

use resync_core::{
    datetime::DateTime,
    document::{Capability, Change, Document},
    xml,
};
use resync_publisher::{
    BaseUrl, HubUrl, Settings,
    publish::{Dump, Maintenance},
    settings::Rules,
    watch::{Options, Report, Timing, watch},
};
use tokio::sync::oneshot;

use crate::{
    configured::{configured, one_set},
    notifying::told,
    support::{ACCEPTED, BASE, BUSY, Heard, Hub, Place, judge_site, program, run, text},
};

struct Watch {
    child: Child,
    /// How it was started.
    arguments: Vec<String>,
}

impl Watch {
    fn start(place: &Place, hub: &Hub) -> Self {
        let (collection, out, url) = (place.collection(), place.out(), hub.url());
        Self::of(&[text(&collection), "--base-url", BASE, "--out", text(&out), "--hub", &url], hub)
    }

    /// Ready when the first build is through.
    fn of(arguments: &[&str], hub: &Hub) -> Self {
        let arguments = [&["watch"], arguments].concat();
        let mut child = program(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("2 resources"), "{line}");
        std::thread::spawn(move || lines.lines().for_each(drop));
        hub.next();
        Self { child, arguments: arguments.into_iter().map(str::to_owned).collect() }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if !std::thread::panicking() {
            judge_site(&self.arguments.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}

fn document(heard: &Heard) -> Document {
    xml::read(heard.body.as_bytes()).unwrap().into_document().unwrap()
}

/// From and until when it tells all.
fn interval(heard: &Heard) -> (DateTime, DateTime) {
    let metadata = document(heard).header().metadata.clone();
    (metadata.from.unwrap(), metadata.until.unwrap())
}

fn changes(heard: &Heard) -> Vec<(Change, String)> {
    let document = document(heard);
    let entries = document.entries().iter();
    entries.map(|entry| (entry.change().unwrap(), entry.loc.replace(&format!("{BASE}/"), ""))).collect()
}

fn next_changes(hub: &Hub) -> Vec<(Change, String)> {
    loop {
        let heard = hub.next_of_any();
        if heard.is_of_changes() {
            return changes(&heard);
        }
    }
}

#[test]
fn cn001_each_change_of_a_file_becomes_a_change_notification_and_an_entry_of_the_change_list() {
    let (place, hub) = (Place::new(), Hub::start());
    let _watch = Watch::start(&place, &hub);
    place.put("new/folder/x.txt", "x");
    assert_eq!(next_changes(&hub), [(Change::Created, "new/folder/x.txt".to_owned())]);
    place.put("a.txt", "changed");
    assert_eq!(next_changes(&hub), [(Change::Updated, "a.txt".to_owned())]);
    place.remove("a.txt");
    assert_eq!(next_changes(&hub), [(Change::Deleted, "a.txt".to_owned())]);
    assert_eq!(place.document("resync/changelist-1.xml").entries().len(), 3);
}

#[cfg(unix)]
#[test]
fn a_change_of_what_a_link_leads_to_is_one_of_the_link_too() {
    let (place, hub) = (Place::new(), Hub::start());
    let _watch = Watch::start(&place, &hub);
    std::os::unix::fs::symlink("a.txt", place.collection().join("link")).unwrap();
    assert_eq!(next_changes(&hub), [(Change::Created, "link".to_owned())]);
    place.put("a.txt", "changed");
    let mut updated = BTreeSet::new();
    while updated.len() < 2 {
        updated.extend(next_changes(&hub).into_iter().map(|(_, name)| name));
    }
    assert!(updated.contains("a.txt") && updated.contains("link"), "{updated:?}");
}

#[test]
fn cn008_a_change_notification_goes_on_where_the_last_one_ended_though_a_resource_list_was_written_in_between()
 {
    let (place, hub) = (Place::new(), Hub::start());
    let _watch = Watch::start(&place, &hub);
    let mut ends = Vec::new();
    for content in ["one", "two"] {
        place.put("a.txt", content);
        let heard = std::iter::repeat_with(|| hub.next_of_any()).find(Heard::is_of_changes).unwrap();
        ends.push(interval(&heard));
        while !told(&hub.next()).contains(&(Change::Updated, Capability::ResourceList)) {}
    }
    assert_eq!(ends[0].1, ends[1].0);
}

#[test]
fn cn013_a_burst_of_10_000_files_arrives_whole() {
    let (place, hub) = (Place::new(), Hub::start());
    let _watch = Watch::start(&place, &hub);
    for number in 0..10_000 {
        place.put(&format!("burst/{:02}/{number:05}", number % 50), "x");
    }
    let mut told = BTreeSet::new();
    while told.len() < 10_000 {
        for (change, name) in next_changes(&hub) {
            // A file may be seen before it is written to the end, and then once more.
            assert!(change == Change::Updated || told.insert(name), "each is created once");
        }
    }
}

/// A watch in this process, which ends when the first value is dropped.
fn watch_here(
    sets: Vec<(PathBuf, Settings)>,
    timing: Timing,
    tell: impl FnMut(Report) + Send + 'static,
) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let watching = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let stopped = async { drop(stopped.await) };
        let options = Options { timing, ..Options::default() };
        runtime.block_on(watch(sets, options, stopped, tell)).unwrap();
    });
    (stop, watching)
}

#[test]
fn a_set_whose_build_takes_long_keeps_no_other_waiting() {
    let (slow, quick, hub) = (Place::new(), Place::new(), Hub::start());
    slow.build(&[]).succeeded();
    // Somebody else works on its site.
    let lock = std::fs::File::open(slow.out().join(".resync-source/lock")).unwrap();
    lock.lock().unwrap();
    let sets = [&slow, &quick].map(|place| {
        let settings = Settings::new(place.collection(), BaseUrl::parse(BASE).unwrap());
        (place.out(), settings.hub(HubUrl::parse(&hub.url()).unwrap()))
    });
    let (stop, watching) = watch_here(sets.into(), Timing::default(), drop);
    hub.next();
    quick.put("new", "x");
    assert_eq!(next_changes(&hub), [(Change::Created, "new".to_owned())]);
    drop((lock, stop));
    watching.join().unwrap();
}

fn settings_with(place: &Place, hubs: [&Hub; 2]) -> Settings {
    let settings = Settings::new(place.collection(), BaseUrl::parse(BASE).unwrap());
    hubs.into_iter().fold(settings, |settings, hub| settings.hub(HubUrl::parse(&hub.url()).unwrap()))
}

#[test]
fn a_hub_that_is_away_keeps_no_other_waiting() {
    let (place, hub, away) = (Place::new(), Hub::start(), Hub::start());
    away.answers("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let settings = settings_with(&place, [&hub, &away]);
    // Nobody waits for its end.
    let timing = Timing { first_pause: Duration::from_secs(3600), ..Timing::default() };
    let (stop, watching) = watch_here(vec![(place.out(), settings)], timing, drop);
    hub.next();
    away.next();
    for name in ["one", "two"] {
        place.put(name, "x");
        assert_eq!(next_changes(&hub), [(Change::Created, name.to_owned())]);
    }
    drop(stop);
    watching.join().unwrap();
}

#[test]
fn a_hub_that_asks_for_a_pause_gets_it_and_no_other_waits() {
    let (place, hub, busy) = (Place::new(), Hub::start(), Hub::start());
    busy.answers(BUSY);
    let settings = settings_with(&place, [&hub, &busy]);
    let soon = Duration::from_millis(1);
    let timing = Timing { first_pause: soon, last_pause: soon, ..Timing::default() };
    let (stop, watching) = watch_here(vec![(place.out(), settings)], timing, drop);
    hub.next();
    busy.next();
    for name in ["one", "two"] {
        place.put(name, "x");
        assert_eq!(next_changes(&hub), [(Change::Created, name.to_owned())]);
    }
    drop(stop);
    watching.join().unwrap();
    busy.heard_nothing_more();
}

#[test]
fn a_dump_that_fails_is_reported_and_keeps_no_change_from_being_told() {
    let (place, hub) = (Place::new(), Hub::start());
    // Where the top of the dump is to lie there is a folder.
    std::fs::create_dir_all(place.out().join("resync/resourcedump.xml")).unwrap();
    let rules = Rules { resource_dump_seconds: Some(0), ..Rules::default() };
    let settings = Settings::new(place.collection(), BaseUrl::parse(BASE).unwrap());
    let settings = Settings { rules, ..settings }.hub(HubUrl::parse(&hub.url()).unwrap());
    let (says, said) = channel();
    let tell = move |report| drop(says.send(report));
    let (stop, watching) = watch_here(vec![(place.out(), settings)], Timing::default(), tell);
    let failures =
        std::iter::repeat_with(|| said.recv_timeout(Duration::from_secs(20)).unwrap()).find_map(|report| {
            if let Report::Dumped(_, maintenance) = report { Some(maintenance.failures) } else { None }
        });
    assert_eq!(failures.unwrap()[0].what, Maintenance::Dump(Dump::Resources));
    place.put("new", "x");
    assert_eq!(next_changes(&hub), [(Change::Created, "new".to_owned())]);
    drop(stop);
    watching.join().unwrap();
}

#[test]
fn what_happens_while_the_hub_is_away_is_told_when_it_is_back() {
    let (place, hub) = (Place::new(), Hub::start());
    let _watch = Watch::start(&place, &hub);
    hub.answers("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    place.put("one.txt", "1");
    let one = vec![(Change::Created, "one.txt".to_owned())];
    assert_eq!(next_changes(&hub), one);
    hub.answers(ACCEPTED);
    assert_eq!(next_changes(&hub), one, "it was not taken the first time");
}

#[test]
fn a_change_is_told_before_the_dump_that_is_due_is_made() {
    let (place, hub) = (Place::new(), Hub::start());
    let more = format!("hubs = \"{}\"\n[resource_dump]\nevery = \"0s\"\n", hub.url());
    let config = configured(&place, &one_set(BASE, &more));
    let _watch = Watch::of(&["--config", text(&config)], &hub);
    place.put("a.txt", "changed");
    assert_eq!(next_changes(&hub), [(Change::Updated, "a.txt".to_owned())]);
    let is_of_the_dump = |(_, capability): &(Change, Capability)| *capability == Capability::ResourceDump;
    let first = told(&hub.next());
    assert!(!first.is_empty() && !first.iter().any(is_of_the_dump), "{first:?}");
    let dumped = std::iter::repeat_with(|| told(&hub.next())).find(|told| told.iter().any(is_of_the_dump));
    assert!(dumped.is_some(), "the dump comes when nothing changes any more");
}

#[test]
fn a_dump_that_comes_due_is_made_though_nothing_changes_any_more() {
    let (place, hub) = (Place::new(), Hub::start());
    let more = format!("hubs = \"{}\"\n[resource_dump]\nevery = \"6s\"\n", hub.url());
    let config = configured(&place, &one_set(BASE, &more));
    let _watch = Watch::of(&["--config", text(&config)], &hub);
    let is_of_the_dump = |(_, capability): &(Change, Capability)| *capability == Capability::ResourceDump;
    let is_dumped =
        || std::iter::repeat_with(|| told(&hub.next())).any(|told| told.iter().any(is_of_the_dump));
    assert!(is_dumped());
    place.put("a.txt", "changed");
    assert_eq!(next_changes(&hub), [(Change::Updated, "a.txt".to_owned())]);
    assert!(is_dumped(), "6 s after the one before");
}

#[test]
fn a_watch_ends_once_its_site_is_that_of_another_configuration() {
    let (place, hub) = (Place::new(), Hub::start());
    let [one, other] = ["one.toml", "other.toml"].map(|name| place.out().with_file_name(name));
    let content = one_set(BASE, &format!("hubs = [\"{}\"]\n", hub.url()));
    for file in [&one, &other] {
        std::fs::write(file, &content).unwrap();
    }
    let mut watch = Watch::of(&["--config", text(&one)], &hub);
    run(&["build", "--config", text(&one)]).succeeded();
    place.put("new", "x");
    // The same file is no other.
    std::iter::repeat_with(|| hub.next_of_any()).find(Heard::is_of_changes).unwrap();
    run(&["build", "--config", text(&other)]).succeeded();
    place.put("newer", "x");
    assert_eq!(watch.child.wait().unwrap().code(), Some(64));
}

#[cfg(unix)]
#[test]
fn a_watch_of_an_empty_mount_point_publishes_nothing_says_so_once_and_goes_on_when_the_disk_is_there() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    hub.next();
    let (collection, disk) = (place.collection(), place.whole().join("disk"));
    std::fs::rename(&collection, &disk).unwrap();
    std::fs::create_dir(&collection).unwrap();
    let mut command = program(&["watch", "--out", text(&place.out()), "--rescan", "1s"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = lines.next().unwrap().unwrap();
    assert!(said.contains("--allow-empty; retried at the next change or rescan"), "{said}");
    // It takes the place of the empty folder, as a mount does.
    std::fs::rename(&disk, &collection).unwrap();
    place.put("new.txt", "new");
    assert_eq!(next_changes(&hub), [(Change::Created, "new.txt".to_owned())], "and nothing was deleted");
    child.kill().unwrap();
    child.wait().unwrap();
    let more: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(!more.iter().any(|line| line.contains("--allow-empty")), "{more:?}");
}

#[cfg(unix)]
#[test]
fn a_watch_that_is_stopped_during_its_first_build_ends_within_seconds() {
    let place = Place::new();
    place.build(&[]).succeeded();
    // Somebody else works on the site, so the build is not through before that.
    let lock = std::fs::File::open(place.out().join(".resync-source/lock")).unwrap();
    lock.lock().unwrap();
    let mut watch = program(&["watch", "--out", text(&place.out())]);
    let mut child = watch.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("which works on this site"), "{line}");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let (ended, has_ended) = channel();
    std::thread::spawn(move || ended.send(child.wait()));
    let status = has_ended.recv_timeout(Duration::from_secs(20));
    drop(lock);
    assert!(status.expect("it does not wait for its build").unwrap().success());
}
