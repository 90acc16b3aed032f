//! Publishers and strangers in any mixture share a log: who is within its part loses nothing, and all together stay within theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, TopicUrl};

use super::Embedded;
use super::reserve::DiskReserve;
use super::testing::Fragile;
use crate::store::VerifiedSubscription;
use crate::store::{
    Admin, ContentKind, Ended, Epoch, Intent, Keyring, Log, NewNotification, NewRequest, Offset, Payer,
    Progress, Requests, Shard, Shares, Subscriptions, Trimmed, posted,
};

const SHARES: Shares = Shares { publishers: 12_000, strangers: 8_000 };
/// What is left of the strangers' share once room was made.
const AIM: u64 = SHARES.strangers - SHARES.strangers / 16;

/// A topic, by who pays for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Publisher(u8),
    /// The client that subscribes, the network, the host on it, the topic on that.
    Stranger(u8, u8, u8, u8),
}

impl Of {
    fn url(self) -> TopicUrl {
        let text = match self {
            Self::Publisher(topic) => format!("https://library.example/{topic}"),
            Self::Stranger(_, network, host, topic) => format!("https://h{host}.n{network}.example/{topic}"),
        };
        text.parse().unwrap()
    }

    fn client(self) -> Option<IpAddr> {
        match self {
            Self::Publisher(_) => None,
            Self::Stranger(client, ..) => Some(IpAddr::from([198, 51, 100, client])),
        }
    }

