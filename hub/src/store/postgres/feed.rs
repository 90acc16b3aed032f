//! Reading the feed, in which every commit writes down what others have to hear of.
//!
//! Each reading has a snapshot of the database, and the next one gets exactly what that did not show: nothing is missed or told twice, however
//! commits come in between. This goes on over connections that are lost, and over a server that was killed. That gives the numbers of the last
//! transactions to others, if nothing of them had to be kept; but none up to the last one that wrote something into the feed, for that was kept:
//! what has a later number is new, whatever the snapshot says. Only a server that was promoted meanwhile may have forgotten more: there, and
//! where too much has happened, everybody has to read everything again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use resync_common::backoff::Backoff;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::events::{Happened, Position};
use super::hints::{self, CHANNEL};
use super::line::{DEADLINE, Line, Open};
use super::registry;
use super::rows::{Fields, the_only};
use super::seen::Seen;
use super::session::{Failure, words_of};
use super::shared::Shared;
use crate::store::{
    Accepted, ContentKind, DenialId, Offset, OrderEvent, OrderId, PingId, RequestId, Result, Shard,
    StoreError, StoreEvent, SubscriptionId, SubscriptionSummary, Topic, TopicId,
};

/// How often it is read where nobody asks for it, and no hint comes.
const EVERY: Duration = Duration::from_millis(250);
/// Pauses where it cannot be read.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// What is older by the database's clock may be dropped: it is kept for two hours at least.
const LASTS: Duration = Duration::from_secs(3_600);
/// Events that are read at once, give or take those of a row; who has missed more reads everything again.
const MOST: i64 = 100_000;

/// A snapshot, and the last transaction of the feed that it shows.
const SEEN: &str = "
SELECT pg_current_snapshot()::text AS seen, clock_timestamp() AS at,
    (SELECT e.xid::text::bigint FROM hub.feed e ORDER BY e.xid DESC LIMIT 1) AS kept";
/// What the snapshot `$1` did not show, or is later than the transaction `$4`, and the snapshot of this. The transactions `$2` are left out.
/// `upto` counts the events up to this row.
///
/// That is all from the first on that is later than either, and those that were under way: one that lasts long must not have all read again that
/// was committed since it began.
const READ: &str = "
SELECT s.seen::text AS seen, s.at, f.upto, f.xid::text::bigint AS xid, f.kind, f.node, f.shard, f.topic, f.first, f.weights, f.fetched, f.bounds,
    f.shards, f.subject, f.url, f.origin, f.start, f.lease_end, f.address
FROM (SELECT pg_current_snapshot() AS seen, clock_timestamp() AS at) s LEFT JOIN (
    SELECT r.*, sum(r.events) OVER (ORDER BY r.ordinal)::bigint AS upto
    FROM (
        SELECT e.*, greatest(cardinality(e.weights), 1) AS events
        FROM (
            SELECT l.* FROM hub.feed l
            WHERE l.xid >= least(pg_snapshot_xmax($1::text::pg_snapshot), ($4::bigint + 1)::text::xid8)
            UNION ALL
            SELECT w.* FROM hub.feed w
            WHERE w.xid = ANY (ARRAY(SELECT pg_snapshot_xip($1::text::pg_snapshot)))
                AND w.xid < least(pg_snapshot_xmax($1::text::pg_snapshot), ($4::bigint + 1)::text::xid8)
        ) e
        WHERE e.xid::text::bigint <> ALL ($2)
        ORDER BY e.ordinal LIMIT $3
    ) r
) f ON f.upto - f.events < $3
ORDER BY f.ordinal";

const APPENDED: i16 = 1;
const SUBSCRIBED: i16 = 2;
const UNSUBSCRIBED: i16 = 3;
const PAUSED: i16 = 4;
const RESUMED: i16 = 5;
const ASKED: i16 = 6;
const DENIED: i16 = 7;
const PINGED: i16 = 8;
const ORDERED: i16 = 9;
const ANSWERED: i16 = 10;
const DOCUMENT: i16 = 11;
const SPREAD: i16 = 12;

/// Who reads it.
#[derive(Debug)]
pub(super) struct Feed {
    shared: Arc<Shared>,
    line: Line,
    /// The connection that was used last.
    open: Option<Arc<Open>>,
    /// The timeline of the server that was read last, and when that was by its clock.
    last: Option<(u32, SystemTime)>,
    has_failed: bool,
}

impl Feed {
    /// From now on everything is told.
    pub(super) async fn begin(shared: &Arc<Shared>) -> Result<Self> {
        let line = Line::new(&shared.common);
        let mut feed = Self { shared: Arc::clone(shared), line, open: None, last: None, has_failed: false };
        feed.read().await?;
        Ok(feed)
    }

