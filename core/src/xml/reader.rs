//! Documents from XML, entry by entry: tolerant as RS-050 asks, with a violation for whatever had to be tolerated.

use std::io::BufRead;

use super::tokens::{Space, Tag, Token, Tokens};
use super::{Limit, Limits, MAX_LINKS, MAX_TEXT, Position, ReadError, element};
use crate::document::{Document, Entry, Header, Link, Metadata, RawDocument, Root};
use crate::rules::{Checker, Place, Rule, Violations};

/// Reads a whole document and checks every rule, so that violations have line and column.
///
/// ```
/// let bytes = br#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
///   xmlns:rs="http://www.openarchives.org/rs/terms/">
///   <rs:md capability="framework-notification"/>
///   <url><loc>https://example.org/resourcelist.xml</loc><rs:md change="created"/></url>
/// </urlset>"#;
/// let read = resync_core::xml::read(bytes)?;
/// let problem = read.violations.errors().next().unwrap();
/// assert!(problem.to_string().starts_with("FN-023 at line 4, column 3, entry 1"));
/// assert!(read.into_document().is_err());
/// # Ok::<(), resync_core::xml::ReadError>(())
/// ```
pub fn read(bytes: &[u8]) -> Result<Read, ReadError> {
    let mut reader = Reader::new(bytes)?;
    let mut checker = Checker::at(reader.header(), Some(reader.header_position()));
    let mut entries = Vec::new();
    while let Some(entry) = reader.next() {
        let entry = entry?;
        checker.entry(&entry, Some(reader.position()));
        entries.push(entry);
    }
    let (header, mut violations) = reader.into_parts();
    violations.append(checker.finish());
    Ok(Read { document: RawDocument { header, entries }, violations })
}

/// A document as it was read, and the rules it breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// What could be understood.
    pub document: RawDocument,
    /// What was wrong with it.
    pub violations: Violations,
}

impl Read {
    /// The document when it conforms; warnings are dropped.
    pub fn into_document(self) -> Result<Document, Violations> {
        Document::from_checked(self.document, self.violations)
    }
}

/// A document that is read entry by entry, in memory that does not grow with its length.
///
/// The reader tells only what cannot be seen in the entries it yields; a [`Checker`] beside it tells the rest.
///
/// ```no_run
/// use std::fs::File;
/// use std::io::BufReader;
/// use resync_core::xml::Reader;
///
/// let reader = Reader::new(BufReader::new(File::open("resourcelist.xml")?))?;
/// for entry in reader {
///     println!("{}", entry?.loc);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reader<R: BufRead> {
    tokens: Tokens<R>,
    max_entries: usize,
    buffer: Vec<u8>,
    /// Text since the last tag.
    text: String,
    header: Header,
    header_position: Position,
    /// Where the entry stands whose start tag was read but not its content.
    begun: Option<Position>,
    position: Position,
    /// How many entries were begun.
    count: usize,
    done: bool,
    violations: Violations,
}

/// What a token means to a document.
enum Step {
    Entry(Root),
    Field(Field),
    Metadata(Metadata),
    Link(Option<Link>),
    /// An element that says nothing to us.
    Other,
    Close,
    Text,
    End,
}

/// The children of an entry that have text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Loc,
    Lastmod,
    ChangeFrequency,
    Priority,
}

impl<R: BufRead> Reader<R> {
    /// Reads up to the first entry, within the limits of the crate.
    pub fn new(input: R) -> Result<Self, ReadError> {
        Self::with_limits(input, Limits::default())
    }

