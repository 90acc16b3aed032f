//! Work that waits in the store by shard: the owner of a shard takes it up with the shard, and gives it up with the shard.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use resync_common::locks::lock;
use tokio::sync::{mpsc, watch};

use crate::store::{Accepted, Shard, StoreError};

/// What is to be done for the shards of this hub.
#[async_trait]
pub trait WaitingWork: fmt::Debug + Send + Sync + 'static {
    /// This hub owns these shards from now on: takes up what waits there, and what will.
    ///
    /// # Errors
    /// [`StoreError`] where that cannot be read. The shards are to be let go then.
    async fn take(&self, shards: &[Shard]) -> Result<(), StoreError>;

    /// Other hubs have accepted these for a shard that this hub owns: does those that are of this kind. They may be known already.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    async fn take_up(&self, shard: Shard, accepted: &[Accepted]) -> Result<(), StoreError>;

    /// Does whatever waits in a shard that this hub owns. It may be known already.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be read.
    async fn take_up_all(&self, shard: Shard) -> Result<(), StoreError>;

    /// This hub owns the shard no longer: begins nothing more there, and ends what is under way. That waits in the store for the next owner.
    /// Does nothing where the shard was not taken.
    fn let_go(&self, shard: Shard);
}

/// How a module finds and does what waits in a shard.
#[async_trait]
pub(crate) trait JobRunner: fmt::Debug + Send + Sync + 'static {
    /// One thing to do.
    type Job: Send + 'static;

    /// Does the jobs of one shard, until it is dropped.
    fn run(&self, jobs: mpsc::UnboundedReceiver<Self::Job>) -> BoxFuture<'static, ()>;

    /// Sends what waits in these shards to their queues. A job that came in a moment ago may be there already.
    async fn enqueue_waiting(
        &self,
        shards: &[Shard],
        queues: &JobQueues<Self::Job>,
    ) -> Result<(), StoreError>;

    /// The jobs of what other hubs have accepted for this shard, without what is of another kind, or does not wait any more. What waits in the
    /// shard is read once at most.
    async fn jobs(&self, shard: Shard, accepted: &[Accepted]) -> Result<Vec<Self::Job>, StoreError>;
}

/// The queues of a module's jobs, one for each shard that this hub owns. Clones share them.
#[derive(Debug)]
pub struct JobQueues<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    queues: Mutex<BTreeMap<Shard, Queue<T>>>,
    tasks: mpsc::UnboundedSender<ShardTask>,
}

/// The queue of a shard. Its task ends with it.
#[derive(Debug)]
struct Queue<T> {
    jobs: mpsc::UnboundedSender<T>,
    task: AbortHandle,
}

/// A runner's work in one shard, until the queue is closed.
type ShardTask = Abortable<BoxFuture<'static, ()>>;

/// Runs the tasks of all shards of a module, as one task itself: a panic in any of them must reach the hub, which waits for the end of this
/// one in its `JoinSet`, and nobody would wait for a task spawned for each shard.
#[derive(Debug)]
pub struct JobExecutor(mpsc::UnboundedReceiver<ShardTask>);

impl<T> JobQueues<T> {
    /// No queue yet, and what will run the tasks of all.
    pub fn new_pair() -> (Self, JobExecutor) {
        let (tasks, begun) = mpsc::unbounded_channel();
        (Self(Arc::new(Shared { queues: Mutex::default(), tasks })), JobExecutor(begun))
    }

    /// What is sent to these queues, done by this runner.
    pub(crate) fn run_by(self, runner: impl JobRunner<Job = T>) -> Arc<dyn WaitingWork> {
        Arc::new(QueuedWork { runner, queues: self })
    }

    /// Sends a job to the queue of its shard, once it is durable. One of a shard elsewhere is left to its owner, which finds it in the store.
    pub(crate) fn send(&self, shard: Shard, job: T) {
        if let Some(queue) = self.queues().get(&shard) {
            // At shutdown nobody receives any more: it waits in the store for the next start.
            let _ = queue.jobs.send(job);
        }
    }

    /// Opens the queue of a shard. Its task gets what is sent there, and ends when the queue is closed, whatever it waits for.
    fn open(&self, shard: Shard, run: impl FnOnce(mpsc::UnboundedReceiver<T>) -> BoxFuture<'static, ()>) {
        let (jobs, received) = mpsc::unbounded_channel();
        let (handle, registration) = AbortHandle::new_pair();
        // At shutdown nobody works any more.
        let _ = self.0.tasks.send(Abortable::new(run(received), registration));
        self.queues().insert(shard, Queue { jobs, task: handle });
    }

