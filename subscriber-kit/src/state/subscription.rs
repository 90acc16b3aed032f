//! The phases of a subscription, and what the hub's verifications and denials change.
//!
//! The [`Subscriber`](crate::subscribe::Subscriber) sends the requests; verifications and denials arrive at the
//! [`Callback`](crate::receive::Callback).

use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::websub::identity::NotificationId;
use resync_core::websub::key::TopicUrl;
use resync_core::websub::secret::Secret;
use resync_core::websub::verification::Verification;

use super::state_file::{Mode, Pending, Record, TimedSecret};
use super::{StateError, SubscriptionId, Subscriptions, Window};
use crate::discover::Channel;

/// How long a request to the hub may be verified; hubs may be busy.
const PENDING_FOR: Duration = Duration::from_secs(3600);

/// How long a confirmed request may be verified again, by a hub that did not get the answer.
const CONFIRMED_FOR: Duration = Duration::from_secs(60);

/// How much slower a hub's clock may run over a lease.
const MAX_CLOCK_DRIFT: Duration = Duration::from_secs(60);

/// Longer leases are shortened to this: ten years, in seconds.
const LONGEST_LEASE: u64 = 315_360_000;

/// How many subscriptions to channels that the Source no longer names are kept.
const KEPT_OUTSIDE: usize = 64;

/// How many bytes of a hub's reason are kept.
const MAX_REASON: usize = 1024;

/// After what time a secret is replaced (W-063), and how long the previous one stays valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    pub(crate) after: Duration,
    pub(crate) grace: Duration,
}

/// The phase of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The hub has not confirmed it yet.
    Pending,
    /// The hub delivers until `expires`.
    Active {
        /// When the lease ends.
        expires: DateTime,
    },
    /// The hub delivers until `expires` and was asked for a new lease.
    Renewing {
        /// When the old lease ends.
        expires: DateTime,
    },
    /// Its lease has ended: the hub sends nothing until it grants another one.
    Expired {
        /// When the lease ended.
        since: DateTime,
    },
    /// It was ended on request (W-009).
    Ended,
    /// The hub refuses it (W-103).
    Denied {
        /// The hub's reason; empty when it gave none.
        reason: String,
    },
}

/// A summary of one subscription.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Subscription {
    /// Its topic.
    pub topic: TopicUrl,
    /// The hub.
    pub hub: String,
    /// Its phase.
    pub phase: Phase,
    /// The lease the hub granted, in seconds.
    pub lease_seconds: Option<u64>,
    /// The callback's origin; the rest is the capability and stays secret.
    pub callback_origin: Option<String>,
    /// The last notification that was handled.
    pub last: Option<NotificationId>,
}

/// What the callback answers to a verification or denial.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum VerificationAnswer {
    /// Confirmed: echo this challenge (W-116).
    Echo(String),
    /// The denial was recorded.
    Denied,
    /// No such request is pending (W-117).
    NotPending,
}

impl Subscriptions {
    /// Records a request before it is sent to the hub, so that its verification is expected.
    pub(crate) async fn expect(
        &self,
        id: &SubscriptionId,
        mode: Mode,
        callback: String,
        rotation: Option<Rotation>,
    ) -> Result<(), StateError> {
        let token = id.0.clone();
        let until_unix_millis = in_the_future(PENDING_FOR);
        self.update(move |state_file| {
            if let Some(record) = state_file.record(&token) {
                record.pending = Some(Pending { mode, until_unix_millis, confirmed: false });
                record.callback = Some(callback);
                record.denied = None;
                record.ended = record.ended && mode == Mode::Unsubscribe;
                if let Some(rotation) = rotation.filter(|_| mode == Mode::Subscribe) {
                    record.rotate(rotation);
                }
            }
        })
        .await
    }

    /// Handles a verification or denial; what changes is durable before the answer.
    pub(crate) async fn verify(
        &self,
        token: &str,
        verification: Verification,
    ) -> Result<VerificationAnswer, StateError> {
        let now = DateTime::now().unix_millis();
        // First without writing: a stranger must not make this process write.
        let is_expected = self.with(token, |record| record.expects(&verification, now)).unwrap_or(false);
        if !is_expected {
            return Ok(VerificationAnswer::NotPending);
        }
        let token = token.to_owned();
        self.update(move |state_file| {
            let record = state_file.record(&token);
            record.map_or(VerificationAnswer::NotPending, |record| record.accept(verification, now))
        })
        .await
    }

