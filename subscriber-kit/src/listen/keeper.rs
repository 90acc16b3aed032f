//! The loop that keeps a copy in step: receives notifications, and decides when and how to synchronise.

use std::collections::HashMap;
use std::fmt::Display;
use std::pin::Pin;
use std::time::Duration;

use resync_common::backoff::Backoff;
use resync_core::datetime::DateTime;
use resync_core::websub::key::TopicUrl;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::chain::{Chain, Continuation};
use super::local_copy::LocalCopy;
use super::looks::Looks;
use super::retry_schedule::{Remaining, RetrySchedule};
use super::version_fetching::VersionFetching;
use super::{Events, ListenError, ListenEvent, ListenOptions};
use crate::blocking::blocking;
use crate::discover::Channel;
use crate::notification::{Interval, Meaning, meaning};
use crate::receive::{Deliveries, Delivery, HookQueue, HookResult, Notification, Receipt};
use crate::state::{LastSync, StateError};
use crate::subscribe::{Lease, Subscriber, keep_channels};
use crate::sync::{Depth, Report, SyncError};
use crate::timing::{LONGEST_RETRY, at, ended, pauses, sooner};

/// How long the first synchronisation waits for the subscription, so that no second one is needed after it.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// How long to wait for a late notification before the Change List is read instead (CN-016).
const REORDERING: Duration = Duration::from_secs(2);

/// How many notifications wait for one synchronisation. More stay in the callback's channel, and when that is full, the hub
/// waits.
const MAX_WAITING: usize = 4096;

/// A running synchronisation. It returns the copy.
type Running = Pin<Box<dyn Future<Output = (LocalCopy, Result<Report, SyncError>)> + Send>>;

/// After how many synchronisations with temporary failures a notification counts as handled. It must not wait for ever because of
/// a resource that keeps failing.
const MAX_RUNS: u32 = 6;

/// A notification that a synchronisation handles.
struct Waiting {
    receipt: Receipt,
    /// Its content, if a hook or the synchronisation needs it.
    notification: Option<Notification>,
    /// Whether it lists changed resources, which the Change List may not contain yet.
    has_changes: bool,
    /// How many synchronisations handled it with temporary failures.
    runs: u32,
}

/// A copy that is kept in step.
pub(super) struct Keeper {
    copy: LocalCopy,
    channels: watch::Sender<Vec<Channel>>,
    subscriber: Subscriber,
    poll: Duration,
    /// When the next synchronisation is due, if any is.
    due: Option<Instant>,
    /// How much the next one compares.
    depth: Depth,
    /// How much the running one compares.
    running_depth: Depth,
    discover_again: bool,
    /// Notifications that the next synchronisation handles.
    waiting: Vec<Waiting>,
    /// Notifications that the running one handles.
    handled: Vec<Waiting>,
    /// Handled notifications that wait for the hook.
    hooks: HookQueue<Receipt>,
    running: Option<Running>,
    versions: VersionFetching,
    retry_schedule: RetrySchedule,
    looks: Looks,
    /// When the lease of each topic ends.
    active_until: HashMap<String, DateTime>,
    chain: Chain,
    /// The chain as it was when the running synchronisation began.
    chain_at_start: Chain,
    unsaved: Unsaved,
    events: Events,
}

/// What could not be saved yet.
struct Unsaved {
    last_sync: Option<LastSync>,
    due: Option<Instant>,
    pause: Backoff,
}

impl Keeper {
    pub(super) fn new(
        copy: LocalCopy,
        options: &ListenOptions,
        subscriber: &Subscriber,
        events: &Events,
    ) -> Result<Self, ListenError> {
        let channels = copy.channels();
        if channels.is_empty() {
            return Err(ListenError::NoChannel { set: copy.set.name(), cron: options.cron_line() });
        }
        let chain = Chain::from(subscriber.subscriptions().notified_until(), DateTime::now());
        Ok(Self {
            channels: watch::Sender::new(channels),
            subscriber: subscriber.clone(),
            poll: options.poll,
            due: Some(Instant::now() + FIRST_WAIT),
            depth: Depth::Full,
            running_depth: Depth::Full,
            discover_again: !copy.is_current,
            copy,
            waiting: Vec::new(),
            handled: Vec::new(),
            hooks: HookQueue::new(options.service.hook.clone()),
            running: None,
            versions: VersionFetching::default(),
            retry_schedule: RetrySchedule::default(),
            looks: Looks::default(),
            active_until: HashMap::new(),
            chain_at_start: chain.clone(),
            chain,
            unsaved: Unsaved { last_sync: None, due: None, pause: pauses(LONGEST_RETRY) },
            events: events.clone(),
        })
    }

