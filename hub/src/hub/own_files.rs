//! The files that the hub keeps beside its store: tokens, secrets, the audit log, replaced addresses of pages.

use std::fs;
use std::io;
use std::path::Path;

use resync_core::durable::replace_private;
use resync_core::websub::{Secret, SecretError};
use tracing::warn;

use super::StartError;
use crate::admin::{Addresses, Audit};
use crate::config::Config;
use crate::http::AdminToken;
use crate::topics::{Authority, Tickets};

/// What the hub keeps beside its store.
pub(super) struct OwnFiles {
    pub(super) authority: Authority,
    pub(super) token: AdminToken,
    pub(super) audit: Audit,
    pub(super) tickets: Tickets,
    pub(super) addresses: Addresses,
}

impl OwnFiles {
    pub(super) fn open(config: &Config) -> Result<Self, StartError> {
        Ok(Self {
            authority: Authority::new(config.publish.policy, &config.publisher_tokens_file())?,
            token: operators_token(&config.admin_token_file())?,
            audit: audit(config)?,
            tickets: tickets(&config.ticket_key_file())?,
            addresses: addresses(&config.addresses_file())?,
        })
    }
}

fn audit(config: &Config) -> Result<Audit, StartError> {
    let path = config.audit_file();
    let opened = Audit::shorten(&path).and_then(|()| Audit::open(&path));
    let settled = opened.and_then(|audit| audit.settle().map(|()| audit));
    settled.map_err(|error| StartError::Audit { reason: error.to_string(), path })
}

fn tickets(path: &Path) -> Result<Tickets, StartError> {
    let unusable =
        |error: SecretError| StartError::OwnSecret { path: path.to_owned(), reason: error.to_string() };
    Ok(Tickets::new(Secret::new(own_secret(path)?.trim()).map_err(unusable)?))
}

fn addresses(path: &Path) -> Result<Addresses, StartError> {
    let unusable =
        |error: io::Error| StartError::Addresses { path: path.to_owned(), reason: error.to_string() };
    Addresses::open(path).map_err(unusable)
}

/// Reads or makes the admin token.
fn operators_token(path: &Path) -> Result<AdminToken, StartError> {
    let token = AdminToken::new(&own_secret(path)?);
    if !token.is_long() {
        warn!(file = %path.display(), "the admin token is short enough to be guessed, and commands that ask the hub do not work: write a longer one, or remove the file to have one made");
    }
    Ok(token)
}

/// A secret of the hub's own, which is made at the first start and readable by the hub's user only.
fn own_secret(path: &Path) -> Result<String, StartError> {
    let secret = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_secret(path),
        read => read,
    };
    let unusable = |reason: String| StartError::OwnSecret { path: path.to_owned(), reason };
    let secret = secret.map_err(|error| unusable(error.to_string()))?;
    if secret.trim().is_empty() {
        return Err(unusable("it is empty; remove the file to have a new one made".to_owned()));
    }
    Ok(secret)
}

fn make_secret(path: &Path) -> io::Result<String> {
    let secret = String::from_utf8_lossy(Secret::random().as_bytes()).into_owned();
    replace_private(path, secret.as_bytes())?;
    Ok(secret)
}
