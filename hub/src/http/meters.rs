//! Metrics of publishers' requests.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::meters::{CounterFamily, request_times};

/// The metrics of the publishers' half of the endpoint.
#[derive(Clone, Debug)]
pub struct PublishMeters {
    posts: CounterFamily<Ending>,
    pings: CounterFamily<Ending>,
    bytes: Counter,
    seconds: Histogram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Accepted,
    Refused,
    TooMany,
    Unavailable,
}

impl Default for PublishMeters {
    fn default() -> Self {
        let endings = [
            (Ending::Accepted, "accepted"),
            (Ending::Refused, "refused"),
            (Ending::TooMany, "too_many"),
            (Ending::Unavailable, "unavailable"),
        ];
        let kinds = || CounterFamily::new("result", &endings);
        Self { posts: kinds(), pings: kinds(), bytes: Counter::default(), seconds: request_times() }
    }
}

impl PublishMeters {
    /// Counts an answer to a post.
    pub(super) fn post(&self, status: StatusCode) {
        self.posts.count(Ending::of(status));
    }

    /// How many posts and pings were accepted.
    pub fn accepted(&self) -> impl Iterator<Item = Counter> {
        [&self.posts, &self.pings]
            .into_iter()
            .filter_map(|kinds| kinds.each().next())
            .map(|(_, counter)| counter.clone())
    }

    /// Counts an answer to a ping.
    pub(super) fn ping(&self, status: StatusCode) {
        self.pings.count(Ending::of(status));
    }

    /// Content of so many bytes became durable in so long.
    pub(super) fn stored(&self, bytes: usize, took: Duration) {
        self.bytes.inc_by(bytes as u64);
        self.seconds.observe(took.as_secs_f64());
    }
}

impl crate::meters::Meters for PublishMeters {
    fn register(&self, registry: &mut Registry) {
        self.posts.register(registry, "publish", "Posted notifications, by the hub's answer");
        self.pings.register(registry, "pings", "Pings, by the hub's answer");
        registry.register("publish_bytes", "Bytes of accepted content", self.bytes.clone());
        let help = "Time from the last byte of content until it is durable and acknowledged";
        registry.register("publish_duration_seconds", help, self.seconds.clone());
    }
}

impl Ending {
    fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::TOO_MANY_REQUESTS => Self::TooMany,
            status if status.is_success() => Self::Accepted,
            status if status.is_server_error() => Self::Unavailable,
            _ => Self::Refused,
        }
    }
}
