//! Telling the hubs: the Change Notifications that wait, in their order, and then one Framework Notification per hub about all documents that it
//! is not known to know in their present version.
//!
//! One run at a time tells a hub of a site, so that it never hears something old after something new; builds and other hubs go on meanwhile. A run
//! notes what the hub is about to hear, posts it, and notes the answer when it comes. Knowledge advances only by a hub's 2xx, to the versions that
//! were posted; without an answer it stays in doubt, and the next run says it again. What is sent depends on the documents alone, so a repetition
//! has the same bytes and the same `Idempotency-Key`.

mod hub_record;
mod message;
mod post;
mod token;

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use http::HeaderValue;
use resync_core::{document::FrameworkChange, lock::FileLock, rules::Violations};
use tokio::task::JoinSet;

use self::{
    hub_record::{record_sent, record_trouble, settle},
    message::Message,
};
use crate::{
    blocking::unblocked,
    changes,
    lock::{Lock, lock_hub},
    outbox,
    publish::{BuildError, describe_again, is_in_place, restamp},
    settings::HubUrl,
    site::Site,
    state::{self, HubRecord, State, StateError},
};

pub use self::{
    hub_record::skip,
    post::{CONNECT_TIMEOUT, IDEMPOTENCY_KEY, PostError, TIMEOUT},
    token::{Token, tokens_for},
};
pub(crate) use self::{post::client, token::Hubs};

