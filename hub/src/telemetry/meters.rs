//! What becomes of spans, for the operator's graphs.

use prometheus_client::registry::Registry;

use crate::meters::{CounterFamily, Meters};

/// The meters of traces; they stand still where there is no collector.
#[derive(Clone, Debug)]
pub struct TraceMeters(CounterFamily<Fate>);

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The collector has taken it.
    Exported,
    /// There was no room in the queue.
    Dropped,
    /// The collector could not be reached, or did not take it.
    Failed,
}

const FATES: [(Fate, &str); 3] =
    [(Fate::Exported, "exported"), (Fate::Dropped, "dropped"), (Fate::Failed, "failed")];

impl Default for TraceMeters {
    fn default() -> Self {
        Self(CounterFamily::new("result", &FATES))
    }
}

impl TraceMeters {
    /// This has become of so many spans.
    pub(super) fn count(&self, fate: Fate, spans: usize) {
        self.0.count_many(fate, spans as u64);
    }

    #[cfg(test)]
    pub(super) fn read(&self, fate: Fate) -> u64 {
        let mut counters = FATES.iter().zip(self.0.each());
        counters.find(|((known, _), _)| *known == fate).map_or(0, |(_, (_, counter))| counter.get())
    }
}

impl Meters for TraceMeters {
    fn register(&self, registry: &mut Registry) {
        self.0.register(
            registry,
            "spans",
            "Spans of traces, by what became of them on the way to the collector",
        );
    }
}
