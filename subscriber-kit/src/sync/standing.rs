//! Where a copy stands in the Source's changes, between runs.
//!
//! Apart from what is remembered of its files, so that a run that deals with one change reads and writes no more than
//! that. It is written once the files are durable; without it the next run begins from the Resource List.

use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::changes::Point;
use super::folder::CopyFolder;
use super::memory::Scope;
use super::plan::Line;

const FILE_NAME: &str = "point.json";
const FORMAT: u32 = 1;

/// How many resources that failed are remembered; with more, the changes are read again.
pub(crate) const MAX_UNDONE: usize = 1000;

/// Up to where the copy is, and what is left to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    format: u32,
    scope: Scope,
    pub(crate) point: Point,
    /// What failed and is to be tried again.
    pub(crate) undone: Vec<Line>,
}

impl Standing {
    pub(crate) fn new(scope: Scope, point: Point, undone: Vec<Line>) -> Self {
        Self { format: FORMAT, scope, point, undone }
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
