//! Orders to the owners of shards, by way of the database.

use async_trait::async_trait;
use resync_core::datetime::DateTime;
use tokio::sync::mpsc;

use super::PostgresStore;
use super::rows::{Fields, at_most, big, micros, params, random_id, shard_number, shard_numbers, the_only};
use crate::store::{
    Command, Epoch, Offset, Order, OrderEvent, OrderId, Orders, Result, Shard, StoreError, SubscriptionId,
    Target, TopicId,
};

/// Orders that there are at once: hubs withdraw theirs after some seconds.
const MOST: i64 = 10_000;

const GIVE: &str = "SELECT hub.order_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AS id";
const WAITS: &str =
    "SELECT EXISTS (SELECT FROM hub.act_shard s WHERE s.shard = $1 AND s.taken_by IS NULL) AS waits";
const TAKE: &str = "
SELECT id, kind, topic, subscription, place, host FROM hub.take_orders_2($1, $2, $3, $4, $5)";
const ANSWER: &str = "SELECT hub.answer_order_1($1, $2, $3, $4, $5, $6)";
const ANSWERS: &str = "
SELECT s.shard, s.subscriptions FROM hub.act_shard s WHERE s.act = $1 AND s.subscriptions IS NOT NULL ORDER BY s.shard";
const WITHDRAW: &str = "SELECT hub.withdraw_order_1($1, $2, $3)";
const OWNED: &str = "
SELECT n.alive_until FROM unnest($1::smallint[]) WITH ORDINALITY AS o(shard, place)
LEFT JOIN hub.shard s ON s.shard = o.shard LEFT JOIN hub.node n ON n.id = s.owner ORDER BY o.place";

const HALT: i16 = 1;
const RETRY: i16 = 2;
const SKIP: i16 = 3;
const REPLAY: i16 = 4;

#[async_trait]
impl Orders for PostgresStore {
    fn watch_orders(&self) -> mpsc::UnboundedReceiver<OrderEvent> {
        self.shared.events.watch_orders()
    }

    async fn order(&self, to: &[Shard], order: Order, until: DateTime) -> Result<OrderId> {
        let Kept { kind, topic, subscription, place, host } = Kept::of(order);
        // Its time begins when the database has it: it may wait behind hundreds of commands here.
        let lasts =
            until.to_system_time().duration_since(self.shared.clock.system_time()).unwrap_or_default();
        let parameters = params![
            self.shared.node,
            shard_numbers(to),
            micros(lasts),
            kind,
            topic.map(|topic| big(topic.0)),
            subscription.map(|id| big(id.0)),
            place.map(|place| big(place.0)),
            host.map(String::into_bytes),
            MOST,
        ];
        self.told_command(GIVE, parameters, |rows| {
            Fields::of("orders", the_only(rows)?).number("id").map(OrderId)
        })
        .await
    }

    async fn take_orders(&self, shard: Shard, epoch: Epoch) -> Result<Vec<(OrderId, Order)>> {
        let rows = self.read(WAITS, params![shard_number(shard)]).await?;
        if !Fields::of("orders", the_only(&rows)?).flag("waits")? {
            return Ok(Vec::new());
        }
        let taker = random_id();
        match self.take(shard, epoch, taker).await {
            // What it may have taken nobody else takes; the same taker gets it once more.
            Err(StoreError::Unknown(_)) => self.take(shard, epoch, taker).await,
            taken => taken,
        }
    }

    async fn answer_order(&self, order: OrderId, shard: Shard, subscriptions: usize) -> Result<()> {
        let parameters = params![self.shared.node, big(order.0), shard_number(shard), at_most(subscriptions)];
        self.told_command(ANSWER, parameters, |_| Ok(())).await
    }

    async fn answers_to(&self, order: OrderId) -> Result<Vec<(Shard, usize)>> {
        let rows = self.read(ANSWERS, params![big(order.0)]).await?;
        rows.iter()
            .map(|row| {
                let fields = Fields::of("orders", row);
                Ok((Shard(fields.small("shard")?), fields.small("subscriptions")?))
            })
            .collect()
    }

    async fn withdraw_order(&self, order: OrderId) -> Result<()> {
        self.command(WITHDRAW, params![big(order.0)], |_| Ok(())).await
    }

