//! The state in the archive is that of format 1. Whatever this program becomes, it reads it; a new format gets an archive of its own.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;

use resync_subscriber_kit::receive::{Callback, CallbackOptions};
use resync_subscriber_kit::state::{Subscriptions, status};

fn copy_of_archive() -> tempfile::TempDir {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/archive/state-1");
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(archive).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    folder
}

#[tokio::test]
async fn a_state_of_format_1_keeps_its_subscription_and_the_notification_that_was_acknowledged() {
    let folder = copy_of_archive();
    let known = status(folder.path()).unwrap().unwrap();
    assert!(known.last_sync.unwrap().in_step());

    let subscriptions = Subscriptions::open(folder.path()).unwrap();
    let [subscription] = subscriptions.list().try_into().unwrap();
    assert_eq!(subscription.topic.as_str(), "http://source.example/topic");
    assert_eq!(
        (subscription.hub.as_str(), subscription.lease_seconds),
        ("http://hub.example/websub/", Some(600))
    );
    assert_eq!(subscription.last.map(|id| id.offset), Some(9));
    let (_callback, mut deliveries) = Callback::new(&subscriptions, CallbackOptions::default());
    let delivery = deliveries.next().await.unwrap();
    assert_eq!((delivery.body.body(), delivery.id.unwrap().offset), (&b"notification 10"[..], 10));
}
