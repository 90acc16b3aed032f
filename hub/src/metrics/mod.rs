//! What the hub counts and measures, in the text format of `OpenMetrics`, which Prometheus reads.
//!
//! Every room has its own meters and knows nothing of the others'. No label has values that strangers choose, so that the
//! number of series is fixed when the hub starts; all of them are there from the start, so that no rate begins with a hole.

mod process;
mod standing;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use self::process::Process;
use self::standing::Standing;
use crate::delivery::Counters;
use crate::operator::Drain;
use crate::store::Store;

/// The media type of what [`Metrics::write`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What begins the name of every metric of the hub's own.
const PREFIX: &str = "websub";

/// What a room measures.
pub trait Meters {
    /// Names every meter of the room, and says what it means.
    fn register(&self, registry: &mut Registry);
}

/// All that is measured.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Registry>);

impl Metrics {
    /// What these rooms measure, and how the store, its disk, delivery and the process stand at the moment of asking.
    pub fn new(
        store: Arc<dyn Store>,
        standing: (Arc<Counters>, Drain),
        data_dir: &Path,
        rooms: &[&dyn Meters],
    ) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process::begin()));
        let own = registry.sub_registry_with_prefix(PREFIX);
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        own.register("hub", "The hub that answers", version);
        for room in rooms {
            room.register(own);
        }
        own.register_collector(Box::new(Standing::new(store, standing, data_dir.to_owned())));
        Self(Arc::new(registry))
    }

    /// Everything as it is now.
    ///
    /// # Errors
    /// None that a string could cause.
    pub fn write(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0)?;
        Ok(text)
    }
}

/// A counter for each value of a label.
#[derive(Clone, Debug)]
pub struct Kinds<K> {
    family: Family<[(&'static str, &'static str); 1], Counter>,
    each: Arc<[(K, &'static str, Counter)]>,
}

impl<K: Copy + PartialEq> Kinds<K> {
    /// Counters for these kinds, which the label names so.
    pub fn new(label: &'static str, kinds: &[(K, &'static str)]) -> Self {
        let family = Family::<_, Counter>::default();
        let counter =
            |(kind, name): &(K, &'static str)| (*kind, *name, family.get_or_create_owned(&[(label, *name)]));
        let each = kinds.iter().map(counter).collect();
        Self { family, each }
    }

    /// One more of a kind.
    pub fn count(&self, kind: K) {
        self.count_many(kind, 1);
    }

    /// So many more of a kind.
    pub fn count_many(&self, kind: K, number: u64) {
        if let Some((.., counter)) = self.each.iter().find(|(known, ..)| *known == kind) {
            counter.inc_by(number);
        }
    }

    /// Every kind by its name, in the order in which they were given, with its counter.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, &Counter)> {
        self.each.iter().map(|(_, name, counter)| (*name, counter))
    }

    /// Gives the counters a name.
    pub fn register(&self, registry: &mut Registry, name: &str, help: &str) {
        registry.register(name, help, self.family.clone());
    }
}

/// Times from a millisecond to a minute, which is what requests take.
pub fn request_times() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

fn write(
    encoder: &mut DescriptorEncoder,
    (name, help): (&str, &str),
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// A metric of several kinds, which the label names.
fn write_kinds<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder,
    (name, help): (&str, &str),
    label: &str,
    kinds: &[(&'static str, M)],
) -> fmt::Result {
    let Some((_, first)) = kinds.first() else { return Ok(()) };
    let mut family = encoder.encode_descriptor(name, help, None, first.metric_type())?;
    for (kind, metric) in kinds {
        metric.encode(family.encode_family(&[(label, *kind)])?)?;
    }
    Ok(())
}

/// Prometheus knows no integers; what the hub counts stays below 2^53.
#[allow(clippy::cast_precision_loss, reason = "said above")]
fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq)]
    enum Weather {
        Fair,
        Foul,
    }

    #[test]
    fn every_kind_is_there_before_anything_is_counted() {
        let kinds = Kinds::new("weather", &[(Weather::Fair, "fair"), (Weather::Foul, "foul")]);
        let mut registry = Registry::default();
        kinds.register(&mut registry, "days", "Days");
        kinds.count(Weather::Foul);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("days_total{weather=\"fair\"} 0\n"), "{text}");
        assert!(text.contains("days_total{weather=\"foul\"} 1\n"), "{text}");
    }
}
