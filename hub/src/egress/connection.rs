//! A connection: over HTTP/1.1 for one request after the other, over HTTP/2 for many at once; and what those count for where
//! nobody has confirmed.

use std::error::Error as StdError;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

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
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::confirmed::{Admitted, HeldBack, Question, Unconfirmed};
use super::connector::Way;
use super::gathered::Gathered;

/// What a peer may send over HTTP/2 before it is read: of one answer, and over a connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// HTTP/2 where a peer offers it with TLS, else HTTP/1.1.
#[derive(Clone, Debug)]
pub(super) struct Protocols {
    one: http1::Builder,
    head_bytes: u32,
}

/// A connection that nobody else uses now, or one's own share of an HTTP/2 connection.
pub(super) struct Connection {
    sender: Sender,
    /// Whom it leads to.
    peer: IpAddr,
    /// What has to be kept to there.
    unconfirmed: Option<Arc<Unconfirmed>>,
    /// The request under way, where it counts there.
    admitted: Option<Admitted>,
}

enum Sender {
    One { sender: http1::SendRequest<Full<Bytes>>, _counted: Counted },
    Many { sender: http2::SendRequest<Full<Bytes>>, tasks: Arc<Tasks> },
}

/// What an HTTP/2 connection needs done, as long as somebody shares it: a peer that opens no stream and reads nothing would keep a
/// connection for ever that nobody counts any more.
#[derive(Debug)]
struct Tasks {
    under_way: Mutex<JoinSet<()>>,
    _counted: Counted,
}

/// Begins them.
#[derive(Clone, Debug)]
struct Begins(Weak<Tasks>);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// Not in time.
    Late,
    /// The address has to be asked this first.
    Unasked(Question),
    /// The connector's own error, or hyper's.
    Broken(Broken),
}

pub(super) type Broken = Box<dyn StdError + Send + Sync>;

impl<E: StdError + Send + Sync + 'static> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}

impl Protocols {
    /// For answers whose head has at most so many bytes, and so many fields (in HTTP/2 the bytes bound these too).
    pub(super) fn new(head_bytes: usize, head_fields: usize) -> Self {
        let mut one = http1::Builder::new();
        one.max_buf_size(head_bytes).max_headers(head_fields);
        Self { one, head_bytes: u32::try_from(head_bytes).unwrap_or(u32::MAX) }
    }

    fn many(&self, tasks: &Arc<Tasks>) -> http2::Builder<Begins> {
        let mut many = http2::Builder::new(Begins(Arc::downgrade(tasks)));
        many.max_header_list_size(self.head_bytes)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        many
    }

    /// The same trust, offering both.
    pub(super) fn offered(mut tls: ClientConfig) -> ClientConfig {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        tls
    }
}

impl Tasks {
    fn new(counted: Counted) -> Self {
        Self { under_way: Mutex::default(), _counted: counted }
    }

