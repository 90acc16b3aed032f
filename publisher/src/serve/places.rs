//! The place of a connection among those that are served: whether it is answered now, and when it makes room for another client's.

use std::{
    convert::Infallible,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Instant,
};

use axum::{
    Router,
    body::{Body, Bytes},
};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::{body::Incoming, service::Service};
use hyper_util::service::TowerToHyperService;
use resync_core::connections::{Connections, Phase};
use tokio::sync::Notify;

/// The places of a server; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Mutex<Connections<Arc<Notify>>>>);

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(Connections::new(most))))
    }

    /// A place for a new connection, if need be in that of another one, which then [is lost](Place::is_lost).
    pub(super) fn take(&self, client: IpAddr) -> Option<Place> {
        let lost = Arc::new(Notify::new());
        let taken = self.lock().take(client, Instant::now(), Arc::clone(&lost))?;
        if let Some(ended) = taken.ends {
            ended.notify_one();
        }
        Some(Place { places: self.clone(), number: taken.number, lost })
    }

    fn lock(&self) -> MutexGuard<'_, Connections<Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    number: u64,
    lost: Arc<Notify>,
}

impl Place {
    /// Ends when another connection has the place.
    pub(super) async fn is_lost(&self) {
        // Nobody else tells it.
        self.lost.notified().await;
    }

    fn enter(&self, phase: Phase) {
        self.places.lock().enter(self.number, phase, Instant::now());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().end(self.number);
    }
}

/// Answers the requests of a connection, and tells its place while it does.
#[derive(Clone, Debug)]
pub(super) struct Answering {
    router: Router,
    place: Arc<Place>,
}

impl Answering {
    pub(super) fn new(router: Router, place: Arc<Place>) -> Self {
        Self { router, place }
    }
}

impl Service<Request<Incoming>> for Answering {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let under_way = UnderWay::begin(Arc::clone(&self.place));
        let answer = TowerToHyperService::new(self.router.clone()).call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(answer.map(|body| Body::new(Held { body, _under_way: under_way })))
        })
    }
}

/// A request under way, until this is dropped.
#[derive(Debug)]
struct UnderWay(Arc<Place>);

impl UnderWay {
    fn begin(place: Arc<Place>) -> Self {
        place.enter(Phase::Request);
        Self(place)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}

/// The body of an answer, with which the request ends.
#[derive(Debug)]
struct Held {
    body: Body,
    _under_way: UnderWay,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
