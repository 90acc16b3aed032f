//! Sessions of the pages: a cookie that other sites cannot send, and a token in every form that they cannot know.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Redirect, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use resync_core::websub::{Secret, is_form};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::form_urlencoded;

use super::super::{AdminState, AdminToken};
use super::layout;
use crate::http::body;
use crate::http::cookies::cookie;
use crate::http::same_site::is_from_here;

/// How long an unused session lasts.
const IDLE: Duration = Duration::from_secs(12 * 3_600);
/// Sessions at once; beyond that the one that was used least lately ends.
const AT_ONCE: usize = 64;
/// Pages that are kept fresh at once.
const FRESH: usize = 32;
/// No form of ours is larger.
const FORM_LIMIT: usize = 64 * 1024;
/// The name of the field with the word of the session.
pub(super) const WORD: &str = "word";

/// Everybody who is in.
#[derive(Clone, Debug)]
pub struct Sessions {
    kept: Arc<Mutex<HashMap<[u8; 32], Kept>>>,
    cookie: Arc<str>,
    /// The listener speaks TLS.
    secure: bool,
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct Kept {
    word: Arc<str>,
    used: Instant,
}

/// A session.
#[derive(Clone)]
pub(super) struct Session {
    id: [u8; 32],
    /// What every form must carry.
    pub(super) word: Arc<str>,
}

impl Sessions {
    /// No sessions yet. `secure`: the listener uses TLS. Hubs on one machine have cookies of different names.
    pub fn new(token: &AdminToken, secure: bool) -> Self {
        Self {
            kept: Arc::default(),
            cookie: format!("resync-hub-{}", token.name()).into(),
            secure,
            places: Arc::new(Semaphore::new(FRESH)),
        }
    }

    /// A permit for a page that is kept fresh, if one is left.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Begins a session; returns the cookie to set.
    pub(super) fn begin(&self, now: Instant) -> String {
        let (secret, word) = (random(), random());
        let mut kept = self.kept();
        kept.retain(|_, session| now < session.used + IDLE);
        while kept.len() >= AT_ONCE
            && let Some(oldest) = kept.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id)
        {
            kept.remove(&oldest);
        }
        kept.insert(hash(&secret), Kept { word: word.into(), used: now });
        self.cookie(&secret, IDLE)
    }

    /// Ends a session; returns the cookie to set.
    pub(super) fn end(&self, session: &Session) -> String {
        self.kept().remove(&session.id);
        self.cookie("", Duration::ZERO)
    }

    /// Whether this session has not ended meanwhile.
    pub(super) fn is_in(&self, session: &Session) -> bool {
        self.kept().contains_key(&session.id)
    }

    fn of(&self, headers: &HeaderMap, now: Instant) -> Option<Session> {
        let id = hash(cookie(headers, &self.cookie)?);
        let mut kept = self.kept();
        let session = kept.get_mut(&id).filter(|session| now < session.used + IDLE)?;
        session.used = now;
        Some(Session { id, word: Arc::clone(&session.word) })
    }

    fn cookie(&self, value: &str, age: Duration) -> String {
        let secure = if self.secure { "; Secure" } else { "" };
        format!(
            "{}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}",
            self.cookie,
            age.as_secs()
        )
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<[u8; 32], Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The fields of a form that a session sent from one of our pages.
pub(super) struct Form {
    pub(super) session: Session,
    fields: Vec<(String, String)>,
}

impl Form {
    /// The value of a field; `None` if it is empty.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }
}

impl FromRequest<AdminState> for Form {
    type Rejection = Response;

    async fn from_request(request: Request, state: &AdminState) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let session = Session::from_request_parts(&mut parts, state).await?;
        let fields = fields(state, &parts.headers, body).await?;
        let word = fields.iter().find(|(name, _)| name == WORD).map_or("", |(_, value)| value.as_str());
        if !bool::from(word.as_bytes().ct_eq(session.word.as_bytes())) {
            return Err(refused(
                "This form belongs to an older session: go back, reload the page and try again.",
            ));
        }
        Ok(Self { session, fields })
    }
}

/// The fields of a form that comes from a page of this listener.
pub(super) async fn fields(
    state: &AdminState,
    headers: &HeaderMap,
    body: Body,
) -> Result<Vec<(String, String)>, Response> {
    if !is_from_here(headers, None) {
        return Err(refused("This form was sent by another site."));
    }
    if !headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(is_form) {
        return Err(refused("This is no form."));
    }
    match body::read(headers, body, FORM_LIMIT, state.pace, &state.bodies).await {
        Ok((body, _room)) => Ok(form_urlencoded::parse(&body).into_owned().collect()),
        Err(unread) => {
            Err(layout::error(unread.status(), None, &format!("The form cannot be read: {unread}.")))
        }
    }
}

fn refused(why: &str) -> Response {
    layout::error(StatusCode::FORBIDDEN, None, why)
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
        assert_eq!(sessions.kept().len(), AT_ONCE);
        assert!(sessions.of(&with(&first), begun).is_none(), "the oldest one has ended");
    }
}
