//! Layers of configuration: flags over environment over file over default, each key by itself.

use std::collections::BTreeMap;
use std::path::Path;

use resync_common::config::{Layers, Names, dotted, value};
use toml::Table;
use url::Url;

use super::values::DEFAULT_TOML;
use super::{Config, ConfigError, store};

/// Keys set on the command line, by their dotted names.
pub type Overrides = Vec<(&'static str, String)>;

const NAMES: Names = Names { prefix: "RESYNC_HUB_", listing: "`resync-hub config print` shows all keys" };
/// Where systemd puts a service's credentials (`LoadCredential`).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// Keys whose values are secrets.
pub(super) const SECRET: [&str; 2] = ["secrets.key", "store.url"];
/// Variables that are flags of the command line instead.
const FLAGS: [&str; 2] = ["RESYNC_HUB_CONFIG", "RESYNC_HUB_DEV"];

/// Puts the layers together and checks the result.
///
/// `environment` are the names and values of variables, so that tests need not change the process.
///
/// # Errors
/// [`ConfigError`] with all errors, each with a hint.
pub fn load(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &Overrides,
) -> Result<Config, ConfigError> {
    layered(file, environment, flags).map(|(config, _)| config)
}

/// The configuration, and the values that it was made of.
pub(super) fn layered(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &Overrides,
) -> Result<(Config, Table), ConfigError> {
    let mut layers = Layers::over(default(), NAMES);
    let mut secrets_in = None;
    if let Some(path) = file {
        secrets_in = holds_secrets(&layers.file(path)?).then(|| path.to_owned());
    }
    let environment: BTreeMap<_, _> = environment.into_iter().collect();
    layers.environment(&environment, |name, value| FLAGS.contains(&name) || is_link(name, value));
    for (key, text) in flags {
        layers.set(key, text);
    }
    let mut config = layers.understand::<Config>();
    if let Some(config) = &mut config {
        if let Some(folder) = environment.get(CREDENTIALS) {
            config.secrets.find_in(Path::new(folder));
        }
        config.secrets_in = secrets_in;
        layers.problems.extend(config.contradictions());
    }
    match config {
        Some(config) if layers.problems.is_empty() => Ok((config, layers.effective)),
        Some(_) | None => Err(ConfigError::Problems(layers.problems)),
    }
}

pub(super) fn default() -> Table {
    DEFAULT_TOML.parse().expect("the compiled-in default is TOML, which a test proves")
}

/// What Kubernetes and Docker tell every container about a service that is called resync-hub.
fn is_link(name: &str, value: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.contains("_PORT_")
        || ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
}

/// Whether there is a key of secrets or a password among what is written there.
fn holds_secrets(written: &Table) -> bool {
    let has_password = |text: &str| Url::parse(text).is_ok_and(|url| url.password().is_some());
    dotted(written).iter().filter_map(|key| Some((key, value(written, key)?.as_str()?))).any(|(key, text)| {
        match key.as_str() {
            "store.url" => store::has_password(text),
            key => (SECRET.contains(&key) && !text.is_empty()) || has_password(text),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;
    use crate::store::Keyring;

    fn variables<const N: usize>(variables: [(&str, &str); N]) -> [(String, String); N] {
        variables.map(|(name, value)| (name.to_owned(), value.to_owned()))
    }

    fn from_file(text: &str) -> Result<Config, ConfigError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        load(Some(file.path()), [], &Vec::new())
    }

    fn problems(text: &str) -> String {
        from_file(text).unwrap_err().to_string()
    }

    #[test]
    fn the_compiled_in_default_is_a_valid_configuration() {
        let config = load(None, [], &Vec::new()).unwrap();
        assert_eq!(config.lease.default, Duration::from_secs(864_000));
        assert_eq!(config.delivery.schedule.len(), 10);
        assert_eq!(config.publish.max_body, 1_048_576);
    }

    #[test]
    fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "listen = \"127.0.0.1:1\"\n[delivery]\nper_host = 1\nmax_in_flight = 1\n").unwrap();
        let environment = variables([
            ("RESYNC_HUB_LISTEN", "127.0.0.1:2"),
            ("RESYNC_HUB_DELIVERY_PER_HOST", "2"),
            ("RESYNC_HUB_EGRESS_ALLOW", "[\"10.0.0.0/8\"]"),
        ]);
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
            problems("[delivery]\nper_hosts = 3").contains(
                "line 2, column 1: delivery.per_hosts is not a key: did you mean delivery.per_host?"
            )
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
    fn every_value_that_makes_no_sense_is_named_at_once_and_so_is_what_contradicts_another() {
        let text = problems(
            "[lease]\nmin = \"soon\"\nmax = \"later\"\n[admin]\nlisten = \"here\"\n[egress]\nallow = [\"lan\"]\n\
             [delivery]\nper_host = \"many\"\n[telemetry]\nratio = 2.0\n[retention]\nage = \"1h\"",
        );
        for key in [
            "lease.min: \"soon\" is not a duration",
            "lease.max: \"later\" is not a duration",
            "admin.listen: ",
            "egress.allow: ",
            "delivery.per_host: ",
            "telemetry.ratio must lie between 0 and 1",
            "retention.age must be at least",
        ] {
            assert!(text.contains(key), "{key}: {text}");
        }
        assert_eq!(text.lines().count(), 1 + 7, "{text}");
    }

    #[test]
    fn a_misspelt_variable_is_an_error_that_names_the_nearest_known_one() {
        let told = |name: &str, value: &str| load(None, variables([(name, value)]), &Vec::new());
        let misspelt = told("RESYNC_HUB_SECRET_KEY", "x").unwrap_err().to_string();
        assert!(misspelt.contains("did you mean RESYNC_HUB_SECRETS_KEY?"), "{misspelt}");
        assert!(!misspelt.contains("\"x\""), "what it holds may be a secret");
        let unlike = told("RESYNC_HUB_QQ", "1").unwrap_err().to_string();
        assert!(unlike.contains("RESYNC_HUB_QQ is not a variable: ") && unlike.contains("config print"));
        for (name, value) in [
            ("RESYNC_HUB_CONFIG", "hub.toml"),
            ("RESYNC_HUB_DEV", "true"),
            ("RESYNC_HUBS", "another program's"),
            // Of a service in Kubernetes that is called resync-hub.
            ("RESYNC_HUB_SERVICE_HOST", "10.0.0.1"),
            ("RESYNC_HUB_SERVICE_PORT_HTTP", "80"),
            ("RESYNC_HUB_PORT", "tcp://10.0.0.1:80"),
            ("RESYNC_HUB_PORT_80_TCP_ADDR", "10.0.0.1"),
        ] {
            assert!(told(name, value).is_ok(), "{name}");
        }
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
            ("[telemetry]\notlp = \"collector:4318\"", "not an http or https URL"),
            ("[telemetry]\notlp = \"http://me:secret@collector.example:4318\"", "no password"),
            ("[telemetry]\nratio = 1.5", "telemetry.ratio"),
        ] {
            let found = problems(text);
            assert!(found.contains(word), "{text}: {found}");
        }
    }

    #[test]
    fn keys_of_secrets_come_from_the_environment_or_from_a_file_and_are_never_printed() {
        let key = Keyring::generate();
        let environment = variables([("RESYNC_HUB_SECRETS_KEY", &key)]);
        let config = load(None, environment.clone(), &Vec::new()).unwrap();
        let from_environment = Keyring::of(&config.secrets).unwrap();
        assert!(from_environment.writes_with().is_some());
        assert!(!format!("{config:?}").contains(&key));

        let mut file = tempfile::NamedTempFile::new().unwrap();
        let with_file = |file: &tempfile::NamedTempFile| {
            Keyring::of(&from_file(&format!("[secrets]\nkey_file = {:?}", file.path())).unwrap().secrets)
        };
        assert!(with_file(&file).is_err(), "an empty file does not switch encryption off");
        writeln!(file, "{key}").unwrap();
        assert_eq!(with_file(&file).unwrap().writes_with(), from_environment.writes_with());
        let named = vec![("secrets.key_file", file.path().display().to_string())];
        let named = load(None, [], &named).unwrap();
        assert!(Keyring::of(&named.secrets).is_ok());

        let both = vec![("secrets.key_file", "/nowhere".to_owned())];
        let error = Keyring::of(&load(None, environment, &both).unwrap().secrets).unwrap_err();
        assert!(error.to_string().contains("not in both"), "{error}");
    }

    #[test]
    fn the_file_of_keys_may_be_one_that_systemd_hands_to_the_service_and_to_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("keys"), Keyring::generate()).unwrap();
        let named = vec![("secrets.key_file", "${CREDENTIALS_DIRECTORY}/keys".to_owned())];
        let handed_over = variables([("CREDENTIALS_DIRECTORY", folder.path().to_str().unwrap())]);
        let service = load(None, handed_over, &named).unwrap();
        assert_eq!(service.secrets.key_file, folder.path().join("keys"));
        assert!(Keyring::of(&service.secrets).unwrap().writes_with().is_some());
        assert_eq!(service.secrets.credential(), None);

        let operator = load(None, [], &named).unwrap();
        assert_eq!(operator.secrets.credential(), Some("keys"));
        let error = Keyring::of(&operator.secrets).unwrap_err().to_string();
        assert!(error.contains("systemd hands it to the service only"), "{error}");
        assert!(crate::check_files(&operator).is_ok(), "it is no mistake");
    }

    #[test]
    fn without_a_word_only_the_usual_ports_of_the_web_are_contacted() {
        let config = load(None, [], &Vec::new()).unwrap();
        assert!(config.egress.ports.contains(&443) && !config.egress.ports.contains(&22));
        assert!(config.into_dev().unwrap().egress.ports.is_empty());
    }

    #[test]
    fn dev_opens_everything_but_only_on_loopback() {
        let dev = load(None, [], &Vec::new()).unwrap().into_dev().unwrap();
        assert_eq!(dev.publish.policy, super::super::PublishPolicy::Open);
        assert!(dev.publish.open_log);
        let public = load(None, [], &vec![("listen", "0.0.0.0:80".to_owned())]).unwrap();
        assert!(public.into_dev().unwrap_err().to_string().contains("loopback only"));
    }
}
