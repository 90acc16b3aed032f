//! What stands in an entry: fields, `rs:md`, links, and whatever else has to be passed over; and whether the entry can be
//! understood at all (RS-050).

use std::io::BufRead;

use super::Reader;
use crate::document::{Entry, Link};
use crate::rules::Rule;
use crate::xml::dialect::Child;
use crate::xml::field::Field;
use crate::xml::step::Step;
use crate::xml::tokens::Tokens;
use crate::xml::{Limit, MAX_LINKS, MAX_TEXT, Position, ReadError};

impl<R: BufRead> Reader<R> {
    /// Reads the content of an entry into an empty one.
    pub(super) fn read_entry(&mut self, position: Position, entry: &mut Entry) -> Result<(), ReadError> {
        self.position = position;
        self.is_refused = false;
        self.tokens.forget_growth();
        let mut seen = Seen::default();
        loop {
            self.text.clear();
            match self.step()? {
                Step::Close | Step::End => break,
                Step::Text => self.stray_text(),
                Step::Field(field) => self.read_field(field, entry, &mut seen)?,
                Step::Metadata => {
                    seen.extension = true;
                    self.translator.see_current_entry();
                    if entry.metadata.is_some() {
                        self.report(Rule::Repeated, "there is a second rs:md, so the entry is left out");
                    } else {
                        entry.metadata = Some(std::mem::take(&mut self.metadata));
                    }
                }
                Step::Link(link) => {
                    seen.extension = true;
                    self.translator.see_current_entry();
                    if let Some(link) = link {
                        push_link(&mut self.tokens, &mut entry.links, *link)?;
                    }
                }
                Step::Entry(root) => {
                    self.report_unknown(&format!("a {} stands inside an entry", root.entry_element()));
                }
                Step::Old(child) => self.read_old(*child, entry)?,
                Step::Other => seen.extension = true,
            }
            self.skip_to(2)?;
        }
        Ok(())
    }

    fn read_field(&mut self, field: Field, entry: &mut Entry, seen: &mut Seen) -> Result<(), ReadError> {
        let field_type = self.translator.take_field_type();
        if seen.extension || seen.is_after(field) {
            self.report(Rule::ChildOrder, format!("{} comes too late", field.name()));
        }
        self.tokens.remember();
        self.read_text(field.name(), (field == Field::Loc).then_some(&mut *entry))?;
        if !seen.insert(field) {
            let position = self.tokens.remembered();
            let detail = format!("there is a second {}, so the entry is left out", field.name());
            self.report_at(Rule::Repeated, position, detail);
            return Ok(());
        }
        let text = self.text.trim_ascii();
        let unread = match field {
            Field::Loc => {
                text.clone_into(&mut entry.loc);
                None
            }
            Field::Lastmod => understood(text, &mut entry.lastmod).map(|cause| (Rule::Datetime, cause)),
            Field::ChangeFrequency => {
                understood(text, &mut entry.changefreq).map(|cause| (Rule::ChangeFrequency, cause))
            }
            Field::Priority => {
                understood(text, &mut entry.priority).map(|cause| (Rule::EntryPriority, cause))
            }
        };
        if let Some((rule, cause)) = unread {
            let detail = format!("{} is {:?}: {cause}", field.name(), self.text.trim_ascii());
            let position = self.tokens.remembered();
            self.report_at(rule, position, detail);
        }
        if let Some(field_type) = field_type {
            let position = self.tokens.remembered();
            let mut found = Vec::new();
            let mut report = |rule, detail| found.push((rule, detail));
            self.translator.field(field, &field_type, entry, &mut report);
            self.report_all(found, position);
        }
        Ok(())
    }

    fn read_old(&mut self, child: Child, entry: &mut Entry) -> Result<(), ReadError> {
        let position = self.tokens.position();
        self.read_text("it", Some(entry))?;
        let mut found = Vec::new();
        let mut report = |rule, detail| found.push((rule, detail));
        let taken = self.translator.entry_child(child, self.text.trim_ascii(), &mut report);
        self.report_all(found, position);
        taken.map_err(|limit| self.tokens.limit(limit))
    }

    /// Reads the text of the element whose start tag was just read.
    ///
    /// A link inside `loc` goes to the entry, since the notification specifications call it a child of `loc` (FN-061).
    fn read_text(&mut self, name: &str, mut entry: Option<&mut Entry>) -> Result<(), ReadError> {
        let depth = self.tokens.depth();
        self.text.clear();
        self.tokens.keep_whitespace(true);
        loop {
            match self.step()? {
                Step::Text if self.text.len() > MAX_TEXT => return Err(self.tokens.limit(Limit::Text)),
                Step::Text => continue,
                Step::Close | Step::End => break,
                Step::Link(Some(link)) if entry.is_some() => {
                    self.report(Rule::HubInLoc, format!("the {} link is inside {name}", link.rel));
                    if let Some(entry) = &mut entry {
                        push_link(&mut self.tokens, &mut entry.links, *link)?;
                    }
                }
                _ => self.report_unknown(&format!("an element stands inside {name}")),
            }
            self.skip_to(depth)?;
        }
        self.tokens.keep_whitespace(false);
        Ok(())
    }

    fn report_all(&mut self, found: Vec<(Rule, String)>, position: Position) {
        for (rule, detail) in found {
            self.report_at(rule, position, detail);
        }
    }
}

/// Whether an entry that breaks this rule cannot be understood (RS-050).
pub(super) fn is_fatal(rule: Rule) -> bool {
    matches!(rule, Rule::Repeated | Rule::ChangeValue | Rule::Length | Rule::Priority | Rule::LinkIncomplete)
}

/// Adds a link within the limit.
pub(super) fn push_link<R: BufRead>(
    tokens: &mut Tokens<R>,
    links: &mut Vec<Link>,
    link: Link,
) -> Result<(), ReadError> {
    if links.len() == MAX_LINKS {
        return Err(tokens.limit(Limit::Links));
    }
    links.push(link);
    Ok(())
}

/// What an entry has had so far.
#[derive(Default)]
struct Seen {
    /// A bit for each field.
    fields: u8,
    /// `rs:md`, `rs:ln` or an element of others.
    extension: bool,
}

impl Seen {
    /// Whether a field was seen that should come after this one.
    fn is_after(&self, field: Field) -> bool {
        self.fields >> field as u8 > 1
    }

    /// Gives `false` when the field was seen before.
    fn insert(&mut self, field: Field) -> bool {
        let new = self.fields & 1 << field as u8 == 0;
        self.fields |= 1 << field as u8;
        new
    }
}

/// Puts a value where it belongs, or gives the reason why it is none.
fn understood<T: std::str::FromStr<Err: ToString>>(text: &str, target: &mut Option<T>) -> Option<String> {
    match text.parse() {
        Ok(value) => {
            *target = Some(value);
            None
        }
        Err(error) => Some(error.to_string()),
    }
}
