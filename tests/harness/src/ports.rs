//! Free ports for servers of tests.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use crate::locks::lock;

/// A loopback address that was free a moment ago, below the ports that the system gives to outgoing connections, which
/// might be taken before the hub is there. None is given twice: other tests run beside this one, in this process and in others.
///
/// # Panics
/// When all ports are taken.
pub fn free_address() -> SocketAddr {
    let mut ports = lock(&PORTS);
    loop {
        let port = ports.next();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

static PORTS: Mutex<Ports> = Mutex::new(Ports { left: 0..0, claims: Vec::new() });

/// The same place for all test programs of a user: they have different folders for temporary files.
const CLAIMS: &str = "/tmp";

/// Ports of this process, which claims a hundred at a time by locking a file for as long as it lives.
struct Ports {
    left: Range<u16>,
    claims: Vec<File>,
}

impl Ports {
    const FIRST: u16 = 10_000;
    const BLOCKS: u16 = 220;
    const BLOCK: u16 = 100;

    fn next(&mut self) -> u16 {
        loop {
            match self.left.next() {
                Some(port) => return port,
                None => self.left = self.claim(),
            }
        }
    }

    fn claim(&mut self) -> Range<u16> {
        let user = rustix::process::getuid().as_raw();
        let folder = Path::new(CLAIMS).join(format!("resync-test-ports-{user}"));
        fs::create_dir_all(&folder).expect("a folder can be made");
        let begin = fastrand::u16(0..Self::BLOCKS);
        for block in (begin..Self::BLOCKS).chain(0..begin) {
            let claim = File::create(folder.join(block.to_string())).expect("a file can be made");
            if claim.try_lock().is_ok() {
                self.claims.push(claim);
                let first = Self::FIRST + block * Self::BLOCK;
                return first..first + Self::BLOCK;
            }
        }
        panic!("all ports are taken by tests that run at the same time")
    }
}
