//! Hubs: where a Destination subscribes, whom it asks next, and how it leaves.

use std::time::Duration;

use super::{Destination, Following, options, publish, source};
use crate::support::{self, Hub, PATIENCE, Source};
use resync_subscriber_kit::listen::{ListenError, listen};

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
async fn w009_asked_to_it_unsubscribes_at_the_end() {
    let mut copy =
        Following::with(&[("/a", "1")], |options| options.service.unsubscribe_on_exit = true).await;
    tokio::join!(copy.destination.stop(), copy.hub.accept(0));
}

#[tokio::test]
async fn a_set_without_a_channel_is_named_with_a_line_for_cron() {
    let source = Source::start().await;
    source.announce(None);
    publish(&source, &[]);
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("50% off");
    let result = listen(options(&source, &into), |_| {}, std::future::pending()).await;
    let Err(ListenError::NoChannel { cron, .. }) = result else { panic!("{result:?}") };
    let copy = directory.path().display();
    let command = format!("resync-destination sync {} '{copy}/50\\% off'", source.url("/"));
    assert_eq!(cron, format!("*/10 * * * * {command} --incremental --delete --quiet"));
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
    let nobody = resync_harness::free_address();
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
