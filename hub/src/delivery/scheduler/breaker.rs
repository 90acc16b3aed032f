//! The circuit breaker of one host: it opens after failures, lets one probe through, and starts slowly.
//!
//! Only trouble of the host itself counts (no answer, 408, 425, 429, 5xx): a refusal shows that it is alive. What waits while
//! the breaker is open has not failed: its schedule of retries stands still, and nothing is given up.
//!
//! Many subscribers share an origin, and one of them may fail, ask for patience or wish the others ill. So the breaker opens only when
//! nothing at the origin succeeds any more, and its pause depends on the policy alone, not on what a subscriber asks for. While it is
//! open, some requests pass all the same:
//!
//! * Subscriptions to which something was delivered last are served as ever.
//! * Others whose last attempt was delivered (*proven*) are tried too: some at once, then one after each pause. One that fails is no longer
//!   proven, so that each such delay costs an attacker a success.
//! * Subscriptions that were never tried may try as well, a few side by side, since each may hang until its timeout: some at once, then one
//!   after each pause. The pause is short where the origin answers, and some seconds where it does not.
//!
//! Whatever succeeds closes the breaker for all.

use std::time::{Duration, Instant};

use resync_common::backoff::{doubled, jittered};

use super::host::{Candidates, Chosen};

/// Trials of subscriptions that have not failed, without a pause between them, at an open breaker: so many of proven ones, and as many of
/// untried ones.
const AT_ONCE: u32 = 32;
/// The pause between later trials, where the origin answers.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause between later trials of untried subscriptions, where the origin does not answer: each may hold a permit for as long as a request
/// may take.
const SILENT_PAUSE: Duration = Duration::from_secs(5);
/// The pause between later trials of proven subscriptions, where the origin does not answer.
const PROVEN_SILENT_PAUSE: Duration = Duration::from_secs(1);

/// When breakers open, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// So many failures in a row open it; 0: never.
    pub failures: u32,
    /// The first pause. Each failed probe doubles it.
    pub open: Duration,
    /// The longest pause.
    pub open_max: Duration,
}

/// What the end of a request says about the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostSignal {
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
pub(super) struct InFlightCounts {
    pub(super) all: usize,
    /// Of these, those for subscriptions that are not proven.
    pub(super) unproven: usize,
    /// Those that hang: they have been under way for longer than a quick answer takes.
    pub(super) hanging: usize,
    /// Of those that hang, those for subscriptions that are not proven.
    pub(super) unproven_hanging: usize,
}

impl InFlightCounts {
    /// How many permits count for proven subscriptions: what never succeeded and hangs must not be in their way.
    pub(super) fn beside_unproven(self) -> usize {
        self.all - self.unproven_hanging
    }

    /// How many may be answered soon.
    fn in_time(self) -> usize {
        self.all - self.hanging
    }

    /// How many of these are for proven subscriptions.
    fn proven_in_time(self) -> usize {
        self.in_time() - (self.unproven - self.unproven_hanging)
    }
}

/// The breaker of a host that has failed lately.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    /// Failures since anything at this host succeeded.
    in_a_row: u32,
    /// Pauses since the breaker was closed.
    pauses: u32,
    /// Whether the next probe is rather for a subscription that has failed than for one that was never tried: they alternate.
    failing_first: bool,
    /// Of subscriptions that were never tried.
    untried: Trials,
    /// Of proven ones.
    proven: Trials,
    /// The host did not answer what failed last.
    is_silent: bool,
}

/// When subscriptions of a kind may try at an open breaker.
#[derive(Clone, Copy, Debug)]
struct Trials {
    /// So many may at once.
    at_once: u32,
    /// After these, one from then on.
    from: Instant,
}

impl Trials {
    fn new(now: Instant) -> Self {
        Self { at_once: AT_ONCE, from: now }
    }

