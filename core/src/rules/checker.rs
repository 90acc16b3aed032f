//! The check of one document in one pass: header first, then entry by entry.

use super::sequence::{Mark, Sequence};
use super::shape::{Need, Shape, shape};
use super::{Place, Rule, Violations, entry, header, values};
use crate::model::{Capability, Entry, Header, RawDocument};
use crate::model::{MAX_ENTRIES, Position};

/// Checks a whole document; places name entries, since there are no lines.
pub fn check(document: &RawDocument) -> Violations {
    let mut checker = Checker::new(&document.header);
    for entry in &document.entries {
        checker.entry(entry);
    }
    checker.finish()
}

/// Checks a document while it streams by.
///
/// ```
/// use resync_core::document::{Capability, Entry, Header, Root};
/// use resync_core::rules::{Checker, Rule};
///
/// let mut checker = Checker::new(&Header::new(Root::UrlSet, Capability::Description));
/// checker.entry(&Entry::new("capabilitylist.xml"));
/// let violations = checker.finish();
/// assert_eq!(violations.errors().next().map(|violation| violation.rule), Some(Rule::Loc));
/// ```
#[derive(Debug)]
pub struct Checker {
    capability: Option<Capability>,
    shape: Option<&'static Shape>,
    sequence: Sequence,
    count: usize,
    violations: Violations,
}

impl Checker {
    /// Checks a header and gets ready for the entries.
    pub fn new(header: &Header) -> Self {
        Self { violations: check_header(header, None), ..Self::of_entries(header, false) }
    }

    /// Gets ready for the entries without checking the header; `in_any_order` when their times may go up and down.
    pub(crate) fn of_entries(header: &Header, in_any_order: bool) -> Self {
        let shape = shape_of(header);
        let mut sequence = Sequence::new(header, shape);
        if in_any_order {
            sequence.allow_any_order();
        }
        let capability = header.capability().cloned();
        Self { capability, shape, sequence, count: 0, violations: Violations::default() }
    }

    /// Goes on with another header.
    pub(crate) fn change_header(&mut self, header: &Header) {
        self.capability = header.capability().cloned();
        self.shape = shape_of(header);
        self.sequence.change_header(header, self.shape);
    }

    /// Checks the next entry of a document that exists: whatever is found, the entry is part of it.
    pub fn entry(&mut self, entry: &Entry) {
        let place = Place { position: None, entry: Some(self.count + 1) };
        let mut found = std::mem::take(&mut self.violations);
        self.entry_at(entry, place, &mut found);
        self.violations = found;
    }

    /// The same for an entry at a place; what it breaks is added to `found`.
    pub(crate) fn entry_at(&mut self, entry: &Entry, place: Place, found: &mut Violations) {
        if self.count == MAX_ENTRIES {
            found.push(Rule::TooLarge, place, too_many());
        }
        let mark = self.check(entry, &mut |rule, detail| found.push(rule, place, detail));
        self.take(entry, Accepted(mark));
    }

    /// Checks an entry that is offered to a document in the making, as its next one. It is taken when it breaks no rule
    /// of severity [`Error`](super::Severity::Error); one that is refused leaves no trace, and others may follow.
    ///
    /// ```
    /// use resync_core::document::{Capability, Entry, Header, Root};
    /// use resync_core::rules::Checker;
    ///
    /// let mut checker = Checker::new(&Header::new(Root::UrlSet, Capability::Description));
    /// assert!(checker.offer(&Entry::new("capabilitylist.xml")).is_err());
    /// assert!(checker.offer(&Entry::new("https://example.org/capabilitylist.xml")).is_ok());
    /// ```
    pub fn offer(&mut self, entry: &Entry) -> Result<(), Violations> {
        let accepted = self.accept(entry)?;
        self.take(entry, accepted);
        Ok(())
    }

    /// Checks an entry that is offered, without taking it.
    pub(crate) fn accept(&self, entry: &Entry) -> Result<Accepted, Violations> {
        let place = Place { position: None, entry: Some(self.count + 1) };
        let mut found = Violations::default();
        if self.count >= MAX_ENTRIES {
            found.push(Rule::TooLarge, place, too_many());
        }
        let mark = self.check(entry, &mut |rule, detail| found.push(rule, place, detail));
        if found.is_conforming() { Ok(Accepted(mark)) } else { Err(found) }
    }

    /// Makes an entry part of the document, once it was judged.
    pub(crate) fn take(&mut self, entry: &Entry, Accepted(mark): Accepted) {
        self.count += 1;
        self.sequence.take(entry, mark);
    }

    /// Makes entries part of the document that were accepted by such a checker before, the last of which is `last`. Only for documents whose
    /// entries may repeat: what could come only once is not remembered of them.
    pub(crate) fn take_over(&mut self, count: usize, last: &Entry) {
        self.count += count;
        self.sequence.take_over(count, last);
    }

    /// How many entries the document has.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn check(&self, entry: &Entry, broken: &mut impl FnMut(Rule, String)) -> Mark {
        // A kind of document that we do not know may have manifests of its own.
        let path = self.shape.map_or(Need::May, |shape| shape.entry.path);
        values::check_entry(entry, path, broken);
        if let (Some(shape), Some(document)) = (self.shape, &self.capability) {
            entry::check(entry, document, shape, broken);
        }
        let mark = self.sequence.mark(entry);
        self.sequence.check(entry, mark, broken);
        mark
    }

    /// What was found so far.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }

    /// Ends the document and gives everything found.
    pub fn finish(self) -> Violations {
        self.violations
    }
}

/// That an entry was judged and may be taken, with what was found out about it.
#[derive(Debug)]
pub(crate) struct Accepted(Mark);

/// Checks what stands before the first entry.
pub(crate) fn check_header(header: &Header, position: Option<Position>) -> Violations {
    let mut violations = Violations::default();
    let place = Place { position, entry: None };
    header::check(header, shape_of(header), &mut |rule, detail| violations.push(rule, place, detail));
    violations
}

fn shape_of(header: &Header) -> Option<&'static Shape> {
    header.capability().and_then(|capability| shape(capability, header.root))
}

fn too_many() -> String {
    format!("there are more than {MAX_ENTRIES} entries; split the document")
}
