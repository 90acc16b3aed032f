//! The share of the log that fetched notifications may take, and whose share each one counts for.

use std::net::IpAddr;
use std::sync::Arc;

use resync_common::words::Size;
use tracing::warn;

use super::authority::Authority;
use crate::concurrency::Client;
use crate::egress;
use crate::store::{Payer, Shares, Store, StoreError, Topic};

/// Divides the log between publishers and strangers.
#[derive(Clone, Debug)]
pub struct LogShares {
    store: Arc<dyn Store>,
    authority: Authority,
    shares: Shares,
}

/// Why a notification is not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it takes {}, and all topics without a publisher's token share {}: make a token with `resync-hub token add`, or raise [retention] size",
    Size(*weight),
    Size(*share)
)]
pub(super) struct TooLarge {
    weight: u64,
    share: u64,
}

impl LogShares {
    /// A log that may weigh `size` bytes.
    pub fn new(store: Arc<dyn Store>, authority: Authority, size: u64) -> Self {
        Self { store, authority, shares: Shares::of(size) }
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Whose share a topic counts for that was fetched from this address. Anybody can name topics below the prefix of a token, so
    /// only what was posted or pinged with a token counts for the publishers. For a redirect, the first address counts.
    ///
    /// A publisher that only pings, without a token, is a stranger: beyond its part of their share, its newest notification may be
    /// removed before all subscribers have it. The first new content that is posted, or pinged with a token, moves the whole topic to
    /// the publishers' share, and no ping of a stranger moves it back. Content that was there before moves nothing.
    pub(super) fn payer(&self, topic: &Topic, clients: &[Client], from: IpAddr) -> Payer {
        let with_token = || clients.iter().any(Client::is_trusted);
        if topic.posted.0 > 0 || (with_token() && self.authority.has_token_for(&topic.url)) {
            Payer::Publishers
        } else {
            Payer::Strangers(Some(egress::network(from).network()))
        }
    }

    /// Whether a notification fits into its share at all.
    ///
    /// # Errors
    /// [`TooLarge`]
    pub(super) fn fits(&self, posted: bool, payer: Payer, weight: u64) -> Result<(), TooLarge> {
        let share = self.shares.strangers;
        let fits = posted || payer == Payer::Publishers || weight <= share;
        if fits { Ok(()) } else { Err(TooLarge { weight, share }) }
    }

    /// If strangers have more than their share now, the heaviest of them lose their oldest notifications.
    ///
    /// # Errors
    /// [`StoreError`]: then the next fetch or retention makes room.
    pub(super) async fn make_room(&self) -> Result<(), StoreError> {
        let trimmed = self.store.make_room(self.shares).await?;
        if trimmed.notifications > 0 {
            warn!(
                notifications = trimmed.notifications,
                bytes = trimmed.bytes,
                share = self.shares.strangers,
                "log trimmed: topics without a publisher's token had more than their share of [retention] size"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::concurrency::ClientClass;
    use crate::config::PublishPolicy;
    use crate::store::{self, Engine, Files, Keyring, Offset, TopicId};
    use crate::topics::Tokens;

    fn log(data: &Path) -> LogShares {
        let store = store::open(Engine::default(), data, Keyring::none(), 0).unwrap();
        let authority = Authority::new(PublishPolicy::Token, store.registry()).unwrap();
        LogShares::new(store, authority, 1_000)
    }

    #[tokio::test]
    async fn who_pings_with_a_token_or_posts_pays_from_the_publishers_share_and_others_by_their_network() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::in_folder(folder.path());
        Tokens::add(&files, "library", vec!["http://library.example/".to_owned()]).unwrap();
        let log = log(folder.path());
        let of = |url: &str, posted, class, from: &str| {
            let (latest, posted) = (Offset(0), Offset(posted));
            let url = url.parse().unwrap();
            let topic = Topic { id: TopicId(1), url, first: Offset(1), head: Offset(1), latest, posted };
            log.payer(&topic, &[Client { network: None, class }], from.parse().unwrap())
        };
        let payer = |url: &str, from: &str| of(url, 0, ClientClass::Stranger, from);
        assert_eq!(
            of("http://library.example/feed", 0, ClientClass::Trusted, "192.0.2.7"),
            Payer::Publishers
        );
        assert_eq!(of("http://other.example/feed", 1, ClientClass::Stranger, "192.0.2.7"), Payer::Publishers);
        let network = |text: &str| Payer::Strangers(Some(text.parse().unwrap()));
        assert_eq!(payer("http://library.example/feed?1", "192.0.2.7"), network("192.0.2.0"));
        assert_eq!(payer("http://other.example/feed", "192.0.2.7"), network("192.0.2.0"));
        assert_eq!(payer("http://other.example/feed", "2001:db8:1:2::7"), network("2001:db8:1::"));
    }

    #[tokio::test]
    async fn what_would_take_more_than_the_share_of_all_strangers_is_not_taken_and_told_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path());
        let stranger = Payer::Strangers(None);
        assert_eq!(log.fits(false, stranger, 100), Ok(()));
        let told = log.fits(false, stranger, 101).unwrap_err().to_string();
        assert!(
            told.contains("takes 101 B") && told.contains("share 100 B") && told.contains("token add"),
            "{told}"
        );
        assert_eq!(log.fits(false, Payer::Publishers, 101), Ok(()));
        assert_eq!(log.fits(true, stranger, 101), Ok(()), "who has posted here speaks for the topic");
    }
}
