//! What opens something at the hub cannot be guessed from what is known of others, nor from another hub (W-074, W-183, W-186).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;

use resync_harness::{HubProcess, Receiver};
use serde_json::Value;
use tempfile::tempdir;

const TOPIC: &str = "http://example.com/framework/";
/// Of each kind and hub.
const MANY: usize = 30;

/// Whether these were drawn at random: none comes twice, and in sixteen places many different characters come up. Where something is counted, or
/// is the same for each, most places agree.
pub(super) fn assert_cannot_be_guessed(what: &str, words: &[String]) {
    let different: BTreeSet<_> = words.iter().collect();
    assert_eq!((words.len() >= 60, different.len()), (true, words.len()), "{what}: {words:?}");
    let length = words.iter().map(String::len).min().unwrap_or_default();
    let found = |place: usize| words.iter().map(|word| word.as_bytes()[place]).collect::<BTreeSet<_>>().len();
    // Of 16 characters that are drawn 60 times, six at most come up with a chance of less than 1 in 10^20.
    let drawn = (0..length).filter(|place| found(*place) > 6).count();
    assert!(drawn >= 16, "{what}: {drawn} places: {words:?}");
}

/// What two hubs have given out for the very same requests.
#[tokio::test]
async fn w074_w183_tickets_and_tokens_and_ids_of_two_hubs_that_were_asked_the_same_cannot_be_guessed() {
    let destination = Receiver::start().await;
    let kinds =
        ["the ticket of a subscription", "the ticket of a notification", "a token", "the id of a topic"];
    let mut given: [Vec<String>; 4] = Default::default();
    for _ in 0..2 {
        let folder = tempdir().unwrap();
        let hub = HubProcess::start(folder.path()).await;
        for number in 0..MANY {
            let topic = format!("{TOPIC}{number}");
            hub.subscribe(&topic, &destination.url("/cb"), &[], number + 1).await;
            let published = hub.publish(&topic, "news").await.unwrap();
            let location = published.header("location").unwrap().to_owned();
            given[1].push(location.split_once("?ticket=").unwrap().1.to_owned());
            let wish = format!("{{\"name\": \"{number}\", \"topic_prefixes\": [\"{topic}\"]}}");
            let answer: Value =
                serde_json::from_slice(&hub.admin_post("/api/v1/tokens", &wish).await.body).unwrap();
            given[2].push(answer["token"].as_str().unwrap().strip_prefix("rsh_").unwrap().to_owned());
        }
        let list: Value = serde_json::from_slice(&hub.admin("/api/v1/subscriptions").await.body).unwrap();
        for one in list["items"].as_array().unwrap() {
            let path = format!("/api/v1/subscriptions/{}", one["id"]);
            let one: Value = serde_json::from_slice(&hub.admin(&path).await.body).unwrap();
            let page = one["status_page"].as_str().unwrap();
            given[0].push(page.split_once("?ticket=").unwrap().1.to_owned());
        }
        let list: Value = serde_json::from_slice(&hub.admin("/api/v1/topics?limit=100").await.body).unwrap();
        let topics = list["items"].as_array().unwrap().iter();
        given[3].extend(topics.map(|topic| topic["id"].as_str().unwrap().to_owned()));
    }
    for (kind, words) in kinds.iter().zip(&given) {
        assert_eq!(words.len(), 2 * MANY, "{kind}");
        assert_cannot_be_guessed(kind, words);
    }
}

#[test]
fn what_is_counted_or_the_same_for_each_would_be_found() {
    let fails =
        |words: Vec<String>| std::panic::catch_unwind(|| assert_cannot_be_guessed("words", &words)).is_err();
    assert!(fails((0..100).map(|number| format!("{number:032x}")).collect()), "counted");
    assert!(fails(vec!["0123456789abcdef".to_owned(); 100]), "the same");
    let random = |_| format!("{:032x}", fastrand::u128(..));
    let short = |number| format!("{:028x}{:08x}", number, fastrand::u32(..));
    assert!(fails((0..100).map(short).collect()), "32 bits are few");
    assert!(!fails((0..100).map(random).collect()), "drawn at random");
}
