//! Notifies the hubs: posts the Change Notifications that wait, in their order, and then one Framework Notification per hub about all documents whose
//! present version it has not acknowledged.
//!
//! One run at a time notifies a hub of a site, so that nothing old follows something new; builds and other hubs go on meanwhile. A run records what it is
//! about to post, posts it, and records the answer. Only a 2xx acknowledges the posted versions. Without an answer they stay unconfirmed, and the next run
//! repeats them. What is sent depends on the documents alone, so a repetition has the same bytes and the same `Idempotency-Key`.

mod document_changes;
mod hub_record;
mod message;
mod post;
mod token;

use std::{collections::BTreeMap, io, ops::Range, path::Path, time::Duration};

use http::HeaderValue;
use resync_core::{document::FrameworkChange, lock::FileLock, rules::Violations};
use tokio::task::JoinSet;

use self::{
    hub_record::{record_sent, record_trouble, settle},
    message::Message,
};
use crate::{
    error::{Action, Error},
    helpers::blocking::unblocked,
    outbox,
    publish::{describe_again, is_in_place, restamp},
    settings::HubUrl,
    site::Site,
    state::{HubRecord, Lock, NotifiedDocument, State, lock_hub},
};

pub(crate) use self::{document_changes::unacknowledged, post::client, token::Hubs};
pub use self::{
    hub_record::{drop_hub, skip},
    post::{CONNECT_TIMEOUT, IDEMPOTENCY_KEY, PostError, TIMEOUT},
    token::{Token, tokens_for},
};

/// How long a former hub is tried before it is given up. It is tried at least once.
pub const LEAVING: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What came of notifying one hub.
#[derive(Debug)]
pub struct HubReport {
    /// The hub.
    pub hub: HubUrl,
    /// Whether it is a former hub of the site, which is notified for the last time.
    pub leaving: bool,
    /// How many Change Notifications it accepted.
    pub sent: usize,
    /// How many of them still wait.
    pub waiting: usize,
    /// The changes of documents that it was to be notified of.
    pub changes: Vec<FrameworkChange>,
    /// How it ended.
    pub outcome: Outcome,
}

impl HubReport {
    /// The pause that the hub asks for before it is tried again.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Outcome::Failed(error) = &self.outcome { error.retry_after() } else { None }
    }
}

/// How the notification of a hub can end.
#[derive(Debug)]
pub enum Outcome {
    /// It has acknowledged everything already; nothing was sent.
    NothingChanged,
    /// It accepted the notification (FN-036: any 2xx).
    Accepted {
        /// The status of its answer.
        status: u16,
    },
    /// It did not. Nothing is lost: the next run notifies it, with what has changed by then.
    Failed(PostError),
}

/// Notifies every hub of the site in `out` of what it has not acknowledged. Other hubs get no request. A hub that was [dropped](drop_hub) is notified once
/// more, so that its subscribers find the new Capability List, and then forgotten.
///
/// Waits while another run notifies the same hub, and shortly while a build is under way. The failure of one hub does not affect the others.
///
/// ```
/// use axum::{Router, http::StatusCode, routing::post};
/// use resync_publisher::notify::Outcome;
/// use resync_publisher::{BaseUrl, HubUrl, Settings, build, notify};
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// // What stands in for a hub accepts everything.
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let hub = HubUrl::parse(&format!("http://{}/websub/", listener.local_addr()?))?;
/// let hub_router = Router::new().route("/websub/", post(|| async { StatusCode::ACCEPTED }));
/// tokio::spawn(async move { axum::serve(listener, hub_router).await });
///
/// let place = tempfile::tempdir()?;
/// let (collection, out) = (place.path().join("collection"), place.path().join("site"));
/// std::fs::create_dir(&collection)?;
/// build(&Settings::new(collection, BaseUrl::parse("https://example.org/data/")?).hub(hub), &out)?;
///
/// let reports = notify(&out, &[]).await?;
/// assert!(matches!(reports[0].outcome, Outcome::Accepted { status: 202 }));
/// assert_eq!(reports[0].changes.len(), 4, "each document of the new site");
///
/// // The hub has acknowledged everything now.
/// assert!(matches!(notify(&out, &[]).await?[0].outcome, Outcome::NothingChanged));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn notify(out: &Path, tokens: &[Token]) -> Result<Vec<HubReport>, Error> {
    let hubs = {
        let (out, tokens) = (out.to_owned(), tokens.to_vec());
        unblocked(move || hubs(&out, &tokens)).await?
    };
    let client = client()?;
    let mut notifying = JoinSet::new();
    for (position, hub) in hubs.into_iter().enumerate() {
        let (client, out, tokens) = (client.clone(), out.to_owned(), tokens.to_vec());
        notifying.spawn(async move { (position, notify_hub(&client, &out, &hub, &tokens).await) });
    }
    let (mut all, mut settled) = (BTreeMap::new(), Ok(()));
    while let Some(report) = notifying.join_next().await {
        let (position, report) =
            report.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
        match report {
            Ok(report) => all.extend(report.map(|report| (position, report))),
            Err(error) => settled = settled.and(Err(error)),
        }
    }
    settled.map(|()| all.into_values().collect())
}

