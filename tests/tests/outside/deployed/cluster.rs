//! Several hubs of one database: the files of `deploy/cluster`, as far as Compose, Caddy, kubectl and the hub read them. No container engine, no
//! Patroni, no etcd and no `CloudNativePG` runs here: what only they can know was not tested.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::Command;

use resync_harness::HubProcess;
use resync_hub::config::Durability;
use resync_hub::store::Keyring;
use serde_json::{Value, json};
use tempfile::tempdir;

use super::orchestrators::{config, copy, is_confined, mounted, only, published, strings, validate};
use super::{read, replaced, root, run, said, text, yaml};

const COMPOSE: &str = "deploy/cluster/compose.yaml";
const PATRONI: &str = "deploy/cluster/patroni.yml";
const CADDYFILE: &str = "deploy/cluster/Caddyfile";
const HUBS: [&str; 3] = ["hub1", "hub2", "hub3"];
const SERVERS: [&str; 3] = ["postgres1", "postgres2", "postgres3"];
const VOTERS: [&str; 3] = ["etcd1", "etcd2", "etcd3"];
/// What only the operator knows.
const VARIABLES: [(&str, &str); 7] = [
    ("HUB_NAME", "hub.library.example"),
    ("HUB_ADMIN_TOKEN_FILE", "/etc/resync-hub/admin-token"),
    ("HUB_SECRETS_KEY", "00000000000000000000000000000000000000000000000000000000000000ff"),
    ("HUB_DATABASE_PASSWORD", "firstpassword"),
    ("SUPERUSER_PASSWORD", "secondpassword"),
    ("REPLICATION_PASSWORD", "thirdpassword"),
    ("RESTAPI_PASSWORD", "fourthpassword"),
];

// --- Compose ---

/// Compose, which reads this file and is given all variables but this one.
fn docker_compose(file: &Path, but: Option<&str>) -> Command {
    let mut command = Command::new("docker-compose");
    command.arg("-f").arg(file).arg("config");
    for (name, value) in VARIABLES {
        if but == Some(name) {
            command.env_remove(name);
        } else {
            command.env(name, value);
        }
    }
    command
}

fn compose() -> Value {
    yaml(&said(&mut docker_compose(&root().join(COMPOSE), None))).remove(0)
}

/// The networks of a service; Compose tells them in a list or by their names.
fn networks(service: &Value) -> BTreeSet<String> {
    let networks = &service["networks"];
    match networks.as_object() {
        Some(named) => named.keys().cloned().collect(),
        None => networks.as_array().into_iter().flatten().map(|name| name.as_str().unwrap().into()).collect(),
    }
}

/// Where a service of these writes to: the name of its volume, and the folder.
fn volume(service: &Value) -> (String, String) {
    let volumes = service["volumes"].as_array().unwrap().iter().map(mounted);
    let mut own = volumes.filter(|(source, _)| !source.starts_with('/'));
    let volume = own.next().unwrap();
    assert_eq!(own.next(), None);
    volume
}

#[test]
fn compose_understands_the_file_of_a_cluster_and_asks_for_each_password() {
    let services = compose()["services"].as_object().unwrap().len();
    assert_eq!(services, HUBS.len() + SERVERS.len() + VOTERS.len() + 2);
    for (name, _) in VARIABLES {
        let refused = run(&mut docker_compose(&root().join(COMPOSE), Some(name)));
        assert!(!refused.status.success() && text(&refused).contains(name), "{}", text(&refused));
    }
    assert!(!read(PATRONI).contains("password:"), "a password is a variable");
    let page = read("deploy/README.md");
    let cluster = page.split("\n## ").find(|section| section.starts_with("Several hubs\n")).unwrap();
    for (name, _) in VARIABLES {
        assert!(cluster.contains(&format!("{name}=")), "the page does not name {name}");
    }
}

#[test]
fn every_service_of_a_cluster_is_confined_as_those_of_one_hub_are_and_has_a_volume_of_its_own() {
    let compose = compose();
    let mut taken = BTreeSet::new();
    for (name, service) in compose["services"].as_object().unwrap() {
        is_confined(name, service);
        for (source, _) in service["volumes"].as_array().unwrap().iter().map(mounted) {
            let is_there = if source.starts_with('/') {
                Path::new(&source).exists()
            } else {
                compose["volumes"].get(&source).is_some()
            };
            assert!(is_there, "{name} mounts {source}");
        }
        if !name.starts_with("caddy") {
            assert!(taken.insert(volume(service).0), "{name} shares its volume");
        }
        let image = service["image"].as_str().unwrap();
        assert!(service["build"].is_object() || image.contains(':'), "{image} has no version");
    }
}

