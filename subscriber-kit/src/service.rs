//! What listening and relaying stand on: a callback server, and a subscriber whose callbacks lead to it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures_util::future::join_all;
use url::Url;

use crate::callback::{Callback, CallbackOptions};
use crate::channel::leave;
use crate::fetch::Client;
use crate::inbox::Deliveries;
use crate::server::Server;
use crate::state::Subscriptions;
use crate::subscriber::{Subscriber, SubscriberOptions};

/// How long leaving may take.
const UNSUBSCRIBE_PATIENCE: Duration = Duration::from_secs(15);

pub(crate) struct Service {
    server: Server,
    callback: Callback,
    pub(crate) address: SocketAddr,
    pub(crate) subscriber: Subscriber,
    subscriptions: Subscriptions,
}

/// How a [`Service`] is reached, and what it asks hubs for.
pub(crate) struct ServiceOptions {
    /// Where the callback server listens.
    pub(crate) listen: SocketAddr,
    /// How hubs reach that server; its address if not given.
    pub(crate) callback_url: Option<Url>,
    /// The lease to ask for.
    pub(crate) lease: Option<Duration>,
    /// After what time a renewal asks for a new secret; `None` for never.
    pub(crate) rotate_secret_after: Option<Duration>,
    /// The callback's bounds.
    pub(crate) callback: CallbackOptions,
}

impl Service {
    /// Takes the address; what hubs send comes out of the deliveries once the service [runs](Self::run).
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(crate) async fn bind(
        options: ServiceOptions,
        client: Client,
        subscriptions: Subscriptions,
    ) -> io::Result<(Self, Deliveries)> {
        let server = Server::bind(options.listen).await?;
        let address = server.address()?;
        let (callback, deliveries) = Callback::new(&subscriptions, options.callback);
        let subscriber_options = SubscriberOptions {
            lease: options.lease,
            rotate_secret_after: options.rotate_secret_after,
            ..SubscriberOptions::new(options.callback_url.unwrap_or_else(|| own_url(address)))
        };
        let subscriber = Subscriber::new(client, subscriptions.clone(), subscriber_options);
        Ok((Self { server, callback, address, subscriber, subscriptions }, deliveries))
    }

    /// Serves the callback until `work` or `shutdown` ends; then, unless `work` failed, unsubscribes if that is asked for.
    pub(crate) async fn run<E>(
        self,
        work: impl Future<Output = Result<(), E>>,
        shutdown: impl Future<Output = ()>,
        unsubscribe_on_exit: bool,
    ) -> Result<(), E> {
        let result = tokio::select! {
            () = self.server.run(self.callback.clone()) => Ok(()),
            result = work => result,
            () = shutdown => Ok(()),
        };
        if result.is_ok() && unsubscribe_on_exit {
            tokio::select! {
                () = self.server.run(self.callback) => {}
                () = leave_all(&self.subscriber, &self.subscriptions) => {}
            }
        }
        self.server.shut_down().await;
        result
    }
}

async fn leave_all(subscriber: &Subscriber, subscriptions: &Subscriptions) {
    let all = subscriptions.active().into_iter().map(|id| leave(subscriber.clone(), id));
    if tokio::time::timeout(UNSUBSCRIBE_PATIENCE, join_all(all)).await.is_err() {
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
