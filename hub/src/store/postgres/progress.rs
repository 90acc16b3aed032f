//! The progress of delivery in the database.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use resync_core::datetime::DateTime;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::binary_copy::{BinaryCopyOutRow, BinaryCopyOutStream};
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::line::DEADLINE;
use super::rows::{Fields, Param, at_most, big, class_tag, micros, params, shard_number, the_only, whole};
use super::session::{Session, words};
use super::shared::{Shared, borrowed};
use crate::store::records::Others;
use crate::store::{
    Accepted, Checkpoint, Epoch, Failing, Gap, Laggard, Lapse, Missed, NotificationProgress, Offset,
    Progress, Replayed, Result, Shard, ShardState, Skip, Spread, StoreError, StoreEvent, Subscription,
    SubscriptionId, SubscriptionSummary, Sweep, TopicId, Watermark,
};

/// For all that an owner needs of a shard.
const LOADING: Duration = Duration::from_secs(60);
/// Records of a checkpoint that a database takes in a millisecond at least, also while much else goes on.
const RECORDS_PER_MILLISECOND: u64 = 10;
/// A clock that was set back since a subscription began has marked what it missed with earlier moments.
const SET_BACK: Duration = Duration::from_secs(24 * 3_600);

const CLAIM: &str = "SELECT epoch FROM hub.claim_1($1, $2, $3, $4, $5)";
/// As that function has it.
const SPREAD: &str = "
SELECT o.hubs, o.staying, o.undrained, ARRAY(
    SELECT s.shard FROM hub.shard s LEFT JOIN hub.node n ON n.id = s.owner
    WHERE s.owner IS NULL OR s.owner = $1 OR n.id IS NULL OR ($2 AND NOT hub.is_up_1(n.alive_until)) ORDER BY s.shard
) AS free, ARRAY(SELECT s.shard FROM hub.shard s WHERE s.owner = $1 ORDER BY s.shard) AS own,
    ARRAY(SELECT s.epoch FROM hub.shard s WHERE s.owner = $1 ORDER BY s.shard) AS epochs
FROM (
    SELECT count(*) AS hubs, count(*) FILTER (WHERE NOT n.stopping) AS staying,
        count(*) FILTER (WHERE NOT n.stopping AND NOT n.drained) AS undrained
    FROM hub.node n WHERE n.id <> $1 AND hub.is_up_1(n.alive_until)
) o";
const STOPPING: &str = "SELECT hub.stopping_1($1, $2, $3)";
const RELEASE: &str = "SELECT hub.release_1($1, $2, $3, $4)";
const CHECKPOINT: &str = "
SELECT unfinished FROM hub.checkpoint_1(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28,
    $29, $30, $31, $32, $33, $34
)";
const FORGET_REPLAYED: &str =
    "SELECT hub.forget_more_replayed_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AS forgotten";
const TOPICS: &str = "
SELECT t.id, t.url, t.first, t.head, t.latest, t.posted FROM hub.topic t
WHERE t.id IN (SELECT s.topic FROM hub.subscription s WHERE s.shard = $1)";
const WATERMARKS: &str = "
SELECT w.topic, w.done, w.target, w.through FROM hub.watermark w
WHERE w.shard = $1 AND w.topic IN (SELECT s.topic FROM hub.subscription s WHERE s.shard = $1)";
const LAGGARDS: &str = "
SELECT l.topic, l.subscription, l.cursor, l.streak_failures, l.next_attempt, l.pause_us, l.failing_since, l.failing_us, l.class
FROM hub.laggard l WHERE l.shard = $1";
const LAGGARDS_OF: &str = "
SELECT l.topic, l.subscription, l.cursor, l.streak_failures, l.next_attempt, l.pause_us, l.failing_since, l.failing_us, l.class
FROM hub.laggard l
WHERE l.shard = $1 AND (l.topic, l.subscription) > ($3, $4) AND l.topic <= coalesce($2, 9223372036854775807)
ORDER BY l.topic, l.subscription LIMIT $5";
const PAUSED: &str = "SELECT p.topic FROM hub.paused p";
const STANDING: &str = "
SELECT count(*) FILTER (WHERE a.is_skipped) AS skipped, count(*) FILTER (WHERE NOT a.is_skipped AND a.done >= $2) AS delivered,
    count(*) FILTER (WHERE NOT a.is_skipped AND a.done < $2) AS owing
