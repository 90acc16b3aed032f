//! Compose and Kubernetes: their own tools read the files, and what only the hub can know about them is checked here.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use resync_harness::JUDGES;
use resync_hub::config::{self, Config};
use serde_json::{Value, json};
use tempfile::tempdir;
use walkdir::WalkDir;

use super::{read, replaced, root, run, said, text, yaml};

/// The configuration of a hub that has this environment on top of that of its image.
pub(super) fn config(environment: &HashMap<String, String>) -> Config {
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

pub(super) fn strings(map: &Value) -> HashMap<String, String> {
    let entries = map.as_object().unwrap().iter();
    entries.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect()
}

// --- Compose ---

/// What Compose is asked with: the hub alone, and with what watches it.
const HUB: [&str; 1] = ["deploy/compose.yaml"];
const WATCHED: [&str; 2] = ["deploy/compose.yaml", "deploy/compose.monitoring.yaml"];
const VARIABLES: [(&str, &str); 2] = [("HUB_NAME", "hub.library.example"), ("GRAFANA_PASSWORD", "secret")];

fn docker_compose(files: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new("docker-compose");
    for file in files {
        command.arg("-f").arg(root().join(file));
    }
    for (name, _) in VARIABLES {
        command.env_remove(name);
    }
    command.arg("config").envs(variables.iter().copied());
    command
}

/// What Compose makes of both files.
fn compose() -> Value {
    yaml(&said(&mut docker_compose(&WATCHED, &VARIABLES))).remove(0)
}

/// From which address a port is reached, and which port of the container that is. Compose 1 tells it in a line, Compose 2 by its parts.
pub(super) fn published(port: &Value) -> (String, String) {
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
pub(super) fn mounted(volume: &Value) -> (String, String) {
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
fn compose_understands_its_files_and_asks_for_what_only_the_operator_knows() {
    assert_eq!(compose()["services"].as_object().unwrap().len(), 5);
    said(&mut docker_compose(&HUB, &VARIABLES[..1]));
    for (files, given, missing) in
        [(&HUB[..], &[][..], "HUB_NAME"), (&WATCHED[..], &VARIABLES[..1], "GRAFANA_PASSWORD")]
    {
        let refused = run(&mut docker_compose(files, given));
        assert!(!refused.status.success() && text(&refused).contains(missing), "{}", text(&refused));
    }
}

#[test]
fn of_the_compose_files_only_caddy_is_reached_from_elsewhere_and_everything_they_mount_is_there() {
    let compose = compose();
    let mut open = Vec::new();
    for (name, service) in compose["services"].as_object().unwrap() {
        for port in service["ports"].as_array().into_iter().flatten() {
            let (from, to) = published(port);
            if from == "127.0.0.1" {
                assert_ne!(to, "8081", "{name}: {port}");
            } else {
                open.push((name.as_str(), to));
            }
        }
        for volume in service["volumes"].as_array().unwrap() {
            let (source, _) = mounted(volume);
            let source = source.as_str();
            let is_there = if source.starts_with('/') {
                Path::new(source).exists()
            } else {
                compose["volumes"].get(source).is_some()
            };
            assert!(is_there, "{name} mounts {source}");
        }
    }
    open.dedup();
    assert_eq!(open, [("caddy", "8080".to_owned()), ("caddy", "8443".to_owned())]);
}

#[test]
fn every_service_of_the_compose_files_runs_as_nobody_in_particular_writes_to_volumes_only_and_tells_its_health()
 {
    for (name, service) in compose()["services"].as_object().unwrap() {
        is_confined(name, service);
    }
}

/// A service runs as nobody in particular, writes to volumes only, and tells its health.
pub(super) fn is_confined(name: &str, service: &Value) {
    assert_eq!(service["read_only"], true, "{name}");
    assert_eq!(service["cap_drop"], json!(["ALL"]), "{name}");
    assert_eq!(service["security_opt"], json!(["no-new-privileges:true"]), "{name}");
    let user = service["user"].as_str().unwrap();
    // That one prepares Caddy's volumes, without network, and ends.
    if name == "caddy-volumes" {
        assert_eq!([&service["network_mode"], &service["cap_add"]], [&json!("none"), &json!(["CHOWN"])]);
        assert!(service["restart"].is_null());
        return;
    }
    assert!(!user.starts_with('0'), "{name} runs as {user}");
    assert!(service["healthcheck"]["test"][0] == "CMD" && service["restart"] == "unless-stopped", "{name}");
}

#[test]
fn caddy_of_the_compose_file_has_every_value_that_its_file_takes_from_the_environment() {
    let compose = compose();
    let caddy = &compose["services"]["caddy"];
    let given = strings(&caddy["environment"]);
    let file = read("deploy/Caddyfile");
    let mut taken: Vec<_> =
        file.split("{$").skip(1).map(|rest| rest.split([':', '}']).next().unwrap()).collect();
    taken.sort_unstable();
    let mut names: Vec<_> = given.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(taken, names);
    let ports: Vec<_> = caddy["ports"].as_array().unwrap().iter().map(|port| published(port).1).collect();
    assert_eq!(ports, ["HUB_HTTP_PORT", "HUB_HTTPS_PORT", "HUB_HTTPS_PORT"].map(|name| given[name].as_str()));
    let hub = config(&strings(&compose["services"]["hub"]["environment"]));
    assert_eq!(given["HUB_ADDRESS"], format!("hub:{}", hub.listen.port()));
    assert_eq!(hub.public_url.unwrap().host_str(), Some(given["HUB_NAME"].as_str()));
    // Both who prepares the volumes and who uses them.
    assert_eq!(compose["services"]["caddy-volumes"]["image"], caddy["image"]);
    assert_eq!(compose["services"]["caddy-volumes"]["entrypoint"][1], caddy["user"]);
}

#[test]
fn in_the_compose_files_prometheus_reaches_the_hub_and_its_data_is_kept() {
    let compose = compose();
    let hub = &compose["services"]["hub"];
    let config = config(&strings(&hub["environment"]));
    assert!(config.admin.listen.ip().is_unspecified());
    assert!(
        read("deploy/prometheus/prometheus.yml").contains(&format!("\"hub:{}\"", config.admin.listen.port()))
    );
    let volumes = hub["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| mounted(volume).1 == config.data_dir.to_str().unwrap()));
    assert!(!config.ingress.trusted_proxies.is_empty());
    assert_eq!(hub["stop_grace_period"], "15s");
    let image = read("deploy/Containerfile");
    assert!(image.contains(&format!("USER {}\n", hub["user"].as_str().unwrap())));
    // The token is read from the volume, as the page says.
    let token = format!("cp hub:{}", config.admin_token_file().display());
    assert!(read("deploy/README.md").contains(&token), "{token}");
    let build = root().join("deploy").join("..").join(hub["build"]["dockerfile"].as_str().unwrap());
    assert!(build.is_file());
}

// --- Kubernetes ---

/// What may be uncommented in `kustomization.yaml`.
const COMPONENTS: [&str; 2] = ["ingress", "servicemonitor"];

fn kustomized() -> String {
    said(Command::new("kubectl").arg("kustomize").arg(root().join("deploy/kubernetes")))
}

/// The same with these components, for a hub at `https://hub.library.example`.
fn kustomized_with(components: &[&str]) -> String {
    let folder = tempdir().unwrap();
    copy("deploy/kubernetes", folder.path());
    let mut whole = read("deploy/kubernetes/kustomization.yaml");
    for component in components {
        whole = replaced(&whole, &format!("  #- {component} "), &format!("  - {component} "));
    }
    whole = replaced(&whole, "https://hub.example.org", "https://hub.library.example");
    fs::write(folder.path().join("kustomization.yaml"), whole).unwrap();
    said(Command::new("kubectl").arg("kustomize").arg(folder.path()))
}

/// Copies a folder of the repository.
pub(super) fn copy(from: &str, to: &Path) {
    let from = root().join(from);
    for file in WalkDir::new(&from).into_iter().map(Result::unwrap).filter(|file| file.file_type().is_file())
    {
        let copy = to.join(file.path().strip_prefix(&from).unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(file.path(), copy).unwrap();
    }
}

/// What the schemas of Kubernetes say of objects.
pub(super) fn validate(objects: &str) -> Output {
    let folder = tempdir().unwrap();
    let path = folder.path().join("all.yaml");
    fs::write(&path, objects).unwrap();
    run(Command::new(JUDGES.installed().join("bin/kubernetes-validate")).arg("--strict").arg(&path))
}

/// The one object of a kind.
fn object(kind: &str) -> Value {
    only(&kustomized(), |object| object["kind"] == kind)
}

pub(super) fn only(objects: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let mut found: Vec<_> = yaml(objects).into_iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{objects}");
    found.remove(0)
}

#[test]
fn kubernetes_own_schemas_hold_for_every_object_and_would_not_for_a_misspelt_one() {
    // Only the Prometheus Operator knows a ServiceMonitor.
    let all = kustomized_with(&COMPONENTS);
    let known: Vec<_> =
        all.split("---\n").filter(|object| !object.contains("kind: ServiceMonitor")).collect();
    let objects = known.join("---\n");
    let verdict = validate(&objects);
    assert!(verdict.status.success(), "{}", text(&verdict));
    assert_eq!(text(&verdict).matches(" passed for resource ").count(), 7, "{}", text(&verdict));
    let misspelt = validate(&replaced(&objects, "readinessProbe:", "readynessProbe:"));
    assert!(!misspelt.status.success(), "{}", text(&misspelt));
}

#[test]
fn an_ingress_and_a_monitor_are_there_only_for_who_asks_for_them() {
    let kinds = |text: &str| {
        let mut kinds: Vec<_> = yaml(text).iter().map(|it| it["kind"].as_str().unwrap().to_owned()).collect();
        kinds.sort_unstable();
        kinds
    };
    let base = kinds(&kustomized());
    assert_eq!(base.len(), 5);
    for (component, more) in
        [("ingress", &["Ingress"][..]), ("servicemonitor", &["Service", "ServiceMonitor"])]
    {
        let mut expected = [base.clone(), more.iter().map(|kind| (*kind).to_owned()).collect()].concat();
        expected.sort_unstable();
        assert_eq!(kinds(&kustomized_with(&[component])), expected);
    }
}

#[test]
fn the_ingress_passes_the_endpoint_of_the_public_url_on_and_nothing_else() {
    let all = kustomized_with(&["ingress"]);
    let ingress = only(&all, |it| it["kind"] == "Ingress")["spec"].clone();
    let config = config(&strings(&only(&all, |it| it["kind"] == "ConfigMap")["data"]));
    let host = config.public_url.as_ref().and_then(|url| url.host_str()).unwrap();
    assert_eq!(ingress["tls"][0]["hosts"], json!([host]));
    let service = only(&all, |it| it["kind"] == "Service");
    let backend = json!({"service": {"name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}});
    let paths = json!([{"path": "/websub", "pathType": "Prefix", "backend": backend}]);
    assert_eq!(ingress["rules"], json!([{"host": host, "http": {"paths": paths}}]));
}

#[test]
fn the_monitor_finds_the_admin_port_ready_or_not_under_the_name_of_the_alerts() {
    let all = kustomized_with(&["servicemonitor"]);
    let monitor = only(&all, |it| it["kind"] == "ServiceMonitor")["spec"].clone();
    let selected = monitor["selector"]["matchLabels"].as_object().unwrap();
    let service = only(&all, |it| {
        it["kind"] == "Service"
            && selected.iter().all(|(label, value)| it["metadata"]["labels"][label] == *value)
    });
    let pod = object("StatefulSet")["spec"]["template"]["metadata"]["labels"].clone();
    assert_eq!(service["spec"]["selector"], pod);
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    let port = &service["spec"]["ports"][0];
    assert_eq!([&port["name"], &port["targetPort"]], [&monitor["endpoints"][0]["port"], &json!("admin")]);
    let job = &service["metadata"]["labels"][monitor["jobLabel"].as_str().unwrap()];
    assert!(read("deploy/prometheus/alerts.yml").contains(&format!("job={job}")), "{job}");
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
