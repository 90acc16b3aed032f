//! The publishers' bearer tokens, each with the topic prefixes that it may speak for, stored as hashes.
//!
//! They live in one small document beside the store, so that `resync-hub token` works while the hub runs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use resync_core::datetime::DateTime;
use resync_core::websub::TopicUrl;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::{NoPrefix, Prefixes};
use crate::store::{Document, Registry};

/// The tokens by name.
type Records = BTreeMap<String, TokenInfo>;

/// The document of tokens.
#[derive(Debug)]
pub struct Tokens {
    pub(super) records: Records,
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
    /// The document cannot be used.
    #[error("the publishers' tokens in {place} cannot be used: {reason}")]
    Document {
        /// Where it is kept.
        place: String,
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
    /// Reads the document; where there is none there are no tokens.
    ///
    /// # Errors
    /// When it exists and cannot be used.
    pub fn open(registry: &dyn Registry) -> Result<Self, TokensError> {
        let kept = registry.read(Document::PublisherTokens).map_err(|error| unusable(registry, &error))?;
        Ok(Self { records: records(registry, kept)? })
    }

    /// Makes a token that may speak for topics with these prefixes.
    ///
    /// # Errors
    /// When the name is taken, a prefix is no URL, or the document cannot be written.
    pub fn add(
        registry: &dyn Registry,
        name: &str,
        topic_prefixes: Vec<String>,
    ) -> Result<NewToken, TokensError> {
        Prefixes::parse(&topic_prefixes)?;
        let token = format!("rsh_{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let info = TokenInfo { hash: hash(&token), topic_prefixes, created_at: DateTime::now().to_string() };
        Self::change(registry, |records| match records.entry(name.to_owned()) {
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
    /// When there is none of this name or the document cannot be written.
    pub fn revoke(registry: &dyn Registry, name: &str) -> Result<(), TokensError> {
        Self::change(registry, |records| {
            records.remove(name).map(drop).ok_or_else(|| TokensError::Unknown(name.to_owned()))
        })
    }

    /// Reads, changes and writes them while nobody else does. Otherwise one of two changes at once would undo the other, and a revoked
    /// token could come back.
    fn change(
        registry: &dyn Registry,
        change: impl FnOnce(&mut Records) -> Result<(), TokensError>,
    ) -> Result<(), TokensError> {
        let (mut change, mut changed) = (Some(change), Ok(()));
        let written = registry.change(Document::PublisherTokens, &mut |kept: Option<Vec<u8>>| {
            let change = change.take()?;
            let made = records(registry, kept).and_then(|mut records| {
                change(&mut records)?;
                serde_json::to_vec_pretty(&records).map_err(|error| unusable(registry, &error))
            });
            made.map_err(|error| changed = Err(error)).ok()
        });
        written.map_err(|error| unusable(registry, &error))?;
        changed
    }

    /// All tokens by name.
    pub fn list(&self) -> impl Iterator<Item = (&str, &TokenInfo)> {
        self.records.iter().map(|(name, info)| (name.as_str(), info))
    }

    /// When each token was used last, as far as that is saved: the last minute may be missing. Uses of an older token of the same name
    /// do not count.
    pub fn last_used(&self, registry: &dyn Registry) -> BTreeMap<String, String> {
        let kept = registry.read(Document::TokenUses).ok().flatten();
        let mut used = uses(kept);
        used.retain(|name, at| self.records.get(name).is_some_and(|info| info.may_have_been_used(at)));
        used
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.records.contains_key(name)
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

/// The last use of each token by its name. What cannot be read counts as empty.
pub(super) fn uses(kept: Option<Vec<u8>>) -> BTreeMap<String, String> {
    kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn records(registry: &dyn Registry, kept: Option<Vec<u8>>) -> Result<Records, TokensError> {
    let Some(bytes) = kept else { return Ok(Records::new()) };
    serde_json::from_slice(&bytes).map_err(|error| unusable(registry, &error))
}

fn unusable(registry: &dyn Registry, error: &dyn std::error::Error) -> TokensError {
    TokensError::Document { place: registry.place(Document::PublisherTokens), reason: error.to_string() }
}

pub(super) fn hash(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;
    use crate::store::Files;

    #[test]
    fn a_prefix_that_is_no_url_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::in_folder(folder.path());
        for prefix in
            ["", "library", "ftp://library.example/", "http://a.example/t?set=1", "http://a.example/#t"]
        {
            assert!(
                matches!(
                    Tokens::add(&files, "library", vec![prefix.to_owned()]),
                    Err(TokensError::Prefix(_))
                ),
                "{prefix:?}"
            );
        }
    }

    #[test]
    fn a_token_that_is_revoked_while_others_are_made_does_not_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::in_folder(folder.path());
        let make = |name: &str| Tokens::add(&files, name, vec!["http://source.example/".to_owned()]).unwrap();
        make("leaked");
        thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || (0..5).for_each(|turn| drop(make(&format!("{number}-{turn}")))));
            }
            scope.spawn(|| Tokens::revoke(&files, "leaked").unwrap());
        });
        let tokens = Tokens::open(&files).unwrap();
        assert_eq!(tokens.list().filter(|(name, _)| *name != "leaked").count(), 40, "and none is lost");
        assert!(tokens.list().all(|(name, _)| name != "leaked"));
    }

    #[test]
    fn the_file_holds_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::in_folder(folder.path());
        let NewToken(token) = Tokens::add(&files, "library", vec![]).unwrap();
        assert!(
            !fs::read_to_string(folder.path().join("publisher-tokens.json"))
                .unwrap()
                .contains(token.trim_start_matches("rsh_"))
        );
    }
}
