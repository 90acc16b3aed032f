//! Notifications of changes: what they tell, and the Change List that closes the gaps between them.

use super::{Destination, Following, entries, new_dump, options, publish, source_with_a_dump};
use crate::support::{self, Hub, Source, expected, files};
use resync_subscriber_kit::listen::{ListenEvent, ListenOptions};
use resync_subscriber_kit::sync::{Depth, Offer, SyncOptions, Target, synchronise};

/// A Resource List that was made after all that notifications tell of.
fn publish_later(source: &Source, resources: &[(&str, &str)]) {
    source.resource_list_of("2026-11-20T12:00:00Z", "/resourcelist.xml", &entries(source, resources));
}

#[tokio::test]
async fn cn016_what_was_skipped_is_made_up_for_by_a_look_though_the_notification_itself_is_of_no_use() {
    let mut copy = Following::from(source_with_a_dump).await;
    copy.deliver("a.1", &new_dump(&copy.source)).await;
    publish(&copy.source, &[("/a", "2")]);
    // The one that told of it was lost.
    copy.deliver("a.3", &new_dump(&copy.source)).await;
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
pub(super) async fn source_naming(hub: &Hub, named: &[(&str, &str)]) -> Source {
    let source = Source::start().await;
    source.announce(None);
    publish(&source, &[("/a", "1")]);
    name(&source, hub, named);
    source
}

/// From now on the Capability List has the Resource List and these.
pub(super) fn name(source: &Source, hub: &Hub, named: &[(&str, &str)]) {
    let entry = |(path, capability): &(&str, &str)| {
        let hub = format!(r#"<rs:ln rel="hub" href="{}"/>"#, hub.url());
        let rest = if capability.ends_with("notification") { hub.as_str() } else { "" };
        format!(r#"<url><loc>{}</loc><rs:md capability="{capability}"/>{rest}</url>"#, source.url(path))
    };
    let entries: Vec<String> =
        [("/resourcelist.xml", "resourcelist")].iter().chain(named).map(entry).collect();
    let root = r#"<rs:md capability="capabilitylist"/>"#;
    source.put("/capabilitylist.xml", support::document("urlset", root, &entries).as_bytes());
}

/// The Change List, of changes at these minutes.
pub(super) fn change(source: &Source, changes: &[(&str, &str, u32)]) {
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
        if let ListenEvent::Gap { known_until, from } = destination.event().await {
            break (known_until.to_string(), from.to_string());
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
    while !matches!(destination.event().await, ListenEvent::Gap { .. }) {}
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
    while !matches!(destination.event().await, ListenEvent::Gap { .. }) {}
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
    let second = of_minute(&source, "/b", "1", 2);
    assert_eq!(at.deliver("a.2", &second).await.status(), 204);
    assert_eq!(destination.synchronised().await.created, 1);
    assert_eq!(files(directory.path()), expected(&[("a", "2"), ("b", "1")]));

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
    notification_of(&[deletion(source, path, minute)], minute)
}

fn deletion(source: &Source, path: &str, minute: u32) -> String {
    let at = format!(r#"change="deleted" datetime="2026-11-20T10:{minute:02}:00Z""#);
    support::entry(&source.url(path), &at)
}

#[tokio::test]
async fn a_deletion_that_only_a_hub_tells_of_waits_for_the_change_list_that_names_it() {
    let mut copy = Following::from(source_of_changes).await;
    copy.deliver("a.1", &of_deletion(&copy.source, "/a", 1)).await;
    let report = copy.destination.synchronised().await;
    assert_eq!((report.deleted, report.in_step()), (0, true), "{report:?}");
    assert_eq!(copy.files(), expected(&[("a", "1")]));
    assert_eq!(copy.last(), None, "it stays open, so that the list is read again");

    let root = r#"<rs:md capability="changelist" from="2026-11-20T09:00:00Z"/>"#;
    let list = support::document("urlset", root, &[deletion(&copy.source, "/a", 1)]);
    copy.source.put("/changelist.xml", list.as_bytes());
    while copy.destination.synchronised().await.deleted == 0 {}
    assert_eq!((copy.files(), copy.last()), (expected(&[]), Some(1)));
    copy.destination.stop().await;
}

#[tokio::test]
async fn without_a_change_list_a_deletion_that_only_a_hub_tells_of_waits_for_the_next_resource_list() {
    let mut copy = Following::from(source_without_change_list).await;
    copy.source.remove("/d");
    copy.deliver("a.1", &of_deletion(&copy.source, "/d", 1)).await;
    assert_eq!(copy.destination.synchronised().await.deleted, 0);
    assert_eq!((copy.files(), copy.last()), (expected(&[("a", "1"), ("d", "1")]), Some(1)));
    publish_later(&copy.source, &[("/a", "1")]);
    copy.deliver("b.1", &copy.source.notification()).await;
    assert_eq!(copy.destination.synchronised().await.deleted, 1);
    assert_eq!(copy.files(), expected(&[("a", "1")]));
    copy.destination.stop().await;
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
    copy.deliver("a.3", &of_deletion(&copy.source, "/b", 3)).await;
    while copy.last() != Some(3) {
        copy.destination.synchronised().await;
    }
    let all = expected(&[("a", "2"), ("b", "1"), ("d", "1")]);
    assert_eq!(copy.files(), all);
    copy.destination.stop().await;

    // The list is as it was, and every file is compared.
    let mut again = options(&copy.source, copy.directory.path());
    again.service.listen = copy.at.address;
    let mut second = Destination::start(again);
    copy.hub.accept(600).await;
    let report = second.synchronised().await;
    assert!(report.in_step() && report.unchanged == 3, "{report:?}");
    let now = files(copy.directory.path());
    assert_eq!(now, all, "a deletion that only the hub told of leaves the creation known");
    second.stop().await;
}

#[tokio::test]
async fn what_notifications_told_is_known_after_a_restart_with_other_flags() {
    let keeps = |options: &mut ListenOptions| options.sync.delete = false;
    let mut copy = Following::begin(source_without_change_list, keeps).await;
    copy.deliver("a.1", &of_minute(&copy.source, "/a", "2", 1)).await;
    copy.deliver("a.2", &of_minute(&copy.source, "/b", "1", 2)).await;
    while copy.last() != Some(2) {
        copy.destination.synchronised().await;
    }
    copy.destination.stop().await;

    let mut again = options(&copy.source, copy.directory.path());
    assert!(again.sync.delete, "the list, by which files are removed now, is older than all that was told");
    again.service.listen = copy.at.address;
    let mut second = Destination::start(again);
    copy.hub.accept(600).await;
    let report = second.synchronised().await;
    assert!(report.in_step() && report.unchanged == 3, "{report:?}");
    assert_eq!(files(copy.directory.path()), expected(&[("a", "2"), ("b", "1"), ("d", "1")]));
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
    let late = of_minute(&copy.source, "/b", "0", 2);
    copy.source.put("/b", b"1");
    copy.deliver("a.3", &late).await;
    while copy.last() != Some(3) {
        assert_eq!(copy.destination.synchronised().await.failed, 0, "the older version is not asked for");
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
        synchronise(&support::client(), &Offer::list(list), &target, &options, Depth::Changes).await.unwrap();
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
