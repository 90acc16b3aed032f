//! Requests to subscribe and unsubscribe: checked, made durable, acknowledged, and only then acted upon (W-085, W-090).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use resync_core::address::customer;
use resync_core::websub::{CallbackUrl, Subscribe, TopicUrl, Unsubscribe, VerifyToken};
use url::Url;

use super::bounds::{Bounds, Full};
use super::breaker::VerificationBreaker;
use super::limits;
use crate::concurrency::{Client, ClientClass, Limiter, Permit};
use crate::egress::{self, Forbidden, Guard};
use crate::rate_limiter::network;
use crate::store::{Intent, NewRequest, RequestId, Shard, Store, StoreError};
use crate::waiting_work::JobQueues;

/// Bytes of a request on its way to verification. Each has a permit to wait, which bounds their number.
const ON_ITS_WAY_BYTES: usize = 48;
const _: () = assert!(size_of::<ToVerify>() <= ON_ITS_WAY_BYTES);

/// No host has a longer name, in bytes (RFC 1035, section 2.3.4); a dot at its end does not count.
const LONGEST_NAME: usize = 253;

/// Why a well-formed request is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum NotAccepted {
    /// The callback names an address that this hub does not contact (W-089, D-20).
    #[error("hub.callback cannot be used: {0}")]
    Callback(#[from] Forbidden),
    /// The callback is no target of an HTTP request.
    #[error(
        "hub.callback cannot be used: it is no target of an HTTP request; percent-encode what is not allowed in a URL"
    )]
    Target,
    /// The name of a host is longer than any host's.
    #[error(
        "{parameter} cannot be used: the name of its host has {length} bytes, and it may have at most {LONGEST_NAME}"
    )]
    HostName {
        /// The parameter with the URL.
        parameter: &'static str,
        /// The length of the name in bytes.
        length: usize,
    },
    /// Too many verifications in a row failed at the callback's host.
    #[error("the last {FAILURES} verifications at the host of hub.callback failed, so it is not asked for a while: try again after the seconds in Retry-After", FAILURES = super::breaker::FAILURES)]
    BreakerOpen {
        /// How much longer it is not asked.
        wait: Duration,
    },
    /// As many requests wait for verification as may: in all, of this client, or for this host.
    #[error("too many requests wait for verification: try again later")]
    Busy,
    /// The client, or all clients, have as many subscriptions as they may.
    #[error(transparent)]
    Full(#[from] Full),
    /// It could not be made durable, so it is not acknowledged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who sent a request, and what makes it a trusted client. It is determined once, when the request comes in; from then on it
/// decides which limits apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The client's network.
    pub client: Option<IpAddr>,
    /// The request is about a subscription in force.
    pub in_force: bool,
    /// The callback's host confirmed an earlier request of this client since the start. A subscriber renews from where it
    /// subscribed, so requests that others send in its name do not count against it.
    pub confirmed: bool,
}

impl Requester {
    /// The client by which the limits count the request.
    pub(super) fn client(&self) -> Client {
        let class =
            if self.in_force || self.confirmed { ClientClass::Trusted } else { ClientClass::Stranger };
        Client { network: self.client, class }
    }
}

/// Accepts requests, and hands those of this hub's shards over to verification.
#[derive(Clone, Debug)]
pub struct Requests {
    store: Arc<dyn Store>,
    guard: Guard,
    breaker: VerificationBreaker,
    bounds: Bounds,
    verification: JobQueues<ToVerify>,
    waiting: Limiter,
}

/// A request on its way to verification. Its texts are in the store.
#[derive(Debug)]
pub struct ToVerify {
    pub(super) id: RequestId,
    /// `None`: it waited in a shard that was taken over.
    pub(super) who: Option<Requester>,
    /// Its share of what may wait.
    pub(super) permit: Permit,
}

impl Requests {
    /// `verification` gets each request once it is durable; `waiting` limits how many wait there.
    pub fn new(
        store: Arc<dyn Store>,
        guard: Guard,
        breaker: VerificationBreaker,
        bounds: Bounds,
        verification: JobQueues<ToVerify>,
        waiting: Limiter,
    ) -> Self {
        Self { store, guard, breaker, bounds, verification, waiting }
    }