    /// The same within other limits.
    pub fn with_limits(input: R, limits: Limits) -> Result<Self, ReadError> {
        let mut tokens = Tokens::new(input, limits)?;
        let mut buffer = Vec::new();
        let root = root(&mut tokens, &mut buffer)?;
        let position = tokens.position();
        let header = Header { root, metadata: Metadata::default(), links: Vec::new() };
        let mut reader = Self {
            tokens,
            max_entries: limits.entries,
            buffer,
            text: String::new(),
            header,
            header_position: position,
            begun: None,
            position,
            count: 0,
            done: false,
            violations: Violations::default(),
        };
        reader.read_header()?;
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

    /// What the reader itself had to tolerate since the last call.
    pub fn take_violations(&mut self) -> Violations {
        std::mem::take(&mut self.violations)
    }

    fn into_parts(self) -> (Header, Violations) {
        (self.header, self.violations)
    }

    fn read_header(&mut self) -> Result<(), ReadError> {
        let mut has_metadata = false;
        while self.begun.is_none() && !self.done {
            match self.root_child()? {
                Some(Step::Metadata(_)) if has_metadata => {
                    return Err(ReadError::DuplicateMetadata { position: self.tokens.position() });
                }
                Some(Step::Metadata(metadata)) => {
                    has_metadata = true;
                    self.header_position = self.tokens.position();
                    self.header.metadata = metadata;
                }
                Some(Step::Link(Some(link))) => {
                    push_link(&self.tokens, &mut self.header.links, link)?;
                }
                _ => {}
            }
            self.close_child()?;
        }
        Ok(())
    }

    /// Reads on until an entry begins or the document ends.
    fn find_entry(&mut self) -> Result<(), ReadError> {
        while self.begun.is_none() && !self.done {
            if let Some(Step::Metadata(_) | Step::Link(Some(_))) = self.root_child()? {
                self.tell(Rule::HeaderLate, "it is left out");
            }
            self.close_child()?;
        }
        Ok(())
    }

    /// One step among the children of the root; an entry that begins is noted in `begun`, the end in `done`.
    fn root_child(&mut self) -> Result<Option<Step>, ReadError> {
        let step = self.step()?;
        match &step {
            Step::Entry(root) => self.begin_entry(*root)?,
            Step::Field(_) => self.tell_unknown("a child of an entry stands outside of one"),
            Step::Close => self.finish()?,
            Step::End => self.done = true,
            Step::Text => self.stray_text(),
            Step::Metadata(_) | Step::Link(_) | Step::Other => return Ok(Some(step)),
        }
        Ok(None)
    }

    fn begin_entry(&mut self, found: Root) -> Result<(), ReadError> {
        if self.count == self.max_entries {
            return Err(self.tokens.limit(Limit::Entries));
        }
        self.count += 1;
        self.begun = Some(self.tokens.position());
        if found != self.header.root {
            let (child, root) = (found.entry_element(), self.header.root.element());
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
        Ok(())
    }

    fn read_entry(&mut self, position: Position) -> Result<Entry, ReadError> {
        self.position = position;
        let mut entry = Entry::new("");
        let mut seen = Seen::default();
        loop {
            match self.step()? {
                Step::Close | Step::End => break,
                Step::Text => self.stray_text(),
                Step::Field(field) => self.read_field(field, &mut entry, &mut seen)?,
                Step::Metadata(metadata) => {
                    seen.extension = true;
                    if entry.metadata.is_some() {
                        self.tell(Rule::Repeated, "a second rs:md is left out");
                    } else {
                        entry.metadata = Some(metadata);
                    }
                }
                Step::Link(link) => {
                    seen.extension = true;
                    if let Some(link) = link {
                        push_link(&self.tokens, &mut entry.links, link)?;
                    }
                }
                Step::Entry(root) => {
                    self.tell_unknown(&format!("a {} stands inside an entry", root.entry_element()));
                }
                Step::Other => seen.extension = true,
            }
            self.skip_to(2)?;
        }
        Ok(entry)
    }

    fn read_field(&mut self, field: Field, entry: &mut Entry, seen: &mut Seen) -> Result<(), ReadError> {
        if seen.extension || seen.fields.iter().any(|&earlier| earlier as u8 > field as u8) {
            self.tell(Rule::ChildOrder, format!("{} comes too late", field.name()));
        }
        let position = self.tokens.position();
        let text = self.field_text(field, entry)?;
        if seen.fields.contains(&field) {
            self.tell_at(Rule::Repeated, position, format!("a second {} is left out", field.name()));
            return Ok(());
        }
        seen.fields.push(field);
        match field {
            Field::Loc => text.clone_into(&mut entry.loc),
            Field::Lastmod => match text.parse() {
                Ok(lastmod) => entry.lastmod = Some(lastmod),
                Err(error) => self.tell_at(Rule::Datetime, position, format!("lastmod is {text:?}: {error}")),
            },
            Field::ChangeFrequency => match text.parse() {
                Ok(frequency) => entry.changefreq = Some(frequency),
                Err(_) => self.tell_at(Rule::ChangeFrequency, position, format!("changefreq is {text:?}")),
            },
            // ResourceSync has no use for the priority of the sitemap protocol.
            Field::Priority => {}
        }
        Ok(())
    }

    /// The text of the field whose start tag was just read, without white space around it.
    ///
    /// A link inside `loc` goes to the entry, since the notification specifications call it a child of `loc` (FN-061).
    fn field_text(&mut self, field: Field, entry: &mut Entry) -> Result<String, ReadError> {
        let depth = self.tokens.depth();
        let mut text = String::new();
        loop {
            match self.step()? {
                Step::Text => {
                    if text.len() + self.text.len() > MAX_TEXT {
                        return Err(self.tokens.limit(Limit::Text));
                    }
                    text.push_str(&self.text);
                }
                Step::Close | Step::End => break,
                Step::Link(Some(link)) if field == Field::Loc => {
                    self.tell(Rule::HubInLoc, format!("the {} link is inside loc", link.rel));
                    push_link(&self.tokens, &mut entry.links, link)?;
                }
                _ => self.tell_unknown(&format!("an element stands inside {}", field.name())),
            }
            self.skip_to(depth)?;
        }
        Ok(text.trim_ascii().to_owned())
    }

    /// Passes over everything that is nested deeper.
    fn skip_to(&mut self, depth: usize) -> Result<(), ReadError> {
        while self.tokens.depth() > depth {
            if let Token::Open(tag) = self.tokens.next(&mut self.buffer)? {
                self.tokens.attributes(&tag, |_| {})?;
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Step, ReadError> {
        loop {
            match self.tokens.next(&mut self.buffer)? {
                Token::Aside => {}
                Token::Close => return Ok(Step::Close),
                Token::End => return Ok(Step::End),
                Token::Text(text) => {
                    self.text.clear();
                    self.text.push_str(&text);
                    return Ok(Step::Text);
                }
                Token::Open(tag) => {
                    let place = Place {
                        position: Some(self.tokens.position()),
                        entry: Some(self.count).filter(|&count| count > 0),
                    };
                    let violations = &mut self.violations;
                    return open(&self.tokens, &tag, &mut |rule, detail| {
                        violations.push(rule, place, detail);
                    });
                }
            }
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
        self.tell_at(rule, self.tokens.position(), detail);
    }

    fn tell_at(&mut self, rule: Rule, position: Position, detail: impl Into<String>) {
        let entry = Some(self.count).filter(|&count| count > 0);
        self.violations.push(rule, Place { position: Some(position), entry }, detail);
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Entry, ReadError>;

    /// The next entry; after an error nothing more comes.
    fn next(&mut self) -> Option<Self::Item> {
        let entry = match self.begun.take() {
            Some(position) => Ok(Some(position)),
            None => self.find_entry().map(|()| self.begun.take()),
        }
        .and_then(|begun| begun.map(|position| self.read_entry(position)).transpose())
        .transpose();
        if matches!(entry, Some(Err(_))) {
            self.done = true;
        }
        entry
    }
}

impl<R: BufRead> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("header", &self.header)
            .field("position", &self.position)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// What an entry has had so far.
#[derive(Default)]
struct Seen {
    fields: Vec<Field>,
    /// `rs:md`, `rs:ln` or an element of others.
    extension: bool,
}

impl Field {
    const fn name(self) -> &'static str {
        match self {
            Self::Loc => "loc",
            Self::Lastmod => "lastmod",
            Self::ChangeFrequency => "changefreq",
            Self::Priority => "priority",
        }
    }
}

/// Reads up to the root's start tag.
fn root<R: BufRead>(tokens: &mut Tokens<R>, buffer: &mut Vec<u8>) -> Result<Root, ReadError> {
    loop {
        let Token::Open(tag) = tokens.next(buffer)? else { continue };
        tokens.attributes(&tag, |_| {})?;
        return match tag.name() {
            "urlset" => Ok(Root::UrlSet),
            "sitemapindex" => Ok(Root::SitemapIndex),
            other => Err(ReadError::UnknownRoot {
                position: tokens.position(),
                name: other.to_owned(),
                namespace: super::SITEMAP_NAMESPACE.to_owned(),
            }),
        };
    }
}

/// What a start tag means.
fn open<R: BufRead>(
    tokens: &Tokens<R>,
    tag: &Tag<'_>,
    told: &mut impl FnMut(Rule, String),
) -> Result<Step, ReadError> {
    match (tag.space, tag.name()) {
        (Space::Rs, "md") => return element::metadata(tokens, tag, told).map(Step::Metadata),
        (Space::Rs, "ln") => return element::link(tokens, tag, told).map(Step::Link),
        _ => {}
    }
    let mut attributes = 0;
    tokens.attributes(tag, |_| attributes += 1)?;
    let step = match (tag.space, tag.name()) {
        (Space::Sitemap, "url") => Step::Entry(Root::UrlSet),
        (Space::Sitemap, "sitemap") => Step::Entry(Root::SitemapIndex),
        (Space::Sitemap, "loc") => Step::Field(Field::Loc),
        (Space::Sitemap, "lastmod") => Step::Field(Field::Lastmod),
        (Space::Sitemap, "changefreq") => Step::Field(Field::ChangeFrequency),
        (Space::Sitemap, "priority") => Step::Field(Field::Priority),
        (Space::Foreign, _) => Step::Other,
        (_, name) => {
            told(Rule::ElementUnknown, format!("{name} is left out"));
            Step::Other
        }
    };
    if attributes > 0 && matches!(step, Step::Entry(_)) {
        told(Rule::EntryAttributes, "they are left out".to_owned());
    }
    Ok(step)
}

fn push_link<R: BufRead>(tokens: &Tokens<R>, links: &mut Vec<Link>, link: Link) -> Result<(), ReadError> {
    if links.len() == MAX_LINKS {
        return Err(tokens.limit(Limit::Links));
    }
    links.push(link);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Capability, Change, FrameworkChange, FrameworkNotification, Relation};
    use crate::xml::{MAX_ATTRIBUTES, MAX_DEPTH};

    /// A urlset of which only the content is of interest; the content starts on line 2.
    fn urlset(content: &str) -> Vec<u8> {
        format!(
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
             xmlns:rs='http://www.openarchives.org/rs/terms/'>\n{content}\n</urlset>"
        )
        .into_bytes()
    }

    /// A Change List with one entry of this content.
    fn change(content: &str) -> Vec<u8> {
        urlset(&format!(
            "<rs:md capability='changelist' from='2013-01-01T00:00:00Z'/>\n<rs:ln rel='up' href='http://example.org/c.xml'/>\n\
             <url>{content}</url>"
        ))
    }

    const CHANGED: &str =
        "<loc>http://example.org/a</loc><rs:md change='updated' datetime='2013-01-02T00:00:00Z'/>";

    fn rules(bytes: &[u8]) -> Vec<Rule> {
        read(bytes).unwrap().violations.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn fn_example_1_one_new_resource_list_told_with_an_up_link_before_the_metadata() {
        let bytes = urlset(
            "<rs:ln rel='up' href='http://data.example.org/set/capabilitylist.xml'/>
             <rs:md capability='framework-notification'/>
             <url><loc>http://data.example.org/other/resourcelist.xml</loc>
               <rs:md change='created' datetime='2013-01-03T00:07:22Z' capability='resourcelist'/></url>",
        );
        let read = read(&bytes).unwrap();
        assert!(read.violations.is_empty(), "{}", read.violations);
        let document = read.into_document().unwrap();
        let loc = "http://data.example.org/other/resourcelist.xml";
        let wanted = FrameworkChange::new(Change::Created, Capability::ResourceList, loc)
            .datetime("2013-01-03T00:07:22Z".parse().unwrap());
        assert_eq!(FrameworkNotification::changes(&document), Some(vec![wanted]));
        assert_eq!(
            document.link(&Relation::Up).unwrap().href,
            "http://data.example.org/set/capabilitylist.xml"
        );
    }

    #[test]
    fn fn_example_2_three_changes_at_once_one_of_them_under_an_index() {
        let bytes = urlset(
            "<rs:md capability='framework-notification'/>
             <url><loc>http://example.org/set/resourcelist.xml</loc><rs:md change='created' capability='resourcelist'/>
               <rs:ln rel='index' href='http://example.org/set/resourcelist-index.xml'/></url>
             <url><loc>http://example.org/set/resourcedump.xml</loc><rs:md change='created' capability='resourcedump'/></url>
             <url><loc>http://example.org/set/changelist.xml</loc><rs:md change='updated' capability='changelist'/></url>",
        );
        let read = read(&bytes).unwrap();
        assert!(read.violations.is_empty(), "{}", read.violations);
        let changes = FrameworkNotification::changes(&read.into_document().unwrap()).unwrap();
        let indexes: Vec<_> = changes.iter().map(|change| change.index.as_deref()).collect();
        assert_eq!(indexes, [Some("http://example.org/set/resourcelist-index.xml"), None, None]);
    }

    #[test]
    fn fn_example_8_a_capability_list_with_a_channel() {
        let bytes = urlset(
            "<rs:ln rel='describedby' href='http://example.org/info.xml'/>
             <rs:ln rel='up' href='http://example.org/source_description.xml'/>
             <rs:md capability='capabilitylist'/>
             <url><loc>http://example.org/set/resourcelist.xml</loc><rs:md capability='resourcelist'/></url>
             <url><loc>http://example.org/set/changelist.xml</loc><rs:md capability='changelist'/></url>
             <url><loc>http://example.org/set/framework/</loc><rs:ln rel='hub' href='http://hub.example.net/websub/'/>
               <rs:md capability='framework-notification'/></url>",
        );
        let read = read(&bytes).unwrap();
        assert!(read.violations.is_empty(), "{}", read.violations);
        let document = read.into_document().unwrap();
        let channel = document.entries().last().unwrap();
        assert_eq!(channel.link(&Relation::Hub).unwrap().href, "http://hub.example.net/websub/");
    }

    #[test]
    fn fn061_a_hub_link_inside_loc_is_read_as_the_entrys_with_a_warning() {
        let bytes = urlset(
            "<rs:md capability='capabilitylist'/><rs:ln rel='up' href='http://example.org/d.xml'/>
             <rs:ln rel='describedby' href='http://example.org/info.xml'/>
             <url><loc>http://example.org/framework/<rs:ln rel='hub' href='http://hub.example.net/'/></loc>
               <rs:md capability='framework-notification'/></url>",
        );
        assert_eq!(rules(&bytes), [Rule::HubInLoc]);
        let document = read(&bytes).unwrap().into_document().unwrap();
        assert_eq!(document.entries()[0].loc, "http://example.org/framework/");
        assert_eq!(document.entries()[0].links.len(), 1);
    }

    #[test]
    fn every_attribute_and_element_of_the_model_is_read() {
        let bytes = urlset(
            "<rs:md capability='resourcedump-manifest' at='2013-01-03T09:00:00Z' completed='2013-01-03T09:04:00Z'/>
             <rs:ln rel='up' href='http://example.org/c.xml'/>
             <url><loc> http://example.org/a?b&amp;c<![CDATA[&d]]>&#x65; </loc><lastmod>2013-01-02</lastmod>
             <changefreq>daily</changefreq><priority>0.5</priority>
             <rs:md hash='md5:1584abdf8ebdc9802ac0c6a7402c03b6
                          x:y' length='8876' type='text/html' encoding='gzip' path='/a'
                    xmlns:c='urn:c&amp;d' c:note='&lt;&#10;'/>
             <rs:ln rel='duplicate' href='http://mirror.example.org/a' pri='1' modified='2013-01-02T18:00:00Z' path='/b'
                    profile='http://example.org/p' type='text/html' length='3' encoding='br' hash='md5:x'/></url>",
        );
        let read = read(&bytes).unwrap();
        assert!(read.violations.is_conforming(), "{}", read.violations);
        let entry = &read.document.entries[0];
        assert_eq!(entry.loc, "http://example.org/a?b&c&de");
        assert_eq!(entry.lastmod.unwrap().to_string(), "2013-01-02T00:00:00Z");
        let metadata = entry.metadata.as_ref().unwrap();
        assert_eq!(metadata.hash.to_string(), "md5:1584abdf8ebdc9802ac0c6a7402c03b6 x:y");
        assert_eq!((metadata.length, metadata.path.as_deref()), (Some(8876), Some("/a")));
        let note = &metadata.foreign[0];
        assert_eq!(
            (note.namespace.as_str(), note.prefix.as_str(), note.value.as_str()),
            ("urn:c&d", "c", "<\n")
        );
        let link = &entry.links[0];
        assert_eq!((link.pri, link.profile.as_deref()), (Some(1), Some("http://example.org/p")));
        assert_eq!(link.hash.unknown(), ["md5:x"]);
    }

    #[test]
    fn namespaces_decide_and_prefixes_do_not() {
        let bytes = br#"<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9">
            <md xmlns="http://www.openarchives.org/rs/terms/" capability="description"/>
            <s:url><s:loc>http://example.org/c.xml</s:loc><x:loc xmlns:x="urn:x">no</x:loc></s:url></s:urlset>"#;
        let read = read(bytes).unwrap();
        assert!(read.violations.is_conforming(), "{}", read.violations);
        assert_eq!(read.document.entries[0].loc, "http://example.org/c.xml");
    }

    #[test]
    fn rs010_a_plain_sitemap_is_read_and_told() {
        let bytes = urlset("<url><loc>http://example.org/a</loc></url>");
        let read = read(&bytes).unwrap();
        assert_eq!(read.document.entries.len(), 1);
        assert_eq!(
            read.violations.errors().map(|violation| violation.rule).collect::<Vec<_>>(),
            [Rule::CapabilityMissing]
        );
    }

    #[test]
    fn rs050_what_cannot_be_understood_is_named_and_left_out() {
        let cases = [
            ("<rs:md change='changed' datetime='2013-01-02T00:00:00Z'/>", Rule::ChangeValue),
            ("<rs:md change='updated' datetime='2013-01-02T00:00:00'/>", Rule::Datetime),
            ("<rs:md change='updated' datetime='2013-01-02'/>", Rule::DatetimePartial),
            ("<rs:md change='updated' length='-1'/>", Rule::Length),
            ("<rs:md change='updated' rs:length='1'/>", Rule::AttributePrefixed),
            ("<rs:md change='updated' size='1'/>", Rule::AttributeUnknown),
            ("<rs:ln href='http://example.org/b'/>", Rule::LinkIncomplete),
            ("<rs:ln rel='via'/>", Rule::LinkIncomplete),
            ("<rs:ln rel='via' href='http://example.org/b' pri='first'/>", Rule::Priority),
            ("<rs:md/><rs:md/>", Rule::Repeated),
            ("<loc>http://example.org/b</loc>", Rule::Repeated),
            ("<lastmod>yesterday</lastmod>", Rule::Datetime),
            ("<changefreq>sometimes</changefreq>", Rule::ChangeFrequency),
            ("<changefreq>daily</changefreq><lastmod>2013</lastmod>", Rule::ChildOrder),
            ("<rs:ln rel='via' href='http://example.org/b'/><lastmod>2013</lastmod>", Rule::ChildOrder),
            ("<rs:mdx/>", Rule::ElementUnknown),
            ("<caption>x</caption>", Rule::ElementUnknown),
            ("text", Rule::ElementUnknown),
        ];
        for (content, rule) in cases {
            let found = rules(&change(&format!("<loc>http://example.org/a</loc>{content}")));
            assert!(found.contains(&rule), "{content}: {found:?}");
        }
        assert_eq!(rules(&change(&format!("{CHANGED}<x:y xmlns:x='urn:x'><x:loc>z</x:loc></x:y>"))), []);
    }

    #[test]
    fn rs045_a_header_after_the_first_entry_is_told_and_left_out() {
        let bytes = urlset(
            "<rs:md capability='description'/><url><loc>http://example.org/c</loc></url>
             <rs:md capability='changelist'/><rs:ln rel='up' href='http://example.org/'/>",
        );
        let read = read(&bytes).unwrap();
        let late = read.violations.errors().filter(|violation| violation.rule == Rule::HeaderLate).count();
        assert_eq!(late, 2);
        assert_eq!(read.document.header.capability(), Some(&Capability::Description));
    }

    #[test]
    fn rs002_a_sitemap_in_a_urlset_is_told() {
        let bytes = urlset(
            "<rs:md capability='description'/><sitemap a=''><loc>http://example.org/c</loc></sitemap>",
        );
        let found = rules(&bytes);
        assert!(found.contains(&Rule::EntryElement) && found.contains(&Rule::EntryAttributes), "{found:?}");
    }

    #[test]
    fn cn017_the_old_token_is_read_as_change_notification_with_a_warning() {
        let bytes = urlset(
            "<rs:md capability='changelist-notification' from='2013-01-01T00:00:00Z' until='2013-01-02T00:00:00Z'/>",
        );
        let read = read(&bytes).unwrap();
        assert_eq!(read.violations.iter().next().unwrap().rule, Rule::NotificationToken);
        assert_eq!(*read.into_document().unwrap().capability(), Capability::ChangeNotification);
    }

    #[test]
    fn violations_know_line_column_and_entry() {
        let bytes = urlset(
            "<rs:md capability='description'/>\n<!--\n\n-->\n<url>\n  <loc>http://example.org/c</loc>\n  \
             <rs:md length='x'/></url>\n  <url><loc>c</loc></url>",
        );
        let read = read(&bytes).unwrap();
        let places: Vec<_> = read
            .violations
            .errors()
            .map(|violation| {
                let position = violation.place.position.unwrap();
                (violation.rule, position.line, position.column, violation.place.entry)
            })
            .collect();
        assert_eq!(places, [(Rule::Length, 8, 3, Some(1)), (Rule::Loc, 9, 3, Some(2))]);
        let header = read.violations.iter().next().unwrap();
        assert_eq!((header.rule, header.place.position.unwrap().line), (Rule::ShapeAdvised, 2));
    }

    #[test]
    fn rs051_a_dtd_is_refused_and_entities_are_not_expanded() {
        let bomb = b"<?xml version='1.0'?>\n <!DOCTYPE u [<!ENTITY a 'x'>]><u>&a;</u>";
        assert!(matches!(read(bomb), Err(ReadError::Dtd { position: Position { line: 2, column: 2 } })));
        for content in ["<url><loc>&a;</loc></url>", "<rs:md capability='&a;'/>"] {
            let error = read(&urlset(content)).unwrap_err();
            assert!(matches!(&error, ReadError::Entity { name, .. } if name == "a"), "{error}");
        }
        let escapes = change(&CHANGED.replace("/a<", "/&amp;&lt;&#x26;&#38;<"));
        assert_eq!(read(&escapes).unwrap().document.entries[0].loc, "http://example.org/&<&&");
    }

    #[test]
    fn what_is_not_well_formed_is_refused_at_its_place() {
        let cases: [&[u8]; 14] = [
            b"",
            b"hello",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url></urlset>",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/><more/>",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/>more",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><rs:md/></urlset>",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url a='1' a='2'/></urlset>",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url a='<'/></urlset>",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url a=1/></urlset>",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>&#0;</urlset>",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>\x01</urlset>",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>\xff</urlset>",
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><!-- -- --></urlset>",
        ];
        for bytes in cases {
            let error = read(bytes).unwrap_err();
            assert!(
                matches!(error, ReadError::NotWellFormed { .. }),
                "{}: {error:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn another_root_is_refused_with_its_name() {
        for bytes in
            [&b"<html/>"[..], b"<urlset/>", b"<feed xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/>"]
        {
            assert!(
                matches!(read(bytes), Err(ReadError::UnknownRoot { .. })),
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn rs010_a_second_root_metadata_is_refused() {
        let bytes = urlset("<rs:md capability='description'/>\n<rs:md capability='changelist'/>");
        assert!(matches!(
            read(&bytes),
            Err(ReadError::DuplicateMetadata { position: Position { line: 3, column: 1 } })
        ));
    }

    #[test]
    fn only_utf8_is_read_and_a_byte_order_mark_is_passed_over() {
        let with_mark = [b"\xef\xbb\xbf".as_slice(), &change(CHANGED)].concat();
        assert!(read(&with_mark).unwrap().violations.is_empty());
        for bytes in
            [&b"\xff\xfe<\0"[..], b"\x1f\x8b\x08\0", b"<?xml version='1.0' encoding='ISO-8859-1'?><u/>"]
        {
            assert!(matches!(read(bytes), Err(ReadError::Encoding { .. })), "{bytes:?}");
        }
    }

    #[test]
    fn rs051_every_limit_is_named_when_it_is_passed() {
        let reached = |bytes: &[u8]| match read(bytes) {
            Err(ReadError::Limit { limit, .. }) => Some(limit),
            _ => None,
        };
        let deep = |levels: usize| {
            change(&format!("{CHANGED}{}{}", "<x:a xmlns:x='urn:x'>".repeat(levels), "</x:a>".repeat(levels)))
        };
        assert_eq!(reached(&deep(MAX_DEPTH - 2)), None);
        assert_eq!(reached(&deep(MAX_DEPTH - 1)), Some(Limit::Depth));

        let wide = |count: usize| {
            let attributes: String = (0..count)
                .flat_map(|number| [" a".to_owned(), number.to_string(), "=''".to_owned()])
                .collect();
            change(&format!("{CHANGED}<x:a xmlns:x='urn:x'{attributes}/>"))
        };
        assert_eq!(reached(&wide(MAX_ATTRIBUTES - 1)), None);
        assert_eq!(reached(&wide(MAX_ATTRIBUTES)), Some(Limit::Attributes));

        let linked = |count| {
            change(&format!("{CHANGED}{}", "<rs:ln rel='via' href='http://example.org/b'/>".repeat(count)))
        };
        assert_eq!(reached(&linked(MAX_LINKS)), None);
        assert_eq!(reached(&linked(MAX_LINKS + 1)), Some(Limit::Links));

        assert_eq!(
            reached(&change(&format!("<loc>{}</loc>", "a".repeat(MAX_TEXT + 20_000)))),
            Some(Limit::Text)
        );
        assert_eq!(
            reached(&change(&format!("<loc>{}</loc>", "<![CDATA[aaaaaaaa]]>".repeat(MAX_TEXT / 8 + 1)))),
            Some(Limit::Text)
        );
        assert_eq!(
            reached(&change(&format!("<!--{}-->", "\n".repeat(MAX_TEXT + 20_000)))),
            Some(Limit::Text)
        );
    }

    #[test]
    fn rs042_the_limits_of_bytes_and_entries_can_be_set_and_are_exact() {
        let bytes = change(CHANGED);
        let size = u64::try_from(bytes.len()).unwrap();
        let drain = |limits| {
            Reader::with_limits(bytes.as_slice(), limits).and_then(|reader| {
                let entries: Result<Vec<_>, _> = reader.collect();
                entries.map(|entries| entries.len())
            })
        };
        assert_eq!(drain(Limits { bytes: size, entries: 1 }).unwrap(), 1);
        let limit = |result: Result<usize, ReadError>| match result {
            Err(ReadError::Limit { limit, max, .. }) => Some((limit, max)),
            _ => None,
        };
        assert_eq!(limit(drain(Limits { bytes: size - 1, entries: 1 })), Some((Limit::Bytes, size - 1)));
        assert_eq!(limit(drain(Limits { bytes: size, entries: 0 })), Some((Limit::Entries, 0)));
    }

    #[test]
    fn a_link_with_many_escaped_ampersands_is_read() {
        let query = "&amp;a=1".repeat(300);
        let bytes = change(&format!("{CHANGED}<rs:ln rel='via' href='http://example.org/?{query}'/>"));
        let read = read(&bytes).unwrap();
        assert_eq!(read.document.entries[0].links[0].href.matches('&').count(), 300);
    }

    #[test]
    fn after_an_error_the_iterator_ends() {
        let bytes = urlset(
            "<rs:md capability='description'/><url><loc>http://example.org/c</loc></url><url>&x;</url>",
        );
        let mut reader = Reader::new(bytes.as_slice()).unwrap();
        assert!(reader.next().unwrap().is_ok());
        assert!(reader.next().unwrap().is_err());
        assert!(reader.next().is_none());
    }
}
