//! Fetching one resource: streamed beside its place, checked while it is written, put in place in one step.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use resync_core::datetime::DateTime;
use resync_core::digest::{Agreement, Algorithm, Hasher, Hashes};
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt as _;
use url::Url;

use super::local::{Facts, hash_file};
use super::memory::{Known, Stamp};
use super::put::Placing;
use super::{Authority, PathError, SyncOptions};
use crate::fetch::{Answer, Client, FetchError, Follow};

/// Why one resource is not in step.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// It has no safe place under the directory.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It belongs to another origin than its list (RS-200).
    #[error("it is not of the list's own origin {list}: allow other origins if you trust this Source")]
    OtherOrigin {
        /// The list's origin.
        list: String,
    },
    /// It could not be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// It was fetched twice and has another length than the list says (RS-199).
    #[error("the list says {listed} bytes, the Source sends {}: the list may be out of date", describe(*.sent))]
    Length {
        /// What the list says.
        listed: u64,
        /// What came; `None` for more than listed.
        sent: Option<u64>,
    },
    /// It was fetched twice and has another hash than the list says (RS-199).
    #[error("the list says {listed}, what the Source sends has {sent}: the list may be out of date")]
    Hash {
        /// What the list says.
        listed: Hashes,
        /// What came.
        sent: Hashes,
    },
    /// It is larger than this Destination takes.
    #[error("it is larger than {max} bytes")]
    TooLarge {
        /// The bound.
        max: u64,
    },
    /// The run has transferred all it may; the next one goes on.
    #[error("the run has transferred {max} bytes, which is all that one may")]
    RunFull {
        /// The bound.
        max: u64,
    },
    /// It could not be written.
    #[error("it cannot be written: {0}")]
    Write(#[from] std::io::Error),
}

fn describe(sent: Option<u64>) -> String {
    sent.map_or_else(|| "more".to_owned(), |sent| sent.to_string())
}

impl ResourceError {
    fn is_mismatch(&self) -> bool {
        matches!(self, Self::Length { .. } | Self::Hash { .. })
    }

    fn is_transient(&self) -> bool {
        matches!(self, Self::Fetch(error) if error.is_transient())
    }

    /// Whether it may succeed later although the list stays as it is. A name, an origin or a 404 does not
    /// change by itself; what came other than listed may be newer than the list (RS-199) or a stale cache.
    pub(crate) fn may_mend(&self) -> bool {
        match self {
            Self::Path(_) | Self::OtherOrigin { .. } | Self::TooLarge { .. } => false,
            Self::Fetch(error) => error.is_transient(),
            Self::Length { .. } | Self::Hash { .. } | Self::RunFull { .. } | Self::Write(_) => true,
        }
    }
}

/// What became of the file.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    /// With what is now known of the file.
    Replaced(Option<Known>),
    /// The same bytes were there already, so the file was left alone.
    Identical,
}

/// A resource to fetch and where it belongs.
pub(crate) struct Job<'s> {
    pub(crate) client: &'s Client,
    pub(crate) options: &'s SyncOptions,
    pub(crate) placing: &'s Arc<Placing>,
    pub(crate) relative: &'s Path,
    pub(crate) url: &'s Url,
    pub(crate) facts: &'s Facts,
    /// Counts every byte that came, also of tries that failed.
    pub(crate) bytes: &'s AtomicU64,
}

