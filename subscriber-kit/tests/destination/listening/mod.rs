//! The whole Destination: from a Source's URL to a copy that follows notifications, through restarts.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod change_notifications;
#[cfg(unix)]
mod hooks;
mod hubs;
mod outside_the_table;
mod versions;

use std::path::Path;
use std::time::Duration;

use crate::support::{self, Hub, PATIENCE, Source, Subscribed, expected, files, on_this_machine};
use resync_subscriber_kit::listen::{ListenError, ListenEvent, ListenOptions, listen, listen_all};
use resync_subscriber_kit::receive::ServiceOptions;
use resync_subscriber_kit::state::{STATE_FOLDER, status};
use resync_subscriber_kit::sync::Report;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A running Destination and what it says.
struct Destination {
    events: mpsc::UnboundedReceiver<ListenEvent>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ListenError>>,
}

impl Destination {
    fn start(options: ListenOptions) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(listen(
            options,
            move |event| {
                // A test that has seen enough no longer listens.
                let _ = sender.send(event);
            },
            async move {
                let _ = stopped.await;
            },
        ));
        Self { events, stop, task }
    }

    async fn event(&mut self) -> ListenEvent {
        tokio::time::timeout(PATIENCE, self.events.recv())
            .await
            .expect("an event in time")
            .expect("it is running")
    }

    async fn synchronised(&mut self) -> Report {
        loop {
            if let ListenEvent::Synchronised(report) = self.event().await {
                return *report;
            }
        }
    }

    /// The hook has dealt with a notification.
    async fn hook_done(&mut self) {
        while !matches!(self.event().await, ListenEvent::HookDone) {}
    }

    /// Why a synchronisation could not be done.
    async fn failed(&mut self) -> String {
        loop {
            if let ListenEvent::SyncFailed { cause, .. } = self.event().await {
                return cause;
            }
        }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.task).await.expect("it stops in time").unwrap().unwrap();
    }
}

async fn source(hub: &Hub, resources: &[(&str, &str)]) -> Source {
    let source = Source::start().await;
    source.announce(Some(&hub.url()));
    publish(&source, resources);
    source
}

fn publish(source: &Source, resources: &[(&str, &str)]) {
    source.resource_list("/resourcelist.xml", &entries(source, resources));
}

fn entries(source: &Source, resources: &[(&str, &str)]) -> Vec<String> {
    resources.iter().map(|(path, body)| source.resource(path, body.as_bytes())).collect()
}

fn options(source: &Source, into: &Path) -> ListenOptions {
    let mut options = ListenOptions::new(source.url("/"), into);
    options.service.client = on_this_machine();
    options.sync.delete = true;
    options
}

/// A copy that follows its Source: subscribed, and in step for the first time.
struct Following {
    hub: Hub,
    source: Source,
    directory: TempDir,
    destination: Destination,
    /// Where the hub delivers.
    at: Subscribed,
}

impl Following {
    async fn of(resources: &[(&str, &str)]) -> Self {
        Self::with(resources, |_| {}).await
    }

    async fn with(resources: &[(&str, &str)], change: impl FnOnce(&mut ListenOptions)) -> Self {
        Self::begin(async |hub| source(hub, resources).await, change).await
    }

    /// Of a Source that is made for its hub.
    async fn from(source: impl AsyncFnOnce(&Hub) -> Source) -> Self {
        Self::begin(source, |_| {}).await
    }

    async fn begin(
        source: impl AsyncFnOnce(&Hub) -> Source,
        change: impl FnOnce(&mut ListenOptions),
    ) -> Self {
        let mut hub = Hub::start().await;
        let source = source(&hub).await;
        let directory = tempfile::tempdir().unwrap();
        let mut options = options(&source, directory.path());
        change(&mut options);
        let mut destination = Destination::start(options);
        let at = hub.accept(600).await;
        destination.synchronised().await;
        source.asked();
        Self { hub, source, directory, destination, at }
    }

    /// The hub delivers, and the copy says that it took it.
    async fn deliver(&self, id: &str, body: &str) {
        assert_eq!(self.at.deliver(id, body).await.status(), 204);
    }

    /// The hub delivers that the Resource List changed.
    async fn notify(&self, id: &str) {
        self.deliver(id, &self.source.notification()).await;
    }

    fn files(&self) -> std::collections::BTreeMap<String, Vec<u8>> {
        files(self.directory.path())
    }

