//! Layers of configuration: flags over environment over file over default, each key by itself.

use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

use super::values::DEFAULT_TOML;
use super::{Config, ConfigError};

/// Keys set on the command line, by their dotted names.
pub type Overrides = Vec<(&'static str, String)>;

/// How an environment variable for a key begins.
const ENV_PREFIX: &str = "RESYNC_HUB_";

/// Puts the layers together and checks the result.
///
/// `environment` is asked for variables, so that tests need not change the process.
///
/// # Errors
/// [`ConfigError`] with every mistake found, each with a hint.
pub fn load(
    file: Option<&Path>,
    environment: impl Fn(&str) -> Option<String>,
    flags: &Overrides,
) -> Result<Config, ConfigError> {
    let mut effective: Table =
        DEFAULT_TOML.parse().expect("the compiled-in default is TOML, which a test proves");
    let known = leaves(&effective, "");
    let mut problems = Vec::new();
    if let Some(path) = file {
        merge(&mut effective, read(path)?, "", &known, &mut problems);
    }
    for key in &known {
        if let Some(text) = environment(&variable(key)) {
            set(&mut effective, key, &text);
        }
    }
    for (key, text) in flags {
        set(&mut effective, key, text);
    }
    let config = match Config::deserialize(Value::Table(effective)) {
        Ok(config) => Some(config),
        Err(error) => {
            problems.push(error.to_string().trim().replace('\n', " "));
            None
        }
    };
    problems.extend(config.iter().flat_map(Config::contradictions));
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        Some(_) | None => Err(ConfigError::Problems(problems)),
    }
}

/// The environment variable of a key: `store.engine` is `RESYNC_HUB_STORE_ENGINE`.
fn variable(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.replace('.', "_").to_uppercase())
}