FROM hub.shard h CROSS JOIN LATERAL (
    SELECT
        EXISTS (
            SELECT FROM hub.skip k
            WHERE k.shard = h.shard AND k.topic = $1 AND k.place = $2 AND k.subscription = s.id
        ) AS is_skipped,
        coalesce(l.cursor, CASE WHEN s.id <= w.through THEN w.target END, w.done, 0) AS done
    FROM hub.subscription s
    LEFT JOIN hub.laggard l ON l.shard = s.shard AND l.topic = s.topic AND l.subscription = s.id
    LEFT JOIN hub.watermark w ON w.shard = s.shard AND w.topic = s.topic
    WHERE s.shard = h.shard AND s.topic = $1 AND s.start < $2
) a";
const SKIPS: &str = "
SELECT k.topic, k.subscription, k.place, k.at, k.class, k.status FROM hub.skip k
WHERE k.shard = $1 AND (k.topic, k.place, k.subscription) > ($2, $3, $4)
ORDER BY k.topic, k.place, k.subscription LIMIT $5";
const GAPS: &str = "
SELECT g.topic, g.subscription, g.first, g.last, g.at FROM hub.gap g
ORDER BY g.at, g.topic, g.subscription, g.first LIMIT $1";
const GAPS_AFTER: &str = "
SELECT g.topic, g.subscription, g.first, g.last, g.at FROM hub.gap g
WHERE (g.at, g.topic, g.subscription, g.first) > ($2, $3, $4, $5)
ORDER BY g.at, g.topic, g.subscription, g.first LIMIT $1";
/// One record more than may be looked at, to know whether there is one.
const MISSED_SKIPS: &str = "
SELECT k.topic, k.subscription, k.place, k.at, k.class, k.status FROM hub.skip k
WHERE k.shard = $1 AND k.topic = $2 AND k.place > $3
ORDER BY k.place DESC, k.subscription DESC LIMIT $4";
const MISSED_GAPS: &str = "
SELECT g.topic, g.subscription, g.first, g.last, g.at FROM hub.gap g
WHERE g.at >= $1 ORDER BY g.at DESC, g.topic DESC, g.subscription DESC, g.first DESC LIMIT $2";

#[async_trait]
impl Progress for PostgresStore {
    fn shards(&self) -> u16 {
        self.shards
    }

    fn watch(&self) -> mpsc::UnboundedReceiver<StoreEvent> {
        self.shared.events.watch()
    }

    fn watch_accepted(&self) -> mpsc::UnboundedReceiver<(Shard, Accepted)> {
        self.shared.events.watch_accepted()
    }

    async fn spread(&self) -> Result<Option<Spread>> {
        let rows = self.read(SPREAD, params![self.shared.node, self.shared.word.is_steady()]).await?;
        let fields = Fields::of("shards", the_only(&rows)?);
        let shards = |column| {
            let numbers: Vec<i16> = fields.get(column)?;
            Ok::<Vec<_>, StoreError>(numbers.into_iter().map(|number| Shard(number.unsigned_abs())).collect())
        };
        let epochs: Vec<i64> = fields.get("epochs")?;
        let epochs = epochs.into_iter().map(|epoch| Epoch(whole(epoch)));
        let (free, own) = (shards("free")?, shards("own")?.into_iter().zip(epochs).collect());
        let others = Others {
            up: fields.small("hubs")?,
            staying: fields.small("staying")?,
            undrained: fields.small("undrained")?,
        };
        Ok(Some(Spread { free, own, ..Spread::beside(others, self.shared.is_drained()) }))
    }

    fn watch_spread(&self) -> watch::Receiver<()> {
        self.shared.events.watch_spread()
    }

