//! Audit: compares the copy with the Source's lists, without downloading resources (RS-195).

use std::path::Path;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_core::datetime::DateTime;
use resync_core::digest::{Agreement, Hashes};
use serde::{Deserialize, Serialize};

use super::failure::{Cause, FAILURES_KEPT, Failure, FailureKind, add, keep};
use super::report::Report;
use super::{Offer, PathError, ResourceError, SyncError, SyncOptions, Target};
use crate::blocking::blocking;
use crate::fetch::Client;
use crate::sync::files::delete::{self, Surplus};
use crate::sync::files::folder::Staging;
use crate::sync::files::local::{Facts, FileState, compare, hash_file, same_second};
use crate::sync::reading::collector::Collected;
use crate::sync::reading::file_map::FileMap;
use crate::sync::reading::lists::Lists;
use crate::sync::reading::path::{CheckedFolders, obstacle, relative_path};
use crate::sync::reading::plan::Planned;
use crate::sync::saved::cache::{CachedFile, FileCache};
use crate::sync::saved::copied_source::CopiedSource;
use crate::sync::saved::earlier_files::EarlierFiles;
use crate::text;

/// The result of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every listed resource is here as listed, and nothing else.
    InStep,
    /// No difference was found, but the list says too little about some resources, or has no time.
    Unproven,
    /// Something is missing, different or surplus.
    #[default]
    NotInStep,
}

/// What an audit found: `same + missing + different + unverifiable + failed` is `resources`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AuditReport {
    /// The result.
    pub verdict: Verdict,
    /// How many resources the Source lists.
    pub resources: u64,
    /// Files that are as listed.
    pub same: u64,
    /// Resources without a file.
    pub missing: u64,
    /// Files with another length, hash or time than listed: `stale + corrupt`.
    pub different: u64,
    /// Those of them that are as they were fetched: the Source has changed.
    pub stale: u64,
    /// Those of them that were changed here, or have the listed time and another content.
    pub corrupt: u64,
    /// Files about which the list says too little.
    pub unverifiable: u64,
    /// Local files that the Source does not list.
    pub extra: u64,
    /// Resources that cannot have a file here.
    pub failed: u64,
    /// The URIs of missing and different resources and why others failed, at most the first hundred.
    pub findings: Vec<Failure>,
    /// Why others failed, by causes, of which the first hundred are kept.
    #[serde(default)]
    pub causes: Vec<Cause>,
    /// Surplus files, at most the first hundred.
    pub extra_files: Vec<String>,
    /// Those of the surplus and different files that were here before the copy: `sync` leaves them alone until they are
    /// [adopted](SyncOptions::adopt).
    #[serde(default)]
    pub earlier_files: u64,
    /// Why the Source's lists may not be of one time, so that more may be missing, stale or surplus.
    pub unproven: Option<String>,
    /// For a copy of the past: of when it is.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::option")]
    pub at: Option<DateTime>,
}

impl AuditReport {
    /// Whether nothing is missing, different, failed or surplus, and the list is certain.
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

    fn count(&mut self, loc: &str, local: Result<Finding, ResourceError>, is_earlier: bool) {
        self.earlier_files += u64::from(is_earlier);
        match local {
            Ok(Finding::Same) => self.same += 1,
            Ok(Finding::Unverifiable) => self.unverifiable += 1,
            Ok(Finding::Missing) => {
                self.missing += 1;
                self.find(loc, FailureKind::Missing, "missing");
            }
            Ok(Finding::Stale) => {
                self.different += 1;
                self.stale += 1;
                self.find(loc, FailureKind::Stale, "stale");
            }
            Ok(Finding::Corrupt) => {
                self.different += 1;
                self.corrupt += 1;
                self.find(loc, FailureKind::Corrupt, "corrupt");
            }
            Err(error) => {
                self.failed += 1;
                add(&mut self.findings, &mut self.causes, Failure::of(loc, &error));
            }
        }
    }

    fn find(&mut self, loc: &str, kind: FailureKind, what: &str) {
        keep(&mut self.findings, Failure::new(loc, kind, what));
    }
}

/// How a file differs from its entry, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Missing,
    Same,
    Unverifiable,
    Stale,
    Corrupt,
}

