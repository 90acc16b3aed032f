//! A flood of queries how a notification fares.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use super::client::{Client, apart, query_of};
use super::siege::{Siege, count};

const NET: u8 = 70;
/// Addresses that the flood comes from, and connections of each.
const CLIENTS: u32 = 20;
const CONNECTIONS: u32 = 10;

/// So many a second.
pub(super) fn begin(siege: &Arc<Siege>, per_second: u32, attackers: &mut JoinSet<()>) {
    if per_second == 0 {
        return;
    }
    let pause = Duration::from_secs(1) * CLIENTS * CONNECTIONS / per_second;
    for (number, _) in (0..).zip(0..CLIENTS) {
        for _ in 0..CONNECTIONS {
            let siege = Arc::clone(siege);
            attackers.spawn(async move { query(&siege, number, pause).await });
        }
    }
}

async fn query(siege: &Siege, number: usize, pause: Duration) {
    let mut client = Client::new(apart(NET, number), siege.hub);
    let request = query_of(&siege.status);
    let mut ticks = interval(pause);
    sleep(pause.mul_f64(fastrand::f64())).await;
    loop {
        ticks.tick().await;
        if client.send(&request).await == Some(200) {
            count(&siege.counts.statuses);
        }
    }
}
