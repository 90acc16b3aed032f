//! One trace from publish to delivery: passed on by W3C Trace Context whatever happens in between, and told to a collector where
//! the operator names one.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use resync_harness::{ENGINES, HubProcess, Receiver, Reply, Seen, form, free_address, post, refusing};
use resync_hub::telemetry::TraceContext;
use serde_json::Value;
use tempfile::tempdir;

const TOPIC: &str = "http://source.example/topic";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

async fn publish(hub: &HubProcess, topic: &str, body: &str, more: &[(&str, &str)]) {
    let link = format!("<{topic}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let mut headers = vec![("Content-Type", "text/plain"), ("Link", &link)];
    headers.extend_from_slice(more);
    let answer = post(hub.address, &headers, body.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.text());
}

async fn ping(hub: &HubProcess, topic: &str, parent: &str) {
    ping_with(hub, topic, parent, &[]).await;
}

async fn ping_with(hub: &HubProcess, topic: &str, parent: &str, more: &[(&str, &str)]) {
    let body = format!("hub.mode=publish&hub.url={topic}");
    let mut headers = vec![("Content-Type", "application/x-www-form-urlencoded"), ("traceparent", parent)];
    headers.extend_from_slice(more);
    assert_eq!(post(hub.address, &headers, body.as_bytes()).await.unwrap().status, 204);
}

/// The ids of trace and span that a delivery says, of which there has to be one.
fn ids(delivery: &Seen) -> (String, String) {
    let fields: Vec<_> = delivery.headers.get_all("traceparent").iter().collect();
    assert_eq!(fields.len(), 1, "{:?}", delivery.headers);
    let value = fields[0].to_str().unwrap();
    assert_eq!(TraceContext::parse(value.as_bytes()).unwrap().to_string(), value, "it is valid");
    let parts: Vec<_> = value.split('-').collect();
    (parts[1].to_owned(), parts[2].to_owned())
}

#[tokio::test]
async fn a_publishers_trace_goes_on_to_every_subscriber_each_with_a_span_of_its_own() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    for number in 1..=3 {
        hub.subscribe(TOPIC, &destination.url(&format!("/cb/{number}")), &[], number).await;
    }
    publish(&hub, TOPIC, "traced", &[("traceparent", PARENT), ("tracestate", "vendor=its-own")]).await;
    let got = destination.until_delivered(3).await;
    let spans: BTreeSet<_> = got.iter().map(|delivery| ids(delivery).1).collect();
    assert!(spans.len() == 3 && !spans.contains(SPAN), "{spans:?}");
    assert!(got.iter().all(|delivery| ids(delivery).0 == TRACE));
    assert!(got.iter().all(|delivery| delivery.header("traceparent").ends_with("-01")), "it is sampled");
    assert!(got.iter().all(|delivery| delivery.headers.get("tracestate").is_none()));

    publish(&hub, TOPIC, "plain", &[]).await;
    let got = destination.until_delivered(6).await;
    assert!(got[3..].iter().all(|delivery| delivery.headers.get("traceparent").is_none()));
}

#[tokio::test]
async fn what_is_no_valid_traceparent_goes_nowhere() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    let wrong = [
        PARENT.to_uppercase(),
        PARENT.replacen("00", "ff", 1),
        PARENT.replace(TRACE, &"0".repeat(32)),
        PARENT.replace(SPAN, &"0".repeat(16)),
        format!("{PARENT}-more"),
        PARENT[..54].to_owned(),
        format!("{PARENT}, {PARENT}"),
        format!("cc{}.more", &PARENT[2..]),
        format!("{PARENT};Set-Cookie: a=b"),
    ];
    for value in &wrong {
        publish(&hub, TOPIC, value, &[("traceparent", value)]).await;
    }
    publish(&hub, TOPIC, "twice", &[("traceparent", PARENT), ("traceparent", PARENT)]).await;
    publish(&hub, TOPIC, "later", &[("TraceParent", &format!("cc{}-more", &PARENT[2..]))]).await;
    let mut got = destination.until_delivered(wrong.len() + 2).await;
    let last = got.pop().unwrap();
    assert_eq!(
        (last.text().as_str(), ids(&last).0.as_str()),
        ("later", TRACE),
        "of a later version the beginning counts"
    );
    for delivery in got {
        assert!(delivery.headers.get("traceparent").is_none(), "{}", delivery.text());
    }
}

