//! Retention: the log keeps notifications for a promised time, within a bounded space.
//!
//! The promise is for subscribers that are behind, so only time in which they could be served counts. Clock jumps do not count for the
//! age of notifications that were there before, also after restarts. The limit on space knows no clock.
//!
//! Where several hubs share a store, one of them does this for all. The others look at the clock, too: whoever has to do it next may be
//! the only one who has seen a jump.

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
/// Two jumps that differ by no more in their length and in the time since are one that two hubs have seen: what the store knows of it may be a
/// minute old at each change of the hub that writes it down.
const SAME_LENGTH: Duration = Duration::from_secs(30);
const SAME_TIME: Duration = Duration::from_secs(300);
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
    let (mut age, mut due) = (Age::begin(config.age, clocks(store.as_ref())), Instant::now());
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        if !keeps_house() {
            // Another hub writes the uptime now: what is known here of it is outdated when this hub has its turn again.
            (age.has_stored, due) = (false, Instant::now());
            age.look(clocks(store.as_ref()));
            continue;
        }
        // A jump is written down at once, so that no other hub that starts now takes the time for passed.
        if Instant::now() < due && !age.has_jumped(clocks(store.as_ref())) {
            continue;
        }
        due = Instant::now() + EVERY;
        let trimmed = tokio::select! {
            trimmed = trim(store.as_ref(), &config, &mut age, clocks(store.as_ref())) => trimmed,
            // Another hub may soon write the uptime: what is written here after the trim would take the place of that.
            _ = stop.wait_for(|stop| *stop) => break,
        };
        if let Err(error) = trimmed {
            error!(%error, "log not trimmed; trying again in a minute");
        }
    }
    // Without it, the next start reads this from the store.
    if !age.has_stored {
        return;
    }
    age.look(clocks(store.as_ref()));
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
    age: &mut Age,
    now: (SystemTime, Instant),
) -> Result<(), StoreError> {
    // First, so that a jump which the store knows already is found here.
    age.look(now);
    if !age.has_stored {
        age.add(uptime(store, now.0).await?);
    }
    let oldest = DateTime::from_system_time(age.oldest_kept(now));
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

/// When the hub was up, as the store knows it.
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
    /// When this hub was started. Since then it sees each jump itself.
    begun: SystemTime,
    looked: (SystemTime, Instant),
    /// Recent jumps of the wall clock.
    clock_jumps: Vec<ClockJump>,
    /// Those that the store knows are among them, and nobody else writes any down.
    has_stored: bool,
}

impl Age {
    /// Of a hub that is started now.
    fn begin(promised: Duration, now: (SystemTime, Instant)) -> Self {
        Self { promised, begun: now.0, looked: now, clock_jumps: Vec::new(), has_stored: false }
    }

    /// Adds what the store knows.
    fn add(&mut self, stored: Uptime) {
        let mut seen_here = self.clock_jumps.clone();
        for jump in stored.clock_jumps {
            if let Some(place) = seen_here.iter().position(|seen| are_same(seen, &jump)) {
                seen_here.swap_remove(place);
            } else {
                self.clock_jumps.push(jump);
            }
        }
        // A clock that was set back since shows a time from before the start.
        let begun = self.begun.min(self.looked.0);
        self.exclude(jump_while_down(stored.seen.to_system_time(), begun));
        self.has_stored = true;
    }

    /// What the next start has to know.
    fn uptime(&self) -> Uptime {
        Uptime { seen: DateTime::from_system_time(self.looked.0), clock_jumps: self.clock_jumps.clone() }
    }

