//! When publishers' tokens were used last, so that the operator sees which may be revoked. Saved at most once a minute.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use resync_core::datetime::DateTime;
use tokio::sync::watch;
use tokio::time::interval;
use tracing::warn;

use super::tokens::{Tokens, last_uses, replace};
use crate::config::uses_file;

/// How often uses are saved, if there were any.
const EVERY: Duration = Duration::from_secs(60);

/// The last use of each token by its name.
#[derive(Clone, Debug)]
pub struct TokenUses {
    tokens: Arc<Path>,
    since: Arc<Mutex<BTreeMap<String, DateTime>>>,
}

impl TokenUses {
    /// Uses that are saved beside the file of tokens.
    pub(super) fn beside(tokens: &Path) -> Self {
        Self { tokens: tokens.into(), since: Arc::default() }
    }

    pub(super) fn note(&self, name: &str, at: DateTime) {
        let mut since = self.since();
        match since.get_mut(name) {
            Some(last) => *last = at,
            None => drop(since.insert(name.to_owned(), at)),
        }
    }

    /// Saves uses again and again until `stop` turns true, and then once more.
    pub async fn keep(self, mut stop: watch::Receiver<bool>) {
        let mut ticks = interval(EVERY);
        let mut stopped = false;
        while !stopped {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stop.wait_for(|stop| *stop) => stopped = true,
            }
            let uses = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || uses.write()).await {
                warn!(%error, "last uses of tokens not saved");
            }
        }
    }

    fn write(&self) {
        let since = std::mem::take(&mut *self.since());
        if since.is_empty() {
            return;
        }
        let (path, mut all) = (uses_file(&self.tokens), last_uses(&self.tokens));
        all.extend(since.into_iter().map(|(name, at)| (name, at.to_string())));
        if let Ok(tokens) = Tokens::open(&self.tokens) {
            all.retain(|name, _| tokens.has(name));
        }
        if let Err(error) = replace(&path, &all) {
            warn!(%error, path = %path.display(), "last uses of tokens not saved");
        }
    }

    fn since(&self) -> MutexGuard<'_, BTreeMap<String, DateTime>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
