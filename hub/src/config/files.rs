//! The files that a configuration names, judged before a hub starts with them.

use super::{Config, ConfigError};
use crate::egress::Trust;
use crate::http::check_tls;
use crate::store::KeyringError;

impl Config {
    /// Reads certificates and keys as a starting hub would, but for those that are handed to the service alone.
    ///
    /// # Errors
    /// [`ConfigError::Problems`], naming every file that cannot be used.
    pub fn check_files(&self) -> Result<(), ConfigError> {
        let problems: Vec<String> = [
            check_tls(&self.tls).err().map(|error| format!("[tls]: {error}")),
            check_tls(&self.admin.tls).err().map(|error| format!("[admin]: {error}")),
            Trust::new(self.egress.extra_ca()).err().map(|error| error.to_string()),
            self.secrets
                .keyring()
                .err()
                .filter(|error| !self.is_handed_over(error))
                .map(|error| error.to_string()),
        ]
        .into_iter()
        .flatten()
        .collect();
        if problems.is_empty() { Ok(()) } else { Err(ConfigError::Problems(problems)) }
    }

    /// Whether a file of keys cannot be read because only the service has it.
    fn is_handed_over(&self, error: &KeyringError) -> bool {
        self.secrets.credential().is_some() && matches!(error, KeyringError::File { .. })
    }
}
