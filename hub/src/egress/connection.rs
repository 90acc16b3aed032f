//! One connection for one request after the other, and what those count for where nobody has confirmed.

use std::error::Error as StdError;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::confirmed::{Admitted, HeldBack, Question, Unconfirmed};
use super::connector::Way;

/// A connection that nobody else uses now.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Whom it leads to.
    peer: IpAddr,
    /// What has to be kept to there.
    unconfirmed: Option<Arc<Unconfirmed>>,
    /// The request under way, where it counts there.
    admitted: Option<Admitted>,
    /// Until it is dropped.
    _counted: Counted,
}

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

impl Connection {
    /// One over this stream.
    pub(super) async fn over(
        stream: MaybeHttpsStream<TokioIo<TcpStream>>,
        builder: &Builder,
        counted: Counted,
    ) -> Result<Self, Broken> {
        let peer = peer(&stream)?;
        let (sender, connection) = builder.handshake(stream).await?;
        // How it ends is told to whoever waits for an answer over it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, peer, unconfirmed: None, admitted: None, _counted: counted })
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
        let sent = timeout_at(deadline, async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        });
        let failed = match sent.await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) => error.into(),
            Err(_) => Failed::Late,
        };
        self.answered(false);
        Err(failed)
    }

    /// Sends the request, if the connection turns out to stand still.
    pub(super) async fn try_send(
        &mut self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Unsent> {
        let sent = timeout_at(deadline, async {
            if self.sender.ready().await.is_err() {
                return Err(Unsent::Returned(Box::new(request)));
            }
            self.sender.try_send_request(request).await.map_err(|mut failed| match failed.take_message() {
                Some(unsent) => Unsent::Returned(Box::new(unsent)),
                None => Unsent::Failed(failed.into_error().into()),
            })
        });
        let unsent = match sent.await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(unsent)) => unsent,
            Err(_) => Unsent::Failed(Failed::Late),
        };
        match (&unsent, self.admitted.take()) {
            (Unsent::Returned(_), Some(admitted)) => admitted.undo(),
            (Unsent::Failed(_), Some(admitted)) => admitted.refused(),
            (_, None) => {}
        }
        Err(unsent)
    }

    /// Takes into account that the request is sent over it, or says why it is not.
    pub(super) fn admit(&mut self, body: usize, way: Way) -> Result<Result<(), HeldBack>, Failed> {
        let Some(unconfirmed) = self.unconfirmed.as_ref().filter(|there| !there.has_confirmed()) else {
            return Ok(Ok(()));
        };
        let passed = unconfirmed.pass(body, way.about()).map_err(Failed::Unasked)?;
        Ok(passed.map(|admitted| self.admitted = Some(admitted)))
    }
}

/// Why a connection that stood has brought no answer.
pub(super) enum Unsent {
    /// It was closed before anything was sent.
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
