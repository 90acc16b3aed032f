//! Retention in the database. What has to make room is chosen here, by the same rules as in an embedded store, and cut off a bounded slice at a
//! time.

use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::SystemTime;

use resync_core::datetime::DateTime;
use tokio_postgres::types::ToSql;

use super::line::DEADLINE;
use super::rows::{Fields, big, the_only, whole};
use super::shared::Shared;
use crate::store::encoding::layout::TopicState;
use crate::store::room::{Group, aim, by_size, to_the_last};
use crate::store::{Offset, Payer, Result, Shares, TopicId, Trimmed, Usage};

/// What the notifications weigh that one command removes.
const SLICE_BYTES: i64 = 16 * 1024 * 1024;
/// The same of those that one command sets aside. Bodies are written once more, while their topics are locked.
const ASIDE_BYTES: i64 = 2 * 1024 * 1024;
/// Topics that are forgotten in one command.
const IDLE: i64 = 32;
/// Notifications of one log that are looked at at once.
const FRONT: i64 = 256;

/// Logs that begin with what is old, and where they may begin; of a stranger's topic without subscriptions nothing stays.
const OLD: &str = "
SELECT o.id, o.upto FROM (
    SELECT t.id, t.first, t.oldest, CASE
        WHEN NOT t.for_publishers AND t.subscriptions = 0 THEN t.head + 1
        ELSE least(
            CASE WHEN t.subscriptions > 0 THEN greatest(t.latest, t.posted) ELSE t.head + 1 END,
            coalesce((
                SELECT n.place FROM hub.notification n
                WHERE n.topic = t.id AND n.place >= t.first AND n.received_at >= $1 ORDER BY n.place LIMIT 1
            ), t.head + 1)
        )
    END AS upto
    FROM (
        SELECT * FROM hub.topic s
        WHERE s.first <= s.head AND (s.oldest < $1 OR (NOT s.for_publishers AND s.subscriptions = 0))
            AND (s.subscriptions = 0 OR s.first < greatest(s.latest, s.posted))
        ORDER BY s.oldest LIMIT $2
    ) t
) o WHERE o.upto > o.first";
const STATES: &str = "
SELECT t.id, t.url, t.first, t.head, t.latest, t.posted, t.bytes, t.oldest, t.for_publishers, t.network,
    t.subscriptions, t.founder
FROM hub.topic t WHERE t.first <= t.head";
const FRONTS: &str = "
SELECT n.place, n.weight, n.received_at FROM hub.notification n
WHERE n.topic = $1 AND n.place >= $2 ORDER BY n.place LIMIT $3";
const CUT: &str = "
SELECT notifications, bytes, publishers_shrank, strangers_shrank, is_done FROM hub.cut_1($1, $2, $3, $4, $5, $6, $7)";
const SET_ASIDE: &str = "SELECT last_topic, last_place FROM hub.set_aside_1($1, $2, $3, $4, $5, $6, $7)";
const FORGET_SKIPS: &str = "SELECT hub.forget_skips_1($1, $2, $3, $4) AS forgotten";
const FORGET_GAPS: &str = "SELECT hub.forget_gaps_1($1, $2, $3, $4) AS forgotten";
const FORGET_NAMES: &str = "SELECT hub.forget_names_1($1, $2, $3) AS forgotten";
const FORGET_TOPICS: &str = "SELECT forgotten FROM hub.forget_topics_1($1, $2, $3)";
const IDLE_TOPICS: &str = "
SELECT t.id FROM hub.topic t
WHERE t.id > $1 AND t.subscriptions = 0 AND t.first > t.head
    AND NOT EXISTS (SELECT FROM hub.paused p WHERE p.topic = t.id)
    AND NOT EXISTS (SELECT FROM hub.idempotency i WHERE i.topic = t.id)
ORDER BY t.id LIMIT $2";

