//! The one judgement of a document while it streams by, after what an older form said was turned into the words of today.

use std::io::BufRead;

use super::Reader;
use crate::datetime::DateTime;
use crate::document::{Entry, Header};
use crate::rules::{self, Checker, Place, Violations};
use crate::xml::dialect::{self, Dialect};
use crate::xml::{Mode, ReadError};

/// What judges, and how far it has come.
pub(super) struct Judge {
    mode: Mode,
    /// `None` in the lenient mode.
    checker: Option<Checker>,
    is_header_due: bool,
}

impl Judge {
    pub(super) fn new(mode: Mode) -> Self {
        Self { mode, checker: None, is_header_due: false }
    }

    /// Goes on with another header, since a later entry showed what the document is.
    pub(super) fn turn(&mut self, header: &Header) {
        if let Some(checker) = &mut self.checker {
            checker.turn(header);
        }
    }
}

impl<R: BufRead> Reader<R> {
    /// Judges what stands before the first entry as far as the entries cannot change it.
    pub(super) fn judge_header_first(&mut self) -> Result<(), ReadError> {
        if self.judge.mode == Mode::Lenient {
            return Ok(());
        }
        // Their changes are put into the order of time when all are known (DL-006, ALPHA-019).
        let in_any_order = dialect::has_no_order(self.dialect, &self.header);
        self.judge.checker = Some(Checker::of_entries(&self.header, in_any_order));
        self.refuse_if_strict()?;
        // Any entry may show that a Sitemap is one of the alpha draft.
        self.judge.is_header_due = self.since.is_some() || self.dialect == Dialect::Sitemap;
        if !self.judge.is_header_due {
            return self.judge_header();
        }
        if self.judge.mode == Mode::Strict {
            // What is wrong whatever the entries show is refused before they are read.
            let mut header = self.header.clone();
            if self.since.is_some() {
                header.metadata.from = Some(DateTime::from_system_time(std::time::SystemTime::UNIX_EPOCH));
            }
            return refuse(&rules::check_header(&header, Some(self.header_position)));
        }
        Ok(())
    }

    /// Judges what comes after the last entry, and the header when it had to wait for it.
    pub(super) fn judge_end(&mut self) -> Result<(), ReadError> {
        if self.judge.mode == Mode::Lenient {
            return Ok(());
        }
        let is_due = std::mem::take(&mut self.judge.is_header_due);
        if is_due { self.judge_header() } else { self.refuse_if_strict() }
    }

    pub(super) fn judge_entry(&mut self, entry: &Entry) -> Result<(), ReadError> {
        let Some(checker) = &mut self.judge.checker else { return Ok(()) };
        let place = Place { position: Some(self.position), entry: Some(self.count) };
        checker.entry_at(entry, place, &mut self.violations);
        self.refuse_if_strict()
    }

    /// In the strict mode, refuses what was told before.
    pub(super) fn refuse_if_strict(&self) -> Result<(), ReadError> {
        if self.judge.mode == Mode::Strict { refuse(&self.violations) } else { Ok(()) }
    }

    fn judge_header(&mut self) -> Result<(), ReadError> {
        self.violations.append(rules::check_header(&self.header, Some(self.header_position)));
        self.refuse_if_strict()
    }
}

fn refuse(violations: &Violations) -> Result<(), ReadError> {
    if violations.is_conforming() {
        return Ok(());
    }
    match violations.errors().next() {
        Some(violation) => Err(ReadError::Rule(Box::new(violation.clone()))),
        None => Ok(()),
    }
}