impl Job<'_> {
    /// Fetches, with retries while the Source is away and one more try when what came is not what the list
    /// says.
    pub(crate) async fn run(&self) -> Result<Written, ResourceError> {
        let mut pause = self.options.retry_pause;
        let mut retries = self.options.retries;
        let mut mismatched = false;
        loop {
            match self.once_in_time().await {
                Err(error) if error.is_mismatch() && !mismatched => mismatched = true,
                Err(error) if error.is_transient() && retries > 0 => {
                    tracing::debug!(%error, url = %self.url, "a resource is asked for again");
                    retries -= 1;
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                result => return result,
            }
        }
    }

    async fn once_in_time(&self) -> Result<Written, ResourceError> {
        let limit = self.client.options().resource_timeout;
        let timed = tokio::time::timeout(limit, self.once()).await;
        timed.unwrap_or_else(|_| Err(FetchError::Timeout { url: self.url.clone() }.into()))
    }

    async fn once(&self) -> Result<Written, ResourceError> {
        let follow = match self.options.authority {
            Authority::SameOrigin => Follow::SameOrigin,
            Authority::Any => Follow::Anywhere,
        };
        let answer = self.client.get(self.url, follow).await?;
        self.check_announced(answer.length)?;
        let modified = self.facts.modified.map(DateTime::to_system_time).or(answer.last_modified);
        let placing = Arc::clone(self.placing);
        let file = blocking(move || placing.folder.unfinished()).await?;
        let (file, sent) = self.write(answer, file).await?;
        self.check(&sent)?;
        let compare_bytes = self.facts.algorithm().is_none();
        let (placing, relative) = (Arc::clone(self.placing), self.relative.to_owned());
        blocking(move || finish(&placing, file, &relative, modified, compare_bytes, sent)).await
    }

    /// Refuses by the announced length, before anything is read.
    fn check_announced(&self, announced: Option<u64>) -> Result<(), ResourceError> {
        if let (Some(listed), Some(sent)) = (self.facts.length, announced)
            && listed != sent
        {
            return Err(ResourceError::Length { listed, sent: Some(sent) });
        }
        let max = self.options.max_resource_bytes;
        if announced.is_some_and(|length| length > max) {
            return Err(ResourceError::TooLarge { max });
        }
        Ok(())
    }

    async fn write(
        &self,
        mut answer: Answer,
        file: NamedTempFile,
    ) -> Result<(NamedTempFile, Sent), ResourceError> {
        let mut out = tokio::fs::File::from_std(file.as_file().try_clone()?);
        let algorithms = self.facts.algorithm().into_iter().chain([Algorithm::Sha256]);
        let mut hasher = Hasher::new(algorithms);
        let mut length = 0;
        while let Some(chunk) = answer.chunk().await? {
            length += chunk.len() as u64;
            let of_run = self.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed) + chunk.len() as u64;
            if of_run > self.options.max_run_bytes {
                return Err(ResourceError::RunFull { max: self.options.max_run_bytes });
            }
            if let Some(listed) = self.facts.length.filter(|listed| length > *listed) {
                return Err(ResourceError::Length { listed, sent: None });
            }
            if length > self.options.max_resource_bytes {
                return Err(ResourceError::TooLarge { max: self.options.max_resource_bytes });
            }
            hasher.update(&chunk);
            out.write_all(&chunk).await?;
        }
        out.flush().await?;
        Ok((file, Sent { length, hashes: hasher.finish() }))
    }

    fn check(&self, sent: &Sent) -> Result<(), ResourceError> {
        if let Some(listed) = self.facts.length.filter(|listed| *listed != sent.length) {
            return Err(ResourceError::Length { listed, sent: Some(sent.length) });
        }
        if self.facts.hashes.compare(&sent.hashes) == Agreement::Different {
            return Err(ResourceError::Hash { listed: self.facts.hashes.clone(), sent: sent.hashes.clone() });
        }
        Ok(())
    }
}

/// What came.
struct Sent {
    length: u64,
    hashes: Hashes,
}

fn finish(
    placing: &Placing,
    file: NamedTempFile,
    relative: &Path,
    modified: Option<SystemTime>,
    compare_bytes: bool,
    sent: Sent,
) -> Result<Written, ResourceError> {
    let path = placing.directory.join(relative);
    if compare_bytes && placing.can_be_reached(relative)? && is_identical(&path, &sent)? {
        // The time is all that the next comparison may have to go by.
        if let Some(modified) = modified {
            std::fs::File::options().write(true).open(path)?.set_modified(modified)?;
        }
        return Ok(Written::Identical);
    }
    if let Some(modified) = modified {
        file.as_file().set_modified(modified)?;
    }
    file.as_file().sync_all()?;
    placing.put(file, relative)?;
    // What cannot be looked at now is read again when it is next compared.
    let stamp = std::fs::symlink_metadata(&path).and_then(|data| Stamp::of(&data)).ok();
    Ok(Written::Replaced(stamp.map(|stamp| Known { stamp, hashes: sent.hashes })))
}

fn is_identical(path: &Path, sent: &Sent) -> std::io::Result<bool> {
    let same_length =
        std::fs::symlink_metadata(path).is_ok_and(|data| data.is_file() && data.len() == sent.length);
    Ok(same_length && hash_file(path, Algorithm::Sha256)?.compare(&sent.hashes) == Agreement::Same)
}

/// Runs file work where it may block.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("file work does not panic, and its task is never aborted")
}
