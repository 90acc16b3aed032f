//! Requests and denials that wait, in a database.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use resync_core::websub::{CallbackUrl, VerifyToken};

use super::PostgresStore;
use super::group::{Grouped, columns};
use super::rows::{Fields, Param, at_most, big, params, shard_number, shard_numbers, whole};
use super::secrets::Row as Secrets;
use crate::store::encoding::key::pair;
use crate::store::{
    Denial, DenialId, DenialScope, Intent, Keyring, NewDenial, NewRequest, PendingRequest, RequestId,
    Requests, Result, Shard, StoreError, SubscriptionId, SubscriptionKey, TopicId, WaitingDenial,
    WaitingLimits,
};

const REMOVE_REQUEST: &str = "SELECT hub.remove_request_1($1, $2, $3, $4)";
const DENY: &str = "SELECT id, topic, callback, reason, ended_shard, ended_topic, ended_id \
    FROM hub.deny_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const REMOVE_DENIAL: &str = "SELECT hub.remove_denial_1($1, $2, $3, $4)";

/// The columns of a request, in a query that reads from `hub.request r`.
macro_rules! requests {
    ($rest:literal) => {
        concat!(
            "SELECT r.id, r.pair, r.topic, r.callback, r.client, r.subscribes, r.lease, r.secret, r.verify_token, r.received_at \
             FROM hub.request r ",
            $rest
        )
    };
}
pub(super) use requests;
const REQUEST: &str = requests!("WHERE r.id = $1");
const REQUESTS: &str = requests!("WHERE r.shard = ANY ($1) ORDER BY r.id");
const REQUEST_IDS: &str = "SELECT r.shard, r.id FROM hub.request r WHERE r.shard = ANY ($1) ORDER BY r.id";

macro_rules! denials {
    ($rest:literal) => {
        concat!(
            "SELECT d.id, d.topic, d.callback, d.reason, d.ended_shard, d.ended_topic, d.ended_id FROM hub.denial d WHERE ",
            $rest
        )
    };
}
const DENIAL: &str = denials!("d.pair = $1");
const DENIALS: &str = denials!("d.shard = ANY ($1) ORDER BY d.id");
const DENIED: &str = "SELECT d.shard, d.id, d.pair FROM hub.denial d WHERE d.shard = ANY ($1) ORDER BY d.id";

/// For whoever wants to be refused nothing.
const NO_LIMITS: WaitingLimits =
    WaitingLimits { is_trusted: false, total: usize::MAX, kept: 0, few: 0, host: usize::MAX, client: None };

/// A request that is to be remembered. The answer is its number, or nothing where more wait than its limits allow.
pub(super) struct PutRequest {
    pair: Vec<u8>,
    shard: i16,
    client: Option<IpAddr>,
    host: String,
    topic: String,
    callback: String,
    subscribes: bool,
    lease: Option<i64>,
    secret: Option<Vec<u8>>,
    verify_token: Option<Vec<u8>>,
    received_at: SystemTime,
    is_trusted: bool,
    most_of_client: Option<i64>,
    few_of_client: i64,
    most_at_host: i64,
    most_in_all: i64,
    kept_in_all: i64,
}

impl Grouped for PutRequest {
    const STATEMENT: &'static str = "SELECT hub.put_requests_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
        $17, $18, $19, $20) AS answers";

    fn pair(&self) -> &[u8] {
        &self.pair
    }

    fn columns(commands: &[Self]) -> Vec<Param> {
        columns!(
            commands;
            pair, shard, client, host, topic, callback, subscribes, lease, secret, verify_token, received_at,
            is_trusted, most_of_client, few_of_client, most_at_host, most_in_all, kept_in_all,
        )
    }
}

#[async_trait]
impl Requests for PostgresStore {
    async fn put_request(&self, request: NewRequest) -> Result<PendingRequest> {
        let put = self.put_request_within(request, NO_LIMITS).await?;
        put.ok_or_else(|| StoreError::Read("a request was given no number".to_owned()))
    }

    async fn put_request_within(
        &self,
        request: NewRequest,
        limits: WaitingLimits,
    ) -> Result<Option<PendingRequest>> {
        let NewRequest { topic, callback, intent, verify_token, received_at, client } = request;
        let pair = pair(&topic, &callback);
        let shard = Shard::of(&callback, self.shards);
        let (subscribes, lease, secret) = match &intent {
            Intent::Subscribe { lease, secret } => (true, *lease, secret.as_ref()),
            Intent::Unsubscribe => (false, None, None),
        };
        let sealing = self.shared.keys.sealing().await;
        let secret = secret.map(|secret| Secrets::request(&pair, client).seal(&sealing, secret));
        let command = PutRequest {
            pair: pair.to_vec(),
            shard: shard_number(shard),
            client,
            host: host_of(&callback),
            topic: topic.as_str().to_owned(),
            callback: callback.as_str().to_owned(),
            subscribes,
            // Whatever was asked for, up to the last bit.
            lease: lease.map(u64::cast_signed),
            secret,
            verify_token: verify_token.as_ref().map(|token| token.as_str().as_bytes().to_vec()),
            received_at: received_at.to_system_time(),
            is_trusted: limits.is_trusted,
            most_of_client: client.and(limits.client).map(at_most),
            few_of_client: at_most(limits.few),
            most_at_host: at_most(limits.host),
            most_in_all: at_most(limits.total),
            kept_in_all: at_most(limits.kept),
        };
        let shared = Arc::clone(&self.shared);
        let put = async move {
            let given = shared.grouped(&shared.requests, command).await;
            drop(sealing);
            given
        };
        let Some(id) = self.see_through(put).await? else { return Ok(None) };
        let id = RequestId(whole(id));
        Ok(Some(PendingRequest { id, topic, callback, intent, verify_token, received_at, client }))
    }

