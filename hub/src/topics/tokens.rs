//! The publishers' bearer tokens, each with the topic prefixes that it may speak for, stored as hashes.
//!
//! They live in one small file beside the store, so that `resync-hub token` works while the hub runs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use resync_core::datetime::DateTime;
use resync_core::durable::{folder_of, replace_private};
use resync_core::lock::FileLock;
use resync_core::websub::TopicUrl;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::{NoPrefix, Prefixes, uses_file};

/// The file of tokens.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    pub(super) records: BTreeMap<String, TokenInfo>,
}

/// One token, without the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// SHA-256 of the token, in hex. The token is random and long, so a plain hash is enough.
    pub(super) hash: String,
    /// It may speak for topics that begin like one of these.
    pub topic_prefixes: Vec<String>,
    /// When it was made.
    pub created_at: String,
}

/// A token that was just made; it can be seen only now.
#[derive(Debug)]
pub struct NewToken(pub String);

/// Why the tokens cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file cannot be used.
    #[error("the publishers' tokens in {path} cannot be used: {reason}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// No token of this name.
    #[error("there is no token named {0}: `resync-hub token list` shows all")]
    Unknown(String),
    /// A prefix is no URL.
    #[error(transparent)]
    Prefix(#[from] NoPrefix),
    /// The name is taken.
    #[error("there is a token named {0} already: revoke it first, or choose another name")]
    Taken(String),
}

impl Tokens {
    /// Reads the file; one that does not exist holds no tokens.
    ///
    /// # Errors
    /// When it exists and cannot be used.
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        let records = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| unusable(path, &error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(unusable(path, &error)),
        };
        Ok(Self { path: path.to_owned(), records })
    }

    /// Makes a token that may speak for topics with these prefixes.
    ///
    /// # Errors
    /// When the name is taken, a prefix is no URL, or the file cannot be written.
    pub fn add(path: &Path, name: &str, topic_prefixes: Vec<String>) -> Result<NewToken, TokensError> {
        Prefixes::parse(&topic_prefixes)?;
        let token = format!("rsh_{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let info = TokenInfo { hash: hash(&token), topic_prefixes, created_at: DateTime::now().to_string() };
        Self::change(path, |records| match records.entry(name.to_owned()) {
            Entry::Occupied(_) => Err(TokensError::Taken(name.to_owned())),
            Entry::Vacant(entry) => {
                entry.insert(info);
                Ok(())
            }
        })?;
        Ok(NewToken(token))
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// When there is none of this name or the file cannot be written.
    pub fn revoke(path: &Path, name: &str) -> Result<(), TokensError> {
        Self::change(path, |records| {
            records.remove(name).map(drop).ok_or_else(|| TokensError::Unknown(name.to_owned()))
        })
    }

    /// Reads, changes and writes the file under a lock. Without it, one of two changes at once would undo the other, and a revoked token
    /// could come back.
    fn change(
        path: &Path,
        change: impl FnOnce(&mut BTreeMap<String, TokenInfo>) -> Result<(), TokensError>,
    ) -> Result<(), TokensError> {
        let lock = lock(path).map_err(|error| unusable(path, &error))?;
        let mut tokens = Self::open(path)?;
        change(&mut tokens.records)?;
        tokens.save()?;
        drop(lock);
        Ok(())
    }

    /// All tokens by name.
    pub fn list(&self) -> impl Iterator<Item = (&str, &TokenInfo)> {
        self.records.iter().map(|(name, info)| (name.as_str(), info))
    }

    /// When each token was used last, as far as that is saved: the last minute may be missing. Uses of an older token of the same name
    /// do not count.
    pub fn last_used(&self) -> BTreeMap<String, String> {
        let mut used = last_uses(&self.path);
        used.retain(|name, at| self.records.get(name).is_some_and(|info| info.may_have_been_used(at)));
        used
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.records.contains_key(name)
    }

    /// Readers see the old file or the new one, never half of it; only the hub's user may read it.
    fn save(&self) -> Result<(), TokensError> {
        replace(&self.path, &self.records).map_err(|error| unusable(&self.path, &error))
    }
}

impl TokenInfo {
    /// Whether it may speak for this topic.
    pub fn covers(&self, topic: &TopicUrl) -> bool {
        Prefixes::parse(&self.topic_prefixes).is_ok_and(|prefixes| prefixes.cover(topic))
    }

    fn may_have_been_used(&self, at: &str) -> bool {
        let moment = |text: &str| text.parse::<DateTime>().ok();
        moment(at).zip(moment(&self.created_at)).is_some_and(|(at, made)| at >= made)
    }
}

/// The last use of each token by its name, as it is saved beside this file of tokens. A file that cannot be read counts as empty.
pub(super) fn last_uses(tokens: &Path) -> BTreeMap<String, String> {
    let bytes = fs::read(uses_file(tokens)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

pub(super) fn replace(path: &Path, value: &impl Serialize) -> io::Result<()> {
    replace_private(path, &serde_json::to_vec_pretty(value)?)
}

/// Locks the tokens against other changes until this is dropped. The lock is a file of its own, since each change replaces that of
/// the tokens.
fn lock(path: &Path) -> io::Result<FileLock> {
    fs::create_dir_all(folder_of(path))?;
    let lock = path.with_extension("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock)?;
    FileLock::lock(file)
}

fn unusable(path: &Path, error: &dyn std::error::Error) -> TokensError {
    TokensError::File { path: path.to_owned(), reason: error.to_string() }
}

pub(super) fn hash(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_prefix_that_is_no_url_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        for prefix in
            ["", "library", "ftp://library.example/", "http://a.example/t?set=1", "http://a.example/#t"]
        {
            assert!(
                matches!(Tokens::add(&path, "library", vec![prefix.to_owned()]), Err(TokensError::Prefix(_))),
                "{prefix:?}"
            );
        }
    }

    #[test]
    fn a_token_that_is_revoked_while_others_are_made_does_not_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let make = |name: &str| Tokens::add(&path, name, vec!["http://source.example/".to_owned()]).unwrap();
        make("leaked");
        thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || (0..5).for_each(|turn| drop(make(&format!("{number}-{turn}")))));
            }
            scope.spawn(|| Tokens::revoke(&path, "leaked").unwrap());
        });
        let tokens = Tokens::open(&path).unwrap();
        assert_eq!(tokens.list().filter(|(name, _)| *name != "leaked").count(), 40, "and none is lost");
        assert!(tokens.list().all(|(name, _)| name != "leaked"));
    }

    #[test]
    fn the_file_holds_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let NewToken(token) = Tokens::add(&path, "library", vec![]).unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains(token.trim_start_matches("rsh_")));
    }
}