#[test]
fn of_a_cluster_only_caddy_is_reached_from_elsewhere_the_database_by_the_hubs_alone_and_elections_by_none() {
    let compose = compose();
    for network in ["database", "elections"] {
        assert_eq!(compose["networks"][network]["internal"], true, "{network}");
    }
    for (name, service) in compose["services"].as_object().unwrap() {
        let ports: Vec<_> = service["ports"].as_array().into_iter().flatten().map(published).collect();
        assert_eq!(name == "caddy", !ports.is_empty(), "{name}: {ports:?}");
        let name = name.as_str();
        let expected: &[&str] = if HUBS.contains(&name) {
            &["database", "default"]
        } else if SERVERS.contains(&name) {
            &["database", "elections"]
        } else if VOTERS.contains(&name) {
            &["elections"]
        } else {
            continue;
        };
        assert!(networks(service).iter().eq(expected), "{name}: {:?}", networks(service));
    }
}

#[test]
fn each_hub_of_a_cluster_understands_its_environment_and_finds_every_server_of_the_database() {
    let compose = compose();
    let memory = compose["services"][HUBS[0]]["mem_limit"].clone();
    assert!(
        read("deploy/compose.yaml").contains("mem_limit: 2g ") && read(COMPOSE).contains("mem_limit: 2g ")
    );
    for name in HUBS {
        let hub = &compose["services"][name];
        let config = config(&strings(&hub["environment"]));
        assert_eq!(config.store.engine.name(), "postgres");
        assert_eq!(config.store.durability, Durability::Proven);
        let url = format!("postgres://hub:firstpassword@{}/hub?sslmode=disable", SERVERS.join(","));
        assert_eq!(config.store.url.reveal(), url);
        assert!(config.admin.listen.ip().is_unspecified() && !config.ingress.trusted_proxies.is_empty());
        assert_eq!(volume(hub).1, config.data_dir.to_str().unwrap());
        assert_eq!(hub["hostname"], name, "by which the others know it");
        assert_eq!([&hub["mem_limit"], &hub["stop_grace_period"]], [&memory, &json!("15s")]);
        let build = Path::new(hub["build"]["context"].as_str().unwrap());
        assert!(build.join(hub["build"]["dockerfile"].as_str().unwrap()).is_file());
    }
}

#[test]
fn all_hubs_of_a_cluster_have_one_token_of_the_operator_and_one_key_of_secrets() {
    let compose = compose();
    assert_eq!(compose["secrets"]["admin-token"]["file"], "/etc/resync-hub/admin-token");
    for name in HUBS {
        let hub = &compose["services"][name];
        let config = config(&strings(&hub["environment"]));
        assert_eq!(config.admin_token_file(), Path::new("/run/secrets/admin-token"));
        let given = hub["secrets"].as_array().unwrap();
        assert_eq!(given.len(), 1, "{name}");
        let source = given[0].as_str().or_else(|| given[0]["source"].as_str());
        assert_eq!(source, Some("admin-token"), "{name}");
        assert_eq!(config.secrets.key(), Some(VARIABLES[2].1));
        assert!(Keyring::of(&config.secrets).unwrap().writes_with().is_some());
    }
}

#[test]
fn the_pages_of_a_cluster_are_there_for_this_machine_once_their_line_counts() {
    let line = "#ports: [\"127.0.0.1:8081:8081\"]";
    let folder = tempdir().unwrap();
    let file = folder.path().join("compose.yaml");
    fs::write(&file, replaced(&read(COMPOSE), line, line.trim_start_matches('#'))).unwrap();
    let compose = yaml(&said(&mut docker_compose(&file, None))).remove(0);
    let hub = &compose["services"][HUBS[0]];
    let ports: Vec<_> = hub["ports"].as_array().unwrap().iter().map(published).collect();
    let admin = config(&strings(&hub["environment"])).admin.listen.port();
    assert_eq!(ports, [("127.0.0.1".to_owned(), admin.to_string())]);
}

