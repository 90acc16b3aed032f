//! Topics that wait to be fetched, in a database.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use resync_core::websub::TopicUrl;

use super::PostgresStore;
use super::group::{Grouped, columns};
use super::rows::{Fields, Param, big, params, shard_number, shard_numbers, topic_key, whole};
use crate::store::{
    Fetches, Offset, Ping, PingClient, PingId, Result, Shard, StoreError, TopicId, Validators,
};
use crate::trace_context::TraceContext;

const VALIDATORS: &str = "SELECT v.url, v.etag, v.last_modified, v.digest FROM hub.validators v WHERE v.topic = $1 AND v.version = $2";
const PUT_VALIDATORS: &str = "SELECT hub.put_validators_1($1, $2, $3, $4, $5, $6, $7, $8)";
const PINGS: &str = "SELECT p.id, p.topic, p.trace, p.client, p.is_trusted FROM hub.ping p WHERE p.shard = ANY ($1) ORDER BY p.id";

/// A ping that is to be remembered. The answer is its number.
pub(super) struct PutPing {
    key: Vec<u8>,
    shard: i16,
    topic: String,
    trace: Option<Vec<u8>>,
    client: Option<IpAddr>,
    is_trusted: bool,
}

impl Grouped for PutPing {
    const STATEMENT: &'static str = "SELECT hub.put_pings_1($1, $2, $3, $4, $5, $6, $7, $8, $9) AS answers";

    fn pair(&self) -> &[u8] {
        &self.key
    }

    fn columns(commands: &[Self]) -> Vec<Param> {
        columns!(commands; key, shard, topic, trace, client, is_trusted)
    }
}

/// A ping that is to be forgotten.
pub(super) struct RemovePing {
    key: Vec<u8>,
    id: i64,
}

impl Grouped for RemovePing {
    const STATEMENT: &'static str = "SELECT hub.remove_pings_1($1, $2, $3, $4, $5) AS answers";

    fn pair(&self) -> &[u8] {
        &self.key
    }

    fn columns(commands: &[Self]) -> Vec<Param> {
        columns!(commands; key, id)
    }
}

#[async_trait]
impl Fetches for PostgresStore {
    async fn validators(&self, topic: TopicId, version: Offset) -> Result<Option<Validators>> {
        let rows = self.read(VALIDATORS, params![big(topic.0), big(version.0)]).await?;
        rows.first().map(|row| validators(Fields::of("validators", row))).transpose()
    }

    async fn put_validators(&self, topic: TopicId, version: Offset, validators: Validators) -> Result<()> {
        let Validators { url, etag, last_modified, digest } = validators;
        let parameters = params![
            big(topic.0),
            big(version.0),
            url,
            etag.map(Vec::from),
            last_modified.map(Vec::from),
            digest.to_vec(),
        ];
        self.command(PUT_VALIDATORS, parameters, |_| Ok(())).await
    }

    async fn put_ping(
        &self,
        topic: TopicUrl,
        trace: Option<TraceContext>,
        client: PingClient,
    ) -> Result<Ping> {
        let command = PutPing {
            key: topic_key(&topic),
            shard: shard_number(Shard::that_fetches(&topic, self.shards)),
            topic: topic.as_str().to_owned(),
            trace: trace.map(|trace| trace.to_bytes().to_vec()),
            client: client.network,
            is_trusted: client.is_trusted,
        };
        let shared = Arc::clone(&self.shared);
        let given = self.see_through(async move { shared.grouped(&shared.pings, command).await }).await?;
        let given = given.ok_or_else(|| StoreError::Read("a ping was given no number".to_owned()))?;
        Ok(Ping { id: PingId(whole(given)), topic, trace, client })
    }

    async fn remove_ping(&self, ping: &Ping) -> Result<()> {
        let command = RemovePing { key: topic_key(&ping.topic), id: big(ping.id.0) };
        let shared = Arc::clone(&self.shared);
        self.see_through(async move { shared.grouped(&shared.ended_pings, command).await }).await.map(drop)
    }

    async fn pings(&self, of: &[Shard]) -> Result<Vec<Ping>> {
        let rows = self.read(PINGS, params![shard_numbers(of)]).await?;
        rows.iter().map(|row| ping(Fields::of("pings", row))).collect()
    }
}

pub(super) fn validators(fields: Fields<'_>) -> Result<Validators> {
    let digest: &[u8] = fields.get("digest")?;
    let digest = digest.try_into().map_err(|error| fields.damaged("digest", error))?;
    Ok(Validators {
        url: fields.text("url")?,
        etag: fields.maybe_bytes("etag")?.map(Bytes::from),
        last_modified: fields.maybe_bytes("last_modified")?.map(Bytes::from),
        digest,
    })
}

pub(super) fn ping(fields: Fields<'_>) -> Result<Ping> {
    let trace = match fields.get("trace")? {
        None => None,
        Some(bytes) => {
            let trace = TraceContext::from_bytes(bytes);
            Some(trace.ok_or_else(|| fields.damaged("trace", "this is no trace context"))?)
        }
    };
    let client = PingClient { network: fields.address("client")?, is_trusted: fields.flag("is_trusted")? };
    Ok(Ping { id: PingId(fields.number("id")?), topic: fields.topic_url("topic")?, trace, client })
}
