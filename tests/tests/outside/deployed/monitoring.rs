//! The dashboard and the alerts: they ask for what the hub really measures, and a real Prometheus fires in a staged outage.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use resync_harness::{
    HubProcess, Process, Receiver, Reply, eventually, free_address, happens_within, request,
};
use serde_json::Value;
use tempfile::tempdir;
use tokio::sync::Notify;

use super::{read, replaced, root, run, said, text};

const DASHBOARD: &str = "deploy/grafana/dashboards/resync-hub.json";
const ALERTS: &str = "deploy/prometheus/alerts.yml";
const TOPIC: &str = "http://example.com/framework/";
/// A subscription counts as past due after a minute, which is looked at every ten seconds; the rest is for machines that are busy.
const OUTAGE: Duration = Duration::from_secs(240);

fn dashboard() -> Value {
    serde_json::from_str(&read(DASHBOARD)).unwrap()
}

/// What the panels ask for, by their titles.
fn questions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for panel in dashboard()["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let word = |value: &Value| value.as_str().unwrap().to_owned();
            found.push((word(&panel["title"]), word(&target["expr"])));
        }
    }
    found
}

/// The names of metrics in anything that holds `PromQL`.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("websub_") || word.starts_with("process_")).collect()
}

/// `name="value"` for labels of the hub's own.
fn labels(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in ["result", "outcome", "until", "listener", "reason", "lane"] {
        for rest in text.split(&format!("{name}=\"")).skip(1) {
            found.insert(format!("{name}=\"{}\"", rest.split('"').next().unwrap()));
        }
    }
    found
}

/// A hub that speaks TLS to the public, so that it has a certificate to tell about.
async fn hub_with_certificate(folder: &Path) -> HubProcess {
    let (pair, mut wishes) =
        (KeyPair::generate().unwrap(), CertificateParams::new(["127.0.0.1".to_owned()]).unwrap());
    wishes.not_after = date_time_ymd(2999, 1, 1);
    let (certificate, key) = (folder.join("hub.pem"), folder.join("hub.key"));
    fs::write(&certificate, wishes.self_signed(&pair).unwrap().pem()).unwrap();
    fs::write(&key, pair.serialize_pem()).unwrap();
    let keys =
        [("TLS_CERTIFICATE", certificate.display().to_string()), ("TLS_KEY", key.display().to_string())];
    HubProcess::start_with(&folder.join("data"), &keys.each_ref().map(|(key, value)| (*key, value.as_str())))
        .await
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_ask_for_what_the_hub_measures() {
    let folder = tempdir().unwrap();
    let hub = hub_with_certificate(folder.path()).await;
    let told = hub.admin("/metrics").await.text();
    let series: BTreeSet<&str> = told.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    for file in [DASHBOARD, ALERTS, "deploy/prometheus/alerts_test.yml"] {
        let asked = read(file).replace("\\\"", "\"");
        for name in metrics(&asked) {
            assert!(series.contains(name), "{file} asks for {name}, which the hub does not tell");
        }
        for label in labels(&asked) {
            assert!(told.contains(&label), "{file} asks for {label}, which no series has");
        }
    }
    assert!(metrics(&read(DASHBOARD)).len() > 20 && metrics(&read(ALERTS)).len() > 10);

    let ends = "websub_certificate_not_after_seconds{listener=\"public\"} 32472144000";
    assert!(told.contains(ends), "it ends with the year 2998: {told}");
}

#[tokio::test]
async fn a_misspelt_metric_would_be_found() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let told = hub.admin("/metrics").await.text();
    let misspelt = "sum(websub_past_due_subscription{result=\"acepted\"})";
    assert!(metrics(misspelt).iter().all(|name| !told.contains(&format!("{name} "))));
    assert!(labels(misspelt).iter().all(|label| !told.contains(label)));
}

#[test]
fn promtool_accepts_the_rules_their_configuration_and_what_they_fire_on() {
    let folder = root().join("deploy/prometheus");
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        said(Command::new("promtool").args(arguments).current_dir(&folder));
    }
}

#[test]
fn of_every_alert_promtool_is_shown_what_it_fires_on() {
    let names = |text: &str, mark: &str| -> BTreeSet<String> {
        let after = text.split(mark).skip(1);
        after.map(|rest| rest.split([',', '\n']).next().unwrap().trim().to_owned()).collect()
    };
    let cases = read("deploy/prometheus/alerts_test.yml");
    let firing = cases.split("eval_time: ").filter(|case| case.contains("exp_labels: "));
    let firing: BTreeSet<_> = firing.flat_map(|case| names(case, "alertname: ")).collect();
    assert_eq!(firing, names(&read(ALERTS), "- alert: "));
}

#[test]
fn promtool_would_find_a_rule_that_wakes_nobody() {
    let folder = tempdir().unwrap();
    let deaf = replaced(
        &read(ALERTS),
        "websub_past_due_subscriptions{job=\"resync-hub\"} > 0",
        "websub_past_due_subscriptions > 5",
    );
    fs::write(folder.path().join("alerts.yml"), deaf).unwrap();
    fs::write(folder.path().join("alerts_test.yml"), read("deploy/prometheus/alerts_test.yml")).unwrap();
    let verdict =
        run(Command::new("promtool").args(["test", "rules", "alerts_test.yml"]).current_dir(folder.path()));
    assert!(!verdict.status.success() && text(&verdict).contains("ResyncHubPastDue"), "{}", text(&verdict));
}

