//! Sessions that all hubs of a store know: what the cookie says is signed with the key that they share.
//!
//! ```text
//! id . start . end . signature      moments by the store's clock, in milliseconds since 1970
//! ```
//!
//! So nothing is kept of a session that is in force. The browser drops the cookie at the same end.

use std::io;
use std::sync::Arc;

use super::super::super::AdminToken;
use super::ended::EndedSessions;
use super::{IDLE, random};
use crate::store::{Registry, WallClock};
use crate::topics::Tickets;

/// What tickets of these are for: none serves for another.
const COOKIE: &str = "session of the admin pages";
const FORM: &str = "form of the admin pages";

/// All sessions that these hubs have signed.
#[derive(Clone, Debug)]
pub(super) struct SignedSessions {
    tickets: Tickets,
    /// A session ends with the token that has opened it.
    token: Arc<str>,
    clock: WallClock,
    ended: EndedSessions,
}

/// What a cookie says, once its signature was found right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim<'a> {
    id: &'a str,
    start: i64,
    end: i64,
}

impl SignedSessions {
    /// `registry` and `clock` are those of the store that the hubs share, and `tickets` have the key from it.
    pub(super) fn new(
        token: &AdminToken,
        tickets: Tickets,
        registry: Arc<dyn Registry>,
        clock: WallClock,
    ) -> Self {
        Self { tickets, token: token.fingerprint().into(), clock, ended: EndedSessions::new(registry) }
    }

    /// Begins a session; returns what its cookie holds.
    pub(super) fn begin(&self) -> String {
        self.sign(&random())
    }

    /// What another cookie of the same session holds, which lasts as long as a new one, if half of this one's time is over.
    pub(super) fn renew(&self, cookie: &str) -> Option<String> {
        let claim = self.claim(cookie)?;
        (claim.end.saturating_sub(self.now()) <= idle() / 2).then(|| self.sign(claim.id))
    }

    /// The CSRF token of the session whose cookie holds this: the same at each hub, and for all its cookies.
    pub(super) fn csrf_token(&self, cookie: &str) -> Option<Arc<str>> {
        let claim = self.claim(cookie)?;
        Some(self.tickets.of(self.named(FORM, claim.id)).into())
    }

    /// Whether this session has not ended meanwhile.
    pub(super) fn is_in(&self, cookie: &str) -> bool {
        self.claim(cookie).is_some()
    }

    /// Ends a session at all hubs. That is durable when this returns.
    ///
    /// # Errors
    /// When it could not be written down: the session goes on.
    pub(super) async fn end(&self, cookie: &str) -> io::Result<()> {
        match self.claim(cookie) {
            // A hub that has not heard of it yet may renew it in the next moment, which is why it is twice as long.
            Some(claim) => {
                let now = self.now();
                self.ended.add(claim.id, now.saturating_add(2 * idle()), now).await
            }
            None => Ok(()),
        }
    }

    /// What a cookie says, if the session is in force.
    fn claim<'a>(&self, cookie: &'a str) -> Option<Claim<'a>> {
        let (text, signature) = cookie.rsplit_once('.')?;
        if !self.tickets.admits(signature, self.named(COOKIE, text)) {
            return None;
        }
        let claim = Claim::parse(text)?;
        let is_over = self.now() >= claim.end || self.ended.has(claim.id, claim.start);
        (!is_over).then_some(claim)
    }

    fn sign(&self, id: &str) -> String {
        let start = self.now();
        let claim = format!("{id}.{start}.{}", start.saturating_add(idle()));
        let signature = self.tickets.of(self.named(COOKIE, &claim));
        format!("{claim}.{signature}")
    }

    fn named(&self, what: &str, claim: &str) -> String {
        format!("{what}\n{}\n{claim}", self.token)
    }

    fn now(&self) -> i64 {
        self.clock.now().unix_millis()
    }
}

/// How long a cookie lasts, in milliseconds.
fn idle() -> i64 {
    i64::try_from(IDLE.as_millis()).unwrap_or(i64::MAX / 4)
}

