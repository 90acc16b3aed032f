//! The files that a configuration names, judged before a hub starts with them.

use crate::config::{Config, ConfigError};
use crate::egress::TlsRoots;
use crate::http::check_tls;
use crate::store::{Keyring, KeyringError};

/// Reads certificates and keys as a starting hub would, but for those that are handed to the service alone.
///
/// # Errors
/// [`ConfigError::Problems`], naming every file that cannot be used.
pub fn check_files(config: &Config) -> Result<(), ConfigError> {
    let is_handed_over = |error: &KeyringError| {
        config.secrets.credential().is_some() && matches!(error, KeyringError::File { .. })
    };
    let problems: Vec<String> = [
        check_tls(&config.tls).err().map(|error| format!("[tls]: {error}")),
        check_tls(&config.admin.tls).err().map(|error| format!("[admin]: {error}")),
        TlsRoots::new(config.egress.extra_ca()).err().map(|error| error.to_string()),
        Keyring::of(&config.secrets)
            .err()
            .filter(|error| !is_handed_over(error))
            .map(|error| error.to_string()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if problems.is_empty() { Ok(()) } else { Err(ConfigError::Problems(problems)) }
}