/// As [`Log::trim`](crate::store::Log::trim) has it.
pub(super) async fn trim(shared: &Shared, older_than: DateTime, shares: Shares) -> Result<Trimmed> {
    let mut trimmed = Trimmed::default();
    remove_old(shared, older_than, &mut trimmed).await?;
    shared.refresh_usage().await?;
    let Usage { log_bytes, strangers_bytes, .. } = shared.usage();
    // To look at all logs takes memory for each of them.
    if log_bytes.saturating_sub(strangers_bytes) > shares.publishers || strangers_bytes > shares.strangers {
        let mut logs = Logs::look(shared).await?;
        logs.make_publishers_room(shared, shares.publishers, &mut trimmed).await?;
        logs.make_strangers_room(shared, shares.strangers, &mut trimmed).await?;
    }
    let (older_than, slice) = (older_than.to_system_time(), shared.config.limits.slice);
    while forgotten(shared, FORGET_GAPS, &[&older_than, &slice]).await? == slice {}
    while forgotten(shared, FORGET_NAMES, &[&slice]).await? == slice {}
    forget_idle(shared).await?;
    set_aside(shared, older_than).await?;
    shared.refresh_usage().await?;
    Ok(trimmed)
}

/// As [`Log::make_room`](crate::store::Log::make_room) has it.
pub(super) async fn make_room(shared: &Shared, shares: Shares) -> Result<Trimmed> {
    let mut trimmed = Trimmed::default();
    let mut logs = Logs::look(shared).await?;
    logs.make_strangers_room(shared, shares.strangers, &mut trimmed).await?;
    Ok(trimmed)
}

async fn remove_old(shared: &Shared, older_than: DateTime, trimmed: &mut Trimmed) -> Result<()> {
    loop {
        let limit = i64::from(shared.config.limits.slice);
        let old = shared.retention.read(OLD, &[&older_than.to_system_time(), &limit], DEADLINE).await?;
        let places = old.iter().map(|row| {
            let fields = Fields::of("topics", row);
            Ok((TopicId(fields.number("id")?), Offset(fields.number("upto")?)))
        });
        let uptos: BTreeMap<_, _> = places.collect::<Result<_>>()?;
        // Where others were faster there may be nothing to remove any more.
        if uptos.is_empty() || cut(shared, &uptos, false, trimmed).await? == 0 {
            return Ok(());
        }
    }
}

/// Lets these logs begin at these places. With `last_too` the newest of a topic with a subscription may go.
async fn cut(
    shared: &Shared,
    uptos: &BTreeMap<TopicId, Offset>,
    last_too: bool,
    trimmed: &mut Trimmed,
) -> Result<u64> {
    let topics: Vec<_> = uptos.keys().map(|topic| big(topic.0)).collect();
    let places: Vec<_> = uptos.values().map(|upto| big(upto.0)).collect();
    let few = shared.config.limits.slice;
    let (slice, mut removed) = (i64::from(few), 0);
    loop {
        let parameters: [&(dyn ToSql + Sync); 5] = [&topics, &places, &last_too, &slice, &SLICE_BYTES];
        let rows = shared.retention.write(CUT, &parameters, DEADLINE).await?;
        let fields = Fields::of("log", the_only(&rows)?);
        let notifications = fields.number("notifications")?;
        removed += notifications;
        trimmed.notifications += notifications;
        trimmed.bytes += fields.number("bytes")?;
        let (publishers, strangers): (i64, i64) =
            (fields.get("publishers_shrank")?, fields.get("strangers_shrank")?);
        shared.known_usage().weigh(-publishers, -strangers);
        if fields.flag("is_done")? {
            break;
        }
    }
    // What was not cut off after all is read again.
    let firsts: HashMap<_, _> = uptos.iter().map(|(topic, upto)| (*topic, *upto)).collect();
    shared.notifications.forget_before(&firsts);
    while forgotten(shared, FORGET_SKIPS, &[&topics, &few]).await? == few {}
    Ok(removed)
}

