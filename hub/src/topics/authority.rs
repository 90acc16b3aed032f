//! Who may publish what: bearer tokens, each with the topic prefixes that it may speak for, stored as hashes.
//!
//! The tokens live in one small file beside the store, so that `resync-hub token` works while the hub runs; the hub reads
//! the file again when it has changed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use resync_core::datetime::DateTime;
use resync_core::durable::{folder_of, replace_private};
use resync_core::lock::FileLock;
use resync_core::websub::TopicUrl;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::error;

use super::token_uses::TokenUses;
use crate::config::{NoPrefix, Prefixes, PublishPolicy};

/// How often an unusable file of tokens is read again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a publisher may not post.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No token, or one that is unknown or revoked.
    #[error(
        "posting content needs a token of this hub: send Authorization: Bearer TOKEN (the operator makes one with `resync-hub token add`)"
    )]
    NoToken,
    /// The token is for other topics.
    #[error(
        "this token may not speak for the topic: ask the operator for one with a matching --topic-prefix"
    )]
    OtherTopics,
}

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

/// Decides who may post content for a topic.
#[derive(Clone, Debug)]
pub struct Authority {
    policy: PublishPolicy,
    path: Arc<Path>,
    cached: Arc<Mutex<Cached>>,
    uses: TokenUses,
}

/// The file of tokens.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    records: BTreeMap<String, TokenInfo>,
}

/// One token, without the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// SHA-256 of the token, in hex. The token is random and long, so a plain hash is enough.
    hash: String,
    /// It may speak for topics that begin like one of these.
    pub topic_prefixes: Vec<String>,
    /// When it was made.
    pub created_at: String,
}

/// A token that was just made; it can be seen only now.
#[derive(Debug)]
pub struct NewToken(pub String);

/// Distinguishes versions of the file. Every save makes a new file, so two within one tick of the file system's clock differ too.
type FileVersion = (SystemTime, u64, u64);

/// The file as it was read last.
#[derive(Debug)]
struct Cached {
    tokens_by_hash: Arc<TokensByHash>,
    version: Option<FileVersion>,
    unusable: Option<Unusable>,
}

/// The owners of tokens, by hash.
type TokensByHash = HashMap<String, Arc<TokenOwner>>;

/// The owner of a token, with its prefixes parsed.
#[derive(Debug)]
struct TokenOwner {
    name: String,
    prefixes: Prefixes,
}

/// A version of the file that could not be used, and when it was tried last.
#[derive(Clone, Copy, Debug)]
struct Unusable {
    version: Option<FileVersion>,
    tried: Instant,
}

impl Authority {
    /// The authority of a hub whose tokens are in this file, which need not exist.
    ///
    /// # Errors
    /// When the file exists and cannot be used.
    pub fn new(policy: PublishPolicy, tokens: &Path) -> Result<Self, TokensError> {
        let version = version(tokens);
        let cached = Cached { tokens_by_hash: tokens_by_hash(tokens)?, version, unusable: None };
        let uses = TokenUses::beside(tokens);
        Ok(Self { policy, path: tokens.into(), cached: Arc::new(Mutex::new(cached)), uses })
    }

    /// The last uses of tokens. The caller has to save them now and then.
    pub fn uses(&self) -> TokenUses {
        self.uses.clone()
    }

    /// Whether this token allows posting for this topic. With policy `open` no token is needed.
    ///
    /// # Errors
    /// [`Denied`], saying what is missing.
    pub fn allows(&self, token: Option<&str>, topic: &TopicUrl) -> Result<(), Denied> {
        if self.is_open() {
            return Ok(());
        }
        self.knows(token, topic)
    }

    /// Whether everybody may speak for every topic.
    pub fn is_open(&self) -> bool {
        self.policy == PublishPolicy::Open
    }

    /// Whether this is a token for this topic, whatever the policy.
    ///
    /// # Errors
    /// [`Denied`], saying what is missing.
    pub fn knows(&self, token: Option<&str>, topic: &TopicUrl) -> Result<(), Denied> {
        let grant = self.grant(token).ok_or(Denied::NoToken)?;
        if grant.covers(topic) { Ok(()) } else { Err(Denied::OtherTopics) }
    }

    /// Whether anybody has a token for this topic.
    pub fn has_token_for(&self, topic: &TopicUrl) -> bool {
        let version = version(&self.path);
        self.tokens_by_hash(version, Instant::now()).values().any(|owner| owner.prefixes.cover(topic))
    }

