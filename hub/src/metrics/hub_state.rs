//! How the store, its disk and delivery stand, read at the moment of asking.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use resync_common::space::Space;

use super::{count, write, write_kinds};
use crate::admin::Drain;
use crate::delivery::Counters;
use crate::store::Admin;

/// What is asked how it stands.
#[derive(Debug)]
pub struct Standing {
    /// The store.
    pub store: Arc<dyn Admin>,
    /// What delivery counts.
    pub counters: Arc<Counters>,
    /// Whether the hub takes anything new.
    pub drain: Drain,
    /// The folder whose disk is looked at.
    pub data_dir: PathBuf,
}

impl Collector for Standing {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let (usage, totals) = (self.store.usage(), self.counters.totals());
        let oldest =
            usage.oldest.and_then(|oldest| SystemTime::now().duration_since(oldest.to_system_time()).ok());
        let gauges = [
            (
                "ready",
                "1 while the hub accepts everything, 0 while it takes nothing or nothing new",
                f64::from(u8::from(self.store.health().is_ok() && !self.drain.is_on())),
            ),
            ("topics", "Topics that anybody ever published to or subscribed to", count(usage.topics as u64)),
            ("subscriptions", "Subscriptions in force", count(self.counters.subscriptions() as u64)),
            (
                "log_bytes",
                "What the notifications in the logs weigh, in bytes: body, links, content type, record",
                count(usage.log_bytes),
            ),
            (
                "log_oldest_seconds",
                "Age of the oldest notification that the logs hold",
                oldest.unwrap_or_default().as_secs_f64(),
            ),
            ("hosts", "Callback origins that the subscriptions have", count(self.counters.hosts() as u64)),
            (
                "laggards",
                "Subscriptions that are behind and have a record of their own",
                count(totals.laggards as u64),
            ),
            (
                "past_due_subscriptions",
                "Subscriptions that could have been served for longer than a minute and were not; what waits for its next attempt, or for a host that is left alone, is not counted",
                count(totals.past_due as u64),
            ),
            (
                "hosts_open_breakers",
                "Callback origins that are left alone for a while because they fail",
                count(totals.open_breakers as u64),
            ),
            (
                "checkpoint_age_seconds",
                "For how long there may have been progress of delivery that is not durable yet: a crash repeats it",
                self.counters.checkpoint_age(Instant::now()).as_secs_f64(),
            ),
        ];
        for (name, help, value) in gauges {
            write(&mut encoder, (name, help), &ConstGauge::new(value))?;
        }
        let shares =
            [("publishers", usage.log_bytes - usage.strangers_bytes), ("strangers", usage.strangers_bytes)];
        let shares = shares.map(|(share, bytes)| (share, ConstGauge::new(count(bytes))));
        let help = "What the logs weigh in bytes, of topics that a publisher speaks for and of all others";
        write_kinds(&mut encoder, ("log_share_bytes", help), "share", &shares)?;
        // Where the system does not say, there is no such series.
        if let Ok(disk) = Space::of(&self.data_dir) {
            let help = "Bytes that are free on the disk of data_dir for the hub's user";
            write(&mut encoder, ("disk_free_bytes", help), &ConstGauge::new(count(disk.free)))?;
            let help = "Bytes that the disk of data_dir has";
            write(&mut encoder, ("disk_size_bytes", help), &ConstGauge::new(count(disk.size)))?;
        }
        let in_flight = self.counters.in_flight();
        let in_flight = in_flight.map(|(lane, number)| (lane, ConstGauge::new(count(number as u64))));
        write_kinds(&mut encoder, ("inflight", "Deliveries under way"), "lane", &in_flight)?;
        let help = "Notifications that were given up for a subscription";
        let given_up = self.counters.given_up().map(|(why, number)| (why, ConstCounter::new(number)));
        write_kinds(&mut encoder, ("given_up", help), "reason", &given_up)?;
        let help = "Notifications that retention removed before a subscription got them";
        write(&mut encoder, ("gap", help), &ConstCounter::new(totals.lost_to_retention))
    }
}
