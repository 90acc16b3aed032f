//! When a host is left alone for a while: a circuit breaker with one probe and a slow start.
//!
//! Only trouble of the host itself counts (no answer, 408, 425, 429, 5xx): a refusal shows that it is alive. What waits while
//! the breaker is open has not failed, so no schedule goes on and nothing is given up for it.
//!
//! Many subscribers share an origin, and one of them may fail, ask for patience or wish the others ill. So the breaker opens only where
//! nothing at the origin succeeds any more, for no longer than its policy says and whatever a subscriber asks for; and while it is open
//! those to whom something was delivered last are served as ever. Others whose last attempt was delivered are tried too, some at once and
//! then a moment apart: one that fails has used that up, so that each such delay costs an attacker a success. Those to whom nothing was sent
//! yet may ask how the origin is, a few side by side, since each may hang until its timeout: some of them at once, then a moment apart where
//! the origin answers, and some seconds where it does not. What succeeds with any of them closes it for all.

use std::time::{Duration, Instant};

use resync_common::backoff::{doubled, jittered};

use super::host::{Candidates, Chosen};

/// Subscriptions that have not failed and may be sent something without a pause between them at an open breaker: so many of those whose last
/// attempt was delivered, and as many others.
const AT_ONCE: u32 = 32;
/// The pause between those after them, where the origin answers …
const APART: Duration = Duration::from_millis(100);
/// … and where it does not: each of them may have a place for as long as a request may take.
const FAR_APART: Duration = Duration::from_secs(5);
/// The same between those whose last attempt was delivered.
const PROVEN_FAR_APART: Duration = Duration::from_secs(1);

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

/// Requests to a host that have not come to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnderWay {
    pub(super) all: usize,
    /// Of these, such as have been under way for longer than a quick answer takes …
    pub(super) hanging: usize,
    /// … and of those, such as are for subscriptions whose last attempt was not delivered.
    pub(super) unproven_hanging: usize,
}

impl UnderWay {
    /// How many have a place that counts for those whose last attempt was delivered: who never succeeded and hangs must not be in their way.
    pub(super) fn beside_unproven(self) -> usize {
        self.all - self.unproven_hanging
    }
}

/// The breaker of a host that has failed lately.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    /// Failures since anything at this host succeeded.
    in_a_row: u32,
    /// Pauses since the host was last well.
    pauses: u32,
    /// Whether the next probe is rather for somebody who has failed than for somebody to whom nothing was sent yet: they take turns.
    failing_first: bool,
    /// Those to whom nothing was sent yet.
    untried: Asking,
    /// Those whose last attempt was delivered.
    proven: Asking,
    /// The host did not answer what failed last.
    is_silent: bool,
}

/// When the next one of a kind may ask at an open breaker.
#[derive(Clone, Copy, Debug)]
struct Asking {
    /// So many may at once.
    at_once: u32,
    /// After these, one from then on.
    from: Instant,
}

impl Asking {
    fn new(now: Instant) -> Self {
        Self { at_once: AT_ONCE, from: now }
    }

    /// One does. Tells from when on the next one may, if that is not now.
    fn asked(&mut self, apart: Duration, now: Instant) -> Option<Instant> {
        if self.at_once > 0 {
            self.at_once -= 1;
            return None;
        }
        self.from = now + apart;
        Some(self.from)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Instant,
    },
    /// One request, until it tells how the host is.
    HalfOpen {
        /// It is on its way since then.
        sent: Option<Instant>,
        /// Who was chosen for that had failed before: that it fails again is no news.
        is_failing: bool,
    },
    /// So many requests at once; doubled after as many successes.
    Recovering {
        at_once: usize,
        successes: usize,
    },
}

/// What a request is to the breaker that let it through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The one that tells how the host is.
    Probe,
    /// One of those that ask beside it.
    Asks {
        /// From when on the next one of its kind may.
        next: Instant,
    },
    /// Any other.
    Other,
}

/// What a request changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing that concerns others.
    Nothing,
    /// Nothing is repeated before this moment.
    Opened(Instant),
    /// The host is well and needs no breaker any more.
    Well,
}

impl Breaker {
    pub(super) fn new(now: Instant) -> Self {
        let asking = Asking::new(now);
        Self {
            state: State::Closed,
            in_a_row: 0,
            pauses: 0,
            failing_first: false,
            untried: asking,
            proven: asking,
            is_silent: false,
        }
    }

