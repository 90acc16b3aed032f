//! The store in a database as a whole.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::documents::{number, open, seal};
use super::line::DEADLINE;
use super::registry::InDatabase;
use super::rows::{Fields, Param, big, params, shard_number, the_only};
use super::schema::encryption;
use super::secrets::{self, Row as Secrets};
use super::{PostgresStore, backup, hubs};
use crate::store::encoding::layout::Encryption;
use crate::store::{
    Admin, BackupError, Copied, DatabaseState, Document, Hubs, Keyring, Meters, Registry, Result, Shard,
    StoreError, TopicId, Usage,
};

/// Secrets that are rewritten in one command.
const RESEALED: i64 = 1_024;

/// By the connection of the heartbeat: commands may wait, many of them, and that is no silence.
const FENCE: &str = "SELECT hub.fence_1($1, $2)";
const PAUSE: &str = "SELECT hub.pause_1($1, $2, $3, $4) AS is_there";
const RESUME: &str = "SELECT hub.resume_1($1, $2, $3, $4)";
const PAUSED: &str = "SELECT p.topic FROM hub.paused p ORDER BY p.topic";
const ENCRYPTION: &str = "SELECT s.secret_keys, s.plain_secrets FROM hub.store s";
const NOTE_ENCRYPTION: &str = "SELECT hub.note_secret_keys_2($1, $2, $3, $4, $5, $6, $7) AS is_noted";
const WITHOUT_KEY: &str = "SELECT n.name FROM hub.node n \
    WHERE n.id <> $1 AND hub.is_up_1(n.alive_until) AND $2 <> ALL (n.reads) ORDER BY n.id LIMIT 1";
/// Those that do not begin as what is written now does.
const OUTDATED_REQUESTS: &str = "SELECT r.id, r.pair, r.client, r.secret FROM hub.request r \
    WHERE r.id > $1 AND substring(r.secret FROM 1 FOR octet_length($2::bytea)) <> $2 ORDER BY r.id LIMIT $3";
const RESEAL_REQUESTS: &str = "SELECT hub.reseal_requests_1($1, $2, $3, $4, $5) AS rewritten";
const OUTDATED_SUBSCRIPTIONS: &str = "SELECT s.topic, s.id, s.pair, s.secret FROM hub.subscription s \
    WHERE s.shard = $1 AND (s.topic, s.id) > ($2, $3) AND substring(s.secret FROM 1 FOR octet_length($4::bytea)) <> $4 \
    ORDER BY s.topic, s.id LIMIT $5";
const RESEAL_SUBSCRIPTIONS: &str =
    "SELECT hub.reseal_subscriptions_1($1, $2, $3, $4, $5, $6, $7) AS rewritten";
const OUTDATED_DOCUMENT: &str = "SELECT d.content FROM hub.document d \
    WHERE d.kind = $1 AND substring(d.content FROM 1 FOR octet_length($2::bytea)) <> $2";
const RESEAL_DOCUMENT: &str = "SELECT hub.reseal_document_1($1, $2, $3, $4, $5) AS is_rewritten";

#[async_trait]
impl Admin for PostgresStore {
    fn health(&self) -> Result<()> {
        self.shared.health()
    }

    fn away_for(&self) -> Option<Duration> {
        self.shared.common.health.away_for()
    }

    fn database(&self) -> Option<DatabaseState> {
        Some(hubs::known(&self.shared.common))
    }

    async fn hubs(&self) -> Result<Hubs> {
        self.look_at_hubs().await
    }

