//! Draining: the hub accepts nothing new and delivers the rest, before it is stopped or moved. Where others share its store, it hands the rest
//! over to them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use resync_core::durable::sync_folder;

use super::responses::{Draining, Remaining};
use super::{AdminService, By, Failed};
use crate::completion::run_to_completion;
use crate::delivery::Owed;

/// The file that marks a drained hub, in the data folder. With systemd's socket activation a client can start the hub again, which
/// then must not accept what would be left behind when the hub moves.
const MARK: &str = "draining";

/// Whether the hub is drained. A restart does not end it.
#[derive(Clone, Debug)]
pub struct Drain {
    gate: Arc<Gate>,
    folder: PathBuf,
}

#[derive(Debug, Default)]
struct Gate {
    shut: AtomicBool,
    /// Requests that were accepted before and are not stored yet.
    inside: AtomicUsize,
}

/// A request that is being accepted: a drain waits until this is dropped.
#[derive(Debug)]
pub struct Admission(Arc<Gate>);

impl Admission {
    /// Completes this even if the client hangs up, which drops the returned future: what is stored is also handed over, and a drain waits
    /// for both.
    pub async fn complete<T: Send + 'static>(
        self: Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        run_to_completion(async move {
            let done = work.await;
            drop(self);
            done
        })
        .await
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drain {
    /// Why nothing new is accepted.
    pub const REASON: &str = "draining";

    /// The state in this data folder.
    pub fn of(folder: &Path) -> Self {
        let shut = folder.join(MARK).exists();
        if shut {
            tracing::warn!("the hub is drained: it accepts nothing new until `resync-hub drain --end`");
        }
        let gate = Gate { shut: AtomicBool::new(shut), ..Gate::default() };
        Self { gate: Arc::new(gate), folder: folder.to_owned() }
    }

    /// Whether the hub is drained.
    pub fn is_on(&self) -> bool {
        self.gate.shut.load(Ordering::SeqCst)
    }

    /// Admits a request, unless the hub is drained.
    pub fn admit(&self) -> Option<Arc<Admission>> {
        // Counted before it is admitted, so that a drain that begins now does not miss it.
        self.gate.inside.fetch_add(1, Ordering::SeqCst);
        let admission = Arc::new(Admission(Arc::clone(&self.gate)));
        (!self.is_on()).then_some(admission)
    }

    fn under_way(&self) -> usize {
        self.gate.inside.load(Ordering::SeqCst)
    }

    fn set(&self, on: bool) -> io::Result<()> {
        let mark = self.folder.join(MARK);
        if on {
            File::create(mark)?;
        } else if let Err(error) = fs::remove_file(mark)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        sync_folder(&self.folder)?;
        self.gate.shut.store(on, Ordering::SeqCst);
        Ok(())
    }
}

impl AdminService {
    /// Begins or ends a drain.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn drain(&self, by: By, on: bool) -> Result<Draining, Failed> {
        let act = if on { "drain" } else { "end drain" };
        let done = |service: Self| async move {
            let set = service.drain.set(on).map_err(|error| Failed::unnoted(&error));
            set.inspect(|()| service.store.set_drained(on))
        };
        self.audited(by, act, "", done).await?;
        // The command is done, also if the rest cannot be counted.
        Ok(self.draining().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "what is still to be delivered cannot be counted");
            Draining { draining: self.drain.is_on(), owed: None }
        }))
    }

    /// Whether the hub is drained, and what is left to do.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn draining(&self) -> Result<Draining, Failed> {
        let draining = self.drain.is_on();
        // In the order of processing, so that what moves on meanwhile is counted in one of them.
        let under_way = self.drain.under_way();
        // What another hub owns is none of this one's.
        let is_alone = self.store.spread().await?.is_none_or(|spread| spread.hubs == 1);
        let shards = if is_alone { self.store.all_shards() } else { self.counters.here() };
        let to_fetch = self.store.pings(&shards).await?.len();
        let to_verify = self.store.request_ids(&shards).await?.len();
        let to_notify = self.store.denied(&shards).await?.len();
        let owed = self.operator.owed().await?;
        let owed = if is_alone { owed.of_all()? } else { owed.of_this_hub() };
        let Owed { in_turn, behind: laggards, paused } = owed;
        let nothing_left = [under_way, to_fetch, to_verify, to_notify, in_turn, laggards] == [0; 6];
        let owed =
            Remaining { under_way, to_fetch, to_verify, to_notify, in_turn, laggards, paused, nothing_left };
        Ok(Draining { draining, owed: Some(owed) })
    }

    /// Why the hub accepts nothing now, for the operator; `None` when it does.
    pub fn obstacle(&self) -> Option<String> {
        let drained = self.drain.is_on().then(|| Drain::REASON.to_owned());
        self.store.health().err().map(|error| error.to_string()).or(drained)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::concurrency::{Client, ClientClass};
    use crate::store::{self, Engine, Keyring};
    use crate::topics::Pings;
    use crate::waiting_work::JobQueues;

    #[test]
    fn whoever_is_let_in_is_counted_until_it_is_done_and_whoever_is_not_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let drain = Drain::of(folder.path());
        let admission = drain.admit().unwrap();
        drain.set(true).unwrap();
        assert!(drain.admit().is_none());
        assert_eq!(drain.under_way(), 1);
        drop(admission);
        assert_eq!(drain.under_way(), 0);
        assert!(Drain::of(folder.path()).is_on(), "the next hub is drained too");
    }

    #[tokio::test]
    async fn of_hubs_that_share_a_store_each_counts_what_waits_in_its_own_shards() {
        let folder = tempfile::tempdir().unwrap();
        let (store, memory) = store::in_memory();
        let topic = "http://source.example/topic".parse().unwrap();
        store.put_ping(topic, None, store::PingClient::default()).await.unwrap();
        let service = AdminService::where_nothing_is_delivered(Arc::clone(&store), folder.path());
        let to_fetch = async || service.draining().await.unwrap().owed.unwrap().to_fetch;
        assert_eq!(to_fetch().await, 1, "it is the only one");
        memory.share_among(2);
        assert_eq!(to_fetch().await, 0, "no shard is its own");
        for shard in store.all_shards() {
            service.counters.set_saved(shard, std::time::Instant::now());
        }
        assert_eq!(to_fetch().await, 1);
    }

    #[tokio::test]
    async fn what_is_written_down_is_handed_over_although_the_client_hung_up_and_a_drain_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let (fetching, mut fetched) = JobQueues::for_test(store.all_shards());
        let pings = Pings::new(Arc::clone(&store), fetching);
        let drain = Drain::of(folder.path());
        let admission = drain.admit().unwrap();
        let accepting = async move {
            let client = Client { network: None, class: ClientClass::Stranger };
            pings.accept("http://source.example/topic".parse().unwrap(), client, None).await.unwrap();
        };
        // Polled once, and given up like the handler of a connection that breaks.
        assert!(admission.complete(accepting).now_or_never().is_none());
        assert_eq!(drain.under_way(), 1);
        fetched.recv().await.expect("it is fetched");
        while drain.under_way() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.pings(&store.all_shards()).await.unwrap().len(), 1);
    }
}
