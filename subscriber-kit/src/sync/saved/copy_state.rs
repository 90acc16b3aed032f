//! The state of a copy between runs: how far it follows the Source's changes, and what is left to do.
//!
//! It is a file apart from the digests of the files, so that a run with one change reads and writes little. It is written after
//! the files are durable. Without it, the next run is a baseline.

use std::io;
use std::time::Duration;

use resync_core::datetime::DateTime;
use serde::{Deserialize, Serialize};

use super::cache::Scope;
use crate::sync::ResourceError;
use crate::sync::failure::{Failure, FailureKind};
use crate::sync::files::folder::CopyFolder;
use crate::sync::reading::change_reader::Point;
use crate::sync::reading::gaps::GapHistory;
use crate::sync::reading::notified::NotifiedChanges;
use crate::sync::reading::plan::Line;
use crate::timing::{left_of_pause, paused_until};

pub(crate) const FILE_NAME: &str = "point.json";
const FORMAT: u32 = 1;

/// How many failed resources are saved; with more, the changes are read again.
pub(crate) const MAX_RETRIES: usize = 1000;

/// How many bytes the saved ones take at most, as they are saved. The links of a resource may take far more than its URI.
pub(crate) const MAX_RETRY_BYTES: usize = 16 << 20;

/// How many runs request a missing resource without a pause: its change may have been announced a little too early.
const PROMPT_RETRIES: u32 = 3;

/// A failed resource that is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retry {
    #[serde(flatten)]
    pub(crate) line: Line,
    /// Why it failed, for reports of runs that skip it.
    cause: String,
    #[serde(default)]
    kind: FailureKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// How often in a row it was missing at the Source.
    pub(crate) times_missing: u32,
    /// When it is requested again, in Unix milliseconds.
    pub(crate) paused_until_unix_millis: Option<i64>,
}

impl Retry {
    /// A missing resource (404, 410) is requested by the next three runs, then after 1, 2, 4 … minutes. Every run retries
    /// other failures.
    pub(crate) fn new(line: Line, error: &ResourceError, times_missing_before: u32, now: DateTime) -> Self {
        let times_missing = if error.is_not_there() { times_missing_before.saturating_add(1) } else { 0 };
        let doublings = times_missing.checked_sub(PROMPT_RETRIES + 1);
        let paused_until_unix_millis = doublings.map(|doublings| paused_until(now, doublings));
        let Failure { kind, status, cause, .. } = Failure::of(&line.loc, error);
        Self { line, cause, kind, status, times_missing, paused_until_unix_millis }
    }

    /// How many bytes it takes as it is saved.
    pub(crate) fn saved_bytes(&self) -> usize {
        serde_json::to_vec(self).map_or(0, |saved| saved.len())
    }

    /// Removes the resource's URL from the cause, where earlier versions had it: every report names it first.
    fn forget_url(&mut self) {
        self.cause = without(&self.line.url, &self.cause);
    }

    /// Why it failed.
    pub(crate) fn failure(&self) -> Failure {
        Failure { status: self.status, ..Failure::new(&self.line.loc, self.kind, &self.cause) }
    }

    /// How long it is not requested yet.
    pub(crate) fn pause_at(&self, now: DateTime) -> Duration {
        left_of_pause(self.paused_until_unix_millis, now)
    }

    /// Whether it is not requested yet.
    pub(crate) fn is_paused_at(&self, now: DateTime) -> bool {
        !self.pause_at(now).is_zero()
    }
}

/// How far the copy follows the changes, and what is left to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyState {
    format: u32,
    scope: Scope,
    pub(crate) point: Point,
    /// Failed resources that are tried again.
    pub(crate) retries: Vec<Retry>,
    /// Why changes before the point may be missing, until a newer Resource List (RS-197).
    pub(crate) unproven: Option<String>,
    /// All gaps so far, also those that a newer list has closed.
    pub(crate) gaps: GapHistory,
    /// How many resources there are, also those that failed; `None` if that is not certain until the next baseline.
    #[serde(default)]
    pub(crate) resources: Option<u64>,
    /// Changes from notifications that are later than the point.
    #[serde(default, skip_serializing_if = "NotifiedChanges::is_empty")]
    pub(crate) notified: NotifiedChanges,
}

impl CopyState {
    pub(crate) fn new(scope: Scope, point: Point, retries: Vec<Retry>) -> Self {
        let (unproven, gaps, notified) = (None, GapHistory::default(), NotifiedChanges::default());
        Self { format: FORMAT, scope, point, retries, unproven, gaps, resources: None, notified }
    }

    /// Replaces the changes from notifications.
    pub(crate) fn with_notified(self, notified: &NotifiedChanges) -> Self {
        Self { notified: notified.since(self.point.reached()), ..self }
    }

    /// Whether a change from a notification is still to be handled.
    pub(crate) fn has_notified_retries(&self) -> bool {
        self.retries.iter().any(|retry| self.notified.knows(&retry.line.loc))
    }

    /// Continues from this point. Changes before the last one must not count twice.
    pub(crate) fn at(self, point: Point) -> Self {
        Self { point, resources: None, ..self }
    }

