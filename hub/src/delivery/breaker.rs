//! When a host is left alone for a while: a circuit breaker with one probe and a slow start.
//!
//! Only trouble of the host itself counts (no answer, 408, 425, 429, 5xx): a refusal shows that it is alive. What waits while
//! the breaker is open has not failed, so no schedule goes on and nothing is given up for it.

use std::time::{Duration, Instant};

/// Answers are counted over so long a time …
const WINDOW: Duration = Duration::from_secs(60);
/// … and from this number on, half of them failed are too many.
const ENOUGH: u32 = 20;
/// A host's `Retry-After` may keep the breaker open for so long.
const LONGEST_HINT: Duration = Duration::from_secs(3_600);
/// Pauses differ by up to this share either way.
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
    /// The host is in trouble; it may have asked for a pause.
    Trouble(Option<Duration>),
    /// Nothing was sent.
    None,
}

/// The breaker of a host that has failed lately.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    in_a_row: u32,
    window_began: Instant,
    answers: u32,
    failures: u32,
    /// Pauses since the host was last well.
    pauses: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Instant,
    },
    /// One request at a time, until one of them tells how the host is.
    Probing,
    /// So many requests at once; doubled after as many successes.
    Recovering {
        at_once: usize,
        successes: usize,
    },
}

/// What a request changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing that concerns others.
    Nothing,
    /// Nothing is sent before this moment.
    Opened(Instant),
    /// The host is well and needs no breaker any more.
    Well,
}

impl Breaker {
    pub(super) fn new(now: Instant) -> Self {
        Self { state: State::Closed, in_a_row: 0, window_began: now, answers: 0, failures: 0, pauses: 0 }
    }

    /// How many requests may be under way at once, of at most `limit`.
    pub(super) fn at_once(&self, limit: usize) -> usize {
        match self.state {
            State::Closed => limit,
            State::Open { .. } => 0,
            State::Probing => 1,
            State::Recovering { at_once, .. } => at_once.min(limit),
        }
    }

