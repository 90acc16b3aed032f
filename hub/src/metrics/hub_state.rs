//! Metrics of the store, its disk and delivery, read when they are scraped.
//!
//! Hubs that share a store add up: each has the subscriptions of its shards, and one of them what the store holds.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use resync_common::space::Space;

use super::{count, write, write_kinds};
use crate::admin::{Drain, unready};
use crate::delivery::Counters;
use crate::store::{Store, StoreError, Usage};

/// Where these metrics are read.
#[derive(Debug)]
pub struct HubState {
    /// The store.
    pub store: Arc<dyn Store>,
    /// What delivery counts.
    pub counters: Arc<Counters>,
    /// Whether the hub is drained.
    pub drain: Drain,
    /// The folder whose disk is measured.
    pub data_dir: PathBuf,
}

impl HubState {
    /// What a hub shares with others of its store, and whether their database can be used.
    fn of_several_hubs(&self) -> [(&'static str, &'static str, f64); 5] {
        let away = self.store.away_for().unwrap_or_default();
        let is_lax = matches!(self.store.health(), Err(StoreError::NotDurable(_)));
        [
            ("hubs", "Hubs of this store that are up", count(self.counters.hubs() as u64)),
            ("shards", "Shards of this store, over all its hubs", f64::from(self.store.shards())),
            ("shards_owned", "Shards that this hub delivers for", count(self.counters.here().len() as u64)),
            (
                "database_away_seconds",
                "For how long the database cannot be used; 0 while it can be, or without one",
                away.as_secs_f64(),
            ),
            (
                "database_durable",
                "0 while the database does not keep what it acknowledges: then the hub accepts nothing",
                f64::from(u8::from(!is_lax)),
            ),
        ]
    }
}

impl Collector for HubState {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let totals = self.counters.totals();
        let usage = if self.counters.keeps_house() { self.store.usage() } else { Usage::default() };
        let now = self.store.now().to_system_time();
        let oldest = usage.oldest.and_then(|oldest| now.duration_since(oldest.to_system_time()).ok());
        let gauges = [
            (
                "ready",
                "1 while the hub is ready, 0 while it is drained or its store does not work; a database may be away for 30 seconds",
                f64::from(u8::from(unready(&*self.store, &self.drain).is_none())),
            ),
            (
                "topics",
                "Topics that were ever published or subscribed to; of hubs on one database, one counts them and the others say 0",
                count(usage.topics as u64),
            ),
            (
                "subscriptions",
                "Subscriptions in force that this hub delivers to",
                count(self.counters.subscriptions() as u64),
            ),
            (
                "log_bytes",
                "Bytes of the notifications in the logs: body, links, content type, record; of hubs on one database, one counts them and the others say 0",
                count(usage.log_bytes),
            ),
            (
                "log_oldest_seconds",
                "Age of the oldest notification in the logs; of hubs on one database, one knows it and the others say 0",
                oldest.unwrap_or_default().as_secs_f64(),
            ),
            ("hosts", "Callback origins of the subscriptions", count(self.counters.hosts() as u64)),
            ("laggards", "Laggards: subscriptions behind the watermark", count(totals.laggards as u64)),
            (
                "past_due_subscriptions",
                "Subscriptions that could have been served for more than a minute and were not; those in backoff or behind an open circuit breaker are not counted",
                count(totals.past_due as u64),
            ),
            (
                "hosts_open_breakers",
                "Callback origins with an open circuit breaker",
                count(totals.open_breakers as u64),
            ),
            (
                "checkpoint_age_seconds",
                "Age of the last save of delivery progress; a crash repeats what came since and at most two seconds before",
                self.counters.checkpoint_age(Instant::now()).as_secs_f64(),
            ),
        ];
        for (name, help, value) in gauges.into_iter().chain(self.of_several_hubs()) {
            write(&mut encoder, (name, help), &ConstGauge::new(value))?;
        }
        let help = "Shards that this hub took over, those of its start included";
        write(&mut encoder, ("shards_taken", help), &ConstCounter::new(self.counters.shards_taken()))?;
        let shares = [
            ("publishers", usage.log_bytes.saturating_sub(usage.strangers_bytes)),
            ("others", usage.strangers_bytes),
        ];
        let shares = shares.map(|(share, bytes)| (share, ConstGauge::new(count(bytes))));
        let help = "Bytes of the logs: of topics with a publisher's token, and of all others; of hubs on one database, one counts them and the others say 0";
        write_kinds(&mut encoder, ("log_share_bytes", help), "share", &shares)?;
        // If the system does not say, there is no such series.
        if let Ok(disk) = Space::of(&self.data_dir) {
            let help = "Free bytes on the disk of data_dir, for the hub's user";
            write(&mut encoder, ("disk_free_bytes", help), &ConstGauge::new(count(disk.free)))?;
            let help = "Size of the disk of data_dir in bytes";
            write(&mut encoder, ("disk_size_bytes", help), &ConstGauge::new(count(disk.size)))?;
        }
        let in_flight = self.counters.in_flight();
        let in_flight = in_flight.map(|(lane, number)| (lane, ConstGauge::new(count(number as u64))));
        write_kinds(&mut encoder, ("inflight", "Deliveries under way"), "lane", &in_flight)?;
        let help = "Notifications given up, counted per subscription";
        let given_up = self.counters.given_up().map(|(why, number)| (why, ConstCounter::new(number)));
        write_kinds(&mut encoder, ("given_up", help), "reason", &given_up)?;
        let help =
            "Notifications that retention removed before they were delivered, counted per subscription";
        write(&mut encoder, ("lost_to_retention", help), &ConstCounter::new(totals.lost_to_retention))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::store::{self, Shard, in_memory};