// --- the database ---

#[test]
fn patroni_acknowledges_nothing_without_a_standby_as_the_page_demands() {
    let patroni = yaml(&read(PATRONI)).remove(0);
    let dcs = &patroni["bootstrap"]["dcs"];
    let page = read("docs/cluster.md");
    for setting in ["synchronous_mode", "synchronous_mode_strict"] {
        assert_eq!(dcs[setting], true, "{setting}");
        assert!(page.contains(&format!("`{setting}`")), "the page does not demand {setting}");
    }
    let seconds = |name: &str| dcs[name].as_u64().unwrap();
    assert!(seconds("ttl") >= 20, "the least that Patroni documents");
    assert!(seconds("loop_wait") + 2 * seconds("retry_timeout") <= seconds("ttl"), "the same");
    assert!(page.contains(&format!("`ttl` {}", seconds("ttl"))), "the page tells another ttl");
    assert_eq!(seconds("primary_start_timeout"), 0);
    let soon = json!([{"checkpoint": "fast"}]);
    assert_eq!(patroni["postgresql"]["basebackup"], soon, "while there is no standby nothing is accepted");
    // A hub refuses a server without these, and every session asks for the last one itself.
    for setting in ["fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names"] {
        assert!(!read(PATRONI).contains(setting), "{setting} is left alone");
    }
}

#[test]
fn each_server_of_a_cluster_is_known_to_patroni_by_its_own_name_and_keeps_its_data_in_its_volume() {
    let (compose, patroni) = (compose(), yaml(&read(PATRONI)).remove(0));
    let port = |listen: &Value| listen.as_str().unwrap().strip_prefix("0.0.0.0:").unwrap().to_owned();
    let database = port(&patroni["postgresql"]["listen"]);
    assert_eq!(patroni["etcd3"]["hosts"], json!(VOTERS.map(|name| format!("{name}:2379"))));
    let data = Path::new(patroni["postgresql"]["data_dir"].as_str().unwrap());
    assert!(patroni["restapi"].is_null(), "it would count for networks that hubs are in");
    for (number, name) in (1..).zip(SERVERS) {
        let server = &compose["services"][name];
        let given = strings(&server["environment"]);
        assert_eq!(given["PATRONI_NAME"], name);
        assert_eq!(given["PATRONI_POSTGRESQL_CONNECT_ADDRESS"], format!("{name}:{database}"));
        // Patroni listens where only servers and voters are, and changes nothing for who does not know the password.
        let alias = format!("patroni{number}");
        assert_eq!(server["networks"]["elections"]["aliases"], json!([alias]));
        assert!(server["networks"]["database"]["aliases"].is_null());
        for name in ["PATRONI_RESTAPI_LISTEN", "PATRONI_RESTAPI_CONNECT_ADDRESS"] {
            assert_eq!(given[name], format!("{alias}:8008"));
        }
        assert!(!given["PATRONI_RESTAPI_USERNAME"].is_empty());
        assert_eq!(given["PATRONI_RESTAPI_PASSWORD"], "fourthpassword");
        assert_eq!(data.parent(), Some(Path::new(&volume(server).1)));
        assert_eq!(given["HUB_DATABASE_PASSWORD"], "firstpassword");
        let health = server["healthcheck"]["test"].to_string();
        let asked = "'http://' + os.environ['PATRONI_RESTAPI_LISTEN'] + '/liveness'";
        assert!(health.contains(asked), "{health}");
    }
    let members = VOTERS.map(|name| format!("{name}=http://{name}:2380")).join(",");
    for name in VOTERS {
        let voter = &compose["services"][name];
        let given = strings(&voter["environment"]);
        assert_eq!(given["ETCD_NAME"], name);
        assert_eq!(given["ETCD_INITIAL_CLUSTER"], members);
        assert_eq!(given["ETCD_ADVERTISE_CLIENT_URLS"], format!("http://{name}:2379"));
        assert_eq!(given["ETCD_INITIAL_ADVERTISE_PEER_URLS"], format!("http://{name}:2380"));
        assert_eq!(Path::new(&given["ETCD_DATA_DIR"]).parent(), Some(Path::new(&volume(voter).1)));
    }
}

