//! What the hub keeps beside its store: tokens, secrets, the audit log, replaced addresses of pages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use resync_core::durable::replace_private;
use resync_core::websub::{Secret, SecretError};
use tracing::warn;

use super::StartError;
use crate::admin::{Addresses, Audit};
use crate::config::Config;
use crate::http::AdminToken;
use crate::store::{Document, Registry};
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
    /// All but the admin token are in the registry.
    pub(super) fn open(config: &Config, registry: &Arc<dyn Registry>) -> Result<Self, StartError> {
        Ok(Self {
            authority: Authority::new(config.publish.policy, Arc::clone(registry))?,
            token: operators_token(&config.admin_token_file())?,
            audit: audit(registry)?,
            tickets: tickets(&**registry)?,
            addresses: addresses(registry)?,
        })
    }
}

fn audit(registry: &Arc<dyn Registry>) -> Result<Audit, StartError> {
    let opened = Audit::shorten(&**registry).and_then(|()| Audit::open(Arc::clone(registry)));
    let settled = opened.and_then(|audit| audit.settle().map(|()| audit));
    let unusable =
        |error: io::Error| StartError::Audit { path: registry.log_place().into(), reason: error.to_string() };
    settled.map_err(unusable)
}

fn tickets(registry: &dyn Registry) -> Result<Tickets, StartError> {
    let path = PathBuf::from(registry.place(Document::TicketKey));
    let key = ticket_key(registry).and_then(|key| {
        String::from_utf8(key).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    let key = checked(&path, key)?;
    let unusable = |error: SecretError| StartError::OwnSecret { reason: error.to_string(), path };
    Ok(Tickets::new(Secret::new(key.trim()).map_err(unusable)?))
}

/// The key is made at the first start. Where two hubs start at once, the first one makes it.
fn ticket_key(registry: &dyn Registry) -> io::Result<Vec<u8>> {
    if let Some(key) = registry.read(Document::TicketKey)? {
        return Ok(key);
    }
    let mut key = Secret::random().as_bytes().to_vec();
    registry.change(Document::TicketKey, &mut |kept: Option<Vec<u8>>| {
        let Some(kept) = kept else { return Some(key.clone()) };
        key = kept;
        None
    })?;
    Ok(key)
}

fn addresses(registry: &Arc<dyn Registry>) -> Result<Addresses, StartError> {
    let path = || PathBuf::from(registry.place(Document::PageAddresses));
    let unusable = |error: io::Error| StartError::Addresses { path: path(), reason: error.to_string() };
    Addresses::open(Arc::clone(registry)).map_err(unusable)
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
    checked(path, secret)
}

fn checked(path: &Path, secret: io::Result<String>) -> Result<String, StartError> {
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
