//! What operators copy from `deploy/`: each file is checked by whoever will read it, as far as that goes without a container engine.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use resync_harness::binary;
use resync_hub::config::{self, Config, ConfigError, PublishPolicy};

/// The most exposure that `systemd-analyze security` may find, in tenths; a newer systemd looks at more than an older one.
const EXPOSURE: &str = "15";

// --- the systemd unit ---

#[test]
fn systemd_understands_every_line_of_the_unit() {
    assert_eq!(complaints(&runnable_unit()), "");
}

#[test]
fn systemd_would_complain_about_a_misspelt_line() {
    let misspelt = runnable_unit().replace("ProtectSystem=", "ProtectSystm=");
    assert!(complaints(&misspelt).contains("ProtectSystm"));
}

#[test]
fn systemd_holds_the_sockets_at_the_addresses_of_the_sample_configuration() {
    let sockets = read("deploy/resync-hub.socket");
    let held: Vec<_> = sockets.lines().filter_map(|line| line.strip_prefix("ListenStream=")).collect();
    let config = load("deploy/hub.toml").unwrap();
    assert_eq!(held, [config.listen.to_string(), config.admin.listen.to_string()]);
    // systemd looks for the service beside the sockets.
    let folder = tempfile::tempdir().unwrap();
    let said = |sockets: &str| {
        fs::write(folder.path().join("resync-hub.service"), runnable_unit()).unwrap();
        let file = folder.path().join("resync-hub.socket");
        fs::write(&file, sockets).unwrap();
        text(&run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(file)))
    };
    let own = |said: String| said.lines().filter(|line| line.contains("resync-hub")).count();
    assert_eq!(own(said(&sockets)), 0, "{}", said(&sockets));
    assert_eq!(own(said(&sockets.replace("Backlog=", "Backlogg="))), 1);
}

#[test]
fn the_unit_exposes_little() {
    let verdict = security(&runnable_unit());
    assert!(verdict.status.success(), "{}", text(&verdict));
}

#[test]
fn systemd_understands_the_units_of_a_source_and_of_a_destination_and_they_expose_little() {
    for program in ["resync-source", "resync-destination"] {
        let unit = read(&format!("deploy/{program}.service"));
        let installed = setting(&unit, "ExecStart").split(' ').next().unwrap();
        let unit = unit.replace(installed, binary(program).to_str().unwrap());
        assert_eq!(complaints(&unit), "", "{program}");
        let verdict = security(&unit);
        assert!(verdict.status.success(), "{}", text(&verdict));
    }
}

#[test]
fn systemd_would_find_an_unprotected_unit_too_exposed() {
    let hardening = ["Protect", "Private", "Restrict", "SystemCall", "Capability", "DynamicUser"];
    let bare: String = runnable_unit()
        .lines()
        .filter(|line| !hardening.iter().any(|name| line.starts_with(name)))
        .flat_map(|line| [line, "\n"])
        .collect();
    let verdict = security(&bare);
    assert!(!verdict.status.success(), "{}", text(&verdict));
}

#[test]
fn the_unit_starts_the_hub_and_does_not_restart_one_with_a_bad_configuration() {
    let unit = read("deploy/resync-hub.service");
    let start = setting(&unit, "ExecStart");
    let (program, arguments) = start.split_once(' ').expect("the hub is started with arguments");
    assert_eq!(Path::new(program).file_name(), Some(OsStr::new("resync-hub")));

    let (_folder, bad) = temporary("hub.toml", "lissten = \"127.0.0.1:0\"\n");
    let bad = bad.to_str().unwrap();
    let arguments =
        arguments.split(' ').map(|word| if word == "/etc/resync-hub/hub.toml" { bad } else { word });
    let output = run(hub().args(arguments));
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    assert!(text(&output).contains("did you mean listen?"), "{}", text(&output));
    assert!(setting(&unit, "RestartPreventExitStatus").split(' ').any(|status| status == "64"));
}

#[test]
fn the_memory_of_each_program_is_bounded_and_that_of_the_hub_alike_everywhere() {
    let bound = |program: &str| setting(&read(&format!("deploy/{program}.service")), "MemoryMax").to_owned();
    for program in ["resync-hub", "resync-source", "resync-destination"] {
        assert!(bound(program).trim_end_matches(['M', 'G']).parse::<u32>().is_ok(), "{program}");
    }
    let hub = bound("resync-hub");
    let gib = hub.strip_suffix('G').unwrap();
    let compose = read("deploy/compose.yaml");
    assert!(compose.contains(&format!("mem_limit: {gib}g ")), "{compose}");
    let set = read("deploy/kubernetes/statefulset.yaml");
    assert!(set.contains(&format!("limits: {{ memory: {gib}Gi }}")), "{set}");
    let page = read("docs/hub.md");
    for said in [format!("`MemoryMax={hub}`"), format!("`mem_limit: {gib}g`"), format!("`{gib}Gi`")] {
        assert!(page.contains(&said), "{said}");
    }
    let page = read("docs/destination.md");
    assert!(page.contains(&format!("`MemoryMax={}`", bound("resync-destination"))));
}

/// The hub asks for five minutes more again and again while its start gets on.
#[test]
fn the_unit_ends_a_start_that_stands_still_and_no_other() {
    assert_eq!(setting(&read("deploy/resync-hub.service"), "TimeoutStartSec"), "5min");
}

#[test]
fn the_unit_lets_the_hub_write_where_the_sample_configuration_says() {
    let unit = read("deploy/resync-hub.service");
    let state = Path::new("/var/lib").join(setting(&unit, "StateDirectory"));
    assert_eq!(load("deploy/hub.toml").unwrap().data_dir, state);
    assert_eq!(setting(&unit, "ConfigurationDirectory"), "resync-hub");
}