fn read(path: &Path) -> Result<Table, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::File { path: path.to_owned(), reason: error.to_string() })?;
    text.parse().map_err(|error: toml::de::Error| ConfigError::Syntax {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// The dotted names of all values.
fn leaves(table: &Table, prefix: &str) -> Vec<String> {
    table
        .iter()
        .flat_map(|(name, value)| match value {
            Value::Table(inner) => leaves(inner, &format!("{prefix}{name}.")),
            _ => vec![format!("{prefix}{name}")],
        })
        .collect()
}

fn merge(into: &mut Table, from: Table, prefix: &str, known: &[String], problems: &mut Vec<String>) {
    for (name, value) in from {
        let key = format!("{prefix}{name}");
        match (into.get_mut(&name), value) {
            (Some(Value::Table(below)), Value::Table(inner)) => {
                merge(below, inner, &format!("{key}."), known, problems);
            }
            (Some(Value::Table(_)), _) => {
                problems.push(format!("{key} is a section: write [{key}] and its keys below"));
            }
            (Some(old), new) => *old = new,
            (None, _) => problems.push(unknown(&key, known)),
        }
    }
}

fn unknown(key: &str, known: &[String]) -> String {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let nearest = known
        .iter()
        .map(|name| {
            (strsim::jaro_winkler(key, name).max(strsim::jaro_winkler(&last(key), &last(name))), name)
        })
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((likeness, name)) if likeness > 0.75 => {
            format!("{key} is not a key of the hub: did you mean {name}?")
        }
        Some(_) | None => {
            format!("{key} is not a key of the hub: `resync-hub config print` shows all there are")
        }
    }
}

/// Text becomes what the default is: a number, a truth value or a list where the default is one, else a string.
fn set(table: &mut Table, key: &str, text: &str) {
    match key.split_once('.') {
        Some((section, rest)) => {
            if let Some(Value::Table(inner)) = table.get_mut(section) {
                set(inner, rest, text);
            }
        }
        None => {
            if let Some(old) = table.get_mut(key) {
                *old = typed(old, text);
            }
        }
    }
}

fn typed(like: &Value, text: &str) -> Value {
    let string = || Value::String(text.to_owned());
    match like {
        Value::String(_) => string(),
        _ => format!("value = {text}")
            .parse::<Table>()
            .ok()
            .and_then(|mut t| t.remove("value"))
            .unwrap_or_else(string),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn from_file(text: &str) -> Result<Config, ConfigError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        load(Some(file.path()), nothing, &Vec::new())
    }

    fn problems(text: &str) -> String {
        from_file(text).unwrap_err().to_string()
    }

    #[test]
    fn the_compiled_in_default_is_a_valid_configuration() {
        let config = load(None, nothing, &Vec::new()).unwrap();
        assert_eq!(config.lease.default, Duration::from_secs(864_000));
        assert_eq!(config.delivery.schedule.len(), 10);
        assert_eq!(config.publish.max_body, 1_048_576);
    }

    #[test]
    fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "listen = \"127.0.0.1:1\"\n[delivery]\nper_host = 1\nmax_in_flight = 1\n").unwrap();
        let environment = |name: &str| match name {
            "RESYNC_HUB_LISTEN" => Some("127.0.0.1:2".to_owned()),
            "RESYNC_HUB_DELIVERY_PER_HOST" => Some("2".to_owned()),
            "RESYNC_HUB_EGRESS_ALLOW" => Some("[\"10.0.0.0/8\"]".to_owned()),
            _ => None,
        };
        let config =
            load(Some(file.path()), environment, &vec![("listen", "127.0.0.1:3".to_owned())]).unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!(config.delivery.per_host, 2);
        assert_eq!(config.delivery.max_in_flight, 1);
        assert_eq!(config.egress.allow, ["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(config.store.engine, crate::store::Engine::Fjall);
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_the_nearest_known_one() {
        assert!(
            problems("[delivery]\nper_hosts = 3")
                .contains("delivery.per_hosts is not a key of the hub: did you mean delivery.per_host?")
        );
        assert!(problems("publik_url = \"http://a.example\"").contains("did you mean public_url?"));
        assert!(problems("zzz = 1").contains("config print"));
    }

    #[test]
    fn several_mistakes_are_named_at_once() {
        let text = problems("listn = 1\n[stor]\nengine = 1\n[retention]\nage = \"1h\"");
        assert!(text.contains("listen") && text.contains("stor") && text.contains("retention.age"), "{text}");
    }

    #[test]
    fn values_that_make_no_sense_say_how_to_write_them() {
        assert!(problems("[lease]\nmin = \"soon\"").contains("\"10s\""));
        assert!(problems("[publish]\nmax_body = \"lots\"").contains("1 MiB"));
        assert!(problems("public_url = \"hub.example\"").contains("https://hub.example"));
        for rate in ["fast", "0/s, burst 1", "1/s, burst 0", "1/day, burst 1", "1/s"] {
            assert!(problems(&format!("[limits]\nclient = \"{rate}\"")).contains("5/s, burst 50"), "{rate}");
        }
        assert!(problems("[lease]\nmin = \"40d\"").contains("lease.min"));
    }

    #[test]
    fn absurd_values_are_mistakes_and_never_a_panic() {
        for (text, word) in [
            ("[delivery]\nschedule = [\"18446744073709551615s\", \"1s\"]", "30 days"),
            ("[delivery]\nmax_in_flight = 1000000000000", "max_in_flight"),
            ("[delivery]\nconnect_timeout = \"0s\"", "connect_timeout"),
            ("[lease]\nmax = \"18446744073709551615s\"", "lease.max"),
            ("[retention]\nsize = \"0\"", "retention.size"),
            ("public_url = \"https://hub.example/?a=b\"", "no query"),
            ("[telemetry]\notlp = \"collector:4318\"", "no http or https URL"),
            ("[telemetry]\notlp = \"http://me:secret@collector.example:4318\"", "no password"),
            ("[telemetry]\nratio = 1.5", "telemetry.ratio"),
        ] {
            let found = problems(text);
            assert!(found.contains(word), "{text}: {found}");
        }
    }

    #[test]
    fn keys_of_secrets_come_from_the_environment_or_from_a_file_and_are_never_printed() {
        let key = crate::store::Keyring::generate();
        let environment = |name: &str| (name == "RESYNC_HUB_SECRETS_KEY").then(|| key.clone());
        let config = load(None, environment, &Vec::new()).unwrap();
        let from_environment = config.secrets.keyring().unwrap();
        assert!(from_environment.writes_with().is_some());
        assert!(!format!("{config:?}").contains(&key));

        let mut file = tempfile::NamedTempFile::new().unwrap();
        let with_file = |file: &tempfile::NamedTempFile| {
            from_file(&format!("[secrets]\nkey_file = {:?}", file.path())).unwrap().secrets.keyring()
        };
        assert!(with_file(&file).is_err(), "an empty file does not switch encryption off");
        writeln!(file, "{key}").unwrap();
        assert_eq!(with_file(&file).unwrap().writes_with(), from_environment.writes_with());

        let both = vec![("secrets.key_file", "/nowhere".to_owned())];
        let error = load(None, environment, &both).unwrap().secrets.keyring().unwrap_err();
        assert!(error.to_string().contains("not in both"), "{error}");
    }

    #[test]
    fn without_a_word_only_the_usual_ports_of_the_web_are_contacted() {
        let config = load(None, nothing, &Vec::new()).unwrap();
        assert!(config.egress.ports.contains(&443) && !config.egress.ports.contains(&22));
        assert!(config.into_dev().unwrap().egress.ports.is_empty());
    }

    #[test]
    fn dev_opens_everything_but_only_on_loopback() {
        let dev = load(None, nothing, &Vec::new()).unwrap().into_dev().unwrap();
        assert_eq!(dev.publish.policy, super::super::PublishPolicy::Open);
        assert!(dev.publish.open_log);
        let public = load(None, nothing, &vec![("listen", "0.0.0.0:80".to_owned())]).unwrap();
        assert!(public.into_dev().unwrap_err().to_string().contains("loopback only"));
    }
}
