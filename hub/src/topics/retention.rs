//! Retention: the log keeps notifications for a promised time, within a bounded space.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use resync_core::datetime::DateTime;
use tokio::sync::watch;
use tokio::time::interval;
use tracing::{error, info};

use crate::config::RetentionConfig;
use crate::store::Store;

/// How often the log is trimmed.
const EVERY: Duration = Duration::from_secs(60);

/// Trims the log again and again until `stop` turns true.
pub async fn keep_trimming(store: Arc<dyn Store>, config: RetentionConfig, mut stop: watch::Receiver<bool>) {
    let mut ticks = interval(EVERY);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let now = DateTime::now().to_system_time();
        let oldest =
            DateTime::from_system_time(now.checked_sub(config.age).unwrap_or(SystemTime::UNIX_EPOCH));
        match store.trim(oldest, config.size).await {
            Ok(trimmed) if trimmed.notifications > 0 => {
                info!(notifications = trimmed.notifications, bytes = trimmed.bytes, "log trimmed");
            }
            Ok(_) => {}
            Err(error) => error!(%error, "log not trimmed"),
        }
    }
}