    /// Replaces what is known of gaps.
    pub(crate) fn with_gaps(self, unproven: Option<String>, gaps: GapHistory) -> Self {
        Self { unproven, gaps, ..self }
    }

    /// Replaces the number of resources.
    pub(crate) fn with_resources(self, resources: Option<u64>) -> Self {
        Self { resources, ..self }
    }

    /// Loads what the last run saved, whatever its settings; `None` if that cannot be read.
    pub(crate) fn load(folder: &CopyFolder) -> Option<Self> {
        let bytes = std::fs::read(folder.file(FILE_NAME)).ok()?;
        let mut copy_state: Self = serde_json::from_slice(&bytes).ok()?;
        copy_state.retries.iter_mut().for_each(Retry::forget_url);
        (copy_state.format == FORMAT).then_some(copy_state)
    }

    /// Whether a run with these settings can continue from here.
    pub(crate) fn is_for(&self, scope: &Scope) -> bool {
        self.scope == *scope
    }

    /// What notifications told of these lists. It is true whatever else is set: a run that compares everything must not take it back.
    pub(crate) fn notified_of(&self, scope: &Scope) -> Option<&NotifiedChanges> {
        let is_of_these = self.scope.list == scope.list && self.scope.base == scope.base;
        is_of_these.then_some(&self.notified)
    }

    pub(crate) fn save(&self, folder: &CopyFolder) -> io::Result<()> {
        // Durably: changes from notifications may be known from here alone.
        folder.replace_json(FILE_NAME, self)
    }
}

/// The sentence without this URL, at its beginning or within it.
fn without(url: &str, sentence: &str) -> String {
    match sentence.strip_prefix(url).and_then(|rest| rest.strip_prefix(' ')) {
        Some(rest) => rest.to_owned(),
        None => sentence.replace(&format!(" {url} "), " it ").replace(&format!(" {url}: "), " it: "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::FetchError;
    use crate::sync::Target;
    use url::Url;

    #[test]
    fn what_is_not_there_is_asked_for_ever_more_seldom_and_what_may_mend_always() {
        let url = Url::parse("http://a.example/x").unwrap();
        let answers = |status| ResourceError::Fetch(FetchError::of_status(&url, status));
        let at = |minutes: i64| DateTime::from_unix_millis(1_795_000_000_000 + minutes * 60_000).unwrap();
        let paused = |status, times| {
            let mut times_missing = 0;
            let again = (0..times).map(|_| {
                let retry = Retry::new(Line::default(), &answers(status), times_missing, at(0));
                times_missing = retry.times_missing;
                (0..=2000).find(|minutes| !retry.is_paused_at(at(*minutes))).unwrap()
            });
            again.collect::<Vec<_>>()
        };
        assert_eq!(paused(404, 7), [0, 0, 0, 1, 2, 4, 8]);
        assert_eq!(paused(410, 90)[14..].iter().min(), Some(&1440));
        for mends_here_or_by_itself in [401, 403, 503] {
            assert_eq!(paused(mends_here_or_by_itself, 7), [0; 7]);
        }
        let paused = Retry::new(Line::default(), &answers(404), 3, at(0));
        assert!(
            paused.is_paused_at(at(0)) && !paused.is_paused_at(at(-2 * 1440)),
            "the clock was set back by two days"
        );
    }

    #[test]
    fn a_copy_state_of_format_1_is_read() {
        let archived = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/archive/state-1/point.json");
        let (copy, base) = (tempfile::tempdir().unwrap(), "http://source.example/");
        let target = Target::open(copy.path(), Url::parse(base).unwrap()).unwrap();
        let folder = CopyFolder::open(&target).unwrap();
        std::fs::copy(archived, folder.file(FILE_NAME)).unwrap();
        let scope = Scope {
            list: format!("{base}resourcelist.xml"),
            base: base.to_owned(),
            delete: true,
            any_origin: false,
            filter: String::new(),
            by_dump: false,
        };
        let state = CopyState::load(&folder).unwrap();
        assert!(state.is_for(&scope));
        assert_eq!((state.format, state.gaps.count), (FORMAT, 1));
        assert_eq!(state.point, Point::at("2026-11-20T09:00:00Z".parse().unwrap()));
        let [retry] = state.retries.as_slice() else { panic!("one is to be tried again") };
        assert_eq!((retry.line.loc.as_str(), retry.times_missing), ("http://source.example/b", 4));
        assert_eq!(retry.failure().cause, "answers 404", "it had the URL, which every report names first");
        assert!(state.notified.knows("http://source.example/c"));
    }

    #[test]
    fn a_cause_of_before_names_the_url_of_its_resource_no_more() {
        let url = "http://a.example/x";
        for (before, now) in [
            (format!("{url} answers 404"), "answers 404"),
            (format!("cannot reach {url} (refused)"), "cannot reach it (refused)"),
            (
                format!("cannot write a temporary file for {url}: denied"),
                "cannot write a temporary file for it: denied",
            ),
            (format!("{url}/y answers 404"), "http://a.example/x/y answers 404"),
            (format!("redirects to {url}/y (again)"), "redirects to http://a.example/x/y (again)"),
            ("answers 404".to_owned(), "answers 404"),
        ] {
            assert_eq!(without(url, &before), now);
        }
    }
}