/// Notifies one hub; `None` if the site need not notify it.
pub(crate) async fn notify_hub(
    client: &reqwest::Client,
    out: &Path,
    hub: &HubUrl,
    tokens: &[Token],
) -> Result<Option<HubReport>, Error> {
    let begun = {
        let (out, hub, tokens) = (out.to_owned(), hub.clone(), tokens.to_vec());
        unblocked(move || begin(&out, &hub, &tokens)).await?
    };
    let Some((lock, update)) = begun else { return Ok(None) };
    let posted = update.post_changes(client, out).await;
    let outcome = update.post(client, posted.failed.as_ref()).await;
    let (update, mut posted, outcome, recorded) = {
        let out = out.to_owned();
        unblocked(move || {
            let recorded = settle(&out, &update, &posted, &outcome);
            (update, posted, outcome, recorded)
        })
        .await
    };
    drop(lock);
    posted.broken.take().map_or(Ok(()), Err).and(recorded)?;
    let still_waiting = update.still_waiting(&posted).count();
    let HubUpdate { hub, leaving, changes, .. } = update;
    let (sent, waiting) = (posted.sent, still_waiting);
    let outcome = posted.and(outcome);
    Ok(Some(HubReport { hub, leaving, sent, waiting, changes, outcome }))
}

/// What one hub is to be notified of, as of one state of the site.
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
    /// The Framework Notification; `None` if no document changed.
    message: Option<Message>,
    /// What the hub has acknowledged once it accepted the message.
    documents: BTreeMap<String, NotifiedDocument>,
    /// What was unconfirmed before.
    unconfirmed_before: BTreeMap<String, NotifiedDocument>,
}

/// What came of posting Change Notifications.
#[derive(Debug, Default)]
struct Posted {
    sent: usize,
    /// How many files are missing.
    missing: u64,
    /// The number of the last one that was accepted or is missing.
    reached: u64,
    status: Option<u16>,
    failed: Option<PostError>,
    /// Why the next one could not be posted, if that is not the hub's fault.
    broken: Option<Error>,
}

impl Posted {
    /// The outcome of all notifications together.
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
        let changes = unacknowledged(&state.documents, record);
        let documents = document_changes::as_acknowledged(&state.documents);
        let message = match changes.as_slice() {
            [] => None,
            changes => Some(Message::new(state, &record.topic, &hub, changes, &documents)?),
        };
        let (leaving, unconfirmed_before) = (record.removed.is_some(), record.unconfirmed.clone());
        let waiting = state.waiting_for(record);
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
            documents,
            unconfirmed_before,
        })
    }

    /// What still waits after some were posted.
    fn still_waiting(&self, posted: &Posted) -> Range<u64> {
        self.waiting.start.max(posted.reached + 1)..self.waiting.end
    }

    /// Posts the Change Notifications that wait, one after the other, until one is not accepted.
    async fn post_changes(&self, client: &reqwest::Client, out: &Path) -> Posted {
        let mut posted = Posted::default();
        let broken = self.post_each(client, out, &mut posted).await.err();
        if posted.missing > 0 {
            tracing::warn!(missing = posted.missing, hub = %self.hub, "skipped missing Change Notifications");
        }
        Posted { broken, ..posted }
    }

    async fn post_each(
        &self,
        client: &reqwest::Client,
        out: &Path,
        posted: &mut Posted,
    ) -> Result<(), Error> {
        for number in self.waiting.clone() {
            let path = outbox::path(out, number);
            let body = match tokio::fs::read(&path).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    (posted.missing, posted.reached) = (posted.missing + 1, number);
                    continue;
                }
                read => read.map_err(Error::cannot(Action::Read, &path))?,
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
        if let Some(unreachable @ PostError::Unreachable { .. }) = failed {
            return Outcome::Failed(unreachable.clone());
        }
        match post::post(client, &self.hub, self.authorization.clone(), message).await {
            Ok(status) => Outcome::Accepted { status: status.as_u16() },
            Err(error) => Outcome::Failed(error),
        }
    }
}

/// The hubs that may have to be notified, once it is certain which token is for which.
fn hubs(out: &Path, tokens: &[Token]) -> Result<Vec<HubUrl>, Error> {
    let state = State::load(out)?;
    let hubs = token::credentials(&state, tokens)?;
    if hubs.is_empty() {
        return Err(Error::NoHub { out: out.to_owned() });
    }
    Ok(hubs.into_iter().map(|(hub, _)| hub).collect())
}

/// Determines what a hub is to be notified of, and records it as unconfirmed before anything is sent.
fn begin(out: &Path, hub: &HubUrl, tokens: &[Token]) -> Result<Option<(FileLock, HubUpdate)>, Error> {
    State::load(out)?;
    let of_hub = lock_hub(out, hub)?;
    let lock = Lock::acquire(out)?;
    let update = determine(&lock, hub, tokens);
    if let Err(error) = &update {
        record_trouble(&lock, hub, error);
    }
    Ok(update?.map(|update| (of_hub, update)))
}

fn determine(lock: &Lock, hub: &HubUrl, tokens: &[Token]) -> Result<Option<HubUpdate>, Error> {
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
        return Err(Error::NotInPlace { path: out.join(&record.path) });
    }
    let Some(record) = state.hubs.get(hub) else { return Ok(None) };
    let update = HubUpdate::of(&state, hub.clone(), authorization, record)?;
    if update.message.is_some() {
        let mut unconfirmed = update.unconfirmed_before.clone();
        unconfirmed.extend(update.documents.clone());
        if unconfirmed != update.unconfirmed_before {
            state.hubs.entry(hub.clone()).and_modify(|record| record.unconfirmed = unconfirmed);
            state.save(lock)?;
        }
    } else if update.waiting.is_empty() && record.trouble.is_some() {
        // The trouble has passed, and nothing is sent that could show it.
        state.hubs.entry(hub.clone()).and_modify(|record| record.trouble = None);
        state.save(lock)?;
    }
    Ok(Some(update))
}