    fn begin(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Nothing in here can panic half-way.
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        while under_way.try_join_next().is_some() {}
        under_way.spawn(task);
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Begins {
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
        counted: Counted,
    ) -> Result<Self, Broken> {
        if has_agreed_on_http2(&stream) {
            return Self::many(stream, by, counted).await;
        }
        let (sender, connection) = by.one.handshake(Gathered(stream)).await?;
        // How a connection ends is told to whoever waits for an answer over it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self::One { sender, _counted: counted })
    }

    async fn many<S: Read + Write + Unpin + Send + 'static>(
        stream: S,
        by: &Protocols,
        counted: Counted,
    ) -> Result<Self, Broken> {
        let tasks = Arc::new(Tasks::new(counted));
        let (sender, connection) = by.many(&tasks).handshake(stream).await.map_err(io::Error::other)?;
        tasks.begin(async move { drop(connection.await) });
        Ok(Self::Many { sender, tasks })
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::One { sender, .. } => sender.is_closed(),
            Self::Many { sender, .. } => sender.is_closed(),
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Unsent> {
        match self {
            Self::One { sender, .. } => {
                if sender.ready().await.is_err() {
                    return Err(Unsent::Returned(Box::new(request)));
                }
                sender.try_send_request(request).await.map_err(|mut failed| match failed.take_message() {
                    Some(unsent) => Unsent::Returned(Box::new(unsent)),
                    None => Unsent::Failed(failed.into_error().into()),
                })
            }
            Self::Many { sender, .. } => {
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
    /// One over this stream.
    pub(super) async fn over(
        stream: MaybeHttpsStream<TokioIo<TcpStream>>,
        by: &Protocols,
        counted: Counted,
    ) -> Result<Self, Broken> {
        let peer = peer(&stream)?;
        let sender = Sender::over(stream, by, counted).await?;
        Ok(Self { sender, peer, unconfirmed: None, admitted: None })
    }

    /// One that many share, over a stream whose peer is taken to have agreed on HTTP/2.
    #[cfg(test)]
    pub(super) async fn shared(stream: TcpStream, by: &Protocols, counted: Counted) -> Self {
        let peer = stream.peer_addr().unwrap().ip();
        let sender = Sender::many(TokioIo::new(stream), by, counted).await.unwrap();
        Self { sender, peer, unconfirmed: None, admitted: None }
    }

    /// Another share of it, if it takes many requests at once.
    pub(super) fn share(&self) -> Option<Self> {
        let Sender::Many { sender, tasks } = &self.sender else { return None };
        Some(Self {
            sender: Sender::Many { sender: sender.clone(), tasks: Arc::clone(tasks) },
            peer: self.peer,
            unconfirmed: self.unconfirmed.clone(),
            admitted: None,
        })
    }

    /// Whether nobody else has a share of it, and it would close with this one.
    pub(super) fn is_unused(&self) -> bool {
        match &self.sender {
            Sender::One { .. } => true,
            Sender::Many { tasks, .. } => Arc::strong_count(tasks) == 1,
        }
    }

    /// Whether both are shares of one.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.sender, &other.sender) {
            (Sender::Many { tasks, .. }, Sender::Many { tasks: others, .. }) => Arc::ptr_eq(tasks, others),
            _ => false,
        }
    }

    /// The same for the request for which this was taken into account.
    pub(super) fn heeding(self, admitted: Option<Admitted>) -> Self {
        let unconfirmed = admitted.as_ref().map(|admitted| Arc::clone(admitted.to()));
        Self { unconfirmed, admitted, ..self }
    }

    /// Whether nothing can be sent over it any more.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(super) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Where it leads, unless nobody has confirmed there.
    pub(super) fn confirmed_peer(&self) -> Option<IpAddr> {
        let may = self.unconfirmed.as_ref().is_none_or(|there| there.has_confirmed());
        may.then_some(self.peer)
    }

    /// Notes whether what was sent was taken. What came to nothing was not.
    pub(super) fn answered(&mut self, taken: bool) {
        if let Some(admitted) = self.admitted.take()
            && !taken
        {
            admitted.refused();
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

    /// Sends the request, if the connection turns out to stand yet.
    pub(super) async fn try_send(
        &mut self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Unsent> {
        self.attempt(request, deadline).await.inspect_err(|unsent| match (unsent, self.admitted.take()) {
            (Unsent::Returned(_), Some(admitted)) => admitted.undo(),
            (Unsent::Failed(_), Some(admitted)) => admitted.refused(),
            (_, None) => {}
        })
    }

    async fn attempt(
        &mut self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Unsent> {
        let sent = timeout_at(deadline, self.sender.send(request)).await;
        sent.unwrap_or(Err(Unsent::Failed(Failed::Late)))
    }

    /// Takes into account that the request is sent over it, or says why it is not.
    pub(super) fn admit(&mut self, bytes: usize, way: Way) -> Result<Result<(), HeldBack>, Failed> {
        let Some(unconfirmed) = self.unconfirmed.as_ref().filter(|there| !there.has_confirmed()) else {
            return Ok(Ok(()));
        };
        let passed = unconfirmed.pass(bytes, way.about()).map_err(Failed::Unasked)?;
        Ok(passed.map(|admitted| self.admitted = Some(admitted)))
    }
}

/// Why a connection that stood has brought no answer.
pub(super) enum Unsent {
    /// It was closed before anything was done with the request.
    Returned(Box<Request<Full<Bytes>>>),
    Failed(Failed),
}

/// One of the connections that are counted as open.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(super) fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Counted {
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

/// What the two sides have agreed on within TLS.
fn has_agreed_on_http2(stream: &MaybeHttpsStream<TokioIo<TcpStream>>) -> bool {
    match stream {
        MaybeHttpsStream::Http(_) => false,
        MaybeHttpsStream::Https(stream) => stream.inner().get_ref().1.alpn_protocol() == Some(b"h2"),
    }
}

/// The request as HTTP/2 wants it: what `Host` says stands in the target.
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
    let told = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    let refused = told.filter(|told| told.is_remote()).is_some_and(|told| match told.reason() {
        Some(Reason::REFUSED_STREAM) => told.is_reset(),
        Some(Reason::NO_ERROR) => told.is_go_away(),
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
        let tasks = Arc::new(Tasks::new(Counted::new(&Arc::default())));
        let begins = Begins(Arc::downgrade(&tasks));
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