    pub(super) async fn run(mut self, mut deliveries: Deliveries) -> Result<(), ListenError> {
        let subscriber = self.subscriber.clone();
        let (granted, mut leases) = mpsc::unbounded_channel();
        let keep = keep_channels(&subscriber, self.channels.subscribe(), move |topic, lease| {
            // The receiver lives as long as this loop.
            let _ = granted.send((topic.clone(), lease));
        });
        tokio::pin!(keep);
        if self.copy.is_current {
            self.save_source().await;
        }
        let mut next_poll = Instant::now() + spread(self.poll);
        loop {
            tokio::select! {
                result = &mut keep => match result { Err(error) => return Err(error.into()), Ok(never) => match never {} },
                Some((topic, lease)) = leases.recv() => self.subscribed(topic, lease),
                Some(delivery) = deliveries.next(), if self.has_room() => {
                    self.take(delivery).await;
                }
                (copy, result) = ended(&mut self.running) => {
                    self.running = None;
                    self.discovered(copy).await;
                    self.synchronised(result).await;
                }
                report = self.versions.next() => self.events.send(ListenEvent::VersionsFetched(report)),
                result = self.hooks.next() => self.hook_finished(result).await,
                () = at(self.due), if self.running.is_none() => self.start(),
                () = at(self.unsaved.due) => self.save().await,
                () = tokio::time::sleep_until(next_poll), if !self.poll.is_zero() => {
                    next_poll = Instant::now() + spread(self.poll);
                    self.discover_again = true;
                    self.request(Depth::IfListChanged);
                }
            }
        }
    }

    /// A synchronisation is due now.
    fn request(&mut self, depth: Depth) {
        self.depth = self.depth.max(depth);
        self.due = Some(Instant::now());
    }

    /// Changes during a time without a lease were not notified, so a new lease needs a synchronisation; a renewal does not. One
    /// synchronisation serves all channels whose leases begin soon.
    fn subscribed(&mut self, topic: TopicUrl, Lease { until, is_new }: Lease) {
        let (now, before) = (DateTime::now(), self.active_until.insert(topic.as_str().to_owned(), until));
        if is_new || before.is_none_or(|before| before <= now) {
            let is_active =
                |one: &Channel| self.active_until.get(one.topic.as_str()).is_some_and(|at| *at > now);
            let wait = if self.channels.borrow().iter().all(is_active) { Duration::ZERO } else { FIRST_WAIT };
            self.depth = self.depth.max(Depth::IfOutOfStep);
            self.due = Some(sooner(self.due, Instant::now() + wait));
        }
        self.events.send(ListenEvent::Subscribed { topic, until });
    }

    fn has_room(&self) -> bool {
        self.waiting.len() + self.handled.len() + self.hooks.len() < MAX_WAITING
    }

    async fn take(&mut self, delivery: Delivery) {
        let has_skipped = delivery.skipped > 0;
        let (body, set) = (delivery.body.body().to_vec(), self.copy.set.clone());
        let meanings = match blocking(move || meaning(&body, &set)).await {
            Ok(meanings) if meanings.is_empty() && !has_skipped => {
                tracing::info!("ignored a notification about documents that this copy does not use");
                return self.saved(delivery.done().await);
            }
            Ok(meanings) => meanings,
            // Something changed, although it cannot be read. What is missing before it may have been an order.
            Err(error) => {
                if has_skipped {
                    self.request(Depth::IfOutOfStep);
                }
                self.look(&error);
                return self.saved(delivery.done().await);
            }
        };
        let is_about_changes =
            |one: &Meaning| matches!(one, Meaning::ChangeNotification(_) | Meaning::Changes);
        let has_changes = meanings.iter().any(is_about_changes);
        let is_chained = meanings.iter().any(|one| matches!(one, Meaning::ChangeNotification(_)));
        // The missing notifications may have been relevant.
        if has_skipped && !is_chained {
            self.request(Depth::IfOutOfStep);
        }
        for meaning in meanings {
            match meaning {
                Meaning::Look { change, capability } => {
                    self.look(&format_args!("{change} {:?}", capability.name()));
                }
                Meaning::Changes => self.request(Depth::Changes),
                Meaning::ChangeNotification(interval) => self.change_notification(interval, has_skipped),
                Meaning::Synchronise => self.request(Depth::IfOutOfStep),
                Meaning::LookInside => self.request(Depth::Full),
                Meaning::DiscoverAgain => {
                    self.discover_again = true;
                    self.request(Depth::Full);
                }
            }
        }
        let (receipt, notification) = delivery.into_notification();
        let notification = (self.hooks.has_hook() || has_changes).then_some(notification);
        self.waiting.push(Waiting { receipt, notification, has_changes, runs: 0 });
        self.events.send(ListenEvent::Notified);
    }