    /// What came in before this moment may be removed.
    fn oldest_kept(&mut self, now: (SystemTime, Instant)) -> SystemTime {
        self.look(now);
        let jumped: Duration = self.clock_jumps.iter().map(|jump| jump.length).sum();
        now.0.checked_sub(self.promised + jumped).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Whether the wall clock has jumped since they were read.
    fn has_jumped(&self, (wall, monotonic): (SystemTime, Instant)) -> bool {
        let (wall_before, monotonic_before) = self.looked;
        jump(wall_before, wall, monotonic.saturating_duration_since(monotonic_before)).is_some()
    }

    /// Reads both clocks.
    fn look(&mut self, (wall, monotonic): (SystemTime, Instant)) {
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

/// Whether these are one jump that two hubs have seen.
fn are_same(one: &ClockJump, other: &ClockJump) -> bool {
    one.length.abs_diff(other.length) <= SAME_LENGTH && one.up_since.abs_diff(other.up_since) <= SAME_TIME
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;
    use tokio::time::timeout;

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
            Self { wall, monotonic, age: started(uptime, (wall, monotonic)) }
        }

        /// The hub starts again, perhaps on another machine.
        fn restart(&mut self) {
            self.monotonic = Instant::now();
            self.age = started(self.age.uptime(), (self.wall, self.monotonic));
        }

        fn keeps(&mut self, received_at: SystemTime) -> bool {
            received_at >= self.age.oldest_kept((self.wall, self.monotonic))
        }

        /// Time passes, and retention looks once a minute.
        fn pass(&mut self, time: Duration) {
            for _ in 0..time.as_secs() / EVERY.as_secs() {
                self.wall += EVERY;
                self.monotonic += EVERY;
                self.age.oldest_kept((self.wall, self.monotonic));
            }
        }
    }

    /// What a hub knows that starts now.
    fn started(uptime: Uptime, now: (SystemTime, Instant)) -> Age {
        let mut age = Age::begin(PROMISED, now);
        age.add(uptime);
        age
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
    fn a_clock_jump_that_the_hub_has_seen_and_the_store_knows_counts_once() {
        let (wall, monotonic) = (SystemTime::UNIX_EPOCH + 100_000 * HOUR, Instant::now());
        let mut age = Age::begin(PROMISED, (wall, monotonic));
        age.look((wall + 2 * HOUR + EVERY, monotonic + EVERY));
        // The store's is a second shorter.
        let length = Duration::from_secs(7_199);
        let stored = |lengths: &[Duration]| {
            let clock_jumps = lengths.iter().map(|length| ClockJump { length: *length, up_since: EVERY });
            Uptime { seen: DateTime::from_system_time(wall), clock_jumps: clock_jumps.collect() }
        };
        age.add(stored(&[]));
        assert_eq!(age.clock_jumps.len(), 1, "the store may not know it");
        age.add(stored(&[length]));
        assert_eq!(age.clock_jumps.len(), 1);
        age.add(stored(&[length, length]));
        assert_eq!(age.clock_jumps.len(), 2, "there was another one");
        age.add(stored(&[3 * HOUR]));
        assert_eq!(age.clock_jumps.len(), 3);
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
        let first = until_written(&*store, |uptime| uptime.seen < DateTime::now()).await.seen;
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
        until_written(&*store, |_| true).await;
        keeps.send(false).unwrap();
        answers.wait_for(|keeps| !*keeps).await.unwrap();
        let of_another = Uptime { seen: DateTime::now(), clock_jumps: Vec::new() };
        store.put_uptime(of_another.clone()).await.unwrap();
        stop.send(true).unwrap();
        trimming.await.unwrap();
        assert_eq!(store.uptime().await.unwrap(), Some(of_another), "nor does it at its stop");
    }

    /// The clock of a promoted server is ahead: the hubs that are left give their words by it, so nobody else seems to have been away.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_comes_to_keep_house_writes_down_the_clock_jumps_that_it_has_seen() {
        let (store, _memory) = store::in_memory();
        let config = RetentionConfig { age: PROMISED, size: u64::MAX };
        let (keeps, kept) = watch::channel(false);
        let (look, mut looks) = watch::channel(());
        let keeps_house = move || {
            look.send_replace(());
            *kept.borrow()
        };
        let (stop, stopped) = watch::channel(false);
        let trimming = tokio::spawn(keep_trimming(Arc::clone(&store), config, keeps_house, stopped));
        looks.changed().await.unwrap();
        store.clock().put_ahead(2 * HOUR);
        let by_another = Uptime { seen: store.now(), clock_jumps: Vec::new() };
        store.put_uptime(by_another).await.unwrap();
        keeps.send(true).unwrap();
        let written = until_written(&*store, |uptime| !uptime.clock_jumps.is_empty()).await;
        assert_eq!(written.clock_jumps.len(), 1, "{written:?}");
        assert!(written.clock_jumps[0].length.abs_diff(2 * HOUR) < EVERY, "{written:?}");
        stop.send(true).unwrap();
        trimming.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_second_start_after_days_down_takes_nothing_from_those_who_are_behind() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let config = RetentionConfig { age: PROMISED, size: u64::MAX };
        let begin = SystemTime::UNIX_EPOCH + 100_000 * HOUR;
        let post = async |at| store.append(posted(at), HOUR).await.unwrap();
        let start = async |at| {
            let now = (at, Instant::now());
            trim(store.as_ref(), &config, &mut Age::begin(PROMISED, now), now).await.unwrap();
        };
        post(begin).await;
        start(begin + HOUR).await;
        // It is down for days, starts, takes a post, and is started once more.
        start(begin + 80 * HOUR).await;
        post(begin + 81 * HOUR).await;
        start(begin + 81 * HOUR).await;
        let topics = store.topics(None, usize::MAX).await.unwrap();
        assert_eq!(topics[0].first, Offset(1), "nobody could be served for most of the time");
    }

    /// The uptime, once one like this is written down.
    async fn until_written(store: &dyn Store, is_it: impl Fn(&Uptime) -> bool) -> Uptime {
        let written = async {
            loop {
                match store.uptime().await.unwrap() {
                    Some(uptime) if is_it(&uptime) => break uptime,
                    Some(_) | None => yield_now().await,
                }
            }
        };
        timeout(Duration::from_secs(60), written).await.expect("it is written at some time")
    }

    fn posted(at: SystemTime) -> NewNotification {
        let received_at = DateTime::from_system_time(at);
        NewNotification { received_at, ..store::posted(&"https://source.example/t".parse().unwrap(), "") }
    }
}
