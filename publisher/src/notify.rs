//! Telling the hubs: the Change Notifications that wait, in their order, and then one Framework Notification per hub about all documents that it
//! is not known to know in their present version.
//!
//! One run at a time tells a hub of a site, so that it never hears something old after something new; builds and other hubs go on meanwhile. A run
//! notes what the hub is about to hear, posts it, and notes the answer when it comes. Knowledge advances only by a hub's 2xx, to the versions that
//! were posted; without an answer it stays in doubt, and the next run says it again. What is sent depends on the documents alone, so a repetition
//! has the same bytes and the same `Idempotency-Key`.

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
use resync_core::{
    datetime::DateTime,
    document::{Capability, FrameworkChange},
    rules::Violations,
};
use tokio::task::JoinSet;

use self::message::Message;
use crate::{
    blocking::unblocked,
    changes, files,
    lock::{Lock, Turn},
    outbox,
    publish::{BuildError, describe_again, is_in_place, restamp},
    settings::HubUrl,
    site::Site,
    state::{self, Acknowledgement, HubRecord, State, StateError, Trouble},
};

pub(crate) use self::{post::client, token::Hubs};
pub use self::{
    post::{CONNECT_TIMEOUT, IDEMPOTENCY_KEY, PostError, TIMEOUT},
    token::{Token, tokens_for},
};