    /// A notification is not understood, or not expected: reads all lists (FN-012).
    fn look(&mut self, notification: &dyn Display) {
        let Some(due) = self.looks.ask(Instant::now()) else {
            return tracing::debug!(%notification, "a notification does not say what changed; all lists are about to be read anyway");
        };
        tracing::warn!(%notification, "a notification does not say what changed; reading all lists");
        self.discover_again = true;
        self.depth = self.depth.max(Depth::IfOutOfStep);
        self.due = Some(sooner(self.due, due));
    }

    /// If the interval does not follow the last one, notifications are missing or late (CN-016). The Change List contains their
    /// changes, or else the next Resource List.
    fn change_notification(&mut self, interval: Interval, skipped: bool) {
        let depth = if skipped { Depth::IfOutOfStep } else { Depth::Changes };
        let Continuation::Ahead { known_until } = self.chain.take(interval, DateTime::now()) else {
            return self.request(depth);
        };
        let from = interval.from;
        tracing::warn!(%known_until, %from, "Change Notifications are missing; reading the Change List");
        self.events.send(ListenEvent::Gap { known_until, from });
        self.depth = self.depth.max(if self.copy.lists_changes() { depth } else { Depth::IfOutOfStep });
        self.due = Some(sooner(self.due, Instant::now() + REORDERING));
    }

    fn start(&mut self) {
        self.due = None;
        self.looks.begin();
        self.chain_at_start = self.chain.clone();
        self.handled.append(&mut self.waiting);
        let mut copy = self.copy.clone();
        let discover_again = std::mem::take(&mut self.discover_again);
        self.running_depth = std::mem::replace(&mut self.depth, Depth::Changes);
        let depth = self.running_depth;
        let bodies =
            self.handled.iter().filter(|one| one.has_changes).filter_map(|one| one.notification.as_ref());
        let bodies = bodies.map(|notification| notification.body.clone()).collect();
        self.running = Some(Box::pin(async move {
            if discover_again {
                copy.discover_again().await;
            }
            let result = copy.synchronise(depth, bodies).await;
            (copy, result)
        }));
    }

    /// Follows the set where it was found.
    async fn discovered(&mut self, copy: LocalCopy) {
        self.copy = copy;
        if !self.copy.is_current {
            self.discover_again = true;
            return;
        }
        let channels = self.copy.channels();
        if channels.is_empty() {
            // Not saved, so that a restart finds the known ones too.
            tracing::warn!("the Source no longer lists a channel; keeping the known ones");
            return;
        }
        let moved = self.channels.send_if_modified(|known| std::mem::replace(known, channels) != *known);
        if moved {
            // There are no notifications until the new ones are active.
            self.active_until.clear();
        }
        self.save_source().await;
    }

    async fn save_source(&mut self) {
        let result = self.subscriber.subscriptions().save_source(self.copy.source()).await;
        self.saved(result);
    }

    async fn synchronised(&mut self, result: Result<Report, SyncError>) {
        let found_changes = result.as_ref().is_ok_and(|one| one.created + one.updated + one.deleted > 0);
        self.looks.end(Instant::now(), found_changes);
        match result {
            Ok(report) => {
                let has_gap = !self.close_gaps(&report).await;
                if has_gap {
                    tracing::info!(
                        "the lists do not cover the missing notifications yet; reading them again later"
                    );
                }
                let is_new = self.handled.iter().any(|one| one.runs == 0);
                let retry_may_help = report.retry_may_help || report.awaited.is_some();
                let retry_after = retry_may_help.then_some(Duration::ZERO).or(report.retry_in);
                // A baseline would compare every file again for the few that failed.
                let is_baseline = report.retry_may_help && !report.is_remembered;
                let depth = if is_baseline { self.running_depth } else { Depth::Changes };
                if let Some(pause) = self.retry_schedule.after(Remaining { is_new, retry_after, has_gap }) {
                    self.schedule(depth, pause);
                }
                self.handled(retry_may_help).await;
                self.versions.begin(&self.copy);
                self.unsaved.last_sync = Some(LastSync::now(Ok(report.clone())));
                self.save().await;
                self.events.send(ListenEvent::Synchronised(Box::new(report)));
            }
            // The notifications stay in `handled` for the next try.
            Err(error) => {
                let retry_in = self.retry_schedule.after_error(error.retry_after());
                self.schedule(self.running_depth, retry_in);
                let cause = error.to_string();
                self.unsaved.last_sync = Some(LastSync::now(Err(cause.clone())));
                self.save().await;
                self.events.send(ListenEvent::SyncFailed { cause, retry_in });
            }
        }
    }

