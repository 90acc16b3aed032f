//! When publishers' tokens were used last, so that the operator sees which may be revoked. Saved at most once a minute.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use resync_common::locks::lock;
use resync_core::datetime::DateTime;
use tokio::sync::watch;
use tokio::time::interval;
use tracing::warn;

use super::tokens::{Tokens, uses};
use crate::store::{Document, Registry};

/// How often uses are saved, if there were any.
const EVERY: Duration = Duration::from_secs(60);

/// The last use of each token by its name.
#[derive(Clone, Debug)]
pub struct TokenUses {
    registry: Arc<dyn Registry>,
    since: Arc<Mutex<BTreeMap<String, DateTime>>>,
}

impl TokenUses {
    /// Uses that are saved there.
    pub(super) fn new(registry: Arc<dyn Registry>) -> Self {
        Self { registry, since: Arc::default() }
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
        let tokens = Tokens::open(&*self.registry);
        let written = self.registry.change(Document::TokenUses, &mut |kept: Option<Vec<u8>>| {
            let mut all = uses(kept);
            all.extend(since.iter().map(|(name, at)| (name.clone(), at.to_string())));
            if let Ok(tokens) = &tokens {
                all.retain(|name, _| tokens.has(name));
            }
            serde_json::to_vec_pretty(&all).ok()
        });
        if let Err(error) = written {
            warn!(%error, place = %self.registry.place(Document::TokenUses), "last uses of tokens not saved");
            self.put_back(since);
        }
    }

    /// These were not saved. What was used again since stays as it is.
    fn put_back(&self, unsaved: BTreeMap<String, DateTime>) {
        let mut since = self.since();
        let newer = std::mem::replace(&mut *since, unsaved);
        since.extend(newer);
    }

    fn since(&self) -> MutexGuard<'_, BTreeMap<String, DateTime>> {
        lock(&self.since)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::Files;

    #[test]
    fn uses_that_could_not_be_saved_are_saved_later_unless_there_are_newer_ones() {
        let folder = tempfile::tempdir().unwrap();
        let files: Arc<dyn Registry> = Arc::new(Files::in_folder(folder.path()));
        for name in ["library", "museum"] {
            Tokens::add(&*files, name, vec!["http://source.example/".to_owned()]).unwrap();
        }
        let tokens = TokenUses::new(Arc::clone(&files));
        let saved = || uses(files.read(Document::TokenUses).unwrap());
        let [first, second] = [1, 2].map(|second| DateTime::from_unix_millis(second * 1_000).unwrap());

        let place = files.place(Document::TokenUses);
        fs::create_dir(&place).unwrap();
        tokens.note("library", first);
        tokens.note("museum", first);
        tokens.write();
        fs::remove_dir(&place).unwrap();
        assert!(saved().is_empty());
        tokens.note("museum", second);
        tokens.write();
        assert_eq!((&saved()["library"], &saved()["museum"]), (&first.to_string(), &second.to_string()));

        tokens.note("library", second);
        tokens.put_back(BTreeMap::from([("library".to_owned(), first)]));
        tokens.write();
        assert_eq!(saved()["library"], second.to_string());
    }
}