/// How long a hub that the site has left is tried before it is given up. It is tried at least once.
pub const LEAVING: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What came of telling one hub.
#[derive(Debug)]
pub struct HubReport {
    /// The hub.
    pub hub: HubUrl,
    /// Whether the site has left it, and it is told for the last time.
    pub leaving: bool,
    /// How many Change Notifications it took.
    pub sent: usize,
    /// How many of them still wait.
    pub waiting: usize,
    /// The changes of documents that it was to be told of.
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

/// What keeps every hub from being told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// The state cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The last build named no hub.
    #[error("the site in `{}` has no hub; add one to `hubs` in its configuration, or build it with --hub URL", out.display())]
    NoHub {
        /// The site.
        out: PathBuf,
    },
    /// A document is not what the last build wrote.
    #[error("`{}` changed since the last build, so no hub is notified; run `resync-source build` again", path.display())]
    NotInPlace {
        /// The document.
        path: PathBuf,
    },
    /// One token, several hubs.
    #[error("there are {hubs} hubs, and each token must reach only its own; write --token HUB_URL=TOKEN")]
    WhoseToken {
        /// The number of hubs.
        hubs: usize,
    },
    /// A token that no header can carry.
    #[error("a --token contains characters that HTTP headers cannot contain")]
    BadToken,
    /// A notification would break a rule of its specification.
    #[error("the notification would break a rule: {0}")]
    Notification(#[from] Violations),
    /// The HTTP client cannot be made.
    #[error("cannot set up the HTTP client: {0}")]
    Client(String),
    /// The Source Description cannot be brought in step with the sets of the site.
    #[error(transparent)]
    Describe(#[from] BuildError),
    /// A notification that waits cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The copy for readers of the topic cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Tells every hub of the site in `out` what it is not known to know; hubs that know everything are left alone. A hub that the site has left is told
/// once more, so that its subscribers find the new Capability List, and then forgotten.
///
/// Waits while another notification of the same hub is under way, and shortly while a build is. One hub's failure keeps no other from being told.
///
/// ```
/// use axum::{Router, http::StatusCode, routing::post};
/// use resync_publisher::notify::Outcome;
/// use resync_publisher::{BaseUrl, HubUrl, Settings, build, notify};
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// // What stands in for a hub takes everything.
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let hub = HubUrl::parse(&format!("http://{}/websub/", listener.local_addr()?))?;
/// let takes = Router::new().route("/websub/", post(|| async { StatusCode::ACCEPTED }));
/// tokio::spawn(async move { axum::serve(listener, takes).await });
///
/// let place = tempfile::tempdir()?;
/// let (collection, out) = (place.path().join("collection"), place.path().join("site"));
/// std::fs::create_dir(&collection)?;
/// build(&Settings::new(collection, BaseUrl::parse("https://example.org/data/")?).hub(hub), &out)?;
///
/// let told = notify(&out, &[]).await?;
/// assert!(matches!(told[0].outcome, Outcome::Accepted { status: 202 }));
/// assert_eq!(told[0].changes.len(), 4, "each document of the new site");
///
/// // The hub knows everything now, and is left alone.
/// assert!(matches!(notify(&out, &[]).await?[0].outcome, Outcome::NothingChanged));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn notify(out: &Path, tokens: &[Token]) -> Result<Vec<HubReport>, NotifyError> {
    let hubs = {
        let (out, tokens) = (out.to_owned(), tokens.to_vec());
        unblocked(move || hubs(&out, &tokens)).await?
    };
    let client = client()?;
    let mut update = JoinSet::new();
    for (position, hub) in hubs.into_iter().enumerate() {
        let (client, out, tokens) = (client.clone(), out.to_owned(), tokens.to_vec());
        update.spawn(async move { (position, notify_hub(&client, &out, &hub, &tokens).await) });
    }
    let (mut all, mut settled) = (BTreeMap::new(), Ok(()));
    while let Some(report) = update.join_next().await {
        let (position, report) =
            report.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
        match report {
            Ok(report) => all.extend(report.map(|report| (position, report))),
            Err(error) => settled = settled.and(Err(error)),
        }
    }
    settled.map(|()| all.into_values().collect())
}

/// Tells one hub; `None` when it is not one of those that may have something to hear.
pub(crate) async fn notify_hub(
    client: &reqwest::Client,
    out: &Path,
    hub: &HubUrl,
    tokens: &[Token],
) -> Result<Option<HubReport>, NotifyError> {
    let begun = {
        let (out, hub, tokens) = (out.to_owned(), hub.clone(), tokens.to_vec());
        unblocked(move || begin(&out, &hub, &tokens)).await?
    };
    let Some((lock, update)) = begun else { return Ok(None) };
    let posted = update.post_changes(client, out).await;
    let outcome = update.post(client, posted.failed.as_ref()).await;
    let (update, mut posted, outcome, noted) = {
        let out = out.to_owned();
        unblocked(move || {
            let noted = settle(&out, &update, &posted, &outcome);
            (update, posted, outcome, noted)
        })
        .await
    };
    drop(lock);
    posted.broken.take().map_or(Ok(()), Err).and(noted)?;
    let still_waiting = update.still_waiting(&posted).count();
    let HubUpdate { hub, leaving, changes, .. } = update;
    let (sent, waiting) = (posted.sent, still_waiting);
    let outcome = posted.and(outcome);
    Ok(Some(HubReport { hub, leaving, sent, waiting, changes, outcome }))
}

/// What one hub is to be told, as of one state of the site.
struct HubUpdate {
    hub: HubUrl,
    authorization: Option<HeaderValue>,
    leaving: bool,
    /// The topic of the framework channel.
    topic: String,
    /// The numbers of the Change Notifications that wait, their topic and their links.
    waiting: Range<u64>,
    change_topic: String,
    change_links: String,
    changes: Vec<FrameworkChange>,
    /// None when there is nothing to say.
    message: Option<Message>,
    /// What the hub knows when it has taken the message.
    known: BTreeMap<String, state::KnownDocument>,
    /// What was in doubt before.
    unconfirmed_before: BTreeMap<String, state::KnownDocument>,
}

/// What came of posting Change Notifications.
#[derive(Debug, Default)]
struct Posted {
    sent: usize,
    /// How many are not there to be sent.
    gone: u64,
    /// The number of the last one that was taken, or is not there to be sent.
    reached: u64,
    status: Option<u16>,
    failed: Option<PostError>,
    /// What kept the next one from being posted on this side.
    broken: Option<NotifyError>,
}

impl Posted {
    /// What came of it together with the Framework Notification.
    fn and(self, outcome: Outcome) -> Outcome {
        match (self, outcome) {
            (_, Outcome::Failed(error)) | (Self { failed: Some(error), .. }, _) => Outcome::Failed(error),
            (Self { status: Some(status), .. }, Outcome::NothingChanged) => Outcome::Accepted { status },
            (_, outcome) => outcome,
        }
    }
}

impl HubUpdate {
    fn of(
        state: &State,
        hub: HubUrl,
        authorization: Option<HeaderValue>,
        record: &HubRecord,
    ) -> Result<Self, Violations> {
        let changes = changes::since_known(&state.documents, record);
        let known = changes::all_known(&state.documents);
        let message = match changes.as_slice() {
            [] => None,
            changes => Some(Message::new(state, &record.topic, &hub, changes, &known)?),
        };
        let (leaving, unconfirmed_before) = (record.left.is_some(), record.unconfirmed.clone());
        let waiting = if leaving { 0..0 } else { state.gone_for(record) + 1..state.outbox + 1 };
        let change_topic = Site::of(&state.settings).change_topic();
        let change_links = message::links(state, &change_topic, &hub);
        let topic = record.topic.clone();
        Ok(Self {
            hub,
            authorization,
            leaving,
            topic,
            waiting,
            change_topic,
            change_links,
            changes,
            message,
            known,
            unconfirmed_before,
        })
    }

    /// What waits after some was posted.
    fn still_waiting(&self, posted: &Posted) -> Range<u64> {
        self.waiting.start.max(posted.reached + 1)..self.waiting.end
    }

    /// Posts what waits, one after the other; the first that is not taken keeps those after it waiting.
    async fn post_changes(&self, client: &reqwest::Client, out: &Path) -> Posted {
        let mut posted = Posted::default();
        let broken = self.post_each(client, out, &mut posted).await.err();
        if posted.gone > 0 {
            tracing::warn!(gone = posted.gone, hub = %self.hub, "skipped missing Change Notifications");
        }
        Posted { broken, ..posted }
    }

    async fn post_each(
        &self,
        client: &reqwest::Client,
        out: &Path,
        posted: &mut Posted,
    ) -> Result<(), NotifyError> {
        for number in self.waiting.clone() {
            let path = outbox::path(out, number);
            let body = match tokio::fs::read(&path).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    (posted.gone, posted.reached) = (posted.gone + 1, number);
                    continue;
                }
                read => read.map_err(|source| NotifyError::Read { path, source })?,
            };
            let message = Message::of_changes(&self.change_topic, &self.change_links, number, body.clone());
            match post::post(client, &self.hub, self.authorization.clone(), message).await {
                Ok(status) => {
                    let (out, hub, topic) = (out.to_owned(), self.hub.clone(), self.topic.clone());
                    let change_topic = self.change_topic.clone();
                    unblocked(move || record_sent(&out, &hub, &topic, change_topic, number, &body)).await?;
                    (posted.sent, posted.reached) = (posted.sent + 1, number);
                    posted.status = Some(status.as_u16());
                }
                Err(error) => {
                    posted.failed = Some(error);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Posts the Framework Notification, unless the hub could not even be reached just before.
    async fn post(&self, client: &reqwest::Client, failed: Option<&PostError>) -> Outcome {
        let Some(message) = self.message.clone() else { return Outcome::NothingChanged };
        if let Some(away @ PostError::Unreachable { .. }) = failed {
            return Outcome::Failed(away.clone());
        }
        match post::post(client, &self.hub, self.authorization.clone(), message).await {
            Ok(status) => Outcome::Accepted { status: status.as_u16() },
            Err(error) => Outcome::Failed(error),
        }
    }
}

/// The hubs that may have something to hear, once it is certain whom the tokens are for.
fn hubs(out: &Path, tokens: &[Token]) -> Result<Vec<HubUrl>, NotifyError> {
    let state = State::load(out)?;
    let hubs = token::credentials(&state, tokens)?;
    if hubs.is_empty() {
        return Err(NotifyError::NoHub { out: out.to_owned() });
    }
    Ok(hubs.into_iter().map(|(hub, _)| hub).collect())
}

/// Works out what a hub is to be told, and notes it as in doubt before anything is sent.
fn begin(out: &Path, hub: &HubUrl, tokens: &[Token]) -> Result<Option<(FileLock, HubUpdate)>, NotifyError> {
    State::load(out)?;
    let of_hub = lock_hub(out, hub)?;
    let lock = Lock::acquire(out)?;
    let update = work_out(&lock, hub, tokens);
    if let Err(error) = &update {
        record_trouble(&lock, hub, error);
    }
    Ok(update?.map(|update| (of_hub, update)))
}

fn work_out(lock: &Lock, hub: &HubUrl, tokens: &[Token]) -> Result<Option<HubUpdate>, NotifyError> {
    let out = lock.out();
    let mut state = describe_again(lock, State::load(out)?)?;
    let credentials = token::credentials(&state, tokens)?;
    let Some((_, authorization)) = credentials.into_iter().find(|(known, _)| known == hub) else {
        return Ok(None);
    };
    if restamp(&mut state, out) {
        state.save(lock)?;
    }
    if let Some(record) = state.documents.iter().find(|record| !is_in_place(out, record)) {
        return Err(NotifyError::NotInPlace { path: out.join(&record.path) });
    }
    let Some(record) = state.hubs.get(hub) else { return Ok(None) };
    let update = HubUpdate::of(&state, hub.clone(), authorization, record)?;
    if update.message.is_some() {
        let mut unconfirmed = update.unconfirmed_before.clone();
        unconfirmed.extend(update.known.clone());
        if unconfirmed != update.unconfirmed_before {
            state.hubs.entry(hub.clone()).and_modify(|record| record.unconfirmed = unconfirmed);
            state.save(lock)?;
        }
    } else if update.waiting.is_empty() && record.trouble.is_some() {
        // What was in the way has passed, and nothing is sent that could show it.
        state.hubs.entry(hub.clone()).and_modify(|record| record.trouble = None);
        state.save(lock)?;
    }
    Ok(Some(update))
}