    /// Closes the queue of a shard.
    fn close(&self, shard: Shard) {
        self.queues().remove(&shard);
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<Shard, Queue<T>>> {
        // What it guards is complete between any two statements.
        lock(&self.0.queues)
    }
}

impl<T> Clone for JobQueues<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A module's work in the shards of this hub.
struct QueuedWork<R: JobRunner> {
    runner: R,
    queues: JobQueues<R::Job>,
}

impl<R: JobRunner> fmt::Debug for QueuedWork<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedWork").field("runner", &self.runner).finish_non_exhaustive()
    }
}

#[async_trait]
impl<R: JobRunner> WaitingWork for QueuedWork<R> {
    async fn take(&self, shards: &[Shard]) -> Result<(), StoreError> {
        for shard in shards {
            self.queues.open(*shard, |jobs| self.runner.run(jobs));
        }
        // Only now: what comes in meanwhile is in its queue, or is read here, or both.
        self.runner.enqueue_waiting(shards, &self.queues).await
    }

    async fn take_up(&self, shard: Shard, accepted: &[Accepted]) -> Result<(), StoreError> {
        for job in self.runner.jobs(shard, accepted).await? {
            self.queues.send(shard, job);
        }
        Ok(())
    }

    async fn take_up_all(&self, shard: Shard) -> Result<(), StoreError> {
        self.runner.enqueue_waiting(&[shard], &self.queues).await
    }

    fn let_go(&self, shard: Shard) {
        self.queues.close(shard);
    }
}

impl JobExecutor {
    /// Runs them until `stop` turns true. What is not finished waits in the store for the next start.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.run_all() => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Until the queues are gone.
    async fn run_all(mut self) {
        let mut under_way = FuturesUnordered::<ShardTask>::new();
        loop {
            tokio::select! {
                begun = self.0.recv() => match begun {
                    Some(task) => under_way.push(task),
                    None => return,
                },
                // Finished, or cut because its queue was closed.
                Some(_) = under_way.next() => {}
            }
        }
    }
}

