//! The permit of a connection: how long each phase of the connection may take, and when it makes room for another client's.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Limits;
use super::connections::{Connections, Phase};
use crate::locks::lock;

/// The permits of a server; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Permits {
    connections: Arc<Mutex<Connections<Arc<Notify>>>>,
    header_time: Duration,
    idle_time: Duration,
}

impl Permits {
    pub(super) fn new(limits: &Limits) -> Self {
        let connections = Arc::new(Mutex::new(Connections::new(limits.connections)));
        Self { connections, header_time: limits.header_time, idle_time: limits.idle_time }
    }

    /// A permit for a new connection. If need be it is taken from another connection, which then [ends](Permit::ends).
    pub(super) fn take(&self, client: IpAddr) -> Option<Permit> {
        let changed = Arc::new(Notify::new());
        let taken = self.lock().take(client, Instant::now().into_std(), Arc::clone(&changed))?;
        if let Some(ended) = taken.ends {
            ended.notify_one();
        }
        Some(Permit { permits: self.clone(), number: taken.number, changed })
    }

    fn lock(&self) -> MutexGuard<'_, Connections<Arc<Notify>>> {
        lock(&self.connections)
    }

    /// How long a phase may take. The service bounds a request itself.
    fn patience(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::New | Phase::Header => Some(self.header_time),
            Phase::Idle => Some(self.idle_time),
            Phase::Request => None,
        }
    }
}

/// It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    permits: Permits,
    number: u64,
    /// What the connection is about, or that it has lost its permit.
    changed: Arc<Notify>,
}

impl Permit {
    /// Ends when the connection must: it takes too long, or another one has its permit now.
    pub(super) async fn ends(&self) {
        loop {
            let Some((phase, since)) = self.permits.lock().phase(self.number) else { return };
            let changed = self.changed.notified();
            match self.permits.patience(phase) {
                Some(patience) => {
                    if timeout_at(Instant::from_std(since) + patience, changed).await.is_err() {
                        return;
                    }
                }
                None => changed.await,
            }
        }
    }

    fn enter(&self, phase: Phase) {
        self.permits.lock().enter(self.number, phase, Instant::now().into_std());
        self.changed.notify_one();
    }

    fn received(&self) {
        if self.permits.lock().received(self.number, Instant::now().into_std()) {
            self.changed.notify_one();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.lock().end(self.number);
    }
}

/// A stream that notifies its permit when bytes come.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    permit: Arc<Permit>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, permit: Arc<Permit>) -> Self {
        Self { stream, permit }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.permit.received();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Answers the requests of a connection, and notifies its permit of their begin and end.
#[derive(Clone, Debug)]
pub(super) struct Answering<S> {
    service: S,
    permit: Arc<Permit>,
}

impl<S> Answering<S> {
    pub(super) fn new(service: S, permit: Arc<Permit>) -> Self {
        Self { service, permit }
    }
}

impl<S, B> Service<Request<Incoming>> for Answering<S>
where
    S: tower_service::Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = Response<AnswerBody<B>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let under_way = RequestUnderWay::begin(Arc::clone(&self.permit));
        let answer = TowerToHyperService::new(self.service.clone()).call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| AnswerBody { body, _under_way: under_way })) })
    }
}

/// A request under way, until this is dropped.
#[derive(Debug)]
struct RequestUnderWay(Arc<Permit>);

impl RequestUnderWay {
    fn begin(permit: Arc<Permit>) -> Self {
        permit.enter(Phase::Request);
        Self(permit)
    }
}

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}

/// The body of an answer, with which the request ends.
#[derive(Debug)]
pub(super) struct AnswerBody<B> {
    body: B,
    _under_way: RequestUnderWay,
}

impl<B: Body + Unpin> Body for AnswerBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Pace;
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
    const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    fn permits(connections: usize) -> Permits {
        Permits::new(&Limits {
            connections,
            header_time: HEADER_TIMEOUT,
            idle_time: IDLE_TIMEOUT,
            header_size: 16 * 1024,
            reading: Pace { patience: HEADER_TIMEOUT, bytes_per_second: 1_024 },
            drain: HEADER_TIMEOUT,
        })
    }

    async fn lasts(permit: &Permit) -> Duration {
        let begun = Instant::now();
        permit.ends().await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_has_its_time_from_its_first_byte_and_a_pause_between_requests_a_longer_one() {
        let permits = permits(9);
        let permit = Arc::new(permits.take(CLIENT).unwrap());
        assert_eq!(lasts(&permit).await, HEADER_TIMEOUT, "nothing came");
        permit.enter(Phase::Idle);
        assert_eq!(lasts(&permit).await, IDLE_TIMEOUT, "nothing more came");

        permit.enter(Phase::Idle);
        let (mut client, server) = duplex(64);
        let mut server = Watched::new(server, Arc::clone(&permit));
        let dripping = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(30)).await;
            while client.write_all(b"G").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let reading = tokio::spawn(async move { server.read_to_end(&mut Vec::new()).await });
        assert_eq!(lasts(&permit).await, Duration::from_secs(30) + HEADER_TIMEOUT, "it drips");
        dripping.abort();
        reading.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_may_take_as_long_as_the_service_lets_it() {
        let permits = permits(9);
        let permit = permits.take(CLIENT).unwrap();
        permit.enter(Phase::Request);
        let long = tokio::time::timeout(10 * IDLE_TIMEOUT, permit.ends()).await;
        assert!(long.is_err());
    }

    #[tokio::test]
    async fn whoever_makes_room_ends_at_once_and_leaves_the_newcomer_its_place() {
        let permits = permits(1);
        let first = permits.take(CLIENT).unwrap();
        let second = permits.take(OTHER).unwrap();
        first.ends().await;
        drop(first);
        second.enter(Phase::Request);
        assert!(permits.take(CLIENT).is_none(), "the only permit has a request under way");
        drop(second);
        assert!(permits.take(CLIENT).is_some());
    }
}