#[tokio::test]
async fn a_delivery_that_is_repeated_after_kill_9_is_of_the_same_trace() {
    for engine in ENGINES {
        let folder = tempdir().unwrap();
        let mut hub = HubProcess::start_with(folder.path(), &[("STORE_ENGINE", engine)]).await;
        let destination = Receiver::start().await;
        destination.behave(refusing(503));
        hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
        // Larger than what is kept in one record.
        publish(&hub, TOPIC, &"x".repeat(100_000), &[("traceparent", PARENT)]).await;
        destination.until_delivered(1).await;
        hub.kill().await;
        destination.behave(|_| Reply::Agree);
        hub.restart().await;
        hub.admin_post(&format!("/api/v1/deliveries/retry?topic={TOPIC}"), "").await;
        let got = destination.until_delivered(2).await;
        let [first, second] = [ids(&got[0]), ids(&got[1])];
        assert!(first.0 == TRACE && second.0 == TRACE, "{engine}");
        assert_ne!(first.1, second.1);
    }
}

#[tokio::test]
async fn a_ping_that_is_served_after_kill_9_is_of_the_same_trace() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let topic = publisher.url("/topic");
    hub.subscribe(&topic, &destination.url("/cb"), &[], 1).await;
    publisher.behave(|_| Reply::Hang);
    ping(&hub, &topic, PARENT).await;
    publisher.until_verified(1).await;
    hub.kill().await;
    publisher.behave(|_| Reply::Status(200, "fetched".to_owned()));
    hub.restart().await;
    let delivery = destination.until_delivered(1).await.swap_remove(0);
    assert_eq!((delivery.text().as_str(), ids(&delivery).0.as_str()), ("fetched", TRACE));
}

#[tokio::test]
async fn where_tokens_are_asked_for_strangers_bring_no_trace_in_and_replace_none() {
    let folder = tempdir().unwrap();
    let (collector, publisher, destination) =
        (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    let keys = [("PUBLISH_POLICY", "token"), ("TELEMETRY_OTLP", &collector.url(""))];
    let mut hub = HubProcess::start_public(folder.path(), &keys).await;
    let topic = publisher.url("/topic");
    let token = format!("Bearer {}", hub.add_token("library", &publisher.url("/")).await);
    hub.subscribe(&topic, &destination.url("/cb"), &[], 1).await;

    let strange = PARENT.replace(TRACE, "5bf92f3577b34da6a3ce929d0e0e4736");
    let link = format!("<{topic}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let headers = [("Content-Type", "text/plain"), ("Link", &link), ("traceparent", &strange)];
    assert_eq!(post(hub.address, &headers, b"of a stranger").await.unwrap().status, 401);
    publisher.behave(|_| Reply::Status(200, "one".to_owned()));
    ping(&hub, &topic, &strange).await;
    let got = destination.until_delivered(1).await;
    assert!(got[0].headers.get("traceparent").is_none());

    publisher.behave(|_| Reply::Hang);
    ping_with(&hub, &topic, PARENT, &[("Authorization", &token)]).await;
    publisher.until_verified(2).await;
    ping(&hub, &topic, &strange).await;
    hub.kill().await;
    publisher.behave(|_| Reply::Status(200, "two".to_owned()));
    hub.restart().await;
    // The first one may come again.
    let seen = destination.until("the second", |seen| seen.iter().any(|one| one.text() == "two")).await;
    let delivery = seen.iter().find(|one| one.text() == "two").unwrap();
    assert_eq!(ids(delivery).0, TRACE);
    hub.stop().await;
    let told = spans(&collector.deliveries());
    assert!(told.len() >= 3 && told.iter().all(|span| span.trace == TRACE), "{told:#?}");
}

/// A span as a collector got it.
#[derive(Debug)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    whole: Value,
}

impl Span {
    fn says(&self, attribute: &str) -> String {
        let attributes = self.whole["attributes"].as_array().unwrap();
        let found = attributes.iter().find(|one| one["key"] == attribute);
        let value = found.map(|one| one["value"].as_object().unwrap().values().next().unwrap().clone());
        value.map_or(String::new(), |value| value.as_str().unwrap().to_owned())
    }
}

fn spans(requests: &[Seen]) -> Vec<Span> {
    let mut spans = Vec::new();
    for request in requests {
        assert_eq!(
            (request.target.as_str(), request.header("content-type")),
            ("/v1/traces", "application/json")
        );
        let said: Value = serde_json::from_slice(&request.body).unwrap();
        for span in said["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap() {
            let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
            let times =
                ["startTimeUnixNano", "endTimeUnixNano"].map(|name| text(name).parse::<u64>().unwrap());
            assert!(0 < times[0] && times[0] <= times[1]);
            spans.push(Span {
                trace: text("traceId"),
                id: text("spanId"),
                parent: text("parentSpanId"),
                name: text("name"),
                whole: span.clone(),
            });
        }
    }
    spans
}

/// Waits until the collector has so many spans.
async fn collected(collector: &Receiver, count: usize) -> Vec<Span> {
    spans(&collector.until(&format!("{count} spans"), |seen| spans(seen).len() >= count).await)
}

fn one<'a>(spans: &'a [Span], name: &str, holds: impl Fn(&Span) -> bool) -> &'a Span {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name && holds(span)).collect();
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

