//! The whole Destination: from a Source's URL to a copy that follows notifications, through restarts.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;
use std::time::Duration;

use crate::support::{self, Hub, PATIENCE, Source, Subscribed, expected, files};
use resync_subscriber_kit::hook::Hook;
use resync_subscriber_kit::listen::{Event, ListenError, ListenOptions, listen, listen_all};
use resync_subscriber_kit::service::ServiceOptions;
use resync_subscriber_kit::state::{STATE_FOLDER, status};
use resync_subscriber_kit::sync::{Look, Offer, Report, SyncOptions, Target, look};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A running Destination and what it says.
struct Destination {
    events: mpsc::UnboundedReceiver<Event>,
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

    async fn event(&mut self) -> Event {
        tokio::time::timeout(PATIENCE, self.events.recv())
            .await
            .expect("an event in time")
            .expect("it is running")
    }

    async fn synchronised(&mut self) -> Report {
        loop {
            if let Event::Synchronised(report) = self.event().await {
                return report;
            }
        }
    }

    /// The hook has dealt with a notification.
    async fn hook_done(&mut self) {
        while !matches!(self.event().await, Event::HookDone) {}
    }

    /// Why a synchronisation could not be done.
    async fn failed(&mut self) -> String {
        loop {
            if let Event::SyncFailed { cause, .. } = self.event().await {
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

/// A Resource List that was made after all that notifications tell of.
fn publish_later(source: &Source, resources: &[(&str, &str)]) {
    source.resource_list_of("2026-11-20T12:00:00Z", "/resourcelist.xml", &entries(source, resources));
}

fn entries(source: &Source, resources: &[(&str, &str)]) -> Vec<String> {
    resources.iter().map(|(path, body)| source.resource(path, body.as_bytes())).collect()
}

fn options(source: &Source, into: &Path) -> ListenOptions {
    let mut options = ListenOptions::new(source.url("/"), into);
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
    copy.source.asked();
    let of_a_change_list =
        copy.source.notification().replace(r#"capability="resourcelist""#, r#"capability="changelist""#);
    copy.deliver("a.2", &of_a_change_list).await;
    copy.notify("a.3").await;
    copy.destination.synchronised().await;
    assert_eq!(copy.source.asked(), ["/resourcelist.xml"], "one synchronisation for the one that mattered");
    assert_eq!(copy.last(), Some(3));
    copy.destination.stop().await;
}

#[tokio::test]
async fn cn016_what_was_skipped_is_made_up_for_by_a_look_though_the_notification_itself_is_of_no_use() {
    let mut copy = Following::of(&[("/a", "1")]).await;
    let of_a_change_list =
        copy.source.notification().replace(r#"capability="resourcelist""#, r#"capability="changelist""#);
    copy.deliver("a.1", &of_a_change_list).await;
    publish(&copy.source, &[("/a", "2")]);
    // The one that told of it was lost.
    copy.deliver("a.3", &of_a_change_list.replace("changelist", "changedump")).await;
    assert_eq!(copy.destination.synchronised().await.updated, 1);
    copy.destination.stop().await;
}

/// A Source with a Change List and a channel that tells of changed resources.
async fn source_of_changes(hub: &Hub) -> Source {
    let named = [("/changelist.xml", "changelist"), ("/topic", "change-notification")];
    let source = source_naming(hub, &named).await;
    change(&source, &[]);
    source
}

/// A Source with a Resource List and these, of which the channels are at the hub.
async fn source_naming(hub: &Hub, named: &[(&str, &str)]) -> Source {
    let source = Source::start().await;
    source.announce(None);
    publish(&source, &[("/a", "1")]);
    let entry = |(path, capability): &(&str, &str)| {
        let hub = format!(r#"<rs:ln rel="hub" href="{}"/>"#, hub.url());
        let rest = if capability.ends_with("notification") { hub.as_str() } else { "" };
        format!(r#"<url><loc>{}</loc><rs:md capability="{capability}"/>{rest}</url>"#, source.url(path))
    };
    let entries: Vec<String> =
        [("/resourcelist.xml", "resourcelist")].iter().chain(named).map(entry).collect();
    let root = r#"<rs:md capability="capabilitylist"/>"#;
    source.put("/capabilitylist.xml", support::document("urlset", root, &entries).as_bytes());
    source
}

/// The Change List, of changes at these minutes.
fn change(source: &Source, changes: &[(&str, &str, u32)]) {
    let entries: Vec<String> =
        changes.iter().map(|(path, body, minute)| told(source, path, body, *minute)).collect();
    let root = r#"<rs:md capability="changelist" from="2026-11-20T09:00:00Z"/>"#;
    source.put("/changelist.xml", support::document("urlset", root, &entries).as_bytes());
}

fn told(source: &Source, path: &str, body: &str, minute: u32) -> String {
    let facts = format!(r#"change="updated" datetime="2026-11-20T10:{minute:02}:00Z" "#);
    source.resource(path, body.as_bytes()).replace("<rs:md ", &format!("<rs:md {facts}"))
}

/// A notification of the minute before this one.
fn of_minute(source: &Source, path: &str, body: &str, minute: u32) -> String {
    notification_of(&[told(source, path, body, minute)], minute)
}

#[tokio::test]
async fn cn016_a_gap_between_notifications_is_told_and_closed_from_the_change_list_also_after_a_restart() {
    let Following { mut hub, source, directory, mut destination, at } =
        Following::from(source_of_changes).await;

    let first = of_minute(&source, "/a", "2", 1);
    change(&source, &[("/a", "2", 1)]);
    assert_eq!(at.deliver("a.1", &first).await.status(), 204);
    assert_eq!(destination.synchronised().await.updated, 1);

    // The notification of the second minute is lost.
    let third = of_minute(&source, "/c", "1", 3);
    change(&source, &[("/a", "2", 1), ("/b", "1", 2), ("/c", "1", 3)]);
    assert_eq!(at.deliver("a.2", &third).await.status(), 204);
    let gap = loop {
        if let Event::Gap { told_until, from } = destination.event().await {
            break (told_until.to_string(), from.to_string());
        }
    };
    assert_eq!(gap, ("2026-11-20T10:01:00Z".to_owned(), "2026-11-20T10:02:00Z".to_owned()));
    assert_eq!(destination.synchronised().await.created, 2);
    assert_eq!(files(directory.path()), expected(&[("a", "2"), ("b", "1"), ("c", "1")]));
    destination.stop().await;

    // The next run knows where the last one was.
    let mut again = options(&source, directory.path());
    again.service.listen = at.address;
    let mut destination = Destination::start(again);
    let at = hub.accept(600).await;
    destination.synchronised().await;
    let fifth = of_minute(&source, "/c", "2", 5);
    change(&source, &[("/a", "2", 1), ("/b", "1", 2), ("/c", "1", 3), ("/c", "2", 5)]);
    assert_eq!(at.deliver("a.3", &fifth).await.status(), 204);
    while !matches!(destination.event().await, Event::Gap { .. }) {}
    assert_eq!(destination.synchronised().await.updated, 1);
    destination.stop().await;
}

#[tokio::test]
async fn cn016_a_gap_stays_open_until_the_change_list_reaches_to_where_it_ends() {
    let Following { hub: _hub, source, directory, mut destination, at } =
        Following::from(source_of_changes).await;
    let first = of_minute(&source, "/a", "2", 1);
    assert_eq!(at.deliver("a.1", &first).await.status(), 204);
    assert_eq!(destination.synchronised().await.updated, 1);

    // The second one is lost, and the list is late.
    assert_eq!(at.deliver("a.2", &of_minute(&source, "/c", "1", 3)).await.status(), 204);
    while !matches!(destination.event().await, Event::Gap { .. }) {}
    assert_eq!(destination.synchronised().await.created, 1);
    change(&source, &[("/a", "2", 1), ("/b", "1", 2), ("/c", "1", 3)]);
    while destination.synchronised().await.created == 0 {}
    assert_eq!(files(directory.path()), expected(&[("a", "2"), ("b", "1"), ("c", "1")]));
    destination.stop().await;
}

#[tokio::test]
async fn cn001_what_the_change_list_does_not_have_yet_is_taken_from_the_notification() {
    let Following { hub: _hub, source, directory, mut destination, at } =
        Following::from(source_of_changes).await;

    // The list is written now and then, and notifications come at once.
    let first = of_minute(&source, "/a", "2", 1);
    assert_eq!(at.deliver("a.1", &first).await.status(), 204);
    assert_eq!(destination.synchronised().await.updated, 1);
    let gone = format!(
        r#"<url><loc>{}</loc><rs:md change="deleted" datetime="2026-11-20T10:02:00Z"/></url>"#,
        source.url("/a")
    );
    let second = notification_of(&[gone, told(&source, "/b", "1", 2)], 2);
    assert_eq!(at.deliver("a.2", &second).await.status(), 204);
    let report = destination.synchronised().await;
    assert_eq!((report.created, report.deleted), (1, 1));
    assert_eq!(files(directory.path()), expected(&[("b", "1")]));

    // Then the list has them too, and more; what it told is not believed again from an old notification.
    change(&source, &[("/a", "2", 1), ("/b", "1", 2), ("/b", "2", 3), ("/a", "3", 3)]);
    assert_eq!(at.deliver("a.3", &of_minute(&source, "/b", "2", 3)).await.status(), 204);
    destination.synchronised().await;
    assert_eq!(files(directory.path()), expected(&[("a", "3"), ("b", "2")]));
    assert_eq!(at.deliver("b.1", &second).await.status(), 204);
    assert_eq!(destination.synchronised().await.failed, 0);
    assert_eq!(files(directory.path()), expected(&[("a", "3"), ("b", "2")]));
    destination.stop().await;
}

#[tokio::test]
async fn cn001_cn020_without_a_change_list_what_notifications_tell_is_done_until_the_next_resource_list() {
    let Following { hub: _hub, source, directory, mut destination, at } =
        Following::from(async |hub| source_naming(hub, &[("/topic", "change-notification")]).await).await;
    assert_eq!(at.deliver("a.1", &of_minute(&source, "/a", "2", 1)).await.status(), 204);
    assert_eq!(destination.synchronised().await.updated, 1);
    assert_eq!(at.deliver("a.2", &of_minute(&source, "/b", "1", 2)).await.status(), 204);
    assert_eq!(destination.synchronised().await.created, 1);
    assert_eq!(files(directory.path()), expected(&[("a", "2"), ("b", "1")]));

    // What is older than the list is no news.
    let old = of_minute(&source, "/a", "1", 3).replace("T10:", "T08:");
    assert_eq!(at.deliver("a.3", &old).await.status(), 204);
    let report = destination.synchronised().await;
    assert_eq!((report.updated, report.failed), (0, 0));
    publish_later(&source, &[("/a", "3")]);
    assert_eq!(at.deliver("b.1", &source.notification()).await.status(), 204);
    let report = destination.synchronised().await;
    assert_eq!((report.updated, report.deleted), (1, 1));
    assert_eq!(files(directory.path()), expected(&[("a", "3")]));
    destination.stop().await;
}

/// The notification of the minute before this one, that a resource was deleted.
fn of_deletion(source: &Source, path: &str, minute: u32) -> String {
    let at = format!(r#"change="deleted" datetime="2026-11-20T10:{minute:02}:00Z""#);
    notification_of(&[support::entry(&source.url(path), &at)], minute)
}

async fn source_without_change_list(hub: &Hub) -> Source {
    let source = source_naming(hub, &[("/topic", "change-notification")]).await;
    publish(&source, &[("/a", "1"), ("/d", "1")]);
    source
}

#[tokio::test]
async fn cn001_without_a_change_list_what_notifications_told_is_known_after_a_restart() {
    let mut copy = Following::from(source_without_change_list).await;
    copy.deliver("a.1", &of_minute(&copy.source, "/a", "2", 1)).await;
    copy.deliver("a.2", &of_minute(&copy.source, "/b", "1", 2)).await;
    copy.source.remove("/d");
    copy.deliver("a.3", &of_deletion(&copy.source, "/d", 3)).await;
    while copy.last() != Some(3) {
        copy.destination.synchronised().await;
    }
    assert_eq!(copy.files(), expected(&[("a", "2"), ("b", "1")]));
    copy.destination.stop().await;

    // The list is as it was, and every file is compared.
    let mut again = options(&copy.source, copy.directory.path());
    again.service.listen = copy.at.address;
    let mut second = Destination::start(again);
    copy.hub.accept(600).await;
    let report = second.synchronised().await;
    assert!(report.in_step() && report.unchanged == 2, "{report:?}");
    assert_eq!(files(copy.directory.path()), expected(&[("a", "2"), ("b", "1")]));
    second.stop().await;
}

#[tokio::test]
async fn cn009_a_notification_that_is_late_takes_back_nothing_that_happened_after_it() {
    let mut copy = Following::from(source_without_change_list).await;
    copy.deliver("a.1", &of_minute(&copy.source, "/a", "2", 1)).await;
    copy.deliver("a.2", &of_minute(&copy.source, "/b", "1", 3)).await;
    while copy.last() != Some(2) {
        copy.destination.synchronised().await;
    }
    copy.deliver("a.3", &of_deletion(&copy.source, "/b", 2)).await;
    while copy.last() != Some(3) {
        copy.destination.synchronised().await;
    }
    assert_eq!(copy.files(), expected(&[("a", "2"), ("b", "1"), ("d", "1")]));
    copy.destination.stop().await;
}

#[tokio::test]
async fn without_a_change_list_a_told_resource_that_failed_is_tried_by_a_later_look_at_the_changes() {
    let mut copy = Following::from(source_without_change_list).await;
    let told = of_minute(&copy.source, "/a", "2", 1);
    copy.source.raw("/a", support::status("503 Service Unavailable", ""));
    copy.deliver("a.1", &told).await;
    assert_eq!(copy.destination.synchronised().await.failed, 1);
    copy.destination.stop().await;

    // However often it failed before: a notification does not stay open for ever.
    copy.source.put("/a", b"2");
    let list = url::Url::parse(&copy.source.url("/resourcelist.xml")).unwrap();
    let base = url::Url::parse(&copy.source.url("/")).unwrap();
    let target = Target::open(copy.directory.path(), base).unwrap();
    let options = SyncOptions { delete: true, ..SyncOptions::default() };
    let report =
        look(&support::client(), &Offer::list(list), &target, &options, Look::Changes).await.unwrap();
    assert_eq!((report.updated, report.failed), (1, 0));
    assert_eq!(files(copy.directory.path()), expected(&[("a", "2"), ("d", "1")]));
}

#[tokio::test]
async fn what_is_told_a_little_too_early_is_asked_for_again_without_further_news() {
    let with_list = Following::from(source_of_changes).await;
    let without = Following::from(source_without_change_list).await;
    for mut copy in [with_list, without] {
        let told = of_minute(&copy.source, "/early", "1", 1);
        copy.source.remove("/early");
        copy.deliver("a.1", &told).await;
        assert_eq!(copy.destination.synchronised().await.failed, 1);
        copy.source.put("/early", b"1");
        while copy.destination.synchronised().await.created == 0 {}
        copy.destination.stop().await;
    }
}

#[tokio::test]
async fn cn001_fn001_the_channel_of_lists_and_that_of_changes_are_both_followed() {
    let mut hub = Hub::start().await;
    let channels = [("/lists", "framework-notification"), ("/changes", "change-notification")];
    let source = source_naming(&hub, &channels).await;
    let directory = tempfile::tempdir().unwrap();
    let mut destination = Destination::start(options(&source, directory.path()));
    let mut both = [hub.accept(600).await, hub.accept(600).await];
    both.sort_by(|one, other| one.topic.cmp(&other.topic));
    let [changes, lists] = both;
    assert_eq!([&changes.topic, &lists.topic], [&source.url("/changes"), &source.url("/lists")]);
    destination.synchronised().await;
    assert_eq!(changes.deliver("a.1", &of_minute(&source, "/a", "2", 1)).await.status(), 204);
    while destination.synchronised().await.updated == 0 {}
    publish_later(&source, &[("/b", "1")]);
    assert_eq!(lists.deliver("b.1", &source.notification()).await.status(), 204);
    while destination.synchronised().await.deleted == 0 {}
    assert_eq!(files(directory.path()), expected(&[("b", "1")]));
    destination.stop().await;
}

#[tokio::test]
async fn a_notification_stays_open_while_what_it_told_of_may_mend() {
    let mut copy = Following::of(&[("/a", "1")]).await;
    publish(&copy.source, &[("/a", "2")]);
    copy.source.put("/a", b"not what is listed");
    copy.notify("a.1").await;
    assert_eq!(copy.destination.synchronised().await.failed, 1);
    assert_eq!(copy.last(), None);
    copy.source.put("/a", b"2");
    assert_eq!(copy.destination.synchronised().await.updated, 1);
    assert_eq!(copy.last(), Some(1));
    copy.destination.stop().await;
}

#[tokio::test]
async fn one_resource_that_is_wrong_does_not_make_every_try_a_look_at_all_of_them() {
    let mut hub = Hub::start().await;
    let source = source_of_changes(&hub).await;
    publish(&source, &[("/a", "1"), ("/b", "1")]);
    source.put("/b", b"not what is listed");
    let directory = tempfile::tempdir().unwrap();
    let mut destination = Destination::start(options(&source, directory.path()));
    let at = hub.accept(600).await;
    assert_eq!(destination.synchronised().await.failed, 1);
    source.asked();
    assert_eq!(destination.synchronised().await.failed, 1);
    assert_eq!(at.deliver("a.1", &of_minute(&source, "/c", "1", 1)).await.status(), 204);
    while destination.synchronised().await.created == 0 {}
    let asked = source.asked();
    assert!(
        asked.contains(&"/b".to_owned()) && !asked.contains(&"/resourcelist.xml".to_owned()),
        "{asked:?}"
    );
    source.put("/b", b"1");
    while destination.synchronised().await.created == 0 {}
    assert_eq!(files(directory.path()), expected(&[("a", "1"), ("b", "1"), ("c", "1")]));
    destination.stop().await;
}

/// A notification of these entries in the minute before this one.
fn notification_of(entries: &[String], minute: u32) -> String {
    let root = format!(
        r#"<rs:md capability="change-notification" from="2026-11-20T10:{:02}:00Z" until="2026-11-20T10:{minute:02}:00Z"/>"#,
        minute - 1
    );
    support::document("urlset", &root, entries)
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

#[cfg(unix)]
#[tokio::test]
async fn a_hook_hears_of_a_notification_when_the_copy_is_in_step_with_it() {
    let out = tempfile::tempdir().unwrap();
    let heard = out.path().join("heard");
    let hook = format!("cat > {0}.new && mv {0}.new {0}", heard.display());
    let with_hook = |options: &mut ListenOptions| options.service.hook = Some(Hook::new(hook));
    let mut copy = Following::with(&[("/a", "1")], with_hook).await;
    publish(&copy.source, &[("/a", "2")]);
    copy.notify("a.1").await;
    assert_eq!(copy.destination.synchronised().await.updated, 1);
    copy.destination.hook_done().await;
    assert_eq!(std::fs::read_to_string(heard).unwrap(), copy.source.notification());
    assert_eq!(copy.last(), Some(1));
    copy.destination.stop().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_hook_that_fails_is_run_again_for_the_same_notification_before_the_next() {
    let out = tempfile::tempdir().unwrap();
    let (there, heard) = (out.path().join("there"), out.path().join("heard"));
    let hook = format!("test -e {} && echo \"$RESYNC_ID\" >> {}", there.display(), heard.display());
    let with_hook = |options: &mut ListenOptions| options.service.hook = Some(Hook::new(hook));
    let mut copy = Following::with(&[("/a", "1")], with_hook).await;
    for id in ["a.1", "a.2"] {
        copy.notify(id).await;
        copy.destination.synchronised().await;
    }
    while !matches!(copy.destination.event().await, Event::HookFailed { .. }) {}
    std::fs::write(there, "").unwrap();
    copy.destination.hook_done().await;
    copy.destination.hook_done().await;
    assert_eq!(std::fs::read_to_string(heard).unwrap(), "000000000000000a.1\n000000000000000a.2\n");
    assert_eq!(copy.last(), Some(2));
    copy.destination.stop().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_hook_that_takes_long_holds_up_no_synchronisation_and_hears_of_each_in_turn() {
    let out = tempfile::tempdir().unwrap();
    let (gate, heard) = (out.path().join("gate"), out.path().join("heard"));
    let made = std::process::Command::new("mkfifo").arg(&gate).status().unwrap();
    assert!(made.success());
    // It waits until somebody writes into the gate.
    let hook = format!("read line < {}; echo \"$RESYNC_ID $line\" >> {}", gate.display(), heard.display());
    let with_hook = |options: &mut ListenOptions| options.service.hook = Some(Hook::new(hook));
    let mut copy = Following::with(&[("/a", "1")], with_hook).await;
    for (id, body) in [("a.1", "2"), ("a.2", "3")] {
        publish(&copy.source, &[("/a", body)]);
        copy.notify(id).await;
        assert_eq!(copy.destination.synchronised().await.updated, 1);
    }
    assert_eq!(copy.last(), None, "the hook has heard of nothing yet");
    for line in ["one\n", "two\n"] {
        let gate = gate.clone();
        tokio::task::spawn_blocking(move || std::fs::write(gate, line)).await.unwrap().unwrap();
        copy.destination.hook_done().await;
    }
    let said = std::fs::read_to_string(heard).unwrap();
    assert_eq!(said, "000000000000000a.1 one\n000000000000000a.2 two\n");
    assert_eq!(copy.last(), Some(2));
    copy.destination.stop().await;
}

#[cfg(unix)]
#[tokio::test]
async fn w134_a_lease_is_renewed_while_a_hook_takes_its_time() {
    let out = tempfile::tempdir().unwrap();
    let gate = out.path().join("gate");
    let made = std::process::Command::new("mkfifo").arg(&gate).status().unwrap();
    assert!(made.success());
    let hook = format!("read line < {}", gate.display());
    let mut hub = Hub::start().await;
    let source = source(&hub, &[("/a", "1")]).await;
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(&source, directory.path());
    options.service.hook = Some(Hook::new(hook));
    let mut destination = Destination::start(options);
    // Long enough to deliver within, and soon to be renewed.
    let at = hub.accept(3).await;
    destination.synchronised().await;
    assert_eq!(at.deliver("a.1", &source.notification()).await.status(), 204);
    destination.synchronised().await;
    for _ in 0..2 {
        let renewed = hub.accept(3).await;
        assert_eq!((&renewed.path, &renewed.topic), (&at.path, &at.topic));
        while !matches!(destination.event().await, Event::Subscribed { .. }) {}
    }
    let last = || status(&directory.path().join(STATE_FOLDER)).unwrap().unwrap().subscriptions[0].last;
    assert_eq!(last(), None, "the hook has not ended");
    tokio::task::spawn_blocking(move || std::fs::write(gate, "go\n")).await.unwrap().unwrap();
    destination.hook_done().await;
    assert_eq!(last().map(|id| id.offset), Some(1));
    destination.stop().await;
}

#[tokio::test]
async fn without_a_hub_that_answers_the_copy_is_made_all_the_same() {
    let hub = Hub::answering(|_| Vec::new()).await;
    let source = source(&hub, &[("/a", "1")]).await;
    let directory = tempfile::tempdir().unwrap();
    let mut destination = Destination::start(options(&source, directory.path()));
    assert_eq!(destination.synchronised().await.created, 1);
    destination.stop().await;
}

#[tokio::test]
async fn the_safety_look_needs_no_notification() {
    let mut copy = Following::with(&[("/a", "1")], |options| options.poll = Duration::from_millis(300)).await;
    publish(&copy.source, &[("/a", "2")]);
    while copy.destination.synchronised().await.updated == 0 {}
    copy.destination.stop().await;
}

#[tokio::test]
async fn w009_asked_to_it_unsubscribes_at_the_end() {
    let mut copy =
        Following::with(&[("/a", "1")], |options| options.service.unsubscribe_on_exit = true).await;
    tokio::join!(copy.destination.stop(), copy.hub.accept(0));
}

#[tokio::test]
async fn a_set_without_a_channel_is_named() {
    let source = Source::start().await;
    source.announce(None);
    publish(&source, &[]);
    let directory = tempfile::tempdir().unwrap();
    let result = listen(options(&source, directory.path()), |_| {}, std::future::pending()).await;
    assert!(matches!(result, Err(ListenError::NoChannel { .. })));
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
    let destination = Destination::start(ListenOptions::new(url, directory.path()));
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
async fn fn062_a_channel_that_moves_is_followed_and_the_old_subscription_ended() {
    let mut new = Hub::start().await;
    let mut copy = Following::of(&[("/a", "1")]).await;

    copy.source.announce(Some(&new.url()));
    let moved =
        copy.source.notification().replace(r#"capability="resourcelist""#, r#"capability="capabilitylist""#);
    copy.deliver("a.1", &moved).await;
    let (at_new, left) = tokio::join!(new.accept(600), copy.hub.accept(0));
    assert_eq!(left.path, copy.at.path, "unsubscribed where it was");
    assert_ne!(at_new.path, copy.at.path);

    publish(&copy.source, &[("/a", "2")]);
    assert_eq!(at_new.deliver("b.1", &copy.source.notification()).await.status(), 204);
    while copy.destination.synchronised().await.updated == 0 {}
    let ended = async {
        while copy.at.deliver("a.2", &moved).await.status() != 410 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the old one is ended");
    copy.destination.stop().await;
}

#[tokio::test]
async fn w031_fn062_when_a_hub_refuses_or_is_away_the_next_one_is_asked() {
    let mut refusing = Hub::answering(|_| support::status("403 Forbidden", "")).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut willing = Hub::start().await;
    let source = source(&refusing, &[("/a", "1")]).await;
    source.announce_at(&[&refusing.url(), &format!("http://{nobody}/"), &willing.url()]);
    let directory = tempfile::tempdir().unwrap();
    let mut destination = Destination::start(options(&source, directory.path()));
    refusing.form().await;
    let at = willing.accept(600).await;
    destination.synchronised().await;
    publish(&source, &[("/a", "2")]);
    at.deliver("a.1", &source.notification()).await;
    while destination.synchronised().await.updated == 0 {}
    destination.stop().await;
}

#[tokio::test]
async fn when_every_hub_refuses_for_good_that_is_said() {
    let (one, two) = (
        Hub::answering(|_| support::status("403 Forbidden", "")),
        Hub::answering(|_| support::status("404 Not Found", "")),
    );
    let (one, two) = (one.await, two.await);
    let source = source(&one, &[("/a", "1")]).await;
    source.announce_at(&[&one.url(), &two.url()]);
    let directory = tempfile::tempdir().unwrap();
    let listening = listen(options(&source, directory.path()), |_| {}, std::future::pending());
    let result = tokio::time::timeout(PATIENCE, listening).await.unwrap();
    assert!(matches!(result, Err(ListenError::Subscribe(_))), "{result:?}");
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
        listen_all(copies, &ServiceOptions::default(), tell, async { drop(stopped.await) }).await
    });
    let both = [hub.accept(600).await, hub.accept(600).await];
    assert_eq!(both[0].address, both[1].address, "one server");
    let mut heard = async |wanted: &dyn Fn(&Event) -> bool| loop {
        let (directory, event) = tokio::time::timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
        if wanted(&event) {
            break directory;
        }
    };
    let is_sync = |event: &Event| matches!(event, Event::Synchronised(_));
    let mut ended = Vec::new();
    for _ in 0..3 {
        let is_end = |event: &Event| is_sync(event) || matches!(event, Event::Stopped { .. });
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