    /// One does. Returns from when on the next one may, if that is not now.
    fn begin(&mut self, pause: Duration, now: Instant) -> Option<Instant> {
        if self.at_once > 0 {
            self.at_once -= 1;
            return None;
        }
        self.from = now + pause;
        Some(self.from)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Instant,
    },
    /// One request, until its answer shows how the host is.
    HalfOpen {
        /// It is on its way since then.
        sent: Option<Instant>,
        /// The subscription had failed before: another failure says nothing new.
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
    /// The one whose answer shows how the host is.
    Probe,
    /// One of the trials beside it.
    Trial {
        /// From when on the next one of its kind may begin.
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
    /// The host needs no breaker any more.
    Recovered,
}

impl Breaker {
    pub(super) fn new(now: Instant) -> Self {
        let trials = Trials::new(now);
        Self {
            state: State::Closed,
            in_a_row: 0,
            pauses: 0,
            failing_first: false,
            untried: trials,
            proven: trials,
            is_silent: false,
        }
    }

    /// Who may be sent something now, where these requests are under way, fewer than `limit`.
    pub(super) fn candidates(&self, under_way: InFlightCounts, limit: usize, now: Instant) -> Candidates {
        match self.state {
            State::Closed => Candidates::InTurn,
            State::HalfOpen { sent: None, .. } if self.failing_first => Candidates::FailingFirst,
            State::HalfOpen { sent: None, .. } => Candidates::Anybody,
            // What hangs says nothing yet, and must not keep the others out.
            State::Recovering { at_once, .. } if under_way.in_time() < at_once => {
                Candidates::RecentlyDeliveredFirst
            }
            // Unproven requests may hang too; beside them proven ones get as many.
            State::Recovering { at_once, .. } if under_way.proven_in_time() < at_once => Candidates::Proven,
            State::Recovering { .. } => Candidates::RecentlyDelivered,
            State::Open { .. } | State::HalfOpen { .. } => {
                if self.untried.from <= now && under_way.all < (limit / 2).max(1) {
                    Candidates::NotFailing
                } else if self.proven.from <= now && under_way.beside_unproven() < limit - limit / 4 {
                    Candidates::Proven
                } else {
                    Candidates::RecentlyDelivered
                }
            }
        }
    }

    /// A request that it let through is on its way.
    pub(super) fn sent(&mut self, chosen: Chosen, now: Instant) -> Sent {
        match &mut self.state {
            State::HalfOpen { is_failing, sent } if sent.is_none() => {
                (*is_failing, *sent) = (chosen == Chosen::Failing, Some(now));
                self.failing_first = !self.failing_first;
                Sent::Probe
            }
            State::Open { .. } | State::HalfOpen { .. } => {
                self.begin_trial(chosen, now).map_or(Sent::Other, |next| Sent::Trial { next })
            }
            State::Closed | State::Recovering { .. } => Sent::Other,
        }
    }

    /// A subscription that has not failed tries. Returns from when on the next one may, if that is not now.
    fn begin_trial(&mut self, chosen: Chosen, now: Instant) -> Option<Instant> {
        let pause = |silent| if self.is_silent { silent } else { PAUSE };
        match chosen {
            Chosen::Proven if self.proven.from <= now => self.proven.begin(pause(PROVEN_SILENT_PAUSE), now),
            Chosen::Proven | Chosen::NotFailing => self.untried.begin(pause(SILENT_PAUSE), now),
            Chosen::RecentlyDelivered | Chosen::Failing => None,
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

    /// Whether the next trial may begin from this moment on.
    pub(super) fn tries_from(&self, moment: Instant) -> bool {
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
        signal: HostSignal,
        probe: Option<Instant>,
        limit: usize,
        policy: &BreakerPolicy,
        now: Instant,
    ) -> Change {
        match signal {
            HostSignal::Trouble => self.failed(false, probe, policy, now),
            HostSignal::Silent => self.failed(true, probe, policy, now),
            HostSignal::Alive => self.succeeded(limit, now),
            HostSignal::None => Change::Nothing,
        }
    }

    fn succeeded(&mut self, limit: usize, now: Instant) -> Change {
        self.in_a_row = 0;
        match self.state {
            // A request that was under way when the breaker opened says as much as a probe.
            State::Open { .. } | State::HalfOpen { .. } => {
                (self.untried, self.proven) = (Trials::new(now), Trials::new(now));
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
            State::Recovering { .. } | State::Closed => Change::Recovered,
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
            // What was under way when it opened says nothing new, and a trial that fails does not prolong the pause for the others.
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
        // Jitter must not make it longer than the policy allows.
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
        breaker.candidates(InFlightCounts { all, hanging: 0, unproven_hanging: 0, unproven: 0 }, 8, now)
    }

    /// How many may be under way at once at a host that recovers.
    fn recovering(breaker: &Breaker, now: Instant) -> usize {
        (0..8).take_while(|all| with(breaker, *all, now) == Candidates::RecentlyDeliveredFirst).count()
    }

    fn opened(breaker: &mut Breaker, now: Instant) -> Duration {
        for _ in 0..4 {
            assert_eq!(breaker.record(HostSignal::Trouble, None, 8, &POLICY, now), Change::Nothing);
        }
        let Change::Opened(until) = breaker.record(HostSignal::Trouble, None, 8, &POLICY, now) else {
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
                assert_eq!(breaker.record(HostSignal::Trouble, None, 8, &POLICY, now), Change::Nothing);
            }
            assert_eq!(breaker.record(HostSignal::Alive, None, 8, &POLICY, now), Change::Recovered);
        }
    }

    #[test]
    fn one_probe_and_then_twice_as_many_each_time() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        assert_eq!(
            breaker.record(HostSignal::Trouble, None, 8, &POLICY, now),
            Change::Nothing,
            "it was under way"
        );
        breaker.probe();
        assert_eq!(with(&breaker, 4, now), Candidates::Anybody, "whatever is under way still");
        breaker.sent(Chosen::NotFailing, now);
        assert_eq!(with(&breaker, 5, now), Candidates::Proven);
        assert_eq!(with(&breaker, 6, now), Candidates::RecentlyDelivered);
        let mut seen = Vec::new();
        loop {
            let change = breaker.record(HostSignal::Alive, None, 8, &POLICY, now);
            if change == Change::Recovered {
                break;
            }
            seen.push(recovering(&breaker, now));
        }
        assert_eq!(seen, [1, 2, 2, 4, 4, 4, 4]);
    }

    #[test]
    fn at_a_host_that_recovers_proven_ones_do_not_wait_for_those_that_never_succeeded() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        breaker.record(HostSignal::Alive, None, 8, &POLICY, now);
        let candidates = |all, unproven| {
            let under_way = InFlightCounts { all, hanging: 0, unproven_hanging: 0, unproven };
            breaker.candidates(under_way, 8, now)
        };
        assert_eq!(candidates(1, 1), Candidates::Proven);
        assert_eq!(candidates(2, 1), Candidates::RecentlyDelivered, "a proven one is under way too");
        assert_eq!(candidates(1, 0), Candidates::RecentlyDelivered);
    }

    #[test]
    fn each_failed_probe_doubles_the_pause_up_to_the_longest_and_no_further() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        for expected in [60, 120, 240, 480, 600, 600] {
            breaker.probe();
            breaker.sent(Chosen::NotFailing, now);
            let Change::Opened(until) = breaker.record(HostSignal::Trouble, Some(now), 8, &POLICY, now)
            else {
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
            let Change::Opened(until) = breaker.record(HostSignal::Trouble, Some(now), 8, &POLICY, now)
            else {
                panic!("{breaker:?}")
            };
            assert!(until - now <= 36 * SECOND, "{:?}", until - now);
        }
    }

    #[test]
    fn trials_of_untried_subscriptions_begin_at_once_at_first_and_then_after_pauses() {
        let now = Instant::now();
        for (signal, pause) in [(HostSignal::Trouble, PAUSE), (HostSignal::Silent, SILENT_PAUSE)] {
            let mut breaker = Breaker::new(now);
            opened(&mut breaker, now);
            let mut tried = 0;
            while with(&breaker, 3, now) == Candidates::NotFailing {
                breaker.record(signal, None, 8, &POLICY, now);
                breaker.sent(Chosen::NotFailing, now);
                assert_eq!(with(&breaker, 4, now), Candidates::Proven, "half of the permits hang already");
                tried += 1;
            }
            assert_eq!(tried, AT_ONCE + 1);
            assert_eq!(with(&breaker, 0, now + pause / 2), Candidates::Proven);
            assert_eq!(with(&breaker, 0, now + pause), Candidates::NotFailing);
            assert_eq!(breaker.record(HostSignal::Alive, None, 8, &POLICY, now), Change::Nothing);
            assert_eq!(with(&breaker, 0, now), Candidates::RecentlyDeliveredFirst, "it lets the others in");
        }
    }

    #[test]
    fn proven_subscriptions_are_tried_beside_untried_ones_and_leave_a_quarter_of_the_permits() {
        let now = Instant::now();
        for (signal, pause) in [(HostSignal::Trouble, PAUSE), (HostSignal::Silent, PROVEN_SILENT_PAUSE)] {
            let mut breaker = Breaker::new(now);
            opened(&mut breaker, now);
            let mut tried = 0;
            while with(&breaker, 5, now) == Candidates::Proven {
                breaker.record(signal, None, 8, &POLICY, now);
                breaker.sent(Chosen::Proven, now);
                tried += 1;
            }
            assert_eq!(tried, AT_ONCE + 1);
            assert_eq!(with(&breaker, 6, now + pause), Candidates::RecentlyDelivered);
            assert_eq!(with(&breaker, 5, now + pause / 2), Candidates::RecentlyDelivered);
            assert_eq!(with(&breaker, 5, now + pause), Candidates::Proven);
            // A proven one that takes the trial of an untried one is counted among those.
            for _ in 0..=AT_ONCE {
                breaker.sent(Chosen::Proven, now);
            }
            assert_eq!(with(&breaker, 0, now), Candidates::RecentlyDelivered);
        }
    }

    #[test]
    fn a_trial_that_fails_does_not_prolong_the_pause_nor_speak_for_the_probe() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        let until = breaker.until();
        breaker.sent(Chosen::NotFailing, now);
        assert_eq!(breaker.record(HostSignal::Silent, None, 8, &POLICY, now), Change::Nothing);
        assert_eq!(breaker.until(), until);
        breaker.probe();
        assert_eq!(breaker.record(HostSignal::Silent, None, 8, &POLICY, now), Change::Nothing);
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
        assert_eq!(breaker.record(HostSignal::Trouble, None, 8, &POLICY, now), Change::Nothing);
        breaker.returned(None);
        assert_eq!(with(&breaker, 4, now), Candidates::Proven, "there is no second probe");
        assert!(matches!(breaker.record(HostSignal::Trouble, Some(now), 8, &POLICY, now), Change::Opened(_)));
    }

    #[test]
    fn every_second_probe_is_for_a_subscription_that_has_failed() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        let mut probes = Vec::new();
        for _ in 0..4 {
            breaker.probe();
            probes.push(with(&breaker, 0, now));
            breaker.sent(Chosen::NotFailing, now);
            breaker.record(HostSignal::Silent, Some(now), 8, &POLICY, now);
        }
        let (anybody, failing) = (Candidates::Anybody, Candidates::FailingFirst);
        assert_eq!(probes, [anybody, failing, anybody, failing]);
    }

    #[test]
    fn what_hangs_keeps_nobody_out_of_a_host_that_recovers() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        breaker.record(HostSignal::Alive, None, 8, &POLICY, now);
        assert_eq!(with(&breaker, 1, now), Candidates::RecentlyDelivered, "one at a time");
        let under_way = InFlightCounts { all: 4, hanging: 4, unproven_hanging: 4, unproven: 4 };
        assert_eq!(breaker.candidates(under_way, 8, now), Candidates::RecentlyDeliveredFirst);
    }

    #[test]
    fn a_failure_during_the_slow_start_halves_it() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        opened(&mut breaker, now);
        breaker.probe();
        for _ in 0..4 {
            breaker.record(HostSignal::Alive, None, 8, &POLICY, now);
        }
        assert_eq!(recovering(&breaker, now), 4);
        breaker.record(HostSignal::Trouble, None, 8, &POLICY, now);
        assert_eq!(recovering(&breaker, now), 2);
    }

    #[test]
    fn a_policy_of_no_failures_never_opens() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        let never = BreakerPolicy { failures: 0, ..POLICY };
        assert!(
            (0..100).all(|_| breaker.record(HostSignal::Trouble, None, 8, &never, now) == Change::Nothing)
        );
    }
}
