//! What a check found, for people and for scripts.

use std::fmt;

use resync_core::{
    document::Root,
    lint::{Checked, Report},
    rules::{Severity, Violation},
};
use serde::Serialize;

/// Everything that a check found. As JSON its fields are stable: later versions add to them only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Whether there is no error.
    pub conforming: bool,
    /// How many rules are broken, counted each time.
    pub errors: usize,
    /// How often advice is not followed.
    pub warnings: usize,
    /// How many links were not followed because there were too many documents.
    pub links_not_followed: usize,
    /// Every document that was come to, in this order.
    pub documents: Vec<DocumentFindings>,
}

/// What was found in one document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DocumentFindings {
    /// Its URL, or the path of a file that was looked at alone.
    pub url: String,
    /// The document that led to it first.
    pub linked_from: Option<String>,
    /// What it is, such as `Resource List Index`, where that could be read.
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
    #[serde(skip)]
    place: String,
}

impl Findings {
    pub(super) fn new(report: Report) -> Self {
        Self {
            conforming: report.is_conforming(),
            errors: report.errors(),
            warnings: report.warnings(),
            links_not_followed: report.omitted,
            documents: report.documents.into_iter().map(DocumentFindings::new).collect(),
        }
    }

    fn verdict(&self) -> String {
        let documents = count(self.documents.len(), "document");
        let warnings = count(self.warnings, "warning");
        let links = match self.links_not_followed {
            0 => String::new(),
            links => format!("; too many documents, {} not followed", count(links, "link")),
        };
        match self.errors {
            0 if self.warnings == 0 => format!("{documents}: conforming{links}"),
            0 => format!("{documents}: conforming, with {warnings}{links}"),
            errors => format!("{documents}: not conforming, {}, {warnings}{links}", count(errors, "error")),
        }
    }
}

impl DocumentFindings {
    fn new(checked: Checked) -> Self {
        let Checked { url, linked_from, kind, violations } = checked;
        Self {
            url,
            linked_from,
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
        let parts =
            [place.position.map(|at| at.to_string()), place.entry.map(|entry| format!("entry {entry}"))];
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
            place: parts.into_iter().flatten().collect::<Vec<_>>().join(", "),
        }
    }
}

impl fmt::Display for Findings {
    /// Each document in which something was found with a line for each violation, then the verdict in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for document in &self.documents {
            if document.errors + document.warnings > 0 {
                writeln!(f, "{document}")?;
            }
        }
        f.write_str(&self.verdict())
    }
}

impl fmt::Display for DocumentFindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&harmless(&self.url))?;
        match (&self.kind, &self.linked_from) {
            (Some(kind), _) => write!(f, " ({})", harmless(kind))?,
            (None, Some(from)) => write!(f, " (linked from {})", harmless(from))?,
            (None, None) => {}
        }
        for finding in &self.violations {
            write!(f, "\n  {finding}")?;
        }
        if self.violations_omitted > 0 {
            write!(f, "\n  and {} more", self.violations_omitted)?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.severity, self.code)?;
        if !self.place.is_empty() {
            write!(f, " at {}", self.place)?;
        }
        write!(f, ": {}: {}", self.sentence, harmless(&self.detail))
    }
}

/// A stranger's text in one line, without characters that could steer a terminal.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() }).collect()
}

fn count(number: usize, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_s_text_stays_in_its_line_and_steers_no_terminal() {
        assert_eq!(harmless("a\x1b[2J\nb\u{e9}"), "a\\u{1b}[2J\\nb\u{e9}");
    }

    #[test]
    fn the_verdict_is_one_line_whatever_was_found() {
        let findings = |errors, warnings, links_not_followed| Findings {
            conforming: errors == 0,
            errors,
            warnings,
            links_not_followed,
            documents: Vec::new(),
        };
        assert_eq!(findings(0, 0, 0).to_string(), "0 documents: conforming");
        assert_eq!(findings(0, 1, 0).to_string(), "0 documents: conforming, with 1 warning");
        assert_eq!(findings(1, 0, 0).to_string(), "0 documents: not conforming, 1 error, 0 warnings");
        assert!(findings(0, 0, 2).to_string().ends_with("too many documents, 2 links not followed"));
    }
}