    /// Who may be sent something now, where these requests are under way, fewer than `limit`.
    pub(super) fn permits(&self, under_way: UnderWay, limit: usize, now: Instant) -> Candidates {
        match self.state {
            State::Closed => Candidates::InTurn,
            State::HalfOpen { sent: None, .. } if self.failing_first => Candidates::FailingFirst,
            State::HalfOpen { sent: None, .. } => Candidates::Anybody,
            // What hangs tells nothing yet, and must not keep the others out.
            State::Recovering { at_once, .. } if under_way.all - under_way.hanging < at_once => {
                Candidates::WellFirst
            }
            State::Recovering { .. } => Candidates::Well,
            State::Open { .. } | State::HalfOpen { .. } => {
                if self.untried.from <= now && under_way.all < (limit / 2).max(1) {
                    Candidates::NotFailing
                } else if self.proven.from <= now && under_way.beside_unproven() < limit - limit / 4 {
                    Candidates::Proven
                } else {
                    Candidates::Well
                }
            }
        }
    }

    /// One that it let through is on its way.
    pub(super) fn sent(&mut self, chosen: Chosen, now: Instant) -> Sent {
        match &mut self.state {
            State::HalfOpen { is_failing, sent } if sent.is_none() => {
                (*is_failing, *sent) = (chosen == Chosen::Failing, Some(now));
                self.failing_first = !self.failing_first;
                Sent::Probe
            }
            State::Open { .. } | State::HalfOpen { .. } => {
                self.asked(chosen, now).map_or(Sent::Other, |next| Sent::Asks { next })
            }
            State::Closed | State::Recovering { .. } => Sent::Other,
        }
    }

    /// One that has not failed asks how the host is. Tells from when on the next one may, if that is not now.
    fn asked(&mut self, chosen: Chosen, now: Instant) -> Option<Instant> {
        let far = |apart| if self.is_silent { apart } else { APART };
        match chosen {
            Chosen::Proven if self.proven.from <= now => self.proven.asked(far(PROVEN_FAR_APART), now),
            Chosen::Proven | Chosen::NotFailing => self.untried.asked(far(FAR_APART), now),
            Chosen::Well | Chosen::Failing => None,
        }
    }

    /// A request has come to its end, whatever it says; it is the probe that began at this moment, if it is one.
    pub(super) fn returned(&mut self, probe: Option<Instant>) {
        if let State::HalfOpen { sent, .. } = &mut self.state {
            sent.take_if(|sent| Some(*sent) == probe);
        }
    }