    /// Closes the gaps from before this synchronisation, as far as the lists reach; whether all are closed.
    async fn close_gaps(&mut self, report: &Report) -> bool {
        // Lists without times, and without doubts, count as complete.
        if report.reached.is_some() || report.unproven.is_none() {
            self.chain_at_start.close_gaps(report.reached);
        }
        let known = self.chain_at_start.until();
        if self.chain.has_gap() && known > self.chain.until() {
            self.chain.skip_to(known);
        }
        let result = self.subscriber.subscriptions().save_notified_until(known).await;
        self.saved(result);
        !self.chain_at_start.has_gap()
    }

    /// Marks handled notifications as done, or passes them to the hook. After temporary failures, or if the Change List lags behind,
    /// they wait for further synchronisations, up to a limit.
    async fn handled(&mut self, retry_may_help: bool) {
        let mut done = Vec::new();
        for waiting in std::mem::take(&mut self.handled) {
            let runs = waiting.runs + 1;
            if retry_may_help && runs < MAX_RUNS {
                self.handled.push(Waiting { runs, ..waiting });
                continue;
            }
            let Waiting { receipt, notification, .. } = waiting;
            match notification.filter(|_| self.hooks.has_hook()) {
                Some(notification) => self.hooks.push(receipt, notification),
                None => done.push(receipt),
            }
        }
        let done = Receipt::all_done(done).await;
        self.saved(done);
    }

    async fn hook_finished(&mut self, result: HookResult<Receipt>) {
        match result {
            HookResult::Done(receipt, _) => {
                let done = receipt.done().await;
                self.saved(done);
                self.events.send(ListenEvent::HookDone);
            }
            HookResult::Failed { error, retry_in } => {
                self.events.send(ListenEvent::HookFailed { cause: error.to_string(), retry_in });
            }
        }
    }

    /// Schedules a synchronisation after a pause; an earlier one stays scheduled.
    fn schedule(&mut self, depth: Depth, pause: Duration) {
        self.depth = self.depth.max(depth);
        self.due = Some(sooner(self.due, Instant::now() + pause));
    }

    async fn save(&mut self) {
        let result = match self.unsaved.last_sync.clone() {
            Some(last) => self.subscriber.subscriptions().save_last_sync(last).await,
            None => self.subscriber.subscriptions().save().await,
        };
        if result.is_ok() {
            self.unsaved.last_sync = None;
        }
        self.saved(result);
    }

    /// After a failure, saves the state again later. The copy is kept in step all the same.
    fn saved(&mut self, result: Result<(), StateError>) {
        match result {
            Ok(()) => {
                self.unsaved.pause.reset();
                self.unsaved.due = None;
            }
            Err(error) => {
                let retry_in = self.unsaved.pause.after_failure();
                self.unsaved.due = Some(Instant::now() + retry_in);
                tracing::error!(%error, ?retry_in, "cannot save the state; a restart repeats work");
            }
        }
    }
}

/// Ten percent more or less, so that the Destinations of one Source do not all synchronise at once.
fn spread(poll: Duration) -> Duration {
    poll.mul_f64(0.9 + 0.2 * fastrand::f64())
}

#[cfg(test)]
mod tests {

    use bytes::Bytes;
    use http::{Request, StatusCode};
    use http_body_util::Full;
    use resync_core::websub::identity::WEBHOOK_ID;
    use resync_core::websub::secret::Secret;
    use resync_core::websub::signature::{SignatureMethod, SigningKey, X_HUB_SIGNATURE};
    use tempfile::TempDir;
    use tower_service::Service as _;
    use url::Url;

    use super::*;
    use crate::discover::Set;
    use crate::fetch::{Client, ClientOptions};
    use crate::receive::{Callback, CallbackOptions};
    use crate::state::Subscriptions;
    use crate::subscribe::SubscriberOptions;

