//! Documents from XML, entry by entry: tolerant as RS-050 asks, with a violation for whatever had to be tolerated.

use std::io::BufRead;

use super::dialect::{Dialect, alpha, dlib, older};
use super::namespaces::Space;
use super::step::{Field, Step, open};
use super::tokens::{Token, Tokens};
use super::{Limit, Limits, MAX_LINKS, MAX_TEXT, Mode, Options, Position, ReadError};
use crate::datetime::DateTime;
use crate::document::{Entry, Header, Link, Metadata, Root};
use crate::rules::{Checker, Place, Rule, Violations};

/// A document that is read entry by entry, in memory that does not grow with its length; it may be gzip.
///
/// The reader tells only what cannot be seen in the entries it yields; a [`Checker`] beside it tells the rest. Entries
/// come in the order of the document, also where an older [`Dialect`] had the newest first, and the header of such a
/// document lacks what only its last entry shows; [`read`](super::read) knows better.
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
    dialect: Dialect,
    /// When an older form says that the document was last modified.
    modified: Option<DateTime>,
    /// What the root said in the words of the alpha draft; `None` when it speaks those of a later form.
    head: Option<alpha::Head>,
    /// What the entry said in the words of the alpha draft.
    notes: alpha::Notes,
    /// The first entry, where it was needed to know the dialect.
    first: Option<Result<Entry, ReadError>>,
    /// Where the entry stands whose start tag was read but not its content.
    begun: Option<Position>,
    position: Position,
    /// How many entries were begun.
    count: usize,
    done: bool,
    /// The `rs:md` that was read last.
    metadata: Metadata,
    /// The attribute that the alpha draft gave to `loc` and `lastmod`, of the one that was begun last.
    mark: Option<String>,
    violations: Violations,
    /// In strict mode.
    checker: Option<Checker>,
}

/// What a reader knows but for the entries.
pub(super) struct Parts {
    pub(super) header: Header,
    pub(super) position: Position,
    pub(super) dialect: Dialect,
    /// When an older form says that the document was last modified.
    pub(super) modified: Option<DateTime>,
    pub(super) violations: Violations,
}

impl<R: BufRead> Reader<R> {
    /// Reads up to the first entry, within the limits of the crate, leniently.
    pub fn new(input: R) -> Result<Self, ReadError> {
        Self::with_options(input, Options::default())
    }

    /// The same within other limits.
    pub fn with_limits(input: R, limits: Limits) -> Result<Self, ReadError> {
        Self::with_options(input, Options { limits, ..Options::default() })
    }

