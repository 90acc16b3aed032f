//! Who listens, and what they were told already.
//!
//! Everything that commits write down in the feed is told from there, in the order of the commits of each topic, whoever made them. Only what this
//! hub appends is told at once, if all that was told of these topics before it was told here: then it is next. The feed, in which it stands too,
//! leaves it out. Where something of another hub has to come first, it waits for the feed.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use resync_common::locks::lock;
use tokio::sync::{mpsc, watch};

use super::seen::Seen;
use crate::store::{Accepted, OrderEvent, Shard, StoreEvent};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    /// For those who watch the store.
    Event(StoreEvent),
    /// For those who watch orders.
    Order(OrderEvent),
    /// For the owners of shards: another hub has accepted that.
    Accepted(Shard, Accepted),
    /// For those who own less than their share: another hub has released a shard, or stops.
    Spread,
}

#[derive(Debug, Default)]
pub(super) struct Events(Mutex<State>);

/// Watchers have no bounds, since a commit must not wait for whoever listens: an event has some hundred bytes, whatever strangers wrote, and is
/// taken faster than the commit that it tells of is made.
#[derive(Debug, Default)]
struct State {
    watchers: Vec<mpsc::UnboundedSender<StoreEvent>>,
    order_watchers: Vec<mpsc::UnboundedSender<OrderEvent>>,
    accepted_watchers: Vec<mpsc::UnboundedSender<(Shard, Accepted)>>,
    spread: watch::Sender<()>,
    /// The timeline of the server whose feed is read.
    timeline: u32,
    /// What the database showed when the feed was read last: all of that was told, up to `kept`.
    seen: Seen,
    /// The last transaction of which something was found in the feed. A server that was killed has kept it, and so gives no number up to this
    /// one to others; but maybe later ones, also of those that it had shown.
    kept: i64,
    /// Own transactions that it did not show, and that were told at once.
    told: HashSet<i64>,
}

/// Where the feed is to be read on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// What was told already,
    pub(super) seen: Seen,
    /// up to this transaction.
    pub(super) kept: i64,
    /// Transactions that may be left out.
    pub(super) told: Vec<i64>,
}

impl Events {
    pub(super) fn watch(&self) -> mpsc::UnboundedReceiver<StoreEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lock().watchers.push(sender);
        receiver
    }

    pub(super) fn watch_orders(&self) -> mpsc::UnboundedReceiver<OrderEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lock().order_watchers.push(sender);
        receiver
    }

    pub(super) fn watch_accepted(&self) -> mpsc::UnboundedReceiver<(Shard, Accepted)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lock().accepted_watchers.push(sender);
        receiver
    }

    pub(super) fn watch_spread(&self) -> watch::Receiver<()> {
        self.lock().spread.subscribe()
    }

    /// Where the feed is to be read on.
    pub(super) fn position(&self) -> Position {
        let state = self.lock();
        Position { seen: state.seen.clone(), kept: state.kept, told: state.told.iter().copied().collect() }
    }

    /// Tells what this transaction of ours has appended, if it is next: `before` are those that told of the same topics before it. Returns
    /// whether that is told now; otherwise the feed has to be read, as always where that has not begun on the newest timeline.
    pub(super) fn tell_appended(&self, newest: u32, xid: i64, before: &[i64], events: &[StoreEvent]) -> bool {
        let mut state = self.lock();
        if state.timeline != newest {
            return false;
        }
        // It was found in the feed before it was answered.
        if state.was_read(xid) {
            return true;
        }
        if !before.iter().all(|before| state.was_read(*before) || state.told.contains(before)) {
            return false;
        }
        state.told.insert(xid);
        state.tell(&events.iter().collect::<Vec<_>>());
        true
    }

    /// Tells what was read in the feed, with its transactions and in its order; the last of those that were found there is this one, if any. Orders
    /// are told behind everything that was committed before them.
    pub(super) fn follow(&self, seen: Seen, last: i64, happened: &[(i64, Happened)]) {
        let mut state = self.lock();
        let new: Vec<_> =
            happened.iter().filter(|(xid, _)| !state.told.contains(xid)).map(|(_, what)| what).collect();
        let events = new.iter().filter_map(|what| match what {
            Happened::Event(event) => Some(event),
            Happened::Order(_) | Happened::Accepted(..) | Happened::Spread => None,
        });
        state.tell(&events.collect::<Vec<_>>());
        for what in new {
            match what {
                Happened::Event(_) => {}
                Happened::Order(event) => state.tell_order(event),
                Happened::Accepted(shard, accepted) => state.tell_accepted(*shard, *accepted),
                Happened::Spread => state.spread.send_replace(()),
            }
        }
        // Of those that the reading has left out it shows some.
        let shown = state.told.iter().copied().filter(|xid| seen.shows(*xid)).max();
        state.kept = state.kept.max(last).max(shown.unwrap_or_default());
        state.told.retain(|xid| !seen.shows(*xid));
        state.seen = seen;
    }

    /// Everybody has to look again, and from now on the feed of this timeline is read from there. A server that is killed keeps all transactions
    /// up to `kept`; all later ones of the feed are yet to be told.
    pub(super) fn begin_at(&self, timeline: u32, seen: Seen, kept: i64) {
        let mut state = self.lock();
        state.timeline = timeline;
        state.kept = kept;
        state.seen = seen;
        state.told.clear();
        state.resync();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What it guards is complete between any two statements.
        lock(&self.0)
    }
}

