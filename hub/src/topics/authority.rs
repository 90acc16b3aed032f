//! Who may publish what: whoever shows a token that covers the topic. The hub reads the tokens again when they have changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use resync_common::locks::lock;
use resync_core::datetime::DateTime;
use resync_core::websub::TopicUrl;
use tracing::error;

use super::token_uses::TokenUses;
use super::tokens::{TokenInfo, Tokens, TokensError, hash};
use crate::config::{Prefixes, PublishPolicy};
use crate::store::{Document, DocumentVersion, Registry};

/// How often tokens that cannot be used are read again.
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

/// Decides who may post content for a topic.
#[derive(Clone, Debug)]
pub struct Authority {
    policy: PublishPolicy,
    registry: Arc<dyn Registry>,
    cached: Arc<Mutex<Cached>>,
    uses: TokenUses,
}

/// The tokens as they were read last.
#[derive(Debug)]
struct Cached {
    tokens_by_hash: Arc<TokensByHash>,
    version: Option<DocumentVersion>,
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

/// A version of the tokens that could not be used, and when it was tried last.
#[derive(Clone, Copy, Debug)]
struct Unusable {
    version: Option<DocumentVersion>,
    tried: Instant,
}

impl Authority {
    /// The authority of a hub whose tokens are there.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn new(policy: PublishPolicy, registry: Arc<dyn Registry>) -> Result<Self, TokensError> {
        let version = registry.version(Document::PublisherTokens);
        let cached = Cached { tokens_by_hash: tokens_by_hash(&*registry)?, version, unusable: None };
        let uses = TokenUses::new(Arc::clone(&registry));
        Ok(Self { policy, registry, cached: Arc::new(Mutex::new(cached)), uses })
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
        let version = self.registry.version(Document::PublisherTokens);
        self.tokens_by_hash(version, Instant::now()).values().any(|owner| owner.prefixes.cover(topic))
    }

    /// The topics that this token allows; `None` if it is unknown or revoked. For requests about many topics, since finding a token
    /// costs more than comparing topics.
    pub fn grant(&self, token: Option<&str>) -> Option<Grant> {
        let hash = hash(token?);
        // Others are not kept waiting meanwhile. Whoever comes after a change finds it: what is kept was read later than its stamp.
        let version = self.registry.version(Document::PublisherTokens);
        let owner = self.tokens_by_hash(version, Instant::now()).get(&hash).cloned()?;
        Some(Grant { owner, uses: self.uses.clone() })
    }

