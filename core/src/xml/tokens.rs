//! The safe subset of XML as tokens: well-formed, in UTF-8, no document type, no entities but XML's own (RS-051).
//!
//! `quick-xml` reads; what it leaves to its caller is checked here.

use std::borrow::Cow;
use std::io::BufRead;
use std::ops::Range;

use quick_xml::events::attributes::AttrError;
use quick_xml::events::{BytesDecl, BytesPI, BytesStart, Event};

use super::attribute::{NAME, NO_QUOTES, NO_VALUE, RawAttribute, attribute, up_to};
use super::characters::{is_name, is_plain_text, is_plain_value, referenced, unescape_text, unescape_value};
use super::error::{Fault, is_html};
use super::input::{Input, is_whitespace};
use super::namespaces::{Namespace, Namespaces};
use super::{Limit, Limits, MAX_ATTRIBUTES, MAX_DEPTH, MAX_FOREIGN, Options, Position, ReadError};

/// One token; what it consists of is asked from [`Tokens`] until the next one is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A start tag; that of an empty element is followed by [`Token::Close`].
    Open,
    Close,
    Text,
    /// A comment, a processing instruction or the XML declaration: nothing that is said to us.
    Aside,
    /// The end of a well-formed document.
    End,
}

/// How many times the length of their tags foreign attributes and further links may take in memory, beyond [`MAX_FOREIGN`] in all.
const GROWTH: usize = 32;

/// One attribute that is no namespace declaration.
pub(super) struct Attribute<'a> {
    pub(super) namespace: Namespace,
    /// The URI of the namespace; empty for none.
    pub(super) uri: &'a str,
    pub(super) prefix: &'a str,
    pub(super) name: &'a str,
    pub(super) value: Cow<'a, str>,
}

pub(super) struct Tokens<R: BufRead> {
    xml: quick_xml::Reader<Input<R>>,
    buffer: Vec<u8>,
    namespaces: Namespaces,
    /// How many elements are open.
    depth: usize,
    /// The last start tag without its brackets: in it the local name, and the attributes; its namespace, and whether it
    /// is empty.
    tag: String,
    name: Range<usize>,
    attributes: Vec<RawAttribute>,
    namespace: Namespace,
    empty: bool,
    text: String,
    root_seen: bool,
    /// Bytes by which what is kept of this header or entry outgrows its tags, and how many more all of the document may have.
    growth: usize,
    growth_left: usize,
    limits: Limits,
}

impl<R: BufRead> Tokens<R> {
    pub(super) fn new(input: R, options: Options) -> Result<Self, ReadError> {
        let Options { limits, gzip, .. } = options;
        let input = open(input, limits.bytes, gzip).map_err(|fault| fault.at(START, limits))?;
        let mut xml = quick_xml::Reader::from_reader(input);
        let config = xml.config_mut();
        config.check_comments = true;
        config.trim_text_start = true;
        Ok(Self {
            xml,
            buffer: Vec::new(),
            namespaces: Namespaces::default(),
            depth: 0,
            tag: String::new(),
            name: 0..0,
            attributes: Vec::new(),
            namespace: Namespace::None,
            empty: false,
            text: String::new(),
            root_seen: false,
            growth: 0,
            growth_left: MAX_FOREIGN,
            limits,
        })
    }

    /// Where the last token started.
    pub(super) fn position(&mut self) -> Position {
        self.xml.get_mut().position()
    }

    /// Remembers where the last token started.
    pub(super) fn remember(&mut self) {
        self.xml.get_mut().remember();
    }

    /// Where the token started that was remembered, or a little later if another place was asked for since.
    pub(super) fn remembered(&mut self) -> Position {
        self.xml.get_mut().remembered()
    }

    /// How many elements are open; after a start tag that one is counted.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The local name of the last start tag.
    #[inline]
    pub(super) fn name(&self) -> &str {
        &self.tag[self.name.clone()]
    }

    /// The namespace of the last start tag.
    pub(super) fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// The text that was read last.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether white space at the start of a text is kept. Between elements it says nothing, and most of a document is
    /// white space between elements.
    pub(super) fn keep_whitespace(&mut self, keep: bool) {
        self.xml.config_mut().trim_text_start = !keep;
    }

    /// The next token.
    pub(super) fn next(&mut self) -> Result<Token, ReadError> {
        if self.empty {
            self.empty = false;
            self.close();
            return Ok(Token::Close);
        }
        let skips_whitespace = self.xml.config().trim_text_start;
        self.xml.get_mut().begin(skips_whitespace);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let token = match self.xml.read_event_into(&mut buffer) {
            Ok(_) if self.xml.get_ref().is_too_long() => Err(Fault::Limit(Limit::Text)),
            Ok(event) => self.token(&event),
            Err(error) => Err(error.into()),
        };
        self.buffer = buffer;
        token.map_err(|fault| self.here(fault))
    }

