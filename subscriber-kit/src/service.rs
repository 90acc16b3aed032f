//! What listening and relaying stand on: a callback server, and subscribers whose callbacks lead to it.

use std::convert::Infallible;
use std::io;
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
use resync_common::server::{Limits, Server};
use tokio::net::TcpListener;
use url::Url;

use crate::callback::{Callback, CallbackOptions};
use crate::channel::leave;
use crate::fetch::{Client, ClientOptions};
use crate::hook::Hook;
use crate::inbox::Deliveries;
use crate::state::{SubscriptionId, Subscriptions};
use crate::subscriber::{ROTATE_AFTER, Subscriber, SubscriberOptions};

/// What the callback server gives hubs.
const LIMITS: Limits = Limits {
    connections: 256,
    header_time: Duration::from_secs(10),
    // Longer than hubs keep their connections, so that none is closed on them.
    idle_time: Duration::from_secs(60),
    // Together the connections hold 8 MiB of headers.
    header_size: 32 * 1024,
    write_time: Duration::from_secs(10),
    drain: Duration::from_secs(5),
};

/// How long leaving may take.
const UNSUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(15);

/// One server for the callbacks of several states.
pub(crate) struct Service {
    server: Server,
    callbacks: Callbacks,
    pub(crate) address: SocketAddr,
    parties: Vec<Party>,
}

/// One state, and who asks hubs in its name.
#[derive(Clone)]
pub(crate) struct Party {
    pub(crate) subscriptions: Subscriptions,
    pub(crate) subscriber: Subscriber,
}

/// The callbacks of several states: a request is for the one that knows its path.
#[derive(Clone, Debug)]
pub(crate) struct Callbacks(Arc<[Callback]>);

impl Callbacks {
    fn at(&self, path: &str) -> Option<Callback> {
        self.0.iter().find(|callback| callback.knows(path)).or(self.0.first()).cloned()
    }
}

impl tower_service::Service<Request<Incoming>> for Callbacks {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        match self.at(request.uri().path()) {
            Some(mut callback) => callback.call(request),
            None => Box::pin(async {
                let mut gone = Response::new(Full::default());
                *gone.status_mut() = StatusCode::NOT_FOUND;
                Ok(gone)
            }),
        }
    }
}

/// How hubs reach a Destination, what it asks them for, and who hears of what they send.
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
    /// What hears every notification.
    pub hook: Option<Hook>,
    /// Whether to unsubscribe at the end.
    pub unsubscribe_on_exit: bool,
    /// The callback's bounds.
    pub callback: CallbackOptions,
    /// The HTTP client's bounds.
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

impl Service {
    /// Takes the address; what hubs send comes out of the deliveries, in the order of the states, once the service
    /// [runs](Self::run). Each state has the client that asks hubs in its name.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(crate) async fn bind(
        options: &ServiceOptions,
        states: impl IntoIterator<Item = (Subscriptions, Client)>,
    ) -> io::Result<(Self, Vec<(Party, Deliveries)>)> {
        let server = Server::new(TcpListener::bind(options.listen).await?, LIMITS);
        let address = server.address()?;
        let prefix = options.callback_url.clone().unwrap_or_else(|| own_url(address));
        let subscriber_options = SubscriberOptions {
            lease: options.lease,
            rotate_secret_after: options.rotate_secret_after,
            ..SubscriberOptions::new(prefix)
        };
        let (mut callbacks, mut parties) = (Vec::new(), Vec::new());
        for (subscriptions, client) in states {
            let (callback, deliveries) = Callback::new(&subscriptions, options.callback.clone());
            let subscriber = Subscriber::new(client, subscriptions.clone(), subscriber_options.clone());
            callbacks.push(callback);
            parties.push((Party { subscriptions, subscriber }, deliveries));
        }
        let known = parties.iter().map(|(party, _)| party.clone()).collect();
        Ok((Self { server, callbacks: Callbacks(callbacks.into()), address, parties: known }, parties))
    }

    /// Serves the callback until `work` or `shutdown` ends; then, unless `work` failed, unsubscribes if that is asked for.
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
            tokio::select! {
                () = self.server.run(self.callbacks) => {}
                () = leave_each(all_of(&self.parties)) => {}
            }
        }
        self.server.shut_down().await;
        result
    }
}

/// What is active, with who ends it.
fn all_of(parties: &[Party]) -> impl Iterator<Item = (Subscriber, SubscriptionId)> {
    parties
        .iter()
        .flat_map(|party| party.subscriptions.active().into_iter().map(|id| (party.subscriber.clone(), id)))
}

/// Ends these subscriptions as far as that can be done soon.
pub(crate) async fn leave_each(subscriptions: impl Iterator<Item = (Subscriber, SubscriptionId)>) {
    let leaving = subscriptions.map(|(subscriber, id)| leave(subscriber, id));
    if tokio::time::timeout(UNSUBSCRIBE_TIMEOUT, join_all(leaving)).await.is_err() {
        tracing::warn!("not unsubscribed in time; the lease will run out");
    }
}

/// A server on all addresses is reached over loopback, until a `--callback-url` says better.
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
