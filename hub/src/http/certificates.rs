//! A metric: when the listeners' certificates expire.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::tls::Tls;
use crate::meters::Meters;

/// The certificates of the listeners that speak TLS, by the names of these listeners.
#[derive(Clone, Debug)]
pub struct Certificates(Vec<(&'static str, Tls)>);

impl Certificates {
    /// Those of these listeners.
    pub fn of(listeners: &[(&'static str, Option<&Tls>)]) -> Self {
        let certificate = |(name, tls): &(&'static str, Option<&Tls>)| Some((*name, tls.cloned()?));
        Self(listeners.iter().filter_map(certificate).collect())
    }
}

impl Meters for Certificates {
    /// Without TLS there is no such series.
    fn register(&self, registry: &mut Registry) {
        if !self.0.is_empty() {
            registry.register_collector(Box::new(self.clone()));
        }
    }
}

impl Collector for Certificates {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let help = "When the certificate in use by a listener expires, in Unix time";
        let mut family =
            encoder.encode_descriptor("certificate_not_after_seconds", help, None, MetricType::Gauge)?;
        for (name, tls) in &self.0 {
            if let Some(ends) = tls.ends() {
                // Seconds of a year with four digits stay far below 2^53.
                #[allow(clippy::cast_precision_loss, reason = "said above")]
                let gauge = ConstGauge::new(ends.as_secs() as f64);
                gauge.encode(family.encode_family(&[("listener", *name)])?)?;
            }
        }
        Ok(())
    }
}