    /// The topics that this token allows; `None` if it is unknown or revoked. For requests about many topics, since finding a token
    /// costs more than comparing topics.
    pub fn grant(&self, token: Option<&str>) -> Option<Grant> {
        let hash = hash(token?);
        // Others are not kept waiting for the file system. Whoever comes after a change finds it: what is kept was read later than its stamp.
        let version = version(&self.path);
        let owner = self.tokens_by_hash(version, Instant::now()).get(&hash).cloned()?;
        Some(Grant { owner, uses: self.uses.clone() })
    }

    fn tokens_by_hash(&self, version: Option<FileVersion>, now: Instant) -> Arc<TokensByHash> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.refresh(&self.path, version, now);
        Arc::clone(&cached.tokens_by_hash)
    }
}

/// Which topics the owner of a token may speak for.
#[derive(Clone, Debug)]
pub struct Grant {
    owner: Arc<TokenOwner>,
    uses: TokenUses,
}

impl Grant {
    /// Whether this is one of the topics; if so, the token counts as used.
    pub fn covers(&self, topic: &TopicUrl) -> bool {
        let covers = self.owner.prefixes.cover(topic);
        if covers {
            self.uses.note(&self.owner.name, DateTime::now());
        }
        covers
    }
}

impl Cached {
    /// A file that cannot be used is tried now and then, since what is wrong with it need not change its stamp.
    fn refresh(&mut self, path: &Path, version: Option<FileVersion>, now: Instant) {
        if self.unusable.is_some_and(|unusable| now < unusable.tried + RETRY_AFTER) {
            return;
        }
        if version == self.version {
            self.unusable = None;
            return;
        }
        match tokens_by_hash(path) {
            Ok(tokens_by_hash) => *self = Self { tokens_by_hash, version, unusable: None },
            Err(error) => {
                if self.unusable.is_none_or(|unusable| unusable.version != version) {
                    error!(%error, "publishers' tokens not reloaded: the old ones stay valid");
                }
                self.unusable = Some(Unusable { version, tried: now });
            }
        }
    }
}

fn tokens_by_hash(path: &Path) -> Result<Arc<TokensByHash>, TokensError> {
    let owner = |(name, info): (String, TokenInfo)| {
        // An invalid prefix covers nothing.
        let prefixes = Prefixes::parse(&info.topic_prefixes).unwrap_or_default();
        (info.hash, Arc::new(TokenOwner { name, prefixes }))
    };
    Ok(Arc::new(Tokens::open(path)?.records.into_iter().map(owner).collect()))
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
        let mut used = TokenUses::read(&self.path);
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

fn version(path: &Path) -> Option<FileVersion> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.ino(), metadata.len()))
}