    async fn announce_stop(&self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let work = async move {
            shared.heartbeat.write(STOPPING, &[&shared.node], DEADLINE).await?;
            shared.hints.give();
            Ok::<_, StoreError>(())
        };
        self.see_through(work).await
    }

    fn set_drained(&self, is_drained: bool) {
        self.shared.set_drained(is_drained);
    }

    fn may_begin(&self) -> bool {
        self.shared.word.holds()
    }

    fn lapse(&self) -> Option<Lapse> {
        self.shared.word.lapse()
    }

    fn settle(&self, lapse: Lapse) {
        self.shared.word.settle(lapse);
    }

    async fn claim(&self, shard: Shard) -> Result<Epoch> {
        let shared = Arc::clone(&self.shared);
        let work = async move {
            let line = shared.saver(shard).await;
            // Only now: while others were before it, the database may have become another one.
            let parameters = params![shared.node, shard_number(shard), shared.word.is_steady()];
            shared.save_by(&line, CLAIM, &parameters, DEADLINE).await
        };
        let rows = self.see_through(work).await?;
        let epoch = Fields::of("shards", the_only(&rows)?).maybe_number("epoch")?;
        epoch.map(Epoch).ok_or(StoreError::Owned)
    }

    async fn release(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let work = async move {
            let parameters = params![shard_number(shard), big(epoch.0)];
            shared.save(shard, RELEASE, &parameters, DEADLINE).await?;
            // Others take it at once.
            shared.hints.give();
            Ok::<_, StoreError>(())
        };
        self.see_through(work).await
    }

    async fn load_shard(&self, shard: Shard) -> Result<ShardState> {
        let shared = Arc::clone(&self.shared);
        self.runtime.run(async move { load(&shared, shard).await }).await
    }

    async fn checkpoint(&self, shard: Shard, epoch: Epoch, checkpoint: Checkpoint) -> Result<()> {
        let slice = self.shared.config.limits.slice;
        let parameters = saved(shard, epoch, &checkpoint, slice);
        let rows = self.save(shard, CHECKPOINT, parameters, deadline(&checkpoint)).await?;
        let left: Vec<i32> = Fields::of("watermarks", the_only(&rows)?).get("unfinished")?;
        for number in left {
            let replayed = usize::try_from(number - 1).ok().and_then(|at| checkpoint.replayed.get(at));
            let Some(replayed) = replayed else { continue };
            while self.forget_replayed(shard, epoch, replayed, &checkpoint.skips).await? == slice {}
        }
        Ok(())
    }