/// The service's user, who exists only while it runs, can own no file.
#[test]
fn systemd_hands_the_keys_of_secrets_to_the_hub_as_the_page_on_storage_says() {
    let page = read("docs/storage.md");
    let drop_in = page.split("```ini\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a drop-in");
    assert_eq!(complaints(&format!("{}\n{drop_in}", runnable_unit())), "");
    assert_ne!(complaints(&format!("{}\n{}", runnable_unit(), drop_in.replace("LoadC", "LoudC"))), "");
    let settings =
        page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("settings");
    let (_folder, file) = temporary("hub.toml", settings);
    let handed_over =
        [("CREDENTIALS_DIRECTORY".to_owned(), "/run/credentials/resync-hub.service".to_owned())];
    let config = config::load(Some(file.as_path()), handed_over, &Vec::new()).unwrap();
    assert_eq!(config.secrets.key_file, Path::new("/run/credentials/resync-hub.service/secrets.keys"));
    assert!(setting(drop_in, "LoadCredential").starts_with("secrets.keys:/etc/"));
}

// --- the sample configuration ---

#[test]
fn the_hub_accepts_the_sample_configuration() {
    let output = run(hub().args(["config", "check", "--config"]).arg(root().join("deploy/hub.toml")));
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("public_url is still https://hub.example.org/"), "{}", text(&output));
}

#[test]
fn the_sample_is_a_public_hub_behind_a_proxy() {
    let config = load("deploy/hub.toml").unwrap();
    assert!(config.listen.ip().is_loopback(), "only the proxy reaches it");
    assert!(config.admin.listen.ip().is_loopback());
    assert_eq!(config.public_url.as_ref().map(url::Url::scheme), Some("https"));
    assert_eq!(config.publish.policy, PublishPolicy::Token);
    assert!(config.egress.allow.is_empty(), "no private network is contacted");
    assert!(config.limits.enabled);
    let trusted = |address: &str| {
        config
            .ingress
            .trusted_proxies
            .iter()
            .any(|net| net.contains(&address.parse::<std::net::IpAddr>().unwrap()))
    };
    assert!(trusted("127.0.0.1") && trusted("::1"), "the proxy's address is everybody's address");
    assert!(!trusted("192.0.2.1"));
}

#[test]
fn every_key_that_the_sample_offers_in_a_comment_is_known() {
    let sample = read("deploy/hub.toml");
    let is_offer =
        |line: &&str| line.starts_with('#') && line[1..].starts_with(|c: char| c.is_ascii_lowercase());
    assert!(sample.lines().filter(is_offer).count() >= 5, "offers look like `#key = value`");
    let all: String =
        sample.lines().flat_map(|line| [if is_offer(&line) { &line[1..] } else { line }, "\n"]).collect();
    load_text(&all).unwrap();
}

#[test]
fn a_misspelt_key_in_the_sample_would_be_found() {
    let misspelt = read("deploy/hub.toml").replace("public_url =", "publik_url =");
    let error = load_text(&misspelt).unwrap_err().to_string();
    assert!(error.contains("did you mean public_url?"), "{error}");
}

// --- the words ---

#[test]
fn every_file_that_the_readme_names_exists() {
    let readme = read("deploy/README.md");
    let words = readme.split(|c: char| c.is_whitespace() || c == '`');
    let named: Vec<_> = words.filter(|word| word.starts_with("deploy/")).collect();
    assert!(named.len() >= 3);
    for file in named {
        assert!(root().join(file.trim_end_matches([',', '.'])).exists(), "{file} does not exist");
    }
}

// --- helpers ---

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The built hub, with no setting from outside.
fn hub() -> Command {
    let mut command = Command::new(binary("resync-hub"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RESYNC_HUB_") {
            command.env_remove(name);
        }
    }
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| {
        panic!(
            "{} cannot be run ({error}): tests/run installs what is missing",
            command.get_program().display()
        )
    })
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream)).concat()
}

/// The unit, with the built hub in the place of the installed one, so that systemd finds what is to be started.
fn runnable_unit() -> String {
    let unit = read("deploy/resync-hub.service");
    let installed = setting(&unit, "ExecStart").split(' ').next().unwrap();
    unit.replace(installed, hub().get_program().to_str().unwrap())
}

/// A file of its own folder, which lasts as long as the first value.
fn temporary(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    fs::write(&file, text).unwrap();
    (folder, file)
}

/// The verdict of `systemd-analyze security`: success up to [`EXPOSURE`].
fn security(unit: &str) -> Output {
    let (_folder, file) = temporary("resync-hub.service", unit);
    let threshold = format!("--threshold={EXPOSURE}");
    run(Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", &threshold])
        .arg(file))
}

/// What `systemd-analyze verify` has to say about a unit; what it says about others is this machine's matter.
fn complaints(unit: &str) -> String {
    let (_folder, file) = temporary("resync-hub.service", unit);
    let output = run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(file));
    let said = text(&output);
    let own: Vec<_> = said.lines().filter(|line| line.contains("resync-hub")).collect();
    if own.is_empty() && !output.status.success() { said } else { own.join("\n") }
}

fn setting<'a>(unit: &'a str, name: &str) -> &'a str {
    let value = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("the unit sets no {name}"))
}

fn load(path: &str) -> Result<Config, ConfigError> {
    config::load(Some(&root().join(path)), [], &Vec::new())
}

fn load_text(text: &str) -> Result<Config, ConfigError> {
    let (_folder, file) = temporary("hub.toml", text);
    config::load(Some(&file), [], &Vec::new())
}