    fn tokens_by_hash(&self, version: Option<DocumentVersion>, now: Instant) -> Arc<TokensByHash> {
        let mut cached = lock(&self.cached);
        cached.refresh(&*self.registry, version, now);
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
    /// What cannot be used is tried now and then, since what is wrong with it need not change its version.
    fn refresh(&mut self, registry: &dyn Registry, version: Option<DocumentVersion>, now: Instant) {
        if self.unusable.is_some_and(|unusable| now < unusable.tried + RETRY_AFTER) {
            return;
        }
        if version == self.version {
            self.unusable = None;
            return;
        }
        match tokens_by_hash(registry) {
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

fn tokens_by_hash(registry: &dyn Registry) -> Result<Arc<TokensByHash>, TokensError> {
    let owner = |(name, info): (String, TokenInfo)| {
        // An invalid prefix covers nothing.
        let prefixes = Prefixes::parse(&info.topic_prefixes).unwrap_or_default();
        (info.hash, Arc::new(TokenOwner { name, prefixes }))
    };
    Ok(Arc::new(Tokens::open(registry)?.records.into_iter().map(owner).collect()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use tokio::sync::watch;

    use super::super::tokens::NewToken;
    use super::*;
    use crate::store::Files;

    fn files(folder: &Path) -> Arc<dyn Registry> {
        Arc::new(Files::in_folder(folder))
    }

    fn topic(url: &str) -> TopicUrl {
        url.parse().unwrap()
    }

    #[test]
    fn a_token_speaks_for_its_prefixes_and_for_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let authority = Authority::new(PublishPolicy::Token, Arc::clone(&files)).unwrap();
        let NewToken(token) =
            Tokens::add(&*files, "library", vec!["http://source.example/".to_owned()]).unwrap();
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
        let files = files(folder.path());
        let authority = Authority::new(PublishPolicy::Open, Arc::clone(&files)).unwrap();
        let of_library = topic("http://source.example/framework/");
        assert!(!authority.has_token_for(&of_library), "that everybody may post makes nobody speak for it");
        Tokens::add(&*files, "library", vec!["http://source.example/".to_owned()]).unwrap();
        assert!(
            authority.has_token_for(&of_library) && !authority.has_token_for(&topic("http://other.example/"))
        );
        Tokens::revoke(&*files, "library").unwrap();
        assert!(!authority.has_token_for(&of_library));
    }

    #[test]
    fn a_revoked_token_is_worthless_at_once_in_a_running_hub() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let NewToken(token) =
            Tokens::add(&*files, "library", vec!["http://source.example/".to_owned()]).unwrap();
        let authority = Authority::new(PublishPolicy::Token, Arc::clone(&files)).unwrap();
        assert!(authority.allows(Some(&token), &topic("http://source.example/")).is_ok());
        Tokens::revoke(&*files, "library").unwrap();
        assert_eq!(authority.allows(Some(&token), &topic("http://source.example/")), Err(Denied::NoToken));
        assert!(matches!(Tokens::revoke(&*files, "library"), Err(TokensError::Unknown(_))));
    }

    #[tokio::test]
    async fn the_last_use_of_a_token_is_written_down_and_outlives_the_hub() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let NewToken(token) =
            Tokens::add(&*files, "library", vec!["http://source.example/".to_owned()]).unwrap();
        Tokens::add(&*files, "museum", vec!["http://museum.example/".to_owned()]).unwrap();
        let before = DateTime::now();
        for _ in 0..2 {
            // Each hub is stopped before it has ticked a second time.
            let authority = Authority::new(PublishPolicy::Token, Arc::clone(&files)).unwrap();
            assert!(authority.allows(Some(&token), &topic("http://source.example/t")).is_ok());
            assert!(authority.allows(Some(&token), &topic("http://museum.example/t")).is_err());
            let (stop, stopped) = watch::channel(true);
            authority.uses().keep(stopped).await;
            drop(stop);
        }
        let used = Tokens::open(&*files).unwrap().last_used(&*files);
        assert_eq!(used.keys().collect::<Vec<_>>(), ["library"]);
        assert!(used["library"].parse::<DateTime>().unwrap() >= before);
    }

    #[tokio::test]
    async fn what_a_revoked_token_was_used_for_is_not_said_of_the_next_of_its_name_and_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let before = r#"{"library": "2020-01-01T00:00:00Z", "revoked": "2020-01-01T00:00:00Z"}"#;
        fs::write(files.place(Document::TokenUses), before).unwrap();
        for name in ["library", "museum"] {
            Tokens::add(&*files, name, vec!["http://source.example/".to_owned()]).unwrap();
        }
        assert_eq!(Tokens::open(&*files).unwrap().last_used(&*files), BTreeMap::new());
        let authority = Authority::new(PublishPolicy::Token, Arc::clone(&files)).unwrap();
        authority.uses().note("museum", DateTime::now());
        authority.uses().keep(watch::channel(true).1).await;
        let used = Tokens::open(&*files).unwrap().last_used(&*files);
        assert_eq!(used.keys().collect::<Vec<_>>(), ["museum"]);
        assert!(!fs::read_to_string(files.place(Document::TokenUses)).unwrap().contains("revoked"));
    }

    #[test]
    fn an_open_hub_asks_publishers_for_nothing_and_still_knows_who_has_a_token() {
        let authority = Authority::new(PublishPolicy::Open, files(Path::new("/nonexistent"))).unwrap();
        assert_eq!(authority.allows(None, &topic("http://anybody.example/")), Ok(()));
        assert_eq!(authority.knows(None, &topic("http://anybody.example/")), Err(Denied::NoToken));
    }

    #[test]
    fn an_unusable_file_is_tried_once_a_second_and_the_old_tokens_hold_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (files, of) = (files(folder.path()), Document::PublisherTokens);
        let NewToken(old) =
            Tokens::add(&*files, "library", vec!["http://source.example/".to_owned()]).unwrap();
        let (path, version) = (files.place(of), || files.version(of));
        let mut cached =
            Cached { version: version(), tokens_by_hash: tokens_by_hash(&*files).unwrap(), unusable: None };
        let begun = Instant::now();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, "{").unwrap();
        assert!(Tokens::add(&*files, "museum", vec![]).is_err(), "nor is it overwritten");
        cached.refresh(&*files, version(), begun);
        assert!(cached.tokens_by_hash.contains_key(&hash(&old)) && cached.unusable.is_some());

        fs::write(&path, whole).unwrap();
        let NewToken(new) =
            Tokens::add(&*files, "museum", vec!["http://museum.example/".to_owned()]).unwrap();
        cached.refresh(&*files, version(), begun + RETRY_AFTER / 2);
        assert!(!cached.tokens_by_hash.contains_key(&hash(&new)), "it is not looked at again so soon");
        cached.refresh(&*files, version(), begun + RETRY_AFTER);
        assert!(cached.tokens_by_hash.contains_key(&hash(&new)) && cached.unusable.is_none());
    }

    #[test]
    fn prefixes_are_read_once_for_each_version_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let NewToken(token) =
            Tokens::add(&*files, "library", vec!["http://source.example/".to_owned()]).unwrap();
        let authority = Authority::new(PublishPolicy::Token, Arc::clone(&files)).unwrap();
        let owner = || authority.grant(Some(&token)).unwrap().owner;
        let first = owner();
        assert!(Arc::ptr_eq(&first, &owner()));
        Tokens::add(&*files, "museum", vec!["http://museum.example/".to_owned()]).unwrap();
        assert!(!Arc::ptr_eq(&first, &owner()));
    }
}
