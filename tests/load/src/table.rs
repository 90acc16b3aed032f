//! `resync-load figures`: its arguments, and where the table goes.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use resync_common::output::answer;
use resync_common::words::Lasting;
use resync_load::{Failure, Figures};

use super::measure;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What is measured, as `--list` names it; where nothing is named, everything that was not measured of this commit already
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Where what came of each is kept; the table is made of all that are there
    #[arg(long, default_value = "docs/figures", value_name = "DIR")]
    into: PathBuf,
    /// Name the measurements, how long they take, and their figures, and do nothing
    #[arg(long)]
    list: bool,
    /// Measure nothing: only the table of what is there
    #[arg(long, conflicts_with = "names")]
    only_table: bool,
    /// Let figures of several states of the code stand in one table, or of a state that is no commit
    #[arg(long)]
    mix: bool,
    /// Put the table into this document, too, between its lines `<!-- figures -->` and `<!-- /figures -->`, unless something could
    /// not be measured
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
}

impl Arguments {
    pub(super) fn run(self) -> Result<(), Failure> {
        if self.list {
            list();
            return Ok(());
        }
        let plan = Figures { names: self.names, folder: self.into, mix: self.mix };
        let measured = if self.only_table { Ok(()) } else { measure(resync_load::figures(&plan)) };
        let table = resync_load::table(&resync_load::outcomes(&plan.folder)?);
        // A document does not lose a line because something could not be measured today.
        if let Some(path) = self.document.as_ref().filter(|_| measured.is_ok()) {
            let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let document = fs::read_to_string(path).map_err(|error| told(&error))?;
            fs::write(path, resync_load::insert(&document, &table).map_err(|error| told(&error))?)
                .map_err(|error| told(&error))?;
        }
        answer(table.trim_end());
        measured
    }
}

fn list() {
    for (name, time, figures) in resync_load::measurements() {
        answer(format_args!("{name}, about {}", Lasting(time)));
        for figure in figures {
            answer(format_args!("    {figure}"));
        }
    }
    let all = resync_load::measurements().map(|(_, time, _)| time).sum();
    answer(format_args!("all of them: about {}", Lasting(all)));
}
