//! Documents from XML, entry by entry: tolerant as RS-050 asks, with a violation for whatever had to be tolerated.

use std::io::BufRead;

mod checks;
mod entry;

use super::dialect::{Child, Dialect, Translator};
use super::namespaces::Namespace;
use super::step::{Step, open};
use super::tokens::{Token, Tokens};
use super::{Limit, Options, Position, ReadError};
use crate::document::{Entry, Header, Metadata, Root};
use crate::rules::{Place, Rule, Violations};
use checks::Checks;
use entry::push_link;

/// A document that is read entry by entry, in memory that does not grow with its length; it may be gzip.
///
/// In [`Mode::Lenient`](super::Mode::Lenient) it reports only what cannot be seen in the entries it yields; in the other modes it
/// checks all of the document. Entries come in the order of the document, also where an older [`Dialect`] had the newest
/// first, and the header of such a document gets what only its entries show after the last one; [`read`](super::read)
/// puts everything in order.
///
/// ```no_run
/// use std::fs::File;
/// use std::io::BufReader;
/// use resync_core::xml::Reader;
///
/// let reader = Reader::new(BufReader::new(File::open("resourcelist.xml.gz")?))?;
/// for entry in reader {
///     println!("{}", entry?.loc);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reader<R: BufRead> {
    tokens: Tokens<R>,
    max_entries: usize,
    /// Text of the child of an entry that is being read, or between elements.
    text: String,
    /// The root element that was found; a dialect may call for another in the header.
    root: Root,
    header: Header,
    header_position: Position,
    translator: Translator,
    /// The first entry, where it was needed to know the dialect.
    first: Option<Result<Entry, ReadError>>,
    /// Where the entry stands whose start tag was read but not its content.
    begun: Option<Position>,
    position: Position,
    /// How many entries were begun.
    count: usize,
    /// How many entries were left out since they cannot be understood.
    refused: usize,
    /// Whether this entry is one of them.
    is_refused: bool,
    done: bool,
    is_concluded: bool,
    /// The `rs:md` that was read last.
    metadata: Metadata,
    violations: Violations,
    checks: Checks,
}

impl<R: BufRead> Reader<R> {
    /// Reads up to the first entry, within the limits of the crate, leniently.
    pub fn new(input: R) -> Result<Self, ReadError> {
        Self::with_options(input, Options::default())
    }

    /// Reads up to the first entry, in another mode or within other limits.
    pub fn with_options(input: R, options: Options) -> Result<Self, ReadError> {
        let mut tokens = Tokens::new(input, options)?;
        let mut translator = Translator::new();
        let root = root(&mut tokens, &mut translator)?;
        let position = tokens.position();
        let mut reader = Self {
            tokens,
            max_entries: options.limits.entries,
            text: String::new(),
            root,
            header: Header { root, metadata: Metadata::default(), links: Vec::new() },
            header_position: position,
            translator,
            first: None,
            begun: None,
            position,
            count: 0,
            refused: 0,
            is_refused: false,
            done: false,
            is_concluded: false,
            metadata: Metadata::default(),
            violations: Violations::default(),
            checks: Checks::new(options.mode),
        };
        reader.read_header()?;
        reader.find_dialect();
        reader.check_header_first()?;
        Ok(reader)
    }

    /// What stands before the first entry.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Where the root's `rs:md` stands, or the root element where there is none.
    pub fn header_position(&self) -> Position {
        self.header_position
    }

    /// Where the last entry starts that was yielded.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The number of the last entry that was yielded, counted from 1 among all that the document has.
    pub fn number(&self) -> usize {
        self.count
    }

    /// The form that the document is written in, as far as it was read: the first entry may show
    /// [`Dialect::V1_0`], and any entry that what looked like a Sitemap is the alpha draft's.
    pub fn dialect(&self) -> Dialect {
        self.translator.dialect()
    }

    /// What the reader itself had to tolerate since the last call.
    pub fn take_violations(&mut self) -> Violations {
        std::mem::take(&mut self.violations)
    }

    /// How many entries were left out so far because they cannot be understood (RS-050): they have two `loc`, `lastmod` or
    /// `rs:md`, an unknown `change`, a `length` or `pri` that is no such number, or a `rs:ln` without `rel` or `href`.
    ///
    /// Nobody knows what they were about. So whoever deletes what a Resource List does not name must not do so when there are any.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// What is left when every entry was read.
    pub(super) fn into_parts(self) -> (Header, Dialect, Violations) {
        (self.header, self.translator.dialect(), self.violations)
    }

