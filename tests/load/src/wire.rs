//! Requests over connections that are kept, with as little in between as possible.

use std::io;
use std::net::{IpAddr, SocketAddr};

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use resync_harness::PATIENCE;

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
        received.extend_from_slice(&part[..read]);
        match answer(&received, read == 0) {
            Some(answer) => return Ok(answer),
            None if read == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            None => {}
        }
    }
}

/// `None` as long as it is not complete.
fn answer(received: &[u8], is_all: bool) -> Option<Answer> {
    let end = memmem::find(received, b"\r\n\r\n")? + 4;
    let (head, body) = (String::from_utf8_lossy(&received[..end]), &received[end..]);
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let mut first = head.split(' ');
    let version = first.next();
    let status = first.next()?.parse().ok()?;
    let length = field("content-length").and_then(|length| length.parse().ok());
    let is_chunked = field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    let is_complete = match length {
        Some(length) => body.len() >= length,
        // The last chunk is empty, and nothing comes behind it.
        None if is_chunked => body.starts_with(b"0\r\n\r\n") || body.ends_with(b"\r\n0\r\n\r\n"),
        None => is_all || status == 204 || status == 304,
    };
    let closes = field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let again = !is_all && !closes && version == Some("HTTP/1.1");
    is_complete.then_some(Answer { status, again })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_with_its_length_its_last_chunk_or_its_connection() {
        let read = |text: &str, is_all| answer(text.as_bytes(), is_all).map(|one| (one.status, one.again));
        assert_eq!(read("HTTP/1.1 202 Accepted\r\ncontent-length:2\r\n\r\nok", false), Some((202, true)));
        assert_eq!(read("HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\no", false), None);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n";
        assert_eq!(read(chunked, false), None);
        assert_eq!(read(&format!("{chunked}0\r\n\r\n"), false), Some((200, true)));
        assert_eq!(read("HTTP/1.0 200 OK\r\n\r\nok", false), None);
        assert_eq!(read("HTTP/1.0 200 OK\r\n\r\nok", true), Some((200, false)));
        assert_eq!(read("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", false), Some((204, false)));
    }
}
