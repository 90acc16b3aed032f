//! Compose and Kubernetes: their own tools read the files, and what only the hub can know about them is checked here.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use resync_harness::python_with;
use resync_hub::config::{self, Config};
use serde_json::{Value, json};
use tempfile::tempdir;

use super::{read, replaced, root, run, said, text, yaml};

/// From `PyPI`, with the schemas of Kubernetes itself.
const VALIDATOR: &str = "kubernetes-validate==1.37.0";

/// The configuration of a hub that has this environment on top of that of its image.
fn config(environment: &HashMap<String, String>) -> Config {
    let image = HashMap::from([
        ("RESYNC_HUB_LISTEN", "0.0.0.0:8080"),
        ("RESYNC_HUB_ADMIN_LISTEN", "127.0.0.1:8081"),
        ("RESYNC_HUB_DATA_DIR", "/var/lib/resync-hub"),
    ]);
    for (name, value) in &image {
        assert!(
            read("deploy/Containerfile").contains(&format!("{name}={value}")),
            "the image has {name}={value}"
        );
    }
    for name in environment.keys() {
        assert!(name.starts_with("RESYNC_HUB_"), "{name} is no key of the hub");
    }
    let image = image.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    // One that the hub does not know would be refused here.
    config::load(None, image.chain(environment.clone()), &Vec::new()).unwrap()
}

fn strings(map: &Value) -> HashMap<String, String> {
    let entries = map.as_object().unwrap().iter();
    entries.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect()
}

// --- Compose ---

/// Where the one who starts it keeps the operator's token.
const TOKEN_FILE: &str = "/etc/hostname";

fn compose() -> Value {
    let mut command = Command::new("docker-compose");
    command.arg("-f").arg(root().join("deploy/compose.yaml")).arg("config");
    command.env("GRAFANA_PASSWORD", "secret").env("ADMIN_TOKEN_FILE", TOKEN_FILE);
    yaml(&said(&mut command)).remove(0)
}

/// From which address a port is reached, and which port of the container that is. Compose 1 tells it in a line, Compose 2 by its parts.
fn published(port: &Value) -> (String, String) {
    match port.as_str() {
        Some(line) => {
            let parts: Vec<_> = line.split(':').collect();
            let from = if parts.len() == 3 { parts[0] } else { "" };
            let to = parts.last().unwrap().split('/').next().unwrap();
            (from.to_owned(), to.to_owned())
        }
        None => (port["host_ip"].as_str().unwrap_or_default().to_owned(), port["target"].to_string()),
    }
}

/// What is mounted, and where.
fn mounted(volume: &Value) -> (String, String) {
    let mut parts = match volume.as_str() {
        Some(line) => line.split(':').map(ToOwned::to_owned).collect(),
        None => ["source", "target"].map(|part| volume[part].as_str().unwrap().to_owned()).to_vec(),
    }
    .into_iter();
    (parts.next().unwrap(), parts.next().unwrap())
}

#[test]
fn both_ways_in_which_compose_tells_of_ports_and_volumes_are_understood() {
    let old = [json!("127.0.0.1:80:8080/tcp"), json!("80:8081/tcp"), json!("/a/b:/c:ro"), json!("hub:/d:rw")];
    let new = [
        json!({"mode": "ingress", "host_ip": "127.0.0.1", "target": 8080, "published": "80", "protocol": "tcp"}),
        json!({"mode": "ingress", "target": 8081, "published": "80", "protocol": "tcp"}),
        json!({"type": "bind", "source": "/a/b", "target": "/c", "read_only": true, "bind": {}}),
        json!({"type": "volume", "source": "hub", "target": "/d", "volume": {}}),
    ];
    let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    for [open, wide, folder, volume] in [old, new] {
        assert_eq!([published(&open), published(&wide)], [pair("127.0.0.1", "8080"), pair("", "8081")]);
        assert_eq!([mounted(&folder), mounted(&volume)], [pair("/a/b", "/c"), pair("hub", "/d")]);
    }
}

#[test]
fn compose_understands_its_file_and_asks_for_a_password_and_for_the_operators_token() {
    assert_eq!(compose()["services"].as_object().unwrap().len(), 3);
    for (missing, said) in
        [("GRAFANA_PASSWORD", "ADMIN_TOKEN_FILE"), ("ADMIN_TOKEN_FILE", "GRAFANA_PASSWORD")]
    {
        let mut command = Command::new("docker-compose");
        command.arg("-f").arg(root().join("deploy/compose.yaml")).arg("config");
        let refused = run(command.env_remove(missing).env(said, TOKEN_FILE));
        assert!(!refused.status.success() && text(&refused).contains(missing), "{}", text(&refused));
    }
}