    async fn laggards_of(
        &self,
        shard: Shard,
        of: Option<TopicId>,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<Laggard>> {
        let of = of.map(|topic| big(topic.0));
        // Of one topic it begins behind all that stand before it.
        let begin = || of.map_or((-1, -1), |of| (of - 1, i64::MAX));
        let (topic, id) = after.map_or_else(begin, |(topic, id)| (big(topic.0), big(id.0)));
        let rows =
            self.read(LAGGARDS_OF, params![shard_number(shard), of, topic, id, at_most(limit)]).await?;
        rows.iter().map(laggard_of).collect()
    }

    async fn standing(&self, topic: TopicId, offset: Offset) -> Result<NotificationProgress> {
        let rows = self.read(STANDING, params![big(topic.0), big(offset.0)]).await?;
        let fields = Fields::of("subscriptions", the_only(&rows)?);
        Ok(NotificationProgress {
            delivered: fields.number("delivered")?,
            owing: fields.number("owing")?,
            skipped: fields.number("skipped")?,
        })
    }

    async fn skips(
        &self,
        shard: Shard,
        after: Option<(TopicId, Offset, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<Skip>> {
        let (topic, place, id) =
            after.map_or((-1, -1, -1), |(topic, offset, id)| (big(topic.0), big(offset.0), big(id.0)));
        let rows = self.read(SKIPS, params![shard_number(shard), topic, place, id, at_most(limit)]).await?;
        rows.iter().map(skip_of).collect()
    }

    async fn gaps(&self, after: Option<Gap>, limit: usize) -> Result<Vec<Gap>> {
        let rows = match after {
            None => self.read(GAPS, params![at_most(limit)]).await?,
            Some(Gap { topic, subscription, from, to: _, at }) => {
                let (topic, subscription, from) = (big(topic.0), big(subscription.0), big(from.0));
                let parameters = params![at_most(limit), at.to_system_time(), topic, subscription, from];
                self.read(GAPS_AFTER, parameters).await?
            }
        };
        rows.iter().map(gap_of).collect()
    }

    async fn missed(&self, shard: Shard, of: &Subscription, limit: usize) -> Result<Missed> {
        let most = at_most(limit.saturating_add(1));
        let skips = params![shard_number(shard), big(of.topic.0), big(of.start.0), most];
        let skips = self.read(MISSED_SKIPS, skips).await?;
        let since = of.created_at.to_system_time().checked_sub(SET_BACK).unwrap_or(SystemTime::UNIX_EPOCH);
        let gaps = self.read(MISSED_GAPS, params![since, most]).await?;
        let mut missed = Missed { all: skips.len() <= limit && gaps.len() <= limit, ..Missed::default() };
        for row in skips.iter().take(limit) {
            missed.skips.extend(Some(skip_of(row)?).filter(|skip| skip.subscription == of.id));
        }
        for row in gaps.iter().take(limit) {
            missed.gaps.extend(Some(gap_of(row)?).filter(|gap| gap.subscription == of.id));
        }
        Ok(missed)
    }
}

impl PostgresStore {
    /// Saves something of a shard. Also where nobody waits for it any more.
    async fn save(
        &self,
        shard: Shard,
        statement: &'static str,
        parameters: Vec<Param>,
        deadline: Duration,
    ) -> Result<Vec<Row>> {
        let shared = Arc::clone(&self.shared);
        self.see_through(async move { shared.save(shard, statement, &parameters, deadline).await }).await
    }

    /// Forgets more of the skips that are owed again, but what was given up again since.
    async fn forget_replayed(
        &self,
        shard: Shard,
        epoch: Epoch,
        replayed: &Replayed,
        kept: &[Skip],
    ) -> Result<i32> {
        let Replayed { topic, subscription, from } = replayed;
        let parameters = params![
            shard_number(shard),
            big(epoch.0),
            big(topic.0),
            subscription.map(|id| big(id.0)),
            big(from.0),
            all(kept, |skip| big(skip.topic.0)),
            all(kept, |skip| big(skip.offset.0)),
            all(kept, |skip| big(skip.subscription.0)),
            self.shared.config.limits.slice,
        ];
        let rows = self.save(shard, FORGET_REPLAYED, parameters, DEADLINE).await?;
        Fields::of("skips", the_only(&rows)?).small("forgotten")
    }
}

/// It grows with the records: one that is never saved in time would be tried for ever.
fn deadline(checkpoint: &Checkpoint) -> Duration {
    let Checkpoint { watermarks, laggards, caught_up, skips, gaps, replayed } = checkpoint;
    let records =
        watermarks.len() + laggards.len() + caught_up.len() + skips.len() + gaps.len() + replayed.len();
    let records = u64::try_from(records).unwrap_or(u64::MAX);
    DEADLINE.saturating_add(Duration::from_millis(records / RECORDS_PER_MILLISECOND))
}

/// The parameters of a checkpoint that forgets at most `slice` skips of each replay, behind the line.
fn saved(shard: Shard, epoch: Epoch, checkpoint: &Checkpoint, slice: i32) -> Vec<Param> {
    let Checkpoint { watermarks, laggards, caught_up, skips, gaps, replayed } = checkpoint;
    let sweep = |of: fn(Sweep) -> u64| all(watermarks, |(_, mark)| mark.sweep.map(|sweep| big(of(sweep))));
    params![
        shard_number(shard),
        big(epoch.0),
        all(watermarks, |(topic, _)| big(topic.0)),
        all(watermarks, |(_, mark)| big(mark.done.0)),
        sweep(|sweep| sweep.target.0),
        sweep(|sweep| sweep.through.0),
        all(laggards, |late| big(late.topic.0)),
        all(laggards, |late| big(late.subscription.0)),
        all(laggards, |late| big(late.cursor.0)),
        all(laggards, |late| i32::from(late.streak_failures)),
        all(laggards, |late| late.next_attempt.to_system_time()),
        all(laggards, |late| micros(late.pause)),
        all(laggards, |late| late.failing.map(|failing| failing.since.to_system_time())),
        all(laggards, |late| late.failing.map(|failing| micros(failing.lasted))),
        all(laggards, |late| class_tag(late.class)),
        all(caught_up, |(topic, _)| big(topic.0)),
        all(caught_up, |(_, id)| big(id.0)),
        all(skips, |skip| big(skip.topic.0)),
        all(skips, |skip| big(skip.offset.0)),
        all(skips, |skip| big(skip.subscription.0)),
        all(skips, |skip| skip.at.to_system_time()),
        all(skips, |skip| class_tag(skip.class)),
        all(skips, |skip| skip.status.map(i32::from)),
        all(gaps, |gap| big(gap.topic.0)),
        all(gaps, |gap| big(gap.subscription.0)),
        all(gaps, |gap| big(gap.from.0)),
        all(gaps, |gap| big(gap.to.0)),
        all(gaps, |gap| gap.at.to_system_time()),
        all(replayed, |replayed| big(replayed.topic.0)),
        all(replayed, |replayed| replayed.subscription.map(|id| big(id.0))),
        all(replayed, |replayed| big(replayed.from.0)),
        slice,
    ]
}

/// One column of many records.
fn all<T, V>(of: &[T], value: impl Fn(&T) -> V) -> Vec<V> {
    of.iter().map(value).collect()
}

/// The shard as of one moment.
async fn load(shared: &Shared, shard: Shard) -> Result<ShardState> {
    let line = shared.bulk.lock().await;
    let open = line.open().await?;
    let loading = timeout(LOADING, load_in_transaction(&open.session, shard)).await;
    let loaded = loading.unwrap_or_else(|_| Err(StoreError::Away(format!("no answer within {LOADING:?}"))));
    let loaded = if line.is_newest(&open) {
        loaded
    } else {
        Err(StoreError::Away("the server was replaced by another".to_owned()))
    };
    if loaded.is_err() {
        // A transaction may be open there.
        line.give_up(&open).await;
    }
    loaded
}

async fn load_in_transaction(session: &Session, shard: Shard) -> Result<ShardState> {
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    session.client().batch_execute(begin).await.map_err(unread)?;
    let slots = slots(session, shard).await?;
    let number = params![shard_number(shard)];
    let topics = ask(session, TOPICS, &number).await?;
    let watermarks = ask(session, WATERMARKS, &number).await?;
    let laggards = ask(session, LAGGARDS, &number).await?;
    let paused = ask(session, PAUSED, &[]).await?;
    session.client().batch_execute("COMMIT").await.map_err(unread)?;
    Ok(ShardState {
        slots,
        topics: topics.iter().map(|row| Fields::of("topics", row).topic()).collect::<Result<_>>()?,
        watermarks: watermarks.iter().map(watermark_of).collect::<Result<_>>()?,
        laggards: laggards.iter().map(laggard_of).collect::<Result<_>>()?,
        paused: paused
            .iter()
            .map(|row| Fields::of("topics", row).number("topic").map(TopicId))
            .collect::<Result<_>>()?,
    })
}

async fn ask(session: &Session, statement: &'static str, parameters: &[Param]) -> Result<Vec<Row>> {
    let rows = session.query(statement, &borrowed(parameters), DEADLINE).await;
    rows.map_err(|failure| StoreError::Read(failure.told()))
}

/// The subscriptions of a shard, in the order in which they lie there: a million of them in less than a second.
async fn slots(session: &Session, shard: Shard) -> Result<Vec<SubscriptionSummary>> {
    const TYPES: [Type; 6] = [Type::INT8, Type::INT8, Type::TEXT, Type::INT8, Type::TIMESTAMPTZ, Type::INET];
    // A copy takes no parameters; the number of a shard is one.
    let copy = format!(
        "COPY (SELECT s.id, s.topic, s.origin, s.start, s.lease_end, s.address FROM hub.subscription s WHERE s.shard = {}) \
         TO STDOUT (FORMAT binary)",
        shard.0
    );
    let stream = session.client().copy_out(copy.as_str()).await.map_err(unread)?;
    let rows = BinaryCopyOutStream::new(stream, &TYPES);
    let mut rows = std::pin::pin!(rows);
    let (mut slots, mut origins) = (Vec::new(), HashSet::<Arc<str>>::new());
    while let Some(row) = rows.try_next().await.map_err(unread)? {
        slots.push(slot_of(&row, &mut origins)?);
    }
    Ok(slots)
}

/// Many subscriptions have the same origin: a copy for each would take more than all the rest.
fn slot_of(row: &BinaryCopyOutRow, origins: &mut HashSet<Arc<str>>) -> Result<SubscriptionSummary> {
    let origin: &str = row.try_get(2).map_err(unread)?;
    let origin = if let Some(known) = origins.get(origin) {
        Arc::clone(known)
    } else {
        let new = Arc::<str>::from(origin);
        origins.insert(Arc::clone(&new));
        new
    };
    let number = |column| row.try_get(column).map(whole).map_err(unread);
    let lease_end: SystemTime = row.try_get(4).map_err(unread)?;
    Ok(SubscriptionSummary {
        id: SubscriptionId(number(0)?),
        topic: TopicId(number(1)?),
        origin,
        start: Offset(number(3)?),
        lease_end: DateTime::from_system_time(lease_end),
        address: row.try_get(5).map_err(unread)?,
    })
}

pub(super) fn watermark_of(row: &Row) -> Result<(TopicId, Watermark)> {
    let fields = Fields::of("watermarks", row);
    let sweep = match (fields.maybe_number("target")?, fields.maybe_number("through")?) {
        (Some(target), Some(through)) => {
            Some(Sweep { target: Offset(target), through: SubscriptionId(through) })
        }
        _ => None,
    };
    let done = Offset(fields.number("done")?);
    Ok((TopicId(fields.number("topic")?), Watermark { done, sweep }))
}

pub(super) fn laggard_of(row: &Row) -> Result<Laggard> {
    let fields = Fields::of("laggards", row);
    let failing = match (fields.maybe_moment("failing_since")?, fields.maybe_duration("failing_us")?) {
        (Some(since), Some(lasted)) => Some(Failing { since, lasted }),
        _ => None,
    };
    Ok(Laggard {
        topic: TopicId(fields.number("topic")?),
        subscription: SubscriptionId(fields.number("subscription")?),
        cursor: Offset(fields.number("cursor")?),
        streak_failures: fields.small("streak_failures")?,
        next_attempt: fields.moment("next_attempt")?,
        pause: fields.duration("pause_us")?,
        failing,
        class: fields.class("class")?,
    })
}

pub(super) fn skip_of(row: &Row) -> Result<Skip> {
    let fields = Fields::of("skips", row);
    Ok(Skip {
        topic: TopicId(fields.number("topic")?),
        subscription: SubscriptionId(fields.number("subscription")?),
        offset: Offset(fields.number("place")?),
        at: fields.moment("at")?,
        class: fields.class("class")?,
        status: fields.maybe_small("status")?,
    })
}

pub(super) fn gap_of(row: &Row) -> Result<Gap> {
    let fields = Fields::of("gaps", row);
    Ok(Gap {
        topic: TopicId(fields.number("topic")?),
        subscription: SubscriptionId(fields.number("subscription")?),
        from: Offset(fields.number("first")?),
        to: Offset(fields.number("last")?),
        at: fields.moment("at")?,
    })
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn unread(error: tokio_postgres::Error) -> StoreError {
    StoreError::Read(words(&error))
}
