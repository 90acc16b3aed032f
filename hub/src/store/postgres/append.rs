//! Posts on their way into the log. Those that wait are appended together, so hundreds of publishers share one commit.
//!
//! Two writers take turns with the wait for a commit. All posts of a topic go through the same one: to write one log through two would be no
//! faster, since each commit holds it until the standbys have it.
//!
//! Where the answer to a batch is lost, the writer's next connection keeps the database from carrying it out any later, and then finds out
//! whether it was: so nothing is appended twice, and hardly anybody is told to come again. Where that takes so long that publishers have to be
//! told that nobody knows, the feed tells it all the same once it is in the log: what is there is delivered.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use resync_common::backoff::Backoff;
use resync_core::websub::NotificationId;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::sleep;

use super::batch::{Batch, Post};
use super::doubts::Doubt;
use super::health::PanicReport;
use super::line::{DEADLINE, Line};
use super::rows::{Fields, the_only, whole};
use super::shared::Shared;
use crate::store::{
    Appended, NewNotification, Notification, Offset, Payer, Result, StoreError, StoreEvent, TopicId,
};

const WRITERS: usize = 2;
/// Posts that may wait for a writer, and their bytes for both.
const WAITING: usize = 4_096;
const WAITING_BYTES: usize = 64 * 1024 * 1024;
/// Posts and bytes of one batch.
const BATCH_POSTS: usize = 1_024;
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of what anybody's pings have fetched that may wait, so that a post waits for few of them.
const STRANGE_BYTES: u32 = 256 * 1024;
/// Bytes that a database takes in a millisecond at least, also while much else goes on: the deadline of a batch grows by that.
const BYTES_PER_MILLISECOND: u64 = 4_000;
/// So long is looked for what became of a batch, before its publishers are told that nobody knows.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long the database uses its plans for the function: those that it made while tables were small may read all of a large one.
const PLANNED_FOR: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

const APPEND: &str = "
SELECT xid, topics, told, places, outcomes, publishers_grew, strangers_grew, made
FROM hub.append_1(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29
)";

const FORGET_PLANS: &str = "DISCARD PLANS";

/// Takes posts in.
#[derive(Debug)]
pub(super) struct Appender {
    /// None once the store is being closed.
    writers: Vec<mpsc::Sender<Command>>,
    waiting_bytes: Arc<AtomicUsize>,
    strange_bytes: Semaphore,
}

#[derive(Debug)]
enum Command {
    Append(Box<Waiting>),
    /// Its turn has come.
    Answer(oneshot::Sender<()>),
}

/// A post whose publisher waits.
#[derive(Debug)]
struct Waiting {
    post: Post,
    /// What it counts for while it waits.
    bytes: usize,
    answer: oneshot::Sender<Result<Appended>>,
}

impl Appender {
    pub(super) fn new(shared: &Arc<Shared>) -> (Self, Vec<Writer>) {
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let writer = |_| {
            let (sender, waiting) = mpsc::channel(WAITING);
            let writer = Writer {
                line: Line::new(&shared.common),
                shared: Arc::clone(shared),
                waiting,
                waiting_bytes: Arc::clone(&waiting_bytes),
                held: VecDeque::new(),
                last: None,
                plans_forgotten_at: Instant::now(),
            };
            (sender, writer)
        };
        let (senders, writers) = (0..WRITERS).map(writer).unzip();
        let strange_bytes = Semaphore::new(STRANGE_BYTES as usize);
        (Self { writers: senders, waiting_bytes, strange_bytes }, writers)
    }

    /// Nothing new is taken in; what was is still done.
    pub(super) fn close(&mut self) {
        self.writers.clear();
    }