    /// A keeper that does not run, and the callback through which it gets notifications.
    struct Still {
        keeper: Keeper,
        callback: Callback,
        deliveries: Deliveries,
        path: String,
        secret: Secret,
        _directory: TempDir,
    }

    impl Still {
        async fn new() -> Self {
            let url = |text: &str| Url::parse(text).unwrap();
            let (base, hub) = (url("http://source.example/"), url("http://hub.example/"));
            let topic = TopicUrl::parse("http://source.example/topic").unwrap();
            let subscriptions = Subscriptions::in_memory();
            let id = subscriptions.add(&topic, &hub).await.unwrap();
            let secret = subscriptions.with(&id.0, |record| record.secret.clone()).unwrap();
            let (callback, deliveries) = Callback::new(&subscriptions, CallbackOptions::default());
            let client = Client::new(ClientOptions::default()).unwrap();
            let options = SubscriberOptions::new(url("http://copy.example/"));
            let subscriber = Subscriber::new(client.clone(), subscriptions, options);
            let framework_channel = Some(Channel { topic, hubs: vec![hub] });
            let set = Set { framework_channel, ..Set::bare(base.join("resourcelist.xml").unwrap()) };
            let directory = tempfile::tempdir().unwrap();
            let options = ListenOptions::new(base.as_str(), directory.path());
            let copy = LocalCopy::new(&options, client, base, set, true).unwrap();
            let (sender, _) = mpsc::unbounded_channel();
            let events = Events { directory: directory.path().to_owned(), sender };
            let keeper = Keeper::new(copy, &options, &subscriber, &events).unwrap();
            Self { keeper, callback, deliveries, path: format!("/{}", id.0), secret, _directory: directory }
        }

        /// Takes the notification that has this number at the hub.
        async fn take(&mut self, number: u64, body: &'static str) {
            let signature = SigningKey::new(SignatureMethod::Sha256, &self.secret).sign(body.as_bytes());
            let request = Request::post(&self.path)
                .header(X_HUB_SIGNATURE, signature.to_string())
                .header(WEBHOOK_ID, format!("{:016x}.{number}", 10));
            let answer =
                self.callback.call(request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap());
            assert_eq!(answer.await.unwrap().status(), StatusCode::NO_CONTENT);
            let delivery = self.deliveries.next().await.unwrap();
            self.keeper.take(delivery).await;
        }

        /// A synchronisation that finds nothing new.
        fn synchronise_in_vain(&mut self) {
            self.keeper.due = None;
            self.keeper.looks.begin();
            self.keeper.looks.end(Instant::now(), false);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cn016_fn012_what_is_missing_before_a_notification_that_cannot_be_read_waits_for_no_look() {
        let mut still = Still::new().await;
        let now = Instant::now();
        still.take(1, "<hello/>").await;
        assert_eq!(still.keeper.due, Some(now), "the first look is at once");
        still.synchronise_in_vain();
        still.take(2, "<hello/>").await;
        assert!(still.keeper.due.is_some_and(|due| due > now), "the next one later");
        still.take(4, "<hello/>").await;
        assert_eq!(still.keeper.due, Some(now), "what number 3 told cannot wait");
        assert!(still.keeper.depth >= Depth::IfOutOfStep);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_after_a_denial_asks_for_a_synchronisation_though_the_denied_one_was_to_last_longer() {
        let mut still = Still::new().await;
        let topic = TopicUrl::parse("http://source.example/topic").unwrap();
        let until = DateTime::from_unix_millis(DateTime::now().unix_millis() + 600_000).unwrap();
        let mut synchronises = |is_new| {
            still.keeper.due = None;
            still.keeper.subscribed(topic.clone(), Lease { until, is_new });
            still.keeper.due.is_some()
        };
        assert!(synchronises(false), "at the start, also if the lease of an earlier run still lasts");
        assert!(!synchronises(false), "a renewal");
        assert!(synchronises(true), "after a denial");
    }

    #[test]
    fn two_destinations_with_one_poll_do_not_keep_step() {
        let hour = Duration::from_secs(3600);
        let polls: Vec<Duration> = (0..100).map(|_| spread(hour)).collect();
        assert!(polls.iter().all(|poll| (hour * 9 / 10..=hour * 11 / 10).contains(poll)));
        assert!(polls.iter().any(|poll| poll.abs_diff(polls[0]) > Duration::from_secs(60)));
    }
}
