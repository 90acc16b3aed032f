//! Copying the records of an embedded store into an empty database: all of them, or nothing.

use std::path::Path;
use std::{fs, io};

use bytes::{Bytes, BytesMut};
use tokio_postgres::types::ToSql;

use super::apart::{any_session, execute, refused};
use super::documents;
use super::requests::host_of;
use super::rows::{Param, big, class_tag, exactly, micros, params, random_id, shard_number, topic_key};
use super::schema;
use super::secrets::Row as Secrets;
use super::session::Session;
use super::tables::{
    CHAIN_BREAK, Columns, DENIAL, GAP, IDEMPOTENCY, LAGGARD, NOTIFICATION, PAIR, PAUSED, PING, REQUEST, SKIP,
    SUBSCRIPTION, TOPIC, Table, VALIDATORS, WATERMARK,
};
use crate::config::DatabaseConfig;
use crate::store::embedded::{Keys, Records};
use crate::store::encoding::codec::{self, Record};
use crate::store::encoding::layout::{
    Address, Body, Counters, Empty, Floor, Foundation, IdempotencyRecord, LogRecord, Part, PausedTopic,
    StoredValidators, TopicState, TopicWatermark,
};
use crate::store::encoding::{Space, key};
use crate::store::{
    Chain, Denial, Epoch, Gap, Intent, Keyring, Laggard, Offset, Payer, PendingRequest, Ping, Result, Shard,
    Skip, StoreError, Subscription, Topic, TopicId, Uptime, Watermark,
};

const SET_EPOCH: &str = "UPDATE hub.shard SET epoch = $2 WHERE shard = $1";
const SET_FLOOR: &str = "UPDATE hub.store SET floor = $1";
/// No place and no epoch that was copied is of a later one.
const SET_ERA: &str = "UPDATE hub.store s SET era = greatest( \
    s.floor, (SELECT max(t.head) FROM hub.topic t), (SELECT max(h.epoch) FROM hub.shard h)) >> 32";
const PUT_UPTIME: &str = "INSERT INTO hub.uptime (seen, jump_us, jump_up_us) VALUES ($1, $2, $3)";
const SET_NUMBERS: &str = "SELECT setval('hub.subscription_id', greatest($1::bigint, 1), $1 > 0), \
    setval('hub.request_id', greatest($2::bigint, 1), $2 > 0), setval('hub.ping_id', greatest($3::bigint, 1), $3 > 0)";
const PUT_DOCUMENT: &str = "INSERT INTO hub.document (kind, version, mark, content) VALUES ($1, 1, $2, $3)";
const PUT_LINES: &str = "INSERT INTO hub.audit (line) \
    SELECT n.line FROM unnest($1::bytea[]) WITH ORDINALITY AS n(line, place) ORDER BY n.place";

/// Makes the store in an empty database, and copies everything into it. What cannot be read is left out; the check of the embedded store has
/// named it.
pub(super) async fn fill(config: &DatabaseConfig, keys: &Keyring, records: &dyn Records) -> Result<()> {
    let session = any_session(config).await?;
    execute(&session, "BEGIN").await?;
    let filling = Filling { session: &session, keys, records };
    let foundation = filling.get::<Foundation>(key::FOUNDATION)?;
    let shards = foundation.map_or(schema::SHARDS, |foundation| foundation.shards);
    schema::make(&session, shards, keys).await?;
    execute(&session, "SELECT hub.make_parts_1()").await?;
    filling.meta().await?;
    filling.topics().await?;
    filling.execute(SET_ERA, &[]).await?;
    filling.notifications().await?;
    filling.requests(shards).await?;
    filling.subscriptions().await?;
    filling.progress().await?;
    filling.publishers(shards).await?;
    filling.documents(&config.data_dir).await?;
    // What is looked at while it is counted is known by then.
    execute(&session, "ANALYZE hub.subscription; SELECT hub.recount_1(); COMMIT").await
}

struct Filling<'a> {
    session: &'a Session,
    keys: &'a Keyring,
    records: &'a dyn Records,
}

impl<'a> Filling<'a> {
    /// A record, if it is there and can be read.
    fn get<R: Record>(&self, key: &[u8]) -> Result<Option<R>> {
        let value = self.records.get(R::SPACE, key)?;
        Ok(value.and_then(|value| codec::open(self.keys, key, &value).ok()))
    }

