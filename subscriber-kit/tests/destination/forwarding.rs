//! Notifications without a copy: several topics, each kept by itself, and forwarded until somebody took them.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs::File;
use std::io;
use std::path::Path;

use crate::support::{Hub, PATIENCE, Source, ok, on_this_machine, status};
use resync_subscriber_kit::forward::{ForwardError, ForwardEvent, ForwardOptions, forward};
use resync_subscriber_kit::receive::Hook;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

fn options(topics: Vec<String>, state: &Path) -> ForwardOptions {
    let mut options = ForwardOptions::new(topics, state);
    options.service.client = on_this_machine();
    options
}

/// Notifications that are being forwarded, and the events.
struct Forwarding {
    events: mpsc::UnboundedReceiver<ForwardEvent>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ForwardError>>,
}

impl Forwarding {
    fn start(options: ForwardOptions) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let tell = move |event| {
            // A test that has seen enough no longer listens.
            let _ = sender.send(event);
            Ok(())
        };
        let task = tokio::spawn(forward(options, tell, async move { drop(stopped.await) }));
        Self { events, stop, task }
    }

    fn of(topics: &[String], state: &Path) -> Self {
        Self::start(options(topics.to_vec(), state))
    }

    async fn event(&mut self, wanted: impl Fn(&ForwardEvent) -> bool) -> ForwardEvent {
        let event = async {
            loop {
                let event = self.events.recv().await.expect("it is running");
                if wanted(&event) {
                    return event;
                }
            }
        };
        tokio::time::timeout(PATIENCE, event).await.expect("an event in time")
    }

    async fn body(&mut self) -> Vec<u8> {
        match self.event(|event| matches!(event, ForwardEvent::Notification { .. })).await {
            ForwardEvent::Notification { body, .. } => body,
            other => panic!("{other:?}"),
        }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.task).await.expect("it stops in time").unwrap().unwrap();
    }
}

/// The topic at `path` says that these are its hub and itself.
fn topic(source: &Source, path: &str, hub: &Hub, canonical: &str) {
    let links = format!("Link: <{}>; rel=\"hub\", <{}>; rel=\"self\"\r\n", hub.url(), source.url(canonical));
    source.raw(path, ok(&links, b"news"));
}

#[tokio::test]
async fn w134_before_a_renewal_the_topic_is_looked_for_anew_and_followed_to_its_new_hub() {
    let (mut old, mut new) = (Hub::start().await, Hub::start().await);
    let source = Source::start().await;
    topic(&source, "/blog", &old, "/blog");
    let state = tempfile::tempdir().unwrap();
    let mut forwarding = Forwarding::of(&[source.url("/blog")], state.path());
    let before = old.accept(3).await;
    topic(&source, "/blog", &new, "/moved");
    let (after, left) = tokio::join!(new.accept(600), old.accept(0));
    assert_eq!((&after.topic, &left.path), (&source.url("/moved"), &before.path));
    assert_eq!(after.deliver("b.1", "more").await.status(), 204);
    assert_eq!(forwarding.body().await, b"more");
    forwarding.stop().await;
}

#[tokio::test]
async fn a_json_feed_is_subscribed_to_at_the_hub_that_it_names() {
    let mut hub = Hub::start().await;
    let source = Source::start().await;
    let feed = format!(
        r#"{{"version": "https://jsonfeed.org/version/1.1", "title": "t", "feed_url": "{}", "items": [],
            "hubs": [{{"type": "rssCloud", "url": "http://cloud.example/"}}, {{"type": "WebSub", "url": "{}"}}]}}"#,
        source.url("/feed"),
        hub.url()
    );
    source.raw("/feed.json", ok("Content-Type: application/feed+json\r\n", feed.as_bytes()));
    let state = tempfile::tempdir().unwrap();
    let mut forwarding = Forwarding::of(&[source.url("/feed.json")], state.path());
    let at = hub.accept(600).await;
    assert_eq!(at.topic, source.url("/feed"));
    assert_eq!(at.deliver("a.1", "news").await.status(), 204);
    assert_eq!(forwarding.body().await, b"news");
    forwarding.stop().await;
}

#[tokio::test]
async fn a_feed_that_names_no_hub_is_subscribed_to_at_the_given_one() {
    let mut hub = Hub::start().await;
    let source = Source::start().await;
    let feed = format!(
        r#"<feed xmlns="http://www.w3.org/2005/Atom"><link rel="self" href="{}"/></feed>"#,
        source.url("/feed")
    );
    source.raw("/feed.xml", ok("Content-Type: application/atom+xml\r\n", feed.as_bytes()));
    source.raw("/private", status("403 Forbidden", ""));
    let state = tempfile::tempdir().unwrap();
    let mut options = options(vec![source.url("/feed.xml"), source.url("/private")], state.path());
    options.hub = Some(hub.url().parse().unwrap());
    let mut forwarding = Forwarding::start(options);
    let both = [hub.accept(600).await, hub.accept(600).await];
    let mut topics = both.each_ref().map(|at| at.topic.clone());
    topics.sort();
    assert_eq!(topics, [source.url("/feed"), source.url("/private")]);
    assert_eq!(both[0].deliver("a.1", "news").await.status(), 204);
    assert_eq!(forwarding.body().await, b"news");
    forwarding.stop().await;
}

