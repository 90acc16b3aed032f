//! The admin API: what its document says is what it does, for nobody but the operator; and what was done is written down.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::net::SocketAddr;

use resync_core::datetime::DateTime;
use resync_harness::{Answer, HubProcess, Receiver, Reply, binary, eventually, refusing, request};
use serde_json::Value;
use tempfile::tempdir;
use tokio::process::Command;

const TOPIC: &str = "http://example.com/framework/";

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.text()))
}

async fn ask(address: SocketAddr, method: &str, path: &str, more: &str) -> Answer {
    let bytes = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{more}Connection: close\r\nContent-Length: 0\r\n\r\n"
    );
    request(address, bytes.as_bytes()).await.unwrap()
}

/// Every operation of the document: its method and its path, with something in the place of each parameter.
fn operations(document: &Value) -> Vec<(String, String)> {
    let base = document["servers"][0]["url"].as_str().unwrap();
    let paths = document["paths"].as_object().unwrap();
    let methods = |(path, methods): (&String, &Value)| {
        let path = path.split('/').map(|part| if part.starts_with('{') { "7" } else { part });
        let path = format!("{base}{}", path.collect::<Vec<_>>().join("/"));
        methods
            .as_object()
            .unwrap()
            .keys()
            .map(|method| (method.to_uppercase(), path.clone()))
            .collect::<Vec<_>>()
    };
    paths.iter().flat_map(methods).collect()
}

fn is_problem(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem = json(answer);
    assert_eq!(problem["status"], status);
    for member in ["type", "title", "detail"] {
        assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{problem}");
    }
}

#[tokio::test]
async fn every_operation_of_the_document_is_there_and_for_the_operator_only() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let document = json(&hub.admin("/api/v1/openapi.json").await);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
    let operations = operations(&document);
    assert!(operations.len() >= 22, "{operations:?}");
    for (method, path) in &operations {
        for token in ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic Og==\r\n"] {
            let answer = ask(hub.admin_address(), method, path, token).await;
            is_problem(&answer, 401);
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{method} {path}");
        }
        let public = ask(hub.address, method, path, "").await.status;
        assert!([404, 405].contains(&public), "{method} {path}: {public}");
        // What asks for something that is not there, or says too little, is a problem; nothing is a missing route.
        let answer = hub.order(method, path, "").await;
        assert_ne!(answer.status, 405, "{method} {path}");
        if answer.status != 200 {
            is_problem(&answer, answer.status);
            assert!(!answer.text().contains("nothing here"), "{method} {path}");
        }
    }
    is_problem(&ask(hub.admin_address(), "GET", "/api/v1/elsewhere", "").await, 401);
    is_problem(&hub.admin("/api/v1/elsewhere").await, 404);
    is_problem(&hub.order("DELETE", "/api/v1/status", "").await, 405);
}

#[tokio::test]
async fn every_reference_of_the_document_leads_somewhere() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let text = hub.admin("/api/v1/openapi.json").await.text();
    let document: Value = serde_json::from_str(&text).unwrap();
    let named: BTreeSet<_> =
        text.split("\"#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(named.len() > 15, "{named:?}");
    for name in named {
        assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
    }
}

#[tokio::test]
async fn lists_come_in_pages_that_hold_everything_once() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destinations = [Receiver::start().await, Receiver::start().await, Receiver::start().await];
    for number in 0..9 {
        let topic = format!("{TOPIC}{}", number % 3);
        hub.subscribe(&topic, &destinations[number % 2].url(&format!("/{number}")), &[], number + 1).await;
    }
    let all = async |path: &str| {
        let (mut items, mut after) = (Vec::new(), String::new());
        loop {
            let page = json(&hub.admin(&format!("{path}?limit=2{after}")).await);
            let entries = page["items"].as_array().unwrap();
            assert!(entries.len() <= 2);
            items.extend(entries.iter().map(|item| item["id"].to_string()));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return items,
            }
        }
    };
    let is_whole = |items: &[String], count: usize| {
        assert_eq!((items.len(), items.iter().collect::<BTreeSet<_>>().len()), (count, count), "{items:?}");
    };
    is_whole(&all("/api/v1/subscriptions").await, 9);
    let topics = all("/api/v1/topics").await;
    is_whole(&topics, 3);
    for topic in topics {
        is_whole(&all(&format!("/api/v1/topics/{}/subscriptions", topic.trim_matches('"'))).await, 3);
    }
    for path in ["subscriptions", "topics", "deliveries/laggards", "deliveries/skips", "audit"] {
        is_problem(&hub.admin(&format!("/api/v1/{path}?after=elsewhere")).await, 400);
        is_problem(&hub.admin(&format!("/api/v1/{path}?limit=many")).await, 400);
    }
}

