//! Fetches one resource, and checks it while it arrives.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use resync_core::digest::{Agreement, Algorithm, Hasher, Hashes};
use tempfile::NamedTempFile;
use url::Url;

use super::content::{Content, Growth, MAX_IN_MEMORY, Space};
use super::folder::Staging;
use super::local::Facts;
use super::resource_error::ResourceError;
use crate::blocking::blocking;
use crate::fetch::{Answer, Client, Deadline, FetchError, Follow, Remainder, Retries, Validators};
use crate::sync::SyncOptions;
use crate::sync::saved::cache::SentVersion;

/// A download of one resource.
pub(crate) struct Transfer<'s> {
    pub(crate) client: &'s Client,
    pub(crate) options: &'s SyncOptions,
    pub(crate) staging: &'s Staging,
    pub(crate) url: &'s Url,
    /// The list that names it.
    pub(crate) list: &'s Url,
    /// Its mirrors, the preferred one first: they come before the Source (RS-171).
    pub(crate) mirrors: &'s [Url],
    /// The original (RS-180), if neither a mirror nor the Source has it.
    pub(crate) via: Option<&'s Url>,
    pub(crate) facts: &'s Facts,
    /// The representation that is asked for, as the `Accept` header says it.
    pub(crate) accept: Option<&'s str>,
    /// The version that is here, which need not be sent again.
    pub(crate) unless: Option<&'s Validators>,
    /// Counts every received byte, also of failed tries.
    pub(crate) bytes: &'s AtomicU64,
}

/// A complete resource, as listed.
pub(crate) struct Received {
    pub(crate) content: Content,
    pub(crate) length: u64,
    pub(crate) hashes: Hashes,
    /// When it was modified, according to the server.
    pub(crate) modified: Option<SystemTime>,
    /// To ask the server later whether it has changed.
    pub(crate) sent: Option<Box<SentVersion>>,
}

