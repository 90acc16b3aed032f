//! The admin API's document and what the hub answers, judged by programs that no one here wrote: Python's `openapi-spec-validator` and
//! `jsonschema`, installed from their registry. Without a way there the test fails.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

use resync_harness::{HubProcess, JUDGES, Receiver, eventually, refusing};
use serde_json::{Value, json};
use tempfile::tempdir;

const TOPIC: &str = "http://example.com/framework/";

/// What the hub answers, and what the judges have to know of that.
async fn answer(hub: &HubProcess, method: &str, path: &str, body: &str) -> Value {
    let path = format!("/api/v1/{path}");
    let answer = hub.order(method, &path, body).await;
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    json!({
        "method": method, "path": path, "status": answer.status, "type": answer.header("content-type"), "body": body,
    })
}

#[tokio::test]
async fn the_document_of_the_admin_api_is_openapi_and_the_answers_are_as_it_says() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(&folder.path().join("data")).await;
    let (well, sick) = (Receiver::start().await, Receiver::start().await);
    sick.behave(refusing(503));
    hub.subscribe(TOPIC, &sick.url("/cb"), &[("hub.secret", "hush")], 1).await;
    hub.subscribe(TOPIC, &well.url("/cb"), &[], 2).await;
    for body in ["one", "two"] {
        assert_eq!(hub.publish(TOPIC, body).await.unwrap().status, 202);
    }
    eventually("one is late", async || {
        hub.admin("/api/v1/deliveries/laggards").await.text().contains("\"class\":\"trouble\"")
    })
    .await;
    let late = answer(&hub, "GET", "deliveries/laggards", "").await["body"]["items"][0].clone();
    let (topic, id) = (late["topic"].as_str().unwrap(), &late["subscription"]);
    let escaped: String = url::form_urlencoded::byte_serialize(TOPIC.as_bytes()).collect();
    let callback: String = url::form_urlencoded::byte_serialize(sick.url("/cb").as_bytes()).collect();

    let token = "{\"name\": \"library\", \"topic_prefixes\": [\"http://example.com/\"]}";
    let deny = format!("{{\"ids\": [{id}], \"reason\": \"moved\"}}");
    let asked = [
        ("GET", "status".to_owned(), ""),
        ("GET", "overview".to_owned(), ""),
        ("GET", "topics".to_owned(), ""),
        ("GET", format!("topics/{topic}"), ""),
        ("GET", format!("topics/{topic}/subscriptions"), ""),
        ("GET", "subscriptions?limit=1".to_owned(), ""),
        ("GET", format!("subscriptions/{id}"), ""),
        ("GET", format!("subscriptions/{id}/export"), ""),
        ("GET", format!("export?callback={callback}"), ""),
        ("GET", "deliveries/laggards".to_owned(), ""),
        ("GET", "deliveries/hosts".to_owned(), ""),
        ("POST", format!("deliveries/skip?subscription={id}"), ""),
        ("GET", "deliveries/skips".to_owned(), ""),
        ("GET", "deliveries/lost".to_owned(), ""),
        ("POST", format!("deliveries/retry?subscription={id}"), ""),
        ("POST", format!("deliveries/replay?topic={escaped}&from=1"), ""),
        ("POST", format!("deliveries/pause?topic={escaped}"), ""),
        ("GET", "deliveries/paused".to_owned(), ""),
        ("POST", format!("deliveries/resume?topic={escaped}"), ""),
        ("POST", "tokens".to_owned(), token),
        ("GET", "tokens".to_owned(), ""),
        ("DELETE", "tokens/library".to_owned(), ""),
        ("GET", "log".to_owned(), ""),
        ("PUT", "log".to_owned(), "{\"filter\": \"hub=debug\"}"),
        ("POST", "drain".to_owned(), ""),
        ("GET", "drain".to_owned(), ""),
        ("DELETE", "drain".to_owned(), ""),
        ("POST", format!("subscriptions/{id}/address"), ""),
        ("POST", "subscriptions/deny".to_owned(), deny.as_str()),
        ("GET", "audit?limit=3".to_owned(), ""),
    ];
    let refused = [
        ("GET", "topics/7".to_owned(), ""),
        ("GET", "topics?limt=7".to_owned(), ""),
        ("GET", "topics?limit=many".to_owned(), ""),
        ("POST", "tokens".to_owned(), "{"),
        ("DELETE", "tokens/nobody".to_owned(), ""),
    ];
    let mut answers = Vec::new();
    for (number, (method, path, body)) in asked.iter().chain(&refused).enumerate() {
        let answer = answer(&hub, method, path, body).await;
        assert_eq!(answer["status"] == 200, number < asked.len(), "{answer}");
        answers.push(answer);
    }
    let document = hub.admin("/api/v1/openapi.json").await.body;
    fs::write(folder.path().join("document.json"), document).unwrap();
    fs::write(folder.path().join("answers.json"), Value::from(answers).to_string()).unwrap();
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/openapi.py");
    let mut command = Command::new(JUDGES.installed().join("bin/python"));
    let command = command.arg(judge).args(["document.json", "answers.json"]).current_dir(folder.path());
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let judged = format!("{} answers are as described\n", asked.len() + refused.len());
    assert_eq!(said.concat(), judged);
}
