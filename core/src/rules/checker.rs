//! The check of one document in one pass: header first, then entry by entry.

use super::sequence::Sequence;
use super::shape::{Need, Shape, shape};
use super::{Place, Rule, Violations, entry, header, values};
use crate::document::{Capability, Entry, Header, RawDocument};
use crate::xml::{MAX_ENTRIES, Position};

/// Checks a whole document; places name entries, since there are no lines.
pub fn check(document: &RawDocument) -> Violations {
    let mut checker = Checker::new(&document.header);
    for entry in &document.entries {
        checker.entry(entry, None);
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
/// checker.entry(&Entry::new("capabilitylist.xml"), None);
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
        Self::at(header, None)
    }

    /// The same for a header that was read at a position.
    pub fn at(header: &Header, position: Option<Position>) -> Self {
        let capability = header.capability().cloned();
        let shape = capability.as_ref().and_then(|capability| shape(capability, header.root));
        let mut violations = Violations::default();
        let place = Place { position, entry: None };
        header::check(header, shape, &mut |rule, detail| violations.push(rule, place, detail));
        Self { capability, shape, sequence: Sequence::new(header, shape), count: 0, violations }
    }

    /// Checks the next entry.
    pub fn entry(&mut self, entry: &Entry, position: Option<Position>) {
        self.count += 1;
        let place = Place { position, entry: Some(self.count) };
        let Self { capability, shape, sequence, count, violations } = self;
        let errors = violations.error_count();
        let mut broken = |rule: Rule, detail: String| violations.push(rule, place, detail);
        if *count == MAX_ENTRIES + 1 {
            broken(Rule::TooLarge, format!("this is entry {count}; split the document"));
        }
        // A kind of document that we do not know may have manifests of its own.
        let path = shape.map_or(Need::May, |shape| shape.entry.path);
        values::check_entry(entry, path, &mut broken);
        if let (Some(shape), Some(document)) = (shape, capability) {
            entry::check(entry, document, shape, &mut broken);
        }
        sequence.entry(entry, &mut broken);
        let refused = violations.error_count() > errors;
        sequence.check_once(entry, refused, &mut |rule, detail| violations.push(rule, place, detail));
    }

    /// What was found so far.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }

    /// What was found since the last call.
    pub fn take_violations(&mut self) -> Violations {
        std::mem::take(&mut self.violations)
    }

    /// Ends the document and gives everything found.
    pub fn finish(self) -> Violations {
        self.violations
    }
}
