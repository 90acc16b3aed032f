//! Commands: what the operator may do. Nothing is done before it is written down.

use std::collections::HashSet;

use futures_util::future::join_all;
use resync_core::websub::CallbackUrl;
use serde::Deserialize;
use tracing::info;
use utoipa::ToSchema;

use super::audit::{By, Entry};
use super::export::Export;
use super::page_request::PageRequest;
use super::responses::{Denied, Done, NewPublisher, Page, Rotated};
use super::text::counted;
use super::{AdminService, Failed};
use crate::completion::run_to_completion;
use crate::delivery::{self, Command, NoAnswer};
use crate::store::{
    DenialScope, Keyring, KeyringError, NewDenial, Offset, Shard, StoreError, Subscription, SubscriptionId,
    TopicId,
};
use crate::topics::{NewToken, Tokens};

/// The longest reason in bytes: it travels in a URL.
const REASON_LIMIT: usize = 500;
/// The longest name of a token.
const NAME_LIMIT: usize = 100;
/// Subscriptions that are denied at once.
const DENIED_AT_ONCE: usize = 512;
/// Subscriptions of a denial that the audit log names; it counts the others.
const NAMED: usize = 20;

/// Whom and what a command is about.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Target {
    /// The URL of a topic.
    pub topic: Option<String>,
    /// The number of a subscription.
    pub subscription: Option<u64>,
    /// An origin, for example `https://destination.example`.
    pub host: Option<String>,
    /// An offset, to begin a replay at.
    pub from: Option<u64>,
    /// A moment, to begin a replay at, for example `2026-01-31T12:00:00Z`.
    pub since: Option<String>,
}

/// Which subscriptions to deny, and why.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToDeny {
    /// By their numbers …
    #[serde(default)]
    pub ids: Vec<u64>,
    /// … or all of this topic.
    pub topic: Option<String>,
    /// The reason that the subscribers get.
    #[serde(default)]
    pub reason: String,
}

/// A token to make.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToAdd {
    /// A name for it.
    pub name: String,
    /// Topics that begin like one of these.
    pub topic_prefixes: Vec<String>,
}

