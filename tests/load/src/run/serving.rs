//! Connections of the world: requests are read, and each is answered as its receiver would, at once, late, slowly or never.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::reply::{DONE, Here, Reply};
use super::world::World;
use crate::request::Request;

/// A connection begins with so much room for what it brings.
const ROOM: usize = 8 * 1024;
/// A notification and its header are smaller.
const MOST: usize = 2 << 20;
/// How often it is looked whether a peer has gone.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Reads requests and answers them until either side has had enough.
pub(super) async fn serve(mut stream: TcpStream, world: &World, connection: u64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let host = host_of(&stream, world.hosts())?;
    let authority = world.authority(u32::try_from(host).unwrap_or(u32::MAX), stream.local_addr()?.port());
    let here = Here { host, authority, connection };
    let mut rng = Rng::with_seed(world.seed() ^ connection);
    let (mut buffer, mut filled) = (vec![0; ROOM], 0);
    loop {
        while let Some(request) = Request::find(&buffer[..filled]) {
            let (length, is_last) = (request.length, request.is_last());
            let reply = world.reply(&request, &here, &mut rng);
            if !answer(&mut stream, world, reply, connection).await? || is_last {
                return Ok(());
            }
            buffer.copy_within(length..filled, 0);
            filled -= length;
        }
        if filled == buffer.len() {
            if filled >= MOST {
                return Ok(());
            }
            buffer.resize(2 * filled, 0);
        }
        match stream.read(&mut buffer[filled..]).await? {
            0 => return Ok(()),
            read => filled += read,
        }
    }
}

/// The number of the host that a connection leads to.
fn host_of(stream: &TcpStream, hosts: usize) -> io::Result<usize> {
    let number = match stream.local_addr()?.ip() {
        IpAddr::V4(address) => usize::from(u16::from_be_bytes([address.octets()[2], address.octets()[3]])),
        IpAddr::V6(_) => 0,
    };
    Ok(number.min(hosts - 1))
}

/// Whether the connection goes on.
async fn answer(stream: &mut TcpStream, world: &World, reply: Reply, connection: u64) -> io::Result<bool> {
    match reply {
        Reply::Bytes(bytes) => stream.write_all(&bytes).await?,
        Reply::Accept(delivery) => {
            world.accept(delivery, connection);
            stream.write_all(DONE).await?;
        }
        Reply::Later(time, delivery) => {
            if !is_patient(stream, time).await {
                return Ok(false);
            }
            world.accept(delivery, connection);
            stream.write_all(DONE).await?;
        }
        Reply::Drip(time, delivery) => {
            let pause = time / u32::try_from(DONE.len()).unwrap_or(1);
            for byte in DONE {
                if !is_patient(stream, pause).await {
                    return Ok(false);
                }
                stream.write_all(&[*byte]).await?;
            }
            world.accept(delivery, connection);
        }
        Reply::Hang => {
            let mut rest = [0; 4_096];
            while stream.read(&mut rest).await? > 0 {}
            return Ok(false);
        }
        Reply::Reset => {
            stream.set_zero_linger()?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the peer still waits after so long.
async fn is_patient(stream: &TcpStream, time: Duration) -> bool {
    let gone = async {
        // What it sends meanwhile stays where it is.
        let mut next = [0; 1];
        while !matches!(stream.peek(&mut next).await, Ok(0) | Err(_)) {
            sleep(LOOK_EVERY).await;
        }
    };
    timeout(time, gone).await.is_err()
}