    /// What to echo to a hub that re-verifies an active subscription (W-065), for example because the callback's name resolves
    /// to another address. Nothing changes. `is_signed` checks that the hub knows one of these secrets; anybody else may want
    /// to subscribe this callback to something.
    pub(crate) fn reverify(
        &self,
        token: &str,
        verification: &Verification,
        is_signed: impl FnOnce(&[Secret]) -> bool,
    ) -> Option<String> {
        let now = DateTime::now();
        let answer = |record: &Record| {
            let challenge = record.reverification(verification, now)?;
            is_signed(&record.secrets(now.unix_millis())).then_some(challenge)
        };
        self.with(token, answer).flatten()
    }

    /// All subscriptions.
    #[must_use]
    pub fn list(&self) -> Vec<Subscription> {
        let summaries = self.with_state_file(|state_file| {
            let records = state_file.subscriptions.iter();
            records.map(|record| (record.id(), record.summary())).collect::<Vec<_>>()
        });
        summaries.into_iter().map(|(id, summary)| self.with_last(&id, summary)).collect()
    }

    /// The window knows more than the record.
    fn with_last(&self, id: &SubscriptionId, summary: Subscription) -> Subscription {
        // Only looked up: it may have been forgotten just now.
        Subscription { last: self.shared.windows().get(&*id.0).and_then(Window::last), ..summary }
    }

    /// The active subscriptions.
    pub(crate) fn active(&self) -> Vec<SubscriptionId> {
        self.outside(&[])
    }

    /// The active subscriptions to other channels than these.
    pub(crate) fn outside(&self, channels: &[Channel]) -> Vec<SubscriptionId> {
        let now = DateTime::now();
        let is_outside = |record: &&Record| {
            record.phase(now).is_active() && !channels.iter().any(|channel| channel.is_of(record))
        };
        self.with_state_file(|state_file| {
            state_file.subscriptions.iter().filter(is_outside).map(Record::id).collect()
        })
    }

    /// Forgets the subscriptions to other channels than these beyond some, so that a Source that names others every time does not
    /// make the state grow. Those with notifications that are not handled stay.
    pub(crate) async fn forget_outside(&self, channels: &[Channel]) -> Result<(), StateError> {
        let is_wanted = |record: &Record| channels.iter().any(|channel| channel.is_of(record));
        let unwanted = self.with_state_file(|state_file| state_file.unwanted(KEPT_OUTSIDE, is_wanted));
        if unwanted.is_empty() {
            return Ok(());
        }
        let subscriptions = self.clone();
        self.update(move |state_file| {
            state_file.subscriptions.retain(|record| {
                !unwanted.contains(&record.token) || !subscriptions.shared.close_window(&record.token)
            });
        })
        .await
    }

    /// One subscription.
    #[must_use]
    pub fn get(&self, id: &SubscriptionId) -> Option<Subscription> {
        Some(self.with_last(id, self.with(&id.0, Record::summary)?))
    }
}

impl Phase {
    /// Whether the hub delivers.
    #[must_use]
    pub fn is_active(&self) -> bool {
        matches!(self, Self::Active { .. } | Self::Renewing { .. })
    }
}

impl Record {
    pub(super) fn summary(&self) -> Subscription {
        Subscription {
            topic: self.topic.clone(),
            hub: self.hub.clone(),
            phase: self.phase(DateTime::now()),
            lease_seconds: self.lease_seconds,
            callback_origin: self.callback().map(|callback| callback.origin()),
            last: self.handled.last,
        }
    }

    pub(crate) fn expires(&self) -> Option<DateTime> {
        self.expires_unix_millis.and_then(|millis| DateTime::from_unix_millis(millis).ok())
    }

    pub(crate) fn phase(&self, now: DateTime) -> Phase {
        if let Some(reason) = &self.denied {
            return Phase::Denied { reason: reason.clone() };
        }
        if self.ended {
            return Phase::Ended;
        }
        let is_requested = self.pending.is_some_and(|pending| !pending.confirmed);
        match self.expires() {
            Some(expires) if expires > now && is_requested => Phase::Renewing { expires },
            Some(expires) if expires > now => Phase::Active { expires },
            Some(since) => Phase::Expired { since },
            None => Phase::Pending,
        }
    }

