//! Metrics of spans.

use prometheus_client::registry::Registry;

use crate::meters::{CounterFamily, Meters};

/// The metrics of traces; without a collector they stay zero.
#[derive(Clone, Debug)]
pub struct TraceMeters(CounterFamily<SpanResult>);

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanResult {
    /// The collector accepted it.
    Exported,
    /// The queue was full.
    Dropped,
    /// The collector could not be reached, or did not accept it.
    Failed,
}

const RESULTS: [(SpanResult, &str); 3] =
    [(SpanResult::Exported, "exported"), (SpanResult::Dropped, "dropped"), (SpanResult::Failed, "failed")];

impl Default for TraceMeters {
    fn default() -> Self {
        Self(CounterFamily::new("result", &RESULTS))
    }
}

impl TraceMeters {
    /// Counts spans.
    pub(super) fn count(&self, fate: SpanResult, spans: usize) {
        self.0.count_many(fate, spans as u64);
    }

    #[cfg(test)]
    pub(super) fn read(&self, fate: SpanResult) -> u64 {
        let mut counters = RESULTS.iter().zip(self.0.each());
        counters.find(|((known, _), _)| *known == fate).map_or(0, |(_, (_, counter))| counter.get())
    }
}

impl Meters for TraceMeters {
    fn register(&self, registry: &mut Registry) {
        self.0.register(registry, "spans", "Spans of traces, by whether the collector got them");
    }
}
