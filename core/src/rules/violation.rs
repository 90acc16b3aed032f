//! A broken rule, where, and in what way.

use std::fmt;

use super::{MAX_VIOLATIONS, Rule, Severity};
use crate::model::Position;

/// Most characters of a detail.
const MAX_DETAIL: usize = 600;

/// Where a rule is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Line and column, when the document was read from bytes.
    pub position: Option<Position>,
    /// The number of the entry, counted from 1; `None` for the header.
    pub entry: Option<usize>,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// Where.
    pub place: Place,
    /// What was found.
    pub detail: String,
}

impl fmt::Display for Violation {
    /// `RS-060 TimeForbidden at line 3, column 5, entry 2: <what the rule asks>: <what was found>`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rule)?;
        let mut lead = " at ";
        if let Some(position) = self.place.position {
            write!(f, "{lead}{position}")?;
            lead = ", ";
        }
        if let Some(entry) = self.place.entry {
            write!(f, "{lead}entry {entry}")?;
        }
        write!(f, ": {}: {}", self.rule.sentence(), self.detail)
    }
}

/// Every rule a document breaks, in document order; at most [`MAX_VIOLATIONS`] are kept, the first error among them, and all
/// are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    kept: Vec<Violation>,
    omitted: usize,
    errors: usize,
}

impl Violations {
    /// Those kept, in document order.
    pub fn iter(&self) -> std::slice::Iter<'_, Violation> {
        self.kept.iter()
    }

    /// Those kept that make the document non-conforming.
    pub fn errors(&self) -> impl Iterator<Item = &Violation> {
        self.of(Severity::Error)
    }

    /// Those kept that a Destination can live with.
    pub fn warnings(&self) -> impl Iterator<Item = &Violation> {
        self.of(Severity::Warning)
    }

    /// Whether no rule of severity [`Severity::Error`] is broken.
    pub fn is_conforming(&self) -> bool {
        self.errors == 0
    }

    /// Whether nothing at all was found.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many were found, kept or not.
    pub fn len(&self) -> usize {
        self.kept.len() + self.omitted
    }

    /// How many were found beyond those kept.
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    /// How many were found that make the document non-conforming, kept or not.
    pub fn error_count(&self) -> usize {
        self.errors
    }

    /// How many were found that a Destination can live with, kept or not.
    pub fn warning_count(&self) -> usize {
        self.len() - self.errors
    }

    /// Forgets all but the first ones and the first error; what is forgotten still counts.
    pub(crate) fn keep_at_most(&mut self, most: usize) {
        let is_error = |violation: &Violation| violation.rule.severity() == Severity::Error;
        if let Some(first) = self.kept.iter().position(is_error)
            && most > 0
            && first >= most
        {
            self.kept.swap(most - 1, first);
        }
        self.omitted += self.kept.len().saturating_sub(most);
        self.kept.truncate(most);
    }

    fn of(&self, severity: Severity) -> impl Iterator<Item = &Violation> {
        self.kept.iter().filter(move |violation| violation.rule.severity() == severity)
    }

    pub(crate) fn push(&mut self, rule: Rule, place: Place, detail: impl Into<String>) {
        let is_error = rule.severity() == Severity::Error;
        if self.kept.len() < MAX_VIOLATIONS || is_error && self.errors == 0 {
            self.kept.push(Violation { rule, place, detail: shortened(detail.into()) });
            self.keep_at_most(MAX_VIOLATIONS);
        } else {
            self.omitted += 1;
        }
        self.errors += usize::from(is_error);
    }

    /// Takes over what another pass over the same document found.
    pub(crate) fn append(&mut self, other: Self) {
        self.errors += other.errors;
        self.omitted += other.omitted;
        self.kept.extend(other.kept);
        self.in_order();
        self.keep_at_most(MAX_VIOLATIONS);
    }

    /// Puts those kept into document order.
    pub(crate) fn in_order(&mut self) {
        // The header comes before entry 1, and within an entry what was found first stays first.
        self.kept.sort_by_key(|violation| violation.place.entry);
    }
}

/// A detail quotes text from outside, and fifty thousand of them are kept of one site.
fn shortened(mut detail: String) -> String {
    if let Some((end, _)) = detail.char_indices().nth(MAX_DETAIL) {
        detail.truncate(end);
        detail.push('…');
    }
    detail
}

impl<'a> IntoIterator for &'a Violations {
    type Item = &'a Violation;
    type IntoIter = std::slice::Iter<'a, Violation>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Violations {
    /// One line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for violation in self {
            write!(f, "{gap}{violation}")?;
            gap = "\n";
        }
        if self.omitted > 0 {
            write!(f, "{gap}and {} more", self.omitted)?;
        }
        Ok(())
    }
}

impl std::error::Error for Violations {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_says_code_place_sentence_and_detail() {
        let place = Place { position: Some(Position { line: 3, column: 5 }), entry: Some(2) };
        let violation = Violation { rule: Rule::TimeForbidden, place, detail: "at is given".to_owned() };
        let text = violation.to_string();
        assert!(text.starts_with("RS-060 TimeForbidden at line 3, column 5, entry 2: "), "{text}");
        assert!(text.ends_with(": at is given"), "{text}");
        let nowhere = Violation { place: Place::default(), ..violation };
        assert!(nowhere.to_string().starts_with("RS-060 TimeForbidden: "));
    }

    #[test]
    fn a_detail_is_cut_between_two_characters() {
        let mut violations = Violations::default();
        violations.push(Rule::Loc, Place::default(), "\u{e9}".repeat(MAX_DETAIL));
        violations.push(Rule::Loc, Place::default(), "\u{e9}".repeat(9 * MAX_DETAIL));
        let lengths = violations.iter().map(|violation| violation.detail.chars().count());
        assert_eq!(lengths.collect::<Vec<_>>(), [MAX_DETAIL, MAX_DETAIL + 1]);
    }

    #[test]
    fn only_a_bounded_number_is_kept_but_every_error_counts() {
        let mut violations = Violations::default();
        for _ in 0..MAX_VIOLATIONS {
            violations.push(Rule::HashUnknown, Place::default(), "");
        }
        assert!(violations.is_conforming());
        violations.push(Rule::Loc, Place::default(), "");
        assert!(!violations.is_conforming());
        assert_eq!((violations.len(), violations.omitted()), (MAX_VIOLATIONS + 1, 1));
        assert_eq!(violations.errors().count(), 1, "the first error is kept");
        assert!(violations.to_string().ends_with("and 1 more"));
    }
}