    /// Whether topic and mode are those of a pending request (W-115). A denial may come at any time (W-102).
    fn expects(&self, verification: &Verification, now: i64) -> bool {
        let pending = |mode| {
            self.pending.is_some_and(|pending| pending.mode == mode && pending.until_unix_millis >= now)
        };
        match verification {
            Verification::Subscribe { topic, .. } => topic == self.topic.as_str() && pending(Mode::Subscribe),
            Verification::Unsubscribe { topic, .. } => {
                topic == self.topic.as_str() && pending(Mode::Unsubscribe)
            }
            Verification::Denied { topic, .. } => topic == self.topic.as_str(),
        }
    }

    /// The challenge of a re-verification: of an active subscription, for no longer lease, and not while it is being ended.
    fn reverification(&self, verification: &Verification, now: DateTime) -> Option<String> {
        let (Phase::Active { expires } | Phase::Renewing { expires }) = self.phase(now) else { return None };
        let is_leaving = self.pending.is_some_and(|pending| pending.mode == Mode::Unsubscribe);
        let left =
            expires.unix_millis().saturating_sub(now.unix_millis()).saturating_add(millis(MAX_CLOCK_DRIFT));
        match verification {
            Verification::Subscribe { topic, challenge, lease }
                if topic == self.topic.as_str()
                    && !is_leaving
                    && millis(Duration::from_secs((*lease).min(LONGEST_LEASE))) <= left =>
            {
                Some(challenge.as_str().to_owned())
            }
            _ => None,
        }
    }

    fn accept(&mut self, verification: Verification, now: i64) -> VerificationAnswer {
        // Again under the lock: it may have changed since.
        if !self.expects(&verification, now) {
            return VerificationAnswer::NotPending;
        }
        match verification {
            Verification::Subscribe { challenge, lease, .. } => {
                let lease = lease.min(LONGEST_LEASE);
                self.lease_seconds = Some(lease);
                self.expires_unix_millis = Some(in_the_future(Duration::from_secs(lease)));
                self.take_next_secret();
                self.confirm();
                VerificationAnswer::Echo(challenge.as_str().to_owned())
            }
            Verification::Unsubscribe { challenge, .. } => {
                self.ended = true;
                self.expires_unix_millis = None;
                self.confirm();
                VerificationAnswer::Echo(challenge.as_str().to_owned())
            }
            Verification::Denied { reason, .. } => {
                self.denied = Some(cut(reason.unwrap_or_default()));
                self.pending = None;
                self.expires_unix_millis = None;
                self.ask_for_another_secret();
                VerificationAnswer::Denied
            }
        }
    }

    /// A new secret stays the requested one until the hub confirms it. Before the first lease nobody used the secret, so it is not
    /// replaced.
    fn rotate(&mut self, rotation: Rotation) {
        let now = DateTime::now();
        let is_old = now.unix_millis().saturating_sub(self.secret_since) >= millis(rotation.after);
        if self.next_secret.is_none() && is_old && self.expires().is_some_and(|expires| expires > now) {
            let unix_millis = millis(rotation.grace);
            self.next_secret = Some(TimedSecret { secret: Secret::random(), unix_millis });
        }
    }

    /// A hub whose secrets have leaked denies all subscriptions, so that none goes on with its old secret.
    fn ask_for_another_secret(&mut self) {
        self.next_secret = Some(TimedSecret { secret: Secret::random(), unix_millis: 0 });
    }

    /// The hub has the new secret; deliveries signed with the old one may still arrive.
    fn take_next_secret(&mut self) {
        let Some(next) = self.next_secret.take() else { return };
        let now = DateTime::now().unix_millis();
        let old = std::mem::replace(&mut self.secret, next.secret);
        self.old_secret =
            Some(TimedSecret { secret: old, unix_millis: now.saturating_add(next.unix_millis) });
        self.secret_since = now;
    }

    fn confirm(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.confirmed = true;
            pending.until_unix_millis = pending.until_unix_millis.min(in_the_future(CONFIRMED_FOR));
        }
    }
}

