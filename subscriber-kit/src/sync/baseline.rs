//! Baseline synchronisation: the whole list is read, what differs is fetched, what is no longer listed goes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use url::Url;

use super::download::{Job, Written, blocking};
use super::folder::CopyFolder;
use super::lists::{LastSeen, Lists, Plan, Planned, Reading, Snapshot, Unity};
use super::local::{self, Local};
use super::memory::{Known, Memory, Scope, Settled};
use super::path::relative_path;
use super::put::Placing;
use super::report::{Outcome, Report};
use super::{Authority, ResourceError, SyncError, SyncOptions, Target, delete};
use crate::fetch::Client;

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Look {
    /// Do nothing if the list is still the one that was dealt with as far as was possible: what failed then
    /// and needs a new list, such as a 404, is not tried again.
    AtNewList,
    /// Do nothing if the list is still the one that the copy was in step with (RS-096).
    UnlessInStep,
    /// Compare every file.
    Everything,
}

/// Baseline synchronisation (RS-190): brings the directory in step with the Resource List or index at `list`.
///
/// Only what differs is fetched. Each file is replaced in one step, once its length and hash are right; on
/// any failure the old file stays. With [`SyncOptions::delete`], files that are not listed are removed, but
/// only if the list was read to its end, is of one time and every entry has a place here; else the report
/// says why nothing was deleted (RS-201).
///
/// # Errors
/// [`SyncError`] when there is no complete list, or another run works on the copy; single resources that fail
/// are in the [`Report`].
pub async fn baseline(
    client: &Client,
    list: &Url,
    target: &Target,
    options: &SyncOptions,
) -> Result<Report, SyncError> {
    look(client, list, target, options, Look::Everything).await
}

/// As [`baseline`], and as closely as `look` says.
///
/// # Errors
/// As for [`baseline`].
pub async fn look(
    client: &Client,
    list: &Url,
    target: &Target,
    options: &SyncOptions,
    look: Look,
) -> Result<Report, SyncError> {
    let max = options.max_run_time;
    let run = whole_run(client, list, target, options, look);
    tokio::time::timeout(max, run).await.unwrap_or(Err(SyncError::TooLong { max }))
}

async fn whole_run(
    client: &Client,
    list: &Url,
    target: &Target,
    options: &SyncOptions,
    look: Look,
) -> Result<Report, SyncError> {
    let scope = Scope {
        list: list.to_string(),
        base: target.base.to_string(),
        delete: options.delete,
        any_origin: options.authority == Authority::Any,
    };
    let opening = target.clone();
    let (folder, memory) = blocking(move || {
        let folder = CopyFolder::open(&opening)?;
        let memory = Memory::load(&folder);
        Ok::<_, SyncError>((Arc::new(folder), memory))
    })
    .await?;
    let enough = memory.settled_for(&scope).filter(|settled| match look {
        Look::Everything => false,
        Look::UnlessInStep => settled.report.in_step(),
        Look::AtNewList => true,
    });
    let seen = enough.map(|settled| LastSeen { validators: &settled.validators, digest: &settled.digest });
    let lists = Lists { client, list, base: &target.base, options };
    let snapshot = match (lists.read(seen, || folder.scratch()).await?, enough) {
        (Reading::New(snapshot), _) => *snapshot,
        (Reading::Known, Some(settled)) => return Ok(settled.report.clone().repeated()),
        // Only what was seen can be known.
        (Reading::Known, None) => return Ok(Report::default()),
    };
    if options.delete && snapshot.places.is_empty() {
        return Err(SyncError::Empty { url: list.clone() });
    }
    let run = Run::new(client, target, options, folder, memory, &snapshot);
    run.go(snapshot, scope).await
}

/// Why nothing is deleted, if so. An entry without a place may mean any file there is.
fn why_no_deletion(snapshot: &Snapshot, options: &SyncOptions) -> Option<String> {
    if !options.delete {
        return None;
    }
    match (&snapshot.unity, snapshot.report.failed) {
        (Unity::Mixed(why), _) => Some(format!("the Source is making a new snapshot: {why}")),
        (Unity::Untold(why), _) => Some(why.clone()),
        (Unity::One, 0) => None,
        (Unity::One, count) => Some(format!(
            "{count} of the listed resources have no place here, and any file may be one of them"
        )),
    }
}

/// What the work on every resource of one run shares.
struct Run<'s> {
    client: &'s Client,
    target: &'s Target,
    options: &'s SyncOptions,
    placing: Arc<Placing>,
    known: Memory,
    bytes: AtomicU64,
    deletion_skipped: Option<String>,
}

struct Done {
    loc: String,
    /// `None` for a path that could not be found again.
    relative: Option<PathBuf>,
    result: Result<Brought, ResourceError>,
}

/// What bringing one file in step brought.
struct Brought {
    outcome: Outcome,
    known: Option<Known>,
    hashed: u64,
}

