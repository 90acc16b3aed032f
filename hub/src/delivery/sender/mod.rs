//! The sender: workers that make the requests which the schedulers decide on, and save the progress.

mod attempt_log;
mod bodies;
mod callback_client;
mod checkpoints;
mod counters;
mod delivery_request;
mod expected;
mod feed;
mod large_bodies;
mod letting_go;
mod lookup;
mod losses;
mod meters;
mod operator;
mod owned_shard;
mod partial_answer;
mod prepared;
mod running_request;
mod send;
mod settings;
mod shards;
mod spans;
mod test_delivery;
#[cfg(test)]
pub(crate) mod testing;
mod thread;
mod worker;
mod worker_load;
mod workers;

pub use self::attempt_log::{AttemptLog, AttemptOutcome, RecordedAttempt};
pub use self::counters::{Counters, Totals};
pub use self::feed::without_known_entries;
pub(super) use self::large_bodies::LargeBodies;
pub use self::letting_go::LetGo;
pub use self::meters::{Meters, OUTCOMES};
pub use self::operator::{NoAnswer, Operator};
pub(super) use self::owned_shard::{OwnedShard, Ownership};
pub use self::partial_answer::{Elsewhere, PartialAnswer};
pub(super) use self::send::Observers;
pub use self::settings::Settings;
pub use self::test_delivery::{TestDelivery, TestSender};
pub(super) use self::thread::WorkerThread;
pub(super) use self::worker::Inputs;
pub use self::workers::Stopped;
pub(super) use self::workers::{GivenUp, WorkerMessage, Workers};
