//! Hooks: what hears of notifications, and what does not wait for it.

use super::{Destination, Following, options, publish, source};
use crate::support::Hub;
use resync_subscriber_kit::listen::{ListenEvent, ListenOptions};
use resync_subscriber_kit::receive::Hook;
use resync_subscriber_kit::state::{STATE_FOLDER, status};

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
    while !matches!(copy.destination.event().await, ListenEvent::HookFailed { .. }) {}
    std::fs::write(there, "").unwrap();
    copy.destination.hook_done().await;
    copy.destination.hook_done().await;
    assert_eq!(std::fs::read_to_string(heard).unwrap(), "000000000000000a.1\n000000000000000a.2\n");
    assert_eq!(copy.last(), Some(2));
    copy.destination.stop().await;
}

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
        while !matches!(destination.event().await, ListenEvent::Subscribed { .. }) {}
    }
    let last = || status(&directory.path().join(STATE_FOLDER)).unwrap().unwrap().subscriptions[0].last;
    assert_eq!(last(), None, "the hook has not ended");
    tokio::task::spawn_blocking(move || std::fs::write(gate, "go\n")).await.unwrap().unwrap();
    destination.hook_done().await;
    assert_eq!(last().map(|id| id.offset), Some(1));
    destination.stop().await;
}