    /// Goes on until the store is closed.
    pub(super) async fn keep(mut self, mut stop: watch::Receiver<bool>) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let shared = Arc::clone(&self.shared);
        while !*stop.borrow() {
            let last = shared.turns.last();
            let read = self.read().await;
            self.note(&read);
            if read.is_ok() {
                shared.turns.end(last);
                backoff.reset();
                let open = self.open.clone();
                tokio::select! {
                    () = shared.turns.asked() => {}
                    () = hinted(open.as_deref()) => {}
                    () = sleep(EVERY) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
            } else {
                // Whoever asks meanwhile waits no shorter for that.
                let _ = timeout(backoff.after_failure(), stop.wait_for(|stop| *stop)).await;
            }
        }
    }

    fn note(&mut self, read: &Result<()>) {
        match read {
            Ok(()) => self.has_failed = false,
            Err(error) if self.has_failed => tracing::debug!(%error, "the feed still cannot be read"),
            Err(error) => {
                tracing::warn!(%error, "what other hubs do is not heard of until the feed can be read again");
                self.has_failed = true;
            }
        }
    }

    /// Tells what has happened since the last call.
    async fn read(&mut self) -> Result<()> {
        let open = self.line.open_now().await?;
        if !self.open.as_ref().is_some_and(|known| Arc::ptr_eq(known, &open)) {
            if let Err(reason) = open.session.listen(CHANNEL, hints::signature(self.shared.node)).await {
                tracing::debug!(%reason, "no hints come: the feed is read every {EVERY:?}");
            }
            if open.xid <= self.shared.events.position().kept {
                // What it had acknowledged is not among that, or was leaped over: the line has looked.
                tracing::error!("the database has lost what it had shown: everything is read again");
                self.last = None;
            }
            self.open = Some(Arc::clone(&open));
        }
        let timeline = open.session.timeline();
        let told = match self.last {
            Some((known, at)) if known == timeline => self.go_on(&open, at).await?,
            _ => None,
        };
        let at = match told {
            Some(at) => at,
            None => self.begin_anew(&open).await?,
        };
        self.last = Some((timeline, at));
        Ok(())
    }

