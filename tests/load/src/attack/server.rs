//! A server at every address of 127/8, for callbacks and topics: it answers as it is told.

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::Failure;
use crate::request::Request;

/// Of longer requests only the beginning is read before they are answered.
const LONGEST: usize = 128 * 1024;
const FIRST_READ: usize = 4 * 1024;

/// What is answered.
pub(super) enum Reply {
    /// This, at once.
    Now(Cow<'static, [u8]>),
    /// This, after a while.
    After(Duration, Cow<'static, [u8]>),
    /// Nothing, until the hub gives up.
    Never,
}

/// 204: a delivery was taken.
pub(super) const TAKEN: Reply = Reply::Now(Cow::Borrowed(b"HTTP/1.1 204 No Content\r\n\r\n"));
const TAKEN_UNREAD: &[u8] = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";

type Behaviour = dyn Fn(&Request<'_>) -> Reply + Send + Sync;

/// It stops when dropped.
pub(super) struct Server {
    port: u16,
    task: AbortHandle,
}

impl Server {
    pub(super) async fn start(
        behaviour: impl Fn(&Request<'_>) -> Reply + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        Self::start_counting(behaviour, Arc::default()).await
    }

    /// `waiting` counts the requests that the hub waits for, where the answer comes late or never.
    pub(super) async fn start_counting(
        behaviour: impl Fn(&Request<'_>) -> Reply + Send + Sync + 'static,
        waiting: Arc<AtomicUsize>,
    ) -> Result<Self, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(accept(listener, Arc::new(behaviour), waiting)).abort_handle();
        Ok(Self { port, task })
    }

    /// A URL of the host with this address.
    pub(super) fn url(&self, host: IpAddr, path: &str) -> String {
        format!("http://{}{path}", SocketAddr::new(host, self.port))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a subscriber that agrees answers to a verification of intent; `None` to a delivery.
pub(super) fn challenge(request: &Request<'_>) -> Option<Cow<'static, [u8]>> {
    request.line.starts_with("GET").then(|| page("", &request.parameter("hub.challenge").unwrap_or_default()))
}

/// 200 with these header fields, each of which ends its line, and this body.
pub(super) fn page(fields: &str, body: &str) -> Cow<'static, [u8]> {
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes().into()
}

/// This status line with these header fields, without a body.
pub(super) fn status(line: &str, fields: &str) -> Cow<'static, [u8]> {
    format!("HTTP/1.1 {line}\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes().into()
}

async fn accept(listener: TcpListener, behaviour: Arc<Behaviour>, waiting: Arc<AtomicUsize>) {
    // Connections end with the server.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (behaviour, waiting) = (Arc::clone(&behaviour), Arc::clone(&waiting));
        // A peer that goes away ends its connection, nothing else.
        connections.spawn(async move { drop(serve(stream, &*behaviour, &waiting).await) });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, behaviour: &Behaviour, waiting: &AtomicUsize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut buffer, mut filled) = (vec![0; FIRST_READ], 0);
    loop {
        while let Some(request) = Request::find(&buffer[..filled]) {
            let (length, reply) = (request.length, behaviour(&request));
            let answer = match reply {
                Reply::Now(answer) => answer,
                Reply::After(pause, answer) => {
                    let _waits = Waits::new(waiting);
                    sleep(pause).await;
                    answer
                }
                Reply::Never => {
                    let _waits = Waits::new(waiting);
                    return read_to_the_end(&mut stream).await;
                }
            };
            stream.write_all(&answer).await?;
            buffer.copy_within(length..filled, 0);
            filled -= length;
        }
        if filled == LONGEST {
            stream.write_all(TAKEN_UNREAD).await?;
            return read_to_the_end(&mut stream).await;
        }
        if filled == buffer.len() {
            buffer.resize(LONGEST.min(2 * filled), 0);
        }
        match stream.read(&mut buffer[filled..]).await? {
            0 => return Ok(()),
            read => filled += read,
        }
    }
}

async fn read_to_the_end(stream: &mut TcpStream) -> io::Result<()> {
    let mut rest = vec![0; LONGEST];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// One more for whom the hub waits, until this is dropped.
struct Waits<'w>(&'w AtomicUsize);

impl<'w> Waits<'w> {
    fn new(waiting: &'w AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
