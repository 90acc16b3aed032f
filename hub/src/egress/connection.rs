//! A connection: over HTTP/1.1 for one request after the other, over HTTP/2 for many at once. It also counts requests to an
//! unconfirmed address.

use std::error::Error as StdError;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use h2::Reason;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Executor, Read, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use resync_common::locks::lock;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::connector::Route;
use super::driven::Driven;
use super::rebinding::{Blocked, CountedRequest, Reverification, UnconfirmedAddress};

/// Bytes that a peer may send over HTTP/2 before they are read: of one answer, and over a connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// HTTP/2 where a peer offers it with TLS, else HTTP/1.1.
#[derive(Clone, Debug)]
pub(super) struct Protocols {
    http1: http1::Builder,
    head_bytes: u32,
}

/// A connection that nobody else uses now, or one handle of a shared HTTP/2 connection.
pub(super) struct Connection {
    sender: Sender,
    /// The address at the other end.
    peer: IpAddr,
    /// Its limit, if it is unconfirmed.
    unconfirmed: Option<Arc<UnconfirmedAddress>>,
    /// The request under way, if the limit counts it.
    counted: Option<CountedRequest>,
}

enum Sender {
    Http1 { connection: Driven, _open: OpenCount },
    Http2 { sender: http2::SendRequest<Full<Bytes>>, tasks: Arc<Tasks> },
}

/// The tasks of an HTTP/2 connection. They end with its last handle: else a peer that opens no stream and reads nothing could
/// keep a connection for ever that is no longer counted.
#[derive(Debug)]
struct Tasks {
    under_way: Mutex<JoinSet<()>>,
    _open: OpenCount,
}

/// Spawns these tasks.
#[derive(Clone, Debug)]
struct TaskSpawner(Weak<Tasks>);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    TimedOut,
    /// The address is unconfirmed.
    ReverifyFirst(Reverification),
    /// The connector's own error, or hyper's.
    Error(BoxError),
}

pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

impl<E: StdError + Send + Sync + 'static> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Protocols {
    /// For answers whose head has at most so many bytes, and so many fields (in HTTP/2 the bytes bound these too).
    pub(super) fn new(head_bytes: usize, head_fields: usize) -> Self {
        let mut http1 = http1::Builder::new();
        http1.max_buf_size(head_bytes).max_headers(head_fields);
        Self { http1, head_bytes: u32::try_from(head_bytes).unwrap_or(u32::MAX) }
    }

    fn http2(&self, tasks: &Arc<Tasks>) -> http2::Builder<TaskSpawner> {
        let mut http2 = http2::Builder::new(TaskSpawner(Arc::downgrade(tasks)));
        http2
            .max_header_list_size(self.head_bytes)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        http2
    }

    /// This TLS configuration, offering both protocols.
    pub(super) fn offered(mut tls: ClientConfig) -> ClientConfig {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        tls
    }
}

impl Tasks {
    fn new(open_count: OpenCount) -> Self {
        Self { under_way: Mutex::default(), _open: open_count }
    }

    fn begin(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Nothing in here can panic half-way.
        let mut under_way = lock(&self.under_way);
        while under_way.try_join_next().is_some() {}
        under_way.spawn(task);
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for TaskSpawner {
    fn execute(&self, task: F) {
        if let Some(tasks) = self.0.upgrade() {
            tasks.begin(task);
        }
    }
}

impl Sender {
    async fn over(
        stream: MaybeHttpsStream<TokioIo<TcpStream>>,
        by: &Protocols,
        open_count: OpenCount,
    ) -> Result<Self, BoxError> {
        if has_agreed_on_http2(&stream) {
            return Self::http2(stream, by, open_count).await;
        }
        Ok(Self::Http1 { connection: Driven::over(stream, &by.http1).await?, _open: open_count })
    }

    async fn http2<S: Read + Write + Unpin + Send + 'static>(
        stream: S,
        by: &Protocols,
        open_count: OpenCount,
    ) -> Result<Self, BoxError> {
        let tasks = Arc::new(Tasks::new(open_count));
        let (sender, connection) = by.http2(&tasks).handshake(stream).await.map_err(io::Error::other)?;
        tasks.begin(async move { drop(connection.await) });
        Ok(Self::Http2 { sender, tasks })
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Http1 { connection, .. } => connection.is_closed(),
            Self::Http2 { sender, .. } => sender.is_closed(),
        }
    }