#[test]
fn the_image_of_the_database_has_what_patroni_is_told_to_use_and_belongs_to_the_user_of_its_services() {
    let (compose, patroni) = (compose(), yaml(&read(PATRONI)).remove(0));
    let image = read("deploy/cluster/Containerfile");
    let from = image.lines().find_map(|line| line.strip_prefix("FROM ")).unwrap();
    assert!(from.ends_with(":12.11-slim"), "{from}: PostgreSQL and Patroni are as old as the release");
    let version = patroni["postgresql"]["bin_dir"].as_str().unwrap().split('/').nth(4).unwrap().to_owned();
    for package in ["etcd-client", "etcd-server", "patroni", &format!("postgresql-{version}"), "python3-etcd"]
    {
        assert!(image.contains(&format!(" {package}")), "{package}");
    }
    let script = patroni["bootstrap"]["post_bootstrap"].as_str().unwrap();
    assert!(image.contains(&format!("COPY --chmod=755 make-database {script}\n")));
    let user = image.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    let (uid, gid) = user.split_once(':').unwrap();
    let mut folders = BTreeSet::new();
    for name in SERVERS.iter().chain(&VOTERS) {
        let service = &compose["services"][*name];
        assert_eq!(service["user"], user, "{name}");
        folders.insert(volume(service).1);
    }
    let folders: Vec<_> = folders.into_iter().collect();
    let made = format!("install --directory --owner={uid} --group={gid} --mode=700 {}\n", folders.join(" "));
    assert!(image.contains(&made), "{made}");
}

#[test]
fn the_hubs_role_may_see_what_standbys_have_wherever_its_database_is_made() {
    let script = root().join("deploy/cluster/make-database");
    said(Command::new("sh").arg("-n").arg(&script));
    assert!(read("deploy/cluster/make-database").contains("GRANT pg_monitor TO hub;"));
    let database = database(&kustomized(&[]));
    let granted = &database["spec"]["bootstrap"]["initdb"]["postInitApplicationSQL"];
    assert_eq!(*granted, json!(["GRANT pg_monitor TO hub"]));
    assert!(read("docs/cluster.md").contains("`pg_monitor`"));
}

// --- the proxy ---

#[test]
fn caddy_sends_to_every_hub_of_a_cluster_that_says_it_is_ready_and_has_every_value_that_its_file_takes() {
    let compose = compose();
    let given = strings(&compose["services"]["caddy"]["environment"]);
    let file = read(CADDYFILE);
    let taken: BTreeSet<_> =
        file.split("{$").skip(1).map(|rest| rest.split([':', '}']).next().unwrap()).collect();
    assert_eq!(taken, given.keys().map(String::as_str).collect::<BTreeSet<_>>());
    let home = tempdir().unwrap();
    let mut adapt = Command::new("caddy");
    adapt.args(["adapt", "--adapter", "caddyfile", "--config"]).arg(root().join(CADDYFILE)).envs(&given);
    for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        adapt.env(name, home.path());
    }
    let adapted = said(&mut adapt);
    for name in HUBS {
        let hub = config(&strings(&compose["services"][name]["environment"]));
        let upstream = format!("\"dial\":\"{name}:{}\"", hub.listen.port());
        assert!(adapted.contains(&upstream), "{upstream}: {adapted}");
        assert!(adapted.contains(&format!("\"port\":{}", hub.admin.listen.port())), "{adapted}");
    }
    // What both files say of what is passed on, and of what is in no log.
    let of_one = read("deploy/Caddyfile");
    for line in ["max_size 1MiB", "@hub path /websub /websub/*", "replace ticket hidden", "respond 404"] {
        assert_eq!(file.matches(line).count(), of_one.matches(line).count(), "{line}");
    }
}

#[tokio::test]
async fn a_hub_answers_where_caddy_and_kubernetes_ask_for_its_health() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let file = read(CADDYFILE);
    let mut paths = vec![file.split("health_uri ").nth(1).unwrap().lines().next().unwrap().to_owned()];
    let pod = hubs(&kustomized(&[]))["spec"]["template"]["spec"]["containers"][0].clone();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(pod[probe]["httpGet"]["port"], "admin");
        paths.push(pod[probe]["httpGet"]["path"].as_str().unwrap().to_owned());
    }
    for path in paths {
        assert_eq!(hub.admin(&path).await.status, 200, "{path}");
    }
}

