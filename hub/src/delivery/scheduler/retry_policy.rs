//! When a failed delivery is tried again, and when its notification is given up.

use std::time::Duration;

use http::StatusCode;
use resync_common::backoff::{JITTER, doubled, jittered};
use resync_common::client::LONGEST_PAUSE;

use crate::store::FailureClass;

/// No rate limit postpones an attempt further than this.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);
/// After so long without a single success a subscription is dormant.
const DORMANT_AFTER: Duration = Duration::from_secs(24 * 3_600);
/// A dormant subscription is tried at most this often.
const DORMANT_PAUSE: Duration = Duration::from_secs(3_600);
/// The pause where the rate limit of an unconfirmed address was used up; it doubles each time.
const RATE_LIMITED: Duration = Duration::from_secs(10);
/// The longest pause where that rate limit was used up.
const RATE_LIMITED_MOST: Duration = Duration::from_secs(600);
/// The pause during re-verification; it doubles too.
const REVERIFYING: Duration = Duration::from_secs(5);
/// The longest pause during re-verification.
const REVERIFYING_MOST: Duration = Duration::from_secs(20);

/// The delays after the first, second, … failure of one notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// For hosts in trouble.
    pub trouble: Vec<Duration>,
    /// For refusals.
    pub refused: Vec<Duration>,
    /// How long after a 410 the next attempt confirms it.
    pub gone_confirm_after: Duration,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryOutcome {
    /// 2xx.
    Delivered,
    /// Anything else.
    Failed(Failure),
}

/// What is known about a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The class that decides about the schedule.
    pub(crate) class: FailureClass,
    /// The status, if there was an answer.
    pub(crate) status: Option<u16>,
    /// The subscriber's `Retry-After`; no more than [`LONGEST_PAUSE`] counts.
    pub(crate) retry_after: Option<Duration>,
    /// The server took the request and hung up without an answer.
    pub(crate) cut: bool,
}

/// The failures since the last success, this one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailureStreak {
    /// How many there were since something was delivered or given up.
    pub(super) failures: u16,
    /// How many of them were of this notification: one that supersedes another begins anew.
    pub(super) of_notification: u16,
    /// The attempt before was answered 410 too.
    pub(super) was_gone: bool,
    /// How long there has been no success.
    pub(super) failing_for: Duration,
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// This notification again, after this pause.
    Retry(Duration),
    /// On to the next notification, after this pause.
    Skip(Duration),
    /// The subscription is over.
    End,
}

/// Why a notification is given up for a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// It was refused until the schedule for refusals was over.
    Refused,
    /// The host was in trouble until the schedule for trouble was over.
    Failed,
    /// The server failed at it again and again, took the next one, and failed at it even then.
    Suspect,
    /// The operator wants it so.
    Operator,
}

impl GivenUp {
    pub(crate) const ALL: [Self; 4] = [Self::Refused, Self::Failed, Self::Suspect, Self::Operator];

    /// The schedule for failures of this class is over.
    pub(super) fn after(class: FailureClass) -> Self {
        match class {
            FailureClass::Refused | FailureClass::Gone => Self::Refused,
            FailureClass::Trouble | FailureClass::NotFailed | FailureClass::Unsent => Self::Failed,
        }
    }

    /// What metrics call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Suspect => "message",
            Self::Operator => "operator",
        }
    }
}

impl DeliveryOutcome {
    /// The outcome that a status stands for (W-149, W-152).
    pub(crate) fn of_status(status: StatusCode, retry_after: Option<Duration>) -> Self {
        let class = match status.as_u16() {
            200..=299 => return Self::Delivered,
            410 => FailureClass::Gone,
            408 | 425 | 429 | 500.. => FailureClass::Trouble,
            _ => FailureClass::Refused,
        };
        Self::Failed(Failure { class, status: Some(status.as_u16()), retry_after, cut: false })
    }

    /// No answer at all.
    pub(crate) fn unreachable() -> Self {
        Self::unanswered(false)
    }

    /// No answer, although the request was sent and not waited for in vain.
    pub(crate) fn cut() -> Self {
        Self::unanswered(true)
    }

    fn unanswered(cut: bool) -> Self {
        Self::Failed(Failure { class: FailureClass::Trouble, status: None, retry_after: None, cut })
    }
}

