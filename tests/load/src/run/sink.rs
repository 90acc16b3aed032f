//! The listener of a run: one for all of 127/8, behind which the world plays every subscriber.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::task::AbortHandle;

use super::serving::serve;
use super::world::World;
use crate::Failure;
use crate::scenario::Plan;

/// Connections that may wait to be taken.
const BACKLOG: u32 = 4_096;

/// The running world; it stops when dropped.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) port: u16,
    pub(super) world: Arc<World>,
    listening: AbortHandle,
}

impl Sink {
    pub(super) fn start(
        run: u32,
        seed: u64,
        warmup: Duration,
        plan: &Plan,
        topics: u32,
        named: bool,
    ) -> Result<Self, Failure> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        let listener = socket.listen(BACKLOG)?;
        let port = listener.local_addr()?.port();
        let world = Arc::new(World::new(run, seed, warmup, plan, topics, named));
        let shared = Arc::clone(&world);
        let listening = tokio::spawn(async move {
            for number in 0_u64.. {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let world = Arc::clone(&shared);
                // A peer that goes away ends its connection, nothing else.
                tokio::spawn(async move { drop(serve(stream, &world, number).await) });
            }
        });
        Ok(Self { port, world, listening: listening.abort_handle() })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.listening.abort();
    }
}
