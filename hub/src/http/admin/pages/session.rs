//! Sessions of the pages: a cookie that other sites cannot send, and a CSRF token that they cannot know.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Redirect, Response};
use http::HeaderMap;
use http::request::Parts;
use resync_common::locks::lock;
use resync_core::websub::Secret;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::{AdminState, AdminToken};
use crate::http::cookies::cookie;

/// How long an unused session lasts.
const IDLE: Duration = Duration::from_secs(12 * 3_600);
/// Sessions at once; beyond that the one that was used least lately ends.
const AT_ONCE: usize = 64;
/// Pages that are kept fresh at once.
const FRESH: usize = 32;

/// All sessions.
#[derive(Clone, Debug)]
pub struct Sessions {
    open: Arc<Mutex<HashMap<[u8; 32], OpenSession>>>,
    cookie: Arc<str>,
    /// The listener speaks TLS.
    secure: bool,
    fresh: Arc<Semaphore>,
}

#[derive(Debug)]
struct OpenSession {
    csrf_token: Arc<str>,
    used: Instant,
}

/// A session.
#[derive(Clone)]
pub(super) struct Session {
    id: [u8; 32],
    /// What every form must carry.
    pub(super) csrf_token: Arc<str>,
}

impl Sessions {
    /// No sessions yet. `secure`: the listener uses TLS. Hubs on one machine have cookies of different names.
    pub fn new(token: &AdminToken, secure: bool) -> Self {
        Self {
            open: Arc::default(),
            cookie: format!("resync-hub-{}", token.name()).into(),
            secure,
            fresh: Arc::new(Semaphore::new(FRESH)),
        }
    }

    /// A permit for a page that is kept fresh, if one is left.
    pub(super) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.fresh).try_acquire_owned().ok()
    }

    /// Begins a session; returns the cookie to set.
    pub(super) fn begin(&self, now: Instant) -> String {
        let (secret, csrf_token) = (random(), random());
        let mut open = self.open();
        open.retain(|_, session| now < session.used + IDLE);
        while open.len() >= AT_ONCE
            && let Some(oldest) = open.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id)
        {
            open.remove(&oldest);
        }
        open.insert(hash(&secret), OpenSession { csrf_token: csrf_token.into(), used: now });
        self.cookie(&secret, IDLE)
    }

    /// Ends a session; returns the cookie to set.
    pub(super) fn end(&self, session: &Session) -> String {
        self.open().remove(&session.id);
        self.cookie("", Duration::ZERO)
    }

    /// Whether this session has not ended meanwhile.
    pub(super) fn is_in(&self, session: &Session) -> bool {
        self.open().contains_key(&session.id)
    }

    fn of(&self, headers: &HeaderMap, now: Instant) -> Option<Session> {
        let id = hash(cookie(headers, &self.cookie)?);
        let mut open = self.open();
        let session = open.get_mut(&id).filter(|session| now < session.used + IDLE)?;
        session.used = now;
        Some(Session { id, csrf_token: Arc::clone(&session.csrf_token) })
    }

    fn cookie(&self, value: &str, age: Duration) -> String {
        let secure = if self.secure { "; Secure" } else { "" };
        format!(
            "{}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}",
            self.cookie,
            age.as_secs()
        )
    }

    fn open(&self) -> MutexGuard<'_, HashMap<[u8; 32], OpenSession>> {
        lock(&self.open)
    }
}

impl FromRequestParts<AdminState> for Session {
    type Rejection = Response;

    /// Without a session, redirects to the login.
    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, Response> {
        state
            .sessions
            .of(&parts.headers, Instant::now())
            .ok_or_else(|| Redirect::to("/login").into_response())
    }
}

fn random() -> String {
    String::from_utf8_lossy(Secret::random().as_bytes()).into_owned()
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::COOKIE;

    use super::*;

    fn with(cookie: &str) -> HeaderMap {
        let pair = cookie.split(';').next().unwrap();
        HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(&format!("other=1; {pair}")).unwrap())])
    }

    #[test]
    fn a_session_ends_when_it_is_left_or_not_used_and_a_guess_is_none() {
        let (sessions, begun) = (Sessions::new(&AdminToken::new("x"), true), Instant::now());
        let cookie = sessions.begin(begun);
        for attribute in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        let session = sessions.of(&with(&cookie), begun).unwrap();
        assert!(sessions.of(&with(&format!("{}=guess", sessions.cookie)), begun).is_none());
        assert!(sessions.of(&with(&cookie), begun + IDLE / 2).is_some());
        assert!(sessions.of(&with(&cookie), begun + IDLE).is_some(), "it was used meanwhile");
        assert!(sessions.of(&with(&cookie), begun + IDLE * 2).is_none());
        sessions.end(&session);
        assert!(sessions.of(&with(&cookie), begun).is_none() && !sessions.is_in(&session));
    }

    #[test]
    fn sessions_never_take_more_than_their_room() {
        let (sessions, begun) = (Sessions::new(&AdminToken::new("x"), false), Instant::now());
        let first = sessions.begin(begun);
        for second in 1..=AT_ONCE as u64 {
            sessions.begin(begun + Duration::from_secs(second));
        }
        assert_eq!(sessions.open().len(), AT_ONCE);
        assert!(sessions.of(&with(&first), begun).is_none(), "the oldest one has ended");
    }
}
