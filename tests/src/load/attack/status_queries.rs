//! A flood of queries how a notification fares.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::interval;

use super::client::{Client, apart};
use super::siege::{Siege, count};

const NET: u8 = 70;
/// Addresses that the flood comes from.
const CLIENTS: u32 = 20;

/// So many a second.
pub(super) fn begin(siege: &Arc<Siege>, per_second: u32, attackers: &mut JoinSet<()>) {
    if per_second == 0 {
        return;
    }
    let pause = Duration::from_secs(1) * CLIENTS / per_second;
    for (number, _) in (0..).zip(0..CLIENTS) {
        let siege = Arc::clone(siege);
        attackers.spawn(async move { query(&siege, number, pause).await });
    }
}

async fn query(siege: &Siege, number: usize, pause: Duration) {
    let mut client = Client::new(apart(NET, number), siege.hub);
    let request = format!("GET {} HTTP/1.1\r\nHost: h\r\n\r\n", siege.status);
    let mut ticks = interval(pause);
    loop {
        ticks.tick().await;
        if client.send(request.as_bytes()).await == Some(200) {
            count(&siege.counts.statuses);
        }
    }
}