    /// Every record of a range that can be read.
    fn each<R: Record>(&self, range: &Keys) -> impl Iterator<Item = Result<(Bytes, R)>> + use<'a, R> {
        let keys = self.keys;
        self.records.scan(R::SPACE, range).filter_map(move |record| match record {
            Ok((key, value)) => codec::open(keys, &key, &value).ok().map(|record| Ok((key, record))),
            Err(error) => Some(Err(error)),
        })
    }

    /// Copies a row of each record of a space.
    async fn copy<R: Record, const N: usize>(
        &self,
        into: &Columns<N>,
        row: impl Fn(&[u8], R) -> Option<Vec<Param>>,
    ) -> Result<()> {
        let mut table = Table::begin(self.session, into).await?;
        for record in self.each::<R>(&Keys::all()) {
            let (key, record) = record?;
            if let Some(row) = row(&key, record) {
                table.add(row).await?;
            }
        }
        table.finish().await
    }

    async fn execute(&self, statement: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<()> {
        let done = self.session.client().execute(statement, parameters).await;
        done.map(drop).map_err(|error| refused(&error))
    }

    async fn meta(&self) -> Result<()> {
        let Counters { subscription, request, ping } = self.get(key::COUNTERS)?.unwrap_or_default();
        let numbers = [subscription.0, request, ping].map(big);
        self.execute(SET_NUMBERS, &[&numbers[0], &numbers[1], &numbers[2]]).await?;
        let Floor(floor) = self.get(key::FLOOR)?.unwrap_or_default();
        self.execute(SET_FLOOR, &[&big(floor.0)]).await?;
        for record in self.each::<Epoch>(&Keys::prefix(key::EPOCH.to_vec())) {
            let (key, Epoch(epoch)) = record?;
            if let Some(shard) = key.strip_prefix(key::EPOCH).and_then(|number| number.try_into().ok()) {
                let shard = shard_number(Shard(u16::from_be_bytes(shard)));
                self.execute(SET_EPOCH, &[&shard, &big(epoch)]).await?;
            }
        }
        if let Some(Uptime { seen, clock_jumps }) = self.get(key::UPTIME)? {
            let lengths: Vec<_> = clock_jumps.iter().map(|jump| micros(jump.length)).collect();
            let since: Vec<_> = clock_jumps.iter().map(|jump| micros(jump.up_since)).collect();
            self.execute(PUT_UPTIME, &[&seen.to_system_time(), &lengths, &since]).await?;
        }
        let mut paused = Table::begin(self.session, &PAUSED).await?;
        for record in self.each::<PausedTopic>(&Keys::prefix(key::PAUSED.to_vec())) {
            let (_, PausedTopic(topic)) = record?;
            paused.add(params![big(topic.0)]).await?;
        }
        paused.finish().await
    }

    async fn topics(&self) -> Result<()> {
        let mut table = Table::begin(self.session, &TOPIC).await?;
        for record in self.each::<TopicState>(&Keys::all()) {
            let (key, state) = record?;
            let chain = self.get::<Chain>(&key)?;
            table.add(self.topic(&state, chain.as_ref())?).await?;
        }
        table.finish().await?;
        let mut breaks = Table::begin(self.session, &CHAIN_BREAK).await?;
        for record in self.each::<Chain>(&Keys::all()) {
            let (key, chain) = record?;
            let Some(topic) = key::topic_of(Space::Chains, &key) else { continue };
            for broken in chain.breaks {
                let (ended, started) = (exactly(broken.ended), exactly(broken.started));
                breaks.add(params![big(topic.0), big(broken.offset.0), ended, started]).await?;
            }
        }
        breaks.finish().await
    }

    fn topic(&self, state: &TopicState, chain: Option<&Chain>) -> Result<Vec<Param>> {
        let Topic { id, url, head, latest, posted, .. } = &state.topic;
        // A log begins with something, or behind its end.
        let oldest = self.oldest(state)?;
        let (first, bytes) = oldest.as_ref().map_or((head.next(), 0), |(first, _)| (*first, state.bytes));
        let (for_publishers, network) = match state.payer {
            Payer::Publishers => (true, None),
            Payer::Strangers(network) => (false, network),
        };
        Ok(params![
            big(id.0),
            topic_key(url),
            url.key().to_owned(),
            url.as_str().to_owned(),
            big(first.0),
            big(head.0),
            big(latest.0),
            big(posted.0),
            big(bytes),
            oldest.map(|(_, record)| record.received_at.to_system_time()),
            for_publishers,
            network,
            chain.map(|chain| big(chain.offset.0)),
            chain.map(|chain| exactly(chain.until)),
            chain.map_or(0, |chain| big(chain.broken)),
        ])
    }

    /// The first record of a log that is no leap.
    fn oldest(&self, state: &TopicState) -> Result<Option<(Offset, LogRecord)>> {
        for record in self.each::<LogRecord>(&log_of(state)) {
            let (key, record) = record?;
            if let (Some((_, place)), false) = (key::place_of_log(&key), is_leap(&record)) {
                return Ok(Some((place, record)));
            }
        }
        Ok(None)
    }

    async fn notifications(&self) -> Result<()> {
        let mut table = Table::begin(self.session, &NOTIFICATION).await?;
        for topic in self.each::<TopicState>(&Keys::all()) {
            let (_, state) = topic?;
            let mut next = self.oldest(&state)?.map_or(state.topic.head.next(), |(first, _)| first);
            for record in self.each::<LogRecord>(&log_of(&state)) {
                let (key, record) = record?;
                let Some((id, place)) = key::place_of_log(&key).filter(|(_, place)| *place >= next) else {
                    continue;
                };
                let places = record.body.places();
                // One that lacks a part is lost, as one that cannot be read is.
                let Some(record) = self.whole(id, place, record)? else { continue };
                table.add_lost(id, next, place).await?;
                next = Offset(place.0.saturating_add(places));
                if is_leap(&record) {
                    continue;
                }
                if let Body::Here(body) = &record.body {
                    let body = body.to_vec();
                    table.add_notification(id, place, record, body).await?;
                } else {
                    table.add_lost(id, place, next).await?;
                }
            }
            table.add_lost(state.topic.id, next, state.topic.head.next()).await?;
        }
        table.finish().await
    }

    /// The record with the whole of its body, if all parts are there.
    fn whole(&self, topic: TopicId, place: Offset, record: LogRecord) -> Result<Option<LogRecord>> {
        if record.body.parts() == 0 {
            return Ok(Some(record));
        }
        let mut body = BytesMut::new();
        for number in 0..record.body.parts() {
            let Some(Part(part)) = self.get(&key::body(topic, place, number))? else { return Ok(None) };
            body.extend_from_slice(&part);
        }
        Ok(Some(LogRecord { body: Body::Here(body.freeze()), ..record }))
    }

    async fn requests(&self, shards: u16) -> Result<()> {
        self.copy(&REQUEST, |_, request: PendingRequest| {
            let PendingRequest { id, topic, callback, intent, verify_token, received_at, client } = request;
            let pair = key::pair(&topic, &callback);
            let (subscribes, lease, secret) = match intent {
                Intent::Subscribe { lease, secret } => (true, lease, secret),
                Intent::Unsubscribe => (false, None, None),
            };
            Some(params![
                big(id.0),
                shard_number(Shard::of(&callback, shards)),
                pair.to_vec(),
                client,
                // It is not known any more.
                false,
                host_of(&callback),
                topic.as_str().to_owned(),
                callback.as_str().to_owned(),
                subscribes,
                lease.map(u64::cast_signed),
                secret.map(|secret| Secrets::request(&pair, client).seal(self.keys, &secret)),
                verify_token.map(|token| token.as_str().as_bytes().to_vec()),
                received_at.to_system_time(),
            ])
        })
        .await?;
        self.copy(&DENIAL, |pair, denial: Denial| {
            let Denial { id, topic, callback, reason, ended } = denial;
            Some(params![
                pair.to_vec(),
                shard_number(Shard::of(&callback, shards)),
                big(id.0),
                topic.as_str().to_owned(),
                callback.as_str().to_owned(),
                reason.replace('\0', "\u{fffd}"),
                ended.map(|(shard, ..)| shard_number(shard)),
                ended.map(|(_, topic, _)| big(topic.0)),
                ended.map(|(.., id)| big(id.0)),
            ])
        })
        .await
    }

    async fn subscriptions(&self) -> Result<()> {
        self.copy(&SUBSCRIPTION, |key, one: Subscription| {
            let (shard, ..) = key::place_of_subscription(key)?;
            let pair = key::pair(&one.topic_url, &one.callback);
            Some(params![
                shard_number(shard),
                big(one.topic.0),
                big(one.id.0),
                pair.to_vec(),
                one.callback.origin(),
                one.callback.as_str().to_owned(),
                one.topic_url.as_str().to_owned(),
                one.secret.map(|secret| Secrets::subscription(&pair).seal(self.keys, &secret)),
                big(one.start.0),
                micros(one.lease),
                one.lease_end.to_system_time(),
                one.address,
                one.client,
                one.created_at.to_system_time(),
                one.verified_at.to_system_time(),
            ])
        })
        .await?;
        self.copy(&PAIR, |pair, Address { shard, topic, id }: Address| {
            Some(params![pair.to_vec(), shard_number(shard), big(topic.0), big(id.0)])
        })
        .await
    }

    async fn progress(&self) -> Result<()> {
        self.copy(&WATERMARK, |key, TopicWatermark(topic, Watermark { done, sweep }): TopicWatermark| {
            Some(params![
                shard_in(key)?,
                big(topic.0),
                big(done.0),
                sweep.map(|sweep| big(sweep.target.0)),
                sweep.map(|sweep| big(sweep.through.0)),
            ])
        })
        .await?;
        self.copy(&LAGGARD, |key, late: Laggard| {
            Some(params![
                shard_in(key)?,
                big(late.topic.0),
                big(late.subscription.0),
                big(late.cursor.0),
                i32::from(late.streak_failures),
                late.next_attempt.to_system_time(),
                micros(late.pause),
                late.failing.map(|failing| failing.since.to_system_time()),
                late.failing.map(|failing| micros(failing.lasted)),
                class_tag(late.class),
            ])
        })
        .await?;
        self.copy(&SKIP, |key, skip: Skip| {
            Some(params![
                shard_in(key)?,
                big(skip.topic.0),
                big(skip.offset.0),
                big(skip.subscription.0),
                skip.at.to_system_time(),
                class_tag(skip.class),
                skip.status.map(i32::from),
            ])
        })
        .await?;
        self.copy(&GAP, |_, gap: Gap| {
            let Gap { topic, subscription, from, to, at } = gap;
            Some(params![at.to_system_time(), big(topic.0), big(subscription.0), big(from.0), big(to.0)])
        })
        .await
    }

    /// What there is of publishers beside their notifications.
    async fn publishers(&self, shards: u16) -> Result<()> {
        self.copy(&IDEMPOTENCY, |key, record: IdempotencyRecord| {
            let topic = key::topic_of(Space::Idempotency, key)?;
            let name = key.get(size_of::<u64>()..)?;
            Some(params![
                big(topic.0),
                name.to_vec(),
                big(record.offset.0),
                record.body.to_vec(),
                record.seen_at.to_system_time(),
                record.expires.to_system_time(),
            ])
        })
        .await?;
        self.copy(&VALIDATORS, |key, StoredValidators { version, validators }: StoredValidators| {
            Some(params![
                big(key::topic_of(Space::Validators, key)?.0),
                big(version.0),
                validators.url,
                validators.etag.map(Vec::from),
                validators.last_modified.map(Vec::from),
                validators.digest.to_vec(),
            ])
        })
        .await?;
        self.copy(&PING, |_, Ping { id, topic, trace, client }: Ping| {
            Some(params![
                topic_key(&topic),
                shard_number(Shard::that_fetches(&topic, shards)),
                big(id.0),
                topic.as_str().to_owned(),
                trace.map(|trace| trace.to_bytes().to_vec()),
                client.network,
                client.is_trusted,
            ])
        })
        .await
    }

    /// What lies beside the store in this folder.
    async fn documents(&self, folder: &Path) -> Result<()> {
        for of in documents::ALL {
            if let Some(content) = read(folder, documents::name(of))? {
                let kept = documents::seal(self.keys, of, &content)?;
                self.execute(PUT_DOCUMENT, &[&documents::number(of), &random_id(), &kept]).await?;
            }
        }
        let mut log = read(folder, documents::LOG)?.unwrap_or_default();
        if log.last().is_some_and(|last| *last != b'\n') {
            log.push(b'\n');
        }
        let lines: Vec<_> = log.split_inclusive(|byte| *byte == b'\n').collect();
        self.execute(PUT_LINES, &[&lines]).await
    }
}

fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let path = folder.join(name);
    match fs::read(&path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::Read(format!("{}: {error}", path.display()))),
    }
}

/// The shard with which a key begins.
fn shard_in(key: &[u8]) -> Option<i16> {
    key.first_chunk().map(|number| shard_number(Shard(u16::from_be_bytes(*number))))
}

/// Where the records of a log are.
fn log_of(state: &TopicState) -> Keys {
    let Topic { id, first, head, .. } = state.topic;
    Keys::between(key::log(id, first), key::log(id, head.next()))
}

/// Nobody is owed anything of it.
fn is_leap(record: &LogRecord) -> bool {
    matches!(record.body, Body::Hole { why: Empty::Leapt, .. })
}