impl Failure {
    /// Whether what was sent may be the cause: the server has failed at it, and does not ask for patience. Where no answer came the
    /// cause may be anything on the way there, and the next message be the first one after it: unless the server has hung up on this
    /// one, and its host has answered others since the attempt before.
    pub(super) fn may_be_the_messages(&self, others_were_answered: bool) -> bool {
        match self.status {
            Some(status) => self.class == FailureClass::Trouble && status >= 500,
            None => self.cut && others_were_answered,
        }
    }
}

impl RetryPolicy {
    /// What follows the last failure of a streak.
    pub(super) fn decide(&self, failure: &Failure, streak: &FailureStreak) -> Decision {
        let delays = match failure.class {
            FailureClass::Gone if streak.was_gone => return Decision::End,
            FailureClass::Gone => return Decision::Retry(self.gone_confirm_after),
            FailureClass::Refused => &self.refused,
            FailureClass::Trouble | FailureClass::NotFailed | FailureClass::Unsent => &self.trouble,
        };
        let floor = if streak.failing_for >= DORMANT_AFTER { DORMANT_PAUSE } else { Duration::ZERO };
        let pauses = usize::from(streak.failures).min(delays.len());
        match delays
            .get(pauses.saturating_sub(1))
            .filter(|_| usize::from(streak.of_notification) <= delays.len())
        {
            Some(delay) => {
                let hint = failure.retry_after.unwrap_or_default().min(LONGEST_PAUSE);
                Decision::Retry(jittered(*delay).max(hint).max(floor))
            }
            None => Decision::Skip(floor),
        }
    }
}

/// How long a subscription pauses that was rate-limited so many times in a row, this time for at least `wait`. Nothing was sent, so
/// nothing has failed and nothing is given up.
pub(super) fn rate_limited(times: u16, wait: Duration) -> Duration {
    let pause = doubled(RATE_LIMITED, u32::from(times.saturating_sub(1)), RATE_LIMITED_MOST);
    pause.max(wait.min(LONGEST_WAIT)).mul_f64(1.0 + JITTER * fastrand::f64())
}

