//! Topics that wait to be fetched, in a database.

use async_trait::async_trait;
use bytes::Bytes;
use resync_core::websub::TopicUrl;

use super::PostgresStore;
use super::rows::{Fields, big, params, shard_number, shard_numbers, the_only, topic_key};
use crate::store::{Fetches, Offset, Ping, PingClient, PingId, Result, Shard, TopicId, Validators};
use crate::trace_context::TraceContext;

const VALIDATORS: &str = "SELECT v.url, v.etag, v.last_modified, v.digest FROM hub.validators v WHERE v.topic = $1 AND v.version = $2";
const PUT_VALIDATORS: &str = "SELECT hub.put_validators_1($1, $2, $3, $4, $5, $6, $7, $8)";
const PUT_PING: &str = "SELECT hub.put_ping_2($1, $2, $3, $4, $5, $6, $7, $8, $9) AS id";
const REMOVE_PING: &str = "SELECT hub.remove_ping_1($1, $2, $3, $4)";
const PINGS: &str = "SELECT p.id, p.topic, p.trace, p.client, p.is_trusted FROM hub.ping p WHERE p.shard = ANY ($1) ORDER BY p.id";

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
        let parameters = params![
            self.shared.node,
            topic_key(&topic),
            shard_number(Shard::that_fetches(&topic, self.shards)),
            topic.as_str().to_owned(),
            trace.map(|trace| trace.to_bytes().to_vec()),
            client.network,
            client.is_trusted,
        ];
        let id = self
            .command(PUT_PING, parameters, |rows| {
                Ok(PingId(Fields::of("pings", the_only(rows)?).number("id")?))
            })
            .await?;
        Ok(Ping { id, topic, trace, client })
    }

    async fn remove_ping(&self, ping: &Ping) -> Result<()> {
        let parameters = params![topic_key(&ping.topic), big(ping.id.0)];
        self.command(REMOVE_PING, parameters, |_| Ok(())).await
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
