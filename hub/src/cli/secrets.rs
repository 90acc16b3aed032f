//! `resync-hub secrets`: the keys that encrypt subscribers' secrets on disk.

use std::time::Duration;

use clap::Subcommand;
use resync_common::words::counted;
use resync_hub::config::Config;
use resync_hub::store::{Keyring, KeyringError, Place, StoreError};
use serde::Deserialize;
use tokio::runtime;

use super::ask::Admin;
use super::owner::is_ours;
use super::reach::{AdminAddress, RunningHub, operator};
use super::tools::understand;
use super::{Failure, answer, say};

/// How long a running hub may take to rewrite all secrets.
const PATIENCE: Duration = Duration::from_secs(3_600);

#[derive(Debug, Subcommand)]
pub(super) enum Secrets {
    /// Make a new key and print it
    NewKey,
    /// Rewrite all secrets under the first configured key, in a stopped or a running hub
    ///
    /// To replace a key: put the new one in front of the old one in the key file, run this, then remove the old one. A running
    /// hub reads the file anew; one that has its keys from the environment has to be started again, which does the same.
    Rotate {
        #[command(flatten)]
        hub: RunningHub,
    },
}

pub(super) fn run(command: Secrets) -> Result<(), Failure> {
    match command {
        Secrets::NewKey => answer(Keyring::generate()),
        Secrets::Rotate { hub } => {
            let config = hub.hub.load()?;
            let rotated = rotate(&config, hub.admin.as_ref())?;
            let place = hub.admin.map_or_else(|| config.data_dir.display().to_string(), |at| at.to_string());
            say(format_args!("{place}: {rotated}"));
        }
    }
    Ok(())
}

fn rotate(config: &Config, at: Option<&AdminAddress>) -> Result<String, Failure> {
    if at.is_some() {
        return ask_running(config, at);
    }
    let keys = Keyring::of(&config.secrets).map_err(Failure::new)?;
    let Some(key) = keys.writes_with() else { return Err(Failure::new(KeyringError::None)) };
    if let Err(not_ours) = is_ours(config) {
        return ask_running(config, None).map_err(|running| running.and(&not_ours));
    }
    let runtime = runtime::Builder::new_current_thread().build().map_err(Failure::new)?;
    let place = Place::of(config);
    let store = match runtime.block_on(place.open(keys.clone(), config.store.reserve)) {
        Err(StoreError::Locked { .. }) => return ask_running(config, None),
        opened => opened.map_err(Failure::new)?,
    };
    let rewritten = runtime.block_on(store.rotate_secrets(keys)).map_err(Failure::new)?;
    Ok(summary(rewritten, &key.to_string()))
}

/// The hub that has the store open does it.
fn ask_running(config: &Config, at: Option<&AdminAddress>) -> Result<String, Failure> {
    let admin = Admin { patience: PATIENCE, ..operator(config, at)? };
    let Rotated { rewritten, key } = understand(&admin.ask("POST", "/api/v1/secrets/rotate", "")?)?;
    Ok(summary(rewritten, &key))
}

fn summary(rewritten: u64, key: &str) -> String {
    format!("{}, all are under key {key}", counted(rewritten, "secret rewritten", "secrets rewritten"))
}

/// What the admin API answers.
#[derive(Deserialize)]
struct Rotated {
    rewritten: u64,
    key: String,
}