impl<'s> Run<'s> {
    fn new(
        client: &'s Client,
        target: &'s Target,
        options: &'s SyncOptions,
        folder: Arc<CopyFolder>,
        known: Memory,
        snapshot: &Snapshot,
    ) -> Self {
        let deletion_skipped = why_no_deletion(snapshot, options);
        let placing = Placing {
            directory: target.directory.clone(),
            folder,
            places: Arc::clone(&snapshot.places),
            may_remove: options.delete && deletion_skipped.is_none(),
            removed: AtomicU64::new(0),
            one_at_a_time: Mutex::new(()),
        };
        let placing = Arc::new(placing);
        Self { client, target, options, placing, known, bytes: AtomicU64::new(0), deletion_skipped }
    }

    async fn go(&self, snapshot: Snapshot, scope: Scope) -> Result<Report, SyncError> {
        let Snapshot { plan, mut report, unity, validators, digest, .. } = snapshot;
        let mut learnt = Memory::default();
        let changed = self.resources(plan, &mut report, &mut learnt).await?;
        if self.placing.may_remove {
            let (target, places) = (self.target.clone(), Arc::clone(&self.placing.places));
            report.deleted = blocking(move || delete::unlisted(&target, &places)).await?;
        }
        report.deleted += self.placing.removed.load(Ordering::Relaxed);
        report.deletion_skipped.clone_from(&self.deletion_skipped);
        report.bytes_fetched = self.bytes.load(Ordering::Relaxed);
        report.may_mend |= matches!(unity, Unity::Mixed(_));
        // An index that does not say when it is true stays the same while its lists change.
        if !report.may_mend && unity == Unity::One {
            learnt.settled = Some(Settled { scope, validators, digest, report: report.clone() });
        }
        let placing = Arc::clone(&self.placing);
        blocking(move || {
            sync_folders(&changed)?;
            // After the files: what is remembered of them must not outlive them.
            if let Err(error) = learnt.save(&placing.folder) {
                tracing::warn!(%error, "what is known of the copy's files is not kept: the next run reads them again");
            }
            Ok::<_, SyncError>(())
        })
        .await?;
        Ok(report)
    }

    /// Brings every resource in step; gives the folders that were changed.
    async fn resources(
        &self,
        mut plan: Plan,
        report: &mut Report,
        learnt: &mut Memory,
    ) -> Result<HashSet<PathBuf>, SyncError> {
        let mut changed = HashSet::new();
        let mut work = FuturesUnordered::new();
        let mut planning = true;
        while planning || !work.is_empty() {
            tokio::select! {
                planned = plan.next(), if planning && work.len() < self.options.parallel.max(1) => match planned? {
                    Some(planned) => work.push(self.resource(planned)),
                    None => planning = false,
                },
                Some(Done { loc, relative, result }) = work.next(), if !work.is_empty() => {
                    let outcome = result.map(|Brought { outcome, known, hashed }| {
                        report.bytes_hashed += hashed;
                        if let Some(relative) = relative {
                            if outcome != Outcome::Unchanged {
                                let folders = relative.ancestors().skip(1);
                                changed.extend(folders.map(|folder| self.target.directory.join(folder)));
                            }
                            learnt.files.extend(known.map(|known| (relative.into(), known)));
                        }
                        outcome
                    });
                    report.count(&loc, outcome);
                }
            }
        }
        Ok(changed)
    }

    async fn resource(&self, planned: Planned) -> Done {
        match relative_path(&planned.loc, &planned.url, &self.target.base) {
            Ok(relative) => {
                let result = self.bring_in_step(&planned, &relative).await;
                Done { loc: planned.loc, relative: Some(relative), result }
            }
            Err(error) => Done { loc: planned.loc, relative: None, result: Err(error.into()) },
        }
    }

    async fn bring_in_step(&self, planned: &Planned, relative: &Path) -> Result<Brought, ResourceError> {
        let look = self.compare(planned, relative).await?;
        if look.local == Local::Same {
            return Ok(Brought { outcome: Outcome::Unchanged, known: look.known, hashed: look.hashed });
        }
        let job = Job {
            client: self.client,
            options: self.options,
            placing: &self.placing,
            relative,
            url: &planned.url,
            facts: &planned.facts,
            bytes: &self.bytes,
        };
        let (outcome, known) = match (job.run().await?, look.local) {
            (Written::Identical, _) => (Outcome::Unchanged, None),
            (Written::Replaced(known), Local::Missing) => (Outcome::Created, known),
            (Written::Replaced(known), _) => (Outcome::Updated, known),
        };
        Ok(Brought { outcome, known, hashed: look.hashed })
    }

    /// Compares the file of a resource with the facts. One that is not there because something must make way
    /// is missing.
    async fn compare(&self, planned: &Planned, relative: &Path) -> Result<local::Look, ResourceError> {
        let known = self.known.files.get(relative).cloned();
        let (placing, relative, facts) =
            (Arc::clone(&self.placing), relative.to_owned(), planned.facts.clone());
        blocking(move || {
            if !placing.can_be_reached(&relative)? {
                return Ok(local::Look::of(Local::Missing));
            }
            Ok(local::compare(&placing.directory.join(relative), &facts, known.as_ref())?)
        })
        .await
    }
}

/// Makes the renames durable; once per folder is enough.
fn sync_folders(folders: &HashSet<PathBuf>) -> std::io::Result<()> {
    for folder in folders {
        match std::fs::File::open(folder) {
            Ok(folder) => folder.sync_all()?,
            // Gone since then.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