#[cfg(test)]
impl<T> JobQueues<T> {
    /// Queues of these shards that lead to the test.
    pub(crate) fn for_test(shards: impl IntoIterator<Item = Shard>) -> (Self, mpsc::UnboundedReceiver<T>) {
        let (queues, _) = Self::new_pair();
        let (sender, received) = mpsc::unbounded_channel();
        for shard in shards {
            let (task, _) = AbortHandle::new_pair();
            queues.queues().insert(shard, Queue { jobs: sender.clone(), task });
        }
        (queues, received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{PingId, RequestId};

    /// Reports each job.
    #[derive(Debug)]
    struct Worker {
        begun: mpsc::UnboundedSender<u8>,
        /// What waits in each shard.
        waiting: Mutex<BTreeMap<Shard, u8>>,
    }

    #[async_trait]
    impl JobRunner for Worker {
        type Job = u8;

        fn run(&self, mut jobs: mpsc::UnboundedReceiver<u8>) -> BoxFuture<'static, ()> {
            let begun = self.begun.clone();
            Box::pin(async move {
                while let Some(job) = jobs.recv().await {
                    begun.send(job).unwrap();
                }
            })
        }

        async fn enqueue_waiting(&self, shards: &[Shard], queues: &JobQueues<u8>) -> Result<(), StoreError> {
            for shard in shards {
                let job = self.waiting.lock().unwrap().get(shard).copied().ok_or(StoreError::Closed)?;
                queues.send(*shard, job);
            }
            Ok(())
        }

        async fn jobs(&self, shard: Shard, accepted: &[Accepted]) -> Result<Vec<u8>, StoreError> {
            let ours = accepted.iter().filter(|accepted| matches!(accepted, Accepted::Request(_)));
            let waiting = self.waiting.lock().unwrap().get(&shard).copied();
            Ok(ours.filter_map(|_| waiting).collect())
        }
    }

    /// Work in which a job waits in the first and in the second shard.
    fn worker() -> (Worker, mpsc::UnboundedReceiver<u8>) {
        let (begun, seen) = mpsc::unbounded_channel();
        let waiting = Mutex::new(BTreeMap::from([(Shard(1), 10), (Shard(2), 20)]));
        (Worker { begun, waiting }, seen)
    }

    #[tokio::test]
    async fn what_waits_in_a_shard_and_what_comes_in_is_done_while_the_shard_is_here() {
        let (queues, work) = JobQueues::new_pair();
        let (running, stop) = watch::channel(false);
        let working = tokio::spawn(work.run(stop));
        let (worker, mut begun) = worker();
        let waiting = queues.clone().run_by(worker);
        queues.send(Shard(1), 11);
        waiting.take(&[Shard(1), Shard(2)]).await.unwrap();
        let mut both = [begun.recv().await.unwrap(), begun.recv().await.unwrap()];
        both.sort_unstable();
        assert_eq!(both, [10, 20], "what came in before waits in the store");

        waiting.let_go(Shard(1));
        waiting.let_go(Shard(7));
        queues.send(Shard(1), 12);
        queues.send(Shard(2), 21);
        assert_eq!(begun.recv().await, Some(21), "the first shard is somebody else's");
        waiting.take(&[Shard(1)]).await.unwrap();
        assert_eq!(begun.recv().await, Some(10));
        queues.send(Shard(1), 13);
        assert_eq!(begun.recv().await, Some(13));

        running.send(true).unwrap();
        working.await.unwrap();
        queues.send(Shard(1), 14);
        drop((queues, waiting));
        assert_eq!(begun.recv().await, None, "the hub has stopped");
    }

    #[tokio::test]
    async fn what_another_hub_has_accepted_is_done_where_the_shard_is_here_and_by_whose_it_is() {
        let (queues, work) = JobQueues::new_pair();
        let (_running, stop) = watch::channel(false);
        tokio::spawn(work.run(stop));
        let (worker, mut begun) = worker();
        worker.waiting.lock().unwrap().insert(Shard(3), 30);
        let waiting = queues.run_by(worker);
        waiting.take(&[Shard(1)]).await.unwrap();
        assert_eq!(begun.recv().await, Some(10));
        let request = Accepted::Request(RequestId(1));
        waiting.take_up(Shard(3), &[request]).await.unwrap();
        waiting.take_up_all(Shard(3)).await.unwrap();
        waiting.take_up(Shard(1), &[Accepted::Ping(PingId(1))]).await.unwrap();
        waiting.take(&[Shard(2)]).await.unwrap();
        assert_eq!(
            begun.recv().await,
            Some(20),
            "the shard was elsewhere, and the ping is somebody else's to do"
        );
        waiting.take_up(Shard(1), &[Accepted::Ping(PingId(1)), request]).await.unwrap();
        assert_eq!(begun.recv().await, Some(10));
        waiting.take_up_all(Shard(2)).await.unwrap();
        assert_eq!(begun.recv().await, Some(20), "of what was accepted there nothing is known");
    }

    #[tokio::test]
    async fn a_shard_whose_work_cannot_be_read_is_not_taken() {
        let (queues, _work) = JobQueues::new_pair();
        let waiting = queues.run_by(worker().0);
        assert!(waiting.take(&[Shard(3)]).await.is_err());
    }

    /// Begins in each shard, and never ends.
    #[derive(Debug)]
    struct Hangs(mpsc::UnboundedSender<mpsc::Sender<()>>);

    #[async_trait]
    impl JobRunner for Hangs {
        type Job = ();

        fn run(&self, _: mpsc::UnboundedReceiver<()>) -> BoxFuture<'static, ()> {
            let begun = self.0.clone();
            Box::pin(async move {
                let (kept, _ended) = mpsc::channel(1);
                begun.send(kept).unwrap();
                std::future::pending::<()>().await;
            })
        }

        async fn enqueue_waiting(&self, _: &[Shard], _: &JobQueues<()>) -> Result<(), StoreError> {
            Ok(())
        }

        async fn jobs(&self, _: Shard, _: &[Accepted]) -> Result<Vec<()>, StoreError> {
            Ok(Vec::new())
        }
    }

    #[tokio::test]
    async fn what_is_under_way_in_a_shard_is_cut_when_it_is_let_go() {
        let (queues, work) = JobQueues::new_pair();
        let (_running, stop) = watch::channel(false);
        tokio::spawn(work.run(stop));
        let (begun, mut seen) = mpsc::unbounded_channel();
        let waiting = queues.run_by(Hangs(begun));
        waiting.take(&[Shard(1), Shard(2)]).await.unwrap();
        let (first, second) = (seen.recv().await.unwrap(), seen.recv().await.unwrap());
        waiting.let_go(Shard(1));
        tokio::select! {
            () = first.closed() => assert!(!second.is_closed()),
            () = second.closed() => assert!(!first.is_closed()),
        }
    }
}