    /// When the pause is over, if there is one.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed | State::Probing | State::Recovering { .. } => None,
        }
    }

    /// Ends a pause whose time has come, or at once when the operator says so.
    pub(super) fn probe(&mut self) {
        if self.until().is_some() {
            self.state = State::Probing;
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
        if sign == Sign::None {
            return Change::Nothing;
        }
        if now.saturating_duration_since(self.window_began) > WINDOW {
            (self.window_began, self.answers, self.failures) = (now, 0, 0);
        }
        self.answers += 1;
        match sign {
            Sign::Trouble(hint) => self.failed(hint, policy, now),
            Sign::Alive | Sign::None => self.succeeded(limit),
        }
    }

    fn succeeded(&mut self, limit: usize) -> Change {
        self.in_a_row = 0;
        match self.state {
            // A request that was under way when the breaker opened tells as much as a probe.
            State::Open { .. } | State::Probing => {
                // What failed before the pause says nothing about the time after it.
                (self.answers, self.failures) = (0, 0);
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
            State::Recovering { .. } => Change::Well,
            State::Closed if self.failures == 0 => Change::Well,
            State::Closed => Change::Nothing,
        }
    }

    fn failed(&mut self, hint: Option<Duration>, policy: &BreakerPolicy, now: Instant) -> Change {
        self.in_a_row += 1;
        self.failures += 1;
        match self.state {
            State::Probing => self.open(hint, policy, now),
            State::Closed | State::Recovering { .. } if self.is_too_much(policy) => {
                self.open(hint, policy, now)
            }
            // Nothing new while it is open: these were under way when it opened.
            State::Open { .. } | State::Closed => Change::Nothing,
            State::Recovering { at_once, .. } => {
                self.state = State::Recovering { at_once: (at_once / 2).max(1), successes: 0 };
                Change::Nothing
            }
        }
    }

    fn is_too_much(&self, policy: &BreakerPolicy) -> bool {
        let often = self.answers >= ENOUGH && self.failures * 2 >= self.answers;
        policy.failures > 0 && (self.in_a_row >= policy.failures || often)
    }

    fn open(&mut self, hint: Option<Duration>, policy: &BreakerPolicy, now: Instant) -> Change {
        let doubled = policy.open.saturating_mul(1_u32.checked_shl(self.pauses).unwrap_or(u32::MAX));
        let pause = doubled.min(policy.open_max).mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0));
        let until = now + pause.max(hint.unwrap_or_default().min(LONGEST_HINT));
        self.pauses = self.pauses.saturating_add(1);
        self.state = State::Open { until };
        Change::Opened(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const POLICY: BreakerPolicy =
        BreakerPolicy { failures: 5, open: Duration::from_secs(30), open_max: Duration::from_secs(600) };
    const FAILED: Sign = Sign::Trouble(None);

    fn opened(breaker: &mut Breaker, now: Instant) -> Duration {
        for _ in 0..4 {
            assert_eq!(breaker.record(FAILED, 8, &POLICY, now), Change::Nothing);
        }
        let Change::Opened(until) = breaker.record(FAILED, 8, &POLICY, now) else { panic!("{breaker:?}") };
        until - now
    }

    #[test]
    fn five_failures_in_a_row_open_it_for_half_a_minute() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        let pause = opened(&mut breaker, now);
        assert!((24 * SECOND..=36 * SECOND).contains(&pause), "{pause:?}");
        assert_eq!(breaker.at_once(8), 0);
    }

    #[test]
    fn half_of_twenty_answers_failed_are_too_many_and_less_are_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        for _ in 0..30 {
            assert_eq!(breaker.record(FAILED, 8, &POLICY, now), Change::Nothing);
            breaker.record(Sign::Alive, 8, &POLICY, now);
            breaker.record(Sign::Alive, 8, &POLICY, now);
        }
        let mut breaker = Breaker::new(now);
        for _ in 0..9 {
            assert_eq!(breaker.record(FAILED, 8, &POLICY, now), Change::Nothing);
            breaker.record(Sign::Alive, 8, &POLICY, now);
        }
        breaker.record(Sign::Alive, 8, &POLICY, now);
        assert!(matches!(breaker.record(FAILED, 8, &POLICY, now), Change::Opened(_)));
    }

    #[test]
    fn one_probe_and_then_twice_as_many_each_time() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        assert_eq!(breaker.record(FAILED, 8, &POLICY, now), Change::Nothing, "it was under way");
        breaker.probe();
        assert_eq!(breaker.at_once(8), 1);
        let mut seen = Vec::new();
        loop {
            let change = breaker.record(Sign::Alive, 8, &POLICY, now);
            if change == Change::Well {
                break;
            }
            seen.push(breaker.at_once(8));
        }
        assert_eq!(seen, [1, 2, 2, 4, 4, 4, 4]);
    }

    #[test]
    fn each_failed_probe_doubles_the_pause_up_to_the_longest() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        for expected in [60, 120, 240, 480, 600, 600] {
            breaker.probe();
            let Change::Opened(until) = breaker.record(FAILED, 8, &POLICY, now) else {
                panic!("{breaker:?}")
            };
            let pause = until - now;
            let expected = Duration::from_secs(expected);
            assert!(pause >= expected.mul_f64(0.8) && pause <= expected.mul_f64(1.2), "{pause:?}");
        }
    }

    #[test]
    fn a_failure_during_the_slow_start_halves_it() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        breaker.probe();
        for _ in 0..4 {
            breaker.record(Sign::Alive, 8, &POLICY, now);
        }
        assert_eq!(breaker.at_once(8), 4);
        breaker.record(FAILED, 8, &POLICY, now);
        assert_eq!(breaker.at_once(8), 2);
    }

    #[test]
    fn a_host_may_ask_for_a_longer_pause_but_not_for_ever() {
        for (hint, expected) in [(900, 900), (100_000, 3_600)] {
            let now = Instant::now();
            let mut breaker = Breaker::new(now);
            let asked = Sign::Trouble(Some(Duration::from_secs(hint)));
            for _ in 0..5 {
                breaker.record(asked, 8, &POLICY, now);
            }
            assert_eq!(breaker.until(), Some(now + Duration::from_secs(expected)));
        }
    }

    #[test]
    fn a_policy_of_no_failures_never_opens() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        let never = BreakerPolicy { failures: 0, ..POLICY };
        assert!((0..100).all(|_| breaker.record(FAILED, 8, &never, now) == Change::Nothing));
    }
}
