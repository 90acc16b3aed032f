//! The hub's metrics in the text format of `OpenMetrics`, which Prometheus reads.
//!
//! Each module has its own metrics. Strangers choose no label values, so the number of series is fixed. All series exist from the start,
//! so that no rate begins with a gap.

mod hub_state;
mod process;

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use self::hub_state::HubState;
use self::process::Process;
use crate::meters::Meters;

/// The media type of what [`Metrics::write`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The prefix of all metrics except those of the process.
const PREFIX: &str = "websub";

/// All metrics. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Registry>);

impl Metrics {
    /// The metrics of these modules, of the hub's state, and of the process.
    pub fn new(hub_state: HubState, modules: &[&dyn Meters]) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process::begin()));
        let own = registry.sub_registry_with_prefix(PREFIX);
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        own.register("hub", "The hub that answers", version);
        for module in modules {
            module.register(own);
        }
        own.register_collector(Box::new(hub_state));
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
