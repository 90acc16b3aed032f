//! An HTTP/1.1 connection that its requests drive. It has no task of its own: every request would have to wake that, and it the request.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;

use super::coalesced::Coalesced;

type Driving = Pin<Box<Connection<Coalesced<MaybeHttpsStream<TokioIo<TcpStream>>>, Full<Bytes>>>>;

/// What a connection has to do; `None` once it has ended.
struct Work(Option<Driving>);

/// A connection for one request after the other.
pub(super) struct Driven {
    /// Dropped first, by which the connection learns that no request comes any more.
    sender: SendRequest<Full<Bytes>>,
    work: Work,
}

impl Driven {
    pub(super) async fn over(
        stream: MaybeHttpsStream<TokioIo<TcpStream>>,
        by: &Builder,
    ) -> hyper::Result<Self> {
        let (sender, work) = by.handshake(Coalesced(stream)).await?;
        Ok(Self { sender, work: Work(Some(Box::pin(work))) })
    }

    /// Whether it is known to have ended.
    pub(super) fn is_closed(&self) -> bool {
        self.work.0.is_none() || self.sender.is_closed()
    }

    /// Whether it has ended, as far as this side could notice by now.
    pub(super) fn has_ended(&mut self) -> bool {
        let look = poll_fn(|context| {
            go_on(&mut self.work, context);
            Poll::Ready(())
        });
        // Who looks at many at once has a turn of 128 reads otherwise, and notices no more.
        let _ = unconstrained(look).now_or_never();
        self.is_closed()
    }

    /// Waits until it takes a request.
    ///
    /// # Errors
    /// When it has ended.
    pub(super) async fn ready(&mut self) -> hyper::Result<()> {
        drive(&mut self.work, self.sender.ready()).await
    }

    /// Sends a request, and returns the answer without its body.
    ///
    /// # Errors
    /// What became of the connection; with the request, if nothing was done with it.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Full<Bytes>>>> {
        drive(&mut self.work, self.sender.try_send_request(request)).await
    }

    /// Does this, which waits for something that comes over the connection.
    pub(super) async fn during<F: Future>(&mut self, reading: F) -> F::Output {
        drive(&mut self.work, reading).await
    }
}

impl Drop for Work {
    /// It ends in good order, as TLS asks for, if that can be done at once: a peer that reads nothing would keep it for ever, with what is not sent
    /// yet, when nobody counts it any more.
    fn drop(&mut self) {
        // Without a runtime it would find none of its own.
        if let (Some(work), Ok(_)) = (self.0.take(), Handle::try_current()) {
            let _ = unconstrained(work).now_or_never();
        }
    }
}

async fn drive<F: Future>(work: &mut Work, until: F) -> F::Output {
    let mut until = pin!(until);
    poll_fn(|context| {
        go_on(work, context);
        until.as_mut().poll(context)
    })
    .await
}

/// Requests under way get the error with which a connection ends.
fn go_on(Work(work): &mut Work, context: &mut Context<'_>) {
    if work.as_mut().is_some_and(|work| work.as_mut().poll(context).is_ready()) {
        *work = None;
    }
}

#[cfg(test)]
mod tests {
    use hyper::client::conn::http1;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn connected() -> (Driven, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (peer, _) = listener.accept().await.unwrap();
        let stream = MaybeHttpsStream::Http(TokioIo::new(stream));
        (Driven::over(stream, &http1::Builder::new()).await.unwrap(), peer)
    }

    fn post(body: Vec<u8>) -> Request<Full<Bytes>> {
        Request::post("/").header("Host", "callback.example").body(Full::new(body.into())).unwrap()
    }

    /// Reads how the request begins, and answers it.
    async fn answer(peer: &mut TcpStream) {
        peer.read_exact(&mut [0; 4]).await.unwrap();
        peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_answers_and_reads_nothing_does_not_keep_the_connection() {
        const BODY: usize = 64 << 20;
        let (mut connection, mut peer) = connected().await;
        let (response, ()) = tokio::join!(connection.send(post(vec![b'x'; BODY])), answer(&mut peer));
        assert_eq!(response.unwrap().status(), 200);
        drop(connection);
        let mut read = Vec::new();
        // What is cut off may end by a reset.
        let _ = peer.read_to_end(&mut read).await;
        assert!(read.len() < BODY, "the rest is not sent to whoever reads later");
    }
}
