//! How often strangers make the hub connect to one network: names cost nothing, so that a victim's address is what counts (B-33).

use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::buckets::Buckets;
use crate::config::Rate;

/// Connections to one network. One client alone is not let ask as often, so that it cannot use this up.
const PER_NETWORK: Rate = Rate { per_second: 10.0, burst: 200 };

/// What all networks together have seen.
#[derive(Clone, Debug)]
pub struct Crowds(Buckets);

impl Crowds {
    /// With `enabled` false nobody is ever held up.
    pub fn new(enabled: bool) -> Self {
        Self(Buckets::new(enabled, PER_NETWORK))
    }

    /// Takes a connection into account.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn admit(&self, network: IpNet) -> Result<(), Duration> {
        self.0.admit(network, Instant::now())
    }

    /// With a rate of its own.
    #[cfg(test)]
    pub(super) fn with(rate: Rate) -> Self {
        Self(Buckets::new(true, rate))
    }
}
