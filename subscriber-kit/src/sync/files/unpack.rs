//! Brings files in step without requests for their resources: from packages, and by patches.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use resync_core::digest::{Agreement, Algorithm, Digest, Hashes};
use resync_core::document::{Entry, Metadata};
use url::Url;

use super::batch::{self, FinishedFile};
use super::content::Content;
use super::download::{Received, Transfer};
use super::executor::{Executor, FetchedFile, FileResult};
use super::folder::Staging;
use super::local::{self, Facts, FileState};
use super::patch::{MAX_PATCHED, PatchLink, apply};
use super::place::Placer;
use crate::blocking::blocking;
use crate::sync::progress::Outcome;
use crate::sync::reading::packages::{Bitstream, OpenPackage, Packages, bitstream, linked};
use crate::sync::reading::path::relative_path;
use crate::sync::reading::plan::{Line, Plan};
use crate::sync::{ResourceError, SyncError, SyncOptions};

impl Executor<'_> {
    /// Brings files in step from packages. Those for which this fails are fetched like any other.
    pub(crate) async fn unpack(&mut self, plan: &Plan, mut packages: Packages) -> Result<(), SyncError> {
        if packages.is_empty() || self.options.dry_run {
            return Ok(());
        }
        let mut batch = Vec::new();
        let mut steps = plan.begin(false)?;
        while let Some(planned) = steps.next().await? {
            let Some(package) = planned.line.packed.as_ref().map(|packed| packed.package) else { continue };
            packages.pass_to(package);
            let Ok(relative) = relative_path(&planned.line.loc, &planned.url, &self.target.base) else {
                continue;
            };
            if !self.placer.file_map.is_last_word(&relative, planned.number) {
                continue;
            }
            let Ok(comparison) = self.compare(&planned, &relative).await else { continue };
            if comparison.local == FileState::Same {
                let local::Comparison { known, hashed, .. } = comparison;
                self.is_done(planned.number, Ok(FileResult { outcome: Outcome::Unchanged, known, hashed }));
                continue;
            }
            let (placer, entry) = (Arc::clone(&self.placer), packed_entry(&planned.line));
            let max = self.options.max_resource_bytes;
            let take = move |open: &mut OpenPackage| bitstream(open, &entry, &placer.folder, max);
            match packages.read(package, self.lists, take).await {
                Some(Bitstream::Received(received)) => {
                    let ready = FinishedFile::new(received, &planned.line.facts, &relative);
                    batch.push((planned.number, FetchedFile { ready, comparison, is_patched: false }));
                }
                Some(Bitstream::Refused(error)) => self.is_done(planned.number, Err(error)),
                // It is fetched from its URI.
                Some(Bitstream::Unusable) | None => {}
            }
            if batch.len() >= batch::MAX_FILES {
                self.place_unpacked(std::mem::take(&mut batch)).await;
            }
        }
        self.place_unpacked(batch).await;
        packages.pass_to(u32::MAX);
        *self.packages.lock().await = packages;
        Ok(())
    }

    async fn place_unpacked(&mut self, batch: Vec<(u32, FetchedFile)>) {
        let (numbers, batch): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        for (number, result) in numbers.into_iter().zip(self.place_new(batch).await) {
            self.is_done(number, result);
        }
    }

    fn is_done(&mut self, line: u32, result: Result<FileResult, ResourceError>) {
        self.unpacked.get_mut().unwrap_or_else(PoisonError::into_inner).insert(line, result);
    }

    /// Patches the local file, if there are patches and the list has a hash (RS-174, RS-175).
    pub(crate) async fn patch(&self, line: &Line, relative: &Path, local: FileState) -> Option<Received> {
        let is_worth_it = local == FileState::Different && line.facts.algorithm().is_some();
        let longest = line.facts.length.unwrap_or(MAX_PATCHED).min(MAX_PATCHED);
        let patch_bytes = line.patches.iter().map(|patch| patch.facts.length.unwrap_or(0)).sum::<u64>();
        if line.patches.is_empty() || !is_worth_it || patch_bytes >= longest {
            return None;
        }
        let (mut patches, mut remaining) = (Vec::new(), MAX_PATCHED);
        for patch in &line.patches {
            let patch = self.fetch_patch(patch).await?;
            remaining = remaining.checked_sub(patch.len() as u64)?;
            patches.push(patch);
        }
        let (placer, facts, relative) = (Arc::clone(&self.placer), line.facts.clone(), relative.to_owned());
        blocking(move || match patched(&placer, &facts, &relative, &patches) {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(%error, "cannot patch a file");
                None
            }
        })
        .await
    }

    async fn fetch_patch(&self, patch: &PatchLink) -> Option<Vec<u8>> {
        if let Some(packed) = &patch.packed {
            let link = patch.link();
            let take = move |open: &mut OpenPackage| linked(open, &link, MAX_PATCHED);
            return self.packages.lock().await.read(packed.package, self.lists, take).await.flatten();
        }
        let url = Url::parse(&patch.url).ok().filter(|url| self.options.authority.allows(url, &self.home))?;
        let max = self.options.max_resource_bytes.min(MAX_PATCHED);
        let options = SyncOptions { max_resource_bytes: max, ..self.options.clone() };
        let transfer = Transfer { options: &options, ..self.lists.transfer(&url, &patch.facts) };
        match transfer.run().await {
            Ok(received) => match received.content {
                Content::Memory(bytes) => Some(bytes),
                Content::File(file) => blocking(move || std::fs::read(file.path())).await.ok(),
            },
            Err(error) => {
                tracing::debug!(%url, %error, "cannot use a patch");
                None
            }
        }
    }
}

/// The manifest entry of this line.
fn packed_entry(line: &Line) -> Entry {
    let path = line.packed.as_ref().map(|packed| packed.path.clone());
    let Facts { length, hashes, .. } = line.facts.clone();
    Entry::with_metadata(line.loc.clone(), Metadata { path, length, hash: hashes, ..Metadata::default() })
}

/// Applies patches to a file; `None` if the result does not match the list.
fn patched(
    placer: &Placer,
    facts: &Facts,
    relative: &Path,
    patches: &[Vec<u8>],
) -> Result<Option<Received>, ResourceError> {
    let path = placer.directory.join(relative);
    let found = std::fs::symlink_metadata(&path)?;
    if !found.is_file() || found.len() > MAX_PATCHED {
        return Ok(None);
    }
    let algorithms = || facts.algorithm().into_iter().chain([Algorithm::Sha256]);
    let digest = |bytes: &[u8]| -> Hashes { algorithms().map(|one| Digest::of(one, bytes)).collect() };
    let is_right = |bytes: &[u8]| facts.hashes.compare(&digest(bytes)) == Agreement::Same;
    let Some(new) = apply(&std::fs::read(path)?, patches, is_right) else { return Ok(None) };
    let (length, hashes) = (new.len() as u64, digest(&new));
    let content = Content::of(new, &Staging::Copy(Arc::clone(&placer.folder)))?;
    Ok(Some(Received { content, length, hashes, modified: None, sent: None }))
}
