//! The report of a synchronisation.

use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::rules::Violation;
use serde::{Deserialize, Serialize};
use url::Url;

use super::ResourceError;
use super::failure::{Cause, FAILURES_KEPT, Failure, FailureKind, add, joined};
use super::progress::{Outcome, Progress};
use crate::sync::reading::gaps::GapHistory;
use crate::sync::saved::copy_state::Retry;
use crate::text;

/// What a synchronisation went by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The whole Resource List or Resource Dump, with the changes since.
    #[default]
    Baseline,
    /// Only the changes since the last time.
    Incremental,
}

/// What a synchronisation did: `created + updated + unchanged + failed` is `resources`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// What it went by.
    pub method: Method,
    /// How many resources the Source lists; for an incremental run, how many were created or updated.
    pub resources: u64,
    /// How many resources there are after the run, also those that failed, if that is known. Where files and changes contradict each
    /// other, or changes cannot be understood, it is unknown until the next baseline.
    #[serde(default)]
    pub in_copy: Option<u64>,
    /// Files that were not there.
    pub created: u64,
    /// Files that were replaced.
    pub updated: u64,
    /// Files that were removed.
    pub deleted: u64,
    /// Files whose resources were deleted at the Source, and that stay without [`delete`](super::SyncOptions::delete).
    pub kept: u64,
    /// Files that should be removed and cannot be; they are among the failures.
    pub not_deleted: u64,
    /// Files that were right already.
    pub unchanged: u64,
    /// Resources that are not in step.
    pub failed: u64,
    /// Whether a retry may help although the Source's list stays the same. It does not for an unusable name or a 404.
    pub retry_may_help: bool,
    /// Why no unlisted file was deleted although that was requested (RS-201). Deletions in a Change List were done.
    pub deletion_skipped: Option<String>,
    /// Why changes may be missing, for example because of a gap between the Change Lists (RS-197), or a copy of the past is not proven
    /// to be one.
    pub unproven: Option<String>,
    /// For a copy of the past: of when it is (MEM-063).
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::option")]
    pub at: Option<DateTime>,
    /// The gaps between the Source's Change Lists so far. While [`unproven`](Self::unproven), no Resource List has closed the last.
    pub gaps: Box<GapHistory>,
    /// Files that were here before the copy and are not as the Source lists them. They stay until they are
    /// [adopted](super::SyncOptions::adopt).
    #[serde(default)]
    pub earlier_files: u64,
    /// How many of the updated files were made by patches (RS-174).
    pub patched: u64,
    /// How many bytes of resources and packages were transferred, also in vain.
    pub bytes_fetched: u64,
    /// How many bytes of local files were read to compare them.
    pub bytes_hashed: u64,
    /// The failures, at most the first hundred.
    pub failures: Vec<Failure>,
    /// All failures by their causes, of which the first hundred are kept.
    #[serde(default)]
    pub causes: Vec<Cause>,
    /// What became of the versions that were told since the last run, if they are [wanted](super::SyncOptions::versions).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Box<VersionsReport>>,
    /// Whether the failures that a retry may resolve are saved for the next incremental run.
    #[serde(skip)]
    pub(crate) is_remembered: bool,
    /// Whether a download did not match its list.
    #[serde(skip)]
    pub(crate) mismatched: bool,
    /// The time up to which the lists are complete, if they say.
    #[serde(skip)]
    pub(crate) reached: Option<DateTime>,
    /// The time of the last deletion that notifications tell of, while the Change List does not reach to it.
    #[serde(skip)]
    pub(crate) awaited: Option<DateTime>,
    /// When an incremental run should request missing resources again.
    #[serde(skip)]
    pub(crate) retry_in: Option<Duration>,
}

impl Report {
    /// Whether the copy certainly has everything the Source lists, and nothing else if deletion was requested.
    #[must_use]
    pub fn in_step(&self) -> bool {
        self.is_done() && self.unproven.is_none()
    }

    /// Whether all that the Source lists was done.
    pub(crate) fn is_done(&self) -> bool {
        self.failed + self.not_deleted == 0 && self.deletion_skipped.is_none()
    }

    /// Whether its versions are neither kept nor wait, so that the next run has to read the same changes once more (MEM-071).
    pub(crate) fn forgets_versions(&self) -> bool {
        self.versions.as_deref().is_some_and(|versions| versions.are_forgotten)
    }

