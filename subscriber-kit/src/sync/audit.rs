//! Audit: whether the copy covers what the Source lists and is accurate, without downloading anything
//! (RS-195).

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde::{Deserialize, Serialize};
use url::Url;

use super::download::blocking;
use super::lists::{Lists, Reading, Unity};
use super::local::{Local, compare};
use super::path::{obstacle, relative_path};
use super::report::{FAILURES_KEPT, Failure, Report, note};
use super::{PathError, ResourceError, SyncError, SyncOptions, Target, delete};
use crate::fetch::Client;

/// How many surplus files a report names.
const EXTRA_SHOWN: usize = 100;

/// What an audit found: `same + missing + different + unverifiable + failed` is `resources`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AuditReport {
    /// How many resources the Source lists.
    pub resources: u64,
    /// Files that are as listed.
    pub same: u64,
    /// Resources without a file.
    pub missing: u64,
    /// Files with another length, hash or time than listed: stale or corrupt.
    pub different: u64,
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
    #[serde(default)]
    pub uncertain: Option<String>,
}

impl AuditReport {
    /// Whether the copy is the same as the Source as far as the list can tell: nothing missing, different,
    /// failed or surplus, and the list certain.
    #[must_use]
    pub fn in_step(&self) -> bool {
        self.missing + self.different + self.failed + self.extra == 0 && self.uncertain.is_none()
    }

    fn count(&mut self, loc: &str, local: Result<Local, ResourceError>) {
        let found = |cause: &str| Failure { loc: loc.to_owned(), cause: cause.to_owned() };
        match local {
            Ok(Local::Same) => self.same += 1,
            Ok(Local::Unverifiable) => self.unverifiable += 1,
            Ok(Local::Missing) => {
                self.missing += 1;
                self.keep(found("missing"));
            }
            Ok(Local::Different) => {
                self.different += 1;
                self.keep(found("different"));
            }
            Err(error) => {
                self.failed += 1;
                note(&mut self.findings, loc, &error);
            }
        }
    }

    fn keep(&mut self, finding: Failure) {
        if self.findings.len() < FAILURES_KEPT {
            self.findings.push(finding);
        }
    }
}

/// Compares the directory with the Resource List or index at `list`; changes and downloads nothing but the
/// list.
///
/// # Errors
/// [`SyncError`] when there is no complete list.
pub async fn audit(
    client: &Client,
    list: &Url,
    target: &Target,
    options: &SyncOptions,
) -> Result<AuditReport, SyncError> {
    let lists = Lists { client, list, base: &target.base, options };
    let Reading::New(snapshot) = lists.read(None, tempfile::tempfile).await? else {
        return Ok(AuditReport::default());
    };
    let Report { resources, failed, failures, .. } = snapshot.report;
    let mut report = AuditReport { resources, failed, findings: failures, ..AuditReport::default() };
    report.uncertain = match snapshot.unity {
        Unity::One => None,
        Unity::Mixed(why) | Unity::Untold(why) => Some(why),
    };
    let mut plan = snapshot.plan;
    let mut work = FuturesUnordered::new();
    let mut planning = true;
    while planning || !work.is_empty() {
        tokio::select! {
            planned = plan.next(), if planning && work.len() < options.parallel.max(1) => match planned? {
                Some(planned) => {
                    let target = target.clone();
                    work.push(blocking(move || {
                        let local = look(&target, &planned.loc, &planned.url, &planned.facts);
                        (planned.loc, local)
                    }));
                }
                None => planning = false,
            },
            Some((loc, local)) = work.next(), if !work.is_empty() => report.count(&loc, local),
        }
    }
    let (target, places) = (target.clone(), snapshot.places);
    let counted = blocking(move || delete::count_unlisted(&target, &places, EXTRA_SHOWN)).await?;
    (report.extra, report.extra_files) = counted;
    Ok(report)
}

/// An audit reads every file, whatever is known of it: bits rot.
fn look(target: &Target, loc: &str, url: &Url, facts: &super::local::Facts) -> Result<Local, ResourceError> {
    let relative = relative_path(loc, url, &target.base)?;
    match obstacle(&target.directory, &relative)? {
        Some(obstacle) if obstacle.path != target.directory.join(&relative) => {
            return Err(PathError::from(obstacle).into());
        }
        _ => {}
    }
    Ok(compare(&target.directory.join(relative), facts, None)?.local)
}