fn hash(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::sync::watch;

    use super::*;
    use crate::config::uses_file;

    fn topic(url: &str) -> TopicUrl {
        url.parse().unwrap()
    }

    #[test]
    fn a_token_speaks_for_its_prefixes_and_for_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let authority = Authority::new(PublishPolicy::Token, &path).unwrap();
        let NewToken(token) =
            Tokens::add(&path, "library", vec!["http://source.example/".to_owned()]).unwrap();
        assert_eq!(authority.allows(Some(&token), &topic("http://source.example/framework/")), Ok(()));
        assert_eq!(authority.allows(Some(&token), &topic("http://other.example/")), Err(Denied::OtherTopics));
        assert_eq!(
            authority.allows(Some("rsh_guess"), &topic("http://source.example/")),
            Err(Denied::NoToken)
        );
        assert_eq!(authority.allows(None, &topic("http://source.example/")), Err(Denied::NoToken));
    }

    #[test]
    fn a_topic_is_spoken_for_as_long_as_there_is_a_token_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let authority = Authority::new(PublishPolicy::Open, &path).unwrap();
        let of_library = topic("http://source.example/framework/");
        assert!(!authority.has_token_for(&of_library), "that everybody may post makes nobody speak for it");
        Tokens::add(&path, "library", vec!["http://source.example/".to_owned()]).unwrap();
        assert!(
            authority.has_token_for(&of_library) && !authority.has_token_for(&topic("http://other.example/"))
        );
        Tokens::revoke(&path, "library").unwrap();
        assert!(!authority.has_token_for(&of_library));
    }

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
    fn a_revoked_token_is_worthless_at_once_in_a_running_hub() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let NewToken(token) =
            Tokens::add(&path, "library", vec!["http://source.example/".to_owned()]).unwrap();
        let authority = Authority::new(PublishPolicy::Token, &path).unwrap();
        assert!(authority.allows(Some(&token), &topic("http://source.example/")).is_ok());
        Tokens::revoke(&path, "library").unwrap();
        assert_eq!(authority.allows(Some(&token), &topic("http://source.example/")), Err(Denied::NoToken));
        assert!(matches!(Tokens::revoke(&path, "library"), Err(TokensError::Unknown(_))));
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

    #[tokio::test]
    async fn the_last_use_of_a_token_is_written_down_and_outlives_the_hub() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let NewToken(token) =
            Tokens::add(&path, "library", vec!["http://source.example/".to_owned()]).unwrap();
        Tokens::add(&path, "museum", vec!["http://museum.example/".to_owned()]).unwrap();
        let before = DateTime::now();
        for _ in 0..2 {
            // Each hub is stopped before it has ticked a second time.
            let authority = Authority::new(PublishPolicy::Token, &path).unwrap();
            assert!(authority.allows(Some(&token), &topic("http://source.example/t")).is_ok());
            assert!(authority.allows(Some(&token), &topic("http://museum.example/t")).is_err());
            let (stop, stopped) = watch::channel(true);
            authority.uses().keep(stopped).await;
            drop(stop);
        }
        let used = Tokens::open(&path).unwrap().last_used();
        assert_eq!(used.keys().collect::<Vec<_>>(), ["library"]);
        assert!(used["library"].parse::<DateTime>().unwrap() >= before);
    }

    #[tokio::test]
    async fn what_a_revoked_token_was_used_for_is_not_said_of_the_next_of_its_name_and_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let before = r#"{"library": "2020-01-01T00:00:00Z", "revoked": "2020-01-01T00:00:00Z"}"#;
        fs::write(uses_file(&path), before).unwrap();
        for name in ["library", "museum"] {
            Tokens::add(&path, name, vec!["http://source.example/".to_owned()]).unwrap();
        }
        assert_eq!(Tokens::open(&path).unwrap().last_used(), BTreeMap::new());
        let authority = Authority::new(PublishPolicy::Token, &path).unwrap();
        authority.uses().note("museum", DateTime::now());
        authority.uses().keep(watch::channel(true).1).await;
        let used = Tokens::open(&path).unwrap().last_used();
        assert_eq!(used.keys().collect::<Vec<_>>(), ["museum"]);
        assert!(!fs::read_to_string(uses_file(&path)).unwrap().contains("revoked"));
    }

    #[test]
    fn the_file_holds_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let NewToken(token) = Tokens::add(&path, "library", vec![]).unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains(token.trim_start_matches("rsh_")));
    }

    #[test]
    fn an_open_hub_asks_publishers_for_nothing_and_still_knows_who_has_a_token() {
        let authority = Authority::new(PublishPolicy::Open, Path::new("/nonexistent/tokens")).unwrap();
        assert_eq!(authority.allows(None, &topic("http://anybody.example/")), Ok(()));
        assert_eq!(authority.knows(None, &topic("http://anybody.example/")), Err(Denied::NoToken));
    }

    #[test]
    fn an_unusable_file_is_tried_once_a_second_and_the_old_tokens_hold_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let NewToken(old) = Tokens::add(&path, "library", vec!["http://source.example/".to_owned()]).unwrap();
        let mut cached = Cached {
            version: version(&path),
            tokens_by_hash: tokens_by_hash(&path).unwrap(),
            unusable: None,
        };
        let begun = Instant::now();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, "{").unwrap();
        assert!(Tokens::add(&path, "museum", vec![]).is_err(), "nor is it overwritten");
        cached.refresh(&path, version(&path), begun);
        assert!(cached.tokens_by_hash.contains_key(&hash(&old)) && cached.unusable.is_some());

        fs::write(&path, whole).unwrap();
        let NewToken(new) = Tokens::add(&path, "museum", vec!["http://museum.example/".to_owned()]).unwrap();
        cached.refresh(&path, version(&path), begun + RETRY_AFTER / 2);
        assert!(!cached.tokens_by_hash.contains_key(&hash(&new)), "it is not looked at again so soon");
        cached.refresh(&path, version(&path), begun + RETRY_AFTER);
        assert!(cached.tokens_by_hash.contains_key(&hash(&new)) && cached.unusable.is_none());
    }

    #[test]
    fn prefixes_are_read_once_for_each_version_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let NewToken(token) =
            Tokens::add(&path, "library", vec!["http://source.example/".to_owned()]).unwrap();
        let authority = Authority::new(PublishPolicy::Token, &path).unwrap();
        let owner = || authority.grant(Some(&token)).unwrap().owner;
        let first = owner();
        assert!(Arc::ptr_eq(&first, &owner()));
        Tokens::add(&path, "museum", vec!["http://museum.example/".to_owned()]).unwrap();
        assert!(!Arc::ptr_eq(&first, &owner()));
    }
}
