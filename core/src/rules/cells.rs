//! One cell of the matrices: whether what must, should, may or must not be there is there.

use super::Rule;
use super::shape::{Need, Times};
use crate::model::{Capability, Metadata};

pub(super) fn check_times(
    metadata: &Metadata,
    times: Times,
    subject: Subject<'_>,
    missing: Rule,
    broken: &mut impl FnMut(Rule, String),
) {
    let rules = Cell { missing, ..Cell::TIME };
    let mut cell = |need, present, name| check_cell(need, present, name, subject, rules, broken);
    cell(times.at, metadata.at.is_some(), "at");
    cell(times.completed, metadata.completed.is_some(), "completed");
    cell(times.from, metadata.from.is_some(), "from");
    cell(times.until, metadata.until.is_some(), "until");
}

/// What a cell is about, for the detail of a violation.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) document: &'a Capability,
    pub(super) what: &'static str,
}

/// Which rule is broken when a cell of the matrices is not heeded.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    pub(super) missing: Rule,
    pub(super) advised: Rule,
    pub(super) unforeseen: Rule,
    pub(super) forbidden: Rule,
}

impl Cell {
    pub(super) const TIME: Self = Self {
        missing: Rule::TimeMissing,
        advised: Rule::TimeAdvised,
        unforeseen: Rule::TimeUnforeseen,
        forbidden: Rule::TimeForbidden,
    };
    pub(super) const SHAPE: Self = Self {
        missing: Rule::ShapeMissing,
        advised: Rule::ShapeAdvised,
        unforeseen: Rule::ShapeUnforeseen,
        forbidden: Rule::ShapeForbidden,
    };
}

#[inline]
pub(super) fn check_cell(
    need: Need,
    present: bool,
    name: &str,
    subject: Subject<'_>,
    rules: Cell,
    broken: &mut impl FnMut(Rule, String),
) {
    let rule = match (need, present) {
        (Need::Must, false) => rules.missing,
        (Need::Advised, false) => rules.advised,
        (Need::Unforeseen, true) => rules.unforeseen,
        (Need::Forbidden, true) => rules.forbidden,
        _ => return,
    };
    broken(rule, detail(present, name, subject));
}

#[cold]
fn detail(present: bool, name: &str, Subject { document, what }: Subject<'_>) -> String {
    let verb = if present { "has" } else { "has no" };
    format!("the {what} of this {document} {verb} {name}")
}