/// The beginning of a hub's reason.
fn cut(mut reason: String) -> String {
    let end = (0..=MAX_REASON.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
    reason.truncate(end.unwrap_or(0));
    reason
}

fn in_the_future(time: Duration) -> i64 {
    DateTime::now().unix_millis().saturating_add(millis(time))
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Channel {
    fn is_of(&self, record: &Record) -> bool {
        self.topic == record.topic && self.hubs.iter().any(|hub| hub.as_str() == record.hub)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateFile;
    use resync_core::websub::verification::Challenge;
    use url::Url;

    const TOPIC: &str = "http://source.example/topic?a=1";

    async fn pending(mode: Mode) -> (Subscriptions, SubscriptionId) {
        let subscriptions = Subscriptions::in_memory();
        let hub = Url::parse("http://hub.example/").unwrap();
        let id = subscriptions.add(&TopicUrl::parse(TOPIC).unwrap(), &hub).await.unwrap();
        subscriptions.expect(&id, mode, "http://me.example/cb/x".into(), None).await.unwrap();
        (subscriptions, id)
    }

    fn subscribe(topic: &str, lease: u64) -> Verification {
        Verification::Subscribe { topic: topic.into(), challenge: Challenge::random(), lease }
    }

    #[tokio::test]
    async fn of_a_source_that_names_other_channels_every_time_few_subscriptions_are_kept() {
        let subscriptions = Subscriptions::in_memory();
        let hub = Url::parse("http://hub.example/").unwrap();
        let topic = |number| TopicUrl::parse(&format!("http://source.example/{number}")).unwrap();
        for number in 0..200 {
            let channel = Channel { topic: topic(number), hubs: vec![hub.clone()] };
            let id = subscriptions.add(&channel.topic, &hub).await.unwrap();
            match number {
                0 => subscriptions.with_window(&id.0, Window::add_unhandled),
                1 => {
                    let (token, now) = (id.0.clone(), DateTime::now().unix_millis());
                    let confirm = move |state_file: &mut StateFile| {
                        state_file.record(&token).unwrap().expires_unix_millis = Some(now);
                    };
                    subscriptions.update(confirm).await.unwrap();
                }
                _ => {}
            }
            subscriptions.forget_outside(&[channel]).await.unwrap();
        }
        let left: Vec<_> = subscriptions.list().into_iter().map(|one| one.topic).collect();
        assert_eq!(left.len(), 1 + KEPT_OUTSIDE + 1, "{left:?}");
        assert!([0, 1, 198, 199].into_iter().all(|kept| left.contains(&topic(kept))), "{left:?}");
    }

    #[tokio::test]
    async fn w115_w116_what_is_pending_is_confirmed_and_becomes_active() {
        let (subscriptions, id) = pending(Mode::Subscribe).await;
        assert_eq!(subscriptions.get(&id).unwrap().phase, Phase::Pending);
        let verdict = subscriptions.verify(&id.0, subscribe(TOPIC, 600)).await.unwrap();
        assert!(matches!(verdict, VerificationAnswer::Echo(challenge) if challenge.len() == 64));
        let Phase::Active { expires } = subscriptions.get(&id).unwrap().phase else { panic!("active") };
        let left = expires.unix_millis() - DateTime::now().unix_millis();
        assert!((590_000..=600_000).contains(&left), "{left}");
    }

    #[tokio::test]
    async fn w065_a_hub_that_proves_who_it_is_hears_yes_about_what_is_in_force_and_nothing_changes() {
        let (subscriptions, id) = pending(Mode::Subscribe).await;
        let ask = |topic: &str, lease| subscriptions.reverify(&id.0, &subscribe(topic, lease), |_| true);
        assert_eq!(ask(TOPIC, 60), None, "nothing is in force yet");
        subscriptions.verify(&id.0, subscribe(TOPIC, 600)).await.unwrap();
        let record = || subscriptions.with(&id.0, |record| format!("{record:?}")).unwrap();
        let before = record();
        assert!(ask(TOPIC, 600).is_some_and(|challenge| challenge.len() == 64));
        let foreign = subscriptions.reverify(&id.0, &subscribe(TOPIC, 600), |_| false);
        assert_eq!(foreign, None, "that is no hub of ours");
        assert_eq!(ask(TOPIC, 700), None, "that is more than what is left");
        assert_eq!(ask("http://source.example/other", 60), None);
        assert_eq!(record(), before);

        let callback = || "http://me.example/cb/x".to_owned();
        subscriptions.expect(&id, Mode::Subscribe, callback(), None).await.unwrap();
        assert!(ask(TOPIC, 600).is_some(), "the old lease goes on");
        assert!(matches!(subscriptions.get(&id).unwrap().phase, Phase::Renewing { .. }));
        subscriptions.expect(&id, Mode::Unsubscribe, callback(), None).await.unwrap();
        assert_eq!(ask(TOPIC, 600), None, "nobody wants that any more");
        let denied = Verification::Denied { topic: TOPIC.into(), reason: None };
        subscriptions.verify(&id.0, denied).await.unwrap();
        assert_eq!(ask(TOPIC, 600), None);
    }

    #[tokio::test]
    async fn w115_w117_what_is_in_force_is_not_confirmed_to_whoever_asks() {
        let (subscriptions, id) = pending(Mode::Subscribe).await;
        subscriptions.verify(&id.0, subscribe(TOPIC, 600)).await.unwrap();
        subscriptions.update(|state_file| state_file.subscriptions[0].pending = None).await.unwrap();
        let foreign = subscriptions.verify(&id.0, subscribe(TOPIC, 60)).await;
        assert_eq!(foreign.unwrap(), VerificationAnswer::NotPending);
    }

    #[tokio::test]
    async fn w117_another_topic_mode_or_path_is_not_confirmed() {
        let (subscriptions, id) = pending(Mode::Subscribe).await;
        let unsubscribe =
            Verification::Unsubscribe { topic: TOPIC.into(), challenge: Challenge::random(), lease: None };
        for (token, verification) in [
            (&*id.0, subscribe("http://source.example/topic?a=1?invalid", 600)),
            (&*id.0, unsubscribe),
            ("guessed", subscribe(TOPIC, 600)),
        ] {
            assert_eq!(
                subscriptions.verify(token, verification).await.unwrap(),
                VerificationAnswer::NotPending
            );
        }
        assert_eq!(subscriptions.get(&id).unwrap().phase, Phase::Pending);
    }

    #[tokio::test]
    async fn w103_a_denial_ends_an_active_subscription_too() {
        let (subscriptions, id) = pending(Mode::Subscribe).await;
        subscriptions.verify(&id.0, subscribe(TOPIC, 600)).await.unwrap();
        let denied = Verification::Denied { topic: TOPIC.into(), reason: Some("quota".into()) };
        assert_eq!(subscriptions.verify(&id.0, denied).await.unwrap(), VerificationAnswer::Denied);
        assert_eq!(subscriptions.get(&id).unwrap().phase, Phase::Denied { reason: "quota".into() });
    }

    #[tokio::test]
    async fn w103_of_a_long_reason_of_a_hub_a_kibibyte_is_kept_and_no_half_character() {
        for (reason, kept) in [("x".repeat(1025), 1024), ("\u{20ac}".repeat(1000), 1023)] {
            let (subscriptions, id) = pending(Mode::Subscribe).await;
            let denied = Verification::Denied { topic: TOPIC.into(), reason: Some(reason.as_str().into()) };
            subscriptions.verify(&id.0, denied).await.unwrap();
            let Phase::Denied { reason: found } = subscriptions.get(&id).unwrap().phase else {
                panic!("denied")
            };
            assert_eq!((found.len(), reason.starts_with(&found)), (kept, true));
        }
    }

    #[tokio::test]
    async fn w103_after_a_denial_another_secret_is_requested_and_the_old_one_is_void() {
        let (subscriptions, id) = pending(Mode::Subscribe).await;
        subscriptions.verify(&id.0, subscribe(TOPIC, 600)).await.unwrap();
        let is_valid = |secret: &Secret| {
            let now = DateTime::now().unix_millis();
            subscriptions.with(&id.0, |record| record.secrets(now).contains(secret)).unwrap()
        };
        let asked_for = || subscriptions.with(&id.0, Record::secret_to_request).unwrap();
        let old = asked_for();
        let denied = Verification::Denied { topic: TOPIC.into(), reason: None };
        subscriptions.verify(&id.0, denied).await.unwrap();
        subscriptions.expect(&id, Mode::Subscribe, "http://me.example/cb/x".to_owned(), None).await.unwrap();
        let new = asked_for();
        assert_ne!(new, old);
        subscriptions.verify(&id.0, subscribe(TOPIC, 600)).await.unwrap();
        assert_eq!((is_valid(&new), is_valid(&old), asked_for()), (true, false, new.clone()));
    }

    #[tokio::test]
    async fn w113_an_unsubscribe_needs_no_lease_and_ends_the_subscription() {
        let (subscriptions, id) = pending(Mode::Unsubscribe).await;
        let unsubscribe =
            Verification::Unsubscribe { topic: TOPIC.into(), challenge: Challenge::random(), lease: None };
        assert!(matches!(
            subscriptions.verify(&id.0, unsubscribe).await.unwrap(),
            VerificationAnswer::Echo(_)
        ));
        assert_eq!(subscriptions.get(&id).unwrap().phase, Phase::Ended);
    }

    #[tokio::test]
    async fn w062_a_renewal_that_is_not_verified_leaves_the_old_lease() {
        let (subscriptions, id) = pending(Mode::Subscribe).await;
        subscriptions.verify(&id.0, subscribe(TOPIC, 600)).await.unwrap();
        let again = Pending { mode: Mode::Subscribe, until_unix_millis: i64::MAX, confirmed: false };
        subscriptions
            .update(move |state_file| state_file.subscriptions[0].pending = Some(again))
            .await
            .unwrap();
        assert!(matches!(subscriptions.get(&id).unwrap().phase, Phase::Renewing { .. }));
    }

    #[tokio::test]
    async fn w063_a_new_secret_counts_at_once_and_the_old_one_for_its_grace() {
        let (subscriptions, id) = pending(Mode::Subscribe).await;
        let secrets = |at: i64| {
            let texts =
                |record: &Record| record.secrets(at).iter().map(|one| one.as_bytes().to_vec()).collect();
            subscriptions.with(&id.0, texts).unwrap()
        };
        let ask = async |after: u64| {
            let rotation = Rotation { after: Duration::from_secs(after), grace: Duration::from_secs(60) };
            let callback = "http://me.example/cb/x".to_owned();
            subscriptions.expect(&id, Mode::Subscribe, callback, Some(rotation)).await.unwrap();
        };
        let first: Vec<Vec<u8>> = secrets(0);
        ask(0).await;
        assert_eq!(secrets(0), first, "no lease runs: nobody has used it yet");
        subscriptions.verify(&id.0, subscribe(TOPIC, 600)).await.unwrap();
        ask(3600).await;
        assert_eq!(secrets(0), first, "it is young");
        ask(0).await;
        let both = secrets(0);
        assert_eq!((both.len(), &both[0]), (2, &first[0]), "the hub may have either");
        ask(0).await;
        assert_eq!(secrets(0), both, "a request that is repeated asks for the same");
        subscriptions.verify(&id.0, subscribe(TOPIC, 600)).await.unwrap();
        let now = DateTime::now().unix_millis();
        assert_eq!(secrets(now), [both[1].clone(), both[0].clone()]);
        assert_eq!(secrets(now + 61_000), [both[1].clone()]);
    }

    #[tokio::test]
    async fn a_lease_that_has_ended_is_not_pending() {
        let (subscriptions, id) = pending(Mode::Subscribe).await;
        subscriptions.verify(&id.0, subscribe(TOPIC, 600)).await.unwrap();
        let ended = DateTime::now().unix_millis() - 1000;
        let end = move |state_file: &mut super::super::StateFile| {
            state_file.subscriptions[0].expires_unix_millis = Some(ended);
        };
        subscriptions.update(end).await.unwrap();
        let phase = subscriptions.get(&id).unwrap().phase;
        assert!(matches!(phase, Phase::Expired { since } if since.unix_millis() == ended), "{phase:?}");
    }

    #[tokio::test]
    async fn a_lease_beyond_all_reason_does_not_overflow() {
        let (subscriptions, id) = pending(Mode::Subscribe).await;
        subscriptions.verify(&id.0, subscribe(TOPIC, u64::MAX)).await.unwrap();
        assert!(matches!(subscriptions.get(&id).unwrap().phase, Phase::Active { .. }));
    }
}