    fn read_header(&mut self) -> Result<(), ReadError> {
        let mut has_metadata = false;
        while self.begun.is_none() && !self.done {
            match self.root_child()? {
                Some(Step::Metadata) if has_metadata => {
                    return Err(ReadError::DuplicateMetadata { position: self.tokens.position() });
                }
                Some(Step::Metadata) => {
                    has_metadata = true;
                    self.translator.see_current_header();
                    self.header_position = self.tokens.position();
                    self.header.metadata = std::mem::take(&mut self.metadata);
                }
                Some(Step::Link(Some(link))) => {
                    self.translator.see_current_header();
                    push_link(&mut self.tokens, &mut self.header.links, *link)?;
                }
                Some(Step::Old(child)) => self.read_old_head(*child)?,
                _ => {}
            }
            self.close_child()?;
        }
        Ok(())
    }

    fn read_old_head(&mut self, child: Child) -> Result<(), ReadError> {
        let place = Place { position: Some(self.tokens.position()), entry: None };
        let mut report = |rule, detail| self.violations.push(rule, place, detail);
        self.translator.header_child(child, &mut report).map_err(|limit| self.tokens.limit(limit))
    }

    /// Finds out which form the document is written in, by its first entry where the root does not say.
    fn find_dialect(&mut self) {
        if !self.translator.header(&mut self.header) {
            return;
        }
        let mut entry = Entry::new("");
        let first = self.begun.take().map(|position| self.read_entry(position, &mut entry));
        if self.translator.first_entry(&mut self.header) {
            self.report_dialect();
        }
        self.first = match first {
            None => None,
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(())) => self.finish_entry(&mut entry).then_some(Ok(entry)),
        };
    }

    /// Reports once which older form the document has.
    fn report_dialect(&mut self) {
        let place = Place { position: Some(self.header_position), entry: None };
        self.violations.push(Rule::Dialect, place, format!("it is read as {}", self.dialect()));
    }

    /// Reads on until an entry begins or the document ends.
    fn find_entry(&mut self) -> Result<(), ReadError> {
        while self.begun.is_none() && !self.done {
            if let Some(Step::Metadata | Step::Link(Some(_))) = self.root_child()? {
                self.report(Rule::HeaderLate, "it is left out");
            }
            self.tokens.forget_growth();
            self.close_child()?;
        }
        Ok(())
    }

    /// One step among the children of the root; an entry that begins is noted in `begun`, the end in `done`.
    fn root_child(&mut self) -> Result<Option<Step>, ReadError> {
        self.text.clear();
        let step = self.step()?;
        match &step {
            Step::Entry(root) => self.begin_entry(*root)?,
            Step::Field(_) => self.report_unknown("a child of an entry stands outside of one"),
            Step::Close => self.finish()?,
            Step::End => self.done = true,
            Step::Text => self.stray_text(),
            Step::Metadata | Step::Link(_) | Step::Old(_) | Step::Other => return Ok(Some(step)),
        }
        Ok(None)
    }

    fn begin_entry(&mut self, found: Root) -> Result<(), ReadError> {
        if self.count == self.max_entries {
            return Err(self.tokens.limit(Limit::Entries));
        }
        self.count += 1;
        self.begun = Some(self.tokens.position());
        if found != self.root {
            let (child, root) = (found.entry_element(), self.root.element());
            self.report(Rule::EntryElement, format!("there is a {child} in this {root}"));
        }
        Ok(())
    }

    /// Passes over the content of a child of the root that is no entry.
    fn close_child(&mut self) -> Result<(), ReadError> {
        if self.begun.is_none() && !self.done { self.skip_to(1) } else { Ok(()) }
    }

    /// The root is closed: only comments may follow.
    fn finish(&mut self) -> Result<(), ReadError> {
        while !matches!(self.step()?, Step::End) {}
        self.done = true;
        if self.dialect() == Dialect::Sitemap {
            self.report_dialect();
        }
        Ok(())
    }

    /// Makes the entry one of 1.1; gives `false` when a list of 1.1 would not have it, or nobody can understand it.
    fn finish_entry(&mut self, entry: &mut Entry) -> bool {
        let translated = self.translator.entry(&mut self.header, entry, self.count == 1);
        if translated.is_recognised {
            self.report_dialect();
            self.checks.change_header(&self.header);
        }
        if translated.is_gone {
            self.report_unknown("a resource that is gone is left out of the Resource List");
            return false;
        }
        if self.is_refused {
            self.refused += 1;
            return false;
        }
        self.translator.keep(entry);
        true
    }

    /// Passes over everything that is nested deeper.
    fn skip_to(&mut self, depth: usize) -> Result<(), ReadError> {
        while self.tokens.depth() > depth {
            match self.tokens.next()? {
                Token::Open => self.tokens.attributes(|_| {})?,
                Token::Text | Token::Close | Token::Aside | Token::End => {}
            }
        }
        Ok(())
    }

    /// Reads what comes next; text is added to what there is.
    fn step(&mut self) -> Result<Step, ReadError> {
        loop {
            match self.tokens.next()? {
                Token::Aside => {}
                Token::Close => return Ok(Step::Close),
                Token::End => return Ok(Step::End),
                Token::Text => {
                    self.text.push_str(self.tokens.text());
                    return Ok(Step::Text);
                }
                Token::Open => {
                    let mut found = Vec::new();
                    let step = open(&mut self.tokens, &mut self.metadata, &mut self.translator, &mut found)?;
                    if self.tokens.namespace() == Namespace::DLib || !found.is_empty() {
                        self.report_tag(found);
                    }
                    return Ok(step);
                }
            }
        }
    }

    #[cold]
    fn report_tag(&mut self, mut found: Vec<(Rule, String)>) {
        if self.translator.tag(self.tokens.namespace(), self.count == 0, &mut found) {
            self.report_dialect();
        }
        for (rule, detail) in found {
            self.report(rule, detail);
        }
    }

    fn stray_text(&mut self) {
        if !self.text.trim_ascii().is_empty() {
            self.report_unknown("text stands between elements");
        }
    }

    fn report_unknown(&mut self, detail: &str) {
        self.report(Rule::ElementUnknown, detail);
    }

    fn report(&mut self, rule: Rule, detail: impl Into<String>) {
        let position = self.tokens.position();
        self.report_at(rule, position, detail);
    }

    fn report_at(&mut self, rule: Rule, position: Position, detail: impl Into<String>) {
        self.is_refused |= entry::is_fatal(rule);
        let entry = Some(self.count).filter(|&count| count > 0);
        self.violations.push(rule, Place { position: Some(position), entry }, detail);
    }

    /// Reads the next entry into an empty one; gives `false` at the end.
    fn read_next(&mut self, entry: &mut Entry) -> Result<bool, ReadError> {
        if let Some(first) = self.first.take() {
            *entry = first?;
            return self.check_entry(entry).map(|()| true);
        }
        loop {
            if self.begun.is_none() {
                self.find_entry()?;
            }
            let Some(position) = self.begun.take() else { return self.conclude().map(|()| false) };
            self.read_entry(position, entry)?;
            if self.finish_entry(entry) {
                return self.check_entry(entry).map(|()| true);
            }
            self.refuse_if_strict()?;
            *entry = Entry::new("");
        }
    }

    /// What holds once everything was read, or as much as can be: the header is whole.
    fn conclude(&mut self) -> Result<(), ReadError> {
        if std::mem::replace(&mut self.is_concluded, true) {
            return Ok(());
        }
        self.translator.conclude(&mut self.header);
        self.check_end()
    }

    fn end(&mut self, error: ReadError) -> ReadError {
        self.done = true;
        self.begun = None;
        // The first error is the one to report.
        let _ = self.conclude();
        error
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Entry, ReadError>;

    /// The next entry; after an error nothing more comes.
    fn next(&mut self) -> Option<Self::Item> {
        let mut entry = Entry::new("");
        match self.read_next(&mut entry) {
            Ok(true) => Some(Ok(entry)),
            Ok(false) => None,
            Err(error) => Some(Err(self.end(error))),
        }
    }
}

impl<R: BufRead> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("header", &self.header)
            .field("dialect", &self.dialect())
            .field("position", &self.position)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Reads up to the root's start tag.
fn root<R: BufRead>(tokens: &mut Tokens<R>, translator: &mut Translator) -> Result<Root, ReadError> {
    loop {
        if tokens.next()? != Token::Open {
            continue;
        }
        tokens.attributes(|attribute| translator.root_attribute(&attribute))?;
        return match tokens.name() {
            "urlset" => Ok(Root::UrlSet),
            "sitemapindex" => Ok(Root::SitemapIndex),
            other => {
                let (name, namespace) = (other.to_owned(), super::SITEMAP_NAMESPACE.to_owned());
                Err(ReadError::UnknownRoot { position: tokens.position(), name, namespace })
            }
        };
    }
}

#[cfg(test)]
mod tests;
