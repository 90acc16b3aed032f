//! How deliveries are made.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Prefixes, SignatureConfig};
use crate::delivery::scheduler::{BreakerPolicy, RetryPolicy};
use crate::egress::ConfirmedAddresses;
use crate::live_hubs::LiveHubs;
use crate::telemetry::Tracer;

/// How deliveries are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When to repeat and when to give up.
    pub retry: RetryPolicy,
    /// When the circuit breaker of a host opens.
    pub breaker: BreakerPolicy,
    /// For a connection.
    pub connect_timeout: Duration,
    /// For a whole request.
    pub timeout: Duration,
    /// Requests at once at most, over all workers.
    pub max_in_flight: usize,
    /// Requests at once to one origin.
    pub per_host: usize,
    /// Connections that stand at once, over all workers, where not more than these are in use.
    pub max_connections: usize,
    /// At which addresses callbacks confirmed, and what may be sent to others.
    pub confirmed: ConfirmedAddresses,
    /// The methods of signatures.
    pub signature: Arc<SignatureConfig>,
    /// Topics whose feeds are sent without entries that the subscriber has got already.
    pub entry_diff: Prefixes,
    /// The hubs of the store, as their heartbeats say.
    pub hubs: LiveHubs,
    /// What begins the spans of attempts.
    pub tracer: Tracer,
}