    /// Gives every attribute of the last start tag to `each`.
    pub(super) fn attributes(&mut self, each: impl FnMut(Attribute<'_>)) -> Result<(), ReadError> {
        self.each_attribute(each).map_err(|fault| self.here(fault))
    }

    /// Counts bytes that are kept of the last start tag and may be many more than it has, foreign attributes and further links, to those
    /// of its header or entry, and of the document: who keeps all of it keeps little more than a multiple of its length.
    pub(super) fn count_growth(&mut self, bytes: usize) -> Result<(), ReadError> {
        self.growth = self.growth.saturating_add(bytes);
        let allowed = self.growth_left.saturating_add(GROWTH.saturating_mul(self.tag.len()));
        if self.growth > MAX_FOREIGN || bytes > allowed {
            return Err(self.limit(Limit::Foreign));
        }
        self.growth_left = allowed - bytes;
        Ok(())
    }

    /// Counts them anew, since the header or an entry is over.
    pub(super) fn forget_growth(&mut self) {
        self.growth = 0;
    }

    pub(super) fn limit(&mut self, limit: Limit) -> ReadError {
        self.here(Fault::Limit(limit))
    }

    #[cold]
    fn here(&mut self, fault: Fault) -> ReadError {
        fault.at(self.position(), self.limits)
    }

    fn each_attribute(&self, mut each: impl FnMut(Attribute<'_>)) -> Result<(), Fault> {
        for attribute in &self.attributes {
            let (prefix, name) = match split(&self.tag[attribute.name.clone()])? {
                ("", "xmlns") | ("xmlns", _) => continue,
                parts => parts,
            };
            let value = value(&self.tag[attribute.value.clone()])?;
            // Nearly every attribute is of this kind.
            let (namespace, uri) = match prefix {
                "" => (Namespace::None, ""),
                _ => self.namespaces.resolve(&self.tag[attribute.name.clone()])?,
            };
            each(Attribute { namespace, uri, prefix, name, value });
        }
        Ok(())
    }

    #[inline]
    fn token(&mut self, event: &Event<'_>) -> Result<Token, Fault> {
        match event {
            Event::Start(tag) => return self.start_tag(tag, false),
            Event::Empty(tag) => return self.start_tag(tag, true),
            Event::Text(text) if self.depth > 0 || text.trim_ascii().is_empty() => {
                put_text(&mut self.text, text)?;
            }
            Event::CData(text) if self.depth > 0 => put_text(&mut self.text, text)?,
            Event::GeneralRef(name) if self.depth > 0 => {
                let character = referenced(name)?;
                self.text.clear();
                self.text.push(character);
            }
            Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) => {
                return Err(Fault::Form("text outside of the root element"));
            }
            Event::End(_) => {
                self.close();
                return Ok(Token::Close);
            }
            Event::Comment(_) => return Ok(Token::Aside),
            Event::Decl(declaration) => return self.check_declaration(declaration),
            Event::PI(instruction) => return check_instruction(instruction),
            Event::DocType(declared) => {
                let name = declared.split_ascii_whitespace().next().unwrap_or_default();
                return Err(if is_html(name) { Fault::Html } else { Fault::Dtd });
            }
            Event::Eof => return self.end(),
        }
        Ok(Token::Text)
    }

    fn end(&self) -> Result<Token, Fault> {
        match self.depth {
            0 if self.root_seen => Ok(Token::End),
            0 => Err(Fault::Form("there is no element")),
            open => Err(Fault::Unclosed(open)),
        }
    }

    fn start_tag(&mut self, tag: &BytesStart<'_>, empty: bool) -> Result<Token, Fault> {
        if self.depth == 0 && self.root_seen {
            return Err(Fault::Form("a second root element"));
        }
        if self.depth == MAX_DEPTH {
            return Err(Fault::Limit(Limit::Depth));
        }
        self.tag.clear();
        self.tag.push_str(tag);
        self.empty = empty;
        self.root_seen = true;
        self.depth += 1;
        let end = tag.name().as_ref().len();
        self.collect(end)?;
        self.resolve(end)?;
        Ok(Token::Open)
    }

    /// Finds the attributes, and checks what can be seen of them without their values.
    fn collect(&mut self, name_end: usize) -> Result<(), Fault> {
        self.attributes.clear();
        let mut end = name_end;
        let mut declares = false;
        loop {
            let start = up_to(&self.tag, end, |byte| !is_whitespace(byte));
            if start == self.tag.len() {
                break;
            }
            if self.attributes.len() == MAX_ATTRIBUTES {
                return Err(Fault::Limit(Limit::Attributes));
            }
            let attribute = attribute(&self.tag, start)?;
            if start == end {
                return Err(Fault::Form("white space stands between the attributes of a tag"));
            }
            let name = &self.tag[attribute.name.clone()];
            if self.attributes.iter().any(|other| same(&self.tag[other.name.clone()], name)) {
                return Err(Fault::Form("a tag has an attribute twice"));
            }
            declares |= name.starts_with("xmlns");
            end = attribute.value.end + 1;
            self.attributes.push(attribute);
        }
        if declares { self.declare() } else { Ok(()) }
    }

    fn declare(&mut self) -> Result<(), Fault> {
        for attribute in &self.attributes {
            let prefix = match self.tag[attribute.name.clone()].split_once(':') {
                None if &self.tag[attribute.name.clone()] == "xmlns" => "",
                Some(("xmlns", prefix)) => prefix,
                _ => continue,
            };
            let namespace = value(&self.tag[attribute.value.clone()])?;
            self.namespaces.declare(prefix, &namespace, self.depth)?;
        }
        Ok(())
    }

    fn resolve(&mut self, name_end: usize) -> Result<(), Fault> {
        let name = &self.tag[..name_end];
        if !is_name(name) {
            return Err(NAME);
        }
        let (_, local) = split(name)?;
        let (namespace, uri) = self.namespaces.resolve(name)?;
        if self.depth == 1 && namespace != Namespace::Sitemap {
            return Err(Fault::UnknownRoot { name: local.to_owned(), namespace: uri.to_owned() });
        }
        self.namespace = namespace;
        self.name = name.len() - local.len()..name.len();
        Ok(())
    }

    fn close(&mut self) {
        self.namespaces.leave(self.depth);
        self.depth -= 1;
    }

    fn check_declaration(&mut self, declaration: &BytesDecl<'_>) -> Result<Token, Fault> {
        if self.root_seen || self.position() != START {
            return Err(Fault::Form("an XML declaration stands at the very start"));
        }
        if declaration.version().is_err() {
            return Err(Fault::Form("the XML declaration begins with no version"));
        }
        let known = |name: &str| {
            ["utf-8", "utf8", "us-ascii", "ascii"].iter().any(|known| name.eq_ignore_ascii_case(known))
        };
        match declaration.encoding() {
            None => Ok(Token::Aside),
            Some(Ok(name)) if known(&name) => Ok(Token::Aside),
            Some(Ok(name)) => Err(Fault::Encoding(name.into_owned())),
            Some(Err(AttrError::ExpectedEq(_) | AttrError::ExpectedValue(_))) => Err(NO_VALUE),
            Some(Err(AttrError::UnquotedValue(_) | AttrError::ExpectedQuote(..))) => Err(NO_QUOTES),
            Some(Err(AttrError::Duplicated(..))) => Err(Fault::Form("a declaration says a thing twice")),
        }
    }
}

const START: Position = Position { line: 1, column: 1 };

fn check_instruction(instruction: &BytesPI<'_>) -> Result<Token, Fault> {
    match instruction.target() {
        target if target.eq_ignore_ascii_case("xml") => Err(Fault::Form("<?xml is written in small letters")),
        target if is_name(target) => Ok(Token::Aside),
        _ => Err(Fault::Form("a processing instruction has no name")),
    }
}

/// Replaces the text by what this stands for.
#[inline]
fn put_text(text: &mut String, raw: &str) -> Result<(), Fault> {
    text.clear();
    if is_plain_text(raw) {
        text.push_str(raw);
    } else {
        text.push_str(&unescape_text(raw)?);
    }
    Ok(())
}

/// Equality of short names: byte by byte, since a call that compares many at once waits for those just written.
#[inline]
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(|(one, other)| one == other)
}