/// How long a hub that the site has left is tried before it is given up. It is tried at least once.
pub const LEAVING: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What came of telling one hub.
#[derive(Debug)]
pub struct Told {
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
    #[error("the site in `{}` has no hub to notify: name one in `hubs` of its configuration, or build it with --hub URL where it has none", out.display())]
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
    /// A token that no header can carry.
    #[error("a --token holds characters that no HTTP header can carry")]
    BadToken,
    /// A notification would break a rule of its specification.
    #[error("the notification would not conform: {0}")]
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
pub async fn notify(out: &Path, tokens: &[Token]) -> Result<Vec<Told>, NotifyError> {
    let hubs = {
        let (out, tokens) = (out.to_owned(), tokens.to_vec());
        unblocked(move || hubs(&out, &tokens)).await?
    };
    let client = client()?;
    let mut telling = JoinSet::new();
    for (position, hub) in hubs.into_iter().enumerate() {
        let (client, out, tokens) = (client.clone(), out.to_owned(), tokens.to_vec());
        telling.spawn(async move { (position, notify_hub(&client, &out, &hub, &tokens).await) });
    }
    let (mut all, mut settled) = (BTreeMap::new(), Ok(()));
    while let Some(told) = telling.join_next().await {
        let (position, told) = told.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
        match told {
            Ok(told) => all.extend(told.map(|told| (position, told))),
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
) -> Result<Option<Told>, NotifyError> {
    let begun = {
        let (out, hub, tokens) = (out.to_owned(), hub.clone(), tokens.to_vec());
        unblocked(move || begin(&out, &hub, &tokens)).await?
    };
    let Some((turn, telling)) = begun else { return Ok(None) };
    let posted = telling.post_changes(client, out).await;
    let outcome = telling.post(client, posted.failed.as_ref()).await;
    let (telling, mut posted, outcome, noted) = {
        let out = out.to_owned();
        unblocked(move || {
            let noted = settle(&out, &telling, &posted, &outcome);
            (telling, posted, outcome, noted)
        })
        .await
    };
    drop(turn);
    posted.broken.take().map_or(Ok(()), Err).and(noted)?;
    let still_waiting = telling.still_waiting(&posted).count();
    let Telling { hub, leaving, changes, .. } = telling;
    let (sent, waiting) = (posted.sent, still_waiting);
    let outcome = posted.and(outcome);
    Ok(Some(Told { hub, leaving, sent, waiting, changes, outcome }))
}

/// What one hub is to be told, as of one state of the site.
struct Telling {
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
    told: BTreeMap<String, state::Told>,
    /// What was in doubt before.
    doubted: BTreeMap<String, state::Told>,
}

/// What came of posting Change Notifications.
#[derive(Debug, Default)]
struct Posted {
    sent: usize,
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

impl Telling {
    fn of(
        state: &State,
        hub: HubUrl,
        authorization: Option<HeaderValue>,
        record: &HubRecord,
    ) -> Result<Self, Violations> {
        let changes = changes::since_told(&state.documents, record);
        let told = changes::all_told(&state.documents);
        let message = match changes.as_slice() {
            [] => None,
            changes => Some(Message::new(state, &record.topic, &hub, changes, &told)?),
        };
        let (leaving, doubted) = (record.left.is_some(), record.doubt.clone());
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
            told,
            doubted,
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
        Posted { broken, ..posted }
    }

    async fn post_each(
        &self,
        client: &reqwest::Client,
        out: &Path,
        posted: &mut Posted,
    ) -> Result<(), NotifyError> {
        let mut gone = 0_u64;
        for number in self.waiting.clone() {
            let path = outbox::path(out, number);
            let body = match tokio::fs::read(&path).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    (gone, posted.reached) = (gone + 1, number);
                    continue;
                }
                read => read.map_err(|source| NotifyError::Read { path, source })?,
            };
            if gone > 0 {
                tracing::warn!(gone, before = number, hub = %self.hub, "Change Notifications are gone, and left out");
                gone = 0;
            }
            let message = Message::of_changes(&self.change_topic, &self.change_links, number, body.clone());
            match post::post(client, &self.hub, self.authorization.clone(), message).await {
                Ok(status) => {
                    let (out, hub, topic) = (out.to_owned(), self.hub.clone(), self.topic.clone());
                    let change_topic = self.change_topic.clone();
                    unblocked(move || note_sent(&out, &hub, &topic, change_topic, number, &body)).await?;
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
fn begin(out: &Path, hub: &HubUrl, tokens: &[Token]) -> Result<Option<(Turn, Telling)>, NotifyError> {
    State::load(out)?;
    let turn = Turn::acquire(out, hub)?;
    let lock = Lock::acquire(out)?;
    let telling = work_out(&lock, hub, tokens);
    if let Err(error) = &telling {
        note_trouble(&lock, hub, error);
    }
    Ok(telling?.map(|telling| (turn, telling)))
}

fn work_out(lock: &Lock, hub: &HubUrl, tokens: &[Token]) -> Result<Option<Telling>, NotifyError> {
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
    let telling = Telling::of(&state, hub.clone(), authorization, record)?;
    if telling.message.is_some() {
        let mut doubt = telling.doubted.clone();
        doubt.extend(telling.told.clone());
        if doubt != telling.doubted {
            state.hubs.entry(hub.clone()).and_modify(|record| record.doubt = doubt);
            state.save(lock)?;
        }
    } else if telling.waiting.is_empty() && record.trouble.is_some() {
        // What was in the way has passed, and nothing is sent that could show it.
        state.hubs.entry(hub.clone()).and_modify(|record| record.trouble = None);
        state.save(lock)?;
    }
    Ok(Some(telling))
}

/// Keeps why a hub cannot be told, for `status`.
fn note_trouble(lock: &Lock, hub: &HubUrl, error: &NotifyError) {
    let reason = error.to_string();
    let noted = State::load(lock.out()).and_then(|mut state| {
        let Some(record) = state.hubs.get_mut(hub) else { return Ok(()) };
        if record.trouble.as_ref().is_some_and(|trouble| trouble.reason == reason) {
            return Ok(());
        }
        let refused = record.trouble.as_ref().and_then(|trouble| trouble.refused);
        record.trouble = Some(Trouble { refused, ..Trouble::after(record.trouble.as_ref(), reason) });
        state.save(lock)
    });
    if let Err(error) = noted {
        tracing::debug!(%error, %hub, "the status does not say why the hub is not told");
    }
}

/// Notes what came of telling a hub, in the state as it is by now: builds may have changed it meanwhile, other tellings have not.
fn settle(out: &Path, telling: &Telling, posted: &Posted, outcome: &Outcome) -> Result<(), NotifyError> {
    if telling.message.is_none() && telling.waiting.is_empty() {
        return Ok(());
    }
    let lock = Lock::acquire(out)?;
    let mut state = State::load(out)?;
    let Some(record) = state.hubs.get_mut(&telling.hub).filter(|record| record.topic == telling.topic) else {
        return Ok(());
    };
    let refused = posted.failed.as_ref().filter(|error| error.is_final());
    let failed = match outcome {
        Outcome::Failed(error) => refused.or(Some(error)),
        _ => posted.failed.as_ref(),
    };
    let broken = posted.broken.as_ref().map(ToString::to_string);
    let reason = broken.or_else(|| failed.map(ToString::to_string));
    let Range { start: next, end } = telling.still_waiting(posted);
    // A build may have left some out meanwhile.
    let first = next.max(record.sent + 1);
    let kept = match reason {
        Some(_) => outbox::first_to_keep(out, first..end),
        None => first,
    };
    if !telling.leaving {
        record.sent = record.sent.max(kept - 1);
    }
    let is_behind = record.sent < state.outbox;
    record.trouble = match reason {
        Some(reason) => {
            let mut trouble = Trouble::after(record.trouble.as_ref(), reason);
            trouble.refused = refused.map(|_| next).filter(|number| *number >= kept);
            trouble.left_out += kept - first;
            Some(trouble)
        }
        // It takes them, and more was left out than it could take.
        None => {
            let before = record.trouble.take().filter(|before| is_behind && before.left_out > 0);
            before.map(|before| Trouble { reason: outbox::BEHIND.to_owned(), refused: None, ..before })
        }
    };
    let given_up = match (outcome, &telling.message) {
        (Outcome::NothingChanged, _) | (_, None) => false,
        (Outcome::Accepted { status }, Some(message)) => {
            record.told.clone_from(&telling.told);
            record.doubt.clear();
            let key = message.key.clone();
            record.last = Some(Acknowledgement { at: DateTime::now(), status: *status, key });
            if is_newest(&state, telling) {
                let path = state::notification_path(out);
                files::replace(&path, &message.body).map_err(|source| NotifyError::Write { path, source })?;
                state.notified_on = Some(message.topic.clone());
            }
            false
        }
        (Outcome::Failed(error), _) => {
            if !error.leaves_doubt() {
                record.doubt.clone_from(&telling.doubted);
            }
            record.left.is_some_and(|left| has_passed(LEAVING, left))
        }
    };
    if given_up {
        tracing::warn!(hub = %telling.hub, "given up; its subscribers do not learn from it that the site has left");
    }
    if given_up || has_taken_leave(&state, &telling.hub) {
        state.hubs.remove(&telling.hub);
    }
    save_and_sweep(lock, state)
}

/// Saves the state and removes the Change Notifications that every hub has taken by then, in steps between which others may change the site.
fn save_and_sweep(mut lock: Lock, mut state: State) -> Result<(), NotifyError> {
    let out = lock.out().to_owned();
    loop {
        let swept = outbox::sweep(&out, &state);
        if let Ok(swept) = &swept {
            swept.note(&mut state);
        }
        state.save(&lock)?;
        if swept.map_err(|source| NotifyError::Write { path: out.clone(), source })?.is_through {
            return Ok(());
        }
        drop(lock);
        lock = Lock::acquire(&out)?;
        state = State::load(&out)?;
    }
}

/// Notes that a hub took a Change Notification, before the next one is posted.
fn note_sent(
    out: &Path,
    hub: &HubUrl,
    topic: &str,
    change_topic: String,
    number: u64,
    body: &[u8],
) -> Result<(), NotifyError> {
    let lock = Lock::acquire(out)?;
    let mut state = State::load(out)?;
    let Some(record) = state.hubs.get_mut(hub).filter(|record| record.topic == topic) else { return Ok(()) };
    record.sent = record.sent.max(number);
    // Who reads the topic finds the newest one, and another hub may have taken it long ago.
    if state.hubs.values().all(|record| record.sent <= number) {
        let path = state::change_notification_path(out);
        files::replace(&path, body).map_err(|source| NotifyError::Write { path, source })?;
        state.changes_on = Some(change_topic);
    }
    Ok(state.save(&lock)?)
}

/// Leaves out a Change Notification that hubs of the site in `out` have refused, so that those after it are posted; gives these hubs. Destinations see
/// that the interval after it does not follow (CN-008), and look at the Change List.
pub fn skip(out: &Path, number: u64) -> Result<Vec<HubUrl>, NotifyError> {
    let has_refused =
        |record: &HubRecord| record.trouble.as_ref().is_some_and(|trouble| trouble.refused == Some(number));
    let hubs: Vec<_> = State::load(out)?.hubs.into_iter().filter(|(_, record)| has_refused(record)).collect();
    let mut skipped = Vec::new();
    for (hub, _) in hubs {
        let _turn = Turn::acquire(out, &hub)?;
        let lock = Lock::acquire(out)?;
        let mut state = State::load(out)?;
        if let Some(record) = state.hubs.get_mut(&hub).filter(|record| has_refused(record)) {
            record.sent = record.sent.max(number);
            record.trouble = None;
            save_and_sweep(lock, state)?;
            skipped.push(hub);
        }
    }
    Ok(skipped)
}

/// Whether no other hub knows of a newer version of a document.
fn is_newest(state: &State, telling: &Telling) -> bool {
    let others =
        state.hubs.iter().filter(|(hub, record)| **hub != telling.hub && record.topic == telling.topic);
    others.into_iter().all(|(_, record)| {
        record
            .told
            .iter()
            .all(|(url, known)| telling.told.get(url).is_none_or(|told| told.version >= known.version))
    })
}

/// Whether a hub that the site has left was told of the present Capability List, which says so.
fn has_taken_leave(state: &State, hub: &HubUrl) -> bool {
    let Some(record) = state.hubs.get(hub).filter(|record| record.left.is_some()) else { return false };
    match state.document(&Capability::CapabilityList) {
        Some(list) => record.told.get(&list.url).is_some_and(|told| told.version == list.version),
        // The set itself is left, and with it its list.
        None if state.left.is_some() => {
            let mut heard = record.told.values().chain(record.doubt.values());
            heard.all(|told| told.capability != Capability::CapabilityList)
        }
        None => false,
    }
}

fn has_passed(time: Duration, since: DateTime) -> bool {
    let now = DateTime::now().to_system_time();
    now.duration_since(since.to_system_time()).is_ok_and(|passed| passed > time)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::settings::{BaseUrl, Settings};

    const TOPIC: &str = "http://example.org/resync/framework/";

    fn hub() -> HubUrl {
        HubUrl::parse("http://hub.example.org/websub/").unwrap()
    }

    /// A site with this record of its hub, of so many Change Notifications.
    fn save(out: &Path, record: HubRecord, outbox: u64) {
        let settings = Settings::new("/x", BaseUrl::parse("http://example.org/").unwrap());
        let mut state = State::new(settings, (0, 0), Vec::new(), BTreeMap::from([(hub(), record)]));
        state.outbox = outbox;
        state.save(&Lock::acquire(out).unwrap()).unwrap();
    }

    fn telling(waiting: Range<u64>) -> Telling {
        Telling {
            hub: hub(),
            authorization: None,
            leaving: false,
            changes: Vec::new(),
            topic: TOPIC.into(),
            waiting,
            change_topic: String::new(),
            change_links: String::new(),
            message: None,
            told: BTreeMap::new(),
            doubted: BTreeMap::new(),
        }
    }

    #[test]
    fn what_was_left_out_for_a_hub_that_is_too_slow_is_said_until_it_has_caught_up() {
        let out = tempfile::tempdir().unwrap();
        let trouble = Trouble { left_out: 3, ..Trouble::after(None, "it was away".to_owned()) };
        save(out.path(), HubRecord { sent: 3, trouble: Some(trouble), ..HubRecord::new(TOPIC) }, 6);
        let after = |waiting: Range<u64>| {
            let posted = Posted { sent: 1, reached: waiting.end - 1, ..Posted::default() };
            settle(out.path(), &telling(waiting), &posted, &Outcome::NothingChanged).unwrap();
            let state = State::load(out.path()).unwrap();
            state.hubs[&hub()].trouble.as_ref().map(|trouble| (trouble.left_out, trouble.reason.clone()))
        };
        assert_eq!(after(4..6), Some((3, outbox::BEHIND.to_owned())));
        assert_eq!(after(6..7), None);
    }

    #[test]
    fn what_a_build_left_out_while_a_hub_was_told_is_not_counted_twice() {
        let out = tempfile::tempdir().unwrap();
        let trouble = Trouble { left_out: 4, ..Trouble::after(None, "it was away".to_owned()) };
        save(out.path(), HubRecord { sent: 7, trouble: Some(trouble), ..HubRecord::new(TOPIC) }, 9);
        fs::create_dir(out.path().join(".resync-source/outbox")).unwrap();
        for number in 8..10 {
            fs::write(outbox::path(out.path(), number), "").unwrap();
        }
        let refused = PostError::TooLong {
            status: http::StatusCode::PAYLOAD_TOO_LARGE,
            text: String::new(),
            length: 1,
        };
        let posted = Posted { failed: Some(refused.clone()), ..Posted::default() };
        settle(out.path(), &telling(4..9), &posted, &Outcome::Failed(refused)).unwrap();
        let record = State::load(out.path()).unwrap().hubs[&hub()].clone();
        let trouble = record.trouble.unwrap();
        assert_eq!((record.sent, trouble.left_out, trouble.refused), (7, 4, None), "it refused number 4");
    }

    #[test]
    fn a_hub_that_was_left_and_stays_away_is_given_up_after_a_week_and_not_before() {
        let out = tempfile::tempdir().unwrap();
        let after = |left: DateTime| {
            save(out.path(), HubRecord { left: Some(left), ..HubRecord::new(TOPIC) }, 0);
            let (links, key, body) = (String::new(), String::new(), Vec::new());
            let message = Some(Message { topic: TOPIC.into(), links, key, body });
            let telling = Telling { leaving: true, message, ..telling(0..0) };
            let away = Outcome::Failed(PostError::Unreachable { reason: "no route".into() });
            settle(out.path(), &telling, &Posted::default(), &away).unwrap();
            State::load(out.path()).unwrap().hubs.len()
        };
        let days_ago = |days: u32| {
            DateTime::from_system_time(
                std::time::SystemTime::now() - days * Duration::from_secs(24 * 60 * 60),
            )
        };
        assert_eq!(after(days_ago(6)), 1);
        assert_eq!(after(days_ago(8)), 0);
    }
}
