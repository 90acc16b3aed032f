//! Publishing, open-loop: each post is sent when it is due, whatever has become of those before, and its latency begins there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::hub::Endpoint;
use super::sink::Sink;
use super::world::{World, topic_url};
use crate::check::KIND;
use crate::measure::{Outcome, Posted, Published, Recorder};
use crate::scenario::{By, Post};

/// Topics of posted content, which nobody fetches.
const SOURCE: &str = "http://source.example/load";
/// A status that stands for no answer.
const NONE: u16 = 0;

/// Everybody who publishes.
#[derive(Debug)]
pub(super) struct Publishers {
    endpoint: Arc<Endpoint>,
    world: Arc<World>,
    by: By,
    port: u16,
    warmup: Duration,
    posts: Vec<Post>,
    /// In microseconds since the beginning, and one; 0: not yet.
    sent: Vec<AtomicU64>,
    answered: Vec<AtomicU64>,
    statuses: Vec<AtomicU16>,
    pub(super) latency: Recorder,
    pub(super) lateness: Recorder,
    acknowledged: AtomicU64,
    finished: AtomicU64,
    bell: Notify,
}

impl Publishers {
    pub(super) fn new(
        endpoint: Arc<Endpoint>,
        sink: &Sink,
        by: By,
        warmup: Duration,
        posts: &[Post],
    ) -> Arc<Self> {
        let zeros = || posts.iter().map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            endpoint,
            world: Arc::clone(&sink.world),
            by,
            port: sink.port,
            warmup,
            posts: posts.to_vec(),
            sent: zeros(),
            answered: zeros(),
            statuses: posts.iter().map(|_| AtomicU16::new(NONE)).collect(),
            latency: Recorder::default(),
            lateness: Recorder::default(),
            acknowledged: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            bell: Notify::new(),
        })
    }

    /// Sends them all in time; the runtime's timer would be late by up to a millisecond.
    pub(super) fn begin(self: &Arc<Self>) {
        let (publishers, runtime) = (Arc::clone(self), Handle::current());
        thread::spawn(move || {
            let zero = publishers.world.zero();
            for number in 0..publishers.posts.len() {
                let due = zero + publishers.posts[number].due;
                thread::sleep(due.saturating_duration_since(std::time::Instant::now()));
                let publishers = Arc::clone(&publishers);
                runtime.spawn(async move { publishers.publish(number).await });
            }
        });
    }

    /// Waits until each has its answer, or will not get one.
    pub(super) async fn finish(&self) {
        loop {
            let rung = self.bell.notified();
            if self.finished.load(Ordering::SeqCst) == self.posts.len() as u64 {
                return;
            }
            rung.await;
        }
    }

    /// Acknowledged so far.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// The name of a topic.
    pub(super) fn topic(by: By, port: u16, topic: u32) -> String {
        match by {
            By::Content => format!("{SOURCE}/{topic}/"),
            By::Ping => topic_url(port, topic),
        }
    }

    async fn publish(&self, number: usize) {
        let post = self.posts[number];
        let sent = self.world.now();
        self.sent[number].store(micros(sent) + 1, Ordering::SeqCst);
        let topic = Self::topic(self.by, self.port, post.topic);
        let post_number = u32::try_from(number).unwrap_or(u32::MAX);
        let answer = match self.by {
            By::Content => {
                let hub = &self.endpoint.url;
                let fields = format!(
                    "Content-Type: {KIND}\r\nLink: <{topic}>; rel=\"self\", <{hub}>; rel=\"hub\"\r\n"
                );
                self.endpoint.post(&fields, &self.world.body(post_number)).await
            }
            By::Ping => {
                self.world.publish(post_number);
                // Hubs read the one or the other.
                self.endpoint
                    .form(&[("hub.mode", "publish"), ("hub.url", &topic), ("hub.topic", &topic)])
                    .await
            }
        };
        let answered = self.world.now();
        if let Ok(answer) = answer {
            self.statuses[number].store(answer.status, Ordering::SeqCst);
            if (200..300).contains(&answer.status) {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                if post.due >= self.warmup {
                    self.latency.note(number, answered.saturating_sub(post.due));
                    self.lateness.note(number, sent.saturating_sub(post.due));
                }
            }
        }
        self.answered[number].store(micros(answered) + 1, Ordering::SeqCst);
        self.finished.fetch_add(1, Ordering::SeqCst);
        self.bell.notify_waiters();
    }

    /// What became of each, for the oracle.
    pub(super) fn posted(&self) -> Vec<Posted> {
        let moment = |of: &AtomicU64| Duration::from_micros(of.load(Ordering::SeqCst).saturating_sub(1));
        (0..self.posts.len())
            .map(|number| Posted {
                topic: self.posts[number].topic,
                sent: moment(&self.sent[number]),
                answered: moment(&self.answered[number]),
                outcome: match self.statuses[number].load(Ordering::SeqCst) {
                    NONE => Outcome::Unknown,
                    200..300 => Outcome::Acknowledged,
                    status => Outcome::Refused(status),
                },
                is_poisoned: self.posts[number].poison.is_some(),
            })
            .collect()
    }

    /// The sum of it.
    pub(super) fn published(&self, posted: &[Posted]) -> Published {
        let count = |is: fn(Outcome) -> bool| posted.iter().filter(|post| is(post.outcome)).count() as u64;
        let refused = count(|outcome| matches!(outcome, Outcome::Refused(_)));
        let unanswered = count(|outcome| outcome == Outcome::Unknown);
        Published {
            sent: posted.len() as u64,
            acknowledged: count(|outcome| outcome == Outcome::Acknowledged),
            refused,
            unanswered,
            failed: refused + unanswered,
            latency: self.latency.whole(),
        }
    }
}

fn micros(moment: Duration) -> u64 {
    u64::try_from(moment.as_micros()).unwrap_or(u64::MAX - 1)
}
