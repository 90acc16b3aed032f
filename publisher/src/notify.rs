//! Telling the hubs: one Framework Notification per hub about everything that changed since that hub last acknowledged one.
//!
//! The state advances only after a hub's 2xx, and per hub. What is sent depends on the documents alone, not on the clock, so a repeat after a crash
//! between acknowledgement and state has the same bytes and the same `Idempotency-Key`.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use http::{
    HeaderValue, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, LINK},
};
use resync_core::{
    datetime::DateTime,
    digest::{Algorithm, Digest},
    document::{Capability, FrameworkChange, FrameworkNotification},
    rules::Violations,
    websub::{XML_CONTENT_TYPE, link_header::LinkHeader},
    xml,
};

use crate::{
    changes, files,
    publish::is_in_place,
    settings::HubUrl,
    state::{self, Acknowledgement, Lock, State, StateError},
};

/// How long a hub may take to accept a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a hub may take to answer.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The request header that lets a hub recognise a repeat.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// How much of a hub's answer is shown.
const SHOWN_OF_AN_ANSWER: usize = 2 * 1024;

/// A bearer token for a hub: `TOKEN`, or `HUB_URL=TOKEN` where there are several hubs. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl FromStr for Token {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.trim().to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token([secret])")
    }
}

/// What came of telling one hub.
#[derive(Debug)]
pub struct Told {
    /// The hub.
    pub hub: HubUrl,
    /// The changes that it was to be told of.
    pub changes: Vec<FrameworkChange>,
    /// What came of it.
    pub outcome: Outcome,
}

/// The ways that telling a hub can end.
#[derive(Debug)]
pub enum Outcome {
    /// It knows everything already; nothing was sent.
    NothingChanged,
    /// It took the notification (FN-036: any 2xx).
    Accepted {
        /// The status of its answer.
        status: u16,
    },
    /// It did not. Nothing is lost: the next run tells it, with what has changed by then.
    Failed(PostError),
}

/// Why a hub did not take a notification.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No answer.
    #[error(
        "the hub cannot be reached ({reason}); nothing is lost, run `resync-source notify` again when it is back"
    )]
    Unreachable {
        /// The chain of causes.
        reason: String,
    },
    /// It wants to know who publishes.
    #[error("the hub answered {status}: {text}; give --token a token that may publish to `{topic}`")]
    Unauthorised {
        /// 401 or 403.
        status: StatusCode,
        /// The hub's own words.
        text: String,
        /// The topic.
        topic: String,
    },
    /// Any other answer that is no success.
    #[error(
        "the hub answered {status}: {text}; nothing is lost, the next `resync-source notify` sends it again"
    )]
    Refused {
        /// The status.
        status: StatusCode,
        /// The hub's own words.
        text: String,
    },
}

/// What keeps every hub from being told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// The state cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The last build named no hub.
    #[error("the site in `{}` has no hub to notify: build it again with --hub URL", out.display())]
    NoHub {
        /// The site.
        out: PathBuf,
    },
    /// A document is not what the last build wrote.
    #[error("`{}` is not what the last build wrote, so nobody is told of it: run `resync-source build` again", path.display())]
    NotInPlace {
        /// The document.
        path: PathBuf,
    },
    /// One token, several hubs.
    #[error(
        "there are {hubs} hubs, and a token meant for one must not reach another: write --token HUB_URL=TOKEN"
    )]
    WhoseToken {
        /// The number of hubs.
        hubs: usize,
    },
    /// A token for a hub that the site does not name.
    #[error("a --token begins with the URL of a hub that the site does not name: hubs are {}", hubs.join(", "))]
    UnknownHub {
        /// The hubs that it names.
        hubs: Vec<String>,
    },
    /// A token that no header can carry.
    #[error("a --token holds characters that no HTTP header can carry")]
    BadToken,
    /// A notification would break a rule of its specification.
    #[error("the notification would not conform: {0}")]
    Notification(#[from] Violations),
    /// The HTTP client cannot be made.
    #[error("cannot set up the HTTP client: {0}")]
    Client(String),
    /// The copy for readers of the topic cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Tells every hub of the site in `out` what changed since it was last told; hubs that know everything are left alone.
///
/// Waits while a build or another notification works on the same `out`. One hub's failure keeps no other from being told.
pub async fn notify(out: &Path, tokens: &[Token]) -> Result<Vec<Told>, NotifyError> {
    let folder = out.to_owned();
    let opened = tokio::task::spawn_blocking(move || open(&folder)).await;
    let (lock, mut state) = opened.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))?;
    if state.settings.hubs.is_empty() {
        return Err(NotifyError::NoHub { out: out.to_owned() });
    }
    let credentials = credentials(&state.settings.hubs, tokens)?;
    let client = client()?;
    let mut outcomes = Vec::new();
    for (hub, authorization) in credentials {
        let told = tell(&client, &state, &hub, authorization).await?;
        if let Outcome::Accepted { status } = told.result {
            record(&lock, &mut state, out, &hub, status, &told)?;
        }
        outcomes.push(Told { hub, changes: told.changes, outcome: told.result });
    }
    Ok(outcomes)
}

