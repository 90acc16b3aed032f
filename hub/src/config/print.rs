//! The configuration in force as text: the commented default with other values in it.

use std::path::Path;

use resync_common::config::{value, with_values};
use toml::Value;

use super::layers::{SECRET, default, layered};
use super::values::DEFAULT_TOML;
use super::{ConfigError, Overrides};

/// Every key with its meaning and its value: that of the environment, else of the file, else its default. Secrets are hidden; without one
/// the text is itself a configuration.
///
/// # Errors
/// As [`load`](super::load).
pub fn print(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<String, ConfigError> {
    let (_, effective) = layered(file, environment, &Overrides::new())?;
    let default = default();
    Ok(with_values(DEFAULT_TOML, |key| {
        let changed = value(&effective, key).filter(|changed| value(&default, key) != Some(*changed))?;
        Some(if SECRET.contains(&key) { Value::from("[hidden]") } else { changed.clone() })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(variables: &[(&str, &str)]) -> String {
        print(None, variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))).unwrap()
    }

    #[test]
    fn without_a_word_the_default_is_printed_as_it_is() {
        assert_eq!(printed(&[]), DEFAULT_TOML);
    }

    #[test]
    fn values_in_force_are_printed_with_the_comments_of_their_keys_and_are_a_configuration() {
        let text = printed(&[
            ("RESYNC_HUB_PUBLIC_URL", "https://hub.library.example/with/a/path/that/is/long"),
            ("RESYNC_HUB_DELIVERY_PER_HOST", "2"),
            ("RESYNC_HUB_ADMIN_LISTEN", "127.0.0.1:9"),
            ("RESYNC_HUB_EGRESS_ALLOW", "[\"10.0.0.0/8\", \"192.168.0.0/16\"]"),
        ]);
        let lines: Vec<_> = text.lines().collect();
        for line in [
            "public_url = \"https://hub.library.example/with/a/path/that/is/long\" # its public URL",
            "per_host = 2                          # requests at once to one origin",
            "listen = \"127.0.0.1:9\"                # health and the admin API",
            "listen = \"127.0.0.1:8080\"             # where the hub listens",
        ] {
            assert!(lines.iter().any(|printed| printed.starts_with(line)), "{line}:\n{text}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &text).unwrap();
        assert_eq!(print(Some(file.path()), []).unwrap(), text);
    }

    #[test]
    fn a_key_of_secrets_is_not_printed() {
        let key = crate::store::Keyring::generate();
        let text = printed(&[("RESYNC_HUB_SECRETS_KEY", &key)]);
        assert!(text.contains("key = \"[hidden]\"") && !text.contains(&key), "{text}");
    }
}