    pub(super) async fn append(
        &self,
        shared: &Shared,
        notification: NewNotification,
        remember: Duration,
    ) -> Result<Appended> {
        let bytes = usize::try_from(notification.weight()).unwrap_or(usize::MAX);
        let _permit = match notification.payer {
            Payer::Strangers(_) => {
                let share = u32::try_from(bytes).map_or(STRANGE_BYTES, |bytes| bytes.min(STRANGE_BYTES));
                // Nobody closes it.
                self.strange_bytes.acquire_many(share).await.ok()
            }
            Payer::Publishers => None,
        };
        shared.health()?;
        let (answer, answered) = oneshot::channel();
        self.hand_over(Waiting { post: Post::new(notification, remember), bytes, answer })?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// Returns when each writer has come to what waits now.
    pub(super) async fn answers(&self) -> Result<()> {
        for writer in &self.writers {
            let (answer, answered) = oneshot::channel();
            writer.send(Command::Answer(answer)).await.map_err(|_| StoreError::Closed)?;
            answered.await.map_err(|_| StoreError::Closed)?;
        }
        Ok(())
    }

    fn hand_over(&self, waiting: Waiting) -> Result<()> {
        let bytes = waiting.bytes;
        let before = self.waiting_bytes.load(Ordering::Relaxed);
        if before > 0 && before.saturating_add(bytes) > WAITING_BYTES {
            return Err(StoreError::Busy);
        }
        let writer = usize::from(waiting.post.key.first().copied().unwrap_or_default()) % WRITERS;
        let writer = self.writers.get(writer).ok_or(StoreError::Closed)?;
        // Counted before it is there, since the writer may take it at once.
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        writer.try_send(Command::Append(Box::new(waiting))).map_err(|error| {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            match error {
                TrySendError::Full(_) => StoreError::Busy,
                TrySendError::Closed(_) => StoreError::Closed,
            }
        })
    }
}

/// Appends what waits, a batch at a time.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    line: Line,
    waiting: mpsc::Receiver<Command>,
    waiting_bytes: Arc<AtomicUsize>,
    /// Posts that had to wait for the next batch.
    held: VecDeque<Waiting>,
    /// The transaction of the last batch that was answered.
    last: Option<i64>,
    /// When the database forgot its plans last.
    plans_forgotten_at: Instant,
}

/// The posts of a batch.
#[derive(Debug, Default)]
struct Group {
    posts: Vec<Waiting>,
    bytes: usize,
    /// Those with a name, by topic and name: the second of the same is compared with the first once that is in the log.
    names: HashSet<(Vec<u8>, Vec<u8>)>,
}

impl Group {
    fn is_full(&self) -> bool {
        self.posts.len() >= BATCH_POSTS || self.bytes >= BATCH_BYTES
    }

    /// Gives it back if the same name is in the group.
    fn add(&mut self, waiting: Waiting) -> Option<Waiting> {
        let post = &waiting.post;
        if let Some(name) = &post.name
            && !self.names.insert((post.key.clone(), name.hash.clone()))
        {
            return Some(waiting);
        }
        self.bytes = self.bytes.saturating_add(waiting.bytes);
        self.posts.push(waiting);
        None
    }
}

/// What became of the posts of a batch, in their order.
struct Outcome {
    xid: i64,
    /// The transactions that have told of the same topics before.
    before: Vec<i64>,
    appended: Vec<Appended>,
    publishers_grew: i64,
    strangers_grew: i64,
    made: usize,
}

