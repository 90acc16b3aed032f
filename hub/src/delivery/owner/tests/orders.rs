//! Orders that reach the owner of a shard, whichever hub is asked.

use super::*;
use crate::delivery::NotExecuted;
use crate::store::{DenialScope, NewDenial, Order, OrderEvent};

/// Two hubs over one store. The first one owns the shard of one subscription; the second one owns all others, and so that of another
/// subscription.
struct TwoHubs {
    store: Arc<dyn Store>,
    first: Delivery,
    second: Delivery,
    of_first: Subscriber,
    of_second: Subscriber,
    /// That of the second one's subscription.
    shard: Shard,
    subscription: Subscription,
}

impl TwoHubs {
    async fn start(of_second: Subscriber) -> Self {
        let (store, _) = store::in_memory();
        let mut of_first = Subscriber::start().await;
        let shard_of = |of: &Subscriber| Shard::of(&of.callback(""), store.shards());
        while shard_of(&of_first) == shard_of(&of_second) {
            of_first = Subscriber::start().await;
        }
        store::subscribe(&*store, &topic(), &of_first.callback("")).await;
        let (shard, subscription) = store::subscribe(&*store, &topic(), &of_second.callback("")).await;
        let (first, second) = (workers(&store).await, workers(&store).await);
        for shard in store.all_shards() {
            let hub = if shard == shard_of(&of_first) { &first } else { &second };
            hub.owner().take(shard).await.unwrap();
        }
        Self { store, first, second, of_first, of_second, shard, subscription }
    }

    /// Both subscribers have got the first notification, so many times in all.
    async fn delivered(&mut self, times: u64) {
        assert_eq!((self.of_first.notified().await, self.of_second.notified().await), (1, 1));
        let counters = [self.first.counters(), self.second.counters()];
        until(|| counters.iter().all(|counters| counters.totals().delivered == times)).await;
    }

    async fn stop(self) {
        self.first.stop().await;
        self.second.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_ordered_at_one_hub_is_carried_out_by_the_owners_of_all_shards() {
    let mut hubs = TwoHubs::start(Subscriber::start().await).await;
    let (topic, orders) = (hubs.subscription.topic, hubs.first.orders());
    let replay = |subscription| Command::Replay { topic, subscription, from: Offset(1) };
    append(&hubs.store).await;
    hubs.delivered(1).await;
    assert_eq!(orders.execute(&replay(None)).await.unwrap().of_all(), Ok(2));
    hubs.delivered(2).await;
    let one = replay(Some(hubs.subscription.id));
    assert_eq!(orders.execute_in(hubs.shard, one).await.unwrap(), 1);
    assert_eq!((hubs.of_second.notified().await, hubs.of_first.seen()), (1, None));
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_ends_what_another_hub_has_under_way_also_where_the_first_one_waits_for_the_shard() {
    for is_expected in [false, true] {
        let mut hubs = TwoHubs::start(Subscriber::that_answers(0).await).await;
        append(&hubs.store).await;
        assert_eq!(hubs.of_second.notified().await, 1);
        let Subscription { id, topic_url, callback, .. } = hubs.subscription.clone();
        let (reason, scope) = ("moved".to_owned(), DenialScope::Everything);
        let denial = NewDenial { topic: topic_url, callback, reason, scope };
        assert!(hubs.store.deny(denial).await.unwrap().is_some());
        // It waits until the shard is released, and has claimed nothing.
        let taking =
            if is_expected { Some(hubs.first.owner().expect(hubs.shard).await.unwrap()) } else { None };
        assert_eq!(hubs.first.operator().halt(hubs.shard, id).await, Err(NotOwned(hubs.shard)));
        assert_eq!(hubs.first.orders().halt(hubs.shard, id).await, Ok(()));
        drop(taking);
        // A hub that stops would wait for the answer, which does not come.
        hubs.of_second.cut().await;
        hubs.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_the_owner_of_a_shard_that_was_released() {
    let hubs = TwoHubs::start(Subscriber::start().await).await;
    assert_eq!(hubs.second.owner().let_go(hubs.shard).await, Ok(LetGo::Saved));
    let (orders, id) = (hubs.first.orders(), hubs.subscription.id);
    assert_eq!(orders.halt(hubs.shard, id).await, Ok(()), "whoever takes it knows of the end");
    let skipped = orders.execute_in(hubs.shard, Command::Skip(id)).await;
    let not_owned = NoAnswer::NotOwned(NotOwned(hubs.shard));
    assert!(matches!(skipped, Err(NotExecuted::NoAnswer(why)) if why == not_owned));
    let skipped = orders.execute(&Command::Skip(id)).await.unwrap();
    assert_eq!(skipped.of_all(), Err(Elsewhere(1)));
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_waits_is_carried_out_by_whoever_takes_the_shard_over() {
    let Scene { folder: _folder, store, shard, subscription: Subscription { id, lease_end, .. }, .. } =
        Scene::of(Subscriber::start().await).await;
    let delivery = workers(&store).await;
    let order = store.order(&[shard], Order::Execute(Command::Skip(id)), lease_end).await.unwrap();
    let mut events = store.watch_orders();
    delivery.owner().take(shard).await.unwrap();
    assert_eq!(events.recv().await, Some(OrderEvent::Answered(order)));
    assert_eq!(store.answers_to(order).await.unwrap(), [(shard, 0)], "there was nothing to give up");
    delivery.stop().await;
}
