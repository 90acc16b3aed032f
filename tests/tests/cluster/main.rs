//! Several hubs over one database, of which some die, stand still, stop or lose the database, and which fails over: against a judge who knows
//! what was acknowledged. The database's servers are real; who promotes them is the test (see `Replicated` of the harness).
//!
//! `RESYNC_CLUSTER_FAULTS` is how many faults the drawn trial makes, and `RESYNC_CLUSTER_KINDS` of which kinds, for example
//! `kill-primary,partition`. `RESYNC_TEST_SEED` repeats its choices; what else the machine does is not repeated.
//!
//! | room | subject |
//! |---|---|
//! | `nodes`, `endpoint`, `shards` | hubs with their database; one as its clients see it; who owns what |
//! | `subscribers`, `load`, `churn` | hosts of callbacks; publishers; subscriptions that come and go, and the operator |
//! | `faults`, `trial` | what happens; the drawn trial |
//! | `oracle`, `verdict`, `report` | the judge while all goes on, and at the end; what each fault came to |
//! | `small` | what one fault does, by itself |

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod churn;
mod endpoint;
mod faults;
mod load;
mod nodes;
mod oracle;
mod report;
mod shards;
mod small;
mod subscribers;
mod trial;
mod verdict;

use resync_harness::seed;

use trial::Trial;

/// Of each kind two.
const FAULTS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_acknowledged_is_lost_whatever_happens_to_hubs_and_to_their_database() {
    Trial::of(FAULTS, seed()).run().await;
}
