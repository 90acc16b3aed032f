//! Metrics of attempts and re-verifications.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::egress::{Answer, EgressError, Reverified};
use crate::meters::{CounterFamily, request_times};

/// How many outcomes of attempts there are; the first one is success.
pub const OUTCOMES: usize = 12;

/// The meters of delivery.
#[derive(Clone, Debug)]
pub struct Meters {
    outcomes: CounterFamily<OutcomeKind>,
    reverifications: CounterFamily<ReverificationKind>,
    seconds: Histogram,
    lags: Family<[(&'static str, &'static str); 1], Histogram>,
    first_attempt: Histogram,
    success: Histogram,
    /// What `success` adds up to, in microseconds: a histogram cannot be read.
    lag: Counter,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutcomeKind {
    Acknowledged,
    Redirected,
    Gone,
    TooMany,
    Refused,
    Broken,
    TimedOut,
    NoName,
    Forbidden,
    Unconnected,
    NotSent,
    Unconfirmed,
}

/// How a re-verification ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReverificationKind {
    Confirmed,
    Refused,
    Unreachable,
}

impl Default for Meters {
    fn default() -> Self {
        let results = [
            (ReverificationKind::Confirmed, "confirmed"),
            (ReverificationKind::Refused, "refused"),
            (ReverificationKind::Unreachable, "unreachable"),
        ];
        let lags = Family::<_, Histogram>::new_with_constructor(lag_times);
        Self {
            outcomes: CounterFamily::new("outcome", &OutcomeKind::ALL),
            reverifications: CounterFamily::new("result", &results),
            seconds: request_times(),
            first_attempt: lags.get_or_create_owned(&[("until", "first_attempt")]),
            success: lags.get_or_create_owned(&[("until", "success")]),
            lags,
            lag: Counter::default(),
        }
    }
}

impl Meters {
    /// An attempt that took so long, for a notification of this age. The first has number 1.
    pub(super) fn attempted(
        &self,
        answer: &Result<Answer, EgressError>,
        took: Duration,
        age: Duration,
        number: u16,
    ) {
        let kind = OutcomeKind::of(answer);
        self.outcomes.count(kind);
        if kind == OutcomeKind::Unconfirmed {
            return;
        }
        self.seconds.observe(took.as_secs_f64());
        if number <= 1 {
            self.first_attempt.observe(age.saturating_sub(took).as_secs_f64());
        }
        if kind == OutcomeKind::Acknowledged {
            self.success.observe(age.as_secs_f64());
            self.lag.inc_by(u64::try_from(age.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// An unconfirmed address was re-verified.
    pub(super) fn reverified(&self, reverified: Reverified) {
        let result = match reverified {
            Reverified::Confirmed(_) => ReverificationKind::Confirmed,
            Reverified::Refused => ReverificationKind::Refused,
            Reverified::Unreachable => ReverificationKind::Unreachable,
            Reverified::NotSent => return,
        };
        self.reverifications.count(result);
    }

    /// How many attempts ended how, success first.
    pub fn outcomes(&self) -> [(&'static str, u64); OUTCOMES] {
        let mut each = self.outcomes.each().map(|(name, counter)| (name, counter.get()));
        std::array::from_fn(|_| each.next().unwrap_or_default())
    }

    /// What the time from acknowledgement to success adds up to.
    pub fn lag(&self) -> Duration {
        Duration::from_micros(self.lag.get())
    }
}

impl crate::meters::Meters for Meters {
    fn register(&self, registry: &mut Registry) {
        self.outcomes.register(registry, "deliveries", "Attempts to deliver, by how they ended");
        let help = "Re-verifications of unconfirmed addresses, by result";
        self.reverifications.register(registry, "reverifications", help);
        let help = "Time from the beginning of an attempt to the end of its answer";
        registry.register("delivery_duration_seconds", help, self.seconds.clone());
        let help = "Time from the acknowledgement of a notification to its first attempt, or its success, for a subscription; what is repeated or replayed counts with its whole age";
        registry.register("delivery_lag_seconds", help, self.lags.clone());
    }
}

/// What metrics and traces call the end of an attempt.
pub(super) fn outcome(answer: &Result<Answer, EgressError>) -> &'static str {
    OutcomeKind::of(answer).name()
}

impl OutcomeKind {
    const ALL: [(Self, &'static str); OUTCOMES] = [
        (Self::Acknowledged, "2xx"),
        (Self::Redirected, "3xx"),
        (Self::Gone, "410"),
        (Self::TooMany, "429"),
        (Self::Refused, "4xx"),
        (Self::Broken, "5xx"),
        (Self::TimedOut, "timeout"),
        (Self::NoName, "dns"),
        (Self::Forbidden, "blocked_ip"),
        (Self::Unconnected, "connection"),
        (Self::NotSent, "not_sent"),
        (Self::Unconfirmed, "unconfirmed_address"),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn of(answer: &Result<Answer, EgressError>) -> Self {
        match answer {
            Ok(answer) => match answer.status {
                StatusCode::GONE => Self::Gone,
                StatusCode::TOO_MANY_REQUESTS => Self::TooMany,
                status if status.is_success() => Self::Acknowledged,
                status if status.is_redirection() => Self::Redirected,
                status if status.is_client_error() => Self::Refused,
                _ => Self::Broken,
            },
            Err(EgressError::Timeout(_)) => Self::TimedOut,
            Err(EgressError::Dns(_)) => Self::NoName,
            Err(EgressError::Forbidden(_)) => Self::Forbidden,
            Err(EgressError::NoFileDescriptors) => Self::NotSent,
            Err(EgressError::Unconfirmed(_)) => Self::Unconfirmed,
            Err(_) => Self::Unconnected,
        }
    }
}

/// From what a quiet hub takes to what retention allows.
fn lag_times() -> Histogram {
    Histogram::new([
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 3_600.0,
        21_600.0, 86_400.0, 259_200.0,
    ])
}