impl Writer {
    /// Goes on until nobody can hand over anything, and nothing waits.
    pub(super) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let _report = PanicReport(&shared.common.health);
        while let Some(group) = self.gather().await {
            self.append_all(group.posts).await;
        }
    }

    /// The first post that waits with whatever waits behind it, up to the size of a batch.
    async fn gather(&mut self) -> Option<Group> {
        let mut group = Group::default();
        let mut held = std::mem::take(&mut self.held);
        while !group.is_full()
            && let Some(waiting) = held.pop_front()
        {
            self.held.extend(group.add(waiting));
        }
        self.held.append(&mut held);
        while group.posts.is_empty() {
            let command = self.waiting.recv().await?;
            self.take(command, &mut group);
        }
        while !group.is_full()
            && let Ok(command) = self.waiting.try_recv()
        {
            self.take(command, &mut group);
        }
        Some(group)
    }

    fn take(&mut self, command: Command, group: &mut Group) {
        match command {
            Command::Append(waiting) => {
                self.waiting_bytes.fetch_sub(waiting.bytes, Ordering::Relaxed);
                self.held.extend(group.add(*waiting));
            }
            Command::Answer(answer) => {
                // Who has gone away does not want to know.
                let _ = answer.send(());
            }
        }
    }

    /// Appends these, as one batch if the database takes it, and answers each.
    async fn append_all(&mut self, posts: Vec<Waiting>) {
        match self.append_batch(posts).await {
            Ok(()) => {}
            // One that the database refuses must not take the others with it.
            Err((posts, StoreError::Write(_))) if posts.len() > 1 => {
                for waiting in posts {
                    if let Err((posts, error)) = self.append_batch(vec![waiting]).await {
                        refuse(posts, &error);
                    }
                }
            }
            Err((posts, error)) => refuse(posts, &error),
        }
    }

    /// Appends these, and answers those that are in the log. Of the others none is, or nobody knows.
    async fn append_batch(
        &mut self,
        mut posts: Vec<Waiting>,
    ) -> std::result::Result<(), (Vec<Waiting>, StoreError)> {
        let give_up_at = Instant::now() + PATIENCE;
        loop {
            let since = match self.since().await {
                Ok(since) => since,
                Err(error) => return Err((posts, error)),
            };
            let began = Instant::now();
            let batch = Batch::of(posts.iter().map(|waiting| &waiting.post));
            let (doubt, outcome) = (Doubt { batch: batch.id, since }, self.send(&batch).await);
            drop(batch);
            self.shared.meters.committed(posts.len(), began.elapsed());
            match outcome {
                Ok(outcome) => {
                    self.follow(posts, outcome);
                    self.forget_old_plans().await;
                    return Ok(());
                }
                Err(error @ StoreError::Unknown(_)) => {
                    let Some(places) = self.find(doubt, posts.len()).await else {
                        return Err((posts, error));
                    };
                    posts = self.follow_found(posts, places);
                    // The others were repetitions, or all of it was not carried out and never will be.
                    if posts.is_empty() {
                        return Ok(());
                    }
                    if Instant::now() >= give_up_at {
                        let reason = "the connection was lost again and again".to_owned();
                        return Err((posts, StoreError::Away(reason)));
                    }
                }
                Err(error) => return Err((posts, error)),
            }
        }
    }

    async fn forget_old_plans(&mut self) {
        if self.plans_forgotten_at.elapsed() >= PLANNED_FOR {
            self.plans_forgotten_at = Instant::now();
            // If it fails, so will the next batch, which says why.
            let _ = self.line.read(FORGET_PLANS, &[], DEADLINE).await;
        }
    }

    /// Whatever this writer writes next has a later transaction.
    async fn since(&mut self) -> Result<i64> {
        match self.last {
            Some(last) => Ok(last),
            None => self.line.open().await.map(|open| open.xid),
        }
    }

    async fn send(&mut self, batch: &Batch<'_>) -> Result<Outcome> {
        let mut parameters: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> = vec![&self.shared.node];
        parameters.extend(batch.parameters());
        let deadline = DEADLINE + Duration::from_millis(batch.bytes() / BYTES_PER_MILLISECOND);
        let rows = self.line.write(APPEND, &parameters, deadline).await?;
        let fields = Fields::of("log", the_only(&rows)?);
        let xid = fields.get("xid")?;
        self.last = Some(xid);
        let before: Vec<Option<i64>> = fields.get("told")?;
        let topics: Vec<i64> = fields.get("topics")?;
        let (places, outcomes): (Vec<i64>, Vec<i16>) = (fields.get("places")?, fields.get("outcomes")?);
        let appended = batch.topics_of_posts().zip(places).zip(outcomes).map(|((of, place), outcome)| {
            let topic = topics.get(of).copied().unwrap_or_default();
            let id = NotificationId { topic: whole(topic), offset: whole(place) };
            match outcome {
                0 => Appended::New(id),
                1 => Appended::Repeated(id),
                _ => Appended::KeyReused(id),
            }
        });
        Ok(Outcome {
            xid,
            before: before.into_iter().flatten().collect(),
            appended: appended.collect(),
            publishers_grew: fields.get("publishers_grew")?,
            strangers_grew: fields.get("strangers_grew")?,
            made: fields.small("made")?,
        })
    }

    /// Memory follows what is in the log, it is told, and everybody is answered.
    fn follow(&self, posts: Vec<Waiting>, outcome: Outcome) {
        let Outcome { xid, before, appended, publishers_grew, strangers_grew, made } = outcome;
        self.shared.known_usage().weigh(publishers_grew, strangers_grew);
        self.shared.change_usage(|usage| usage.topics += made);
        let (events, answers) = self.remember(posts.into_iter().zip(appended));
        let newest = self.shared.common.server.timeline();
        if !(events.is_empty() || self.shared.events.tell_appended(newest, xid, &before, &events)) {
            self.shared.turns.ask();
        }
        self.shared.hints.give();
        answer(answers);
    }

    /// What there is to tell, and to answer.
    fn remember(&self, posts: impl Iterator<Item = (Waiting, Appended)>) -> (Vec<StoreEvent>, Vec<Answer>) {
        let (mut events, mut answers) = (Vec::new(), Vec::new());
        for (waiting, appended) in posts {
            let Waiting { post, answer, .. } = waiting;
            if let Appended::New(NotificationId { topic, offset }) = appended {
                let (topic, offset) = (TopicId(topic), Offset(offset));
                events.push(StoreEvent::Appended { topic, offset, kind: post.new.kind, bytes: post.weight });
                self.shared.known_usage().came(post.new.received_at);
                self.shared.notifications.put(Arc::new(kept(post.new, topic, offset)));
            }
            answers.push((answer, appended));
        }
        (events, answers)
    }

    /// Where each of these posts is in the log; `None` where nobody knows for so long that their publishers must not wait for it.
    async fn find(&self, doubt: Doubt, posts: usize) -> Option<Vec<Option<NotificationId>>> {
        let give_up_at = Instant::now() + PATIENCE;
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            match doubt.settle(&self.line, posts).await {
                Ok(places) => return Some(places),
                Err(error) if Instant::now() >= give_up_at => {
                    tracing::warn!(%error, "nobody knows yet what became of a batch of posts");
                    return None;
                }
                Err(_) => sleep(backoff.after_failure()).await,
            }
        }
    }

    /// Answers the posts that were found in the log; returns the others.
    fn follow_found(&self, posts: Vec<Waiting>, places: Vec<Option<NotificationId>>) -> Vec<Waiting> {
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for (waiting, place) in posts.into_iter().zip(places) {
            match place {
                Some(id) => there.push((waiting, Appended::New(id))),
                None => missing.push(waiting),
            }
        }
        // By how much the logs weigh more was in the answer that was lost: the next look at them knows. So was after what it is to be told:
        // the feed knows.
        let (_, answers) = self.remember(there.into_iter());
        self.shared.turns.ask();
        self.shared.hints.give();
        answer(answers);
        missing
    }
}

