//! Audit: whether the copy covers what the Source lists and is accurate, without downloading anything
//! (RS-195).

use std::path::Path;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_core::digest::{Agreement, Hashes};
use serde::{Deserialize, Serialize};

use super::download::blocking;
use super::file_map::FileMap;
use super::folder::Staging;
use super::lists::Lists;
use super::local::{Facts, Local, compare, hash_file, same_second};
use super::memory::{KnownFile, Memory};
use super::path::{Ways, obstacle, relative_path};
use super::plan::Planned;
use super::report::{FAILURES_KEPT, Failure, Report, note};
use super::{Offer, PathError, ResourceError, SyncError, SyncOptions, Target, delete};
use crate::fetch::Client;

/// What an audit comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every listed resource is here as listed, and nothing else is.
    InStep,
    /// Nothing speaks against it, but the list says too little about some resources, or not when it is true.
    Unproven,
    /// Something is missing, different or surplus.
    #[default]
    NotInStep,
}

/// What an audit found: `same + missing + different + unverifiable + failed` is `resources`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AuditReport {
    /// What it comes to.
    pub verdict: Verdict,
    /// How many resources the Source lists.
    pub resources: u64,
    /// Files that are as listed.
    pub same: u64,
    /// Resources without a file.
    pub missing: u64,
    /// Files with another length, hash or time than listed: `stale + corrupt`.
    pub different: u64,
    /// Those of them that are as they were fetched: the Source has gone on.
    pub stale: u64,
    /// Those of them that were changed here since, or are as old as listed and not the same.
    pub corrupt: u64,
    /// Files of which the list says too little to tell.
    pub unverifiable: u64,
    /// Local files that the Source does not list.
    pub extra: u64,
    /// Resources that can have no file here.
    pub failed: u64,
    /// The URIs of missing and different resources and why others failed, at most the first hundred.
    pub findings: Vec<Failure>,
    /// Surplus files, at most the first hundred.
    pub extra_files: Vec<String>,
    /// Why the Source's lists may not be true of one time, so that more may be missing, stale or surplus.
    pub unproven: Option<String>,
}

impl AuditReport {
    /// Whether the copy is the same as the Source as far as the list can tell: nothing missing, different,
    /// failed or surplus, and the list certain.
    #[must_use]
    pub fn in_step(&self) -> bool {
        self.missing + self.different + self.failed + self.extra == 0 && self.unproven.is_none()
    }

    fn judged(mut self) -> Self {
        self.verdict = match (self.in_step(), self.unverifiable) {
            (true, 0) => Verdict::InStep,
            (true, _) => Verdict::Unproven,
            (false, _) if self.missing + self.different + self.failed + self.extra == 0 => Verdict::Unproven,
            (false, _) => Verdict::NotInStep,
        };
        self
    }

    fn count(&mut self, loc: &str, local: Result<Finding, ResourceError>) {
        match local {
            Ok(Finding::Same) => self.same += 1,
            Ok(Finding::Unverifiable) => self.unverifiable += 1,
            Ok(Finding::Missing) => {
                self.missing += 1;
                note(&mut self.findings, loc, "missing");
            }
            Ok(Finding::Stale) => {
                self.different += 1;
                self.stale += 1;
                note(&mut self.findings, loc, "stale");
            }
            Ok(Finding::Corrupt) => {
                self.different += 1;
                self.corrupt += 1;
                note(&mut self.findings, loc, "corrupt");
            }
            Err(error) => {
                self.failed += 1;
                note(&mut self.findings, loc, &error.to_string());
            }
        }
    }
}

/// How a file compares with what is listed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Missing,
    Same,
    Unverifiable,
    Stale,
    Corrupt,
}

/// Compares the directory with the Resource List or index and with what changed since that was made (RS-195); changes
/// nothing, and downloads nothing but the lists. Where a Source has only dumps, it downloads the manifests beside the
/// packages (RS-103), or the packages where there are none.
///
/// # Errors
/// [`SyncError`] when there is no complete list.
pub async fn audit(
    client: &Client,
    offer: &Offer,
    target: &Target,
    options: &SyncOptions,
) -> Result<AuditReport, SyncError> {
    let lists = Lists::new(client, offer, target, options, Staging::Temporary)?;
    let snapshot = Box::pin(lists.read_anew()).await?;
    let Report { resources, failed, failures, .. } = snapshot.report;
    let mut report = AuditReport { resources, failed, findings: failures, ..AuditReport::default() };
    report.unproven = snapshot.consistency.reason();
    let peeking = target.clone();
    let known = Arc::new(blocking(move || Memory::peek(&peeking)).await);
    let mut steps = snapshot.plan.begin(false)?;
    let mut work = FuturesUnordered::new();
    let mut planning = true;
    while planning || !work.is_empty() {
        tokio::select! {
            planned = steps.next(), if planning && work.len() < options.parallel.max(1) => match planned? {
                Some(planned) => {
                    let (target, file_map, known) =
                        (target.clone(), Arc::clone(&snapshot.file_map), Arc::clone(&known));
                    work.push(blocking(move || {
                        let local = compare_one(&target, &file_map, &planned, &known);
                        (planned.line.loc, local)
                    }));
                }
                None => planning = false,
            },
            Some((loc, local)) = work.next(), if !work.is_empty() => {
                // Where a later line says more, this one says nothing.
                if let Some(local) = local.transpose() {
                    report.count(&loc, local);
                }
            },
        }
    }
    let (target, file_map, filter) = (target.clone(), snapshot.file_map, options.filter.clone());
    let counted =
        blocking(move || delete::count_unlisted(&target, &file_map, &filter, FAILURES_KEPT)).await?;
    (report.extra, report.extra_files) = counted;
    Ok(report.judged())
}

/// An audit reads every file, whatever is known of it: bits rot. `None` where another line is the last word.
fn compare_one(
    target: &Target,
    file_map: &FileMap,
    planned: &Planned,
    known: &Memory,
) -> Result<Option<Finding>, ResourceError> {
    let Planned { number, url, line, .. } = planned;
    let relative = relative_path(&line.loc, url, &target.base)?;
    if !file_map.is_last_word(&relative, *number) {
        return Ok(None);
    }
    let path = target.directory.join(&relative);
    match obstacle(&target.directory, &relative, &mut Ways::default())? {
        Some(obstacle) if obstacle.path != path => return Err(PathError::from(obstacle).into()),
        _ => {}
    }
    Ok(Some(match compare(&path, &line.facts, None)?.local {
        Local::Missing => Finding::Missing,
        Local::Same => Finding::Same,
        Local::Unverifiable => Finding::Unverifiable,
        Local::Different => why_different(&path, &line.facts, known.files.get(relative.as_path()))?,
    }))
}

/// A file that is as it was fetched is stale; of one that nothing is known of, the time tells.
fn why_different(path: &Path, facts: &Facts, known: Option<&KnownFile>) -> std::io::Result<Finding> {
    let data = std::fs::symlink_metadata(path)?;
    if !data.is_file() {
        return Ok(Finding::Corrupt);
    }
    let is_as_it_came = if let Some(known) = known {
        let now = match known.hashes.iter().next() {
            Some(digest) => hash_file(path, digest.algorithm())?,
            None => Hashes::default(),
        };
        known.hashes.compare(&now) != Agreement::Different
    } else {
        let modified = data.modified()?;
        !facts.modified.is_some_and(|listed| same_second(listed, modified))
    };
    Ok(if is_as_it_came { Finding::Stale } else { Finding::Corrupt })
}