impl AdminService {
    /// Tries again now what waits for another attempt.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn retry(&self, by: By, target: &Target) -> Result<Done, Failed> {
        let (late, shard, what) = match (&target.topic, target.subscription, &target.host) {
            (Some(topic), None, None) => {
                let id = self.topic_by_url(topic).await?.id;
                (delivery::Target::Topic(id), None, format!("all late of {topic}"))
            }
            (None, Some(id), None) => {
                let (shard, _) = self.place_of(SubscriptionId(id)).await?;
                let late = delivery::Target::Subscription(SubscriptionId(id));
                (late, Some(shard), format!("subscription {id}"))
            }
            (None, None, Some(origin)) => {
                let (shard, origin) = self.known_host(origin).await?;
                let what = format!("host {origin}");
                (delivery::Target::Host(origin), Some(shard), what)
            }
            _ => return Err(Failed::asked("name a target: ?topic=URL, ?subscription=ID or ?host=ORIGIN")),
        };
        self.audited(by, "retry", &what, |service| service.execute(shard, Command::Retry(late))).await
    }

    /// Gives up the next notification for a late subscription.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn skip(&self, by: By, target: &Target) -> Result<Done, Failed> {
        let id = target.subscription.ok_or_else(|| Failed::asked("name a target: ?subscription=ID"))?;
        let done = |service: Self| async move {
            let done = match service.place_of(SubscriptionId(id)).await {
                Ok((shard, _)) => service.execute(Some(shard), Command::Skip(SubscriptionId(id))).await?,
                Err(Failed::Unknown(_)) => Done { subscriptions: 0 },
                Err(error) => return Err(error),
            };
            if done.subscriptions == 0 {
                let why = "this subscription is not late, or its delivery is under way: try again";
                return Err(Failed::Conflict(why.to_owned()));
            }
            Ok(done)
        };
        self.audited(by, "skip", &format!("the next notification of subscription {id}"), done).await
    }

    /// Delivers once more what the log holds from an offset or a moment on.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn replay(&self, by: By, target: &Target) -> Result<Done, Failed> {
        let subscription = target.subscription.map(SubscriptionId);
        let (topic, shard, whose) = match (&target.topic, subscription) {
            (Some(topic), None) => (self.topic_by_url(topic).await?.id, None, format!("all of {topic}")),
            (None, Some(id)) => {
                let (shard, topic) = self.place_of(id).await?;
                (topic, Some(shard), format!("subscription {}", id.0))
            }
            _ => return Err(Failed::asked("name a target: ?topic=URL or ?subscription=ID")),
        };
        let from = match (target.from, &target.since) {
            // What retention removed cannot be delivered again. That is no loss in the sense of the counters.
            (Some(offset), None) => Offset(offset).max(self.topic_by_id(topic).await?.first),
            (None, Some(since)) => {
                let since =
                    since.parse().map_err(|_| Failed::asked("since is a time like 2026-01-31T12:00:00Z"))?;
                self.store.first_since(topic, since).await?
            }
            _ => return Err(Failed::asked("say where to begin: &from=OFFSET or &since=TIME")),
        };
        let what = format!("{whose} from notification {from} on");
        let replay = Command::Replay { topic, subscription, from };
        self.audited(by, "replay", &what, |service| service.execute(shard, replay)).await
    }

    /// Delivers nothing of a topic until it is resumed.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn pause(&self, by: By, target: &Target) -> Result<(), Failed> {
        let (topic, url) = self.named(target).await?;
        let paused = |service: Self| async move {
            service.store.pause(topic).await?.then_some(()).ok_or(Failed::Unknown("topic"))
        };
        self.audited(by, "pause", url, paused).await
    }

    /// Lets deliveries of a topic go on.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn resume(&self, by: By, target: &Target) -> Result<(), Failed> {
        let (topic, url) = self.named(target).await?;
        let resumed = |service: Self| async move { Ok(service.store.resume(topic).await?) };
        self.audited(by, "resume", url, resumed).await
    }

    /// Ends subscriptions and notifies their callbacks (W-098, W-102). When this returns, they get nothing any more.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn deny(&self, by: By, denial: ToDeny) -> Result<Denied, Failed> {
        if denial.reason.len() > REASON_LIMIT || denial.reason.chars().any(char::is_control) {
            return Err(Failed::asked(format_args!("a reason is one line of at most {REASON_LIMIT} bytes")));
        }
        if denial.topic.is_none() && denial.ids.is_empty() {
            return Err(Failed::asked(
                "say whom: {\"ids\": [7], \"reason\": \"moved\"} or {\"topic\": \"https://…\"}",
            ));
        }
        let topic = match &denial.topic {
            Some(url) => match self.topic_by_url(url).await {
                Ok(topic) => Some(topic.id),
                Err(Failed::Unknown(_)) => None,
                Err(error) => return Err(error),
            },
            None => None,
        };
        let what = whom(&denial);
        let denied = |service: Self| async move { service.deny_all(&denial, topic).await };
        self.audited(by, "deny", &what, denied).await
    }

    /// If the disk fails, those that were begun are finished first. Damaged records hold up no others.
    async fn deny_all(&self, denial: &ToDeny, topic: Option<TopicId>) -> Result<Denied, Failed> {
        let ids: HashSet<_> = denial.ids.iter().copied().collect();
        let (mut done, mut damaged) = (Denied { denied: 0, unreadable: Vec::new() }, None);
        let partly = |done: &Denied, error| Failed::Partly { done: done.summary(), error };
        for shard in (0..self.store.shards()).map(Shard) {
            let mut found = self.store.ids(shard).await.map_err(|error| partly(&done, error))?;
            found.retain(|(of, id)| ids.contains(&id.0) || topic == Some(*of));
            for some in found.chunks(DENIED_AT_ONCE) {
                match self.deny_some(shard, some, &denial.reason, &mut done).await {
                    Err(error @ StoreError::Damaged { .. }) => damaged = Some(error),
                    ended => ended.map_err(|error| partly(&done, error))?,
                }
            }
        }
        damaged.map_or(Ok(()), |error| Err(partly(&done, error)))?;
        Ok(done)
    }

    /// Many at once, so that they share what each waits for: the disk. What cannot be read is sought in the whole index, so those
    /// follow one after the other.
    async fn deny_some(
        &self,
        shard: Shard,
        some: &[(TopicId, SubscriptionId)],
        reason: &str,
        done: &mut Denied,
    ) -> Result<(), StoreError> {
        let denials = some.iter().map(|(topic, id)| self.deny_one(shard, *topic, *id, reason));
        let (mut failed, mut damaged) = (None, Vec::new());
        for (denied, (topic, id)) in join_all(denials).await.into_iter().zip(some) {
            match denied {
                Ok(denied) => done.denied += usize::from(denied),
                Err(error @ StoreError::Damaged { .. }) => damaged.push((*topic, *id, error)),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)?;
        let mut elsewhere = None;
        for (topic, id, error) in damaged {
            if self.denials.end_unreadable(shard, topic, id).await? {
                done.denied += 1;
                done.unreadable.push(id.0);
            } else {
                elsewhere = Some(error);
            }
        }
        elsewhere.map_or(Ok(()), Err)
    }

    async fn deny_one(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let found = self.store.subscription(shard, topic, id).await?;
        let Some(Subscription { topic_url: topic, callback, .. }) = found else { return Ok(false) };
        let denial = NewDenial { topic, callback, reason: reason.to_owned(), scope: DenialScope::Everything };
        self.denials.deny(denial).await
    }

    /// Makes a publisher's token, which is shown only now.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn add_token(&self, by: By, token: ToAdd) -> Result<NewPublisher, Failed> {
        let ToAdd { name, topic_prefixes } = token;
        if name.is_empty() || name.len() > NAME_LIMIT || name.chars().any(char::is_control) {
            return Err(Failed::asked(format_args!("a name is one line of at most {NAME_LIMIT} bytes")));
        }
        if topic_prefixes.is_empty() {
            return Err(Failed::asked("say for which topics: a prefix is a URL with origin and folder"));
        }
        let what = format!("{name} for {}", topic_prefixes.join(" "));
        let added = |service: Self| async move {
            blocking(move || {
                let NewToken(token) = Tokens::add(&*service.registry, &name, topic_prefixes)?;
                Ok(NewPublisher { name, token })
            })
            .await?
        };
        self.audited(by, "token add", &what, added).await
    }

    /// Revokes a publisher's token at once.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn revoke_token(&self, by: By, name: &str) -> Result<(), Failed> {
        let whose = name.to_owned();
        let revoked = |service: Self| async move {
            blocking(move || Ok(Tokens::revoke(&*service.registry, &whose)?)).await?
        };
        self.audited(by, "token revoke", name, revoked).await
    }

    /// Reads the keys anew and rewrites every secret that is not under the first of them.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn rotate_secrets(&self, by: By) -> Result<Rotated, Failed> {
        let keys = Keyring::of(&self.secrets)?;
        let key = keys.writes_with().ok_or(KeyringError::None)?.to_string();
        let what = format!("to key {key}");
        let rotated = |service: Self| async move {
            match service.store.rotate_secrets(keys).await {
                Ok(rewritten) => Ok(Rotated { rewritten, key }),
                Err(error @ (StoreError::SecretsKey { .. } | StoreError::KeyElsewhere { .. })) => {
                    Err(Failed::Conflict(error.to_string()))
                }
                Err(error) => Err(Failed::Store(error)),
            }
        };
        self.audited(by, "rotate secrets", &what, rotated).await
    }

    /// What was done, newest first.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn audit_entries(&self, request: &PageRequest) -> Result<Page<Entry>, Failed> {
        let (audit, request) = (self.audit.clone(), request.clone());
        blocking(move || audit.list(&request)).await?
    }

    /// Records a login to the pages.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn logged_in(&self) -> Result<(), Failed> {
        self.audited(By::Pages, "log in", "", |_| async { Ok(()) }).await
    }

    /// Carries out a command in the shard that has all that it is about, or in all shards.
    async fn execute(self, shard: Option<Shard>, command: Command) -> Result<Done, Failed> {
        if let Some(shard) = shard {
            return Ok(Done { subscriptions: self.orders.execute_in(shard, command).await? });
        }
        let concerned = self.orders.execute(&command).await?;
        let here = Done { subscriptions: concerned.of_this_hub() };
        match concerned.of_all() {
            Ok(subscriptions) => Ok(Done { subscriptions }),
            Err(elsewhere) => Err(Failed::DoneHere { done: here.summary(), elsewhere }),
        }
    }

    async fn named<'a>(&self, target: &'a Target) -> Result<(TopicId, &'a str), Failed> {
        let url = target.topic.as_deref().ok_or_else(|| Failed::asked("name a target: ?topic=URL"))?;
        Ok((self.topic_by_url(url).await?.id, url))
    }

    /// An origin of subscriptions, however it is spelled, and the shard that has them all.
    async fn known_host(&self, origin: &str) -> Result<(Shard, String), Failed> {
        let url = CallbackUrl::parse(origin)
            .map_err(|_| Failed::asked("the host is an origin like https://destination.example"))?;
        let (shard, origin) = (Shard::of(&url, self.store.shards()), url.origin());
        let is_known = match self.operator.knows_host(shard, origin.clone()).await {
            // Its owner will say.
            Err(NoAnswer::NotOwned(_)) => true,
            known => known?,
        };
        is_known.then_some((shard, origin)).ok_or(Failed::Unknown("host of a subscription"))
    }

    /// Carries out a command between two lines of the audit log, and completes it even if the client hangs up.
    pub(super) async fn audited<T, F>(
        &self,
        by: By,
        act: &'static str,
        what: &str,
        work: impl FnOnce(Self) -> F,
    ) -> Result<T, Failed>
    where
        T: Outcome + Send + 'static,
        F: Future<Output = Result<T, Failed>> + Send + 'static,
    {
        let (audit, what, work) = (self.audit.clone(), what.to_owned(), work(self.clone()));
        run_to_completion(async move {
            let (begins, begun) = (audit.clone(), what.clone());
            let begun = blocking(move || begins.begin(by, act, &begun)).await??;
            let done = work.await;
            let outcome = done.as_ref().map_or_else(ToString::to_string, Outcome::summary);
            info!(?by, act, what, %outcome, "operator");
            blocking(move || audit.end(begun, &outcome)).await?;
            done
        })
        .await
    }
}

