//! Sessions of the pages: a cookie that other sites cannot send, and a CSRF token that they cannot know.

mod ended;
mod here;
mod signed;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::SET_COOKIE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use resync_core::websub::Secret;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::here::OpenSessions;
use self::signed::SignedSessions;
use super::super::{AdminState, AdminToken};
use crate::http::cookies::cookie;
use crate::store::Store;
use crate::topics::Tickets;

/// How long a session lasts. One that is used when half of that is over lasts so long again.
const IDLE: Duration = Duration::from_secs(12 * 3_600);
/// Pages that are kept fresh at once.
const FRESH: usize = 32;

/// All sessions.
#[derive(Clone, Debug)]
pub struct Sessions {
    kept: Kept,
    cookie: Arc<str>,
    /// The listener speaks TLS.
    secure: bool,
    fresh: Arc<Semaphore>,
}

/// Where they are.
#[derive(Clone, Debug)]
enum Kept {
    Here(OpenSessions),
    /// In the cookies themselves.
    Signed(SignedSessions),
}

/// A session.
#[derive(Clone)]
pub(super) struct Session {
    /// What its cookie holds.
    value: Arc<str>,
    /// What every form must carry.
    pub(super) csrf_token: Arc<str>,
}

impl Sessions {
    /// No sessions yet, of a hub that shares its store with no other. `secure`: the listener uses TLS. Hubs on one machine have cookies of
    /// different names.
    pub fn new(token: &AdminToken, secure: bool) -> Self {
        Self::kept(Kept::Here(OpenSessions::default()), token, secure)
    }

    /// Those of all hubs that share this store and have the same admin token: a session of one is one of each. `tickets` have the key that
    /// they share.
    pub fn shared(token: &AdminToken, secure: bool, tickets: Tickets, store: &dyn Store) -> Self {
        let signed = SignedSessions::new(token, tickets, store.registry(), store.clock().clone());
        Self::kept(Kept::Signed(signed), token, secure)
    }

    fn kept(kept: Kept, token: &AdminToken, secure: bool) -> Self {
        let cookie = format!("resync-hub-{}", token.name()).into();
        Self { kept, cookie, secure, fresh: Arc::new(Semaphore::new(FRESH)) }
    }

    /// A permit for a page that is kept fresh, if one is left.
    pub(super) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.fresh).try_acquire_owned().ok()
    }

    /// Begins a session; returns the cookie to set.
    pub(super) fn begin(&self) -> String {
        let value = match &self.kept {
            Kept::Here(sessions) => sessions.begin(Instant::now()),
            Kept::Signed(sessions) => sessions.begin(),
        };
        self.cookie(&value, IDLE)
    }

    /// The cookie to set so that the session which a request shows goes on, if half of its time is over.
    fn renewed(&self, headers: &HeaderMap) -> Option<String> {
        let value = cookie(headers, &self.cookie)?;
        let renewed = match &self.kept {
            Kept::Here(sessions) => sessions.renew(value, Instant::now()),
            Kept::Signed(sessions) => sessions.renew(value),
        };
        renewed.map(|value| self.cookie(&value, IDLE))
    }

    /// Ends a session; returns the cookie to set.
    ///
    /// # Errors
    /// When the other hubs would not hear of it: the session goes on.
    pub(super) async fn end(&self, session: &Session) -> io::Result<String> {
        match &self.kept {
            Kept::Here(sessions) => sessions.end(&session.value),
            Kept::Signed(sessions) => sessions.end(&session.value).await?,
        }
        Ok(self.cookie("", Duration::ZERO))
    }

    /// Whether this session has not ended meanwhile.
    pub(super) fn is_in(&self, session: &Session) -> bool {
        match &self.kept {
            Kept::Here(sessions) => sessions.is_in(&session.value),
            Kept::Signed(sessions) => sessions.is_in(&session.value),
        }
    }

    fn of(&self, headers: &HeaderMap) -> Option<Session> {
        let value = cookie(headers, &self.cookie)?;
        let csrf_token = match &self.kept {
            Kept::Here(sessions) => sessions.csrf_token(value, Instant::now()),
            Kept::Signed(sessions) => sessions.csrf_token(value),
        };
        Some(Session { value: value.into(), csrf_token: csrf_token? })
    }

    fn cookie(&self, value: &str, age: Duration) -> String {
        let secure = if self.secure { "; Secure" } else { "" };
        format!(
            "{}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}",
            self.cookie,
            age.as_secs()
        )
    }
}