/// Forgets topics that nobody needs.
async fn forget_idle(shared: &Shared) -> Result<()> {
    let mut after = 0_i64;
    loop {
        let rows = shared.retention.read(IDLE_TOPICS, &[&after, &IDLE], DEADLINE).await?;
        let ids = rows.iter().map(|row| Fields::of("topics", row).get("id")).collect::<Result<Vec<i64>>>()?;
        let Some(last) = ids.last() else { return Ok(()) };
        after = *last;
        forgotten(shared, FORGET_TOPICS, &[&ids]).await?;
    }
}

/// Sets aside what stays of days that are older than this.
async fn set_aside(shared: &Shared, older_than: SystemTime) -> Result<()> {
    let slice = shared.config.limits.slice;
    let (mut topic, mut place) = (-1_i64, -1_i64);
    loop {
        let parameters: [&(dyn ToSql + Sync); 5] = [&older_than, &topic, &place, &slice, &ASIDE_BYTES];
        // The first one may look at all that was removed of a day.
        let rows = shared.retention.write(SET_ASIDE, &parameters, 4 * DEADLINE).await?;
        let fields = Fields::of("log", the_only(&rows)?);
        let last: (Option<i64>, Option<i64>) = (fields.get("last_topic")?, fields.get("last_place")?);
        let (Some(last_topic), Some(last_place)) = last else { return Ok(()) };
        (topic, place) = (last_topic, last_place);
    }
}

/// How many a command has forgotten.
async fn forgotten(
    shared: &Shared,
    statement: &'static str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<i32> {
    let rows = shared.retention.write(statement, parameters, DEADLINE).await?;
    Fields::of("log", the_only(&rows)?).small("forgotten")
}

/// All logs as they were looked at, and as they will be once what was chosen is cut off.
struct Logs {
    known: HashMap<TopicId, Known>,
    publishers: u64,
    strangers: u64,
    /// Where logs are to begin, and how many notifications that removes.
    uptos: BTreeMap<TopicId, Offset>,
    chosen: i32,
}

struct Known {
    state: TopicState,
    is_subscribed: bool,
    founder: Option<IpAddr>,
    /// The beginning of its log, as far as it was looked at, and whether that is all of it.
    front: VecDeque<Front>,
    is_whole: bool,
}

/// A notification as retention sees it.
struct Front {
    offset: Offset,
    weight: u64,
    received_at: DateTime,
}

impl Logs {
    async fn look(shared: &Shared) -> Result<Self> {
        let rows = shared.retention.read(STATES, &[], 4 * DEADLINE).await?;
        let mut logs =
            Self { known: HashMap::new(), publishers: 0, strangers: 0, uptos: BTreeMap::new(), chosen: 0 };
        for row in &rows {
            let known = Known::of(Fields::of("topics", row))?;
            match known.state.payer {
                Payer::Publishers => logs.publishers += known.state.bytes,
                Payer::Strangers(_) => logs.strangers += known.state.bytes,
            }
            logs.known.insert(known.state.topic.id, known);
        }
        Ok(logs)
    }

    /// Of topics that a publisher speaks for: the oldest of whichever log weighs most, while they weigh more than this.
    async fn make_publishers_room(
        &mut self,
        shared: &Shared,
        most: u64,
        trimmed: &mut Trimmed,
    ) -> Result<()> {
        if self.publishers <= most {
            return Ok(());
        }
        let spoken_for = self.known.values().filter(|known| known.state.payer == Payer::Publishers);
        let mut largest: BinaryHeap<_> =
            spoken_for.filter_map(|known| by_size(&known.state, known.is_subscribed)).collect();
        while self.publishers > most
            && let Some((.., topic)) = largest.pop()
        {
            let Some(freed) = self.shorten(shared, topic).await? else { continue };
            self.publishers = self.publishers.saturating_sub(freed);
            trimmed.early += 1;
            let known = self.known.get(&topic);
            largest.extend(known.and_then(|known| by_size(&known.state, known.is_subscribed)));
            if self.chosen >= shared.config.limits.slice {
                self.cut(shared, false, trimmed).await?;
            }
        }
        self.cut(shared, false, trimmed).await
    }