/// Whom a denial is for, and why, in a line that has a bound.
fn whom(denial: &ToDeny) -> String {
    let mut whom = named(&denial.ids);
    whom.extend(denial.topic.iter().map(|url| format!("all of {url}")));
    format!("{}: {:?}", whom.join(", "), denial.reason)
}

/// The first of these subscriptions, and how many others there are.
fn named(ids: &[u64]) -> Vec<String> {
    let mut named: Vec<_> = ids.iter().take(NAMED).map(|id| format!("subscription {id}")).collect();
    if let others @ 1.. = ids.len().saturating_sub(NAMED) {
        named.push(format!("and {others} others"));
    }
    named
}

/// Runs this on a blocking thread, since the disk may be slow.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failed> {
    tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Read(error.to_string()).into())
}

/// What came of a command, in a few words.
pub(super) trait Outcome {
    fn summary(&self) -> String;
}

impl Outcome for () {
    fn summary(&self) -> String {
        "done".to_owned()
    }
}

impl Outcome for Done {
    fn summary(&self) -> String {
        counted(self.subscriptions, "subscription", "subscriptions")
    }
}

impl Outcome for Export {
    fn summary(&self) -> String {
        counted(self.subscriptions.len(), "subscription", "subscriptions")
    }
}

impl Outcome for Denied {
    fn summary(&self) -> String {
        let denied = format!("{} denied", self.denied);
        match self.unreadable.as_slice() {
            [] => denied,
            unreadable => {
                format!("{denied}; unreadable, removed and not notified: {}", named(unreadable).join(", "))
            }
        }
    }
}