    /// Counts and reports the outcome of one resource.
    pub(crate) fn count(&mut self, to: &Progress, loc: &str, outcome: Result<Outcome, ResourceError>) {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                // The report and the listener say so too.
                tracing::debug!(%loc, %error, "a resource is not in step");
                self.failed += 1;
                self.retry_may_help |= error.retry_may_help();
                self.mismatched |= error.is_mismatch();
                return self.name(to, loc, Failure::of(loc, &error));
            }
        };
        let counter = match outcome {
            Outcome::Created => &mut self.created,
            Outcome::Updated => &mut self.updated,
            Outcome::Unchanged => &mut self.unchanged,
            Outcome::Deleted => &mut self.deleted,
            Outcome::Kept => &mut self.kept,
        };
        *counter += 1;
        to.report(loc, Ok(outcome));
    }

    /// Reports a missing resource that this run does not request again.
    pub(crate) fn postponed(&mut self, to: &Progress, retry: &Retry) {
        self.resources += 1;
        self.failed += 1;
        let mut failure = retry.failure();
        failure.cause.push_str("; a later run requests it again");
        self.name(to, &retry.line.loc, failure);
    }

    /// Reports a file that cannot be removed.
    pub(crate) fn not_removed(&mut self, to: &Progress, loc: &str, error: &ResourceError) {
        tracing::debug!(%loc, %error, "cannot remove a file");
        self.not_deleted += 1;
        self.retry_may_help |= error.retry_may_help();
        self.name(to, loc, Failure::of(loc, error));
    }

    /// Counts the entries of a list that cannot be understood (RS-050).
    pub(crate) fn unreadable(&mut self, to: &Progress, list: &Url, entries: usize, first: &Violation) {
        self.failed += u64::try_from(entries).unwrap_or(u64::MAX);
        if entries > 0 {
            let cause = format!("cannot understand {entries} entries of this list; {first}");
            self.name(to, list.as_str(), Failure::new(list.as_str(), FailureKind::Unreadable, &cause));
        }
    }

    /// Counts a package of a type that cannot be read, so that its resources are not known.
    pub(crate) fn not_read(&mut self, to: &Progress, package: &Url, media_type: &str) {
        self.failed += 1;
        let cause = format!("its type is {media_type}, and only ZIP packages are supported");
        self.name(to, package.as_str(), Failure::new(package.as_str(), FailureKind::PackageFormat, &cause));
    }

    fn name(&mut self, to: &Progress, loc: &str, failure: Failure) {
        to.report(loc, Err(&failure));
        add(&mut self.failures, &mut self.causes, failure);
    }

    /// The findings of two runs, of which the second handled the `retries` of the first.
    pub(crate) fn followed_by(mut self, next: Self, retries: &[Retry]) -> Self {
        let gone = retries.iter().filter(|retry| retry.line.is_deleted).count() as u64;
        let count = retries.len() as u64 - gone;
        self.failures.retain(|failure| !retries.iter().any(|retry| retry.line.loc == failure.loc));
        self.failures.extend(next.failures);
        self.failures.truncate(FAILURES_KEPT);
        let again = retries.iter().map(Retry::failure);
        self.causes = joined(self.causes, again, next.causes, &self.failures);
        Self {
            resources: self.resources.saturating_sub(count) + next.resources,
            in_copy: next.in_copy,
            created: self.created + next.created,
            updated: self.updated + next.updated,
            deleted: self.deleted + next.deleted,
            kept: self.kept + next.kept,
            not_deleted: self.not_deleted.saturating_sub(gone) + next.not_deleted,
            unchanged: self.unchanged + next.unchanged,
            failed: self.failed.saturating_sub(count) + next.failed,
            retry_may_help: next.retry_may_help,
            is_remembered: next.is_remembered,
            reached: next.reached,
            retry_in: next.retry_in,
            awaited: next.awaited,
            earlier_files: next.earlier_files,
            versions: VersionsReport::joined(self.versions, next.versions),
            patched: self.patched + next.patched,
            // These are counted over both.
            bytes_fetched: next.bytes_fetched,
            bytes_hashed: self.bytes_hashed + next.bytes_hashed,
            ..self
        }
    }

    /// The same findings for a run that did nothing, since there was nothing new.
    pub(crate) fn repeated(self) -> Self {
        let unchanged = self.resources - self.failed;
        let (created, updated, deleted, kept) = (0, 0, 0, 0);
        let (patched, bytes_fetched, bytes_hashed, versions) = (0, 0, 0, None);
        Self {
            created,
            updated,
            deleted,
            kept,
            unchanged,
            patched,
            bytes_fetched,
            bytes_hashed,
            versions,
            ..self
        }
    }
}

/// What became of versions that are kept beside a copy (MEM-070). The copy is in step without them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsReport {
    /// Versions that were written, and deletions.
    pub kept: u64,
    /// Versions that a later run fetches: there were too many for one run, or they failed and may mend.
    pub waiting: u64,
    /// How often fetching one failed.
    pub failed: u64,
    /// Versions that no later run fetches: the Source has them no more, or does not say where they are.
    pub lost: u64,
    /// Why more may be missing, of which nothing tells.
    pub unproven: Option<String>,
    /// Why versions failed or are lost, at most the first hundred.
    pub failures: Vec<Failure>,
    /// The same by causes, of which the first hundred are kept.
    pub causes: Vec<Cause>,
    /// Whether some could not even be written down to wait.
    #[serde(skip)]
    pub(crate) are_forgotten: bool,
}

impl VersionsReport {
    /// Whether nothing failed, and nothing is missing for ever. Some may wait for a later run.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.failed + self.lost == 0 && self.unproven.is_none()
    }

    /// Counts a version that failed, or is lost if it is not `for_later`.
    pub(crate) fn fail(&mut self, failure: Failure, for_later: bool) {
        if for_later {
            self.failed += 1;
        } else {
            self.lost += 1;
        }
        add(&mut self.failures, &mut self.causes, failure);
    }

    /// The findings of two steps.
    pub(crate) fn joined(first: Option<Box<Self>>, next: Option<Box<Self>>) -> Option<Box<Self>> {
        let (mut first, mut next) = match (first, next) {
            (first, None) => return first,
            (None, next) => return next,
            (Some(first), Some(next)) => (*first, *next),
        };
        first.failures.append(&mut next.failures);
        first.failures.truncate(FAILURES_KEPT);
        let causes = joined(first.causes, std::iter::empty(), next.causes, &first.failures);
        Some(Box::new(Self {
            kept: first.kept + next.kept,
            waiting: first.waiting + next.waiting,
            failed: first.failed + next.failed,
            lost: first.lost + next.lost,
            unproven: first.unproven.or(next.unproven),
            failures: first.failures,
            causes,
            are_forgotten: first.are_forgotten || next.are_forgotten,
        }))
    }
}
