//! Bringing files in step without asking for their resources: from packages, and by patches.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use resync_core::digest::{Agreement, Algorithm, Digest, Hashes};
use resync_core::document::{Entry, Metadata};
use url::Url;

use super::batch::{self, Ready};
use super::content::Content;
use super::download::{Received, Transfer, blocking};
use super::folder::Staging;
use super::local::{self, Facts, Local};
use super::packages::{Bitstream, Opened, Packages, bitstream, linked};
use super::patch::{MAX_PATCHED, PatchLink, apply};
use super::path::relative_path;
use super::plan::{Line, Plan};
use super::put::Placing;
use super::report::Outcome;
use super::run::{New, Run, Synced};
use super::{ResourceError, SyncError, SyncOptions};

impl Run<'_> {
    /// Puts in place what lies in packages and is not here as it is told. What cannot be had so is fetched like any other.
    pub(super) async fn unpack(&mut self, plan: &Plan, mut packages: Packages) -> Result<(), SyncError> {
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
            if !self.placing.file_map.is_last_word(&relative, planned.number) {
                continue;
            }
            let Ok(comparison) = self.compare(&planned, &relative).await else { continue };
            if comparison.local == Local::Same {
                let local::Comparison { known, hashed, .. } = comparison;
                self.is_done(planned.number, Ok(Synced { outcome: Outcome::Unchanged, known, hashed }));
                continue;
            }
            let (placing, entry) = (Arc::clone(&self.placing), packed_entry(&planned.line));
            let max = self.options.max_resource_bytes;
            let take = move |open: &mut Opened| bitstream(open, &entry, &placing.folder, max);
            match packages.read(package, self.lists, take).await {
                Some(Bitstream::Received(received)) => {
                    let ready = Ready::new(received, &planned.line.facts, &relative);
                    batch.push((planned.number, New { ready, comparison, is_patched: false }));
                }
                Some(Bitstream::Refused(error)) => self.is_done(planned.number, Err(error)),
                // It may come from its URI.
                Some(Bitstream::Useless) | None => {}
            }
            if batch.len() >= batch::MOST {
                self.put_unpacked(std::mem::take(&mut batch)).await;
            }
        }
        self.put_unpacked(batch).await;
        packages.pass_to(u32::MAX);
        *self.packages.lock().await = packages;
        Ok(())
    }

    async fn put_unpacked(&mut self, batch: Vec<(u32, New)>) {
        let (numbers, batch): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        for (number, brought) in numbers.into_iter().zip(self.put_new(batch).await) {
            self.is_done(number, brought);
        }
    }

    fn is_done(&mut self, line: u32, brought: Result<Synced, ResourceError>) {
        self.unpacked.get_mut().unwrap_or_else(PoisonError::into_inner).insert(line, brought);
    }

    /// Makes the new version of the one that is here, where the Source tells how and a hash proves it (RS-174, RS-175).
    pub(super) async fn patch(&self, line: &Line, relative: &Path, local: Local) -> Option<Received> {
        let is_worth_it = local == Local::Different && line.facts.algorithm().is_some();
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
        let (placing, facts, relative) = (Arc::clone(&self.placing), line.facts.clone(), relative.to_owned());
        blocking(move || match patched(&placing, &facts, &relative, &patches) {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(%error, "cannot patch a file");
                None
            }
        })
        .await
    }

    async fn fetch_patch(&self, patch: &PatchLink) -> Option<Vec<u8>> {
        if let Some((package, _)) = &patch.packed {
            let link = patch.link();
            let take = move |open: &mut Opened| linked(open, &link, MAX_PATCHED);
            return self.packages.lock().await.read(*package, self.lists, take).await.flatten();
        }
        let url = Url::parse(&patch.url).ok().filter(|url| self.options.authority.allows(url, &self.home))?;
        let max = self.options.max_resource_bytes.min(MAX_PATCHED);
        let options = SyncOptions { max_resource_bytes: max, ..self.options.clone() };
        let transfer = Transfer { options: &options, ..self.lists.transfer(&url, &patch.facts) };
        match transfer.run().await {
            Ok(received) => match received.content {
                Content::Held(bytes) => Some(bytes),
                Content::File(file) => blocking(move || std::fs::read(file.path())).await.ok(),
            },
            Err(error) => {
                tracing::debug!(%url, %error, "cannot use a patch");
                None
            }
        }
    }
}

/// The entry of a manifest that the line was made of.
fn packed_entry(line: &Line) -> Entry {
    let path = line.packed.as_ref().map(|packed| packed.path.clone());
    let Facts { length, hashes, .. } = line.facts.clone();
    Entry::with_metadata(line.loc.clone(), Metadata { path, length, hash: hashes, ..Metadata::default() })
}

/// Applies patches to a file; `None` where they do not make what is told of the new version.
fn patched(
    placing: &Placing,
    facts: &Facts,
    relative: &Path,
    patches: &[Vec<u8>],
) -> Result<Option<Received>, ResourceError> {
    let path = placing.directory.join(relative);
    let found = std::fs::symlink_metadata(&path)?;
    if !found.is_file() || found.len() > MAX_PATCHED {
        return Ok(None);
    }
    let algorithms = || facts.algorithm().into_iter().chain([Algorithm::Sha256]);
    let digest = |bytes: &[u8]| -> Hashes { algorithms().map(|one| Digest::of(one, bytes)).collect() };
    let is_right = |bytes: &[u8]| facts.hashes.compare(&digest(bytes)) == Agreement::Same;
    let Some(new) = apply(&std::fs::read(path)?, patches, is_right) else { return Ok(None) };
    let (length, hashes) = (new.len() as u64, digest(&new));
    let content = Content::of(new, &Staging::Copy(Arc::clone(&placing.folder)))?;
    Ok(Some(Received { content, length, hashes, modified: None, sent: None }))
}