impl Outcome for NewPublisher {
    fn summary(&self) -> String {
        "made".to_owned()
    }
}

impl Outcome for Rotated {
    fn summary(&self) -> String {
        counted(self.rewritten, "secret rewritten", "secrets rewritten")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::delivery::testing;
    use crate::store::{self, Engine, Keyring, Store};
    use crate::subscriptions::NotOwned;

    const TOPIC: &str = "https://source.example/t";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_subscription_that_cannot_be_read_ends_like_the_others_and_leaves_nothing_to_mend() {
        let folder = tempfile::tempdir().unwrap();
        subscribe(folder.path(), ["d", "e"]).await;
        store::damage_subscription(folder.path());

        let service = AdminService::where_nothing_is_delivered(open(folder.path()), folder.path());
        let Denied { denied, unreadable } = service.deny(By::Api, to_topic()).await.unwrap();
        assert_eq!((denied, unreadable.len()), (2, 1));
        let again = ToDeny { ids: unreadable, ..ToDeny::default() };
        assert_eq!(service.deny(By::Api, again).await.unwrap().denied, 0, "it is gone");
        drop(service);
        assert_eq!(store::check(Engine::Fjall, folder.path(), &Keyring::none()).unwrap().faults, [""; 0]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_pair_whose_index_is_damaged_stays_and_holds_up_nobody_elses_denial() {
        let folder = tempfile::tempdir().unwrap();
        subscribe(folder.path(), ["d", "e", "f"]).await;
        store::damage_subscription_index(folder.path());

        let service = AdminService::where_nothing_is_delivered(open(folder.path()), folder.path());
        let failed = service.deny(By::Api, to_topic()).await.unwrap_err();
        let Failed::Partly { done, error } = failed else { panic!("{failed}") };
        assert_eq!(done, "2 denied");
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let again = service.deny(By::Api, to_topic()).await.unwrap_err();
        assert!(again.to_string().starts_with("0 denied; not all: "), "{again}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_command_for_one_subscription_or_host_needs_its_shard_alone_and_names_it_if_it_is_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let delivery = testing::workers(&store).await;
        let (mut known, topic): (Vec<(Shard, Subscription)>, _) = (Vec::new(), TOPIC.parse().unwrap());
        for number in 0.. {
            let callback = format!("https://d{number}.example/").parse().unwrap();
            if known.iter().all(|(shard, _)| *shard != Shard::of(&callback, store.shards())) {
                known.push(store::subscribe(&*store, &topic, &callback).await);
            }
            if known.len() == 2 {
                break;
            }
        }
        let [(here, own), (elsewhere, other)] = &known[..] else { unreachable!("there are two") };
        delivery.owner().take(*here).await.unwrap();
        let nothing = AdminService::where_nothing_is_delivered(store, folder.path());
        let (operator, orders) = (delivery.operator(), delivery.orders());
        let service = AdminService { operator, orders, ..nothing };
        let of = |of: &Subscription| Target { subscription: Some(of.id.0), ..Target::default() };
        let host = |of: &Subscription| Target { host: Some(of.callback.origin()), ..Target::default() };

        for target in [of(own), host(own)] {
            assert_eq!(service.retry(By::Api, &target).await.unwrap().subscriptions, 0, "it is not late");
        }
        let skipped = service.skip(By::Api, &of(own)).await;
        assert!(matches!(skipped, Err(Failed::Conflict(_))), "{skipped:?}");
        let not_owned = |failed: Failed| {
            assert!(matches!(failed, Failed::NotOwned(NotOwned(shard)) if shard == *elsewhere), "{failed:?}");
            assert!(failed.to_string().contains(&format!("shard {}: ask again", elsewhere.0)), "{failed}");
        };
        for target in [of(other), host(other)] {
            not_owned(service.retry(By::Api, &target).await.unwrap_err());
        }
        not_owned(service.skip(By::Api, &of(other)).await.unwrap_err());
        not_owned(service.subscription(other.id.0).await.unwrap_err());
        let from = Some(0);
        not_owned(service.replay(By::Api, &Target { from, ..of(other) }).await.unwrap_err());
        assert_eq!(service.export(By::Api, other.id.0).await.unwrap().subscriptions.len(), 1, "it is stored");
        let nobody = Target { subscription: Some(other.id.0 + 1), ..Target::default() };
        assert!(matches!(service.retry(By::Api, &nobody).await, Err(Failed::Unknown(_))));
        let all = Target { topic: Some(TOPIC.to_owned()), ..Target::default() };
        assert!(matches!(service.retry(By::Api, &all).await, Err(Failed::DoneHere { .. })));
        delivery.stop().await;
    }

    fn to_topic() -> ToDeny {
        ToDeny { topic: Some(TOPIC.to_owned()), ..ToDeny::default() }
    }

    fn open(folder: &Path) -> Arc<dyn Store> {
        store::open(Engine::Fjall, folder, Keyring::none(), 0).unwrap()
    }

    /// Subscriptions of these hosts, in a store that is closed again.
    async fn subscribe<const N: usize>(folder: &Path, hosts: [&str; N]) {
        let (store, topic) = (open(folder), TOPIC.parse().unwrap());
        for host in hosts {
            let callback = format!("https://{host}.example/").parse().unwrap();
            store::subscribe(&*store, &topic, &callback).await;
        }
    }

    #[test]
    fn a_denial_of_very_many_is_one_short_line_of_the_audit_log() {
        let denial = |ids| ToDeny { ids, topic: None, reason: "moved".to_owned() };
        assert_eq!(whom(&denial(vec![7, 9])), "subscription 7, subscription 9: \"moved\"");
        let told = whom(&denial((1..=100_000).collect()));
        assert!(told.ends_with(", subscription 20, and 99980 others: \"moved\""), "{told}");
    }

    #[test]
    fn who_was_denied_without_being_told_is_named_in_the_audit_log() {
        let told = |unreadable| Denied { denied: 3, unreadable }.summary();
        assert_eq!(told(vec![]), "3 denied");
        assert_eq!(
            told(vec![7, 9]),
            "3 denied; unreadable, removed and not notified: subscription 7, subscription 9"
        );
    }
}