    fn has_ended(&mut self) -> bool {
        match self {
            Self::Http1 { connection, .. } => connection.has_ended(),
            Self::Http2 { sender, .. } => sender.is_closed(),
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Unsent> {
        match self {
            Self::Http1 { connection, .. } => {
                if connection.ready().await.is_err() {
                    return Err(Unsent::Returned(Box::new(request)));
                }
                connection.send(request).await.map_err(|mut failed| match failed.take_message() {
                    Some(unsent) => Unsent::Returned(Box::new(unsent)),
                    None => Unsent::Failed(failed.into_error().into()),
                })
            }
            Self::Http2 { sender, .. } => {
                let sent = absolute(request.clone()).map_err(|error| Unsent::Failed(error.into()))?;
                match sender.send_request(sent).await {
                    Ok(response) => Ok(response),
                    Err(error) if was_not_processed(&error) => Err(Unsent::Returned(Box::new(request))),
                    Err(error) => Err(Unsent::Failed(error.into())),
                }
            }
        }
    }
}

impl Connection {
    /// A connection over this stream.
    pub(super) async fn over(
        stream: MaybeHttpsStream<TokioIo<TcpStream>>,
        by: &Protocols,
        open_count: OpenCount,
    ) -> Result<Self, BoxError> {
        let peer = peer(&stream)?;
        let sender = Sender::over(stream, by, open_count).await?;
        Ok(Self { sender, peer, unconfirmed: None, counted: None })
    }

    /// An HTTP/2 connection over a stream without TLS.
    #[cfg(test)]
    pub(super) async fn shared(stream: TcpStream, by: &Protocols, open_count: OpenCount) -> Self {
        let peer = stream.peer_addr().unwrap().ip();
        let sender = Sender::http2(TokioIo::new(stream), by, open_count).await.unwrap();
        Self { sender, peer, unconfirmed: None, counted: None }
    }

    /// Another handle, if it takes many requests at once.
    pub(super) fn share(&self) -> Option<Self> {
        let Sender::Http2 { sender, tasks } = &self.sender else { return None };
        Some(Self {
            sender: Sender::Http2 { sender: sender.clone(), tasks: Arc::clone(tasks) },
            peer: self.peer,
            unconfirmed: self.unconfirmed.clone(),
            counted: None,
        })
    }

    /// Whether this is the last handle, so that the connection would close with it.
    pub(super) fn is_unused(&self) -> bool {
        match &self.sender {
            Sender::Http1 { .. } => true,
            Sender::Http2 { tasks, .. } => Arc::strong_count(tasks) == 1,
        }
    }

    /// Whether both are handles of one HTTP/2 connection.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.sender, &other.sender) {
            (Sender::Http2 { tasks, .. }, Sender::Http2 { tasks: others, .. }) => Arc::ptr_eq(tasks, others),
            _ => false,
        }
    }

    /// This connection for a request that was counted.
    pub(super) fn with_counted(self, counted: Option<CountedRequest>) -> Self {
        let unconfirmed = counted.as_ref().map(|counted| Arc::clone(counted.to()));
        Self { unconfirmed, counted, ..self }
    }

    /// Whether nothing can be sent over it any more.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether nothing can be sent over it any more, after a look at what has come from its peer.
    pub(super) fn has_ended(&mut self) -> bool {
        self.sender.has_ended()
    }

    /// Reads from the answer that came over it last.
    pub(super) async fn during<F: Future>(&mut self, reading: F) -> F::Output {
        match &mut self.sender {
            Sender::Http1 { connection, .. } => connection.during(reading).await,
            Sender::Http2 { .. } => reading.await,
        }
    }

    pub(super) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// The address at the other end, unless it is unconfirmed.
    pub(super) fn confirmed_peer(&self) -> Option<IpAddr> {
        let is_confirmed = self.unconfirmed.as_ref().is_none_or(|address| address.has_confirmed());
        is_confirmed.then_some(self.peer)
    }