// --- Kubernetes ---

/// What kubectl makes of the files, with these components of those for one hub.
fn kustomized(components: &[&str]) -> String {
    let folder = tempdir().unwrap();
    copy("deploy/kubernetes", &folder.path().join("kubernetes"));
    copy("deploy/cluster/kubernetes", &folder.path().join("cluster/kubernetes"));
    let file = folder.path().join("cluster/kubernetes/kustomization.yaml");
    let mut whole = fs::read_to_string(&file).unwrap();
    for component in components {
        let offer = format!("../../kubernetes/{component} ");
        whole = replaced(&whole, &format!("  #- {offer}"), &format!("  - {offer}"));
    }
    fs::write(&file, whole).unwrap();
    said(Command::new("kubectl").arg("kustomize").arg(file.parent().unwrap()))
}

fn hubs(objects: &str) -> Value {
    only(objects, |object| object["kind"] == "StatefulSet")
}

fn database(objects: &str) -> Value {
    only(objects, |object| object["kind"] == "Cluster")
}

#[test]
fn kubernetes_own_schemas_hold_for_the_objects_of_a_cluster_but_for_those_of_operators() {
    let all = kustomized(&["ingress", "servicemonitor"]);
    let of_operators = ["kind: ServiceMonitor\n", "kind: Cluster\n"];
    let known: Vec<_> =
        all.split("---\n").filter(|object| !of_operators.iter().any(|kind| object.contains(kind))).collect();
    let verdict = validate(&known.join("---\n"));
    assert!(verdict.status.success(), "{}", text(&verdict));
    assert_eq!(text(&verdict).matches(" passed for resource ").count(), 7, "{}", text(&verdict));
    assert_eq!(yaml(&all).len(), 9);
}

#[test]
fn cloudnativepg_is_asked_for_three_servers_of_which_two_have_what_is_acknowledged() {
    let spec = database(&kustomized(&[]))["spec"].clone();
    assert_eq!(spec["instances"], 3);
    let synchronous = json!({"method": "any", "number": 1, "dataDurability": "required"});
    assert_eq!(spec["postgresql"]["synchronous"], synchronous);
    assert_eq!(spec["affinity"]["podAntiAffinityType"], "required", "each on another node");
    let (_, version) = spec["imageName"].as_str().unwrap().rsplit_once(':').unwrap();
    let major: u32 = version.split('.').next().unwrap().parse().unwrap();
    assert!(major >= 14 && version.contains('.'), "{version}");
    assert!(read("docs/cluster.md").contains("`dataDurability: required`"));
    for (name, value) in spec["postgresql"]["parameters"].as_object().unwrap() {
        assert!(value.is_string(), "{name}: CloudNativePG takes strings only");
    }
}

