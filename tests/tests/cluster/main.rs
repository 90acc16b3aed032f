//! Several hubs over one database, of which some die, stand still, stop or lose the database, and which fails over: against a judge who knows
//! what was acknowledged. The database's servers are real; who promotes them is the test (see `Replicated` of the harness).
//!
//! `RESYNC_CLUSTER_FAULTS` is how many faults the drawn trial makes, and `RESYNC_CLUSTER_KINDS` of which kinds, for example
//! `kill-primary,partition`. `RESYNC_TEST_SEED` repeats its choices; what else the machine does is not repeated.
//!
//! | module | subject |
//! |---|---|
//! | `nodes`, `endpoint`, `shards` | hubs with their database; one as its clients see it; who owns what |
//! | `topics`, `world` | what is posted to; what all tasks of a trial share |
//! | `subscribers`, `load`, `churn`, `operator` | hosts of callbacks; publishers; subscriptions that come and go; who pauses and replays |
//! | `faults`, `trial`, `report` | what happens; the drawn trial; what each fault came to |
//! | `judge`, `subscription`, `windows` | who knows what was acknowledged; what a subscription is owed; what faults excuse |
//! | `verdict` | the end of a trial |
//! | `one_fault` | what one fault does, by itself |

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod churn;
mod endpoint;
mod faults;
mod judge;
mod load;
mod nodes;
mod one_fault;
mod operator;
mod report;
mod shards;
mod subscribers;
mod subscription;
mod topics;
mod trial;
mod verdict;
mod windows;
mod world;

use resync_harness::seed;

use trial::Trial;

/// Each kind has its turn, and half of them a second one.
const FAULTS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_acknowledged_is_lost_whatever_happens_to_hubs_and_to_their_database() {
    Trial::of(FAULTS, seed()).run().await;
}
