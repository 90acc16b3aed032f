//! How long a subscription lasts: the wish within the operator's bounds, never for ever (W-121, W-124, FN-041).

use std::time::Duration;

use crate::config::LeaseConfig;

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

    /// The lease for a wish in seconds. Without one, the default is shortened by a random share, so that subscriptions made
    /// together are not renewed together.
    pub fn grant(&self, wish: Option<u64>) -> Duration {
        let lease = match wish {
            Some(seconds) => Duration::from_secs(seconds),
            None => self.default.mul_f64(1.0 - self.spread * fastrand::f64()),
        };
        // The subscriber is told whole seconds, so it gets whole seconds.
        Duration::from_secs(lease.clamp(self.min, self.max).as_secs().max(1))
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
    fn w121_a_wish_within_the_bounds_is_granted_as_it_is() {
        assert_eq!(policy().grant(Some(5 * HOUR)), Duration::from_secs(5 * HOUR));
    }

    #[test]
    fn w124_b16_a_wish_beyond_the_bounds_gets_the_bound() {
        assert_eq!(policy().grant(Some(1)), Duration::from_secs(HOUR));
        assert_eq!(policy().grant(Some(99_999_999_999)), Duration::from_secs(720 * HOUR));
        assert_eq!(policy().grant(Some(u64::MAX)), Duration::from_secs(720 * HOUR));
    }

    #[test]
    fn w051_without_a_wish_the_default_is_spread_but_never_exceeded() {
        let leases: Vec<_> = (0..200).map(|_| policy().grant(None).as_secs()).collect();
        assert!(leases.iter().all(|lease| (216 * HOUR..=240 * HOUR).contains(lease)));
        assert!(leases.iter().max() > leases.iter().min());
    }
}
