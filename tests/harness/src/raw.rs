//! HTTP as bytes on a socket, so that a test sees exactly what a peer would see.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PATIENCE;

/// An answer as it came over the wire.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The header fields, names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The first header field of this name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Some(Self { status, headers, body: bytes[end + 4..].to_vec() })
    }
}

/// Sends these bytes, which must ask for `Connection: close`, and reads the answer.
///
/// # Errors
/// When the connection cannot be made or breaks before there is an answer.
pub async fn request(address: SocketAddr, bytes: &[u8]) -> std::io::Result<Answer> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        // A server that refuses early may close its side while this side still sends: the answer is there all the same.
        let sent = stream.write_all(bytes).await;
        let mut received = Vec::new();
        let read = stream.read_to_end(&mut received).await;
        match Answer::parse(&received) {
            Some(answer) => Ok(answer),
            None => Err(sent
                .and(read.map(|_| ()))
                .err()
                .unwrap_or_else(|| std::io::ErrorKind::UnexpectedEof.into())),
        }
    };
    timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

/// Posts a body with these header fields to `/websub/`.
///
/// # Errors
/// As [`request`].
pub async fn post(address: SocketAddr, headers: &[(&str, &str)], body: &[u8]) -> std::io::Result<Answer> {
    let mut bytes =
        format!("POST /websub/ HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    request(address, &bytes).await
}

/// Posts a form to `/websub/`.
///
/// # Errors
/// As [`request`].
pub async fn form(address: SocketAddr, parameters: &[(&str, &str)]) -> std::io::Result<Answer> {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
    post(address, &[("Content-Type", "application/x-www-form-urlencoded")], body.as_bytes()).await
}
