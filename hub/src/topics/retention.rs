//! Retention: the log keeps notifications for a promised time, within a bounded space.
//!
//! The promise is for subscribers that are behind, so only time in which they could be served counts. Clock jumps do not count for the
//! age of notifications that were there before, also after restarts. The limit on space knows no clock.
//!
//! Where several hubs share a store, one of them does this for all.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use resync_core::datetime::DateTime;
use resync_core::websub::TopicUrl;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use crate::clock_jump::{UPTIME_SAVED_EVERY, jump, jump_while_down};
use crate::config::RetentionConfig;
use crate::store::{ClockJump, Shares, Store, StoreError, Uptime};

/// How often the log is trimmed. Each time the store also saves that the hub is up.
const EVERY: Duration = UPTIME_SAVED_EVERY;
/// How often it is looked whether this falls to this hub: so soon that whoever takes it over finds no gap in the uptime.
const LOOKED_EVERY: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1_000 });
/// Topics that are read at once.
const READ_AT_ONCE: usize = 1_000;

/// Trims the log again and again until `stop` turns true, whenever this hub keeps house for the store.
pub async fn keep_trimming(
    store: Arc<dyn Store>,
    config: RetentionConfig,
    keeps_house: impl Fn() -> bool + Send,
    mut stop: watch::Receiver<bool>,
) {
    let mut looks = interval(LOOKED_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut known, mut due) = (None::<Age>, Instant::now());
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        if !keeps_house() {
            // Another hub writes the uptime now: what is known here of it is outdated when this hub has its turn again.
            (known, due) = (None, Instant::now());
            continue;
        }
        // A jump is written down at once, so that no other hub that starts now takes the time for passed.
        let has_jumped = known.as_ref().is_some_and(|age| age.has_jumped(clocks(store.as_ref())));
        if Instant::now() < due && !has_jumped {
            continue;
        }
        due = Instant::now() + EVERY;
        if let Err(error) = trim(store.as_ref(), &config, &mut known, clocks(store.as_ref())).await {
            error!(%error, "log not trimmed; trying again in a minute");
        }
    }
    // Without it, the next start reads this from the store.
    let Some(age) = &mut known else { return };
    let (wall, monotonic) = clocks(store.as_ref());
    age.look(wall, monotonic);
    if let Err(error) = store.put_uptime(age.uptime()).await {
        error!(%error, "time of the stop not saved: the next start may count a few minutes as a clock jump");
    }
}

/// What notifications are marked with, and what measures how much time has passed.
fn clocks(store: &dyn Store) -> (SystemTime, Instant) {
    (store.now().to_system_time(), Instant::now())
}

async fn trim(
    store: &dyn Store,
    config: &RetentionConfig,
    known: &mut Option<Age>,
    (wall, monotonic): (SystemTime, Instant),
) -> Result<(), StoreError> {
    let age = match known {
        Some(age) => age,
        None => known.insert(Age::new(config.age, uptime(store, wall).await?, (wall, monotonic))),
    };
    let oldest = DateTime::from_system_time(age.oldest_kept(wall, monotonic));
    // Before anything is removed: the next start must know the same clock jumps.
    store.put_uptime(age.uptime()).await?;
    let trimmed = store.trim(oldest, Shares::of(config.size)).await?;
    if trimmed.notifications > 0 {
        info!(notifications = trimmed.notifications, bytes = trimmed.bytes, "log trimmed");
    }
    if trimmed.early > 0 {
        warn!(
            notifications = trimmed.early,
            size = config.size,
            "log full: notifications younger than [retention] age were removed; raise [retention] size"
        );
    }
    Ok(())
}

/// When the hub was up before this start.
async fn uptime(store: &dyn Store, wall: SystemTime) -> Result<Uptime, StoreError> {
    match store.uptime().await {
        Ok(Some(uptime)) => return Ok(uptime.with(store.others_seen().await?)),
        Ok(None) => {}
        Err(error @ StoreError::Damaged { .. }) => {
            warn!(%error, "time of the last stop unreadable: taken from the newest notification");
        }
        Err(error) => return Err(error),
    }
    let seen = newest(store).await?.unwrap_or(wall);
    Ok(Uptime { seen: DateTime::from_system_time(seen), clock_jumps: Vec::new() })
}

/// When the newest notification came in: the hub was up then.
async fn newest(store: &dyn Store) -> Result<Option<SystemTime>, StoreError> {
    let (mut newest, mut after) = (None, None::<TopicUrl>);
    loop {
        let topics = store.topics(after.as_ref(), READ_AT_ONCE).await?;
        let Some(last) = topics.last() else { return Ok(newest) };
        after = Some(last.url.clone());
        for topic in topics {
            let last = match store.notification_from(topic.id, topic.newest()).await {
                Err(StoreError::Damaged { .. }) => None,
                last => last?,
            };
            newest = newest.max(last.map(|last| last.received_at.to_system_time()));
        }
    }
}

/// The age of notifications, without clock jumps.
#[derive(Debug)]
struct Age {
    /// How old they may get.
    promised: Duration,
    looked: (SystemTime, Instant),
    /// Recent jumps of the wall clock.
    clock_jumps: Vec<ClockJump>,
}

