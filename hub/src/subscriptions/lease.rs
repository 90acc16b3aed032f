//! How long a subscription lasts: the wish within the operator's bounds, never for ever (W-121, W-124, FN-041).

use std::time::Duration;

use crate::config::LeaseConfig;

/// Shorter wishes are granted as they are: so short a lease is renewed all the time anyway.
const SPREAD_FROM: Duration = Duration::from_secs(3_600);

/// The operator's bounds for leases.
#[derive(Clone, Debug)]
pub struct LeasePolicy {
    min: Duration,
    default: Duration,
    max: Duration,
    spread: f64,
}

impl LeasePolicy {
    /// The policy of a configuration, whose check has put the bounds in order.
    pub fn new(config: &LeaseConfig) -> Self {
        Self { min: config.min, default: config.default, max: config.max, spread: config.spread }
    }

    /// The lease for a wish in seconds, or the default: shortened by a random share, so that subscriptions made together are not
    /// renewed together. Whoever wishes for less than an hour gets just that.
    pub fn grant(&self, wish: Option<u64>) -> Duration {
        let lease = wish.map_or(self.default, Duration::from_secs).clamp(self.min, self.max);
        let is_exact = wish.is_some() && lease < SPREAD_FROM;
        let spread = if is_exact { lease } else { lease.mul_f64(1.0 - self.spread * fastrand::f64()) };
        // The subscriber is told whole seconds, so it gets whole seconds.
        Duration::from_secs(spread.max(self.min).as_secs().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600;

    fn policy() -> LeasePolicy {
        let hours = |count| Duration::from_secs(count * HOUR);
        LeasePolicy { min: hours(1), default: hours(240), max: hours(720), spread: 0.1 }
    }

    #[test]
    fn w121_a_short_wish_is_granted_as_it_is() {
        let policy = LeasePolicy { min: Duration::from_secs(1), ..policy() };
        for seconds in [1, 4, 60, HOUR - 1] {
            assert_eq!(policy.grant(Some(seconds)), Duration::from_secs(seconds));
        }
    }

    #[test]
    fn w121_wishes_made_together_are_not_renewed_together() {
        let leases: Vec<_> = (0..200).map(|_| policy().grant(Some(240 * HOUR)).as_secs()).collect();
        assert!(leases.iter().all(|lease| (216 * HOUR..=240 * HOUR).contains(lease)));
        assert!(leases.iter().max() > leases.iter().min());
    }

    #[test]
    fn w124_b16_a_wish_beyond_the_bounds_gets_the_bound() {
        assert_eq!(policy().grant(Some(1)), Duration::from_secs(HOUR));
        for wish in [99_999_999_999, u64::MAX] {
            assert!((648 * HOUR..=720 * HOUR).contains(&policy().grant(Some(wish)).as_secs()));
        }
    }

    #[test]
    fn w051_without_a_wish_the_default_is_spread_but_never_exceeded() {
        let leases: Vec<_> = (0..200).map(|_| policy().grant(None).as_secs()).collect();
        assert!(leases.iter().all(|lease| (216 * HOUR..=240 * HOUR).contains(lease)));
        assert!(leases.iter().max() > leases.iter().min());
    }
}
