//! The thread of one worker, with its own runtime and connections.

use std::sync::Arc;

use tokio::runtime;

use super::counters::Counters;
use super::large_bodies::LargeBodies;
use super::operator::Operator;
use super::send::{Observers, Sender};
use super::settings::Settings;
use super::worker::{Inputs, Worker};
use super::workers::Workers;
use crate::egress::{EgressClient, Guard};
use crate::store::Store;

/// What a worker's thread needs to begin.
pub(crate) struct WorkerThread {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) guard: Guard,
    pub(crate) settings: Settings,
    pub(crate) counters: Arc<Counters>,
    pub(crate) observers: Observers,
    pub(crate) workers: Workers,
    pub(crate) large: LargeBodies,
    pub(crate) max_in_flight: usize,
    pub(crate) max_connections: usize,
    pub(crate) inputs: Inputs,
}

impl WorkerThread {
    /// Delivers until it shall stop.
    pub(crate) fn run(self) {
        let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(%error, "no runtime for delivery"),
        };
        runtime.block_on(async {
            let Settings { connect_timeout, timeout, per_host, signature, entry_diff, confirmed, .. } =
                self.settings;
            let client = EgressClient::new(self.guard.clone(), connect_timeout, timeout, per_host)
                .limiting_unconfirmed(confirmed.clone())
                .with_connections(self.max_connections);
            let sender = Sender::new(
                Arc::clone(&self.store),
                client,
                signature,
                entry_diff,
                self.observers,
                Operator::new(self.workers.clone()),
                self.large,
            );
            let worker =
                Worker::new(self.store, sender, confirmed, self.counters, self.max_in_flight, self.workers);
            worker.run(self.inputs, timeout).await;
        });
    }
}