fn open(out: &Path) -> Result<(Lock, State), NotifyError> {
    State::load(out)?;
    let lock = Lock::acquire(out)?;
    let state = State::load(out)?;
    if let Some(record) = state.documents.iter().find(|record| !is_in_place(out, record)) {
        return Err(NotifyError::NotInPlace { path: out.join(&record.path) });
    }
    Ok((lock, state))
}

struct Attempt {
    changes: Vec<FrameworkChange>,
    body: Vec<u8>,
    key: String,
    result: Outcome,
}

async fn tell(
    client: &reqwest::Client,
    state: &State,
    hub: &HubUrl,
    authorization: Option<HeaderValue>,
) -> Result<Attempt, NotifyError> {
    let told = state.hubs.get(hub).map(|record| record.told.clone()).unwrap_or_default();
    let changes = changes::since_told(&state.documents, &told);
    if changes.is_empty() {
        let (body, key) = (Vec::new(), String::new());
        return Ok(Attempt { changes, body, key, result: Outcome::NothingChanged });
    }
    let topic = topic(state);
    let body = notification(state, &changes)?;
    let key = key(&topic, &body);
    let mut request = client
        .post(hub.url().clone())
        .header(CONTENT_TYPE, XML_CONTENT_TYPE)
        .header(LINK, links(state, &topic, hub))
        .header(IDEMPOTENCY_KEY, &key)
        .body(body.clone());
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let result = match request.send().await {
        Ok(response) => judge(response, topic).await,
        Err(error) => Outcome::Failed(PostError::Unreachable { reason: causes(&error.without_url()) }),
    };
    Ok(Attempt { changes, body, key, result })
}

fn topic(state: &State) -> String {
    crate::site::Site::new(state.settings.base_url.clone()).topic()
}

fn notification(state: &State, changes: &[FrameworkChange]) -> Result<Vec<u8>, Violations> {
    let mut notification = FrameworkNotification::new();
    if let Some(up) = up(state, changes) {
        notification = notification.up(up);
    }
    for change in changes {
        notification = notification.change(change.clone());
    }
    Ok(xml::write(&notification.build()?))
}

/// The Capability List for news of its own documents, the Source Description for news of the Capability List, and none where that would be ambiguous (FN-022, FN-026).
fn up(state: &State, changes: &[FrameworkChange]) -> Option<String> {
    let only = |kind: &Capability| changes.iter().all(|change| &change.capability == kind);
    let has = |kind: &Capability| changes.iter().any(|change| &change.capability == kind);
    let target = if only(&Capability::CapabilityList) {
        Capability::Description
    } else if has(&Capability::CapabilityList) || has(&Capability::Description) {
        return None;
    } else {
        Capability::CapabilityList
    };
    state.document(&target).map(|document| document.url.clone())
}

/// `self`, the hub that is addressed, and the Capability List (FN-033, FN-034).
fn links(state: &State, topic: &str, hub: &HubUrl) -> String {
    let links = LinkHeader::default().push(topic, "self").push(hub.as_str(), "hub");
    match state.document(&Capability::CapabilityList) {
        Some(list) => links.push(list.url.as_str(), "resourcesync").to_string(),
        None => links.to_string(),
    }
}

fn key(topic: &str, body: &[u8]) -> String {
    let content = [topic.as_bytes(), b"\n", body].concat();
    let digest = Digest::of(Algorithm::Sha256, &content).to_string();
    digest.rsplit(':').next().unwrap_or_default().to_owned()
}

