//! A TCP proxy between one hub and the servers of its database. Traffic through it can stall, also in one direction alone, come late, or be
//! reset.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Bytes that are passed on at once.
const PIECE: usize = 16 * 1024;

/// What becomes of the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traffic {
    /// It is passed on.
    #[default]
    Flows,
    /// Nothing is passed on, also not that somebody has hung up.
    Stalls,
    /// Nothing comes to the servers.
    StallsTowardsServers,
    /// Nothing comes back from them.
    StallsTowardsClient,
    /// Connections are reset, new ones too.
    Resets,
    /// Everything comes so much later.
    Late(Duration),
}

/// Whither something goes.
#[derive(Clone, Copy, Debug)]
enum Side {
    Server,
    Client,
}

impl Traffic {
    fn stalls(self, towards: Side) -> bool {
        match self {
            Self::Stalls => true,
            Self::StallsTowardsServers => matches!(towards, Side::Server),
            Self::StallsTowardsClient => matches!(towards, Side::Client),
            Self::Flows | Self::Resets | Self::Late(_) => false,
        }
    }

    fn pause(self) -> Duration {
        if let Self::Late(pause) = self { pause } else { Duration::ZERO }
    }
}

/// The proxy of one client. It stops when dropped, and its connections with it.
#[derive(Debug)]
pub struct Proxy {
    addresses: Vec<SocketAddr>,
    traffic: watch::Sender<Traffic>,
    _listening: JoinSet<()>,
}

impl Proxy {
    /// Listens for each of these servers at an address of its own.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn start(servers: &[SocketAddr]) -> Self {
        let (traffic, mut addresses, mut listening) =
            (watch::Sender::new(Traffic::Flows), Vec::new(), JoinSet::new());
        for server in servers {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
            addresses.push(listener.local_addr().expect("a bound socket has an address"));
            listening.spawn(serve(listener, *server, traffic.subscribe()));
        }
        Self { addresses, traffic, _listening: listening }
    }

    /// Where it listens, in the order of the servers.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What becomes of the traffic from now on.
    pub fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }
}

async fn serve(listener: TcpListener, server: SocketAddr, traffic: watch::Receiver<Traffic>) {
    // Connections end with the proxy.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(carry(client, server, traffic.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Passes on what comes from either side, until both have hung up or the connection is reset.
async fn carry(mut client: TcpStream, server: SocketAddr, traffic: watch::Receiver<Traffic>) {
    let reached = tokio::select! {
        () = until_reset(traffic.clone()) => None,
        stream = reach(server, traffic.clone()) => stream.ok(),
    };
    let Some(mut server) = reached else {
        reset(&client);
        return;
    };
    let is_broken = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let there = pass(from_client, to_server, Side::Server, traffic.clone());
        let back = pass(from_server, to_client, Side::Client, traffic.clone());
        tokio::select! {
            () = until_reset(traffic) => true,
            passed = async { tokio::try_join!(there, back) } => passed.is_err(),
        }
    };
    if is_broken {
        reset(&client);
        reset(&server);
    }
}

async fn reach(server: SocketAddr, mut traffic: watch::Receiver<Traffic>) -> io::Result<TcpStream> {
    until_passed(&mut traffic, Side::Server).await;
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    towards: Side,
    mut traffic: watch::Receiver<Traffic>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = from.read(&mut piece).await?;
        until_passed(&mut traffic, towards).await;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..count]).await?;
    }
}

/// Returns when the traffic lets something pass.
async fn until_passed(traffic: &mut watch::Receiver<Traffic>, towards: Side) {
    let passing = traffic.wait_for(|traffic| !traffic.stalls(towards)).await;
    // Without a proxy nothing is held up: its connections end.
    let pause = passing.map_or(Duration::ZERO, |traffic| traffic.pause());
    sleep(pause).await;
}

async fn until_reset(mut traffic: watch::Receiver<Traffic>) {
    let is_reset = traffic.wait_for(|traffic| *traffic == Traffic::Resets).await.is_ok();
    if !is_reset {
        pending::<()>().await;
    }
}

/// When it is closed its peer hears that it was reset.
fn reset(stream: &TcpStream) {
    // A connection that is gone needs none.
    let _ = stream.set_zero_linger();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::timeout;

    use super::*;
    use crate::eventually;

    /// So long nothing comes of what stalls.
    const STALLED: Duration = Duration::from_millis(100);

    /// It repeats what it hears. It stops when dropped.
    struct Server {
        heard: Arc<AtomicUsize>,
        _serving: JoinSet<()>,
    }

    /// A server, and a client of it through a proxy.
    async fn scene() -> (Proxy, TcpStream, Server) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = Proxy::start(&[listener.local_addr().unwrap()]).await;
        let (heard, mut serving) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        let count = Arc::clone(&heard);
        serving.spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
                stream.write_all(&byte).await.unwrap();
            }
        });
        let client = TcpStream::connect(proxy.addresses()[0]).await.unwrap();
        (proxy, client, Server { heard, _serving: serving })
    }

    async fn says(client: &mut TcpStream, byte: u8) {
        client.write_all(&[byte]).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), byte);
    }

    /// A byte is sent while the traffic stalls so. The server has heard this many bytes by then, and its answer comes when it flows again.
    async fn stalls(stalled: Traffic, heard: usize) {
        let (proxy, mut client, server) = scene().await;
        let hears = |count| server.heard.load(Ordering::SeqCst) == count;
        says(&mut client, 1).await;
        proxy.set(stalled);
        client.write_all(&[2]).await.unwrap();
        eventually("the server has heard it", || async { hears(heard) }).await;
        assert!(timeout(STALLED, client.read_u8()).await.is_err(), "something came");
        assert!(hears(heard), "something went there");
        proxy.set(Traffic::Late(Duration::from_millis(1)));
        assert_eq!(client.read_u8().await.unwrap(), 2);
        assert!(hears(2));
    }

    #[tokio::test]
    async fn what_stalls_in_both_directions_reaches_nobody_until_it_flows_again() {
        stalls(Traffic::Stalls, 1).await;
    }

    #[tokio::test]
    async fn what_stalls_towards_the_servers_does_not_reach_them_until_it_flows_again() {
        stalls(Traffic::StallsTowardsServers, 1).await;
    }

    #[tokio::test]
    async fn what_stalls_towards_the_client_reaches_the_server_and_its_answer_comes_when_it_flows_again() {
        stalls(Traffic::StallsTowardsClient, 2).await;
    }

    #[tokio::test]
    async fn connections_are_reset_also_new_ones_until_it_flows_again() {
        let (proxy, mut client, _server) = scene().await;
        says(&mut client, 1).await;
        proxy.set(Traffic::Resets);
        let reset = client.read_u8().await.unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
        let mut another = TcpStream::connect(proxy.addresses()[0]).await.unwrap();
        assert!(another.read_u8().await.is_err());
    }
}