#[tokio::test]
async fn of_a_feed_that_names_no_hub_it_is_said_what_to_give() {
    let source = Source::start().await;
    source.raw("/feed.xml", ok("Content-Type: application/atom+xml\r\n", b"<feed/>"));
    let state = tempfile::tempdir().unwrap();
    let forwarding = Forwarding::of(&[source.url("/feed.xml")], state.path());
    let ended = tokio::time::timeout(PATIENCE, forwarding.task).await.unwrap().unwrap();
    let said = ended.unwrap_err().to_string();
    assert!(said.starts_with(&source.url("/feed.xml")) && said.contains("--hub"), "{said}");
}

#[tokio::test]
async fn the_given_hub_counts_where_the_topic_names_another_and_a_topic_that_is_missing_is_no_topic() {
    let (mut given, named) = (Hub::start().await, Hub::start().await);
    let source = Source::start().await;
    topic(&source, "/blog", &named, "/blog");
    let state = tempfile::tempdir().unwrap();
    let at_given = |path: &str| {
        let mut options = options(vec![source.url(path)], state.path());
        options.hub = Some(given.url().parse().unwrap());
        options
    };
    let (there, missing) = (at_given("/blog"), at_given("/typo"));
    let forwarding = Forwarding::start(there);
    assert_eq!(given.accept(600).await.topic, source.url("/blog"));
    forwarding.stop().await;
    let forwarding = Forwarding::start(missing);
    let ended = tokio::time::timeout(PATIENCE, forwarding.task).await.unwrap().unwrap();
    assert!(ended.is_err_and(|error| error.to_string().contains("404")));
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_told_of_and_tried_again_and_ends_no_other() {
    let mut hub = Hub::start().await;
    let source = Source::start().await;
    topic(&source, "/blog", &hub, "/blog");
    let state = tempfile::tempdir().unwrap();
    let mut forwarding = Forwarding::of(&[source.url("/blog"), source.url("/later")], state.path());
    let blog = hub.accept(600).await;
    forwarding
        .event(|event| matches!(event, ForwardEvent::TopicFailed { topic, .. } if topic.ends_with("/later")))
        .await;
    let not_subscribed = || {
        let status = resync_subscriber_kit::state::status(state.path()).unwrap().unwrap();
        status.not_subscribed.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(not_subscribed(), [source.url("/later")]);
    assert_eq!(blog.deliver("a.1", "news").await.status(), 204);
    assert_eq!(forwarding.body().await, b"news");
    topic(&source, "/later", &hub, "/later");
    assert_eq!(hub.accept(600).await.topic, source.url("/later"));
    forwarding
        .event(|event| {
            matches!(event, ForwardEvent::Subscribed { topic, .. } if topic.as_str().ends_with("/later"))
        })
        .await;
    assert!(not_subscribed().is_empty());
    forwarding.stop().await;
}

#[tokio::test]
async fn w134_a_topic_that_is_away_is_renewed_and_not_replaced_by_a_source_at_its_host() {
    let (mut hub, other) = (Hub::start().await, Hub::start().await);
    let source = Source::start().await;
    source.announce(Some(&other.url()));
    topic(&source, "/blog", &hub, "/blog");
    let state = tempfile::tempdir().unwrap();
    let forwarding = Forwarding::of(&[source.url("/blog")], state.path());
    hub.accept(3).await;
    source.raw("/blog", status("503 Service Unavailable", ""));
    assert_eq!(hub.form().await.parameter("hub.mode").as_deref(), Some("subscribe"));
    forwarding.stop().await;
}

#[tokio::test]
async fn w009_a_topic_that_is_no_longer_given_is_left_once_the_others_are_found() {
    let mut hub = Hub::start().await;
    let source = Source::start().await;
    for path in ["/blog", "/dropped"] {
        topic(&source, path, &hub, path);
    }
    let state = tempfile::tempdir().unwrap();
    let forwarding = Forwarding::of(&[source.url("/blog"), source.url("/dropped")], state.path());
    let both = [hub.accept(600).await, hub.accept(600).await];
    forwarding.stop().await;
    let forwarding = Forwarding::of(&[source.url("/blog")], state.path());
    let mut asked = Vec::new();
    for _ in both {
        let form = hub.form().await;
        asked.push(["hub.mode", "hub.topic"].map(|name| form.parameter(name).unwrap()));
    }
    asked.sort();
    let expected = [("subscribe", "/blog"), ("unsubscribe", "/dropped")];
    assert_eq!(asked, expected.map(|(mode, path)| [mode.to_owned(), source.url(path)]));
    forwarding.stop().await;
}

#[tokio::test]
async fn w009_a_channel_that_one_topic_drops_and_another_one_is_stays_subscribed() {
    let mut hub = Hub::start().await;
    let source = Source::start().await;
    source.announce(Some(&hub.url()));
    topic(&source, "/topic", &hub, "/topic");
    let state = tempfile::tempdir().unwrap();
    let forwarding = Forwarding::of(&[source.url("/"), source.url("/topic")], state.path());
    for _ in 0..2 {
        assert_eq!(hub.accept(3).await.topic, source.url("/topic"));
    }
    let page = source.page("/capabilitylist.xml");
    let moved = String::from_utf8(page).unwrap().replace("/topic<", "/other<");
    let (_, moved) = moved.split_once("\r\n\r\n").unwrap();
    source.put("/capabilitylist.xml", moved.as_bytes());
    let (mut has_moved, mut is_kept) = (false, false);
    while !(has_moved && is_kept) {
        let form = hub.form().await;
        assert_eq!(form.parameter("hub.mode").as_deref(), Some("subscribe"));
        let is_the_other = form.parameter("hub.topic").unwrap() == source.url("/other");
        is_kept = has_moved && !is_the_other;
        has_moved |= is_the_other;
    }
    forwarding.stop().await;
}

#[tokio::test]
async fn when_no_topic_can_be_had_that_is_said() {
    let source = Source::start().await;
    source.raw("/blog", status("404 Not Found", ""));
    let state = tempfile::tempdir().unwrap();
    let forwarding = Forwarding::of(&[source.url("/blog"), source.url("/other")], state.path());
    let ended = tokio::time::timeout(PATIENCE, forwarding.task).await.unwrap().unwrap();
    assert!(matches!(&ended, Err(error @ ForwardError::Topic(_)) if !error.is_configuration()), "{ended:?}");
    let forwarding = Forwarding::of(&[source.url("/blog"), "blog".to_owned()], state.path());
    let ended = tokio::time::timeout(PATIENCE, forwarding.task).await.unwrap().unwrap();
    assert!(ended.is_err_and(|error| error.is_configuration()));
}

#[tokio::test]
async fn a_notification_that_nobody_heard_of_is_not_done() {
    let mut hub = Hub::start().await;
    let source = Source::start().await;
    topic(&source, "/blog", &hub, "/blog");
    let state = tempfile::tempdir().unwrap();
    let deaf = |event| match event {
        ForwardEvent::Notification { .. } => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        _ => Ok(()),
    };
    let options = options(vec![source.url("/blog")], state.path());
    let first = tokio::spawn(forward(options, deaf, std::future::pending()));
    assert_eq!(hub.accept(600).await.deliver("a.1", "news").await.status(), 204);
    let ended = tokio::time::timeout(PATIENCE, first).await.unwrap().unwrap();
    assert!(matches!(ended, Err(ForwardError::Output(_))), "{ended:?}");
    // A write that was under way when it ended holds the state until it is done.
    let lock = File::options().write(true).open(state.path().join("lock")).unwrap();
    tokio::task::spawn_blocking(move || lock.lock()).await.unwrap().unwrap();
    let mut second = Forwarding::of(&[source.url("/blog")], state.path());
    assert_eq!(second.body().await, b"news");
    second.stop().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_hook_that_fails_is_run_again_and_the_order_is_kept() {
    let mut hub = Hub::start().await;
    let source = Source::start().await;
    topic(&source, "/blog", &hub, "/blog");
    let folder = tempfile::tempdir().unwrap();
    let (there, heard) = (folder.path().join("there"), folder.path().join("heard"));
    let hook = format!("test -e {} && cat >> {}", there.display(), heard.display());
    let mut options = options(vec![source.url("/blog")], &folder.path().join("state"));
    options.service.hook = Some(Hook::new(hook));
    let mut forwarding = Forwarding::start(options);
    let at = hub.accept(600).await;
    for (id, body) in [("a.1", "one "), ("a.2", "two ")] {
        assert_eq!(at.deliver(id, body).await.status(), 204);
    }
    forwarding.event(|event| matches!(event, ForwardEvent::HookFailed { .. })).await;
    std::fs::write(there, "").unwrap();
    assert_eq!([forwarding.body().await, forwarding.body().await], [b"one ", b"two "]);
    assert_eq!(std::fs::read_to_string(heard).unwrap(), "one two ");
    forwarding.stop().await;
}