    fn callback(self) -> CallbackUrl {
        format!("https://destination.example/{}", hex::encode(self.url().as_str())).parse().unwrap()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(Of, usize),
    Subscribe(Of),
    Unsubscribe(Of),
    /// Whoever is subscribed reads what it has not got, and is told of what is gone.
    Deliver(Of),
    MakeRoom,
    Trim,
    Reopen,
}

fn of() -> impl Strategy<Value = Of> {
    prop_oneof![
        (0..3_u8).prop_map(Of::Publisher),
        // One that has little, one with many hosts, one with many topics on a host, one with many networks, and one with many topics
        // on the host of the first.
        (0..2_u8).prop_map(|topic| Of::Stranger(0, 0, 0, topic)),
        (0..6_u8).prop_map(|host| Of::Stranger(1, 1, host, 0)),
        (0..6_u8).prop_map(|topic| Of::Stranger(2, 2, topic % 2, topic)),
        (3..8_u8).prop_map(|network| Of::Stranger(3, network, 0, 0)),
        (2..8_u8).prop_map(|topic| Of::Stranger(4, 0, 0, topic)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![6 => 0..1_000_usize, 1 => 1_000..7_000_usize];
    prop_oneof![
        12 => (of(), bytes).prop_map(|(of, bytes)| Step::Append(of, bytes)),
        2 => of().prop_map(Step::Subscribe),
        1 => of().prop_map(Step::Unsubscribe),
        2 => of().prop_map(Step::Deliver),
        3 => Just(Step::MakeRoom),
        2 => Just(Step::Trim),
        1 => Just(Step::Reopen),
    ]
}

/// What is in each log, the oldest first, and whose subscription has got how much of it.
#[derive(Clone, Default)]
struct Model {
    logs: BTreeMap<Of, BTreeMap<u64, u64>>,
    cursors: BTreeMap<Of, u64>,
    gaps: BTreeSet<Of>,
    now: i64,
}

impl Model {
    fn bytes(&self, matches: impl Fn(Of) -> bool) -> u64 {
        let logs = self.logs.iter().filter(|(of, _)| matches(**of));
        logs.flat_map(|(_, log)| log.values()).sum()
    }

    fn publishers(&self) -> u64 {
        self.bytes(|of| matches!(of, Of::Publisher(_)))
    }

    fn strangers(&self) -> u64 {
        self.bytes(|of| matches!(of, Of::Stranger(..)))
    }

    /// Where a stranger's topic belongs: its client, or the network where nobody is subscribed; the network; the host.
    fn path(&self, of: Of) -> Option<[u8; 3]> {
        let Of::Stranger(client, network, host, _) = of else { return None };
        let owner = if self.cursors.contains_key(&of) { client } else { 100 + network };
        Some([owner, network, host])
    }

    /// What the part is of each group that has anything, by the beginning of its paths.
    fn parts(&self) -> BTreeMap<Vec<u8>, u64> {
        let taken = self.logs.iter().filter(|(_, log)| log.values().sum::<u64>() > 0);
        let paths: BTreeSet<_> = taken.filter_map(|(of, _)| self.path(*of)).collect();
        let mut parts = BTreeMap::from([(Vec::new(), AIM)]);
        for depth in 0..3 {
            let groups: BTreeSet<_> = paths.iter().map(|path| &path[..=depth]).collect();
            for group in &groups {
                let beside = groups.iter().filter(|other| other[..depth] == group[..depth]).count();
                parts.insert(group.to_vec(), parts[&group[..depth]] / beside as u64);
            }
        }
        parts
    }
}

fn open(engine: &Fragile) -> Embedded {
    Embedded::over(Box::new(engine.clone()), Keyring::none(), None, DiskReserve::new(|| None, 0)).unwrap()
}

async fn append(store: &Embedded, model: &mut Model, of: Of, bytes: usize) {
    model.now += 1;
    let (kind, payer) = match of {
        Of::Publisher(_) => (ContentKind::Posted, Payer::Publishers),
        Of::Stranger(_, network, ..) => {
            (ContentKind::Fetched, Payer::Strangers(Some(IpAddr::from([192, 0, network, 0]))))
        }
    };
    let received_at = DateTime::from_unix_millis(model.now * 1_000).unwrap();
    let new = NewNotification { kind, payer, received_at, ..posted(&of.url(), vec![7; bytes]) };
    let weight = new.weight();
    let offset = store.append(new, Duration::ZERO).await.unwrap().id().offset;
    model.logs.entry(of).or_default().insert(offset, weight);
}

async fn subscribe(store: &Embedded, model: &mut Model, of: Of) {
    let intent = Intent::Subscribe { lease: None, secret: None };
    let (topic, callback, received_at, client) = (of.url(), of.callback(), DateTime::now(), of.client());
    let request = store
        .put_request(NewRequest { topic, callback, intent, verify_token: None, received_at, client })
        .await
        .unwrap();
    let verified = VerifiedSubscription::assumed(request, Duration::from_secs(60), DateTime::now());
    store.activate(verified).await.unwrap();
    let subscription = store.find_subscription(&of.url(), &of.callback()).await.unwrap().unwrap();
    model.cursors.entry(of).or_insert(subscription.start.0);
}

async fn unsubscribe(store: &Embedded, model: &mut Model, of: Of) {
    if model.cursors.remove(&of).is_none() {
        return;
    }
    let known = store.find_subscription(&of.url(), &of.callback()).await.unwrap().unwrap();
    let shard = Shard::of(&of.callback(), store.shards());
    store
        .end(shard, Epoch::default(), known.topic, known.id, Ended::Gone { lease_end: known.lease_end })
        .await
        .unwrap();
}

/// Reads on for the subscription; what it had not got and is gone is a gap.
async fn deliver(store: &Embedded, model: &mut Model, of: Of) {
    let Some(cursor) = model.cursors.get_mut(&of) else { return };
    let topic = store.topic(&of.url()).await.unwrap().unwrap();
    if topic.first > Offset(*cursor).next() {
        model.gaps.insert(of);
    }
    let next = store.notification_from(topic.id, Offset(*cursor).next()).await.unwrap();
    let expected = model.logs.get(&of).and_then(|log| log.range(*cursor + 1..).next());
    assert_eq!(next.map(|next| next.offset.0), expected.map(|(offset, _)| *offset));
    *cursor = topic.head.0;
}

/// Removes from the model what is gone, which must be from the beginnings of logs.
async fn follow(store: &Embedded, model: &mut Model) -> Trimmed {
    let mut gone = Trimmed::default();
    for (of, log) in &mut model.logs {
        // One of which nothing is left, and that nobody needs, is forgotten.
        let first = store.topic(&of.url()).await.unwrap().map_or(u64::MAX, |topic| topic.first.0);
        let left = log.split_off(&first);
        let removed = std::mem::replace(log, left);
        gone.notifications += removed.len() as u64;
        gone.bytes += removed.values().sum::<u64>();
    }
    gone.early = gone.notifications;
    gone
}

async fn make_room(store: &Embedded, model: &mut Model, all: bool) {
    let whole = model.clone();
    let long_ago = DateTime::from_unix_millis(0).unwrap();
    let trimmed = if all { store.trim(long_ago, SHARES).await } else { store.make_room(SHARES).await };
    let trimmed = trimmed.unwrap();
    let mut gone = follow(store, model).await;
    let mut before = whole;
    if all {
        // What strangers have without a subscription goes first, whatever there is room for.
        for (of, log) in &mut before.logs {
            if matches!(of, Of::Stranger(..)) && !model.cursors.contains_key(of) {
                assert!(model.logs[of].is_empty(), "{of:?} is there for nobody");
                gone.early -= log.len() as u64;
                log.clear();
            }
        }
    }
    assert_eq!(gone, trimmed);
    let lost = |matches: &dyn Fn(Of) -> bool| {
        let removed =
            before.logs.iter().filter(|(of, log)| matches(**of) && model.logs[*of].len() < log.len());
        removed.count() > 0
    };

    if !all || before.publishers() <= SHARES.publishers {
        assert!(!lost(&|of| matches!(of, Of::Publisher(_))), "publishers are within their share");
    }
    let only_newest = |(of, log): (&Of, &BTreeMap<u64, u64>)| match of {
        Of::Publisher(_) => log.len() <= 1 && (log.is_empty() || model.cursors.contains_key(of)),
        Of::Stranger(..) => true,
    };
    if all {
        assert!(model.publishers() <= SHARES.publishers || model.logs.iter().all(only_newest));
    }
    for of in model.cursors.keys().filter(|of| matches!(of, Of::Publisher(_))) {
        let newest = |model: &Model| model.logs.get(of).and_then(|log| log.keys().next_back().copied());
        assert_eq!(newest(model), newest(&before), "the newest of who is subscribed to stays");
    }

    if before.strangers() <= SHARES.strangers {
        assert!(!lost(&|of| matches!(of, Of::Stranger(..))), "strangers are within their share");
    } else {
        assert!(model.strangers() <= AIM);
    }
    for (group, part) in before.parts() {
        let inside = |of: Of| before.path(of).is_some_and(|path| path.starts_with(&group));
        if before.bytes(inside) <= part {
            assert!(!lost(&inside), "{group:?} is within its part");
        }
    }
}

async fn live(steps: Vec<Step>) {
    let engine = Fragile::default();
    let (mut store, mut model) = (open(&engine), Model::default());
    // Publishers who stay within their share until they trim have lost nothing.
    let mut within = true;
    for step in steps {
        match step {
            Step::Append(of, bytes) => append(&store, &mut model, of, bytes).await,
            Step::Subscribe(of) => subscribe(&store, &mut model, of).await,
            Step::Unsubscribe(of) => unsubscribe(&store, &mut model, of).await,
            Step::Deliver(of) => deliver(&store, &mut model, of).await,
            Step::MakeRoom => make_room(&store, &mut model, false).await,
            Step::Trim => {
                within &= model.publishers() <= SHARES.publishers;
                make_room(&store, &mut model, true).await;
            }
            Step::Reopen => {
                drop(store);
                store = open(&engine);
            }
        }
        let usage = store.usage();
        assert_eq!(
            (usage.log_bytes - usage.strangers_bytes, usage.strangers_bytes),
            (model.publishers(), model.strangers())
        );
        let gap = model.gaps.iter().find(|of| matches!(of, Of::Publisher(_)));
        assert!(!within || gap.is_none(), "{gap:?} was owed what is gone");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn strangers_take_nothing_from_publishers_nor_from_each_other_within_their_parts(steps in vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(live(steps));
    }
}
