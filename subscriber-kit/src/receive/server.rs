//! One callback server for the subscriptions of several states.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use resync_common::pace::Pace;
use resync_common::server::{Limits, Server};
use tokio::net::TcpListener;
use url::Url;

use super::{Callback, CallbackOptions, Deliveries, Hook};
use crate::fetch::{Client, ClientOptions, FetchError};
use crate::state::{StateError, SubscriptionId, Subscriptions};
use crate::subscribe::{ROTATE_AFTER, Subscriber, SubscriberOptions, end_subscription};

const LIMITS: Limits = Limits {
    connections: 256,
    header_time: Duration::from_secs(10),
    // Longer than hubs keep their connections, so that none is closed on them.
    idle_time: Duration::from_secs(60),
    // All connections together hold 8 MiB of headers.
    header_size: 32 * 1024,
    reading: Pace { patience: Duration::from_secs(10), bytes_per_second: 1_024 },
    drain: Duration::from_secs(5),
};

/// How long unsubscribing at the end may take.
const UNSUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(15);

/// How hubs reach a Destination, what it asks them for, and what it runs for a notification.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Where the callback server listens.
    pub listen: SocketAddr,
    /// How hubs reach that server; its address if not given.
    pub callback_url: Option<Url>,
    /// The lease to ask for.
    pub lease: Option<Duration>,
    /// After what time a renewal asks for a new secret; `None` for never.
    pub rotate_secret_after: Option<Duration>,
    /// Runs for every notification.
    pub hook: Option<Hook>,
    /// Whether to unsubscribe at the end.
    pub unsubscribe_on_exit: bool,
    /// The callback's limits.
    pub callback: CallbackOptions,
    /// The HTTP client's limits.
    pub client: ClientOptions,
}

impl Default for ServiceOptions {
    /// A callback server on a free loopback port.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            callback_url: None,
            lease: None,
            rotate_secret_after: Some(ROTATE_AFTER),
            hook: None,
            unsubscribe_on_exit: false,
            callback: CallbackOptions::default(),
            client: ClientOptions::default(),
        }
    }
}

impl ServiceOptions {
    /// What hubs are asked for, with callbacks below this URL.
    pub(crate) fn subscriber(&self, callback_prefix: Url) -> SubscriberOptions {
        SubscriberOptions {
            lease: self.lease,
            rotate_secret_after: self.rotate_secret_after,
            ..SubscriberOptions::new(callback_prefix)
        }
    }
}

/// Why a callback server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Client(#[from] FetchError),
    /// The server cannot listen.
    #[error("cannot listen on {address}: {source}; choose another with --listen")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The state cannot be opened.
    #[error(transparent)]
    State(#[from] StateError),
}

impl StartError {
    /// Whether the settings are wrong, so that a restart does not help.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Client(_) => true,
            // The port may be free later.
            Self::Bind { .. } => false,
            Self::State(error) => error.is_configuration(),
        }
    }
}

/// A server for the callbacks of several states.
pub(crate) struct CallbackServer {
    server: Server,
    callbacks: Callbacks,
    pub(crate) address: SocketAddr,
    subscribers: Vec<Subscriber>,
}

impl CallbackServer {
    /// Binds the address. Each state has the client that sends requests to its hubs. Returns the subscriber and the deliveries of
    /// each, in the order of the states; deliveries arrive once the server [runs](Self::run).
    pub(crate) async fn bind(
        options: &ServiceOptions,
        states: impl IntoIterator<Item = (Subscriptions, Client)>,
    ) -> Result<(Self, Vec<(Subscriber, Deliveries)>), StartError> {
        let bind_error = |source| StartError::Bind { address: options.listen, source };
        let server = Server::new(TcpListener::bind(options.listen).await.map_err(bind_error)?, LIMITS);
        let address = server.address().map_err(bind_error)?;
        let subscriber_options =
            options.subscriber(options.callback_url.clone().unwrap_or_else(|| own_url(address)));
        let (mut callbacks, mut receivers) = (Vec::new(), Vec::new());
        for (subscriptions, client) in states {
            let (callback, deliveries) = Callback::new(&subscriptions, options.callback.clone());
            callbacks.push(callback);
            receivers.push((Subscriber::new(client, subscriptions, subscriber_options.clone()), deliveries));
        }
        let subscribers = receivers.iter().map(|(subscriber, _)| subscriber.clone()).collect();
        Ok((Self { server, callbacks: Callbacks(callbacks.into()), address, subscribers }, receivers))
    }

    /// Serves the callbacks until `work` or `shutdown` ends. Then, unless `work` failed, unsubscribes if that is requested.
    pub(crate) async fn run<E>(
        self,
        work: impl Future<Output = Result<(), E>>,
        shutdown: impl Future<Output = ()>,
        unsubscribe_on_exit: bool,
    ) -> Result<(), E> {
        let result = tokio::select! {
            () = self.server.run(self.callbacks.clone()) => Ok(()),
            result = work => result,
            () = shutdown => Ok(()),
        };
        if result.is_ok() && unsubscribe_on_exit {
            let active = self.subscribers.iter().flat_map(|subscriber| {
                let ids = subscriber.subscriptions().active();
                ids.into_iter().map(|id| (subscriber.clone(), id))
            });
            tokio::select! {
                () = self.server.run(self.callbacks) => {}
                () = end_subscriptions(active) => {}
            }
        }
        self.server.shut_down().await;
        result
    }
}

/// Ends these subscriptions, as far as that can be done in a short time.
pub(crate) async fn end_subscriptions(subscriptions: impl Iterator<Item = (Subscriber, SubscriptionId)>) {
    let ending = subscriptions.map(|(subscriber, id)| end_subscription(subscriber, id));
    if tokio::time::timeout(UNSUBSCRIBE_TIMEOUT, join_all(ending)).await.is_err() {
        tracing::warn!("not unsubscribed in time; the lease will run out");
    }
}

/// The callbacks of several states. Each request goes to the one that has a subscription at its path.
#[derive(Clone, Debug)]
struct Callbacks(Arc<[Callback]>);

impl tower_service::Service<Request<Incoming>> for Callbacks {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let path = request.uri().path();
        match self.0.iter().find(|callback| callback.serves(path)).or(self.0.first()).cloned() {
            Some(mut callback) => callback.call(request),
            None => Box::pin(async {
                let mut answer = Response::new(Full::default());
                *answer.status_mut() = StatusCode::NOT_FOUND;
                Ok(answer)
            }),
        }
    }
}

/// A server on all addresses is reached over loopback, unless `--callback-url` says otherwise.
fn own_url(address: SocketAddr) -> Url {
    let mut host = address;
    if address.ip().is_unspecified() {
        host.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Url::parse(&format!("http://{host}/")).expect("an address and a port make a URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_is_reached_over_loopback() {
        let own = |address: &str| own_url(address.parse().unwrap()).to_string();
        assert_eq!(own("0.0.0.0:81"), "http://127.0.0.1:81/");
        assert_eq!(own("[::]:81"), "http://[::1]:81/");
        assert_eq!(own("10.1.2.3:81"), "http://10.1.2.3:81/");
    }
}