impl<'a> Claim<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (id, moments) = text.split_once('.')?;
        let (start, end) = moments.split_once('.')?;
        Some(Self { id, start: start.parse().ok()?, end: end.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use resync_core::websub::Secret;

    use super::*;
    use crate::store::Files;

    struct Hubs {
        folder: tempfile::TempDir,
        key: Secret,
        clock: WallClock,
    }

    impl Hubs {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            Self { folder, key: Secret::random(), clock: WallClock::default() }
        }

        /// One of them, whose operator's token is this.
        fn hub(&self, token: &str) -> SignedSessions {
            self.with_key(token, self.key.clone(), self.folder.path())
        }

        fn with_key(&self, token: &str, key: Secret, folder: &Path) -> SignedSessions {
            let registry = Arc::new(Files::in_folder(folder));
            SignedSessions::new(&AdminToken::new(token), Tickets::new(key), registry, self.clock.clone())
        }
    }

    #[tokio::test]
    async fn whoever_is_logged_in_at_one_hub_is_so_at_each_until_the_log_out_at_any() {
        let hubs = Hubs::new();
        let (one, other) = (hubs.hub("token"), hubs.hub("token"));
        let (cookie, another) = (one.begin(), other.begin());
        let csrf_token = one.csrf_token(&cookie).unwrap();
        assert_eq!(other.csrf_token(&cookie).unwrap(), csrf_token, "a form of one is sent to the other");
        assert_ne!(other.csrf_token(&another).unwrap(), csrf_token, "and no form of another session");
        other.end(&cookie).await.unwrap();
        for hub in [&one, &other, &hubs.hub("token")] {
            assert!(!hub.is_in(&cookie) && hub.csrf_token(&cookie).is_none(), "a copy of it opens nothing");
            assert!(hub.is_in(&another));
        }
        one.end(&cookie).await.unwrap();
    }

    #[test]
    fn a_session_is_over_at_its_end_by_the_clock_of_the_store() {
        let hubs = Hubs::new();
        let (one, other) = (hubs.hub("token"), hubs.hub("token"));
        let cookie = one.begin();
        hubs.clock.put_ahead(IDLE / 2);
        assert!(one.is_in(&cookie) && other.is_in(&cookie));
        hubs.clock.put_ahead(IDLE);
        assert!(!one.is_in(&cookie) && !other.is_in(&cookie));
    }

    #[tokio::test]
    async fn a_session_that_is_used_goes_on_with_its_forms_and_the_log_out_ends_all_its_cookies() {
        let hubs = Hubs::new();
        let (one, other) = (hubs.hub("token"), hubs.hub("token"));
        let first = one.begin();
        hubs.clock.put_ahead(IDLE / 3);
        assert_eq!(one.renew(&first), None, "half of its time is not over");
        hubs.clock.put_ahead(IDLE / 2);
        let second = other.renew(&first).unwrap();
        assert_eq!(other.csrf_token(&second).unwrap(), one.csrf_token(&first).unwrap());
        hubs.clock.put_ahead(IDLE);
        assert!(!one.is_in(&first) && one.is_in(&second));
        let third = one.renew(&second).unwrap();
        other.end(&second).await.unwrap();
        // What has ended by itself is forgotten at each log-out.
        hubs.clock.put_ahead(IDLE * 7 / 4);
        other.end(&one.begin()).await.unwrap();
        for hub in [one, other] {
            assert!(!hub.is_in(&second) && !hub.is_in(&third));
            assert_eq!(hub.renew(&third), None);
        }
    }

    #[test]
    fn what_these_hubs_have_not_signed_for_this_token_is_no_session() {
        let hubs = Hubs::new();
        let hub = hubs.hub("token");
        let cookie = hub.begin();
        let (claim, signature) = cookie.rsplit_once('.').unwrap();
        let end = claim.rsplit_once('.').unwrap().1;
        let form = hub.csrf_token(&cookie).unwrap();
        for forged in [
            String::new(),
            "guess".to_owned(),
            claim.to_owned(),
            format!("{claim}."),
            format!("{claim}.{form}"),
            format!("{claim}0.{signature}"),
            format!("{}9{end}.{signature}", claim.strip_suffix(end).unwrap()),
        ] {
            assert!(!hub.is_in(&forged), "{forged}");
        }
        assert!(!hubs.hub("another token").is_in(&cookie));
        assert!(!hubs.with_key("token", Secret::random(), hubs.folder.path()).is_in(&cookie));
    }
}
