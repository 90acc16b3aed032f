//! What a check found, in the form that scripts read.

use resync_common::words::Size;
use resync_core::{
    document::Root,
    lint::{Checked, Report, Stopped},
    rules::{Rule, Severity, Violation},
};
use serde::Serialize;

use super::Options;

/// Everything that a check found. As JSON its fields are stable: later versions add to them only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Whether the check is complete and there is no error.
    pub conforming: bool,
    /// How many rules are broken, counted each time, and versions damaged.
    pub errors: usize,
    /// How often advice is not followed.
    pub warnings: usize,
    /// The files of kept versions whose bytes are not those that their names tell (MEM-010).
    pub versions_damaged: Vec<String>,
    /// How many links were not followed because there were too many documents.
    pub links_not_followed: usize,
    /// How many packages were not examined.
    pub packages_not_examined: usize,
    /// The rules that were not checked everywhere, because something was not examined, such as `RS-055 DocumentUnlisted`.
    pub rules_not_judged: Vec<String>,
    /// Why the check is not complete.
    pub ended_early: Option<String>,
    /// How many documents nothing links to.
    pub unreached: usize,
    /// The URLs that were to be checked and have no document; their Source Descriptions were checked instead.
    pub pages: Vec<Page>,
    /// Every document, in the order of the check.
    pub documents: Vec<DocumentFindings>,
}

/// A URL without a document, such as the base URL of a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Page {
    /// The URL.
    pub url: String,
    /// The URL of the Source Description that was checked instead.
    pub source_description: String,
}

/// What was found in one document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DocumentFindings {
    /// Its URL, or the path of a file that was checked alone.
    pub url: String,
    /// The document that linked to it first.
    pub linked_from: Option<String>,
    /// Whether something links to it, or the check started from it.
    pub reached: bool,
    /// What it is, such as `Resource List Index`, if that could be read.
    pub kind: Option<String>,
    /// Its capability; none of a plain Sitemap.
    pub capability: Option<String>,
    /// Whether it is an index.
    pub index: bool,
    /// How many rules it breaks, counted each time.
    pub errors: usize,
    /// How often it does not follow advice.
    pub warnings: usize,
    /// How many of these are not among the violations, since there are too many.
    pub violations_omitted: usize,
    /// What is wrong with it.
    pub violations: Vec<Finding>,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `error` or `warning`.
    pub severity: &'static str,
    /// The number of the requirement, such as `RS-060`.
    pub code: &'static str,
    /// The name of the rule, unique where the code is not.
    pub rule: &'static str,
    /// Where the rule comes from: specification and section.
    pub section: &'static str,
    /// The line, counted from 1.
    pub line: Option<u64>,
    /// The column, counted from 1.
    pub column: Option<u64>,
    /// The number of the entry, counted from 1; none for the header.
    pub entry: Option<usize>,
    /// What the rule asks.
    pub sentence: &'static str,
    /// What was found.
    pub detail: String,
}

impl Findings {
    pub(super) fn new(report: Report, pages: Vec<Page>, damaged: Vec<String>, limits: &Options) -> Self {
        let ended_early = reason(&report, limits);
        Self {
            conforming: report.is_conforming() && damaged.is_empty() && ended_early.is_none(),
            errors: report.errors() + damaged.len(),
            warnings: report.warnings(),
            versions_damaged: damaged,
            links_not_followed: report.omitted,
            packages_not_examined: report.packages_skipped,
            rules_not_judged: report.unjudged().iter().map(ToString::to_string).collect(),
            ended_early,
            unreached: report.documents.iter().filter(|document| document.is_unreached).count(),
            pages,
            documents: report.documents.into_iter().map(DocumentFindings::new).collect(),
        }
    }

    /// Whether nothing could be fetched that was to be checked, so that no rule was.
    pub fn is_unread(&self) -> bool {
        let is_unreachable = |finding: &Finding| finding.rule == Rule::Unreachable.name();
        let is_unread = |document: &DocumentFindings| {
            document.kind.is_none() && document.violations.iter().all(is_unreachable)
        };
        self.errors > 0 && self.documents.iter().all(is_unread)
    }
}

/// Why a check is not complete. It is complete without packages if none may be fetched.
fn reason(report: &Report, limits: &Options) -> Option<String> {
    match &report.stopped {
        Some(stopped @ Stopped::Requests(_)) => Some(format!("{stopped}; allow more with --max-requests")),
        Some(stopped) => Some(stopped.to_string()),
        None if report.omitted > 0 => Some(format!(
            "links lead to more than {} documents; allow more with --max-documents",
            limits.documents
        )),
        None if report.packages_skipped > 0 && limits.packages > 0 => Some(format!(
            "the packages are longer than {}; allow more with --packages, or none with --packages 0B",
            Size(limits.packages)
        )),
        None => None,
    }
}

impl DocumentFindings {
    fn new(checked: Checked) -> Self {
        let Checked { url, linked_from, kind, is_unreached, violations } = checked;
        Self {
            url,
            linked_from,
            reached: !is_unreached,
            capability: kind.as_ref().and_then(|kind| kind.capability.as_ref()).map(ToString::to_string),
            index: kind.as_ref().is_some_and(|kind| kind.root == Root::SitemapIndex),
            kind: kind.map(|kind| kind.to_string()),
            errors: violations.error_count(),
            warnings: violations.warning_count(),
            violations_omitted: violations.omitted(),
            violations: violations.iter().map(Finding::new).collect(),
        }
    }
}

impl Finding {
    fn new(violation: &Violation) -> Self {
        let Violation { rule, place, detail } = violation;
        let severity = match rule.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        Self {
            severity,
            code: rule.code(),
            rule: rule.name(),
            section: rule.section(),
            line: place.position.map(|position| position.line),
            column: place.position.map(|position| position.column),
            entry: place.entry,
            sentence: rule.sentence(),
            detail: detail.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_ended_a_check_is_told_in_the_units_of_its_flag() {
        let mut report = Report::default();
        report.packages_skipped = 1;
        let why = reason(&report, &Options::default()).unwrap();
        assert!(why.starts_with("the packages are longer than 1.0 GiB; "), "{why}");
    }
}