#[tokio::test]
async fn a_collector_gets_one_trace_from_publish_to_delivery_and_opens_no_way_to_itself() {
    let folder = tempdir().unwrap();
    let collector = Receiver::start().await;
    let destination = Receiver::start_at(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))).await;
    let keys = [
        ("TELEMETRY_OTLP", collector.url("/")),
        ("EGRESS_ALLOW", "[\"127.0.0.2/32\"]".to_owned()),
        ("EGRESS_PORTS", format!("[{}]", destination.address().port())),
        ("DELIVERY_SCHEDULE", "[\"20ms\"]".to_owned()),
    ];
    let keys: Vec<_> = keys.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let hub = HubProcess::start_public(folder.path(), &keys).await;
    let callback = collector.url("/cb");
    let own = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback)];
    assert_eq!(form(hub.address, &own).await.unwrap().status, 400, "strangers are not led there");

    destination.behave(|seen| match (seen.method.as_str(), seen.header("webhook-attempt")) {
        ("POST", "1") => Reply::Status(503, String::new()),
        _ => Reply::Agree,
    });
    hub.subscribe(TOPIC, &destination.url("/very/secret?callback=1"), &[], 1).await;
    publish(&hub, TOPIC, "traced", &[("traceparent", PARENT)]).await;
    let got = destination.until_delivered(2).await;
    let all = collected(&collector, 4).await;
    assert!(all.len() == 4 && all.iter().all(|span| span.trace == TRACE), "{all:#?}");
    let publish_span = one(&all, "POST /websub/", |_| true);
    assert_eq!((publish_span.parent.as_str(), publish_span.whole["kind"].as_u64()), (SPAN, Some(2)));
    assert_eq!(publish_span.says("http.response.status_code"), "202");
    assert_eq!(publish_span.says("websub.topic"), TOPIC);
    assert_eq!(one(&all, "append", |_| true).parent, publish_span.id);
    for (attempt, outcome, status, delivery) in [("1", "5xx", "503", &got[0]), ("2", "2xx", "204", &got[1])] {
        let span = one(&all, "deliver", |span| span.says("websub.attempt") == attempt);
        assert_eq!((span.parent.as_str(), span.whole["kind"].as_u64()), (publish_span.id.as_str(), Some(3)));
        assert_eq!(ids(delivery), (TRACE.to_owned(), span.id.clone()), "what is told is what was sent");
        assert_eq!(
            (span.says("websub.outcome").as_str(), span.says("server.address").as_str()),
            (outcome, "127.0.0.2")
        );
        assert_eq!(span.says("http.response.status_code"), status);
        assert_eq!(span.says("websub.notification"), delivery.header("webhook-id"));
        assert_eq!(span.whole["status"]["code"].as_u64(), (outcome == "5xx").then_some(2));
    }
    assert!(collector.deliveries().iter().all(|request| !request.text().contains("secret")));

    // What came without a trace gets one.
    publish(&hub, TOPIC, "plain", &[]).await;
    let got = destination.until_delivered(4).await;
    let (trace, _) = ids(&got[3]);
    assert!(trace != TRACE && ids(&got[2]).0 == trace);
    let all = collected(&collector, 8).await;
    assert_eq!(one(&all, "POST /websub/", |span| span.trace == trace).parent, "", "a root");
}

