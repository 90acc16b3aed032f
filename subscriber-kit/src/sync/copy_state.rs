//! Where a copy stands in the Source's changes, between runs.
//!
//! Apart from what is remembered of its files, so that a run that deals with one change reads and writes no more than
//! that. It is written once the files are durable; without it the next run begins from the Resource List.

use std::io::{self, Write as _};
use std::time::Duration;

use resync_core::datetime::DateTime;
use serde::{Deserialize, Serialize};

use super::ResourceError;
use super::changes::Point;
use super::folder::CopyFolder;
use super::gaps::GapHistory;
use super::memory::Scope;
use super::notified::NotifiedChanges;
use super::plan::Line;

const FILE_NAME: &str = "point.json";
const FORMAT: u32 = 1;

/// How many resources that failed are remembered; with more, the changes are read again.
pub(crate) const MAX_RETRIES: usize = 1000;

/// How often something that is not there is asked for by every run: it may have been told of a little too early.
const PATIENCE: u32 = 3;

/// How long it rests after that at first, and at most, in milliseconds.
const FIRST_REST: i64 = 60_000;
const LONGEST_REST: i64 = 24 * 3_600_000;

/// What failed and is to be tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retry {
    #[serde(flatten)]
    pub(crate) line: Line,
    /// Why, for the reports of the runs that let it rest.
    #[serde(default)]
    pub(crate) cause: String,
    /// How often in a row the Source said that it is not there.
    #[serde(default)]
    pub(crate) vain: u32,
    /// Until when it rests, in Unix milliseconds.
    #[serde(default)]
    pub(crate) rests_until: Option<i64>,
}

impl Retry {
    /// What is not there, after a 404 or 410, is asked for by the next three runs, and then after 1, 2, 4 … minutes; what
    /// may mend by itself, or here, is tried by every run.
    pub(crate) fn new(line: Line, error: &ResourceError, vain_before: u32, now: DateTime) -> Self {
        let vain = if error.is_not_there() { vain_before.saturating_add(1) } else { 0 };
        let rest = vain.checked_sub(PATIENCE + 1).map(|doublings| {
            let factor = 1_i64.checked_shl(doublings).filter(|factor| *factor > 0);
            factor.map_or(LONGEST_REST, |factor| FIRST_REST.saturating_mul(factor).min(LONGEST_REST))
        });
        let rests_until = rest.map(|rest| now.unix_millis().saturating_add(rest));
        Self { line, cause: error.to_string(), vain, rests_until }
    }

    /// For how long it is not asked for yet. A clock that was set back makes no rest longer than the longest.
    pub(crate) fn rest_at(&self, now: DateTime) -> Duration {
        let left = self.rests_until.map_or(0, |until| until.saturating_sub(now.unix_millis()));
        let left = if left > LONGEST_REST { 0 } else { left };
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }

    /// Whether it is not asked for yet.
    pub(crate) fn rests_at(&self, now: DateTime) -> bool {
        !self.rest_at(now).is_zero()
    }
}

/// Up to where the copy is, and what is left to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyState {
    format: u32,
    scope: Scope,
    pub(crate) point: Point,
    /// What failed and is to be tried again.
    pub(crate) undone: Vec<Retry>,
    /// Why changes before the point may be missing, which only a newer list can mend (RS-197).
    #[serde(default)]
    pub(crate) uncertain: Option<String>,
    /// What the lists of changes left untold so far, also where a newer list has told it since.
    #[serde(default)]
    pub(crate) gaps: GapHistory,
    /// What notifications told of that happened after the point.
    #[serde(default, skip_serializing_if = "NotifiedChanges::is_empty")]
    pub(crate) told: NotifiedChanges,
}

impl CopyState {
    pub(crate) fn new(scope: Scope, point: Point, undone: Vec<Retry>) -> Self {
        let (uncertain, gaps, told) = (None, GapHistory::default(), NotifiedChanges::default());
        Self { format: FORMAT, scope, point, undone, uncertain, gaps, told }
    }

    /// The same, with what notifications told of.
    pub(crate) fn with_told(self, told: &NotifiedChanges) -> Self {
        Self { told: told.since(self.point.reached()), ..self }
    }

    /// Whether a change that a notification told of is still to be dealt with.
    pub(crate) fn owes_what_was_told(&self) -> bool {
        self.undone.iter().any(|undone| self.told.knows(&undone.line.loc))
    }

    /// The same, but that changes go on from there.
    pub(crate) fn at(self, point: Point) -> Self {
        Self { point, ..self }
    }

    /// The same, but that changes may be missing, as they were before.
    pub(crate) fn doubted(self, uncertain: Option<String>, gaps: GapHistory) -> Self {
        Self { uncertain, gaps, ..self }
    }

    /// What an earlier run of the same settings left; nothing if that cannot be read.
    pub(crate) fn load(folder: &CopyFolder, scope: &Scope) -> Option<Self> {
        let bytes = std::fs::read(folder.file(FILE_NAME)).ok()?;
        let standing: Self = serde_json::from_slice(&bytes).ok()?;
        (standing.format == FORMAT && standing.scope == *scope).then_some(standing)
    }

    pub(crate) fn save(&self, folder: &CopyFolder) -> io::Result<()> {
        let mut file = folder.unfinished()?;
        serde_json::to_writer(&mut file, self)?;
        file.flush()?;
        folder.sync_file(file.as_file())?;
        file.persist(folder.file(FILE_NAME)).map_err(|error| error.error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::FetchError;
    use url::Url;

    #[test]
    fn what_is_not_there_is_asked_for_ever_more_seldom_and_what_may_mend_always() {
        let url = Url::parse("http://a.example/x").unwrap();
        let answers = |status| ResourceError::Fetch(FetchError::of_status(&url, status));
        let at = |minutes: i64| DateTime::from_unix_millis(1_795_000_000_000 + minutes * 60_000).unwrap();
        let rests = |status, times| {
            let mut vain = 0;
            let again = (0..times).map(|_| {
                let undone = Retry::new(Line::default(), &answers(status), vain, at(0));
                vain = undone.vain;
                (0..=2000).find(|minutes| !undone.rests_at(at(*minutes))).unwrap()
            });
            again.collect::<Vec<_>>()
        };
        assert_eq!(rests(404, 7), [0, 0, 0, 1, 2, 4, 8]);
        assert_eq!(rests(410, 90)[14..].iter().min(), Some(&1440));
        for mends_here_or_by_itself in [401, 403, 503] {
            assert_eq!(rests(mends_here_or_by_itself, 7), [0; 7]);
        }
        let rests = Retry::new(Line::default(), &answers(404), 3, at(0));
        assert!(
            rests.rests_at(at(0)) && !rests.rests_at(at(-2 * 1440)),
            "the clock was set back by two days"
        );
    }

    #[test]
    fn the_point_of_an_earlier_version_is_read() {
        let kept = r#"{"format":1,"scope":{"list":"l","base":"b","delete":false,"any_origin":false},
            "point":{"since":"2026-11-20T09:00:00Z","open":null},"undone":[]}"#;
        let standing: CopyState = serde_json::from_str(kept).unwrap();
        assert_eq!((standing.uncertain, standing.gaps), (None, GapHistory::default()));
    }

    #[test]
    fn what_an_earlier_version_left_undone_is_tried_at_once() {
        let line = serde_json::to_value(Line { loc: "x".to_owned(), ..Line::default() }).unwrap();
        let undone: Retry = serde_json::from_value(line).unwrap();
        assert_eq!((undone.line.loc.as_str(), undone.vain, undone.rests_until), ("x", 0, None));
    }
}
