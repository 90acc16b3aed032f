//! Listening sockets that were made before the hub started and outlive it: systemd's socket activation.
//!
//! A client that connects while no hub runs waits, and is answered by the next one.

use std::io;
use std::net::{SocketAddr, TcpListener};

/// The sockets that the process inherited.
#[derive(Debug, Default)]
pub struct Sockets {
    /// For the hub endpoint.
    pub public: Option<TcpListener>,
    /// For health, the admin API and the pages.
    pub admin: Option<TcpListener>,
}

impl Sockets {
    /// Takes the sockets that systemd passes on (`LISTEN_FDS`): the first is the public one, the second the operator's. There may be
    /// one, both or none.
    ///
    /// # Errors
    /// [`io::Error`] when something else is passed on.
    pub fn of_process() -> io::Result<Self> {
        let mut passed = listenfd::ListenFd::from_env();
        if passed.len() > 2 {
            let why = format!(
                "{} sockets were passed on (LISTEN_FDS); pass at most two: the public one, then the operator's",
                passed.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut take = |place| if place < passed.len() { passed.take_tcp_listener(place) } else { Ok(None) };
        Ok(Self { public: take(0)?, admin: take(1)? })
    }

    /// Where they listen.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        [&self.public, &self.admin].into_iter().flatten().filter_map(|socket| socket.local_addr().ok())
    }
}