    /// Of all others: who takes most pays first.
    async fn make_strangers_room(&mut self, shared: &Shared, most: u64, trimmed: &mut Trimmed) -> Result<()> {
        if self.strangers <= most {
            return Ok(());
        }
        let known = self.known.values().map(|known| (&known.state, known.is_subscribed, known.founder));
        let mut all = Group::of_strangers(known);
        while self.strangers > aim(most)
            && let Some(topic) = all.heaviest()
        {
            let freed = self.shorten(shared, topic).await?;
            let left = match (freed, self.known.get(&topic)) {
                (Some(_), Some(known)) => to_the_last(&known.state, known.is_subscribed),
                _ => None,
            };
            all.lighten(&mut |_| Ok((freed.unwrap_or_default(), left)))?;
            let Some(freed) = freed else { continue };
            self.strangers = self.strangers.saturating_sub(freed);
            trimmed.early += 1;
            if self.chosen >= shared.config.limits.slice {
                self.cut(shared, true, trimmed).await?;
            }
        }
        self.cut(shared, true, trimmed).await
    }

    /// Chooses the oldest notification of a log, and tells how much less that weighs then; `None` where there is none any more.
    async fn shorten(&mut self, shared: &Shared, topic: TopicId) -> Result<Option<u64>> {
        let Some(known) = self.known.get_mut(&topic) else { return Ok(None) };
        known.look(shared).await?;
        let Some(Front { weight, .. }) = known.front.pop_front() else { return Ok(None) };
        let (before, newest, head) = (known.state.bytes, known.state.topic.newest(), known.state.topic.head);
        let state = &mut known.state;
        if let Some(next) = known.front.front() {
            state.topic.first = next.offset;
            state.oldest = Some(next.received_at);
            // Where the weight of something removed was not known, it is no longer counted.
            state.bytes = if next.offset == newest { next.weight } else { before.saturating_sub(weight) };
        } else {
            state.topic.first = head.next();
            (state.oldest, state.bytes) = (None, 0);
        }
        self.uptos.insert(topic, state.topic.first);
        self.chosen += 1;
        Ok(Some(before.saturating_sub(known.state.bytes)))
    }

    /// Cuts off what was chosen.
    async fn cut(&mut self, shared: &Shared, last_too: bool, trimmed: &mut Trimmed) -> Result<()> {
        self.chosen = 0;
        let uptos = std::mem::take(&mut self.uptos);
        if !uptos.is_empty() {
            cut(shared, &uptos, last_too, trimmed).await?;
        }
        Ok(())
    }
}

impl Known {
    fn of(fields: Fields<'_>) -> Result<Self> {
        let state = fields.topic_state()?;
        let (is_subscribed, founder) = (fields.number("subscriptions")? > 0, fields.address("founder")?);
        Ok(Self { state, is_subscribed, founder, front: VecDeque::new(), is_whole: false })
    }

    /// Looks on, so that it has the first notification of the log and the one after it.
    async fn look(&mut self, shared: &Shared) -> Result<()> {
        if self.is_whole || self.front.len() > 1 {
            return Ok(());
        }
        let next = self.front.back().map_or(self.state.topic.first, |last| last.offset.next());
        let parameters: [&(dyn ToSql + Sync); 3] = [&big(self.state.topic.id.0), &big(next.0), &FRONT];
        let rows = shared.retention.read(FRONTS, &parameters, DEADLINE).await?;
        self.is_whole = i64::try_from(rows.len()).unwrap_or(i64::MAX) < FRONT;
        for row in &rows {
            let fields = Fields::of("log", row);
            self.front.push_back(Front {
                offset: Offset(fields.number("place")?),
                weight: whole(fields.get("weight")?),
                received_at: fields.moment("received_at")?,
            });
        }
        Ok(())
    }
}