#[tokio::test]
async fn what_an_operation_does_not_know_is_named_with_what_was_meant() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let refused = async |method: &str, path: &str, body: &str, words: &[&str]| {
        let answer = hub.order(method, &format!("/api/v1/{path}"), body).await;
        is_problem(&answer, 400);
        let detail = json(&answer)["detail"].as_str().unwrap().to_owned();
        assert!(words.iter().all(|word| detail.contains(word)), "{method} {path}: {detail}");
    };
    refused("GET", "topics?limt=1", "", &["\"limt\"", "did you mean limit?"]).await;
    refused("GET", "status?verbose", "", &["\"verbose\"", "there is none"]).await;
    refused("GET", "topics/7/subscriptions?page=2", "", &["\"page\"", "after, limit"]).await;
    refused("GET", "topics?limit=many", "", &["limit", "limit=100"]).await;
    refused("GET", "topics?limit=1&limit=2", "", &["limit"]).await;
    // It would mean nothing there, and the subscription would wait although its operator believes that it does not.
    refused("POST", "deliveries/pause?subscription=7", "", &["\"subscription\""]).await;
    refused("POST", "subscriptions/deny", "{\"id\": [7]}", &["\"id\"", "did you mean ids?"]).await;
    refused("POST", "tokens", "{\"name\": \"x\", \"prefixes\": []}", &["\"prefixes\"", "topic_prefixes"])
        .await;
    refused("PUT", "log", "{\"level\": \"debug\"}", &["\"level\"", "filter"]).await;
    assert_eq!(hub.admin("/api/v1/topics?").await.status, 200);
}

/// The store ends them twice a minute.
#[tokio::test]
async fn w123_a_subscription_whose_lease_is_over_is_in_no_list_and_no_count_from_that_moment_on() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (short, long) = (Receiver::start().await, Receiver::start().await);
    hub.subscribe(TOPIC, &long.url("/long"), &[], 1).await;
    hub.subscribe(TOPIC, &short.url("/short"), &[("hub.lease_seconds", "2")], 2).await;
    let listed = json(&hub.admin("/api/v1/subscriptions").await);
    let items = listed["items"].as_array().unwrap();
    let over = items.iter().find(|item| item["callback_origin"] == short.url("").as_str()).unwrap();
    let (id, end) = (&over["id"], over["lease_end"].as_str().unwrap());
    eventually("its lease is over", async || DateTime::now() > end.parse::<DateTime>().unwrap()).await;

    let status = json(&hub.admin("/api/v1/status").await);
    let listed = json(&hub.admin("/api/v1/subscriptions?limit=1").await);
    let topic = json(&hub.admin("/api/v1/topics").await)["items"][0]["id"].as_str().unwrap().to_owned();
    let detail = json(&hub.admin(&format!("/api/v1/topics/{topic}")).await);
    assert_eq!((&status["subscriptions"], &detail["subscriptions"]), (&1.into(), &1.into()));
    assert_eq!((listed["items"].as_array().unwrap().len(), listed.get("next")), (1, None), "{listed}");
    assert_ne!(&listed["items"][0]["id"], id);
    is_problem(&hub.admin(&format!("/api/v1/subscriptions/{id}")).await, 404);
    eventually("the gauge says so, too", async || {
        hub.admin("/metrics").await.text().contains("\nwebsub_subscriptions 1.0\n")
    })
    .await;
}

#[tokio::test]
async fn a_subscription_tells_why_nothing_arrives_and_not_where_its_callback_is() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    destination.behave(refusing(503));
    hub.subscribe(TOPIC, &destination.url("/a-secret-path"), &[("hub.secret", "hush-hush")], 1).await;
    hub.publish(TOPIC, "one").await.unwrap();
    hub.publish(TOPIC, "two").await.unwrap();
    let id = json(&hub.admin("/api/v1/subscriptions").await)["items"][0]["id"].to_string();
    let path = format!("/api/v1/subscriptions/{id}");
    eventually("the failure is noted", || async {
        json(&hub.admin(&path).await)["recent_attempts"].as_array().is_some_and(|noted| !noted.is_empty())
    })
    .await;
    let answer = hub.admin(&path).await;
    let detail = json(&answer);
    assert_eq!(
        (&detail["behind"], &detail["head"], &detail["signed"]),
        (&2.into(), &2.into(), &true.into()),
        "{detail}"
    );
    assert!(detail["waits"].as_str().unwrap().contains("next attempt is in"), "{detail}");
    let failure = detail["recent_attempts"][0]["failure"].as_str().unwrap();
    assert!(failure.contains("503"), "{failure}");
    assert!(!answer.text().contains("a-secret-path") && !answer.text().contains("hush-hush"));

    destination.behave(|_| Reply::Agree);
    hub.admin_post(&format!("/api/v1/deliveries/retry?subscription={id}"), "").await;
    destination.until_delivered(3).await;
    eventually("it has got everything", || async { json(&hub.admin(&path).await)["behind"] == 0 }).await;
    let detail = json(&hub.admin(&path).await);
    assert_eq!(detail["waits"], "Nothing waits for it.");
    assert!(
        detail["recent_attempts"].as_array().unwrap().iter().any(|note| note.get("failure").is_none()),
        "{detail}"
    );
}