/// How long a subscription pauses during re-verification, so many times in a row. Mostly it does not wait as long, since the answer
/// wakes it; where very many wait for re-verification, they must not all come at once.
pub(super) fn reverifying(times: u16) -> Duration {
    let pause = doubled(REVERIFYING, u32::from(times.saturating_sub(1)), REVERIFYING_MOST);
    pause.mul_f64(1.0 + JITTER * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn policy() -> RetryPolicy {
        RetryPolicy {
            trouble: vec![MINUTE, 2 * MINUTE, 8 * MINUTE],
            refused: vec![MINUTE],
            gone_confirm_after: MINUTE,
        }
    }

    /// So many failures of one notification.
    fn streak(failures: u16) -> FailureStreak {
        FailureStreak { failures, of_notification: failures, was_gone: false, failing_for: Duration::ZERO }
    }

    fn failure(status: u16) -> Failure {
        match DeliveryOutcome::of_status(StatusCode::from_u16(status).unwrap(), None) {
            DeliveryOutcome::Failed(failure) => failure,
            DeliveryOutcome::Delivered => panic!("{status} is a success"),
        }
    }

    #[test]
    fn metrics_call_each_reason_to_give_up_by_its_name() {
        assert_eq!(GivenUp::ALL.map(GivenUp::name), ["refused", "failed", "message", "operator"]);
    }

    #[test]
    fn w149_every_2xx_is_a_success() {
        for status in [200, 202, 204, 299] {
            assert_eq!(
                DeliveryOutcome::of_status(StatusCode::from_u16(status).unwrap(), None),
                DeliveryOutcome::Delivered
            );
        }
    }

    #[test]
    fn w152_redirects_and_refusals_are_failures_of_the_short_schedule() {
        for status in [301, 307, 400, 401, 403, 404, 422, 451] {
            assert_eq!(failure(status).class, FailureClass::Refused, "{status}");
        }
    }

    #[test]
    fn trouble_of_the_host_gets_the_long_schedule() {
        for status in [408, 425, 429, 500, 502, 503, 504, 599] {
            assert_eq!(failure(status).class, FailureClass::Trouble, "{status}");
        }
    }

    #[test]
    fn a_message_is_suspected_where_the_server_fails_at_it_or_hangs_up_on_it_alone() {
        let unanswered = |outcome| match outcome {
            DeliveryOutcome::Failed(failure) => failure,
            DeliveryOutcome::Delivered => panic!("it is a success"),
        };
        for (failure, alone, beside_others) in [
            (failure(500), true, true),
            (failure(429), false, false),
            (failure(404), false, false),
            (unanswered(DeliveryOutcome::unreachable()), false, false),
            (unanswered(DeliveryOutcome::cut()), false, true),
        ] {
            let suspected = [false, true].map(|others| failure.may_be_the_messages(others));
            assert_eq!(suspected, [alone, beside_others], "{failure:?}");
        }
    }

    #[test]
    fn delays_follow_the_schedule_within_the_jitter_and_end_in_a_skip() {
        for (attempt, expected) in [(1, MINUTE), (2, 2 * MINUTE), (3, 8 * MINUTE)] {
            let Decision::Retry(delay) = policy().decide(&failure(503), &streak(attempt)) else {
                panic!("attempt {attempt} must be repeated");
            };
            assert!(delay >= expected.mul_f64(0.8) && delay <= expected.mul_f64(1.2), "{attempt}: {delay:?}");
        }
        assert_eq!(policy().decide(&failure(503), &streak(4)), Decision::Skip(Duration::ZERO));
        assert_eq!(policy().decide(&failure(404), &streak(2)), Decision::Skip(Duration::ZERO));
    }

    #[test]
    fn a_retry_after_only_ever_postpones_and_by_an_hour_at_most() {
        let hinted = |hint| Failure { retry_after: Some(hint), ..failure(429) };
        let decide = |hint| policy().decide(&hinted(hint), &streak(1));
        assert_eq!(decide(30 * MINUTE), Decision::Retry(30 * MINUTE));
        for long in [Duration::from_secs(1_000_000), Duration::MAX] {
            assert_eq!(decide(long), Decision::Retry(60 * MINUTE), "{long:?}");
        }
        let Decision::Retry(delay) = decide(Duration::ZERO) else { panic!("must be repeated") };
        assert!(delay >= MINUTE.mul_f64(0.8));
    }

    #[test]
    fn what_is_rate_limited_pauses_as_long_as_it_must_and_longer_each_time() {
        let within = |times, wait, least: u64| {
            let (pause, least) = (rate_limited(times, wait), Duration::from_secs(least));
            assert!(pause >= least && pause <= least.mul_f64(1.2), "{times}, {wait:?}: {pause:?}");
        };
        for (times, least) in [(1, 10), (2, 20), (6, 320), (7, 600), (u16::MAX, 600)] {
            within(times, Duration::ZERO, least);
        }
        within(1, MINUTE, 60);
        within(1, 600 * MINUTE, 3_600);
    }

    #[test]
    fn what_waits_for_re_verification_comes_again_soon_however_often() {
        for (times, least) in [(1, 5), (2, 10), (3, 20), (u16::MAX, 20)] {
            let (pause, least) = (reverifying(times), Duration::from_secs(least));
            assert!(pause >= least && pause <= least.mul_f64(1.2), "{times}: {pause:?}");
        }
    }

    #[test]
    fn w151_a_410_is_confirmed_once_before_the_subscription_ends() {
        assert_eq!(policy().decide(&failure(410), &streak(1)), Decision::Retry(MINUTE));
        assert_eq!(
            policy().decide(&failure(410), &FailureStreak { was_gone: true, ..streak(2) }),
            Decision::End
        );
    }

    #[test]
    fn a_newer_version_is_tried_as_often_as_any_other_and_no_sooner() {
        let newer = FailureStreak { of_notification: 1, ..streak(9) };
        let Decision::Retry(delay) = policy().decide(&failure(503), &newer) else { panic!("its first try") };
        assert!(delay >= (8 * MINUTE).mul_f64(0.8), "{delay:?}");
        let last = FailureStreak { of_notification: 4, ..newer };
        assert_eq!(policy().decide(&failure(503), &last), Decision::Skip(Duration::ZERO));
    }

    #[test]
    fn after_a_day_of_nothing_but_failures_attempts_are_at_most_hourly() {
        let day =
            |failures| FailureStreak { failing_for: Duration::from_secs(25 * 3_600), ..streak(failures) };
        assert_eq!(policy().decide(&failure(503), &day(1)), Decision::Retry(DORMANT_PAUSE));
        assert_eq!(policy().decide(&failure(503), &day(4)), Decision::Skip(DORMANT_PAUSE));
    }
}
