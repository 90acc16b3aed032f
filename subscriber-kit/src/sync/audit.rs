//! Audit: whether the copy covers what the Source lists and is accurate, without downloading anything
//! (RS-195).

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde::{Deserialize, Serialize};
use url::Url;

use super::download::blocking;
use super::local::{Facts, Local};
use super::{Failure, Places, ResourceError, SyncError, SyncOptions, Target, compare, delete, lists, note};
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
}

impl AuditReport {
    /// Whether the copy is the same as the Source as far as the list can tell: nothing missing, different,
    /// failed or surplus.
    #[must_use]
    pub fn in_step(&self) -> bool {
        self.missing + self.different + self.failed + self.extra == 0
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
        if self.findings.len() < super::FAILURES_KEPT {
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
    let mut report = AuditReport::default();
    let mut places = Places::default();
    let mut entries = lists::entries(client, list, options);
    let mut work = FuturesUnordered::new();
    let mut listing = true;
    while listing || !work.is_empty() {
        tokio::select! {
            entry = entries.next(), if listing && work.len() < options.parallel.max(1) => match entry? {
                Some(entry) => {
                    match places.place(&entry, target, options) {
                        Ok(None) => {}
                        Ok(Some(relative)) => {
                            report.resources += 1;
                            work.push(async move {
                                let facts = Facts::of(&entry.entry);
                                (entry.entry.loc, compare(&target.directory, &relative, &facts).await)
                            });
                        }
                        Err(error) => {
                            report.resources += 1;
                            report.count(&entry.entry.loc, Err(error));
                        }
                    }
                }
                None => listing = false,
            },
            Some((loc, local)) = work.next(), if !work.is_empty() => report.count(&loc, local),
        }
    }
    let (target, keep) = (target.clone(), places.into_paths());
    let counted = blocking(move || delete::count_unlisted(&target, &keep, EXTRA_SHOWN)).await?;
    (report.extra, report.extra_files) = counted;
    Ok(report)
}
