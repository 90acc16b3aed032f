//! Nobody makes the hub bother somebody else: how often callbacks are asked, and for whom (B-33).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use futures_util::FutureExt;
use resync_harness::{HubProcess, PATIENCE, Receiver, Reply, form, post};
use tempfile::tempdir;
use tokio::time::timeout;

const TOPIC: &str = "http://example.com/framework/";

#[tokio::test]
async fn b33_c08_an_unreachable_callback_is_asked_twice_and_one_that_answers_once() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let closing = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}/cb", closing.local_addr().unwrap());
    let asked = tokio::spawn(async move {
        let mut asked = 0;
        while let Ok((stream, _)) = closing.accept().await {
            drop(stream);
            asked += 1;
            if asked == 2 {
                break;
            }
        }
        closing
    });
    let refusing = Receiver::start().await;
    refusing.behave(|_| Reply::Status(503, String::new()));
    for callback in [silent, refusing.url("/cb")] {
        let parameters =
            [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", callback.as_str())];
        assert_eq!(form(hub.address, &parameters).await.unwrap().status, 202);
    }
    let closing = timeout(PATIENCE, asked).await.expect("it is asked twice").unwrap();
    hub.process().line_number("request not verified", 2).await;
    assert!(closing.accept().now_or_never().is_none(), "and not once more");
    assert_eq!(refusing.seen().len(), 1, "W-119: an answer is final");
}

#[tokio::test]
async fn b33_verifications_for_one_host_have_a_budget_that_renewals_do_not_share() {
    let folder = tempdir().unwrap();
    let keys = [("LIMITS_CALLBACK_HOST", "1/h, burst 3")];
    let hub = HubProcess::start_public(folder.path(), &keys).await;
    let destination = Receiver::start().await;
    let mut statuses = Vec::new();
    for number in 0..5 {
        let callback = destination.url(&format!("/{number}"));
        let parameters =
            [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", callback.as_str())];
        let answer = form(hub.address, &parameters).await.unwrap();
        assert_eq!(answer.status == 429, answer.header("retry-after").is_some(), "{answer:?}");
        statuses.push(answer.status);
    }
    assert_eq!(statuses, [202, 202, 202, 429, 429]);
    hub.until_subscribed(3).await;
    let other = Receiver::start_at("127.0.0.2".parse().unwrap()).await;
    hub.subscribe(TOPIC, &other.url("/cb"), &[], 4).await;
    for mode in ["subscribe", "unsubscribe"] {
        let own = [("hub.mode", mode), ("hub.topic", TOPIC), ("hub.callback", &destination.url("/0"))];
        assert_eq!(form(hub.address, &own).await.unwrap().status, 202, "nobody can lock a subscriber out");
    }
    hub.until_subscribed(3).await;
}

#[tokio::test]
async fn b33_requests_for_one_topic_and_of_one_client_have_budgets_too() {
    for (key, why) in [("LIMITS_TOPIC", "to this topic"), ("LIMITS_SUBSCRIPTIONS_PER_CLIENT", "this address")]
    {
        let folder = tempdir().unwrap();
        let hub = HubProcess::start_public(folder.path(), &[(key, "1/h, burst 2")]).await;
        let destination = Receiver::start().await;
        for (number, status) in [(0, 202), (1, 202), (2, 429)] {
            let callback = destination.url(&format!("/{number}"));
            let parameters =
                [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", callback.as_str())];
            let answer = form(hub.address, &parameters).await.unwrap();
            assert_eq!(answer.status, status, "{}", answer.text());
            assert!(status == 202 || answer.text().contains(why), "{}", answer.text());
        }
        assert_eq!(hub.publish(TOPIC, "news").await.unwrap().status, 202, "publishing has its own budget");
    }
}

#[tokio::test]
async fn b33_subscribers_may_renew_while_the_breaker_of_their_host_is_open() {
    let folder = tempdir().unwrap();
    let generous = [("LIMITS_CALLBACK_HOST", "100/s, burst 100")];
    let mut hub = HubProcess::start_public(folder.path(), &generous).await;
    let victim = Receiver::start().await;
    hub.subscribe(TOPIC, &victim.url("/subscriber"), &[], 1).await;
    victim.behave(|seen| {
        if seen.path() == "/subscriber" { Reply::Agree } else { Reply::Status(404, String::new()) }
    });
    let ask = async |address, path: &str| {
        let callback = victim.url(path);
        let parameters =
            [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", callback.as_str())];
        form(address, &parameters).await.unwrap()
    };
    for number in 0..20 {
        assert_eq!(ask(hub.address, &format!("/{number}")).await.status, 202);
    }
    hub.process().line_number("request not verified", 20).await;
    let refused = ask(hub.address, "/20").await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.header("retry-after").is_some_and(|wait| wait.parse::<u32>().unwrap() > 500));
    assert_eq!(ask(hub.address, "/subscriber").await.status, 202);
    victim.until_verified(22).await;
}

#[tokio::test]
async fn b33_what_pings_without_a_token_have_sent_delays_the_next_one_and_no_other_topic() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[("LIMITS_PING_FAN_OUT", "64 KiB")]).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let (topic, other) = (publisher.url("/topic"), publisher.url("/other"));
    for number in 0..4 {
        hub.subscribe(&topic, &destination.url(&format!("/{number}")), &[], number + 1).await;
    }
    hub.subscribe(&other, &destination.url("/other"), &[], 5).await;
    let ping = async |topic: &str, token: &str| {
        let form = "application/x-www-form-urlencoded";
        let mut headers = vec![("Content-Type", form)];
        headers.extend((!token.is_empty()).then_some(("Authorization", token)));
        let body = format!("hub.mode=publish&hub.url={topic}");
        assert_eq!(post(hub.address, &headers, body.as_bytes()).await.unwrap().status, 204);
    };
    publisher.behave(|_| Reply::Status(200, "x".repeat(32 * 1_024)));
    ping(&topic, "").await;
    destination.until_delivered(4).await;

    // 128 KiB were sent, so half of that is owed: for a minute, pings of this topic are taken and wait.
    publisher.behave(|_| Reply::Status(200, "new".to_owned()));
    ping(&topic, "").await;
    ping(&topic, "").await;
    ping(&other, "").await;
    let got = destination.until_delivered(5).await;
    assert_eq!(got[4].path(), "/other");
    let fetched = || publisher.seen().iter().filter(|seen| seen.path() == "/topic").count();
    assert_eq!(fetched(), 1);
    let token = format!("Bearer {}", hub.add_token("publisher", &publisher.url("/")).await);
    ping(&topic, &token).await;
    destination.until_delivered(9).await;
    assert_eq!(fetched(), 2, "those that waited are one with that of whoever has a token");
}