impl Transfer<'_> {
    /// Fetches from the first mirror that has it, or else from the Source, or else from the original.
    pub(crate) async fn run(&self) -> Result<Received, ResourceError> {
        // Only a hash shows that what another origin sends is the resource (RS-200).
        let follow = match self.facts.algorithm() {
            Some(_) => Follow::Anywhere,
            None => self.options.authority.follow(self.list),
        };
        for mirror in self.mirrors {
            match self.in_time(mirror, follow, &mut None).await {
                Ok(received) => return Ok(received),
                Err(error) => tracing::debug!(%error, %mirror, "cannot use a mirror"),
            }
        }
        let error = match self.at_source().await {
            Err(error) if error.may_be_elsewhere() => error,
            result => return result,
        };
        let Some(via) = self.via else { return Err(error) };
        self.in_time(via, follow, &mut None).await.map_err(|other| {
            tracing::debug!(error = %other, %via, "cannot use the original of a resource either");
            error
        })
    }

    /// Fetches from the Source. Retries while it is unreachable, continuing where the last try was cut off; and once if the bytes
    /// differ from the list.
    async fn at_source(&self) -> Result<Received, ResourceError> {
        let follow = self.options.authority.follow(self.list);
        let mut retries = Retries::new(self.options.retries, self.options.retry_pause);
        let mut mismatched = false;
        let mut part = None;
        loop {
            let was_part = part.is_some();
            let result = self.in_time(self.url, follow, &mut part).await;
            if !result.as_ref().is_err_and(ResourceError::is_transient) {
                part = None;
            }
            match result {
                Err(error) if error.is_mismatch() && !mismatched => mismatched = true,
                // The server cannot continue there.
                Err(ResourceError::Fetch(FetchError::Status { status: 416, .. })) if was_part => {}
                Err(ResourceError::Fetch(error)) => {
                    let Some(pause) = retries.after(&error) else { return Err(error.into()) };
                    tracing::debug!(%error, url = %self.url, "requesting a resource again");
                    tokio::time::sleep(pause).await;
                }
                result => return result,
            }
        }
    }

    /// Reads the body of an answer, and checks it.
    pub(crate) async fn receive(&self, answer: Answer) -> Result<Received, ResourceError> {
        let url = answer.url.clone();
        self.once(&url, answer, &mut None).await
    }

    async fn in_time(
        &self,
        url: &Url,
        follow: Follow<'_>,
        part: &mut Option<Part>,
    ) -> Result<Received, ResourceError> {
        let mut deadline = Deadline::after(self.client.options().resource_timeout);
        let rest = part.as_ref().and_then(|part| Remainder::of(part.length, &part.validators));
        let mut headers = match (&rest, self.unless) {
            (Some(rest), _) => rest.headers(),
            (None, Some(known)) => known.conditions(),
            (None, None) => HeaderMap::new(),
        };
        let accept = self.accept.and_then(|accept| HeaderValue::from_str(accept).ok());
        headers.extend(accept.map(|accept| (ACCEPT, accept)));
        let answer = self.client.get(url, follow, headers, &mut deadline).await?;
        let answer = answer.ok_or_else(|| FetchError::of_status(url, 304))?;
        deadline.meet(url, self.once(url, answer, part)).await.unwrap_or_else(|late| {
            // It is not known how much was written.
            *part = None;
            Err(late.into())
        })
    }

    /// If the connection is cut, `part` has what was received.
    async fn once(
        &self,
        url: &Url,
        mut answer: Answer,
        part: &mut Option<Part>,
    ) -> Result<Received, ResourceError> {
        let whole = answer.length.map(|length| length.saturating_add(answer.start));
        self.check_announced(whole)?;
        // Short ones are checked when they are written.
        if let Some(needed) =
            answer.length.or(self.facts.length).filter(|needed| *needed > MAX_IN_MEMORY as u64)
        {
            let staging = self.staging.clone();
            blocking(move || Space::of(&staging).check(needed)).await?;
        }
        let goes_on = answer.start > 0 && part.as_ref().is_some_and(|part| part.length == answer.start);
        if answer.start > 0 && !goes_on {
            *part = None;
            return Err(FetchError::CutOff {
                url: url.clone(),
                reason: "the server sent another part".to_owned(),
            }
            .into());
        }
        if !goes_on {
            *part = Some(self.begin(&answer));
        }
        // It was there, or was just begun.
        if let Some(part) = part.as_mut() {
            self.take(&mut answer, part).await?;
        }
        let Some(Part { file, buffer, hasher, length, validators, modified, .. }) = part.take() else {
            return Err(std::io::Error::other("a download without content").into());
        };
        let content = file.map_or(Content::Memory(buffer), Content::File);
        let sent = SentVersion { url: url.to_string(), validators };
        let sent = sent.validators.are_given().then(|| Box::new(sent));
        let received = Received { content, length, hashes: hasher.finish(), modified, sent };
        self.check(&received)?;
        Ok(received)
    }

    fn begin(&self, answer: &Answer) -> Part {
        let algorithms = self.facts.algorithm().into_iter().chain([Algorithm::Sha256]);
        let (validators, modified) = (answer.validators.clone(), answer.last_modified);
        let hasher = Hasher::new(algorithms);
        let (buffer, growth) = (Vec::new(), Growth::default());
        Part { file: None, buffer, growth, hasher, length: 0, validators, modified }
    }

    /// Checks the announced length, before anything is read.
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

    async fn take(&self, answer: &mut Answer, part: &mut Part) -> Result<(), ResourceError> {
        while let Some(chunk) = answer.chunk().await? {
            let count = chunk.len() as u64;
            let of_run = self.bytes.fetch_add(count, Ordering::Relaxed) + count;
            if of_run > self.options.max_run_bytes {
                return Err(ResourceError::RunFull { max: self.options.max_run_bytes });
            }
            self.options.progress.received(count);
            part.length += count;
            if let Some(listed) = self.facts.length.filter(|listed| part.length > *listed) {
                return Err(ResourceError::Length { listed, sent: None });
            }
            if part.length > self.options.max_resource_bytes {
                return Err(ResourceError::TooLarge { max: self.options.max_resource_bytes });
            }
            part.hasher.update(&chunk);
            part.buffer.extend_from_slice(&chunk);
            if part.buffer.len() >= MAX_IN_MEMORY {
                part.write(self.staging).await?;
            }
        }
        // Short ones are written together with others.
        if part.file.is_some() { part.write(self.staging).await } else { Ok(()) }
    }

    fn check(&self, sent: &Received) -> Result<(), ResourceError> {
        if let Some(listed) = self.facts.length.filter(|listed| *listed != sent.length) {
            return Err(ResourceError::Length { listed, sent: Some(sent.length) });
        }
        if self.facts.hashes.compare(&sent.hashes) == Agreement::Different {
            return Err(ResourceError::Hash { listed: self.facts.hashes.clone(), sent: sent.hashes.clone() });
        }
        Ok(())
    }
}

/// What was received of a resource so far.
struct Part {
    /// `None` while all of it is in memory.
    file: Option<NamedTempFile>,
    /// What is not written yet.
    buffer: Vec<u8>,
    growth: Growth,
    hasher: Hasher,
    length: u64,
    validators: Validators,
    modified: Option<SystemTime>,
}

impl Part {
    /// Writes the buffer. After an error there is no file any more.
    async fn write(&mut self, staging: &Staging) -> Result<(), ResourceError> {
        let (file, buffer, staging) = (self.file.take(), std::mem::take(&mut self.buffer), staging.clone());
        let mut growth = self.growth;
        let written = blocking(move || -> Result<(NamedTempFile, Growth), ResourceError> {
            let Some(mut file) = file else { return Ok((Space::of(&staging).write(&buffer)?, growth)) };
            growth.check(buffer.len() as u64, || staging.free_space())?;
            file.write_all(&buffer)?;
            Ok((file, growth))
        });
        let (file, growth) = written.await?;
        (self.file, self.growth) = (Some(file), growth);
        Ok(())
    }
}