    /// Of a hub that has left its shards without a word, nothing is there.
    async fn owned_until(&self, of: &[Shard]) -> Result<Vec<Option<DateTime>>> {
        let rows = self.read(OWNED, params![shard_numbers(of)]).await?;
        rows.iter().map(|row| Fields::of("shards", row).maybe_moment("alive_until")).collect()
    }
}

impl PostgresStore {
    async fn take(&self, shard: Shard, epoch: Epoch, taker: i64) -> Result<Vec<(OrderId, Order)>> {
        self.command(TAKE, params![shard_number(shard), big(epoch.0), taker], |rows| {
            rows.iter().map(|row| order_of(Fields::of("orders", row))).collect()
        })
        .await
    }
}

/// An order as its columns have it.
#[derive(Debug, Default)]
struct Kept {
    kind: i16,
    topic: Option<TopicId>,
    subscription: Option<SubscriptionId>,
    place: Option<Offset>,
    host: Option<String>,
}

impl Kept {
    fn of(order: Order) -> Self {
        let command = match order {
            Order::Halt(id) => return Self { kind: HALT, subscription: Some(id), ..Self::default() },
            Order::Execute(command) => command,
        };
        match command {
            Command::Retry(target) => {
                let kept = Self { kind: RETRY, ..Self::default() };
                match target {
                    Target::Topic(topic) => Self { topic: Some(topic), ..kept },
                    Target::Subscription(id) => Self { subscription: Some(id), ..kept },
                    Target::Host(host) => Self { host: Some(host), ..kept },
                }
            }
            Command::Skip(id) => Self { kind: SKIP, subscription: Some(id), ..Self::default() },
            Command::Replay { topic, subscription, from } => {
                Self { kind: REPLAY, topic: Some(topic), subscription, place: Some(from), host: None }
            }
        }
    }

    /// `None` where it is none that this version knows.
    fn order(self) -> Option<Order> {
        let command = match self {
            Self { kind: HALT, subscription: Some(id), .. } => return Some(Order::Halt(id)),
            Self { kind: RETRY, topic: Some(topic), .. } => Command::Retry(Target::Topic(topic)),
            Self { kind: RETRY, subscription: Some(id), .. } => Command::Retry(Target::Subscription(id)),
            Self { kind: RETRY, host: Some(host), .. } => Command::Retry(Target::Host(host)),
            Self { kind: SKIP, subscription: Some(id), .. } => Command::Skip(id),
            Self { kind: REPLAY, topic: Some(topic), subscription, place: Some(from), .. } => {
                Command::Replay { topic, subscription, from }
            }
            _ => return None,
        };
        Some(Order::Execute(command))
    }
}

fn order_of(fields: Fields<'_>) -> Result<(OrderId, Order)> {
    let host = fields.maybe_bytes("host")?.map(String::from_utf8).transpose();
    let kept = Kept {
        kind: fields.small("kind")?,
        topic: fields.maybe_number("topic")?.map(TopicId),
        subscription: fields.maybe_number("subscription")?.map(SubscriptionId),
        place: fields.maybe_number("place")?.map(Offset),
        host: host.map_err(|error| fields.damaged("host", error))?,
    };
    let order = kept.order().ok_or_else(|| fields.damaged("kind", "this order is unknown"))?;
    Ok((OrderId(fields.number("id")?), order))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_comes_back_as_it_was_given() {
        let (topic, id, from) = (TopicId(5), SubscriptionId(9), Offset(3));
        let commands = [
            Command::Retry(Target::Topic(topic)),
            Command::Retry(Target::Subscription(id)),
            Command::Retry(Target::Host("https://destination.example".to_owned())),
            Command::Skip(id),
            Command::Replay { topic, subscription: None, from },
            Command::Replay { topic, subscription: Some(id), from },
        ];
        for order in commands.into_iter().map(Order::Execute).chain([Order::Halt(id)]) {
            assert_eq!(Kept::of(order.clone()).order(), Some(order));
        }
        assert_eq!(Kept { kind: HALT, topic: Some(topic), ..Kept::default() }.order(), None);
    }
}
