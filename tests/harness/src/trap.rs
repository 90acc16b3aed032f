//! A listener that nobody may ever reach, and that tells when somebody has.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::left_out;

/// Listens on `127.0.0.1` and, where there is IPv6, on `::1`, both at the same port. It stops when dropped.
#[derive(Debug)]
pub struct Trap {
    port: u16,
    caught: Arc<AtomicUsize>,
    _listening: JoinSet<()>,
}

impl Trap {
    /// At this port, or at any if it is 0; `None` when that is taken.
    pub async fn start(port: u16) -> Option<Self> {
        let four = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.ok()?;
        let port = four.local_addr().ok()?.port();
        let caught = Arc::new(AtomicUsize::new(0));
        let mut listening = JoinSet::new();
        listening.spawn(catch(four, Arc::clone(&caught)));
        match TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port))).await {
            Ok(six) => {
                listening.spawn(catch(six, Arc::clone(&caught)));
            }
            Err(error) => left_out("whether anything reaches ::1", &error.to_string()),
        }
        Some(Self { port, caught, _listening: listening })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections there were.
    pub fn caught(&self) -> usize {
        self.caught.load(Ordering::SeqCst)
    }
}

async fn catch(listener: TcpListener, caught: Arc<AtomicUsize>) {
    while listener.accept().await.is_ok() {
        caught.fetch_add(1, Ordering::SeqCst);
    }
}
