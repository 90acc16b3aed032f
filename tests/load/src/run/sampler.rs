//! Second by second: what was published and delivered, and what the hub and the tool took for it.

use std::time::Instant;

use super::hub::Body;
use super::publishing::Publishers;
use super::world::World;
use crate::measure::{Live, Meter, Second, Usage, files_below, pid_of_self};

/// Looks at both processes, and shows what it sees.
#[derive(Debug)]
pub(super) struct Sampler<'l> {
    body: Body,
    live: &'l mut Live,
    began: Instant,
    hub: Meter,
    own: Meter,
    /// At the beginning.
    first: (Usage, Usage),
    /// At the last second.
    last: (Instant, Usage, Usage, u64, u64),
    memory_most: u64,
    series: Vec<Second>,
}

/// What was taken from the beginning to the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) seconds: f64,
    /// Nothing is known of a hub elsewhere.
    pub(super) hub: Option<Usage>,
    pub(super) own: Usage,
    pub(super) memory_most: u64,
    pub(super) store: u64,
}

impl<'l> Sampler<'l> {
    pub(super) fn new(body: Body, live: &'l mut Live) -> Self {
        let now = Instant::now();
        Self {
            body,
            live,
            began: now,
            hub: Meter::default(),
            own: Meter::default(),
            first: (Usage::default(), Usage::default()),
            last: (now, Usage::default(), Usage::default(), 0, 0),
            memory_most: 0,
            series: Vec::new(),
        }
    }

    /// What the hub has taken so far.
    pub(super) fn hub(&mut self) -> Usage {
        self.hub.read(self.body.pid())
    }

    /// The run begins now.
    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
        self.first = (self.hub(), self.own.read(pid_of_self()));
        self.last = (self.began, self.first.0, self.first.1, 0, 0);
    }

    pub(super) fn say(&mut self, what: &str) {
        self.live.say(what);
    }

    /// A second is over, or what is left of the last one.
    pub(super) fn tick(&mut self, world: &World, publishers: &Publishers) {
        let now = Instant::now();
        let (hub, own) = (self.hub(), self.own.read(pid_of_self()));
        let (accepted, acknowledged) = (world.accepted(), publishers.acknowledged());
        let (before, hub_before, own_before, accepted_before, acknowledged_before) = self.last;
        let seconds = now.duration_since(before).as_secs_f64().max(0.001);
        let (published, delivered) = (publishers.latency.second(), world.well.second());
        world.sick.second();
        publishers.lateness.second();
        self.memory_most = self.memory_most.max(hub.memory);
        let (hub_store, hub_files) = self.store();
        self.series.push(Second {
            at: now.duration_since(self.began).as_secs_f64(),
            acknowledged: acknowledged - acknowledged_before,
            deliveries: accepted - accepted_before,
            publish_p50: published.p50,
            publish_p99: published.p99,
            delivery_p50: delivered.p50,
            delivery_p99: delivered.p99,
            delivery_max: delivered.max,
            hub_cpu: (hub.cpu - hub_before.cpu) / seconds,
            store_cpu: (hub.store_cpu - hub_before.store_cpu) / seconds,
            hub_memory: hub.memory,
            hub_store,
            hub_files,
            hub_written: hub.written - hub_before.written,
            tool_cpu: (own.cpu - own_before.cpu) / seconds,
        });
        self.last = (now, hub, own, accepted, acknowledged);
        self.live.second(&self.series, &self.body.doing());
    }

    /// Up to the last second.
    pub(super) fn taken(&mut self) -> Taken {
        let (at, hub, own, ..) = self.last;
        let since = |now: Usage, then: Usage| Usage {
            cpu: now.cpu - then.cpu,
            store_cpu: now.store_cpu - then.store_cpu,
            memory: now.memory,
            written: now.written - then.written,
        };
        Taken {
            seconds: at.duration_since(self.began).as_secs_f64(),
            hub: (self.memory_most > 0).then(|| since(hub, self.first.0)),
            own: since(own, self.first.1),
            memory_most: self.memory_most,
            store: self.store().0,
        }
    }

    pub(super) fn finish(self) -> Vec<Second> {
        self.series
    }

    /// Bytes and files.
    fn store(&self) -> (u64, u64) {
        self.body.data().map_or((0, 0), |data| files_below(&data))
    }
}