/// What a publisher with this token is answered.
async fn post_with(hub: &HubProcess, token: &str) -> u16 {
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let authorization = format!("Bearer {token}");
    let headers =
        [("Content-Type", "text/plain"), ("Link", link.as_str()), ("Authorization", &authorization)];
    resync_harness::post(hub.address, &headers, b"news").await.unwrap().status
}

#[tokio::test]
async fn tokens_are_made_used_and_revoked_and_every_act_is_written_down_also_across_a_crash() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_public(folder.path(), &[("PUBLISH_POLICY", "token")]).await;
    let wish = "{\"name\": \"library\", \"topic_prefixes\": [\"http://example.com/\"]}";
    let made = json(&hub.admin_post("/api/v1/tokens", wish).await);
    let token = made["token"].as_str().unwrap().to_owned();
    is_problem(&hub.admin_post("/api/v1/tokens", wish).await, 409);
    is_problem(
        &hub.admin_post("/api/v1/tokens", "{\"name\": \"x\", \"topic_prefixes\": [\"ftp://x/\"]}").await,
        400,
    );
    is_problem(&hub.admin_post("/api/v1/tokens", "{").await, 400);
    let listed = hub.admin("/api/v1/tokens").await.text();
    assert!(listed.contains("library") && !listed.contains(&token));

    assert_eq!(post_with(&hub, &token).await, 202);
    assert_eq!(hub.order("DELETE", "/api/v1/tokens/library", "").await.status, 200);
    assert_eq!(post_with(&hub, &token).await, 401);
    is_problem(&hub.order("DELETE", "/api/v1/tokens/library", "").await, 404);
    hub.kill().await;
    hub.restart().await;

    let answer = hub.admin("/api/v1/audit").await;
    let acts = json(&answer);
    let told = |item: &Value| {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        (text("act"), text("by"), text("outcome"))
    };
    let told: Vec<_> = acts["items"].as_array().unwrap().iter().rev().map(told).collect();
    let acts: Vec<_> = told.iter().map(|(act, _, _)| act.as_str()).collect();
    assert_eq!(acts, ["token add", "token add", "token add", "token revoke", "token revoke"]);
    assert!(told.iter().all(|(_, by, _)| by == "api"));
    assert_eq!((told[0].2.as_str(), told[3].2.as_str()), ("made", "done"));
    assert!(told[1].2.contains("already") && told[4].2.contains("no such token"), "{told:?}");
    assert!(!answer.text().contains(&token));
}

/// Root, beside a service whose user comes and goes, could write nothing that this user can read.
#[tokio::test]
async fn the_command_line_lets_the_running_hub_make_and_revoke_tokens_and_writes_nothing_itself() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_public(folder.path(), &[("PUBLISH_POLICY", "token")]).await;
    let (data, environment) = (folder.path().display().to_string(), hub.environment().clone());
    let token = async |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 0 && exec \"$0\" \"$@\""]).arg(binary("resync-hub")).arg("token");
        let output = command.args(arguments).args(["--data-dir", &data]).envs(&environment).output();
        let output = output.await.unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), said)
    };
    let name = "the library / 1";
    let add = ["add", name, "--topic-prefix", "http://example.com/"];
    let (made, said) = token(&add).await;
    assert!(made, "{said}");
    let shown = said.lines().next().unwrap();
    assert_eq!(post_with(&hub, shown).await, 202);
    let (again, said) = token(&add).await;
    assert!(!again && said.contains("already"), "{said}");
    let (listed, said) = token(&["list"]).await;
    assert!(listed && said.starts_with(&format!("{name}\t20")) && !said.contains(shown), "{said}");
    let (revoked, said) = token(&["revoke", name]).await;
    assert!(revoked && said.contains("is revoked"), "{said}");
    assert_eq!(post_with(&hub, shown).await, 401);

    let acts = json(&hub.admin("/api/v1/audit").await);
    let acts = acts["items"].as_array().unwrap();
    assert!(acts.len() == 3 && acts.iter().all(|act| act["by"] == "api"), "{acts:?}");
    hub.stop().await;
    let (written, said) = token(&add).await;
    assert!(!written, "what a stopped hub has it could not write: {said}");
}

#[tokio::test]
async fn an_act_that_cannot_be_written_down_is_not_done() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    hub.publish(TOPIC, "news").await.unwrap();
    let size = std::fs::metadata(folder.path().join("audit.jsonl")).unwrap().len();
    hub.process().limit_files(Some(size));
    let answer = hub
        .admin_post("/api/v1/tokens", "{\"name\": \"x\", \"topic_prefixes\": [\"http://x.example/\"]}")
        .await;
    is_problem(&answer, 503);
    assert!(answer.text().contains("cannot be recorded"), "{}", answer.text());
    hub.process().limit_files(None);
    assert_eq!(json(&hub.admin("/api/v1/tokens").await), Value::Array(Vec::new()));
}
