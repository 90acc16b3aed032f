//! The findings of a check as text: document by document, then a verdict in one line.

use std::fmt;

use resync_publisher::check::{DocumentFindings, Finding, Findings};

use super::text::{count, escaped};

/// Findings as text. Documents in which nothing was found are only counted.
///
/// ```text
/// https://example.org/resourcelist.xml (Resource List)
///   3:5, entry 2: error RS-060 TimeForbidden: the document or entry has no time that its kind must not have: at is given [C App A]
/// 3 documents: not conforming, 1 error, 0 warnings
/// ```
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    findings: &'a Findings,
    is_coloured: bool,
}

#[derive(Clone, Copy)]
enum Colour {
    Strong = 1,
    Faint = 2,
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

impl<'a> Text<'a> {
    pub(super) fn new(findings: &'a Findings, is_coloured: bool) -> Self {
        Self { findings, is_coloured }
    }

    fn paint(self, colour: Colour, text: &str) -> String {
        if self.is_coloured { format!("\x1b[{}m{text}\x1b[0m", colour as u8) } else { text.to_owned() }
    }

    fn document(self, document: &DocumentFindings, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.paint(Colour::Strong, &escaped(&document.url)))?;
        match (&document.kind, &document.linked_from) {
            (Some(kind), _) => writeln!(f, " ({})", escaped(kind))?,
            (None, Some(from)) => writeln!(f, " (linked from {})", escaped(from))?,
            (None, None) => writeln!(f)?,
        }
        for finding in &document.violations {
            writeln!(f, "  {}", self.finding(finding))?;
        }
        if document.violations_omitted > 0 {
            writeln!(f, "  and {} more", document.violations_omitted)?;
        }
        if !document.reached {
            let note = self.paint(Colour::Cyan, "note");
            writeln!(f, "  {note}: nothing links to this document; it was checked by itself")?;
        }
        Ok(())
    }

    fn finding(self, finding: &Finding) -> String {
        let colour = if finding.severity == "error" { Colour::Red } else { Colour::Yellow };
        let code = self.paint(colour, &format!("{} {} {}", finding.severity, finding.code, finding.rule));
        let section = self.paint(Colour::Faint, &format!("[{}]", finding.section));
        format!("{}{code}: {}: {} {section}", place(finding), finding.sentence, escaped(&finding.detail))
    }

    fn verdict(self) -> String {
        let Findings { errors, warnings, unreached, ended_early, documents, .. } = self.findings;
        let (links, packages) = (self.findings.links_not_followed, self.findings.packages_not_examined);
        let verdict = match (*errors, *warnings, ended_early) {
            (0, 0, None) => self.paint(Colour::Green, "conforming"),
            (0, warnings, None) => {
                format!(
                    "{}, with {}",
                    self.paint(Colour::Green, "conforming"),
                    count(warnings as u64, "warning")
                )
            }
            (errors, warnings, _) => {
                let verdict = if ended_early.is_none() && self.findings.is_unread() {
                    self.paint(Colour::Red, "nothing could be read")
                } else if errors > 0 {
                    self.paint(Colour::Red, "not conforming")
                } else {
                    self.paint(Colour::Yellow, "not completed")
                };
                format!("{verdict}, {}, {}", count(errors as u64, "error"), count(warnings as u64, "warning"))
            }
        };
        let unjudged = &self.findings.rules_not_judged;
        let notes = [
            (*unreached > 0).then(|| format!("nothing links to {}", count(*unreached as u64, "document"))),
            (links > 0).then(|| format!("{} not followed", count(links as u64, "link"))),
            (packages > 0).then(|| format!("{} not examined", count(packages as u64, "package"))),
            // The failure of the command says why.
            ended_early.is_some().then(|| "ended early".to_owned()),
            (!unjudged.is_empty()).then(|| {
                format!("{} not judged everywhere (--json names them)", count(unjudged.len() as u64, "rule"))
            }),
        ];
        let text: Vec<_> = std::iter::once(verdict).chain(notes.into_iter().flatten()).collect();
        format!("{}: {}", count(documents.len() as u64, "document"), text.join("; "))
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for document in &self.findings.documents {
            if document.errors + document.warnings > 0 || !document.reached {
                self.document(document, f)?;
            }
        }
        for path in &self.findings.versions_damaged {
            let error = self.paint(Colour::Red, "error MEM-010");
            writeln!(
                f,
                "{}: {error}: the bytes of this version are not those that its name tells",
                escaped(path)
            )?;
        }
        f.write_str(&self.verdict())
    }
}

/// `3:5, entry 2: `, as far as it is known.
fn place(finding: &Finding) -> String {
    let position = finding.line.zip(finding.column).map(|(line, column)| format!("{line}:{column}"));
    let entry = finding.entry.map(|entry| format!("entry {entry}"));
    let parts: Vec<_> = position.into_iter().chain(entry).collect();
    if parts.is_empty() { String::new() } else { format!("{}: ", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(errors: usize, warnings: usize) -> Findings {
        Findings {
            conforming: errors == 0,
            errors,
            warnings,
            versions_damaged: Vec::new(),
            links_not_followed: 0,
            packages_not_examined: 0,
            rules_not_judged: Vec::new(),
            ended_early: None,
            unreached: 0,
            pages: Vec::new(),
            documents: vec![DocumentFindings {
                url: "http://h/".to_owned(),
                linked_from: None,
                reached: true,
                kind: Some("Resource List".to_owned()),
                capability: None,
                index: false,
                errors: 0,
                warnings: 0,
                violations_omitted: 0,
                violations: Vec::new(),
            }],
        }
    }

    #[test]
    fn a_stranger_s_text_stays_in_its_line_and_steers_no_terminal() {
        assert_eq!(escaped("a\x1b[2J\nb\u{e9}"), "a\\u{1b}[2J\\nb\u{e9}");
    }

    #[test]
    fn the_verdict_is_one_line_whatever_was_found() {
        let text = |findings: &Findings| Text::new(findings, false).to_string();
        assert_eq!(text(&findings(0, 0)), "1 document: conforming");
        assert_eq!(text(&findings(0, 1)), "1 document: conforming, with 1 warning");
        assert_eq!(text(&findings(1, 0)), "1 document: not conforming, 1 error, 0 warnings");
        let mut unread = findings(1, 0);
        unread.documents[0].kind = None;
        assert_eq!(text(&unread), "1 document: nothing could be read, 1 error, 0 warnings");
        let early = Findings {
            links_not_followed: 2,
            packages_not_examined: 1,
            rules_not_judged: vec!["RS-055 DocumentUnlisted".to_owned()],
            unreached: 1,
            ended_early: Some("time is up".to_owned()),
            ..findings(0, 0)
        };
        assert_eq!(
            text(&early),
            "1 document: not completed, 0 errors, 0 warnings; nothing links to 1 document; 2 links not followed; \
             1 package not examined; ended early; 1 rule not judged everywhere (--json names them)"
        );
        assert_eq!(Text::new(&findings(0, 0), true).to_string(), "1 document: \x1b[32mconforming\x1b[0m");
    }
}