    async fn request(&self, id: RequestId) -> Result<Option<PendingRequest>> {
        let rows = self.read(REQUEST, params![big(id.0)]).await?;
        let keys = self.shared.keys.now();
        rows.first().map(|row| request(&keys, Fields::of("requests", row))).transpose()
    }

    async fn remove_request(&self, request: &PendingRequest) -> Result<()> {
        let pair = pair(&request.topic, &request.callback);
        let parameters = params![pair.to_vec(), big(request.id.0)];
        self.command(REMOVE_REQUEST, parameters, |_| Ok(())).await
    }

    async fn request_ids(&self, of: &[Shard]) -> Result<Vec<(Shard, RequestId)>> {
        let rows = self.read(REQUEST_IDS, params![shard_numbers(of)]).await?;
        rows.iter()
            .map(|row| {
                let fields = Fields::of("requests", row);
                Ok((Shard(fields.small("shard")?), RequestId(fields.number("id")?)))
            })
            .collect()
    }

    async fn requests(&self, of: &[Shard]) -> Result<Vec<PendingRequest>> {
        let rows = self.read(REQUESTS, params![shard_numbers(of)]).await?;
        let keys = self.shared.keys.now();
        rows.iter().map(|row| request(&keys, Fields::of("requests", row))).collect()
    }

    async fn deny(&self, denial: NewDenial) -> Result<Option<Denial>> {
        let NewDenial { topic, callback, reason, scope } = denial;
        let shard = Shard::of(&callback, self.shards);
        let (scope, id) = match scope {
            DenialScope::Everything => (0_i16, None),
            DenialScope::Request(id) => (1, Some(id)),
            DenialScope::Confirmed(id) => (2, Some(id)),
        };
        let parameters = params![
            self.shared.node,
            pair(&topic, &callback).to_vec(),
            shard_number(shard),
            scope,
            id.map(|RequestId(id)| big(id)),
            topic.as_str().to_owned(),
            callback.as_str().to_owned(),
            // The only character that a text in a database may not hold.
            reason.replace('\0', "\u{fffd}"),
        ];
        self.told_command(DENY, parameters, |rows| {
            rows.first().map(|row| self::denial(Fields::of("denials", row))).transpose()
        })
        .await
    }

    async fn remove_denial(&self, denial: &Denial) -> Result<()> {
        let pair = pair(&denial.topic, &denial.callback);
        let parameters = params![pair.to_vec(), big(denial.id.0)];
        self.command(REMOVE_DENIAL, parameters, |_| Ok(())).await
    }

    async fn denial(&self, key: SubscriptionKey) -> Result<Option<Denial>> {
        let rows = self.read(DENIAL, params![key.as_bytes().to_vec()]).await?;
        rows.first().map(|row| self::denial(Fields::of("denials", row))).transpose()
    }

    async fn denied(&self, of: &[Shard]) -> Result<Vec<WaitingDenial>> {
        let rows = self.read(DENIED, params![shard_numbers(of)]).await?;
        rows.iter()
            .map(|row| {
                let fields = Fields::of("denials", row);
                let key = SubscriptionKey::from_bytes(fields.get("pair")?);
                let key = key.ok_or_else(|| fields.damaged("pair", "it is cut off"))?;
                Ok(WaitingDenial {
                    shard: Shard(fields.small("shard")?),
                    id: DenialId(fields.number("id")?),
                    key,
                })
            })
            .collect()
    }

    async fn denials(&self, of: &[Shard]) -> Result<Vec<Denial>> {
        let rows = self.read(DENIALS, params![shard_numbers(of)]).await?;
        rows.iter().map(|row| self::denial(Fields::of("denials", row))).collect()
    }
}

/// The host of a callback, by which what waits is counted.
pub(super) fn host_of(callback: &CallbackUrl) -> String {
    callback.url().host_str().unwrap_or_default().to_owned()
}

/// What a row of `requests!` holds.
pub(super) fn request(keys: &Keyring, fields: Fields<'_>) -> Result<PendingRequest> {
    let client = fields.address("client")?;
    let intent = if fields.flag("subscribes")? {
        let row = Secrets::request(fields.get("pair")?, client);
        let secret = fields.get::<Option<&[u8]>>("secret")?.map(|kept| row.open(keys, kept)).transpose()?;
        Intent::Subscribe { lease: fields.get::<Option<i64>>("lease")?.map(i64::cast_unsigned), secret }
    } else {
        Intent::Unsubscribe
    };
    Ok(PendingRequest {
        id: RequestId(fields.number("id")?),
        topic: fields.topic_url("topic")?,
        callback: fields.callback("callback")?,
        intent,
        verify_token: verify_token(fields)?,
        received_at: fields.moment("received_at")?,
        client,
    })
}

fn verify_token(fields: Fields<'_>) -> Result<Option<VerifyToken>> {
    let column = "verify_token";
    let Some(bytes) = fields.get::<Option<&[u8]>>(column)? else { return Ok(None) };
    let text = std::str::from_utf8(bytes).map_err(|error| fields.damaged(column, error))?;
    VerifyToken::new(text).map(Some).map_err(|error| fields.damaged(column, error))
}

/// What a row of `denials!` holds.
pub(super) fn denial(fields: Fields<'_>) -> Result<Denial> {
    let ended = match fields.maybe_number("ended_id")? {
        None => None,
        Some(id) => {
            let shard = Shard(fields.small("ended_shard")?);
            Some((shard, TopicId(fields.number("ended_topic")?), SubscriptionId(id)))
        }
    };
    Ok(Denial {
        id: DenialId(fields.number("id")?),
        topic: fields.topic_url("topic")?,
        callback: fields.callback("callback")?,
        reason: fields.text("reason")?,
        ended,
    })
}
