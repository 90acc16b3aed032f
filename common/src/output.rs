//! What a program prints: results on standard output, messages on standard error as `PROGRAM: message`.
//!
//! A reader that has seen enough (`| head`) is no failure: the work goes on, and its outcome is the exit code. What else hinders the
//! printing, such as a full disk, is remembered until [`finish`].

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::locks::lock;

static PROGRAM: OnceLock<String> = OnceLock::new();
static QUIET: AtomicBool = AtomicBool::new(false);
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Says in which name this process speaks: needed where it may speak before its command line is read.
pub fn speak_as(program: &str) {
    PROGRAM.get_or_init(|| program.to_owned());
}

/// From now on only what was asked for is printed, and failures (`--quiet`).
pub fn be_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether `--quiet` was given.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints what was asked for, as a line: a list, a document, JSON.
pub fn answer(text: impl Display) {
    if let Err(error) = write_line(text).or_else(closed_is_fine) {
        lock(&FAILED).get_or_insert(error);
    }
}

/// Prints what was done, as a line, unless `--quiet`.
pub fn say(text: impl Display) {
    if !is_quiet() {
        answer(text);
    }
}

/// Prints a message: a failure, or what else somebody has to know.
pub fn complain(text: impl Display) {
    let program = PROGRAM.get().map_or("", String::as_str);
    // Without standard error there is nowhere to say so.
    let _ = writeln!(io::stderr(), "{program}: {text}");
}

/// Prints what clap says of a command line, in the name of this program.
#[cfg(feature = "cli")]
pub(crate) fn complain_of_usage(said: &clap::builder::StyledStr) {
    let program = PROGRAM.get().map_or("", String::as_str);
    let said = if takes_colour(&io::stderr()) { said.ansi().to_string() } else { said.to_string() };
    let _ = write!(io::stderr(), "{}", said.replacen("error:", &format!("{program}:"), 1));
}

/// Whether text for `stream` may have colours: it is a terminal, and `NO_COLOR` is not set.
pub fn takes_colour(stream: &impl io::IsTerminal) -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && stream.is_terminal()
}

/// Prints a message about how the work goes on, unless `--quiet`.
pub fn note(text: impl Display) {
    if !is_quiet() {
        complain(text);
    }
}

/// Prints a message about something that may be wrong, unless `--quiet`.
pub fn warn(text: impl Display) {
    note(format_args!("warning: {text}"));
}

/// Prints a line, at once. An error tells a closed pipe, too.
pub fn write_line(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Why something could not be printed.
pub fn finish() -> io::Result<()> {
    lock(&FAILED).take().map_or(Ok(()), |error| {
        Err(io::Error::new(error.kind(), format!("cannot write to standard output: {error}")))
    })
}

fn closed_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}

/// A table: aligned, with headings, on a terminal; in a pipe or a file one line for each row, its cells separated by tabs.
#[derive(Debug)]
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Whether cells for programs are `name=value`.
    is_named: bool,
}

impl Table {
    /// An empty table with these headings.
    pub fn new(headings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { headings: headings.into_iter().map(Into::into).collect(), rows: Vec::new(), is_named: false }
    }

    /// With cells as `name=value` in a pipe or a file, by the headings: for tables whose columns may change.
    #[must_use]
    pub fn named(self) -> Self {
        Self { is_named: true, ..self }
    }

    /// Adds a row of as many cells as there are headings. No cell can imitate another cell or line.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Display>) {
        let plain = |cell: String| cell.replace(char::is_control, " ");
        self.rows.push(cells.into_iter().map(|cell| plain(cell.to_string())).collect());
    }

    /// Prints it. An empty one is "none" on a terminal, and nothing elsewhere.
    pub fn print(&self) {
        let is_terminal = io::stdout().is_terminal();
        for line in if is_terminal { self.for_people() } else { self.for_programs() } {
            answer(line);
        }
    }

    fn for_programs(&self) -> Vec<String> {
        let name = |heading: &String| heading.to_lowercase().replace(' ', "_");
        let cell = |(heading, cell): (&String, &String)| {
            if self.is_named { format!("{}={cell}", name(heading)) } else { cell.clone() }
        };
        let line = |row: &Vec<String>| self.headings.iter().zip(row).map(cell).collect::<Vec<_>>().join("\t");
        self.rows.iter().map(line).collect()
    }

    fn for_people(&self) -> Vec<String> {
        if self.rows.is_empty() {
            return vec!["none".to_owned()];
        }
        let all = || [&self.headings].into_iter().chain(&self.rows);
        let width = |text: &String| text.chars().count();
        let widths: Vec<usize> = (0..self.headings.len())
            .map(|column| all().filter_map(|row| row.get(column)).map(width).max().unwrap_or(0))
            .collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        all().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_for_people_and_separated_by_tabs_for_programs() {
        let mut table = Table::new(["NAME", "TOPICS"]);
        assert_eq!(table.for_people(), ["none"]);
        assert!(table.for_programs().is_empty());
        table.row(["a library", "7"]);
        table.row(["é\tx", "12"]);
        assert_eq!(table.for_people(), ["NAME       TOPICS", "a library  7", "é x        12"]);
        assert_eq!(table.for_programs(), ["a library\t7", "é x\t12"]);
        assert_eq!(table.named().for_programs()[0], "name=a library\ttopics=7");
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure_and_a_full_disk_is_one() {
        let outcome = |kind: io::ErrorKind| closed_is_fine(kind.into());
        assert!(outcome(io::ErrorKind::BrokenPipe).is_ok());
        assert!(outcome(io::ErrorKind::StorageFull).is_err());
    }
}
