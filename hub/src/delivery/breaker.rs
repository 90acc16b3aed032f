//! When a host is left alone for a while: a circuit breaker with one probe and a slow start.
//!
//! Only trouble of the host itself counts (no answer, 408, 425, 429, 5xx): a refusal shows that it is alive. What waits while
//! the breaker is open has not failed, so no schedule goes on and nothing is given up for it.
//!
//! Many subscribers share an origin, and one of them may fail, ask for patience or wish the others ill. So the breaker opens only where
//! nothing at the origin succeeds any more, for no longer than its policy says and whatever a subscriber asks for; and while it is open
//! those who have not failed themselves may ask how the origin is, one at a time: at once the one to whom something was delivered last,
//! and some more; then the others, a moment apart where the origin answers, and some seconds where it does not. What succeeds with any of
//! them closes it for all.

use std::time::{Duration, Instant};

use super::host::{Candidates, Chosen};

/// Subscriptions that have not failed and may ask at once, one after the other, at an open breaker of an origin that was well before.
const AT_ONCE: u32 = 32;
/// The pause between those who ask after them, where the origin answers and was well before …
const APART: Duration = Duration::from_millis(250);
/// … and where it does not, or never was: each of them may have a place for as long as a request may take.
const FAR_APART: Duration = Duration::from_secs(5);
/// Pauses differ by up to this share either way, but pass the longest one by nothing.
const JITTER: f64 = 0.2;

/// When breakers open, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// So many failures in a row open it; 0: never.
    pub failures: u32,
    /// The first pause; each failed probe doubles it …
    pub open: Duration,
    /// … up to this.
    pub open_max: Duration,
}

/// How a request ended, as far as the host is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// The host answered, be it with a refusal.
    Alive,
    /// The host says that it is in trouble.
    Trouble,
    /// It does not answer.
    Silent,
    /// Nothing was sent.
    None,
}

/// The breaker of a host that has failed lately.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    /// Failures since anything at this host succeeded.
    in_a_row: u32,
    /// Pauses since the host was last well.
    pauses: u32,
    /// So many may ask at once.
    at_once: u32,
    /// Something succeeded at this host before.
    was_well: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Instant,
        /// From then on one that has not failed may ask.
        asks_from: Instant,
        /// One does.
        asks: bool,
    },
    /// One request at a time, until one of them tells how the host is.
    HalfOpen {
        /// Who was chosen for that had failed before: that it fails again is no news.
        is_failing: bool,
    },
    /// So many requests at once; doubled after as many successes.
    Recovering {
        at_once: usize,
        successes: usize,
    },
}

/// Who may be sent something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permits {
    /// So many at once, whoever they are for.
    Many(usize),
    /// One of these, with no more than so many under way.
    One(Candidates, usize),
}

/// What a request changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing that concerns others.
    Nothing,
    /// Nothing is repeated before this moment.
    Opened(Instant),
    /// It stays open; from this moment on somebody may ask.
    Asks(Instant),
    /// The host is well and needs no breaker any more.
    Well,
}

impl Breaker {
    /// Of a host to which something has been delivered, or nothing yet.
    pub(super) fn new(was_well: bool) -> Self {
        let at_once = if was_well { AT_ONCE } else { 0 };
        Self { state: State::Closed, in_a_row: 0, pauses: 0, at_once, was_well }
    }

    /// Who may be sent something now, where at most `limit` requests may be under way at once.
    pub(super) fn permits(&self, limit: usize, now: Instant) -> Permits {
        match self.state {
            State::Closed => Permits::Many(limit),
            State::Open { asks: true, .. } => Permits::Many(0),
            State::Open { asks_from, .. } if asks_from <= now => Permits::One(Candidates::NotFailing, limit),
            State::Open { .. } => Permits::One(Candidates::Well, limit),
            State::HalfOpen { .. } => Permits::One(Candidates::Anybody, 1),
            State::Recovering { at_once, .. } => Permits::Many(at_once.min(limit)),
        }
    }

    /// One that it let through is on its way.
    pub(super) fn sent(&mut self, chosen: Chosen) {
        match &mut self.state {
            State::Open { asks, .. } => *asks = true,
            State::HalfOpen { is_failing } => *is_failing = chosen == Chosen::Failing,
            State::Closed | State::Recovering { .. } => {}
        }
    }

    /// A request has come to its end, whatever it says.
    pub(super) fn returned(&mut self) {
        if let State::Open { asks, .. } = &mut self.state {
            *asks = false;
        }
    }

