//! Honest subscribers that come while the attack is under way: each asks once, is asked once, and says yes to that.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::client::{Client, apart};
use super::honest::TOPIC;
use super::server::{Reply, Server, TAKEN, challenge, status};
use crate::Failure;
use crate::check::{self, read_signature};
use crate::request::Request;

/// Network (127.x/16) of these subscribers and of their hosts.
const NET: u8 = 104;
/// Between two of them.
const PAUSE: Duration = Duration::from_secs(1);
/// Until one of them answers whether it meant its request: meanwhile somebody may supersede it.
const THINKS: Duration = Duration::from_millis(300);
/// Who has got nothing so long after the last post that counts was kept out.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);

/// All of them, on one server.
pub(super) struct Joining {
    server: Server,
    all: Arc<[One]>,
}

#[derive(Default)]
struct One {
    has_agreed: AtomicBool,
    /// It got a delivery that was signed with its own secret.
    is_in_force: AtomicBool,
}

impl Joining {
    /// `pending` names the callback of each that thinks about its request, as somebody may know it. Who asked in its name before would be
    /// agreed with: nothing in the question says whose it is.
    pub(super) async fn start(count: usize, pending: mpsc::UnboundedSender<String>) -> Result<Self, Failure> {
        let all: Arc<[One]> = (0..count).map(|_| One::default()).collect();
        let asked = Arc::clone(&all);
        let server = Server::start(move |request| answer(&asked, &pending, request)).await?;
        Ok(Self { server, all })
    }

    /// They come one after the other, as long as what this returns is kept.
    pub(super) fn begin(&self, hub: SocketAddr) -> JoinSet<()> {
        let mut joining = JoinSet::new();
        for (number, at) in (0..self.all.len()).zip(0..) {
            let callback = self.server.url(host(number), &format!("/{number}"));
            joining.spawn(async move {
                sleep(PAUSE * at).await;
                Client::new(host(number), hub).subscribe(TOPIC, &callback, &secret(number)).await;
            });
        }
        joining
    }

    /// Waits until all of them get what is posted, and returns how many do not.
    pub(super) async fn kept_out(&self) -> usize {
        let kept_out = || self.all.iter().filter(|one| !one.is_in_force.load(Ordering::Relaxed)).count();
        let none = async {
            while kept_out() > 0 {
                sleep(LOOK).await;
            }
        };
        let _ = timeout(PATIENCE, none).await;
        kept_out()
    }
}

fn host(number: usize) -> IpAddr {
    apart(NET, number)
}

fn secret(number: usize) -> String {
    format!("secret of subscriber {number}")
}

fn answer(all: &[One], pending: &mpsc::UnboundedSender<String>, request: &Request<'_>) -> Reply {
    let path = request.target().split('?').next().unwrap_or_default();
    let Some(number) = path.get(1..).and_then(|number| number.parse::<usize>().ok()) else { return TAKEN };
    let Some(one) = all.get(number) else { return TAKEN };
    let Some(agreed) = challenge(request) else {
        if !one.is_in_force.load(Ordering::Relaxed) && is_signed(request, &secret(number)) {
            one.is_in_force.store(true, Ordering::Relaxed);
        }
        return TAKEN;
    };
    let is_meant = request.parameter("hub.mode").as_deref() == Some("subscribe");
    // Whoever has asked for one subscription agrees to one.
    if is_meant && !one.has_agreed.swap(true, Ordering::Relaxed) {
        // Without such an attack nobody wants to know.
        let authority = request.field("host").unwrap_or_default();
        let _ = pending.send(format!("http://{authority}{path}"));
        return Reply::After(THINKS, agreed);
    }
    Reply::Now(status("404 Not Found", ""))
}

fn is_signed(request: &Request<'_>, secret: &str) -> bool {
    let signature = request.field("x-hub-signature").and_then(read_signature);
    signature.is_some_and(|signature| check::is_signed(secret, request.body, &signature))
}