    /// The same in another mode or within other limits.
    pub fn with_options(input: R, options: Options) -> Result<Self, ReadError> {
        let mut tokens = Tokens::new(input, options)?;
        let mut head = alpha::Head::default();
        let root = root(&mut tokens, &mut head)?;
        let position = tokens.position();
        let mut reader = Self {
            tokens,
            max_entries: options.limits.entries,
            text: String::new(),
            root,
            header: Header { root, metadata: Metadata::default(), links: Vec::new() },
            header_position: position,
            dialect: Dialect::V1_1,
            modified: None,
            head: Some(head),
            notes: alpha::Notes::default(),
            first: None,
            begun: None,
            position,
            count: 0,
            done: false,
            metadata: Metadata::default(),
            mark: None,
            violations: Violations::default(),
            checker: None,
        };
        reader.read_header()?;
        reader.settle_dialect();
        if options.mode == Mode::Strict {
            reader.be_strict()?;
        }
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

    /// The form that the document is written in, as far as it was read: the first entry may show
    /// [`Dialect::V1_0`], and any entry that what looked like a Sitemap is the alpha draft's.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// What the reader itself had to tolerate since the last call.
    pub fn take_violations(&mut self) -> Violations {
        std::mem::take(&mut self.violations)
    }

    /// What is left when every entry was read.
    pub(super) fn into_parts(self) -> Parts {
        let Self { header, header_position: position, dialect, modified, violations, .. } = self;
        Parts { header, position, dialect, modified, violations }
    }

    fn be_strict(&mut self) -> Result<(), ReadError> {
        let mut checker = Checker::at(&self.header, Some(self.header_position));
        refuse_errors(&self.violations)?;
        refuse_errors(&checker.take_violations())?;
        self.checker = Some(checker);
        Ok(())
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
                    self.head = None;
                    self.header_position = self.tokens.position();
                    self.header.metadata = std::mem::take(&mut self.metadata);
                }
                Some(Step::Link(Some(link))) => {
                    self.head = None;
                    push_link(&mut self.tokens, &mut self.header.links, *link)?;
                }
                Some(Step::Old(child)) => self.read_old_head(*child)?,
                _ => {}
            }
            self.close_child()?;
        }
        Ok(())
    }

    fn read_old_head(&mut self, child: alpha::Child) -> Result<(), ReadError> {
        let place = Place { position: Some(self.tokens.position()), entry: None };
        let Self { head: Some(head), violations, .. } = self else { return Ok(()) };
        let links = head.child(child, &mut |rule, detail| violations.push(rule, place, detail));
        if links > MAX_LINKS { Err(self.tokens.limit(Limit::Links)) } else { Ok(()) }
    }

    /// Finds out which form the document is written in, by its first entry where the root does not say.
    fn settle_dialect(&mut self) {
        if self.dialect == Dialect::DLib2013 {
            self.modified = dlib::header(&mut self.header);
        }
        if self.head.is_none() {
            return;
        }
        self.dialect = Dialect::Sitemap;
        let mut entry = Entry::new("");
        let first = self.begun.take().map(|position| self.read_entry(position, &mut entry));
        if self.head.as_ref().is_some_and(alpha::Head::is_a_sign) || self.notes.is_a_sign() {
            self.be_alpha();
        }
        self.first = match first {
            None => None,
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(())) => self.finish_entry(&mut entry).then_some(Ok(entry)),
        };
    }

    fn be_alpha(&mut self) {
        let Some(head) = &mut self.head else { return };
        head.give(&mut self.header, self.notes.is_packed());
        self.modified = head.modified;
        self.recognise(Dialect::Alpha0_1);
    }

    /// Notes the dialect and tells it once.
    fn recognise(&mut self, dialect: Dialect) {
        self.dialect = dialect;
        let place = Place { position: Some(self.header_position), entry: None };
        self.violations.push(Rule::Dialect, place, format!("it is read as {dialect}"));
    }

    /// Reads on until an entry begins or the document ends.
    fn find_entry(&mut self) -> Result<(), ReadError> {
        while self.begun.is_none() && !self.done {
            if let Some(Step::Metadata | Step::Link(Some(_))) = self.root_child()? {
                self.tell(Rule::HeaderLate, "it is left out");
            }
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
            Step::Field(_) => self.tell_unknown("a child of an entry stands outside of one"),
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
            self.tell(Rule::EntryElement, format!("there is a {child} in this {root}"));
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
        if self.dialect == Dialect::Sitemap {
            self.recognise(Dialect::Sitemap);
        }
        Ok(())
    }

    /// Reads the content of an entry into an empty one.
    fn read_entry(&mut self, position: Position, entry: &mut Entry) -> Result<(), ReadError> {
        self.position = position;
        let mut seen = Seen::default();
        loop {
            self.text.clear();
            match self.step()? {
                Step::Close | Step::End => break,
                Step::Text => self.stray_text(),
                Step::Field(field) => self.read_field(field, entry, &mut seen)?,
                Step::Metadata => {
                    seen.extension = true;
                    if entry.metadata.is_some() {
                        self.tell(Rule::Repeated, "a second rs:md is left out");
                    } else {
                        entry.metadata = Some(std::mem::take(&mut self.metadata));
                    }
                }
                Step::Link(link) => {
                    seen.extension = true;
                    if let Some(link) = link {
                        push_link(&mut self.tokens, &mut entry.links, *link)?;
                    }
                }
                Step::Entry(root) => {
                    self.tell_unknown(&format!("a {} stands inside an entry", root.entry_element()));
                }
                Step::Old(child) => self.read_old(*child, entry)?,
                Step::Other => seen.extension = true,
            }
            self.skip_to(2)?;
        }
        Ok(())
    }

    /// Makes the entry one of 1.1; gives `false` when a list of 1.1 would not have it.
    fn finish_entry(&mut self, entry: &mut Entry) -> bool {
        match self.dialect {
            Dialect::V1_1 if self.count == 1 && older::begins_as_1_0(&self.header, entry) => {
                self.recognise(Dialect::V1_0);
            }
            Dialect::V1_1 | Dialect::V1_0 | Dialect::Notification0_9 => {}
            Dialect::DLib2013 => dlib::entry(&self.header, entry),
            Dialect::Sitemap if !self.notes.is_a_sign() => self.notes = alpha::Notes::default(),
            Dialect::Sitemap | Dialect::Alpha0_1 => {
                if self.dialect == Dialect::Sitemap {
                    self.be_alpha();
                }
                let changes = self.head.as_ref().is_some_and(alpha::Head::changes);
                if !std::mem::take(&mut self.notes).give(entry, changes) {
                    self.tell_unknown("what is gone is left out of the Resource List");
                    return false;
                }
            }
        }
        true
    }

    fn read_field(&mut self, field: Field, entry: &mut Entry, seen: &mut Seen) -> Result<(), ReadError> {
        let mark = self.mark.take();
        if seen.extension || seen.is_after(field) {
            self.tell(Rule::ChildOrder, format!("{} comes too late", field.name()));
        }
        self.tokens.remember();
        self.read_text(field.name(), (field == Field::Loc).then_some(&mut *entry))?;
        if !seen.insert(field) {
            let position = self.tokens.remembered();
            self.tell_at(Rule::Repeated, position, format!("a second {} is left out", field.name()));
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
            self.tell_at(rule, position, detail);
        }
        match (field, mark.as_deref()) {
            (Field::Lastmod, Some(kind)) => {
                let position = self.tokens.remembered();
                let (notes, violations) = (&mut self.notes, &mut self.violations);
                let place = Place { position: Some(position), entry: Some(self.count) };
                notes.modified(kind, entry.lastmod, &mut |rule, detail| violations.push(rule, place, detail));
            }
            (Field::Loc, Some(protocol)) => self.notes.protocol(protocol),
            _ => {}
        }
        Ok(())
    }

    fn read_old(&mut self, child: alpha::Child, entry: &mut Entry) -> Result<(), ReadError> {
        let position = self.tokens.position();
        self.read_text("it", Some(entry))?;
        let place = Place { position: Some(position), entry: Some(self.count) };
        let (notes, violations) = (&mut self.notes, &mut self.violations);
        let links = notes
            .child(child, self.text.trim_ascii(), &mut |rule, detail| violations.push(rule, place, detail));
        if links > MAX_LINKS {
            return Err(self.tokens.limit(Limit::Links));
        }
        if self.notes.held() > MAX_TEXT { Err(self.tokens.limit(Limit::Text)) } else { Ok(()) }
    }

    /// Reads the text of the element whose start tag was just read.
    ///
    /// A link inside `loc` goes to the entry, since the notification specifications call it a child of `loc` (FN-061).
    fn read_text(&mut self, name: &str, mut entry: Option<&mut Entry>) -> Result<(), ReadError> {
        let depth = self.tokens.depth();
        self.text.clear();
        self.tokens.keep_space(true);
        loop {
            match self.step()? {
                Step::Text if self.text.len() > MAX_TEXT => return Err(self.tokens.limit(Limit::Text)),
                Step::Text => continue,
                Step::Close | Step::End => break,
                Step::Link(Some(link)) if entry.is_some() => {
                    self.tell(Rule::HubInLoc, format!("the {} link is inside {name}", link.rel));
                    if let Some(entry) = &mut entry {
                        push_link(&mut self.tokens, &mut entry.links, *link)?;
                    }
                }
                _ => self.tell_unknown(&format!("an element stands inside {name}")),
            }
            self.skip_to(depth)?;
        }
        self.tokens.keep_space(false);
        Ok(())
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
                    let mut told = Vec::new();
                    let alpha = self.head.is_some().then_some(&mut self.mark);
                    let step = open(&mut self.tokens, &mut self.metadata, alpha, &mut told)?;
                    let of_dlib = self.tokens.space() == Space::DLib;
                    if of_dlib || !told.is_empty() {
                        self.tell_of_tag(of_dlib, told);
                    }
                    return Ok(step);
                }
            }
        }
    }

    #[cold]
    fn tell_of_tag(&mut self, of_dlib: bool, told: Vec<(Rule, String)>) {
        if of_dlib && self.dialect == Dialect::V1_1 {
            self.recognise(Dialect::DLib2013);
        }
        for (rule, detail) in told {
            if rule == Rule::NotificationToken && self.dialect == Dialect::V1_1 {
                self.dialect = Dialect::Notification0_9;
            }
            self.tell(rule, detail);
        }
    }

    fn stray_text(&mut self) {
        if !self.text.trim_ascii().is_empty() {
            self.tell_unknown("text stands between elements");
        }
    }

    fn tell_unknown(&mut self, detail: &str) {
        self.tell(Rule::ElementUnknown, detail);
    }

    fn tell(&mut self, rule: Rule, detail: impl Into<String>) {
        let position = self.tokens.position();
        self.tell_at(rule, position, detail);
    }

    fn tell_at(&mut self, rule: Rule, position: Position, detail: impl Into<String>) {
        let entry = Some(self.count).filter(|&count| count > 0);
        self.violations.push(rule, Place { position: Some(position), entry }, detail);
    }

    /// Reads the next entry into an empty one; gives `false` at the end.
    fn read_next(&mut self, entry: &mut Entry) -> Result<bool, ReadError> {
        loop {
            if self.begun.is_none() {
                self.find_entry()?;
            }
            let Some(position) = self.begun.take() else { return Ok(false) };
            self.read_entry(position, entry)?;
            if self.finish_entry(entry) {
                return self.check(entry).map(|()| true);
            }
            *entry = Entry::new("");
        }
    }

    fn end(&mut self, error: ReadError) -> ReadError {
        self.done = true;
        self.begun = None;
        error
    }

    fn check(&mut self, entry: &Entry) -> Result<(), ReadError> {
        let Some(checker) = &mut self.checker else { return Ok(()) };
        refuse_errors(&self.violations)?;
        checker.entry(entry, Some(self.position));
        refuse_errors(&checker.take_violations())
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Entry, ReadError>;

    /// The next entry; after an error nothing more comes.
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            let first = first.and_then(|entry| self.check(&entry).map(|()| entry));
            return Some(first.map_err(|error| self.end(error)));
        }
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
            .field("dialect", &self.dialect)
            .field("position", &self.position)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
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

/// Reads up to the root's start tag.
fn root<R: BufRead>(tokens: &mut Tokens<R>, head: &mut alpha::Head) -> Result<Root, ReadError> {
    loop {
        if tokens.next()? != Token::Open {
            continue;
        }
        tokens.attributes(|attribute| {
            if attribute.space == Space::Rs && attribute.name == "type" {
                head.mark(&attribute.value);
            }
        })?;
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

fn refuse_errors(violations: &Violations) -> Result<(), ReadError> {
    match violations.errors().next() {
        Some(violation) => Err(ReadError::Rule(Box::new(violation.clone()))),
        None => Ok(()),
    }
}

fn push_link<R: BufRead>(tokens: &mut Tokens<R>, links: &mut Vec<Link>, link: Link) -> Result<(), ReadError> {
    if links.len() == MAX_LINKS {
        return Err(tokens.limit(Limit::Links));
    }
    links.push(link);
    Ok(())
}

#[cfg(test)]
mod tests;
