//! What a module measures, and how that is registered as metrics.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The metrics of a module.
pub trait Meters {
    /// Registers every metric of the module with its name and help text.
    fn register(&self, registry: &mut Registry);
}

/// A counter for each value of a label.
#[derive(Clone, Debug)]
pub struct CounterFamily<K> {
    family: Family<[(&'static str, &'static str); 1], Counter>,
    each: Arc<[(K, &'static str, Counter)]>,
}

impl<K: Copy + PartialEq> CounterFamily<K> {
    /// A counter for each of these kinds, with the value of the label.
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

    /// Registers the counters under a name.
    pub fn register(&self, registry: &mut Registry, name: &str, help: &str) {
        registry.register(name, help, self.family.clone());
    }
}

/// A histogram for the duration of requests, from a millisecond to a minute.
pub fn request_times() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[derive(Clone, Copy, PartialEq)]
    enum Weather {
        Fair,
        Foul,
    }

    #[test]
    fn every_kind_is_there_before_anything_is_counted() {
        let kinds = CounterFamily::new("weather", &[(Weather::Fair, "fair"), (Weather::Foul, "foul")]);
        let mut registry = Registry::default();
        kinds.register(&mut registry, "days", "Days");
        kinds.count(Weather::Foul);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("days_total{weather=\"fair\"} 0\n"), "{text}");
        assert!(text.contains("days_total{weather=\"foul\"} 1\n"), "{text}");
    }
}
