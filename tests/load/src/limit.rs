//! `resync-load limit`: what this machine could do at best.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;

use super::audience::Audience;
use super::bare::{Bare, BareClient, Bounds};
use super::measure::Spread;
use super::{Failure, Rate};

/// How long appends are measured.
const APPENDING: Duration = Duration::from_secs(2);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Requests of the client loop, with each number of them at once.
    pub requests: u64,
    /// Hosts on 127/8.
    pub hosts: usize,
    /// Bytes of a body.
    pub payload: usize,
    /// Requests under way at once, at most.
    pub at_once: usize,
}

/// The bounds.
#[derive(Clone, Debug, Serialize)]
pub struct LimitReport {
    /// Signed requests without a hub, with as many of them at once as do best.
    pub bare_client: BareClient,
    /// Appends of one payload each to a file, each synced before the next.
    pub durable_appends: Rate,
}

/// Measures; the appends go to a file in `folder`.
///
/// # Errors
/// Whatever the network or the disk reports.
pub async fn limit(limit: &Limit, folder: &Path) -> Result<LimitReport, Failure> {
    let audience = Audience { topics: 1, subscribers: limit.hosts, hosts: limit.hosts };
    let plan = Bare { audience, at_once: limit.at_once, bytes: u32::try_from(limit.payload)? };
    let (_, tried) = Bounds::connect(&plan).await?.measure(limit.requests).await?;
    let (durable_appends, _) = durable_appends(folder, payload(limit.payload), APPENDING).await?;
    Ok(LimitReport { bare_client: tried[BareClient::fastest(&tried)], durable_appends })
}

/// What the disk in this folder allows to one writer without a store, and how long each append took.
pub(super) async fn durable_appends(
    folder: &Path,
    body: Bytes,
    time: Duration,
) -> Result<(Rate, Spread), Failure> {
    let file = folder.join("appends");
    tokio::task::spawn_blocking(move || append(&file, &body, time)).await?
}

/// A body of so many bytes.
pub(super) fn payload(bytes: usize) -> Bytes {
    Bytes::from(vec![b'x'; bytes])
}

/// Each synced before the next.
fn append(path: &Path, body: &[u8], time: Duration) -> Result<(Rate, Spread), Failure> {
    let mut file = File::create(path)?;
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        let before = Instant::now();
        file.write_all(body)?;
        file.sync_data()?;
        times.push(before.elapsed());
    }
    let rate = Rate::new(times.len() as u64, began.elapsed());
    drop(file);
    std::fs::remove_file(path)?;
    Ok((rate, Spread::of(times)?))
}
