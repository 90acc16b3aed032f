//! Requests to hubs: subscribes, renews before the lease ends, unsubscribes.

use std::time::Duration;

use resync_common::backoff::Backoff;
use resync_core::datetime::DateTime;
use resync_core::websub::form::{Subscribe, Unsubscribe};
use resync_core::websub::key::{CallbackUrl, UrlError};
use url::Url;

use crate::fetch::{Client, FetchError, FormAnswer};
use crate::state::{Mode, Record, Rotation, StateError, SubscriptionId, Subscriptions};

/// How long a hub that accepted a request may take to verify it, before it is asked again.
const VERIFICATION_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a secret is used by default.
pub(crate) const ROTATE_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why a subscription could not be made or ended.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    /// The request could not be sent.
    #[error("cannot send a request to the hub: {0}")]
    Hub(#[from] FetchError),
    /// The hub answered, but not 202 (W-085).
    #[error("the hub {hub} answers {status}: {text}")]
    Refused {
        /// The hub, after redirects.
        hub: Box<Url>,
        /// Its status.
        status: u16,
        /// Its explanation.
        text: String,
    },
    /// The hub accepted but its verification did not arrive.
    #[error(
        "the hub accepted the request but did not verify it within {waited:?}; check that the hub can reach the callback at {callback_origin}"
    )]
    NotVerified {
        /// How long the program waited.
        waited: Duration,
        /// Where the hub should have sent it.
        callback_origin: String,
    },
    /// The hub denied the subscription.
    #[error("the hub denied the subscription: {reason:?}")]
    Denied {
        /// The hub's reason.
        reason: String,
    },
    /// The callback prefix does not make a callback.
    #[error("{prefix} is not usable as a callback URL: {source}")]
    Callback {
        /// The prefix.
        prefix: Box<Url>,
        /// Why.
        source: UrlError,
    },
    /// The subscription's own hub address is unusable.
    #[error("{hub:?} is not a valid hub URL: {source}")]
    HubUrl {
        /// The saved text.
        hub: String,
        /// Why.
        source: url::ParseError,
    },
    /// There is no such subscription.
    #[error("no such subscription")]
    Unknown,
    /// The state cannot be saved.
    #[error(transparent)]
    State(#[from] StateError),
}

impl SubscribeError {
    /// Whether the same may succeed later: the hub is unreachable or busy, but does not refuse.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Hub(error) => error.is_transient(),
            Self::Refused { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            Self::NotVerified { .. } => true,
            // A full disk may be emptied.
            Self::State(error) => matches!(error, StateError::Io { .. }),
            _ => false,
        }
    }
}

/// Options of a [`Subscriber`].
#[derive(Clone, Debug)]
pub struct SubscriberOptions {
    /// The public URL below which the callbacks are; each subscription adds an unguessable segment.
    pub callback_prefix: Url,
    /// The lease to ask for; the hub decides (W-121).
    pub lease: Option<Duration>,
    /// After what time a renewal asks for a new secret (W-063); `None` for never, for hubs that keep the first one.
    pub rotate_secret_after: Option<Duration>,
    /// How long the old secret stays valid after that.
    pub secret_grace: Duration,
    /// The wait after the first failure; doubled after each further one.
    pub first_retry: Duration,
    /// The longest wait between two tries.
    pub longest_retry: Duration,
}

impl SubscriberOptions {
    /// Callbacks under `callback_prefix`, the hub's default lease, a new secret every 30 days (the old one stays valid for an
    /// hour), and retries after 1 s to 5 minutes.
    #[must_use]
    pub fn new(callback_prefix: Url) -> Self {
        Self {
            callback_prefix,
            lease: None,
            rotate_secret_after: Some(ROTATE_AFTER),
            secret_grace: Duration::from_secs(3600),
            first_retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(300),
        }
    }
}

/// A lease that a hub granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// When it ends.
    pub(crate) until: DateTime,
    /// Whether no lease ran before it, for instance after a denial: nothing was notified meanwhile.
    pub(crate) is_new: bool,
}

/// Sends requests to hubs. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct Subscriber {
    client: Client,
    subscriptions: Subscriptions,
    options: SubscriberOptions,
}

impl Subscriber {
    /// A subscriber for `subscriptions`, which the callback must share.
    #[must_use]
    pub fn new(client: Client, subscriptions: Subscriptions, options: SubscriberOptions) -> Self {
        Self { client, subscriptions, options }
    }