#[test]
fn every_alert_says_what_has_happened_and_how_urgent_it_is() {
    let rules = read(ALERTS);
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 10);
    let page = read("docs/operations.md");
    for alert in alerts {
        let name = alert.lines().next().unwrap();
        for part in ["expr: ", "severity: ", "summary: ", "description: "] {
            assert!(alert.contains(part), "{name} has no {part}");
        }
        let short = name.trim_start_matches("ResyncHub");
        assert!(
            page.contains(&format!("`{short}`")),
            "docs/operations.md does not say what to do about {name}"
        );
    }
    assert!(rules.contains("websub_past_due_subscriptions{"), "what the hub owes wakes somebody");
    for of_subscribers in ["websub_laggards", "websub_given_up"] {
        assert!(!rules.contains(of_subscribers), "what subscribers owe wakes nobody");
    }
    assert!(read(DASHBOARD).contains("websub_given_up_total"), "but it is shown");
}

#[test]
fn the_dashboards_panels_lie_beside_each_other_and_explain_themselves() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(panel["description"].as_str().is_some_and(|text| text.len() > 10), "{title}");
        assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + w <= 24, "{title} sticks out");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{title} lies on another panel");
        }
    }
    assert!(panels.len() >= 15);
    let provider = read("deploy/grafana/provisioning/dashboards/resync-hub.yml");
    assert!(
        read("deploy/compose.monitoring.yaml").contains("/grafana/dashboards:/var/lib/grafana/dashboards:ro")
    );
    assert!(provider.contains("path: /var/lib/grafana/dashboards"));
    assert!(
        read("deploy/grafana/provisioning/datasources/prometheus.yml").contains("http://prometheus:9090")
    );
}

/// A real Prometheus with the configuration and the rules of `deploy/`, in more of a hurry.
struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    async fn watch(hub: &HubProcess, folder: &Path) -> Self {
        let config =
            replaced(&read("deploy/prometheus/prometheus.yml"), "hub:8081", &hub.admin_address().to_string());
        fs::write(folder.join("prometheus.yml"), replaced(&config, "15s", "1s")).unwrap();
        let rules = ["for: 1m", "for: 2m", "for: 5m"]
            .iter()
            .fold(read(ALERTS), |rules, patience| replaced(&rules, patience, "for: 1s"));
        fs::write(folder.join("alerts.yml"), rules).unwrap();
        let address = free_address();
        let mut command = tokio::process::Command::new("prometheus");
        command
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .arg(format!("--web.listen-address={address}"));
        let mut process = Process::run("prometheus", &mut command);
        process.line("Server is ready to receive web requests").await;
        Self { address, _process: process }
    }

    async fn get(&self, path: &str) -> Value {
        let bytes = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        let answer = request(self.address, bytes.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// How many series answer a question.
    async fn ask(&self, question: &str) -> usize {
        let question: String = url::form_urlencoded::byte_serialize(question.as_bytes()).collect();
        let answer = self.get(&format!("/api/v1/query?query={question}")).await;
        answer["data"]["result"].as_array().unwrap().len()
    }

    async fn is_firing(&self, alert: &str) -> bool {
        let answer = self.get("/api/v1/alerts").await;
        let alerts = answer["data"]["alerts"].as_array().unwrap();
        alerts.iter().any(|found| found["labels"]["alertname"] == alert && found["state"] == "firing")
    }
}

/// The subscriber's host takes one request and never answers it, so that the others wait for their turn: they could be served, and
/// are not. Then the hub takes nothing new, and in the end it is killed.
#[tokio::test]
async fn a_real_prometheus_draws_every_panel_and_fires_on_what_goes_wrong_in_a_staged_outage_and_only_then() {
    let folder = tempdir().unwrap();
    let keys = [("DELIVERY_PER_HOST", "1"), ("DELIVERY_TIMEOUT", "10m")];
    let mut hub = HubProcess::start_with(&folder.path().join("data"), &keys).await;
    let prometheus = Prometheus::watch(&hub, folder.path()).await;
    let (destination, healed) = (Receiver::start().await, Arc::new(Notify::new()));
    for number in 1..=3 {
        hub.subscribe(TOPIC, &destination.url(&format!("/{number}")), &[], number).await;
    }
    hub.publish(TOPIC, "all is well").await.unwrap();
    destination.until_delivered(3).await;

    let until = Arc::clone(&healed);
    destination.behave(move |seen| {
        if seen.method == http::Method::POST {
            Reply::After(Arc::clone(&until), Box::new(Reply::Agree))
        } else {
            Reply::Agree
        }
    });
    hub.publish(TOPIC, "nobody takes this").await.unwrap();
    for (title, question) in questions() {
        let question = question
            .replace("$job", "resync-hub")
            .replace("$instance", ".+")
            .replace("$__rate_interval", "1m");
        eventually(&format!("{title}: {question}"), || async { prometheus.ask(&question).await > 0 }).await;
    }
    assert!(!prometheus.is_firing("ResyncHubPastDue").await, "not before its time");
    let fires = || prometheus.is_firing("ResyncHubPastDue");
    assert!(happens_within(OUTAGE, fires).await, "nobody was woken");
    assert!(!prometheus.is_firing("ResyncHubDown").await && !prometheus.is_firing("ResyncHubNotReady").await);

    destination.behave(|_| Reply::Agree);
    healed.notify_waiters();
    destination.until_delivered(6).await;
    eventually("the alert is over", || async { !prometheus.is_firing("ResyncHubPastDue").await }).await;

    assert_eq!(hub.admin_post("/api/v1/drain", "").await.status, 200);
    eventually("nothing new is taken", || async { prometheus.is_firing("ResyncHubNotReady").await }).await;
    assert_eq!(hub.order("DELETE", "/api/v1/drain", "").await.status, 200);
    eventually("that is over", || async { !prometheus.is_firing("ResyncHubNotReady").await }).await;
    hub.kill().await;
    eventually("the hub is down", || async { prometheus.is_firing("ResyncHubDown").await }).await;
}
