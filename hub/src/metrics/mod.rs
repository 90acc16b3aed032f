//! What the hub counts and measures, in the text format of `OpenMetrics`, which Prometheus reads.
//!
//! Every room has its own meters and knows nothing of the others'. No label has values that strangers choose, so that the
//! number of series is fixed when the hub starts; all of them are there from the start, so that no rate begins with a hole.

mod process;
mod standing;

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use self::process::Process;
pub use self::standing::Standing;
use crate::meters::Meters;

/// The media type of what [`Metrics::write`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What begins the name of every metric of the hub's own.
const PREFIX: &str = "websub";

/// All that is measured.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Registry>);

impl Metrics {
    /// What these rooms measure, and how the hub and the process stand at the moment of asking.
    pub fn new(standing: Standing, rooms: &[&dyn Meters]) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process::begin()));
        let own = registry.sub_registry_with_prefix(PREFIX);
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        own.register("hub", "The hub that answers", version);
        for room in rooms {
            room.register(own);
        }
        own.register_collector(Box::new(standing));
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