    async fn answers(&self) -> Result<()> {
        self.appender.answers().await?;
        let shared = Arc::clone(&self.shared);
        let asked = async move { shared.heartbeat.write(FENCE, &[], DEADLINE).await.map(drop) };
        match self.see_through(asked).await {
            Err(StoreError::Closed) => Err(StoreError::Closed),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn broken(&self) {
        self.shared.broken().await;
    }

    fn usage(&self) -> Usage {
        self.shared.usage()
    }

    fn meters(&self) -> Meters {
        self.shared.meters.clone()
    }

    fn registry(&self) -> Arc<dyn Registry> {
        Arc::new(InDatabase::of(&self.shared, &self.runtime))
    }

    async fn pause(&self, topic: TopicId) -> Result<bool> {
        self.told_command(PAUSE, params![self.shared.node, big(topic.0)], |rows| {
            Fields::of("topics", the_only(rows)?).flag("is_there")
        })
        .await
    }

    async fn resume(&self, topic: TopicId) -> Result<()> {
        self.told_command(RESUME, params![self.shared.node, big(topic.0)], |_| Ok(())).await
    }

    async fn paused(&self) -> Result<Vec<TopicId>> {
        let rows = self.read(PAUSED, params![]).await?;
        rows.iter().map(|row| Fields::of("topics", row).number("topic").map(TopicId)).collect()
    }

    async fn rotate_secrets(&self, keys: Keyring) -> Result<u64> {
        let _rotation = self.shared.keys.rotation().await;
        let (before, widened) = self.widen(&keys).await?;
        let done = Encryption::wholly(&keys);
        if before == done && self.shared.keys.now().writes_with() == keys.writes_with() {
            self.shared.keys.change(keys).await;
            return Ok(0);
        }
        self.shared.keys.change(keys.clone()).await;
        let mut rewritten = self.reseal_requests(&keys).await?;
        for shard in (0..self.shards).map(Shard) {
            rewritten += self.reseal_subscriptions(&keys, shard).await?;
        }
        rewritten += self.reseal_documents(&keys).await?;
        self.note_encryption(&widened, &done).await?;
        Ok(rewritten)
    }

    async fn back_up(
        &self,
        beside: Vec<PathBuf>,
        mut out: Box<dyn Write + Send>,
    ) -> std::result::Result<Copied, BackupError> {
        let (config, keys) = (self.shared.config.clone(), self.shared.keys.now());
        let task = tokio::task::spawn_blocking(move || backup::back_up(&config, &keys, &beside, &mut *out));
        task.await.map_err(|error| StoreError::Read(error.to_string()))?
    }
}

impl PostgresStore {
    /// Under which keys secrets are stored.
    async fn encryption(&self) -> Result<Encryption> {
        let rows = self.read(ENCRYPTION, params![]).await?;
        encryption(Fields::of("meta", the_only(&rows)?))
    }

    /// Notes the key with which secrets will be written, before one is.
    pub(super) async fn note_keys(&self) -> Result<()> {
        self.widen(&self.shared.keys.now()).await?;
        self.shared.keys.set_noted();
        Ok(())
    }

    /// Makes sure that every secret can be read with these keys, and notes the one that will be written with: as it was, and as it is.
    async fn widen(&self, keys: &Keyring) -> Result<(Encryption, Encryption)> {
        loop {
            let before = self.encryption().await?;
            before.require(keys)?;
            self.check_others(keys).await?;
            let widened = before.widened(keys);
            // Another hub may change it at the same time.
            if widened == before || self.note_encryption(&before, &widened).await? {
                return Ok((before, widened));
            }
        }
    }

    /// Makes sure that all hubs can read what is written with these keys.
    async fn check_others(&self, keys: &Keyring) -> Result<()> {
        let Some(key) = keys.writes_with() else { return Ok(()) };
        let rows = self.read(WITHOUT_KEY, params![self.shared.node, key.as_bytes().to_vec()]).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        Err(StoreError::KeyElsewhere { hub: Fields::of("nodes", row).text("name")?, key })
    }

    /// Notes it, unless somebody else has noted something in between; tells which.
    async fn note_encryption(&self, before: &Encryption, now: &Encryption) -> Result<bool> {
        let parameters = params![self.shared.node, names(before), before.plain, names(now), now.plain];
        self.command(NOTE_ENCRYPTION, parameters, |rows| Fields::of("meta", the_only(rows)?).flag("is_noted"))
            .await
    }

    async fn reseal_requests(&self, keys: &Keyring) -> Result<u64> {
        let (mut rewritten, mut after) = (0, -1_i64);
        loop {
            let rows =
                self.read(OUTDATED_REQUESTS, params![after, secrets::beginning(keys), RESEALED]).await?;
            let Some(last) = rows.last() else { return Ok(rewritten) };
            after = Fields::of("requests", last).get("id")?;
            let (mut ids, mut before, mut now) = (Vec::new(), Vec::new(), Vec::new());
            for row in &rows {
                let fields = Fields::of("requests", row);
                let of = Secrets::request(fields.get("pair")?, fields.address("client")?);
                ids.push(fields.get::<i64>("id")?);
                reseal(keys, &of, fields, &mut before, &mut now)?;
            }
            rewritten += self.rewrite(RESEAL_REQUESTS, params![ids, before, now]).await?;
        }
    }

    async fn reseal_subscriptions(&self, keys: &Keyring, shard: Shard) -> Result<u64> {
        let (mut rewritten, mut after) = (0, (-1_i64, -1_i64));
        loop {
            let beginning = secrets::beginning(keys);
            let parameters = params![shard_number(shard), after.0, after.1, beginning, RESEALED];
            let rows = self.read(OUTDATED_SUBSCRIPTIONS, parameters).await?;
            let Some(last) = rows.last() else { return Ok(rewritten) };
            let last = Fields::of("subscriptions", last);
            after = (last.get("topic")?, last.get("id")?);
            let (mut topics, mut ids) = (Vec::new(), Vec::new());
            let (mut before, mut now) = (Vec::new(), Vec::new());
            for row in &rows {
                let fields = Fields::of("subscriptions", row);
                topics.push(fields.get::<i64>("topic")?);
                ids.push(fields.get::<i64>("id")?);
                reseal(keys, &Secrets::subscription(fields.get("pair")?), fields, &mut before, &mut now)?;
            }
            let shards = vec![shard_number(shard); ids.len()];
            rewritten +=
                self.rewrite(RESEAL_SUBSCRIPTIONS, params![shards, topics, ids, before, now]).await?;
        }
    }

    async fn reseal_documents(&self, keys: &Keyring) -> Result<u64> {
        let (of, mut rewritten) = (Document::TicketKey, 0);
        // Who changes it at the same time seals it with these keys.
        let rows = self.read(OUTDATED_DOCUMENT, params![number(of), secrets::beginning(keys)]).await?;
        for row in &rows {
            let kept = Fields::of("documents", row).bytes("content")?;
            let now = seal(keys, of, &open(keys, of, &kept)?)?;
            let is_rewritten = self
                .command(RESEAL_DOCUMENT, params![number(of), kept, now], |rows| {
                    Fields::of("documents", the_only(rows)?).flag("is_rewritten")
                })
                .await?;
            rewritten += u64::from(is_rewritten);
        }
        Ok(rewritten)
    }

    async fn rewrite(&self, sql: &'static str, parameters: Vec<Param>) -> Result<u64> {
        self.command(sql, parameters, |rows| Fields::of("secrets", the_only(rows)?).number("rewritten")).await
    }
}

fn names(encryption: &Encryption) -> Vec<Vec<u8>> {
    encryption.keys.iter().map(|key| key.as_bytes().to_vec()).collect()
}

/// What is kept of a secret, and what will be.
fn reseal(
    keys: &Keyring,
    of: &Secrets,
    fields: Fields<'_>,
    before: &mut Vec<Vec<u8>>,
    now: &mut Vec<Vec<u8>>,
) -> Result<()> {
    let kept: &[u8] = fields.get("secret")?;
    now.push(of.seal(keys, &of.open(keys, kept)?));
    before.push(kept.to_vec());
    Ok(())
}