#[tokio::test]
async fn a_collector_gets_the_fetch_of_a_ping_and_what_waits_when_the_hub_stops() {
    let folder = tempdir().unwrap();
    let (collector, publisher, destination) =
        (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    let mut hub = HubProcess::start_with(folder.path(), &[("TELEMETRY_OTLP", &collector.url(""))]).await;
    publisher.behave(|_| Reply::Status(200, "fetched".to_owned()));
    let topic = publisher.url("/topic");
    hub.subscribe(&topic, &destination.url("/cb"), &[], 1).await;
    ping(&hub, &topic, PARENT).await;
    let delivery = destination.until_delivered(1).await.swap_remove(0);
    let all = collected(&collector, 4).await;
    let request = one(&all, "POST /websub/", |_| true);
    let fetch = one(&all, "fetch", |_| true);
    assert_eq!((request.parent.as_str(), request.says("websub.publish").as_str()), (SPAN, "ping"));
    assert_eq!((&fetch.parent, fetch.says("server.address").as_str()), (&request.id, "127.0.0.1"));
    assert_eq!(one(&all, "append", |_| true).parent, fetch.id);
    let deliver = one(&all, "deliver", |_| true);
    assert_eq!((&deliver.parent, ids(&delivery)), (&fetch.id, (TRACE.to_owned(), deliver.id.clone())));

    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 2).await;
    publish(&hub, TOPIC, "last", &[]).await;
    let last = destination.until_delivered(2).await.swap_remove(1);
    let (status, said) = hub.stop().await;
    assert!(status.success(), "{said}");
    let (trace, span) = ids(&last);
    let told = spans(&collector.deliveries());
    let told: Vec<_> = told.iter().filter(|one| one.trace == trace).collect();
    assert!(told.len() == 3 && told.iter().any(|one| one.id == span), "{told:#?}");
}

#[tokio::test]
async fn a_collector_that_is_away_or_hangs_harms_nothing() {
    let hanging = Receiver::start().await;
    hanging.behave(|_| Reply::Hang);
    for endpoint in [format!("http://{}", free_address()), hanging.url("")] {
        let folder = tempdir().unwrap();
        let mut hub = HubProcess::start_with(folder.path(), &[("TELEMETRY_OTLP", &endpoint)]).await;
        let destination = Receiver::start().await;
        hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
        publish(&hub, TOPIC, "one", &[]).await;
        destination.until_delivered(1).await;
        publish(&hub, TOPIC, "two", &[]).await;
        destination.until_delivered(2).await;
        let asked = Instant::now();
        let (status, said) = hub.stop().await;
        assert!(status.success() && asked.elapsed() < Duration::from_secs(10), "{said}");
        assert!(said.contains("the last spans are lost"), "{said}");
    }
}

#[tokio::test]
async fn traces_that_are_not_sampled_are_not_recorded_and_go_on() {
    let folder = tempdir().unwrap();
    let (collector, destination) = (Receiver::start().await, Receiver::start().await);
    let endpoint = collector.url("");
    let mut hub = HubProcess::start_with(folder.path(), &[("TELEMETRY_OTLP", &endpoint)]).await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    publish(&hub, TOPIC, "unsampled", &[("traceparent", &PARENT.replace("-01", "-00"))]).await;
    let got = destination.until_delivered(1).await;
    assert!(ids(&got[0]).0 == TRACE && got[0].header("traceparent").ends_with("-00"));
    hub.stop().await;
    hub.environment().insert("RESYNC_HUB_TELEMETRY_RATIO".to_owned(), "0.0".to_owned());
    hub.restart().await;
    publish(&hub, TOPIC, "sampled elsewhere", &[("traceparent", PARENT)]).await;
    publish(&hub, TOPIC, "plain", &[]).await;
    let got = destination.until_delivered(3).await;
    assert!(ids(&got[1]).0 == TRACE && got[2].headers.get("traceparent").is_none());
    hub.stop().await;
    assert_eq!(spans(&collector.deliveries()).len(), 0, "a stop tells all there is");
}