    /// When the pause is over, if there is one.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed | State::HalfOpen { .. } | State::Recovering { .. } => None,
        }
    }

    /// Whether one that has not failed may ask from this moment on.
    pub(super) fn asks_from(&self, moment: Instant) -> bool {
        [self.untried.from, self.proven.from].contains(&moment)
    }

    /// Ends a pause whose time has come, or at once when the operator says so.
    pub(super) fn probe(&mut self) {
        if self.until().is_some() {
            self.state = State::HalfOpen { sent: None, is_failing: false };
        }
    }

    /// Takes in how a request ended: the probe that began at this moment, if it is one.
    pub(super) fn record(
        &mut self,
        sign: Sign,
        probe: Option<Instant>,
        limit: usize,
        policy: &BreakerPolicy,
        now: Instant,
    ) -> Change {
        match sign {
            Sign::Trouble => self.failed(false, probe, policy, now),
            Sign::Silent => self.failed(true, probe, policy, now),
            Sign::Alive => self.succeeded(limit, now),
            Sign::None => Change::Nothing,
        }
    }

    fn succeeded(&mut self, limit: usize, now: Instant) -> Change {
        self.in_a_row = 0;
        match self.state {
            // A request that was under way when the breaker opened tells as much as a probe.
            State::Open { .. } | State::HalfOpen { .. } => {
                (self.untried, self.proven) = (Asking::new(now), Asking::new(now));
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

    fn failed(
        &mut self,
        is_silent: bool,
        probe: Option<Instant>,
        policy: &BreakerPolicy,
        now: Instant,
    ) -> Change {
        self.in_a_row += 1;
        self.is_silent = is_silent;
        match self.state {
            State::HalfOpen { sent: Some(sent), is_failing } if Some(sent) == probe => {
                self.pauses = self.pauses.saturating_sub(u32::from(is_failing));
                self.open(policy, now)
            }
            State::Closed | State::Recovering { .. } if self.is_too_much(policy) => self.open(policy, now),
            // What was under way when it opened says nothing new, and who asked in vain does not prolong the pause for the others.
            State::Open { .. } | State::HalfOpen { .. } | State::Closed => Change::Nothing,
            State::Recovering { at_once, .. } => {
                self.state = State::Recovering { at_once: (at_once / 2).max(1), successes: 0 };
                Change::Nothing
            }
        }
    }

    fn is_too_much(&self, policy: &BreakerPolicy) -> bool {
        policy.failures > 0 && self.in_a_row >= policy.failures
    }

    fn open(&mut self, policy: &BreakerPolicy, now: Instant) -> Change {
        let pause = jittered(doubled(policy.open, self.pauses, policy.open_max));
        // They pass the longest one by nothing.
        let until = now + pause.min(policy.open_max);
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

    /// Who may be sent something while so many of eight requests are under way, none of which hangs.
    fn with(breaker: &Breaker, all: usize, now: Instant) -> Candidates {
        breaker.permits(UnderWay { all, hanging: 0, unproven_hanging: 0 }, 8, now)
    }

    /// How many may be under way at once at a host that recovers.
    fn recovering(breaker: &Breaker, now: Instant) -> usize {
        (0..8).take_while(|all| with(breaker, *all, now) == Candidates::WellFirst).count()
    }

    fn opened(breaker: &mut Breaker, now: Instant) -> Duration {
        for _ in 0..4 {
            assert_eq!(breaker.record(Sign::Trouble, None, 8, &POLICY, now), Change::Nothing);
        }
        let Change::Opened(until) = breaker.record(Sign::Trouble, None, 8, &POLICY, now) else {
            panic!("{breaker:?}")
        };
        until - now
    }

    #[test]
    fn five_failures_in_a_row_open_it_for_half_a_minute() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        let pause = opened(&mut breaker, now);
        assert!((24 * SECOND..=36 * SECOND).contains(&pause), "{pause:?}");
        assert!(breaker.until().is_some());
    }

    #[test]
    fn it_never_opens_where_anything_succeeds_however_much_fails_beside_it() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        for _ in 0..100 {
            for _ in 0..4 {
                assert_eq!(breaker.record(Sign::Trouble, None, 8, &POLICY, now), Change::Nothing);
            }
            assert_eq!(breaker.record(Sign::Alive, None, 8, &POLICY, now), Change::Well);
        }
    }

    #[test]
    fn one_probe_and_then_twice_as_many_each_time() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        assert_eq!(breaker.record(Sign::Trouble, None, 8, &POLICY, now), Change::Nothing, "it was under way");
        breaker.probe();
        assert_eq!(with(&breaker, 4, now), Candidates::Anybody, "whatever is under way still");
        breaker.sent(Chosen::NotFailing, now);
        assert_eq!(with(&breaker, 5, now), Candidates::Proven);
        assert_eq!(with(&breaker, 6, now), Candidates::Well);
        let mut seen = Vec::new();
        loop {
            let change = breaker.record(Sign::Alive, None, 8, &POLICY, now);
            if change == Change::Well {
                break;
            }
            seen.push(recovering(&breaker, now));
        }
        assert_eq!(seen, [1, 2, 2, 4, 4, 4, 4]);
    }

    #[test]
    fn each_failed_probe_doubles_the_pause_up_to_the_longest_and_no_further() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        for expected in [60, 120, 240, 480, 600, 600] {
            breaker.probe();
            breaker.sent(Chosen::NotFailing, now);
            let Change::Opened(until) = breaker.record(Sign::Trouble, Some(now), 8, &POLICY, now) else {
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
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        for _ in 0..10 {
            breaker.probe();
            breaker.sent(Chosen::Failing, now);
            let Change::Opened(until) = breaker.record(Sign::Trouble, Some(now), 8, &POLICY, now) else {
                panic!("{breaker:?}")
            };
            assert!(until - now <= 36 * SECOND, "{:?}", until - now);
        }
    }

    #[test]
    fn who_has_not_failed_may_ask_at_an_open_one_at_first_at_once_and_then_every_moment() {
        let now = Instant::now();
        for (sign, apart) in [(Sign::Trouble, APART), (Sign::Silent, FAR_APART)] {
            let mut breaker = Breaker::new(now);
            opened(&mut breaker, now);
            let mut asked = 0;
            while with(&breaker, 3, now) == Candidates::NotFailing {
                breaker.record(sign, None, 8, &POLICY, now);
                breaker.sent(Chosen::NotFailing, now);
                assert_eq!(with(&breaker, 4, now), Candidates::Proven, "half of the places hang already");
                asked += 1;
            }
            assert_eq!(asked, AT_ONCE + 1);
            assert_eq!(with(&breaker, 0, now + apart / 2), Candidates::Proven);
            assert_eq!(with(&breaker, 0, now + apart), Candidates::NotFailing);
            assert_eq!(breaker.record(Sign::Alive, None, 8, &POLICY, now), Change::Nothing);
            assert_eq!(with(&breaker, 0, now), Candidates::WellFirst, "it lets the others in");
        }
    }

    #[test]
    fn those_whose_last_attempt_was_delivered_are_tried_beside_those_who_ask_and_leave_a_quarter_of_the_places()
     {
        let now = Instant::now();
        for (sign, apart) in [(Sign::Trouble, APART), (Sign::Silent, PROVEN_FAR_APART)] {
            let mut breaker = Breaker::new(now);
            opened(&mut breaker, now);
            let mut tried = 0;
            while with(&breaker, 5, now) == Candidates::Proven {
                breaker.record(sign, None, 8, &POLICY, now);
                breaker.sent(Chosen::Proven, now);
                tried += 1;
            }
            assert_eq!(tried, AT_ONCE + 1);
            assert_eq!(with(&breaker, 6, now + apart), Candidates::Well);
            assert_eq!(with(&breaker, 5, now + apart / 2), Candidates::Well);
            assert_eq!(with(&breaker, 5, now + apart), Candidates::Proven);
            // Who takes the turn of those who ask is counted among them.
            for _ in 0..=AT_ONCE {
                breaker.sent(Chosen::Proven, now);
            }
            assert_eq!(with(&breaker, 0, now), Candidates::Well);
        }
    }

    #[test]
    fn who_asks_in_vain_does_not_prolong_the_pause_nor_speak_for_the_probe() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        let until = breaker.until();
        breaker.sent(Chosen::NotFailing, now);
        assert_eq!(breaker.record(Sign::Silent, None, 8, &POLICY, now), Change::Nothing);
        assert_eq!(breaker.until(), until);
        breaker.probe();
        assert_eq!(breaker.record(Sign::Silent, None, 8, &POLICY, now), Change::Nothing);
        assert_eq!(with(&breaker, 3, now), Candidates::Anybody, "the probe is still to come");
    }

    #[test]
    fn only_the_probe_speaks_for_itself_though_another_request_began_with_it() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        breaker.probe();
        assert_eq!(breaker.sent(Chosen::Failing, now), Sent::Probe);
        assert_eq!(breaker.sent(Chosen::NotFailing, now), Sent::Other);
        assert_eq!(breaker.record(Sign::Trouble, None, 8, &POLICY, now), Change::Nothing);
        breaker.returned(None);
        assert_eq!(with(&breaker, 4, now), Candidates::Proven, "there is no second probe");
        assert!(matches!(breaker.record(Sign::Trouble, Some(now), 8, &POLICY, now), Change::Opened(_)));
    }

    #[test]
    fn every_second_probe_is_for_somebody_who_has_failed() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        let mut probes = Vec::new();
        for _ in 0..4 {
            breaker.probe();
            probes.push(with(&breaker, 0, now));
            breaker.sent(Chosen::NotFailing, now);
            breaker.record(Sign::Silent, Some(now), 8, &POLICY, now);
        }
        let (anybody, failing) = (Candidates::Anybody, Candidates::FailingFirst);
        assert_eq!(probes, [anybody, failing, anybody, failing]);
    }

    #[test]
    fn what_hangs_keeps_nobody_out_of_a_host_that_recovers() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        breaker.record(Sign::Alive, None, 8, &POLICY, now);
        assert_eq!(with(&breaker, 1, now), Candidates::Well, "one at a time");
        let under_way = UnderWay { all: 4, hanging: 4, unproven_hanging: 4 };
        assert_eq!(breaker.permits(under_way, 8, now), Candidates::WellFirst);
    }

    #[test]
    fn a_failure_during_the_slow_start_halves_it() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        breaker.probe();
        for _ in 0..4 {
            breaker.record(Sign::Alive, None, 8, &POLICY, now);
        }
        assert_eq!(recovering(&breaker, now), 4);
        breaker.record(Sign::Trouble, None, 8, &POLICY, now);
        assert_eq!(recovering(&breaker, now), 2);
    }

    #[test]
    fn a_policy_of_no_failures_never_opens() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        let never = BreakerPolicy { failures: 0, ..POLICY };
        assert!((0..100).all(|_| breaker.record(Sign::Trouble, None, 8, &never, now) == Change::Nothing));
    }
}