impl State {
    /// Whether what this transaction has to tell was found in the feed.
    fn was_read(&self, xid: i64) -> bool {
        xid <= self.kept && self.seen.shows(xid)
    }

    /// Everybody gets all of them, one after the other.
    fn tell(&mut self, events: &[&StoreEvent]) {
        self.watchers.retain(|watcher| events.iter().all(|event| watcher.send((*event).clone()).is_ok()));
    }

    fn tell_order(&mut self, event: &OrderEvent) {
        self.order_watchers.retain(|watcher| watcher.send(event.clone()).is_ok());
    }

    fn tell_accepted(&mut self, shard: Shard, accepted: Accepted) {
        self.accepted_watchers.retain(|watcher| watcher.send((shard, accepted)).is_ok());
    }

    fn resync(&mut self) {
        self.tell(&[&StoreEvent::Resync]);
        self.tell_order(&OrderEvent::Resync);
        self.spread.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ContentKind, Offset, OrderId, TopicId};

    fn appended(offset: u64) -> StoreEvent {
        StoreEvent::Appended {
            topic: TopicId(1),
            offset: Offset(offset),
            kind: ContentKind::Posted,
            bytes: 1,
        }
    }

    fn seen(written: &str) -> Seen {
        Seen::parse(written.to_owned()).unwrap()
    }

    fn told(watching: &mut mpsc::UnboundedReceiver<StoreEvent>) -> Vec<StoreEvent> {
        std::iter::from_fn(|| watching.try_recv().ok()).collect()
    }

    #[test]
    fn what_this_hub_appends_is_told_at_once_where_it_is_next_and_never_twice() {
        let events = Events::default();
        events.begin_at(1, seen("10:10:"), 9);
        let mut watching = events.watch();
        assert!(events.tell_appended(1, 12, &[9], &[appended(1)]), "what was before it was told");
        assert!(events.tell_appended(1, 13, &[12], &[appended(2)]), "and so was its own");
        assert_eq!(told(&mut watching), [appended(1), appended(2)]);
        assert!(!events.tell_appended(1, 15, &[14], &[appended(4)]), "another hub's comes first");
        assert_eq!(told(&mut watching), []);
        let mut left_out = events.position().told;
        left_out.sort_unstable();
        assert_eq!(left_out, [12, 13]);
        // It may have been read before the second one was told.
        let rows = [(13, appended(2)), (14, appended(3)), (15, appended(4))];
        events.follow(seen("16:16:"), 15, &rows.map(|(xid, event)| (xid, Happened::Event(event))));
        assert_eq!(told(&mut watching), [appended(3), appended(4)]);
        assert!(events.tell_appended(1, 15, &[14], &[appended(4)]), "the feed was faster");
        assert_eq!(told(&mut watching), []);
        assert_eq!(events.position(), Position { seen: seen("16:16:"), kept: 15, told: Vec::new() });
    }

    #[test]
    fn what_a_restarted_server_calls_like_something_that_it_has_lost_is_told() {
        let events = Events::default();
        events.begin_at(1, seen("10:10:"), 9);
        let mut watching = events.watch();
        assert!(events.tell_appended(1, 10, &[9], &[appended(1)]));
        // What is between these was a hint, for example, and is lost.
        events.follow(seen("20:20:"), 0, &[]);
        assert_eq!(events.position().kept, 10);
        assert!(!events.tell_appended(1, 13, &[12], &[appended(3)]), "another hub's comes first");
        events.follow(
            seen("14:14:"),
            13,
            &[12_i64, 13].map(|xid| (xid, Happened::Event(appended(xid.unsigned_abs())))),
        );
        assert!(events.tell_appended(1, 14, &[13], &[appended(14)]), "it is next");
        assert_eq!(told(&mut watching), [appended(1), appended(12), appended(13), appended(14)]);
        assert!(!events.tell_appended(2, 15, &[14], &[appended(15)]), "nothing is known of a later timeline");
    }

    #[test]
    fn who_waits_for_shards_hears_of_one_that_is_released_and_where_that_may_have_been_missed() {
        let events = Events::default();
        let mut spread = events.watch_spread();
        assert!(!spread.has_changed().unwrap());
        events.follow(seen("3:3:"), 2, &[(1, Happened::Spread), (2, Happened::Spread)]);
        assert!(spread.has_changed().unwrap());
        spread.mark_unchanged();
        events.begin_at(1, seen("9:9:"), 7);
        assert!(spread.has_changed().unwrap());
    }

    #[test]
    fn an_order_is_told_behind_all_that_was_read_with_it() {
        let events = Events::default();
        let (mut watching, mut orders) = (events.watch(), events.watch_orders());
        let answered = OrderEvent::Answered(OrderId(1));
        events.follow(
            seen("3:3:"),
            2,
            &[(1, Happened::Order(answered.clone())), (2, Happened::Event(appended(1)))],
        );
        assert_eq!((orders.try_recv(), told(&mut watching)), (Ok(answered), vec![appended(1)]));
        events.begin_at(1, seen("9:9:"), 7);
        assert_eq!(
            (orders.try_recv(), told(&mut watching)),
            (Ok(OrderEvent::Resync), vec![StoreEvent::Resync])
        );
        assert_eq!(events.position(), Position { seen: seen("9:9:"), kept: 7, told: Vec::new() });
    }
}