/// Prefix and local name.
#[inline]
fn split(name: &str) -> Result<(&str, &str), Fault> {
    // Most names are so short that a search costs more than a look at each byte.
    let Some(colon) = name.bytes().position(|byte| byte == b':') else { return Ok(("", name)) };
    let (prefix, local) = (&name[..colon], &name[colon + 1..]);
    if prefix.is_empty() || local.is_empty() || local.contains(':') {
        return Err(Fault::Form("a name has one colon at most, and not at its ends"));
    }
    Ok((prefix, local))
}

#[inline]
fn value(raw: &str) -> Result<Cow<'_, str>, Fault> {
    if is_plain_value(raw) { Ok(Cow::Borrowed(raw)) } else { unescape_value(raw).map(Cow::Owned) }
}

/// The bytes of a document behind its byte order mark, if they are in UTF-8 as far as the first of them show.
fn open<R: BufRead>(input: R, max_bytes: u64, gzip: bool) -> Result<Input<R>, Fault> {
    let mut input = Input::new(input, max_bytes, gzip)?;
    let first = input.peek()?;
    let found = match first {
        [0xef, 0xbb, 0xbf, 0xef, 0xbb, 0xbf, ..] => "UTF-8 with two byte order marks",
        [0xef, 0xbb, 0xbf, ..] => {
            input.skip_mark(3);
            return Ok(input);
        }
        [0xfe, 0xff, ..] | [0xff, 0xfe, ..] | [0, b'<', ..] | [b'<', 0, ..] => "UTF-16",
        [0x1f, 0x8b, ..] if gzip => "gzip within gzip",
        [0x1f, 0x8b, ..] => "gzip",
        _ => return Ok(input),
    };
    Err(Fault::Encoding(found.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='urn:x'>";

    /// Every token of a document, with its place.
    fn tokens(document: &str) -> Result<Vec<(Token, Position)>, ReadError> {
        let mut tokens = Tokens::new(document.as_bytes(), Options::default())?;
        let mut all = Vec::new();
        while !matches!(all.last(), Some((Token::End, _))) {
            let token = tokens.next()?;
            if token == Token::Open {
                tokens.attributes(|_| {})?;
            }
            all.push((token, tokens.position()));
        }
        Ok(all)
    }

    #[test]
    fn tokens_know_where_they_start() {
        let told: Vec<_> = tokens(&format!("{OPEN}\n <rs:a/>\n  b&lt;<!--\n--> </urlset>\n"))
            .unwrap()
            .into_iter()
            .map(|(token, Position { line, column })| (token, line, column))
            .collect();
        let wanted = [
            (Token::Open, 1, 1),
            (Token::Open, 2, 2),
            (Token::Close, 2, 2),
            (Token::Text, 3, 3),
            (Token::Text, 3, 4),
            (Token::Aside, 3, 8),
            (Token::Close, 4, 5),
            (Token::End, 5, 1),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn what_quick_xml_lets_pass_is_refused_here() {
        for content in [
            "<1a/>",
            "< a/>",
            "<>",
            "<a b/>",
            "<a b=1/>",
            "<a b='1'c='2'/>",
            "<a b='<'/>",
            "<a / >",
            "<a b='' b=''/>",
            "<a b&c=''/>",
            "<a\"\"/>",
            "<a::b/>",
            "<a :b=''/>",
            "<x:a/>",
            "<a x:b=''/>",
            "<a b='&'/>",
            "<a b='&#1;'/>",
            "&#1;",
            "& b",
            "&;",
            "&a b;",
            "]]>",
            "<!x>",
            "<!-- -- -->",
            "<?xml version='1.0'?>",
            "<?XML version='1.0'?>",
            "<? a?>",
            "\u{ffff}",
        ] {
            let document = format!("{OPEN}{content}</urlset>");
            let position = Position { line: 1, column: OPEN.len() as u64 + 1 };
            match tokens(&document) {
                Err(ReadError::NotWellFormed { position: told, .. }) => {
                    assert_eq!(told, position, "{content}");
                }
                other => panic!("{content}: {other:?}"),
            }
        }
    }

    #[test]
    fn rs051_every_document_type_is_refused_by_name_whole_or_not() {
        for declaration in ["<!DOCTYPE u>", "<!DOCTYPE u [<!ENTITY a 'x'>", "<!DOCTYPE>", "<!doctype htm>"] {
            let document = format!("\n{declaration}{OPEN}</urlset>");
            match tokens(&document) {
                Err(ReadError::Dtd { position }) => assert_eq!(position, Position { line: 2, column: 1 }),
                other => panic!("{declaration}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_page_for_browsers_is_said_to_be_one() {
        for page in [
            "<!doctype html><p>",
            "<!DOCTYPE HTML PUBLIC '-//W3C//DTD HTML 4.01//EN'>",
            "<html>",
            "<HTML lang='en'/>",
        ] {
            let error = tokens(page).unwrap_err();
            assert!(error.is_html() && error.to_string().contains("this is an HTML page"), "{page}: {error}");
        }
        for other in ["<!DOCTYPE u>", "<feed/>", "<p>"] {
            let error = tokens(other).unwrap_err();
            assert!(!error.is_html() && !error.to_string().contains("HTML"), "{other}: {error}");
        }
    }

    #[test]
    fn alpha029_elements_that_end_wrongly_are_named() {
        let ended = |content: &str| tokens(&format!("{OPEN}{content}")).unwrap_err();
        assert!(matches!(
            ended("<rs:a></a></urlset>"),
            ReadError::EndTag { expected, found, .. } if expected == "rs:a" && found == "a"
        ));
        let end = u64::try_from(OPEN.len()).unwrap() + 4;
        assert!(matches!(
            ended("<a>"),
            ReadError::Unclosed { open: 2, position } if position.column == end
        ));
        assert!(matches!(ended("</urlset></a>"), ReadError::NotWellFormed { .. }));
    }
}