impl Age {
    /// `uptime` is that before this start, which is `now`.
    fn new(promised: Duration, uptime: Uptime, now: (SystemTime, Instant)) -> Self {
        let mut age = Self { promised, looked: now, clock_jumps: uptime.clock_jumps };
        age.exclude(jump_while_down(uptime.seen.to_system_time(), now.0));
        age
    }

    /// What the next start has to know.
    fn uptime(&self) -> Uptime {
        Uptime { seen: DateTime::from_system_time(self.looked.0), clock_jumps: self.clock_jumps.clone() }
    }

    /// What came in before this moment may be removed.
    fn oldest_kept(&mut self, wall: SystemTime, monotonic: Instant) -> SystemTime {
        self.look(wall, monotonic);
        let jumped: Duration = self.clock_jumps.iter().map(|jump| jump.length).sum();
        wall.checked_sub(self.promised + jumped).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Whether the wall clock has jumped since they were read.
    fn has_jumped(&self, (wall, monotonic): (SystemTime, Instant)) -> bool {
        let (wall_before, monotonic_before) = self.looked;
        jump(wall_before, wall, monotonic.saturating_duration_since(monotonic_before)).is_some()
    }

    /// Reads both clocks.
    fn look(&mut self, wall: SystemTime, monotonic: Instant) {
        let (wall_before, monotonic_before) = self.looked;
        self.looked = (wall, monotonic);
        let passed = monotonic.saturating_duration_since(monotonic_before);
        // After the promised time, everything from before a jump is old enough.
        self.clock_jumps.iter_mut().for_each(|jump| jump.up_since += passed);
        self.clock_jumps.retain(|jump| jump.up_since < self.promised);
        // A clock that was set back makes everything younger.
        self.exclude(jump(wall_before, wall, passed));
    }

    fn exclude(&mut self, jump: Option<Duration>) {
        let Some(length) = jump else { return };
        warn!(
            seconds = length.as_secs(),
            "clock jump: nothing was delivered meanwhile, so the log is kept for so much longer"
        );
        self.clock_jumps.push(ClockJump { length, up_since: Duration::ZERO });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{self, Engine, Keyring, NewNotification, Offset};

    const HOUR: Duration = Duration::from_secs(3_600);
    const PROMISED: Duration = Duration::from_secs(72 * 3_600);

    /// Both clocks of a machine, and what retention makes of them.
    struct Machine {
        wall: SystemTime,
        monotonic: Instant,
        age: Age,
    }

    impl Machine {
        fn new() -> Self {
            let (wall, monotonic) = (SystemTime::UNIX_EPOCH + 100_000 * HOUR, Instant::now());
            let uptime = Uptime { seen: DateTime::from_system_time(wall), clock_jumps: Vec::new() };
            Self { wall, monotonic, age: Age::new(PROMISED, uptime, (wall, monotonic)) }
        }

        /// The hub starts again, perhaps on another machine.
        fn restart(&mut self) {
            self.monotonic = Instant::now();
            self.age = Age::new(PROMISED, self.age.uptime(), (self.wall, self.monotonic));
        }

        fn keeps(&mut self, received_at: SystemTime) -> bool {
            received_at >= self.age.oldest_kept(self.wall, self.monotonic)
        }

        /// Time passes, and retention looks once a minute.
        fn pass(&mut self, time: Duration) {
            for _ in 0..time.as_secs() / EVERY.as_secs() {
                self.wall += EVERY;
                self.monotonic += EVERY;
                self.age.oldest_kept(self.wall, self.monotonic);
            }
        }
    }

    #[test]
    fn what_has_been_there_for_the_promised_time_may_go_and_nothing_else() {
        let mut machine = Machine::new();
        let received_at = machine.wall;
        machine.pass(PROMISED);
        assert!(machine.keeps(received_at));
        machine.pass(EVERY);
        assert!(!machine.keeps(received_at));
    }

    #[test]
    fn a_clock_that_is_set_forward_by_days_takes_nothing_from_the_promised_time() {
        let mut machine = Machine::new();
        let received_at = machine.wall;
        machine.pass(HOUR);
        machine.wall += 100 * HOUR;
        assert!(machine.keeps(received_at));
        machine.pass(70 * HOUR);
        assert!(machine.keeps(received_at), "71 hours have passed in truth");
        machine.pass(3 * HOUR);
        assert!(!machine.keeps(received_at), "it is not kept for ever");
    }

    #[test]
    fn a_clock_jump_is_seen_before_it_is_counted() {
        let mut machine = Machine::new();
        machine.pass(HOUR);
        assert!(!machine.age.has_jumped((machine.wall, machine.monotonic)));
        machine.wall += HOUR;
        assert!(machine.age.has_jumped((machine.wall, machine.monotonic)));
        machine.pass(EVERY);
        assert!(!machine.age.has_jumped((machine.wall, machine.monotonic)), "it was counted");
    }

    #[test]
    fn what_comes_after_a_clock_jump_is_kept_for_the_promised_time_too() {
        let mut machine = Machine::new();
        machine.pass(HOUR);
        machine.wall += 100 * HOUR;
        machine.pass(HOUR);
        let received_at = machine.wall;
        machine.pass(PROMISED);
        assert!(machine.keeps(received_at));
        machine.pass(EVERY);
        assert!(!machine.keeps(received_at));
    }

    #[test]
    fn a_clock_that_is_set_back_and_right_again_takes_nothing() {
        let mut machine = Machine::new();
        let before = machine.wall;
        machine.wall -= 100 * HOUR;
        machine.pass(HOUR);
        let meanwhile = machine.wall;
        machine.wall += 100 * HOUR;
        assert!(machine.keeps(before) && machine.keeps(meanwhile));
        machine.pass(70 * HOUR);
        assert!(machine.keeps(before) && machine.keeps(meanwhile));
    }

    #[test]
    fn a_hub_that_was_down_for_days_still_serves_what_it_owed() {
        let mut machine = Machine::new();
        let received_at = machine.wall;
        machine.wall += 100 * HOUR;
        assert!(machine.keeps(received_at));
        machine.pass(71 * HOUR);
        assert!(machine.keeps(received_at));
        machine.pass(2 * HOUR);
        assert!(!machine.keeps(received_at));
    }

    #[test]
    fn what_one_life_holds_back_later_ones_do_not_take() {
        let mut machine = Machine::new();
        let received_at = machine.wall;
        machine.wall += 100 * HOUR;
        machine.restart();
        for _ in 0..14 {
            assert!(machine.keeps(received_at));
            machine.pass(5 * HOUR);
            machine.restart();
        }
        assert!(machine.keeps(received_at), "70 hours have passed in truth");
        machine.pass(3 * HOUR);
        assert!(!machine.keeps(received_at), "it is not kept for ever");
    }

    #[test]
    fn a_start_right_after_a_crash_is_no_clock_jump() {
        let mut machine = Machine::new();
        machine.wall += EVERY;
        machine.restart();
        assert_eq!(machine.age.uptime().clock_jumps, []);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn at_a_stop_it_is_written_down_that_the_hub_was_up_until_then() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let config = RetentionConfig { age: PROMISED, size: u64::MAX };
        let (stop, stopped) = watch::channel(false);
        let trimming = tokio::spawn(keep_trimming(Arc::clone(&store), config, || true, stopped));
        let first = loop {
            match store.uptime().await.unwrap() {
                Some(uptime) if uptime.seen < DateTime::now() => break uptime.seen,
                Some(_) | None => tokio::task::yield_now().await,
            }
        };
        stop.send(true).unwrap();
        trimming.await.unwrap();
        assert!(store.uptime().await.unwrap().unwrap().seen > first);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hub_writes_down_the_uptime_only_while_it_keeps_house_for_the_store() {
        let (store, _memory) = store::in_memory();
        let config = RetentionConfig { age: PROMISED, size: u64::MAX };
        let (keeps, kept) = watch::channel(false);
        let (answer, mut answers) = watch::channel(true);
        let keeps_house = move || {
            let keeps = *kept.borrow();
            answer.send_replace(keeps);
            keeps
        };
        let (stop, stopped) = watch::channel(false);
        let trimming = tokio::spawn(keep_trimming(Arc::clone(&store), config, keeps_house, stopped));
        answers.wait_for(|keeps| !*keeps).await.unwrap();
        assert_eq!(store.uptime().await.unwrap(), None, "another hub does it");
        keeps.send(true).unwrap();
        while store.uptime().await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        keeps.send(false).unwrap();
        answers.wait_for(|keeps| !*keeps).await.unwrap();
        let of_another = Uptime { seen: DateTime::now(), clock_jumps: Vec::new() };
        store.put_uptime(of_another.clone()).await.unwrap();
        stop.send(true).unwrap();
        trimming.await.unwrap();
        assert_eq!(store.uptime().await.unwrap(), Some(of_another), "nor does it at its stop");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_second_start_after_days_down_takes_nothing_from_those_who_are_behind() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let config = RetentionConfig { age: PROMISED, size: u64::MAX };
        let begin = SystemTime::UNIX_EPOCH + 100_000 * HOUR;
        let post = async |at| store.append(posted(at), HOUR).await.unwrap();
        let start = async |at| trim(store.as_ref(), &config, &mut None, (at, Instant::now())).await.unwrap();
        post(begin).await;
        start(begin + HOUR).await;
        // It is down for days, starts, takes a post, and is started once more.
        start(begin + 80 * HOUR).await;
        post(begin + 81 * HOUR).await;
        start(begin + 81 * HOUR).await;
        let topics = store.topics(None, usize::MAX).await.unwrap();
        assert_eq!(topics[0].first, Offset(1), "nobody could be served for most of the time");
    }

    fn posted(at: SystemTime) -> NewNotification {
        let received_at = DateTime::from_system_time(at);
        NewNotification { received_at, ..store::posted(&"https://source.example/t".parse().unwrap(), "") }
    }
}
