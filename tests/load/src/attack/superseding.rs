//! Requests in the name of somebody whose own request is pending: with the opposite mode, or with another secret.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::client::{Client, apart};
use super::honest::TOPIC;
use super::siege::{Siege, count};

/// Network (127.x/16) of those who ask.
const NET: u8 = 60;
/// Each asks so often, with such a pause.
const REQUESTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(100);

/// So many clients for each callback.
pub(super) fn begin(
    siege: &Arc<Siege>,
    clients: usize,
    mut pending: mpsc::UnboundedReceiver<String>,
    attackers: &mut JoinSet<()>,
) {
    let siege = Arc::clone(siege);
    attackers.spawn(async move {
        let (mut asking, mut next) = (JoinSet::new(), 0);
        while let Some(callback) = pending.recv().await {
            for number in next..next + clients {
                let (siege, callback) = (Arc::clone(&siege), callback.clone());
                asking.spawn(async move { supersede(&siege, number, &callback).await });
            }
            next += clients;
        }
        asking.join_all().await;
    });
}

async fn supersede(siege: &Siege, number: usize, callback: &str) {
    let mut client = Client::new(apart(NET, number), siege.hub);
    for request in 0..REQUESTS {
        let is_even = (request + number).is_multiple_of(2);
        let (mode, secret) = if is_even { ("unsubscribe", "") } else { ("subscribe", "another secret") };
        let mut parameters = vec![("hub.mode", mode), ("hub.topic", TOPIC), ("hub.callback", callback)];
        parameters.extend((!secret.is_empty()).then_some(("hub.secret", secret)));
        if client.form(&parameters).await == Some(202) {
            count(&siege.counts.superseding);
        }
        sleep(PAUSE).await;
    }
}
