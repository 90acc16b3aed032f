//! Requests over connections that are kept, with as little in between as possible.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::harness::PATIENCE;

/// A connection from this address.
pub(super) async fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from, 0))?;
    let stream = timeout(PATIENCE, socket.connect(to)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// What came back.
pub(super) struct Answer {
    pub(super) status: u16,
    /// Whether the connection can be used again.
    pub(super) again: bool,
}

/// A request, and the whole of its answer.
pub(super) async fn exchange(stream: &mut TcpStream, request: &[u8]) -> io::Result<Answer> {
    stream.write_all(request).await?;
    let (mut received, mut part) = (Vec::new(), [0; 2_048]);
    loop {
        let read = timeout(PATIENCE, stream.read(&mut part)).await??;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&received);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let field = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        let length = field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if body.len() >= length {
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
            let again = field("connection") != Some("close");
            return status
                .map(|status| Answer { status, again })
                .ok_or_else(|| io::ErrorKind::InvalidData.into());
        }
    }
}