async fn judge(mut response: reqwest::Response, topic: String) -> Outcome {
    let status = response.status();
    if status.is_success() {
        return Outcome::Accepted { status: status.as_u16() };
    }
    let mut text = Vec::new();
    while text.len() < SHOWN_OF_AN_ANSWER {
        match response.chunk().await {
            Ok(Some(chunk)) => text.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    text.truncate(SHOWN_OF_AN_ANSWER);
    let text = printable(&text);
    Outcome::Failed(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PostError::Unauthorised { status, text, topic },
        _ => PostError::Refused { status, text },
    })
}

/// A hub's words on one line, without characters that could steer a terminal.
fn printable(text: &[u8]) -> String {
    let text: String =
        String::from_utf8_lossy(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match text.trim() {
        "" => "(no reason given)".to_owned(),
        words => words.to_owned(),
    }
}

fn causes(error: &reqwest::Error) -> String {
    let mut texts = Vec::new();
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.dedup();
    texts.join(": ")
}

fn record(
    lock: &Lock,
    state: &mut State,
    out: &Path,
    hub: &HubUrl,
    status: u16,
    attempt: &Attempt,
) -> Result<(), NotifyError> {
    let path = state::notification_path(out);
    files::replace(&path, &attempt.body).map_err(|source| NotifyError::Write { path, source })?;
    let mut record = state::HubRecord::new(topic(state));
    record.told = changes::all_told(&state.documents);
    record.last = Some(Acknowledgement { at: DateTime::now(), status, key: attempt.key.clone() });
    state.hubs.insert(hub.clone(), record);
    Ok(lock.save(state)?)
}

fn credentials(hubs: &[HubUrl], tokens: &[Token]) -> Result<Vec<(HubUrl, Option<HeaderValue>)>, NotifyError> {
    let mut credentials: Vec<_> = hubs.iter().map(|hub| (hub.clone(), None)).collect();
    for Token(token) in tokens.iter().filter(|token| !token.0.is_empty()) {
        let named = |hub: &HubUrl| token.strip_prefix(hub.as_str()).and_then(|rest| rest.strip_prefix('='));
        let (position, secret) = match hubs.iter().position(|hub| named(hub).is_some()) {
            Some(position) => (position, named(&hubs[position]).unwrap_or_default()),
            None if token.starts_with("http://") || token.starts_with("https://") => {
                return Err(NotifyError::UnknownHub { hubs: hubs.iter().map(HubUrl::to_string).collect() });
            }
            None if hubs.len() > 1 => return Err(NotifyError::WhoseToken { hubs: hubs.len() }),
            None => (0, token.as_str()),
        };
        let mut value =
            HeaderValue::from_str(&format!("Bearer {secret}")).map_err(|_| NotifyError::BadToken)?;
        value.set_sensitive(true);
        credentials[position].1 = Some(value);
    }
    Ok(credentials)
}

fn client() -> Result<reqwest::Client, NotifyError> {
    let failed = |error: &dyn fmt::Display| NotifyError::Client(error.to_string());
    let roots: rustls::RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TIMEOUT)
        .user_agent(concat!("resync-source/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hubs(urls: &[&str]) -> Vec<HubUrl> {
        urls.iter().map(|url| HubUrl::parse(url).unwrap()).collect()
    }

    fn sent(hubs: &[HubUrl], tokens: &[&str]) -> Result<Vec<Option<String>>, NotifyError> {
        let tokens: Vec<Token> = tokens.iter().map(|token| token.parse().unwrap()).collect();
        let credentials = credentials(hubs, &tokens)?;
        let text = |value: Option<HeaderValue>| value.map(|value| value.to_str().unwrap().to_owned());
        Ok(credentials.into_iter().map(|(_, value)| text(value)).collect())
    }

    #[test]
    fn a_token_reaches_the_hub_it_is_meant_for_and_no_other() {
        let two = hubs(&["http://a.example/hub", "http://b.example/hub"]);
        let named = sent(&two, &["http://b.example/hub=s3cret=="]).unwrap();
        assert_eq!(named, [None, Some("Bearer s3cret==".to_owned())]);
        assert!(matches!(sent(&two, &["s3cret"]), Err(NotifyError::WhoseToken { hubs: 2 })));
        assert!(matches!(sent(&two, &["http://c.example/=s3cret"]), Err(NotifyError::UnknownHub { .. })));
        assert_eq!(sent(&two[..1], &["s3cret"]).unwrap(), [Some("Bearer s3cret".to_owned())]);
        assert!(matches!(sent(&two[..1], &["a\nb"]), Err(NotifyError::BadToken)));
    }

    #[test]
    fn a_token_is_never_shown() {
        let token: Token = "hunter2".parse().unwrap();
        assert!(!format!("{token:?}").contains("hunter2"));
        let unknown = sent(&hubs(&["http://a.example/hub"]), &["http://c.example/=hunter2"]).unwrap_err();
        assert!(!unknown.to_string().contains("hunter2"), "{unknown}");
    }

    #[test]
    fn a_hubs_words_cannot_steer_the_terminal() {
        assert_eq!(printable(b"no\x1b[2J such\ntopic\r\n"), "no [2J such topic");
        assert_eq!(printable(b" \n"), "(no reason given)");
    }

    #[test]
    fn the_key_depends_on_topic_and_content_alone() {
        assert_eq!(key("http://t/", b"<a/>"), key("http://t/", b"<a/>"));
        assert_ne!(key("http://t/", b"<a/>"), key("http://u/", b"<a/>"));
        assert_eq!(key("http://t/", b"<a/>").len(), 64);
    }
}
