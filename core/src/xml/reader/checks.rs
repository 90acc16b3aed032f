//! The rules, checked while a document streams by, once it was turned into one of 1.1.

use std::io::BufRead;

use super::Reader;
use crate::document::{Entry, Header};
use crate::rules::{self, Checker, Place, Violations};
use crate::xml::{Mode, ReadError};

/// The checks of one document.
pub(super) struct Checks {
    mode: Mode,
    /// `None` in the lenient mode.
    checker: Option<Checker>,
    is_header_due: bool,
}

impl Checks {
    pub(super) fn new(mode: Mode) -> Self {
        Self { mode, checker: None, is_header_due: false }
    }

    /// Goes on with another header, since a later entry showed what the document is.
    pub(super) fn change_header(&mut self, header: &Header) {
        if let Some(checker) = &mut self.checker {
            checker.change_header(header);
        }
    }
}

impl<R: BufRead> Reader<R> {
    /// Checks what stands before the first entry as far as the entries cannot change it.
    pub(super) fn check_header_first(&mut self) -> Result<(), ReadError> {
        if self.checks.mode == Mode::Lenient {
            return Ok(());
        }
        // Changes of older forms are put into the order of time when all are known (DL-006, ALPHA-019).
        let in_any_order = self.dialect().has_no_order(&self.header);
        self.checks.checker = Some(Checker::of_entries(&self.header, in_any_order));
        self.refuse_if_strict()?;
        let Some(provisional) = self.translator.provisional_header(&self.header) else {
            return self.check_header();
        };
        self.checks.is_header_due = true;
        if self.checks.mode == Mode::Strict {
            // What is wrong whatever the entries show is refused before they are read.
            return refuse(&rules::check_header(&provisional, Some(self.header_position)));
        }
        Ok(())
    }

    /// Checks what comes after the last entry, and the header when it had to wait for it.
    pub(super) fn check_end(&mut self) -> Result<(), ReadError> {
        if self.checks.mode == Mode::Lenient {
            return Ok(());
        }
        let is_due = std::mem::take(&mut self.checks.is_header_due);
        if is_due { self.check_header() } else { self.refuse_if_strict() }
    }

    pub(super) fn check_entry(&mut self, entry: &Entry) -> Result<(), ReadError> {
        let Some(checker) = &mut self.checks.checker else { return Ok(()) };
        let place = Place { position: Some(self.position), entry: Some(self.count) };
        checker.entry_at(entry, place, &mut self.violations);
        self.refuse_if_strict()
    }

    /// In the strict mode, refuses what was reported before.
    pub(super) fn refuse_if_strict(&self) -> Result<(), ReadError> {
        if self.checks.mode == Mode::Strict { refuse(&self.violations) } else { Ok(()) }
    }

    fn check_header(&mut self) -> Result<(), ReadError> {
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