    /// What makes this client trusted for requests about this callback.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub async fn requester(
        &self,
        client: IpAddr,
        topic: &TopicUrl,
        callback: &CallbackUrl,
    ) -> Result<Requester, StoreError> {
        let client = Some(network(client));
        let in_force = self.store.find_subscription(topic, callback).await?.is_some();
        if in_force {
            self.breaker.in_force(client, callback);
        }
        Ok(Requester { client, in_force, confirmed: self.breaker.has_confirmed(client, callback) })
    }

    /// Accepts a subscribe request. When this returns, a crash no longer loses it.
    ///
    /// # Errors
    /// [`NotAccepted`], which leaves nothing behind.
    pub async fn subscribe(&self, who: Requester, request: Subscribe) -> Result<(), NotAccepted> {
        let Subscribe { callback, topic, lease, secret, verify_token } = request;
        self.accept(who, (topic, callback), Intent::Subscribe { lease, secret }, verify_token).await
    }

    /// Accepts an unsubscribe request, also for a pair that nobody knows: the answer must not tell who is subscribed (D-07).
    ///
    /// # Errors
    /// [`NotAccepted`], which leaves nothing behind.
    pub async fn unsubscribe(&self, who: Requester, request: Unsubscribe) -> Result<(), NotAccepted> {
        let Unsubscribe { callback, topic, verify_token } = request;
        self.accept(who, (topic, callback), Intent::Unsubscribe, verify_token).await
    }

    async fn accept(
        &self,
        who: Requester,
        (topic, callback): (TopicUrl, CallbackUrl),
        intent: Intent,
        verify_token: Option<VerifyToken>,
    ) -> Result<(), NotAccepted> {
        // Names are kept in memory, so their length is checked before anything else.
        check_host_name("hub.callback", callback.url())?;
        check_host_name("hub.topic", topic.url())?;
        self.guard.check_literal(callback.url())?;
        egress::target(&callback).map_err(|_| NotAccepted::Target)?;
        // Nobody may keep others from renewing by causing failures at their host.
        if !who.in_force
            && let Some(wait) = self.breaker.wait(who.client, &callback, Instant::now())
        {
            return Err(NotAccepted::BreakerOpen { wait });
        }
        if !who.in_force
            && intent != Intent::Unsubscribe
            && let Some(full) = self.bounds.check(self.store.as_ref(), who.client, &topic, &callback).await?
        {
            return Err(full.into());
        }
        let host = callback.url().host_str().unwrap_or_default();
        let permit = self.waiting.try_acquire(who.client(), host).ok_or(NotAccepted::Busy)?;
        let client = who.client.map(customer);
        let shard = Shard::of(&callback, self.store.shards());
        let received_at = self.store.now();
        let request = NewRequest { topic, callback, intent, verify_token, received_at, client };
        // The permits of those that wait in shards of other hubs are there.
        let limits = limits::waiting_in_store(&self.waiting, who.client());
        let request = self.store.put_request_within(request, limits).await?.ok_or(NotAccepted::Busy)?;
        self.verification.send(shard, ToVerify { id: request.id, who: Some(who), permit });
        Ok(())
    }
}

fn check_host_name(parameter: &'static str, url: &Url) -> Result<(), NotAccepted> {
    let name = url.host_str().unwrap_or_default();
    let length = name.strip_suffix('.').unwrap_or(name).len();
    if length > LONGEST_NAME {
        return Err(NotAccepted::HostName { parameter, length });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::store::{self, Engine, Keyring};

    /// They go to no queue.
    fn over(store: Arc<dyn Store>) -> Requests {
        let bounds = Bounds::new(&config::load(None, [], &Vec::new()).unwrap().limits);
        let ((verification, _work), breaker) = (JobQueues::new_pair(), VerificationBreaker::new(true));
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        Requests::new(store, guard, breaker, bounds, verification, limits::waiting(true))
    }

    #[tokio::test]
    async fn a_host_name_that_no_host_can_have_is_refused_whether_of_a_callback_or_of_a_topic() {
        let folder = tempfile::tempdir().unwrap();
        let requests = over(store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap());
        let who = Requester { client: None, in_force: false, confirmed: false };
        let ask = async |topic: &str, callback: &str| {
            let topic = format!("http://{topic}/").parse().unwrap();
            let callback = format!("http://{callback}/").parse().unwrap();
            requests.unsubscribe(who, Unsubscribe { callback, topic, verify_token: None }).await
        };
        let labels = "a.".repeat(123);
        let (longest, longer) = (format!("{labels}example"), format!("{labels}examples"));
        assert_eq!((longest.len(), longer.len()), (253, 254));
        assert!(ask(&longest, &longest).await.is_ok() && ask(&longest, &format!("{longest}.")).await.is_ok());
        for (topic, callback, named) in
            [("s.example", longer.as_str(), "hub.callback"), (longer.as_str(), "d.example", "hub.topic")]
        {
            let refused = ask(topic, callback).await.unwrap_err();
            assert!(matches!(refused, NotAccepted::HostName { length: 254, .. }), "{refused}");
            assert!(refused.to_string().starts_with(named), "{refused}");
        }
    }

    #[cfg(feature = "postgres")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_other_hubs_have_accepted_counts_with_what_a_client_may_have_wait() {
        let Some(database) = store::SharedDatabase::new() else { return };
        let requests = over(database.hub("accepting").await);
        database.sql(
            "INSERT INTO hub.request (id, shard, pair, client, is_trusted, host, topic, callback, subscribes, received_at) \
            SELECT -n, 0, convert_to(n::text, 'UTF8'), inet '192.0.2.1', false, 'd.example', '', '', false, now() FROM generate_series(1, 1000) n",
        );
        let ask = async |last: u8| {
            let who = Requester { client: Some([192, 0, 2, last].into()), in_force: false, confirmed: false };
            let [topic, callback] = ["http://source.example/", "http://d.example/"];
            let (topic, callback) = (topic.parse().unwrap(), callback.parse().unwrap());
            requests.unsubscribe(who, Unsubscribe { callback, topic, verify_token: None }).await
        };
        let refused = ask(1).await;
        assert!(matches!(refused, Err(NotAccepted::Busy)), "{refused:?}");
        ask(2).await.unwrap();
    }
}