/// Compares the directory with the Resource List and the changes since then (RS-195). Changes nothing, and downloads only the
/// lists. With [`SyncOptions::at`], compares it with the state of that moment (MEM-063). If a Source has only dumps, downloads the
/// manifests beside the packages (RS-103), or else the packages.
///
/// # Errors
/// [`SyncError`] when there is no complete list, or the directory is a copy of another Source.
pub async fn audit(
    client: &Client,
    offer: &Offer,
    target: &Target,
    options: &SyncOptions,
) -> Result<AuditReport, SyncError> {
    let source = CopiedSource::of(offer).at(options.at);
    let (directory, choices) = (target.directory.clone(), options.clone());
    blocking(move || source.allow(&directory, &choices)).await?;
    let lists = Lists::new(client, offer, target, options, Staging::Temporary)?;
    let (collected, unproven) = if let Some(moment) = options.at {
        let past = Box::pin(lists.past(moment)).await?;
        (past.collected, past.unproven)
    } else {
        let snapshot = Box::pin(lists.read_anew()).await?;
        (snapshot.collected, snapshot.consistency.reason())
    };
    let Collected { file_map, plan, report, .. } = collected;
    let Report { resources, failed, failures, causes, .. } = report;
    let mut report = AuditReport { resources, failed, findings: failures, causes, ..AuditReport::default() };
    (report.at, report.unproven) = (options.at, unproven);
    let peeking = target.clone();
    let choices = options.clone();
    let saved = blocking(move || {
        let earlier = EarlierFiles::of(&peeking.folder(), &choices)?;
        Ok::<_, SyncError>(Arc::new((FileCache::load_unlocked(&peeking), earlier)))
    });
    let saved = saved.await?;
    let mut steps = plan.begin(false)?;
    let mut work = FuturesUnordered::new();
    let mut planning = true;
    while planning || !work.is_empty() {
        tokio::select! {
            planned = steps.next(), if planning && work.len() < options.parallel.max(1) => match planned? {
                Some(planned) => {
                    let (target, file_map, saved) =
                        (target.clone(), Arc::clone(&file_map), Arc::clone(&saved));
                    work.push(blocking(move || {
                        let (known, earlier) = &*saved;
                        let local = compare_one(&target, &file_map, &planned, known);
                        let is_different = matches!(local, Ok(Some(Finding::Stale | Finding::Corrupt)));
                        let is_earlier = is_different
                            && planned.line.place(&target.base).is_some_and(|path| earlier.contain(&path));
                        (planned.line.loc, local, is_earlier)
                    }));
                }
                None => planning = false,
            },
            Some((loc, local, is_earlier)) = work.next(), if !work.is_empty() => {
                // `None` if a later line counts instead.
                if let Some(local) = local.transpose() {
                    report.count(&loc, local, is_earlier);
                }
            },
        }
    }
    let (target, file_map, filter) = (target.clone(), file_map, options.filter.clone());
    let surplus = move || delete::count_unlisted(&target, &file_map, &filter, &saved.1, FAILURES_KEPT);
    let Surplus { count, earlier, first } = blocking(surplus).await?;
    (report.extra, report.extra_files) = (count, first);
    report.earlier_files += earlier;
    Ok(report.judged())
}

/// Reads the file even if its digest is known, since disks may corrupt files. `None` if a later line counts instead.
fn compare_one(
    target: &Target,
    file_map: &FileMap,
    planned: &Planned,
    known: &FileCache,
) -> Result<Option<Finding>, ResourceError> {
    let Planned { number, url, line, .. } = planned;
    let relative = relative_path(&line.loc, url, &target.base)?;
    if !file_map.is_last_word(&relative, *number) {
        return Ok(None);
    }
    let path = target.directory.join(&relative);
    let found = obstacle(&target.directory, &relative, &mut CheckedFolders::default());
    match found.map_err(ResourceError::Read)? {
        Some(obstacle) if obstacle.path != path => return Err(PathError::from(obstacle).into()),
        _ => {}
    }
    Ok(Some(match compare(&path, &line.facts, None).map_err(ResourceError::Read)?.local {
        FileState::Missing => Finding::Missing,
        FileState::Same => Finding::Same,
        FileState::Unverifiable => Finding::Unverifiable,
        FileState::Different => why_different(&path, &line.facts, known.files.get(relative.as_path()))
            .map_err(ResourceError::Read)?,
    }))
}

/// A file that is as it was fetched is stale. If that is unknown, its time decides.
fn why_different(path: &Path, facts: &Facts, known: Option<&CachedFile>) -> std::io::Result<Finding> {
    let data = std::fs::symlink_metadata(path)?;
    if !data.is_file() {
        return Ok(Finding::Corrupt);
    }
    let is_as_fetched = if let Some(known) = known {
        let now = match known.hashes.iter().next() {
            Some(digest) => hash_file(path, digest.algorithm())?,
            None => Hashes::default(),
        };
        known.hashes.compare(&now) != Agreement::Different
    } else {
        let modified = data.modified()?;
        !facts.modified.is_some_and(|listed| same_second(listed, modified))
    };
    Ok(if is_as_fetched { Finding::Stale } else { Finding::Corrupt })
}
