//! A rate limit for connections to one network, whoever causes them (B-33). Names cost nothing and can change their addresses, so
//! the victim's address counts.

use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::config::Rate;
use crate::live_hubs::LiveHubs;
use crate::rate_limiter::RateLimiter;

/// Connections to one network for strangers. The limits per client are lower, so that no client uses this up alone.
const STRANGERS: Rate = Rate { per_second: 10.0, burst: 200 };
/// Connections to one network for trusted clients.
const TRUSTED: Rate = Rate { per_second: 50.0, burst: 1_000 };

/// The rate limit of each network. Clones share it.
#[derive(Clone, Debug)]
pub struct NetworkLimit(RateLimiter);

impl NetworkLimit {
    /// For strangers; with `enabled` false there is no limit.
    pub fn for_strangers(enabled: bool) -> Self {
        Self(RateLimiter::new(enabled, STRANGERS))
    }

    /// For trusted clients; with `enabled` false there is no limit.
    pub fn for_trusted(enabled: bool) -> Self {
        Self(RateLimiter::new(enabled, TRUSTED))
    }

    /// From now on these hubs have the rate together.
    #[must_use]
    pub fn divided_among(self, hubs: &LiveHubs) -> Self {
        Self(self.0.divided_among(hubs))
    }

    /// Counts a connection.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn admit(&self, network: IpNet) -> Result<(), Duration> {
        self.0.admit(network, Instant::now())
    }

    /// With a rate of its own.
    #[cfg(test)]
    pub(crate) fn with(rate: Rate) -> Self {
        Self(RateLimiter::new(true, rate))
    }
}
