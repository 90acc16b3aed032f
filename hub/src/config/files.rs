//! The files that a configuration names, judged before a hub starts with them.

use super::{Config, ConfigError};
use crate::egress::Trust;
use crate::http::check_tls;

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
                .filter(|_| self.secrets.credential().is_none())
                .map(|error| error.to_string()),
        ]
        .into_iter()
        .flatten()
        .collect();
        if problems.is_empty() { Ok(()) } else { Err(ConfigError::Problems(problems)) }
    }
}