    /// The last notification that was handled.
    fn last(&self) -> Option<u64> {
        let status = status(&self.directory.path().join(STATE_FOLDER)).unwrap().unwrap();
        status.subscriptions[0].last.map(|id| id.offset)
    }
}

#[tokio::test]
async fn fn001_a_notification_brings_the_copy_in_step() {
    let mut copy = Following::of(&[("/a", "1"), ("/b", "1")]).await;
    assert_eq!(copy.files(), expected(&[("a", "1"), ("b", "1")]));
    publish(&copy.source, &[("/a", "2"), ("/c", "1")]);
    copy.notify("a.1").await;
    let report = copy.destination.synchronised().await;
    assert_eq!((report.created, report.updated, report.deleted), (1, 1, 1));
    assert_eq!(copy.files(), expected(&[("a", "2"), ("c", "1")]));
    assert_eq!(copy.last(), Some(1));
    copy.destination.stop().await;
}

#[tokio::test]
async fn fn006_a_list_that_changed_under_an_index_is_read_although_the_index_did_not() {
    let mut hub = Hub::start().await;
    let source = source(&hub, &[]).await;
    let root = r#"<rs:md capability="resourcelist" at="2026-11-20T09:00:00Z"/>"#;
    let part = format!("<sitemap><loc>{}</loc></sitemap>", source.url("/part1.xml"));
    source.put("/resourcelist.xml", support::document("sitemapindex", root, &[part]).as_bytes());
    let list = |body: &[u8]| source.resource_list("/part1.xml", &[source.resource("/a", body)]);
    list(b"1");
    let directory = tempfile::tempdir().unwrap();
    let mut destination = Destination::start(options(&source, directory.path()));
    let at = hub.accept(600).await;
    destination.synchronised().await;
    list(b"2");
    let index = source.url("/resourcelist.xml");
    let inside = source.notification().replace(
        &format!("<url><loc>{index}</loc>"),
        &format!(r#"<url><loc>{}</loc><rs:ln rel="index" href="{index}"/>"#, source.url("/part1.xml")),
    );
    assert_eq!(at.deliver("a.1", &inside).await.status(), 204);
    assert_eq!(destination.synchronised().await.updated, 1);
    destination.stop().await;
}

#[tokio::test]
async fn a_notification_that_cannot_be_used_is_acknowledged_and_what_it_may_have_told_is_looked_for() {
    let mut copy = Following::of(&[("/a", "1")]).await;
    for (number, body) in
        ["<hello/>", &copy.source.notification().replace("updated", "moved")].iter().enumerate()
    {
        publish(&copy.source, &[("/a", &format!("after {number}"))]);
        copy.deliver(&format!("b.{number}"), body).await;
        assert_eq!(copy.destination.synchronised().await.updated, 1, "{body}");
    }
    copy.destination.stop().await;
}

/// A Source of a Resource List, a Resource Dump that nobody needs, and a channel.
async fn source_with_a_dump(hub: &Hub) -> Source {
    let named = [("/resourcedump.xml", "resourcedump"), ("/topic", "framework-notification")];
    change_notifications::source_naming(hub, &named).await
}

/// That the Resource Dump was made anew.
fn new_dump(source: &Source) -> String {
    let told = r#"change="updated" capability="resourcelist""#;
    source.notification().replace(told, r#"change="created" capability="resourcedump""#)
}

#[tokio::test]
async fn fn001_a_document_that_the_copy_does_not_use_costs_no_synchronisation() {
    let mut copy = Following::from(source_with_a_dump).await;
    copy.deliver("a.1", &new_dump(&copy.source)).await;
    copy.notify("a.2").await;
    copy.destination.synchronised().await;
    assert_eq!(copy.source.asked(), ["/resourcelist.xml"], "one synchronisation for the one that mattered");
    assert_eq!(copy.last(), Some(2));
    copy.destination.stop().await;
}

#[tokio::test]
async fn after_a_restart_secret_and_callback_are_the_same_and_the_copy_is_synchronised_first() {
    let mut copy = Following::of(&[("/a", "1")]).await;
    copy.notify("a.1").await;
    copy.destination.synchronised().await;
    // Torn down as a crash would: nothing gets the chance to say goodbye.
    copy.destination.task.abort();
    assert!(copy.destination.task.await.unwrap_err().is_cancelled());

    publish(&copy.source, &[("/a", "2")]);
    let mut restarted = options(&copy.source, copy.directory.path());
    restarted.service.listen = copy.at.address;
    let mut second = Destination::start(restarted);
    let after = copy.hub.accept(600).await;
    assert_eq!(copy.at, after);
    assert_eq!(second.synchronised().await.updated, 1);
    copy.source.asked();
    assert_eq!(after.deliver("a.1", &copy.source.notification()).await.status(), 204);
    assert_eq!(after.deliver("a.2", &copy.source.notification()).await.status(), 204);
    second.synchronised().await;
    let asked = copy.source.asked();
    assert_eq!(asked, ["/resourcelist.xml"], "the notification handled before the crash is known");
    second.stop().await;
}

#[tokio::test]
async fn a_source_that_fails_is_tried_again_and_its_notification_stays_open() {
    let mut copy = Following::of(&[("/a", "1")]).await;
    copy.source.remove("/resourcelist.xml");
    copy.notify("a.1").await;
    copy.destination.failed().await;
    assert_eq!(copy.last(), None);
    publish(&copy.source, &[("/a", "2")]);
    assert_eq!(copy.destination.synchronised().await.updated, 1);
    assert_eq!(copy.files(), expected(&[("a", "2")]));
    copy.destination.stop().await;
}

#[tokio::test]
async fn status_tells_of_a_synchronisation_that_failed_until_one_succeeds() {
    let mut copy = Following::of(&[("/a", "1")]).await;
    let state = copy.directory.path().join(STATE_FOLDER);
    let last = || status(&state).unwrap().unwrap().last_sync.unwrap();
    assert!(last().in_step());
    copy.source.remove("/resourcelist.xml");
    copy.notify("a.1").await;
    let cause = copy.destination.failed().await;
    assert!(!last().in_step());
    assert_eq!(last().failed, Some(cause));
    publish(&copy.source, &[("/a", "2")]);
    copy.destination.synchronised().await;
    assert!(last().in_step());
    copy.destination.stop().await;
}

#[tokio::test]
async fn the_safety_look_needs_no_notification() {
    let mut copy = Following::with(&[("/a", "1")], |options| options.poll = Duration::from_millis(300)).await;
    publish(&copy.source, &[("/a", "2")]);
    while copy.destination.synchronised().await.updated == 0 {}
    copy.destination.stop().await;
}

/// A Source with two sets, of which one Capability List is at `/b` and the other one is all that is described.
async fn source_of_two_sets(hub: &Hub) -> Source {
    let source = source(hub, &[("/a", "1")]).await;
    let other = String::from_utf8(source.page("/capabilitylist.xml")).unwrap();
    let (_, other) = other.split_once("\r\n\r\n").unwrap();
    source.put("/b", other.replace("/resourcelist.xml", "/b.xml").as_bytes());
    source.resource_list("/b.xml", &[source.resource("/b-file", b"1")]);
    source
}

#[tokio::test]
async fn a_copy_of_a_set_that_is_no_longer_named_becomes_no_copy_of_another_one() {
    let mut hub = Hub::start().await;
    let source = source_of_two_sets(&hub).await;
    let directory = tempfile::tempdir().unwrap();
    let options = || {
        let mut options = options(&source, directory.path());
        options.source = source.url("/b");
        options.poll = Duration::from_millis(300);
        options
    };
    let mut destination = Destination::start(options());
    hub.accept(600).await;
    destination.synchronised().await;
    assert_eq!(files(directory.path()), expected(&[("b-file", "1")]));

    source.remove("/b");
    for _ in 0..3 {
        destination.synchronised().await;
    }
    assert_eq!(files(directory.path()), expected(&[("b-file", "1")]));
    destination.stop().await;

    let again = listen(options(), |_| {}, std::future::pending());
    let ended = tokio::time::timeout(PATIENCE, again).await.unwrap().unwrap_err().to_string();
    assert!(ended.contains(&source.url("/b")) && ended.contains("/capabilitylist.xml"), "{ended}");
    assert_eq!(files(directory.path()), expected(&[("b-file", "1")]));
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_source_that_is_silent() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let mut options = ListenOptions::new(url, directory.path());
    options.service.client = on_this_machine();
    let destination = Destination::start(options);
    let _connection = silent.accept().await.unwrap();
    destination.stop().await;
}

#[tokio::test]
async fn a_state_that_cannot_be_written_is_written_later_and_the_copy_goes_on() {
    let state = tempfile::tempdir().unwrap();
    let (here, away) = (state.path().join("here"), state.path().join("away"));
    let elsewhere = here.clone();
    let mut copy = Following::with(&[("/a", "1")], |options| options.state = Some(elsewhere)).await;

    std::fs::rename(&here, &away).unwrap();
    publish(&copy.source, &[("/a", "2")]);
    copy.notify("a.1").await;
    assert_eq!(copy.destination.synchronised().await.updated, 1);
    assert_eq!(copy.files(), expected(&[("a", "2")]));

    publish(&copy.source, &[("/a", "3")]);
    copy.notify("a.2").await;
    assert_eq!(copy.destination.synchronised().await.updated, 1, "and goes on");

    assert!(!here.exists());
    std::fs::rename(&away, &here).unwrap();
    let kept = async {
        while status(&here).unwrap().unwrap().last_sync.is_none_or(|last| last.report.updated == 0) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, kept).await.expect("it is kept in the end, without another notification");
    copy.destination.stop().await;
}

#[tokio::test]
async fn a_source_that_is_away_at_the_start_is_waited_for() {
    let mut hub = Hub::start().await;
    let source = Source::start().await;
    source.raw("/.well-known/resourcesync", support::status("503 Service Unavailable", ""));
    let directory = tempfile::tempdir().unwrap();
    let mut destination = Destination::start(options(&source, directory.path()));
    let cause = destination.failed().await;
    assert!(cause.contains("503"), "{cause}");
    source.announce(Some(&hub.url()));
    publish(&source, &[("/a", "1")]);
    hub.accept(600).await;
    assert_eq!(destination.synchronised().await.created, 1);
    destination.stop().await;
}

#[tokio::test]
async fn a_source_whose_description_is_away_is_followed_from_what_was_found_before() {
    let mut copy = Following::of(&[("/a", "1")]).await;
    copy.destination.stop().await;

    copy.source.raw("/.well-known/resourcesync", support::status("503 Service Unavailable", ""));
    publish(&copy.source, &[("/a", "2")]);
    let mut again = options(&copy.source, copy.directory.path());
    again.service.listen = copy.at.address;
    let mut second = Destination::start(again);
    assert_eq!(copy.hub.accept(600).await, copy.at);
    assert_eq!(second.synchronised().await.updated, 1);
    second.stop().await;
}

#[tokio::test]
async fn several_sources_are_followed_behind_one_callback_server_and_one_that_cannot_be_ends_alone() {
    let mut hub = Hub::start().await;
    let sources =
        [source(&hub, &[("/a", "1")]).await, source(&hub, &[("/b", "1")]).await, Source::start().await];
    sources[2].announce(None);
    publish(&sources[2], &[("/c", "1")]);
    let folder = tempfile::tempdir().unwrap();
    let into: Vec<_> = (0..3).map(|number| folder.path().join(number.to_string())).collect();
    let copies = (sources.iter().zip(&into)).map(|(source, into)| options(source, into)).collect();
    let (sender, mut events) = mpsc::unbounded_channel();
    let tell = move |directory: &Path, event| drop(sender.send((directory.to_owned(), event)));
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let service = ServiceOptions { client: on_this_machine(), ..ServiceOptions::default() };
        listen_all(copies, &service, tell, async { drop(stopped.await) }).await
    });
    let both = [hub.accept(600).await, hub.accept(600).await];
    assert_eq!(both[0].address, both[1].address, "one server");
    let mut heard = async |wanted: &dyn Fn(&ListenEvent) -> bool| loop {
        let (directory, event) = tokio::time::timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
        if wanted(&event) {
            break directory;
        }
    };
    let is_sync = |event: &ListenEvent| matches!(event, ListenEvent::Synchronised(_));
    let mut ended = Vec::new();
    for _ in 0..3 {
        let is_end = |event: &ListenEvent| is_sync(event) || matches!(event, ListenEvent::Stopped { .. });
        ended.push(heard(&is_end).await);
    }
    ended.sort();
    assert_eq!(ended, into, "two are in step, and one has no channel");

    publish(&sources[1], &[("/b", "2")]);
    let topic = sources[1].url("/topic");
    let second = both.iter().find(|one| one.topic == topic).unwrap();
    assert_eq!(second.deliver("a.1", &sources[1].notification()).await.status(), 204);
    assert_eq!(heard(&is_sync).await, into[1]);
    assert_eq!(files(&into[0]), expected(&[("a", "1")]));
    assert_eq!(files(&into[1]), expected(&[("b", "2")]));
    stop.send(()).unwrap();
    task.await.unwrap().unwrap();
}