/// What is answered to whom.
type Answer = (oneshot::Sender<Result<Appended>>, Appended);

fn answer(answers: Vec<Answer>) {
    for (answer, appended) in answers {
        // A publisher that has gone away does not want to know.
        let _ = answer.send(Ok(appended));
    }
}

fn kept(new: NewNotification, topic: TopicId, offset: Offset) -> Notification {
    let NewNotification { content_type, links, body, kind, received_at, trace, .. } = new;
    Notification { topic, offset, content_type, links, body, kind, received_at, trace }
}

fn refuse(posts: Vec<Waiting>, error: &StoreError) {
    for waiting in posts {
        let _ = waiting.answer.send(Err(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use resync_core::websub::TopicUrl;

    use super::*;
    use crate::store::posted;

    fn waiting(topic: &str, name: Option<&str>) -> Waiting {
        let topic = TopicUrl::parse(&format!("https://source.example/{topic}")).unwrap();
        let new = NewNotification { idempotency_key: name.map(str::to_owned), ..posted(&topic, "x") };
        let bytes = usize::try_from(new.weight()).unwrap();
        Waiting { post: Post::new(new, Duration::from_secs(60)), bytes, answer: oneshot::channel().0 }
    }

    #[test]
    fn the_second_post_of_a_name_waits_until_the_first_is_in_the_log() {
        let mut group = Group::default();
        for (topic, name, is_taken) in [
            ("t", Some("one"), true),
            ("t", Some("one"), false),
            ("t", Some("other"), true),
            ("u", Some("one"), true),
            ("t", None, true),
            ("t", None, true),
        ] {
            assert_eq!(group.add(waiting(topic, name)).is_none(), is_taken, "{topic} {name:?}");
        }
        assert_eq!(group.posts.len(), 5);
    }

    #[test]
    fn posts_of_a_batch_are_numbered_within_their_topics() {
        let posts = ["t", "u", "t", "t", "u"].map(|topic| waiting(topic, None).post);
        let batch = Batch::of(posts.iter());
        assert_eq!(batch.topics_of_posts().collect::<Vec<_>>(), [0, 1, 0, 0, 1]);
        assert_eq!(batch.ranks(), [1, 1, 2, 3, 2]);
    }
}