    #[tokio::test]
    async fn what_the_store_holds_is_said_by_one_of_its_hubs_so_that_a_sum_over_them_is_right() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _memory) = in_memory();
        let posted = store::posted(&"https://source.example/t".parse().unwrap(), "changed");
        store.append(posted, std::time::Duration::ZERO).await.unwrap();
        let counters = Arc::new(Counters::new(store.shards()));
        let (drain, data_dir) = (Drain::of(folder.path()), folder.path().to_owned());
        let state = HubState { store, counters: Arc::clone(&counters), drain, data_dir };
        let metrics = Metrics::new(state, &[]);
        let says_topics = || {
            let text = metrics.write().unwrap();
            let value = text.lines().find_map(|line| line.strip_prefix("websub_topics ")).unwrap();
            value.parse::<f64>().unwrap() > 0.5
        };
        assert!(!says_topics(), "another hub owns the first shard");
        counters.set_saved(Shard::FIRST, Instant::now());
        assert!(says_topics());
    }

    /// What the hub with this store says of itself.
    fn is_ready(store: &Arc<dyn Store>, drain: &Drain) -> bool {
        let state = HubState {
            store: Arc::clone(store),
            counters: Arc::new(Counters::new(store.shards())),
            drain: drain.clone(),
            data_dir: PathBuf::from("."),
        };
        let text = Metrics::new(state, &[]).write().unwrap();
        let ready = text.lines().find_map(|line| line.strip_prefix("websub_ready "));
        assert_eq!(ready == Some("1.0"), unready(&**store, drain).is_none(), "as /readyz: {text}");
        ready == Some("1.0")
    }

    #[tokio::test]
    async fn a_hub_whose_disk_is_full_is_not_ready_at_once() {
        let (folder, (store, memory)) = (tempfile::tempdir().unwrap(), in_memory());
        let drain = Drain::of(folder.path());
        assert!(is_ready(&store, &drain));
        memory.set_full(true);
        let url = "https://source.example/t".parse().unwrap();
        store.put_ping(url, None, store::PingClient::default()).await.unwrap_err();
        assert!(!is_ready(&store, &drain));
    }

    #[cfg(feature = "postgres")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hub_whose_database_is_away_for_a_moment_stays_ready() {
        let Some(database) = crate::store::SharedDatabase::new() else { return };
        let (folder, store) = (tempfile::tempdir().unwrap(), database.hub("one").await);
        let drain = Drain::of(folder.path());
        assert!(is_ready(&store, &drain));
        database.sql("DROP FUNCTION hub.beat_3");
        resync_harness::eventually("the database is missed", async || store.health().is_err()).await;
        assert!(is_ready(&store, &drain));
    }
}