    /// Returns when that was, unless it may not be all that has happened since the last reading.
    async fn go_on(&self, open: &Arc<Open>, last: SystemTime) -> Result<Option<SystemTime>> {
        let Position { seen, kept, told } = self.shared.events.position();
        let rows = self.ask(open, READ, &[&seen.as_str(), &told, &MOST, &kept]).await?;
        let at = Fields::of("feed", the_only(&rows)?).get::<SystemTime>("at")?;
        if upto(&rows)? >= MOST || is_over(last, at) {
            return Ok(None);
        }
        match self.tell(&rows).await {
            Ok(()) => Ok(Some(at)),
            // It would be found again and again.
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::error!(%error, "the feed cannot be understood: everything is read again");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn tell(&self, rows: &[Row]) -> Result<()> {
        let seen = seen_of(the_only(rows)?)?;
        let happened: Vec<_> = rows.iter().map(|row| Fields::of("feed", row)).collect();
        for fields in &happened {
            if fields.get::<Option<i16>>("kind")? == Some(DOCUMENT) {
                registry::refresh(&self.shared).await?;
                break;
            }
        }
        let (mut told, mut last) = (Vec::new(), 0_i64);
        for fields in happened {
            // Where nothing has happened there is one row with nothing but the snapshot.
            let (kind, xid) = (fields.get::<Option<i16>>("kind")?, fields.get::<Option<i64>>("xid")?);
            if let (Some(kind), Some(xid)) = (kind, xid) {
                last = last.max(xid);
                // What this hub has accepted itself it hands over itself, and what it lets go is for others.
                let is_for_others = (ASKED..=PINGED).contains(&kind) || kind == SPREAD;
                if is_for_others && fields.get::<i64>("node")? == self.shared.node {
                    continue;
                }
                let all = happened_in(kind, fields)?;
                told.extend(all.into_iter().map(|what| (xid, what)));
            }
        }
        self.shared.follow(seen, last, &told);
        Ok(())
    }

    /// What was not told before is not told any more. Returns when that was.
    async fn begin_anew(&self, open: &Arc<Open>) -> Result<SystemTime> {
        let rows = self.ask(open, SEEN, &[]).await?;
        let row = the_only(&rows)?;
        let fields = Fields::of("feed", row);
        // This connection has written something that was kept, and may be later.
        let kept = fields.get::<Option<i64>>("kept")?.unwrap_or_default().max(open.xid);
        registry::read_again(&self.shared).await?;
        self.shared.begin_at(open.session.timeline(), seen_of(row)?, kept);
        fields.get("at")
    }

    async fn ask(
        &self,
        open: &Arc<Open>,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        match self.line.ask(open, statement, parameters, DEADLINE).await {
            Ok(rows) => Ok(rows),
            Err(Failure::Refused(error)) => Err(StoreError::Read(words_of(&error))),
            Err(Failure::NotSent(reason) | Failure::Lost(reason)) => {
                self.line.give_up(open).await;
                Err(StoreError::Away(reason))
            }
        }
    }
}

async fn hinted(open: Option<&Open>) {
    match open {
        Some(open) => open.session.hinted().await,
        None => std::future::pending().await,
    }
}

/// How many events these rows tell of.
fn upto(rows: &[Row]) -> Result<i64> {
    let last = rows.last().map(|row| Fields::of("feed", row).get::<Option<i64>>("upto")).transpose()?;
    Ok(last.flatten().unwrap_or_default())
}

/// Whether some of what was written since then may have been dropped by now.
fn is_over(last: SystemTime, now: SystemTime) -> bool {
    now.duration_since(last).is_ok_and(|passed| passed >= LASTS)
}

fn seen_of(row: &Row) -> Result<Seen> {
    let fields = Fields::of("feed", row);
    Seen::parse(fields.text("seen")?).ok_or_else(|| fields.damaged("seen", "this is no snapshot"))
}

fn place_of(fields: Fields<'_>) -> Result<(Shard, TopicId, SubscriptionId)> {
    let (topic, id) = (TopicId(fields.number("topic")?), SubscriptionId(fields.number("subject")?));
    Ok((Shard(fields.small("shard")?), topic, id))
}

/// What a row tells of. Of what a later version of the hub writes nothing is told.
fn happened_in(kind: i16, fields: Fields<'_>) -> Result<Vec<Happened>> {
    let topic = || fields.number("topic").map(TopicId);
    let event = match kind {
        APPENDED => return appended(fields),
        SUBSCRIBED => subscribed(fields)?,
        UNSUBSCRIBED => {
            let (shard, topic, id) = place_of(fields)?;
            StoreEvent::Unsubscribed { shard, topic, id }
        }
        PAUSED => StoreEvent::Paused { topic: topic()? },
        RESUMED => StoreEvent::Resumed { topic: topic()? },
        ASKED | DENIED | PINGED => return accepted(kind, fields).map(|accepted| vec![accepted]),
        ORDERED => {
            let shards: Vec<i16> = fields.get("shards")?;
            let shards = shards.into_iter().map(|shard| Shard(shard.unsigned_abs())).collect();
            return Ok(vec![Happened::Order(OrderEvent::Given(shards))]);
        }
        ANSWERED => {
            let id = OrderId(fields.number("subject")?);
            return Ok(vec![Happened::Order(OrderEvent::Answered(id))]);
        }
        SPREAD => return Ok(vec![Happened::Spread]),
        _ => return Ok(Vec::new()),
    };
    Ok(vec![Happened::Event(event)])
}

fn subscribed(fields: Fields<'_>) -> Result<StoreEvent> {
    let (shard, topic, id) = place_of(fields)?;
    let slot = SubscriptionSummary {
        id,
        topic,
        origin: fields.text("origin")?.into(),
        start: Offset(fields.number("start")?),
        lease_end: fields.moment("lease_end")?,
        address: fields.address("address")?,
    };
    let [first, head, latest, posted] = bounds_of(fields)?.map(Offset);
    let topic = Topic { id: topic, url: fields.topic_url("url")?, first, head, latest, posted };
    Ok(StoreEvent::Subscribed { shard, slot, topic: Box::new(topic) })
}

fn accepted(kind: i16, fields: Fields<'_>) -> Result<Happened> {
    let id = fields.number("subject")?;
    let accepted = match kind {
        ASKED => Accepted::Request(RequestId(id)),
        DENIED => Accepted::Denial(DenialId(id)),
        _ => Accepted::Ping(PingId(id)),
    };
    Ok(Happened::Accepted(Shard(fields.small("shard")?), accepted))
}

/// One event for each notification.
fn appended(fields: Fields<'_>) -> Result<Vec<Happened>> {
    let (topic, first) = (TopicId(fields.number("topic")?), fields.number("first")?);
    let weights: Vec<i64> = fields.get("weights")?;
    let fetched: Vec<bool> = fields.get::<Option<_>>("fetched")?.unwrap_or_default();
    let all = weights.into_iter().enumerate().zip(first..).map(|((index, weight), offset)| {
        let is_fetched = fetched.get(index).copied().unwrap_or_default();
        let kind = if is_fetched { ContentKind::Fetched } else { ContentKind::Posted };
        let (offset, bytes) = (Offset(offset), weight.unsigned_abs());
        Happened::Event(StoreEvent::Appended { topic, offset, kind, bytes })
    });
    Ok(all.collect())
}

fn bounds_of(fields: Fields<'_>) -> Result<[u64; 4]> {
    let bounds: Vec<i64> = fields.get("bounds")?;
    let bounds: [i64; 4] = bounds.try_into().map_err(|_| fields.damaged("bounds", "these are not four"))?;
    Ok(bounds.map(i64::unsigned_abs))
}