#[test]
fn nothing_of_the_compose_file_is_reached_from_elsewhere_and_everything_it_mounts_is_there() {
    let compose = compose();
    for (name, service) in compose["services"].as_object().unwrap() {
        for port in service["ports"].as_array().into_iter().flatten() {
            let (from, to) = published(port);
            assert!(from == "127.0.0.1" && to != "8081", "{name}: {port}");
        }
        for volume in service["volumes"].as_array().unwrap() {
            let (source, _) = mounted(volume);
            let source = source.as_str();
            let is_there = if source.starts_with('/') {
                Path::new(source).is_dir()
            } else {
                compose["volumes"].get(source).is_some()
            };
            assert!(is_there, "{name} mounts {source}");
        }
    }
}

#[test]
fn in_the_compose_file_prometheus_reaches_the_hub_and_its_data_is_kept() {
    let compose = compose();
    let hub = &compose["services"]["hub"];
    let environment = strings(&hub["environment"]);
    let config = config(&environment);
    assert!(config.admin.listen.ip().is_unspecified());
    assert!(
        read("deploy/prometheus/prometheus.yml").contains(&format!("\"hub:{}\"", config.admin.listen.port()))
    );
    let volumes = hub["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| mounted(volume).1 == config.data_dir.to_str().unwrap()));
    assert!(!config.ingress.trusted_proxies.is_empty());
    assert_eq!(hub["stop_grace_period"], "15s");
    // Compose 2 tells a secret by its parts.
    let secret = hub["secrets"][0].as_str().or(hub["secrets"][0]["source"].as_str()).unwrap();
    assert_eq!(compose["secrets"][secret]["file"], TOKEN_FILE);
    assert_eq!(config.admin_token_file(), Path::new("/run/secrets").join(secret));
    let build = root().join("deploy").join("..").join(hub["build"]["dockerfile"].as_str().unwrap());
    assert!(build.is_file());
}

// --- Kubernetes ---

fn kustomized() -> String {
    said(Command::new("kubectl").arg("kustomize").arg(root().join("deploy/kubernetes")))
}

/// The one object of a kind.
fn object(kind: &str) -> Value {
    let mut found: Vec<_> = yaml(&kustomized()).into_iter().filter(|object| object["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "{kind}");
    found.remove(0)
}

#[test]
fn kubernetes_own_schemas_hold_for_every_object_and_would_not_for_a_misspelt_one() {
    let folder = tempdir().unwrap();
    let python = folder.path().join("python");
    python_with(&python, &[VALIDATOR]).unwrap();
    let objects = kustomized();
    let path = folder.path().join("all.yaml");
    let validate = |text: &str| {
        fs::write(&path, text).unwrap();
        run(Command::new(python.join("bin/kubernetes-validate")).arg("--strict").arg(&path))
    };
    let verdict = validate(&objects);
    assert!(verdict.status.success(), "{}", text(&verdict));
    assert_eq!(text(&verdict).matches(" passed for resource ").count(), 5, "{}", text(&verdict));
    let misspelt = validate(&replaced(&objects, "readinessProbe:", "readynessProbe:"));
    assert!(!misspelt.status.success(), "{}", text(&misspelt));
}

#[test]
fn there_is_one_hub_with_a_disk_of_its_own_and_time_to_stop() {
    let set = object("StatefulSet");
    assert_eq!(set["spec"]["replicas"], 1, "a store has one owner");
    let pod = &set["spec"]["template"]["spec"];
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > 10);
    let hub = &pod["containers"][0];
    let mut environment = strings(&object("ConfigMap")["data"]);
    for variable in hub["env"].as_array().unwrap() {
        let [name, value] = ["name", "value"].map(|part| variable[part].as_str().unwrap().to_owned());
        environment.insert(name, value);
    }
    let config = config(&environment);
    // The operator's token is that of a Secret, which the hub's user may read.
    let (secret, volume) = (&hub["volumeMounts"][1], &pod["volumes"][0]);
    assert_eq!(config.admin_token_file().parent().unwrap(), Path::new(secret["mountPath"].as_str().unwrap()));
    assert_eq!(secret["name"], volume["name"]);
    let made = format!(
        "create secret generic --namespace resync-hub {}",
        volume["secret"]["secretName"].as_str().unwrap()
    );
    assert!(read("deploy/README.md").contains(&made), "{made}");
    assert_eq!(volume["secret"]["defaultMode"], 0o440);
    assert_eq!(pod["securityContext"]["fsGroup"], pod["securityContext"]["runAsGroup"]);
    assert_eq!(pod["enableServiceLinks"], false, "they would look like settings");
    let mount = &hub["volumeMounts"][0];
    assert_eq!(mount["mountPath"].as_str().unwrap(), config.data_dir.to_str().unwrap());
    assert_eq!(set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], mount["name"]);
    assert_eq!(hub["envFrom"][0]["configMapRef"]["name"], object("ConfigMap")["metadata"]["name"]);
    let user = pod["securityContext"]["runAsUser"].as_u64().unwrap();
    assert!(read("deploy/Containerfile").contains(&format!("USER {user}:{user}")));
    assert_eq!(hub["securityContext"]["readOnlyRootFilesystem"], true);

    let ports: HashMap<_, _> = hub["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| (port["name"].clone(), port["containerPort"].clone()))
        .collect();
    assert_eq!(ports[&Value::from("http")], config.listen.port());
    assert_eq!(ports[&Value::from("admin")], config.admin.listen.port());
    for (probe, path) in
        [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
    {
        assert_eq!(hub[probe]["httpGet"]["path"], path);
        assert_eq!(hub[probe]["httpGet"]["port"], "admin");
    }
    let patience = |probe: &str| {
        hub[probe]["periodSeconds"].as_u64().unwrap() * hub[probe]["failureThreshold"].as_u64().unwrap()
    };
    assert!(patience("livenessProbe") >= 10 * patience("readinessProbe"), "slow and fast to fail");
}

#[test]
fn everything_in_kubernetes_is_about_the_same_pod_and_the_admin_port_is_for_prometheus_only() {
    let labels = object("StatefulSet")["spec"]["template"]["metadata"]["labels"].clone();
    assert_eq!(object("StatefulSet")["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(object("Service")["spec"]["selector"], labels);
    assert_eq!(object("PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels);
    let policy = object("NetworkPolicy");
    assert_eq!(policy["spec"]["podSelector"]["matchLabels"], labels);
    for rule in policy["spec"]["ingress"].as_array().unwrap() {
        let opens = |port: &str| rule["ports"].as_array().unwrap().iter().any(|open| open["port"] == port);
        assert!(!opens("admin") || !rule["from"].is_null(), "the admin port is not for everybody");
    }
    assert_eq!(object("Service")["spec"]["publishNotReadyAddresses"], true, "there is no other pod");
    for port in object("Service")["spec"]["ports"].as_array().unwrap() {
        assert_eq!(port["targetPort"], "http");
    }
    let outside = &policy["spec"]["egress"][1]["to"][0]["ipBlock"]["except"];
    for private in ["10.0.0.0/8", "169.254.0.0/16", "192.168.0.0/16"] {
        assert!(outside.as_array().unwrap().contains(&Value::from(private)), "{private}");
    }
}

/// The alerts ask for a job of this name, which no annotation of a pod can give.
#[test]
fn the_job_for_prometheus_in_kubernetes_finds_the_pods_admin_port_under_the_name_of_the_alerts() {
    let job = yaml(&read("deploy/prometheus/kubernetes.yml")).remove(0)["scrape_configs"][0].clone();
    let name = job["job_name"].as_str().unwrap();
    let alerts = read("deploy/prometheus/alerts.yml");
    assert!(alerts.matches("job=").count() > 10);
    assert_eq!(alerts.matches("job=").count(), alerts.matches(&format!("job=\"{name}\"")).count());
    let keep = &job["relabel_configs"][0];
    assert_eq!(keep["action"], "keep");
    let template = object("StatefulSet")["spec"]["template"].clone();
    let label = template["metadata"]["labels"]["app.kubernetes.io/name"].as_str().unwrap().to_owned();
    let ports = template["spec"]["containers"][0]["ports"].as_array().unwrap().clone();
    let kept: Vec<_> = ports
        .iter()
        .filter(|port| {
            keep["regex"].as_str().unwrap() == format!("{label};{}", port["name"].as_str().unwrap())
        })
        .collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0]["name"], "admin");
    assert!(template["metadata"]["annotations"].is_null(), "nothing else scrapes it a second time");
}
