//! Where a copy stands in the Source's changes, between runs.
//!
//! Apart from what is remembered of its files, so that a run that deals with one change reads and writes no more than
//! that. It is written once the files are durable; without it the next run begins from the Resource List.

use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::ResourceError;
use super::changes::Point;
use super::folder::CopyFolder;
use super::memory::Scope;
use super::plan::Line;

const FILE_NAME: &str = "point.json";
const FORMAT: u32 = 1;

/// How many resources that failed are remembered; with more, the changes are read again.
pub(crate) const MAX_UNDONE: usize = 1000;

/// How often something that is not there is asked for by every run: it may have been told of a little too early.
const PATIENCE: u32 = 3;

/// After how many runs at most something is asked for again.
const LONGEST_REST: u32 = 64;

/// What failed and is to be tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Undone {
    #[serde(flatten)]
    pub(crate) line: Line,
    /// Why, for the reports of the runs that let it rest.
    #[serde(default)]
    pub(crate) cause: String,
    /// How often in a row it was asked for in vain, where only the Source can mend it.
    #[serde(default)]
    pub(crate) vain: u32,
    /// How many runs it rests.
    #[serde(default)]
    pub(crate) rest: u32,
}

impl Undone {
    /// What is not there, such as after a 404, is asked for by the next three runs, and then after 2, 4, 8 … runs; what
    /// may mend by itself, or here, is tried by every run.
    pub(crate) fn new(line: Line, error: &ResourceError, vain_before: u32) -> Self {
        let vain = if error.is_about_the_answer() { vain_before.saturating_add(1) } else { 0 };
        let after =
            1_u32.checked_shl(vain.saturating_sub(PATIENCE)).unwrap_or(LONGEST_REST).min(LONGEST_REST);
        Self { line, cause: error.to_string(), vain, rest: after - 1 }
    }

    /// The same one run later.
    pub(crate) fn rested(&self) -> Self {
        Self { rest: self.rest.saturating_sub(1), ..self.clone() }
    }
}

/// Up to where the copy is, and what is left to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    format: u32,
    scope: Scope,
    pub(crate) point: Point,
    /// What failed and is to be tried again.
    pub(crate) undone: Vec<Undone>,
    /// Why changes before the point may be missing, which only a newer list can mend (RS-197).
    #[serde(default)]
    pub(crate) uncertain: Option<String>,
}

impl Standing {
    pub(crate) fn new(scope: Scope, point: Point, undone: Vec<Undone>) -> Self {
        Self { format: FORMAT, scope, point, undone, uncertain: None }
    }

    /// The same, but that changes may be missing.
    pub(crate) fn doubted(self, uncertain: Option<String>) -> Self {
        Self { uncertain, ..self }
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
        let rests = |status, times| {
            let mut vain = 0;
            let again = (0..times).map(|_| {
                let undone = Undone::new(Line::default(), &answers(status), vain);
                vain = undone.vain;
                undone.rest
            });
            again.collect::<Vec<_>>()
        };
        assert_eq!(rests(404, 7), [0, 0, 0, 1, 3, 7, 15]);
        assert_eq!(rests(404, 50)[49], 63);
        assert_eq!(rests(503, 3), [0, 0, 0]);
        let missed = Undone::new(Line::default(), &answers(410), 3);
        assert_eq!((missed.rest, missed.rested().rest, missed.rested().vain), (1, 0, 4));
    }

    #[test]
    fn what_an_earlier_version_left_undone_is_tried_at_once() {
        let line = serde_json::to_value(Line { loc: "x".to_owned(), ..Line::default() }).unwrap();
        let undone: Undone = serde_json::from_value(line).unwrap();
        assert_eq!((undone.line.loc.as_str(), undone.vain, undone.rest), ("x", 0, 0));
    }
}