/// Keeps a session going that is used.
pub(super) async fn keep_alive(State(sessions): State<Sessions>, request: Request, next: Next) -> Response {
    let renewed = sessions.renewed(request.headers());
    let mut response = next.run(request).await;
    // Whoever has just logged in or out has another cookie.
    if !response.headers().contains_key(SET_COOKIE)
        && let Some(Ok(cookie)) = renewed.map(HeaderValue::try_from)
    {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

impl FromRequestParts<AdminState> for Session {
    type Rejection = Response;

    /// Without a session, redirects to the login.
    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, Response> {
        state.sessions.of(&parts.headers).ok_or_else(|| Redirect::to("/login").into_response())
    }
}

fn random() -> String {
    String::from_utf8_lossy(Secret::random().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use http::Uri;
    use http::header::COOKIE;
    use tower_service::Service;

    use super::*;
    use crate::store::{Files, WallClock};

    fn with(cookie: &str) -> HeaderMap {
        let pair = cookie.split(';').next().unwrap();
        HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(&format!("other=1; {pair}")).unwrap())])
    }

    #[tokio::test]
    async fn a_session_is_in_a_cookie_that_only_this_site_sends_wherever_sessions_are_kept() {
        let (token, tickets) = (AdminToken::new("x"), Tickets::new(Secret::random()));
        let folder = tempfile::tempdir().unwrap();
        let files = Arc::new(Files::in_folder(folder.path()));
        let signed = SignedSessions::new(&token, tickets, files, WallClock::default());
        for kept in [Kept::Here(OpenSessions::default()), Kept::Signed(signed)] {
            let sessions = Sessions::kept(kept, &token, true);
            let cookie = sessions.begin();
            for attribute in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/", "Max-Age=43200"] {
                assert!(cookie.contains(attribute), "{cookie}");
            }
            let session = sessions.of(&with(&cookie)).unwrap();
            assert!(sessions.is_in(&session));
            assert_eq!(sessions.of(&with(&cookie)).unwrap().csrf_token, session.csrf_token);
            assert!(sessions.of(&with(&format!("{}=guess", sessions.cookie))).is_none());
            let over = sessions.end(&session).await.unwrap();
            assert!(over.contains("=; ") && over.contains("Max-Age=0"), "{over}");
            assert!(sessions.of(&with(&cookie)).is_none() && !sessions.is_in(&session));
        }
    }

    #[tokio::test]
    async fn a_session_that_is_used_when_half_of_its_time_is_over_gets_its_next_cookie() {
        let (token, clock) = (AdminToken::new("x"), WallClock::default());
        let folder = tempfile::tempdir().unwrap();
        let files = Arc::new(Files::in_folder(folder.path()));
        let signed = SignedSessions::new(&token, Tickets::new(Secret::random()), files, clock.clone());
        let sessions = Sessions::kept(Kept::Signed(signed), &token, false);
        let pages: Router = Router::new()
            .route("/", get(|| async {}))
            .route("/logout", get(|| async { [(SET_COOKIE, "gone")] }))
            .route_layer(from_fn_with_state(sessions.clone(), keep_alive));
        let cookie = sessions.begin();
        let set_by = async |path: &'static str| {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = Uri::from_static(path);
            *request.headers_mut() = with(&cookie);
            let response = pages.clone().call(request).await.unwrap();
            response.headers().get(SET_COOKIE).map(|set| set.to_str().unwrap().to_owned())
        };
        assert_eq!(set_by("/").await, None);
        clock.put_ahead(IDLE / 2);
        let next = set_by("/").await.unwrap();
        clock.put_ahead(IDLE);
        assert!(sessions.of(&with(&cookie)).is_none() && sessions.of(&with(&next)).is_some());
        clock.put_ahead(IDLE / 2);
        assert_eq!(set_by("/logout").await.as_deref(), Some("gone"));
    }
}