    /// This subscriber with another client.
    pub(crate) fn with_client(&self, client: Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// The subscriptions that it makes and renews.
    #[must_use]
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Requests the subscription or its renewal, with the same callback each time and the same secret until that is due for
    /// rotation, and waits for the hub's verification. Returns the end of the lease.
    ///
    /// # Errors
    /// [`SubscribeError`]; a subscription that was active stays active (W-062).
    pub async fn subscribe(&self, id: &SubscriptionId) -> Result<DateTime, SubscribeError> {
        let callback = self.request(id, Mode::Subscribe).await?;
        self.confirmation(id, &callback, |record| {
            let renewed =
                record.pending.is_some_and(|pending| pending.mode == Mode::Subscribe && pending.confirmed);
            if renewed { record.expires() } else { None }
        })
        .await
    }

    /// Ends the subscription, and waits for the hub's verification.
    ///
    /// # Errors
    /// [`SubscribeError`]; the subscription then stays until its lease ends.
    pub async fn unsubscribe(&self, id: &SubscriptionId) -> Result<(), SubscribeError> {
        let callback = self.request(id, Mode::Unsubscribe).await?;
        self.confirmation(id, &callback, |record| record.ended.then_some(())).await
    }

    /// Keeps the subscription alive: subscribes now, renews when 80 to 90 % of each lease have passed (W-122,
    /// FN-042), and tries again with growing pauses while the hub is away. Calls `on_lease` with the end of every granted
    /// lease. It uses this one hub, and never discovers the topic again; [`keep_topic`](crate::subscribe::keep_topic) does
    /// so before each renewal, and continues after a denial.
    ///
    /// # Errors
    /// Only those that are not [transient](SubscribeError::is_transient). While a lease runs, everything but a denial is
    /// tried again.
    pub async fn keep(
        &self,
        id: &SubscriptionId,
        mut on_lease: impl FnMut(DateTime),
    ) -> Result<std::convert::Infallible, SubscribeError> {
        Err(self.keep_for(id, u32::MAX, |lease| on_lease(lease.until)).await)
    }

    /// As [`Subscriber::keep`], but ends also after this many failures in a row while no lease runs. Returns why it ended.
    pub(crate) async fn keep_for(
        &self,
        id: &SubscriptionId,
        tries: u32,
        mut on_lease: impl FnMut(Lease),
    ) -> SubscribeError {
        let (mut pauses, mut failures) = (self.pauses(), 0);
        loop {
            // The request itself forgets a denial.
            let is_new = !self.is_active(id);
            let waited = match self.subscribe(id).await {
                Ok(until) => {
                    (pauses, failures) = (self.pauses(), 0);
                    on_lease(Lease { until, is_new });
                    self.wait(id, renewal_delay(until, DateTime::now()), |_| None::<()>).await
                }
                Err(error) => {
                    failures += u32::from(!self.is_active(id));
                    let may_retry = error.is_transient() || (self.is_active(id) && !error.is_denial());
                    if !may_retry || failures >= tries {
                        return error;
                    }
                    let pause = pauses.after_failure();
                    tracing::warn!(%error, retry_in = ?pause, "cannot make or renew the subscription");
                    self.wait(id, pause, |_| None::<()>).await
                }
            };
            if let Err(denied) = waited {
                return denied;
            }
        }
    }

    /// The pauses between tries.
    pub(crate) fn pauses(&self) -> Backoff {
        Backoff::new(self.options.first_retry, self.options.longest_retry)
    }

    async fn request(&self, id: &SubscriptionId, mode: Mode) -> Result<CallbackUrl, SubscribeError> {
        let prefix = self.options.callback_prefix.clone();
        let saved = || self.subscriptions.with(&id.0, Record::clone).ok_or(SubscribeError::Unknown);
        let record = saved()?;
        let callback = CallbackUrl::parse(&record.callback_under(&prefix))
            .map_err(|source| SubscribeError::Callback { prefix: Box::new(prefix), source })?;
        let hub = Url::parse(&record.hub)
            .map_err(|source| SubscribeError::HubUrl { hub: record.hub.clone(), source })?;
        // Before the request, since a hub may verify before it answers.
        let grace = self.options.secret_grace;
        let rotation = self.options.rotate_secret_after.map(|after| Rotation { after, grace });
        self.subscriptions.expect(id, mode, callback.as_str().to_owned(), rotation).await?;
        let form = match mode {
            Mode::Subscribe => Subscribe {
                callback: callback.clone(),
                topic: record.topic,
                lease: self.options.lease.map(|lease| lease.as_secs()),
                secret: Some(saved()?.secret_to_request()),
                verify_token: None,
            }
            .to_form(),
            Mode::Unsubscribe => {
                let callback = callback.clone();
                Unsubscribe { callback, topic: record.topic, verify_token: None }.to_form()
            }
        };
        let FormAnswer { url, status, text } = self.client.post_form(&hub, &form).await?;
        match status {
            202 => Ok(callback),
            // Not WebSub, but the verification shows whether the hub accepted.
            200..=299 => {
                tracing::warn!(hub = %url, status, "the hub should answer 202");
                Ok(callback)
            }
            _ => Err(SubscribeError::Refused { hub: Box::new(url), status, text }),
        }
    }

    async fn confirmation<T>(
        &self,
        id: &SubscriptionId,
        callback: &CallbackUrl,
        read: impl Fn(&Record) -> Option<T>,
    ) -> Result<T, SubscribeError> {
        let (waited, callback_origin) = (VERIFICATION_TIMEOUT, callback.origin());
        let result = self.wait(id, waited, read).await?;
        result.ok_or(SubscribeError::NotVerified { waited, callback_origin })
    }

    /// Waits until `read` returns something; `None` after `time`. Fails as soon as the hub denies the subscription (W-102).
    async fn wait<T>(
        &self,
        id: &SubscriptionId,
        time: Duration,
        read: impl Fn(&Record) -> Option<T>,
    ) -> Result<Option<T>, SubscribeError> {
        let mut changes = self.subscriptions.watch();
        let wait = async {
            loop {
                let result = self.subscriptions.with(&id.0, |record| match &record.denied {
                    Some(reason) => Some(Err(SubscribeError::Denied { reason: reason.clone() })),
                    None => read(record).map(|read| Ok(Some(read))),
                });
                if let Some(result) = result.ok_or(SubscribeError::Unknown)? {
                    return result;
                }
                if changes.changed().await.is_err() {
                    return Err(SubscribeError::Unknown);
                }
            }
        };
        tokio::time::timeout(time, wait).await.unwrap_or(Ok(None))
    }

    fn is_active(&self, id: &SubscriptionId) -> bool {
        self.subscriptions.with(&id.0, |record| record.phase(DateTime::now()).is_active()).unwrap_or(false)
    }
}

impl SubscribeError {
    fn is_denial(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }
}

/// When to renew: a random time between 80 and 90 % of what is left, so that many subscribers do not renew at once.
fn renewal_delay(expires: DateTime, now: DateTime) -> Duration {
    let left = u64::try_from(expires.unix_millis() - now.unix_millis()).unwrap_or(0);
    Duration::from_millis(left * fastrand::u64(80..90) / 100).max(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use resync_core::websub::key::TopicUrl;
    use resync_core::websub::verification::{Challenge, Verification};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;
    use crate::fetch::{AddressPolicy, ClientOptions};

    const TOPIC: &str = "http://source.example/topic";

    /// A hub that confirms every subscription before it answers.
    async fn serve(hub: TcpListener, subscriptions: Subscriptions, id: SubscriptionId) {
        while let Ok((mut stream, _)) = hub.accept().await {
            let (mut request, mut buffer) = (String::new(), [0; 4096]);
            while !request.contains("hub.secret=") {
                let read = stream.read(&mut buffer).await.unwrap();
                assert!(read > 0, "a whole request: {request}");
                request.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
            }
            let (topic, challenge) = (TOPIC.to_owned(), Challenge::random());
            let asked = Verification::Subscribe { topic, challenge, lease: 600 };
            subscriptions.verify(&id.0, asked).await.unwrap();
            let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_first_lease_is_new_and_so_is_one_after_a_denial_and_a_renewal_is_not() {
        let hub = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", hub.local_addr().unwrap())).unwrap();
        let subscriptions = Subscriptions::in_memory();
        let id = subscriptions.add(&TopicUrl::parse(TOPIC).unwrap(), &url).await.unwrap();
        tokio::spawn(serve(hub, subscriptions.clone(), id.clone()));
        let options = ClientOptions { address_policy: AddressPolicy::Everywhere, ..ClientOptions::default() };
        let client = Client::new(options).unwrap();
        let options = SubscriberOptions::new(Url::parse("http://copy.example/").unwrap());
        let subscriber = Subscriber::new(client, subscriptions.clone(), options);
        let is_new = async || {
            let (granted, mut leases) = mpsc::unbounded_channel();
            tokio::select! {
                error = subscriber.keep_for(&id, 1, |lease| drop(granted.send(lease))) => panic!("{error}"),
                lease = leases.recv() => lease.unwrap().is_new,
            }
        };
        assert!(is_new().await);
        assert!(!is_new().await, "a renewal");
        let denied = Verification::Denied { topic: TOPIC.to_owned(), reason: None };
        subscriptions.verify(&id.0, denied).await.unwrap();
        assert!(is_new().await);
    }

    #[test]
    fn w122_a_lease_is_renewed_when_80_to_90_percent_have_passed() {
        let now = DateTime::now();
        let expires = DateTime::from_unix_millis(now.unix_millis() + 1_000_000).unwrap();
        for _ in 0..1000 {
            let delay = renewal_delay(expires, now).as_secs();
            assert!((800..=900).contains(&delay), "{delay}");
        }
        assert_eq!(
            renewal_delay(now, now),
            Duration::from_secs(1),
            "an ended lease must not make a busy loop"
        );
    }
}