#[test]
fn the_hubs_in_kubernetes_understand_their_environment_and_take_url_and_ca_from_secrets_of_the_database() {
    let all = kustomized(&[]);
    let (set, database) = (hubs(&all), database(&all));
    let cluster = database["metadata"]["name"].as_str().unwrap();
    let pod = &set["spec"]["template"]["spec"];
    let hub = &pod["containers"][0];
    let mut environment = strings(&only(&all, |object| object["kind"] == "ConfigMap")["data"]);
    let url = format!("postgresql://hub:password@{cluster}-rw.namespace:5432/hub");
    for variable in hub["env"].as_array().unwrap() {
        let value = variable["value"].as_str().unwrap_or_else(|| {
            let of = json!({"name": format!("{cluster}-app"), "key": "uri"});
            assert_eq!(variable["valueFrom"]["secretKeyRef"], of);
            &url
        });
        environment.insert(variable["name"].as_str().unwrap().to_owned(), value.to_owned());
    }
    let config = config(&environment);
    assert_eq!(config.store.engine.name(), "postgres");
    assert_eq!((config.store.durability, config.store.url.reveal()), (Durability::Proven, url.as_str()));
    let mounts: HashMap<_, _> = hub["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| (mount["mountPath"].as_str().unwrap(), mount["name"].clone()))
        .collect();
    let secret = |name: &Value| {
        let volumes = pod["volumes"].as_array().unwrap();
        volumes.iter().find(|volume| volume["name"] == *name).unwrap().clone()
    };
    let ca = secret(&mounts[config.store.ca.parent().unwrap().to_str().unwrap()])["secret"].clone();
    assert_eq!(ca["secretName"], format!("{cluster}-ca"));
    let file = config.store.ca.file_name().unwrap().to_str().unwrap();
    assert_eq!(ca["items"], json!([{"key": "ca.crt", "path": file}]), "not the key of the CA");
    let keys = config.secrets.key_file().unwrap();
    let made = secret(&mounts[keys.parent().unwrap().to_str().unwrap()])["secret"]["secretName"].clone();
    let file = keys.file_name().unwrap().to_str().unwrap();
    let line = format!(" {} --from-file={file}=/dev/stdin", made.as_str().unwrap());
    assert!(read("deploy/README.md").contains(&line), "{line}");
    // There each hub keeps how far the database was.
    let disk = &set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"];
    assert_eq!(mounts[config.data_dir.to_str().unwrap()], *disk);
}

#[test]
fn in_kubernetes_three_hubs_are_there_of_which_one_may_be_away_and_who_is_not_ready_gets_nothing() {
    let all = kustomized(&[]);
    let set = hubs(&all);
    assert_eq!(set["spec"]["replicas"], 3);
    let labels = set["spec"]["template"]["metadata"]["labels"].clone();
    let budget = only(&all, |object| object["kind"] == "PodDisruptionBudget")["spec"].clone();
    assert_eq!([&budget["maxUnavailable"], &budget["selector"]["matchLabels"]], [&json!(1), &labels]);
    let spread = &set["spec"]["template"]["spec"]["topologySpreadConstraints"][0];
    assert_eq!(spread["labelSelector"]["matchLabels"], labels);
    let service = only(&all, |object| object["kind"] == "Service")["spec"].clone();
    assert_eq!(service["selector"], labels);
    assert!(service["publishNotReadyAddresses"].is_null());
    let policy = only(&all, |object| object["kind"] == "NetworkPolicy")["spec"]["egress"].clone();
    let to_database = policy.as_array().unwrap().last().unwrap();
    let name = database(&all)["metadata"]["name"].clone();
    let expected = json!([{"podSelector": {"matchLabels": {"cnpg.io/cluster": name}}}]);
    assert_eq!(to_database["to"], expected);
    assert_eq!(to_database["ports"], json!([{"port": 5432, "protocol": "TCP"}]));
}

#[test]
fn in_kubernetes_a_job_with_all_that_hubs_have_says_that_the_database_was_restored_while_there_is_none() {
    let all =
        said(Command::new("kubectl").arg("kustomize").arg(root().join("deploy/cluster/kubernetes-restored")));
    let set = hubs(&all);
    assert_eq!(set["spec"]["replicas"], 0);
    let template = only(&all, |object| object["kind"] == "Job")["spec"]["template"].clone();
    let of_hubs = &set["spec"]["template"];
    assert_ne!(template["metadata"]["labels"], of_hubs["metadata"]["labels"], "clients are sent to hubs");
    let (job, hub) = (&template["spec"], &of_hubs["spec"]);
    for part in ["securityContext", "volumes", "automountServiceAccountToken", "enableServiceLinks"] {
        assert_eq!(job[part], hub[part], "{part}");
    }
    let (restored, serve) = (&job["containers"][0], &hub["containers"][0]);
    for part in ["image", "env", "envFrom", "resources", "securityContext"] {
        assert_eq!(restored[part], serve[part], "{part}");
    }
    assert_eq!(restored["args"], json!(["restored"]));
    let mut mounts = serve["volumeMounts"].as_array().unwrap().clone();
    mounts.retain(|mount| mount["name"] != "data" && mount["name"] != "admin");
    assert_eq!(restored["volumeMounts"], Value::from(mounts), "it needs neither a disk nor the token");
    let verdict = validate(all.split("---\n").find(|object| object.contains("kind: Job\n")).unwrap());
    assert!(verdict.status.success(), "{}", text(&verdict));
    assert!(read("docs/cluster.md").contains("deploy/cluster/kubernetes-restored"));
}
