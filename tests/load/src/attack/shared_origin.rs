//! A path of an origin that honest subscribers share: it answers `503` and asks for an hour.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::interval;

use super::client::{Client, apart};
use super::honest::TOPIC;
use super::siege::Siege;
use super::subscribers::Subscribers;

/// Network (127.x/16) of those who subscribe it.
const CLIENTS: u8 = 40;
/// One client may ask for one subscription a second on one host.
const PAUSE: Duration = Duration::from_secs(1);
/// And for so many at once.
const AT_ONCE: usize = 8;

/// So many clients. Each subscription fails once in an hour, so there is always a new one.
pub(super) fn begin(siege: &Arc<Siege>, clients: usize, honest: &Subscribers, attackers: &mut JoinSet<()>) {
    for number in 0..clients {
        let callback = honest.refusing(number);
        let mut client = Client::new(apart(CLIENTS, number), siege.hub);
        attackers.spawn(async move {
            let mut ticks = interval(PAUSE);
            for subscription in 0_usize.. {
                if subscription >= AT_ONCE {
                    ticks.tick().await;
                }
                client.subscribe(TOPIC, &format!("{callback}/{subscription}"), "").await;
            }
        });
    }
}
