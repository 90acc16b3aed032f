//! Framework Notifications that are not expected, or about documents that the copy does not know: a reason to look (FN-012).

use super::change_notifications::{change, name, source_naming};
use super::{Following, publish};
use crate::support::{Source, expected};

/// A notification of one change of one document.
fn notification(source: &Source, change: &str, capability: &str) -> String {
    let told = format!(r#"change="{change}" capability="{capability}""#);
    source.notification().replace(r#"change="updated" capability="resourcelist""#, &told)
}

#[tokio::test]
async fn fn012_ar017_what_is_outside_the_table_makes_the_copy_look_at_once() {
    let mut copy = Following::of(&[("/a", "1")]).await;
    let cases = [
        // Documents that the set did not offer.
        ("created", "changelist"),
        ("updated", "changedump"),
        ("created", "resourcedump"),
        // Archives have no row.
        ("updated", "resourcelist-archive"),
        ("created", "resourcedump-archive"),
        ("updated", "changelist-archive"),
        ("created", "changedump-archive"),
        // The row has no such change.
        ("deleted", "resourcelist"),
        ("updated", "resourcedump"),
        ("deleted", "resourcedump"),
        ("deleted", "changelist"),
        ("deleted", "changedump"),
        ("deleted", "changelist-archive"),
        // There is no such document in the specification.
        ("updated", "audio-list"),
        ("updated", "change-notification"),
    ];
    for (number, (change, capability)) in (1..).zip(cases) {
        publish(&copy.source, &[("/a", &format!("after {number}"))]);
        copy.source.asked();
        copy.deliver(&format!("a.{number}"), &notification(&copy.source, change, capability)).await;
        let report = copy.destination.synchronised().await;
        assert_eq!((report.updated, report.failed), (1, 0), "{capability} {change}");
        assert_eq!(copy.files(), expected(&[("a", &format!("after {number}"))]), "{capability} {change}");
        let asked = copy.source.asked();
        for path in ["/capabilitylist.xml", "/resourcelist.xml"] {
            assert!(asked.iter().any(|one| one == path), "{path} after {capability} {change}: {asked:?}");
        }
        assert_eq!(copy.last(), Some(number), "it is handled then");
    }
    copy.destination.stop().await;
}

#[tokio::test]
async fn fn012_a_change_list_that_was_not_offered_before_is_found_and_followed() {
    let channel = ("/topic", "framework-notification");
    let mut copy = Following::from(async |hub| source_naming(hub, &[channel]).await).await;
    name(&copy.source, &copy.hub, &[("/changelist.xml", "changelist"), channel]);
    change(&copy.source, &[("/b", "1", 1)]);
    copy.deliver("a.1", &notification(&copy.source, "created", "changelist")).await;
    assert_eq!(copy.destination.synchronised().await.created, 1);
    assert_eq!(copy.files(), expected(&[("a", "1"), ("b", "1")]));

    // From now on it is one that is known.
    change(&copy.source, &[("/b", "1", 1), ("/c", "1", 2)]);
    copy.source.asked();
    copy.deliver("a.2", &notification(&copy.source, "updated", "changelist")).await;
    assert_eq!(copy.destination.synchronised().await.created, 1);
    assert_eq!(copy.source.asked(), ["/changelist.xml", "/c"]);
    copy.destination.stop().await;
}

#[tokio::test]
async fn fn012_many_of_them_keep_the_copy_from_no_order() {
    let mut copy = Following::of(&[("/a", "1")]).await;
    let strange = notification(&copy.source, "updated", "changelist-archive");
    for number in 1..=40 {
        copy.deliver(&format!("a.{number}"), &strange).await;
    }
    publish(&copy.source, &[("/a", "2")]);
    copy.notify("a.41").await;
    while copy.last() != Some(41) {
        copy.destination.synchronised().await;
    }
    assert_eq!(copy.files(), expected(&[("a", "2")]));
    copy.destination.stop().await;
}
