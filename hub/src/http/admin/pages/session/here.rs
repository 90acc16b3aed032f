//! Sessions in memory, for the only hub of its store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use resync_common::locks::lock;
use sha2::{Digest, Sha256};

use super::{IDLE, random};

/// Sessions at once; beyond that the one that was used least lately ends.
const AT_ONCE: usize = 64;

/// All sessions, by the hashes of what their cookies hold.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenSessions(Arc<Mutex<HashMap<[u8; 32], OpenSession>>>);

#[derive(Debug)]
struct OpenSession {
    csrf_token: Arc<str>,
    used: Instant,
    /// When the browser was told last to keep its cookie.
    renewed: Instant,
}

impl OpenSessions {
    /// Begins a session; returns what its cookie holds.
    pub(super) fn begin(&self, now: Instant) -> String {
        let (secret, csrf_token) = (random(), random());
        let mut open = self.lock();
        open.retain(|_, session| now < session.used + IDLE);
        while open.len() >= AT_ONCE
            && let Some(oldest) = open.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id)
        {
            open.remove(&oldest);
        }
        open.insert(hash(&secret), OpenSession { csrf_token: csrf_token.into(), used: now, renewed: now });
        secret
    }

    /// What its cookie holds, if the browser has to be told again to keep that.
    pub(super) fn renew(&self, secret: &str, now: Instant) -> Option<String> {
        let mut open = self.lock();
        let is_due =
            |session: &&mut OpenSession| now < session.used + IDLE && session.renewed + IDLE / 2 <= now;
        open.get_mut(&hash(secret)).filter(is_due)?.renewed = now;
        Some(secret.to_owned())
    }

    /// The CSRF token of the session whose cookie holds this. It was used now.
    pub(super) fn csrf_token(&self, secret: &str, now: Instant) -> Option<Arc<str>> {
        let mut open = self.lock();
        let session = open.get_mut(&hash(secret)).filter(|session| now < session.used + IDLE)?;
        session.used = now;
        Some(Arc::clone(&session.csrf_token))
    }

    /// Whether this session has not ended meanwhile. It was not used by that.
    pub(super) fn is_in(&self, secret: &str) -> bool {
        self.lock().contains_key(&hash(secret))
    }

    /// Ends a session.
    pub(super) fn end(&self, secret: &str) {
        self.lock().remove(&hash(secret));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], OpenSession>> {
        lock(&self.0)
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_session_ends_when_it_is_left_or_not_used_and_a_guess_is_none() {
        let (sessions, begun) = (OpenSessions::default(), Instant::now());
        let secret = sessions.begin(begun);
        assert!(sessions.csrf_token(&secret, begun).is_some());
        assert!(sessions.csrf_token("guess", begun).is_none());
        assert!(sessions.csrf_token(&secret, begun + IDLE / 2).is_some());
        assert!(sessions.csrf_token(&secret, begun + IDLE).is_some(), "it was used meanwhile");
        assert!(sessions.csrf_token(&secret, begun + IDLE * 2).is_none());
        sessions.end(&secret);
        assert!(sessions.csrf_token(&secret, begun).is_none() && !sessions.is_in(&secret));
    }

    #[test]
    fn the_browser_is_told_to_keep_the_cookie_of_a_session_that_is_used_when_half_of_its_time_is_over() {
        let (sessions, begun) = (OpenSessions::default(), Instant::now());
        let secret = sessions.begin(begun);
        assert_eq!(sessions.renew(&secret, begun + IDLE / 3), None);
        assert_eq!(sessions.renew(&secret, begun + IDLE / 2).as_ref(), Some(&secret));
        assert_eq!(sessions.renew(&secret, begun + IDLE / 2), None, "it was just done");
        assert_eq!(sessions.renew(&secret, begun + IDLE), None, "it was not used");
        assert_eq!(sessions.renew("guess", begun + IDLE / 2), None);
    }

    #[test]
    fn sessions_never_take_more_than_their_room() {
        let (sessions, begun) = (OpenSessions::default(), Instant::now());
        let first = sessions.begin(begun);
        for second in 1..=AT_ONCE as u64 {
            sessions.begin(begun + Duration::from_secs(second));
        }
        assert_eq!(sessions.lock().len(), AT_ONCE);
        assert!(sessions.csrf_token(&first, begun).is_none(), "the oldest one has ended");
    }
}
