//! Requests to subscribe whose callbacks never answer, so that the requests after them wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::interval;

use super::client::{Client, apart};
use super::server::{Reply, Server};
use super::siege::{Siege, count};
use crate::Failure;

/// Networks (127.x/16) of those who ask and of the callbacks.
const CLIENTS: u8 = 50;
const CALLBACKS: u8 = 51;
/// One client may ask five times a second.
const PAUSE: Duration = Duration::from_millis(200);
/// And so often at once.
const AT_ONCE: usize = 100;
/// What a request brings along.
const PATH: usize = 1_500;
const SECRET: usize = 190;

/// So many clients.
pub(super) async fn begin(
    siege: &Arc<Siege>,
    clients: usize,
    attackers: &mut JoinSet<()>,
) -> Result<(), Failure> {
    if clients == 0 {
        return Ok(());
    }
    let unanswered = Arc::clone(&siege.counts.unanswered);
    let server = Arc::new(Server::start_counting(|_| Reply::Never, unanswered).await?);
    for number in 0..clients {
        let (siege, server) = (Arc::clone(siege), Arc::clone(&server));
        attackers.spawn(async move { ask(&siege, number, clients, &server).await });
    }
    Ok(())
}

/// Each request is for a host and a path of its own, so that no limit but those of the client counts.
async fn ask(siege: &Siege, number: usize, clients: usize, server: &Server) {
    let mut client = Client::new(apart(CLIENTS, number), siege.hub);
    let (mut ticks, secret) = (interval(PAUSE), "s".repeat(SECRET));
    let topic = format!("http://source.example/waiting/{number}");
    for request in 0_usize.. {
        if request >= AT_ONCE {
            ticks.tick().await;
        }
        let host = apart(CALLBACKS, request * clients + number);
        let callback = server.url(host, &format!("/{request}/{:x<PATH$}", ""));
        if client.ask(&topic, &callback, &secret).await == Some(202) {
            count(&siege.counts.waiting);
        }
    }
}