    /// When the pause is over, if there is one.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.state {
            State::Open { until, .. } => Some(until),
            State::Closed | State::HalfOpen { .. } | State::Recovering { .. } => None,
        }
    }

    /// From when on one may ask that has not failed, while there is a pause.
    pub(super) fn asks_from(&self) -> Option<Instant> {
        match self.state {
            State::Open { asks_from, .. } => Some(asks_from),
            State::Closed | State::HalfOpen { .. } | State::Recovering { .. } => None,
        }
    }

    /// Ends a pause whose time has come, or at once when the operator says so.
    pub(super) fn probe(&mut self) {
        if self.until().is_some() {
            self.state = State::HalfOpen { is_failing: false };
        }
    }

    /// Takes in how a request ended.
    pub(super) fn record(
        &mut self,
        sign: Sign,
        limit: usize,
        policy: &BreakerPolicy,
        now: Instant,
    ) -> Change {
        match sign {
            Sign::Trouble if self.was_well => self.failed(policy, APART, now),
            Sign::Trouble | Sign::Silent => self.failed(policy, FAR_APART, now),
            Sign::Alive => self.succeeded(limit),
            Sign::None => Change::Nothing,
        }
    }

    fn succeeded(&mut self, limit: usize) -> Change {
        self.in_a_row = 0;
        self.was_well = true;
        match self.state {
            // A request that was under way when the breaker opened tells as much as a probe.
            State::Open { .. } | State::HalfOpen { .. } => {
                self.at_once = AT_ONCE;
                self.state = State::Recovering { at_once: 1, successes: 0 };
                Change::Nothing
            }
            State::Recovering { at_once, successes } if successes + 1 < at_once => {
                self.state = State::Recovering { at_once, successes: successes + 1 };
                Change::Nothing
            }
            State::Recovering { at_once, .. } if at_once * 2 < limit => {
                self.state = State::Recovering { at_once: at_once * 2, successes: 0 };
                Change::Nothing
            }
            State::Recovering { .. } | State::Closed => Change::Well,
        }
    }

    fn failed(&mut self, policy: &BreakerPolicy, apart: Duration, now: Instant) -> Change {
        self.in_a_row += 1;
        match self.state {
            State::HalfOpen { is_failing } => {
                self.pauses = self.pauses.saturating_sub(u32::from(is_failing));
                self.open(policy, apart, now)
            }
            State::Closed | State::Recovering { .. } if self.is_too_much(policy) => {
                self.open(policy, apart, now)
            }
            // Who asked in vain does not prolong the pause for the others.
            State::Open { until, asks: true, .. } => {
                let asks_from = self.next_asks(apart, now);
                self.state = State::Open { until, asks_from, asks: false };
                Change::Asks(asks_from)
            }
            // What was under way when it opened says nothing new.
            State::Open { .. } | State::Closed => Change::Nothing,
            State::Recovering { at_once, .. } => {
                self.state = State::Recovering { at_once: (at_once / 2).max(1), successes: 0 };
                Change::Nothing
            }
        }
    }

    fn is_too_much(&self, policy: &BreakerPolicy) -> bool {
        policy.failures > 0 && self.in_a_row >= policy.failures
    }

    fn open(&mut self, policy: &BreakerPolicy, apart: Duration, now: Instant) -> Change {
        let doubled = policy.open.saturating_mul(1_u32.checked_shl(self.pauses).unwrap_or(u32::MAX));
        let pause = doubled.min(policy.open_max).mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0));
        let until = now + pause.min(policy.open_max);
        self.pauses = self.pauses.saturating_add(1);
        self.state = State::Open { until, asks_from: self.next_asks(apart, now), asks: false };
        Change::Opened(until)
    }

    /// From when on the next one may ask.
    fn next_asks(&mut self, apart: Duration, now: Instant) -> Instant {
        if self.at_once == 0 {
            return now + apart;
        }
        self.at_once -= 1;
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const POLICY: BreakerPolicy =
        BreakerPolicy { failures: 5, open: Duration::from_secs(30), open_max: Duration::from_secs(600) };

    fn opened(breaker: &mut Breaker, now: Instant) -> Duration {
        for _ in 0..4 {
            assert_eq!(breaker.record(Sign::Trouble, 8, &POLICY, now), Change::Nothing);
        }
        let Change::Opened(until) = breaker.record(Sign::Trouble, 8, &POLICY, now) else {
            panic!("{breaker:?}")
        };
        until - now
    }

    #[test]
    fn five_failures_in_a_row_open_it_for_half_a_minute() {
        let now = Instant::now();
        let mut breaker = Breaker::new(false);
        let pause = opened(&mut breaker, now);
        assert!((24 * SECOND..=36 * SECOND).contains(&pause), "{pause:?}");
        assert_eq!(breaker.permits(8, now), Permits::One(Candidates::Well, 8));
    }

    #[test]
    fn it_never_opens_where_anything_succeeds_however_much_fails_beside_it() {
        let now = Instant::now();
        let mut breaker = Breaker::new(true);
        for _ in 0..100 {
            for _ in 0..4 {
                assert_eq!(breaker.record(Sign::Trouble, 8, &POLICY, now), Change::Nothing);
            }
            assert_eq!(breaker.record(Sign::Alive, 8, &POLICY, now), Change::Well);
        }
    }

    #[test]
    fn one_probe_and_then_twice_as_many_each_time() {
        let now = Instant::now();
        let mut breaker = Breaker::new(false);
        opened(&mut breaker, now);
        assert_eq!(breaker.record(Sign::Trouble, 8, &POLICY, now), Change::Nothing, "it was under way");
        breaker.probe();
        assert_eq!(breaker.permits(8, now), Permits::One(Candidates::Anybody, 1));
        let mut seen = Vec::new();
        loop {
            let change = breaker.record(Sign::Alive, 8, &POLICY, now);
            if change == Change::Well {
                break;
            }
            seen.push(breaker.permits(8, now));
        }
        assert_eq!(seen, [1, 2, 2, 4, 4, 4, 4].map(Permits::Many));
    }

    #[test]
    fn each_failed_probe_doubles_the_pause_up_to_the_longest_and_no_further() {
        let now = Instant::now();
        let mut breaker = Breaker::new(false);
        opened(&mut breaker, now);
        for expected in [60, 120, 240, 480, 600, 600] {
            breaker.probe();
            let Change::Opened(until) = breaker.record(Sign::Trouble, 8, &POLICY, now) else {
                panic!("{breaker:?}")
            };
            let pause = until - now;
            let expected = Duration::from_secs(expected);
            let longest = expected.mul_f64(1.2).min(POLICY.open_max);
            assert!(pause >= expected.mul_f64(0.8) && pause <= longest, "{pause:?}");
        }
    }

    #[test]
    fn that_fails_again_what_had_failed_before_prolongs_no_pause() {
        let now = Instant::now();
        let mut breaker = Breaker::new(false);
        opened(&mut breaker, now);
        for _ in 0..10 {
            breaker.probe();
            breaker.sent(Chosen::Failing);
            let Change::Opened(until) = breaker.record(Sign::Trouble, 8, &POLICY, now) else {
                panic!("{breaker:?}")
            };
            assert!(until - now <= 36 * SECOND, "{:?}", until - now);
        }
    }

    #[test]
    fn who_has_not_failed_may_ask_at_an_open_one_at_first_at_once_and_then_every_moment() {
        let now = Instant::now();
        for (sign, apart) in [(Sign::Trouble, APART), (Sign::Silent, FAR_APART)] {
            let mut breaker = Breaker::new(true);
            opened(&mut breaker, now);
            let mut asked = 0;
            while breaker.permits(8, now) == Permits::One(Candidates::NotFailing, 8) {
                breaker.sent(Chosen::NotFailing);
                assert_eq!(breaker.permits(8, now), Permits::Many(0), "one at a time");
                breaker.record(sign, 8, &POLICY, now);
                breaker.returned();
                asked += 1;
            }
            assert_eq!(asked, AT_ONCE);
            assert_eq!(breaker.permits(8, now), Permits::One(Candidates::Well, 8));
            assert_eq!(breaker.permits(8, now + apart), Permits::One(Candidates::NotFailing, 8));
            assert_eq!(breaker.record(Sign::Alive, 8, &POLICY, now), Change::Nothing);
            assert_eq!(breaker.permits(8, now), Permits::Many(1), "it lets the others in");
        }
    }

    #[test]
    fn a_host_that_was_never_well_is_asked_every_few_seconds_only() {
        let now = Instant::now();
        let mut breaker = Breaker::new(false);
        opened(&mut breaker, now);
        assert_eq!(breaker.permits(8, now + APART), Permits::One(Candidates::Well, 8));
        assert_eq!(breaker.permits(8, now + FAR_APART), Permits::One(Candidates::NotFailing, 8));
    }

    #[test]
    fn a_failure_during_the_slow_start_halves_it() {
        let now = Instant::now();
        let mut breaker = Breaker::new(false);
        opened(&mut breaker, now);
        breaker.probe();
        for _ in 0..4 {
            breaker.record(Sign::Alive, 8, &POLICY, now);
        }
        assert_eq!(breaker.permits(8, now), Permits::Many(4));
        breaker.record(Sign::Trouble, 8, &POLICY, now);
        assert_eq!(breaker.permits(8, now), Permits::Many(2));
    }

    #[test]
    fn a_policy_of_no_failures_never_opens() {
        let now = Instant::now();
        let mut breaker = Breaker::new(true);
        let never = BreakerPolicy { failures: 0, ..POLICY };
        assert!((0..100).all(|_| breaker.record(Sign::Trouble, 8, &never, now) == Change::Nothing));
    }
}
