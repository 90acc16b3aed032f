//! The embedded store as a whole.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::super::engine::Space;
use super::super::shared::Shared;
use super::super::writer::Kind;
use super::super::{Embedded, RESEALED, SMALL, widen};
use super::super::{copy, memory};
use crate::store::encoding::layout::Encryption;
use crate::store::{
    Admin, BackupError, Copied, DatabaseState, Hubs, Keyring, Meters, Registry, Result, StoreError, TopicId,
    Usage,
};

#[async_trait]
impl Admin for Embedded {
    fn health(&self) -> Result<()> {
        self.shared.health()
    }

    fn away_for(&self) -> Option<Duration> {
        None
    }

    fn database(&self) -> Option<DatabaseState> {
        None
    }

    async fn hubs(&self) -> Result<Hubs> {
        Ok(Hubs::default())
    }

    async fn answers(&self) -> Result<()> {
        self.writer.answers().await
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
        self.files.clone()
    }

    async fn pause(&self, topic: TopicId) -> Result<bool> {
        self.change(move |t| t.pause(topic)).await
    }

    async fn resume(&self, topic: TopicId) -> Result<()> {
        self.change(move |t| t.resume(topic)).await
    }

    async fn paused(&self) -> Result<Vec<TopicId>> {
        self.read(Shared::paused).await
    }

    async fn rotate_secrets(&self, keys: Keyring) -> Result<u64> {
        let _changing = self.changing_keys.lock().await;
        let encryption = self.read(|shared| memory::encryption(shared.engine.as_ref())).await?;
        let widened = widen(&encryption, &keys)?;
        let done = Encryption::wholly(&keys);
        if encryption == done && self.shared.keys().writes_with() == keys.writes_with() {
            self.shared.set_keys(keys);
            return Ok(0);
        }
        self.change(move |t| t.set_encryption(&widened)).await?;
        self.shared.set_keys(keys);
        let mut secrets = 0;
        for space in [Space::Requests, Space::Subscriptions] {
            let mut next = Some(Vec::new());
            while let Some(from) = next {
                let resealed = self
                    .writer
                    .run(Kind::Essential, RESEALED * SMALL, move |t| t.reseal(space, from, RESEALED))
                    .await?;
                secrets += resealed.secrets;
                next = resealed.next;
            }
        }
        self.change(move |t| t.set_encryption(&done)).await?;
        Ok(secrets)
    }

    async fn back_up(
        &self,
        beside: Vec<PathBuf>,
        mut out: Box<dyn Write + Send>,
    ) -> std::result::Result<Copied, BackupError> {
        let shared = self.shared.clone();
        let task = tokio::task::spawn_blocking(move || copy::running(&shared, &beside, &mut *out));
        task.await.map_err(|error| StoreError::Read(error.to_string()))?
    }
}