    /// Takes note whether the request was accepted. One that failed was not.
    pub(super) fn answered(&mut self, accepted: bool) {
        if let Some(counted) = self.counted.take()
            && !accepted
        {
            counted.refused();
        }
    }

    /// Sends the request over a new connection.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Failed> {
        self.attempt(request, deadline).await.map_err(|unsent| {
            self.answered(false);
            match unsent {
                Unsent::Returned(_) => io::Error::from(io::ErrorKind::ConnectionAborted).into(),
                Unsent::Failed(failed) => failed,
            }
        })
    }

    /// Sends the request over a reused connection, which may be closed by now.
    pub(super) async fn try_send(
        &mut self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Unsent> {
        self.attempt(request, deadline).await.inspect_err(|unsent| match (unsent, self.counted.take()) {
            (Unsent::Returned(_), Some(counted)) => counted.undo(),
            (Unsent::Failed(_), Some(counted)) => counted.refused(),
            (_, None) => {}
        })
    }

    async fn attempt(
        &mut self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Unsent> {
        let sent = timeout_at(deadline, self.sender.send(request)).await;
        sent.unwrap_or(Err(Unsent::Failed(Failed::TimedOut)))
    }

    /// Counts a request that is to be sent over it.
    ///
    /// # Errors
    /// Why it may not be sent.
    pub(super) fn admit(&mut self, bytes: usize, route: Route) -> Result<(), Blocked> {
        if let Some(unconfirmed) = self.unconfirmed.as_ref().filter(|address| !address.has_confirmed()) {
            self.counted = Some(unconfirmed.admit(bytes, route.subscription())?);
        }
        Ok(())
    }
}

/// Why a reused connection brought no answer.
pub(super) enum Unsent {
    /// It was closed before anything was done with the request.
    Returned(Box<Request<Full<Bytes>>>),
    Failed(Failed),
}

/// Counts a connection as open until it is dropped.
#[derive(Debug)]
pub(super) struct OpenCount(Arc<AtomicUsize>);

impl OpenCount {
    pub(super) fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The address at the other end.
fn peer(stream: &MaybeHttpsStream<TokioIo<TcpStream>>) -> io::Result<IpAddr> {
    let stream = match stream {
        MaybeHttpsStream::Http(stream) => stream,
        MaybeHttpsStream::Https(stream) => stream.inner().get_ref().0.inner(),
    };
    Ok(stream.inner().peer_addr()?.ip())
}

/// The protocol that both sides agreed on within TLS.
fn has_agreed_on_http2(stream: &MaybeHttpsStream<TokioIo<TcpStream>>) -> bool {
    match stream {
        MaybeHttpsStream::Http(_) => false,
        MaybeHttpsStream::Https(stream) => stream.inner().get_ref().1.alpn_protocol() == Some(b"h2"),
    }
}

/// The request as HTTP/2 has it: the target contains what `Host` says.
fn absolute(mut request: Request<Full<Bytes>>) -> Result<Request<Full<Bytes>>, http::Error> {
    let host = request.headers_mut().remove(HOST);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = host.map(|host| Authority::try_from(host.as_bytes())).transpose()?;
    *request.uri_mut() = Uri::from_parts(parts)?;
    Ok(request)
}

/// Whether the peer says that it has not touched the request (RFC 9113, 8.7), or never had it.
fn was_not_processed(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    let refused = cause.filter(|cause| cause.is_remote()).is_some_and(|cause| match cause.reason() {
        Some(Reason::REFUSED_STREAM) => cause.is_reset(),
        Some(Reason::NO_ERROR) => cause.is_go_away(),
        _ => false,
    });
    refused || error.is_canceled()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_a_shared_connection_needs_done_ends_with_its_last_share() {
        let tasks = Arc::new(Tasks::new(OpenCount::new(&Arc::default())));
        let begins = TaskSpawner(Arc::downgrade(&tasks));
        let (held, ended) = oneshot::channel::<()>();
        begins.execute(async move {
            let _held = held;
            pending::<()>().await;
        });
        let share = Arc::clone(&tasks);
        drop(tasks);
        drop(share);
        assert!(ended.await.is_err(), "it was dropped");
        begins.execute(async { panic!("nobody shares it any more") });
    }
}
