//! How often the hub is made to connect to one network: names cost nothing, and lead elsewhere tomorrow, so that a victim's
//! address is what counts, whoever asks (B-33).

use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::buckets::Buckets;
use crate::config::Rate;

/// Connections to one network for strangers. One client alone is not let ask as often, so that it cannot use this up.
const STRANGERS: Rate = Rate { per_second: 10.0, burst: 200 };
/// The same for those who have confirmed before. Strangers use up nothing of it.
const KNOWN: Rate = Rate { per_second: 50.0, burst: 1_000 };

/// What all networks together have seen.
#[derive(Clone, Debug)]
pub struct Crowds(Buckets);

impl Crowds {
    /// Those of strangers; with `enabled` false nobody is ever held up.
    pub fn of_strangers(enabled: bool) -> Self {
        Self(Buckets::new(enabled, STRANGERS))
    }

    /// Those of clients that the hub knows.
    pub fn of_known(enabled: bool) -> Self {
        Self(Buckets::new(enabled, KNOWN))
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
    pub(crate) fn with(rate: Rate) -> Self {
        Self(Buckets::new(true, rate))
    }
}
