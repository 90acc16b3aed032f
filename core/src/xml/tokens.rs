//! The safe subset of XML as tokens: well-formed, in UTF-8, no document type, no entities but XML's own (RS-051).
//!
//! `quick-xml` reads; what it leaves to its caller is checked here.

use std::borrow::Cow;
use std::io::{self, BufRead};
use std::ops::Range;
use std::sync::Arc;

use quick_xml::errors::{Error, IllFormedError, SyntaxError};
use quick_xml::events::attributes::AttrError;
use quick_xml::events::{BytesDecl, BytesPI, BytesStart, Event};

use super::characters::{BARE, cook_text, cook_value, is_name, is_plain_text, is_plain_value, referenced};
use super::error::Unreadable;
use super::input::{Input, Refused, is_space};
use super::namespaces::{Namespaces, Space, same};
use super::pieces::{NAME, NO_QUOTES, NO_VALUE, RawAttribute, attribute, up_to};
use super::{Limit, Limits, MAX_ATTRIBUTES, MAX_DEPTH, Options, Position, ReadError};

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

/// One attribute that is no namespace declaration.
pub(super) struct Attribute<'a> {
    pub(super) space: Space,
    /// Empty for none.
    pub(super) namespace: &'a str,
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
    space: Space,
    empty: bool,
    text: String,
    root_seen: bool,
    limits: Limits,
}

impl<R: BufRead> Tokens<R> {
    pub(super) fn new(input: R, options: Options) -> Result<Self, ReadError> {
        let Options { limits, gzip, .. } = options;
        let start = Position { line: 1, column: 1 };
        let unreadable = |error| unreadable(error, limits, start);
        let mut input = Input::new(input, limits.bytes, gzip).map_err(unreadable)?;
        refuse_other_encodings(&mut input, gzip, unreadable)?;
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
            space: Space::None,
            empty: false,
            text: String::new(),
            root_seen: false,
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
    pub(super) fn space(&self) -> Space {
        self.space
    }

    /// The text that was read last.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether white space at the start of a text is kept. Between elements it says nothing, and most of a document is
    /// white space between elements.
    pub(super) fn keep_space(&mut self, keep: bool) {
        self.xml.config_mut().trim_text_start = !keep;
    }

    /// The next token.
    pub(super) fn next(&mut self) -> Result<Token, ReadError> {
        if self.empty {
            self.empty = false;
            self.close();
            return Ok(Token::Close);
        }
        let skips_space = self.xml.config().trim_text_start;
        self.xml.get_mut().begin(skips_space);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let token = match self.xml.read_event_into(&mut buffer) {
            Ok(_) if self.xml.get_ref().is_too_long() => Err(self.limit(Limit::Text)),
            Ok(event) => self.token(&event),
            Err(error) => Err(self.broken(error)),
        };
        self.buffer = buffer;
        token
    }

    /// Gives every attribute of the last start tag to `each`.
    pub(super) fn attributes(&mut self, mut each: impl FnMut(Attribute<'_>)) -> Result<(), ReadError> {
        for attribute in &self.attributes {
            let name = &self.tag[attribute.name.clone()];
            let (prefix, name) = match split(name) {
                Some(("", "xmlns") | ("xmlns", _)) => continue,
                Some(parts) => parts,
                None => return Err(self.refuse(Unreadable::Form(COLONS))),
            };
            let value = match value(&self.tag[attribute.value.clone()]) {
                Ok(value) => value,
                Err(cause) => return Err(self.refuse(cause)),
            };
            let resolved =
                if prefix.is_empty() { Some((Space::None, "")) } else { self.namespaces.resolve(prefix) };
            let Some((space, namespace)) = resolved else {
                let cause = Unreadable::Prefix(prefix.to_owned());
                return Err(self.refuse(cause));
            };
            each(Attribute { space, namespace, prefix, name, value });
        }
        Ok(())
    }

    pub(super) fn limit(&mut self, limit: Limit) -> ReadError {
        ReadError::Limit { limit, max: limit.max(self.limits), position: self.position() }
    }

    fn malformed(&mut self, reason: impl Into<String>) -> ReadError {
        ReadError::NotWellFormed { position: self.position(), reason: reason.into() }
    }

    fn unreadable(&mut self, error: io::Error) -> ReadError {
        unreadable(error, self.limits, self.position())
    }

    #[cold]
    fn refuse(&mut self, cause: Unreadable) -> ReadError {
        match cause {
            Unreadable::Entity(name) => ReadError::Entity { position: self.position(), name },
            other => self.malformed(other.to_string()),
        }
    }

    /// What makes `quick-xml` stop.
    #[cold]
    fn broken(&mut self, error: Error) -> ReadError {
        let position = self.position();
        match error {
            Error::Io(cause) => {
                let cause =
                    Arc::try_unwrap(cause).unwrap_or_else(|shared| io::Error::new(shared.kind(), shared));
                self.unreadable(cause)
            }
            Error::Encoding(_) => self.refuse(NOT_UTF8),
            Error::Syntax(SyntaxError::UnclosedDoctype)
            | Error::IllFormed(IllFormedError::MissingDoctypeName) => ReadError::Dtd { position },
            Error::IllFormed(IllFormedError::UnclosedReference) => self.refuse(BARE),
            Error::IllFormed(IllFormedError::MismatchedEndTag { expected, found }) => {
                ReadError::EndTag { position, expected, found }
            }
            other => self.malformed(other.to_string()),
        }
    }

    #[inline]
    fn token(&mut self, event: &Event<'_>) -> Result<Token, ReadError> {
        match event {
            Event::Start(tag) => self.start_tag(tag, false),
            Event::Empty(tag) => self.start_tag(tag, true),
            Event::End(_) => {
                self.close();
                Ok(Token::Close)
            }
            Event::Text(text) if self.depth > 0 || text.trim_ascii().is_empty() => self.read_text(text),
            Event::CData(text) if self.depth > 0 => self.read_text(text),
            Event::GeneralRef(name) if self.depth > 0 => self.read_reference(name),
            Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) => Err(self.malformed(OUTSIDE)),
            Event::Comment(_) => Ok(Token::Aside),
            Event::Decl(declaration) => self.check_declaration(declaration),
            Event::PI(instruction) => self.check_instruction(instruction),
            Event::DocType(_) => Err(ReadError::Dtd { position: self.position() }),
            Event::Eof => self.end(),
        }
    }

    fn end(&mut self) -> Result<Token, ReadError> {
        match self.depth {
            0 if self.root_seen => Ok(Token::End),
            0 => Err(self.malformed("there is no element")),
            open => Err(ReadError::Unclosed { position: self.position(), open }),
        }
    }

    #[inline]
    fn read_text(&mut self, raw: &str) -> Result<Token, ReadError> {
        match put_text(&mut self.text, raw) {
            Ok(()) => Ok(Token::Text),
            Err(cause) => Err(self.refuse(cause)),
        }
    }

    fn read_reference(&mut self, name: &str) -> Result<Token, ReadError> {
        let character = referenced(name).map_err(|cause| self.refuse(cause))?;
        self.text.clear();
        self.text.push(character);
        Ok(Token::Text)
    }

    fn start_tag(&mut self, tag: &BytesStart<'_>, empty: bool) -> Result<Token, ReadError> {
        if self.depth == 0 && self.root_seen {
            return Err(self.malformed("a second root element"));
        }
        if self.depth == MAX_DEPTH {
            return Err(self.limit(Limit::Depth));
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

    /// Notes where the attributes are, and checks what can be seen of them without their values.
    fn collect(&mut self, name_end: usize) -> Result<(), ReadError> {
        self.attributes.clear();
        let mut end = name_end;
        let mut declares = false;
        loop {
            let start = up_to(&self.tag, end, |byte| !is_space(byte));
            if start == self.tag.len() {
                break;
            }
            if self.attributes.len() == MAX_ATTRIBUTES {
                return Err(self.limit(Limit::Attributes));
            }
            let attribute = match attribute(&self.tag, start) {
                Ok(attribute) => attribute,
                Err(reason) => return Err(self.malformed(reason)),
            };
            if start == end {
                return Err(self.malformed("white space stands between the attributes of a tag"));
            }
            let name = &self.tag[attribute.name.clone()];
            if self.attributes.iter().any(|other| same(&self.tag[other.name.clone()], name)) {
                return Err(self.malformed("a tag has an attribute twice"));
            }
            declares |= name.starts_with("xmlns");
            end = attribute.value.end + 1;
            self.attributes.push(attribute);
        }
        if declares { self.declare() } else { Ok(()) }
    }

    fn declare(&mut self) -> Result<(), ReadError> {
        for attribute in &self.attributes {
            let Some(prefix) = self.tag[attribute.name.clone()].strip_prefix("xmlns") else { continue };
            let prefix = match prefix.strip_prefix(':') {
                None if prefix.is_empty() => "",
                None => continue,
                Some(prefix) => prefix,
            };
            let declared = value(&self.tag[attribute.value.clone()]).and_then(|namespace| {
                self.namespaces.declare(prefix, namespace, self.depth).map_err(Unreadable::Form)
            });
            if let Err(cause) = declared {
                return Err(self.refuse(cause));
            }
        }
        Ok(())
    }

    fn resolve(&mut self, name_end: usize) -> Result<(), ReadError> {
        let name = &self.tag[..name_end];
        if !is_name(name) {
            return Err(self.malformed(NAME));
        }
        let Some((prefix, local)) = split(name) else {
            return Err(self.malformed(COLONS));
        };
        let Some((space, namespace)) = self.namespaces.resolve(prefix) else {
            return Err(self.refuse(Unreadable::Prefix(prefix.to_owned())));
        };
        if self.depth == 1 && space != Space::Sitemap {
            let (name, namespace) = (local.to_owned(), namespace.to_owned());
            return Err(ReadError::UnknownRoot { position: self.position(), name, namespace });
        }
        self.space = space;
        self.name = name.len() - local.len()..name.len();
        Ok(())
    }

    fn close(&mut self) {
        self.namespaces.leave(self.depth);
        self.depth -= 1;
    }

    fn check_instruction(&mut self, instruction: &BytesPI<'_>) -> Result<Token, ReadError> {
        match instruction.target() {
            target if target.eq_ignore_ascii_case("xml") => {
                Err(self.malformed("<?xml is written in small letters"))
            }
            target if is_name(target) => Ok(Token::Aside),
            _ => Err(self.malformed("a processing instruction has no name")),
        }
    }

    fn check_declaration(&mut self, declaration: &BytesDecl<'_>) -> Result<Token, ReadError> {
        if self.root_seen || self.position() != (Position { line: 1, column: 1 }) {
            return Err(self.malformed("an XML declaration stands at the very start"));
        }
        if declaration.version().is_err() {
            return Err(self.malformed("the XML declaration begins with no version"));
        }
        let known = |name: &str| {
            ["utf-8", "utf8", "us-ascii", "ascii"].iter().any(|known| name.eq_ignore_ascii_case(known))
        };
        match declaration.encoding() {
            None => Ok(Token::Aside),
            Some(Ok(name)) if known(&name) => Ok(Token::Aside),
            Some(Ok(name)) => Err(ReadError::Encoding { found: name.into_owned() }),
            Some(Err(error)) => Err(self.malformed(flaw(&error))),
        }
    }
}

const COLONS: &str = "a name has one colon at most, and not at its ends";
const OUTSIDE: &str = "text outside of the root element";
const NOT_UTF8: Unreadable = Unreadable::Form("what follows is not UTF-8");

fn flaw(error: &AttrError) -> &'static str {
    match error {
        AttrError::ExpectedEq(_) | AttrError::ExpectedValue(_) => NO_VALUE,
        AttrError::UnquotedValue(_) | AttrError::ExpectedQuote(..) => NO_QUOTES,
        AttrError::Duplicated(..) => "a declaration says a thing twice",
    }
}

/// Replaces the text by what this stands for.
#[inline]
fn put_text(text: &mut String, raw: &str) -> Result<(), Unreadable> {
    text.clear();
    if is_plain_text(raw) {
        text.push_str(raw);
    } else {
        text.push_str(&cook_text(raw)?);
    }
    Ok(())
}

/// Prefix and local name; `None` for more than one colon, or one at an end.
#[inline]
fn split(name: &str) -> Option<(&str, &str)> {
    // Most names are so short that a search costs more than a look at each byte.
    match name.bytes().position(|byte| byte == b':') {
        None => Some(("", name)),
        Some(colon) => {
            let (prefix, local) = (&name[..colon], &name[colon + 1..]);
            let fits = !prefix.is_empty() && !local.is_empty() && !local.contains(':');
            fits.then_some((prefix, local))
        }
    }
}

#[inline]
fn value(raw: &str) -> Result<Cow<'_, str>, Unreadable> {
    if is_plain_value(raw) { Ok(Cow::Borrowed(raw)) } else { cook_value(raw).map(Cow::Owned) }
}

fn unreadable(error: io::Error, limits: Limits, position: Position) -> ReadError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()) {
        Some(Refused::Limit(limit)) => ReadError::Limit { limit: *limit, max: limit.max(limits), position },
        Some(Refused::Gzip(reason)) => ReadError::Gzip { reason: reason.clone() },
        None => ReadError::Io(error),
    }
}

/// Names what cannot be read as UTF-8 by its first bytes, and takes a UTF-8 byte order mark.
fn refuse_other_encodings<R: BufRead>(
    input: &mut Input<R>,
    gzip: bool,
    unreadable: impl FnOnce(io::Error) -> ReadError,
) -> Result<(), ReadError> {
    let first = input.peek().map_err(unreadable)?;
    let found = match first {
        [0xef, 0xbb, 0xbf, 0xef, 0xbb, 0xbf, ..] => "UTF-8 with two byte order marks",
        [0xef, 0xbb, 0xbf, ..] => {
            input.skip_mark(3);
            return Ok(());
        }
        [0xfe, 0xff, ..] | [0xff, 0xfe, ..] | [0, b'<', ..] | [b'<', 0, ..] => "UTF-16",
        [0x1f, 0x8b, ..] if gzip => "gzip within gzip",
        [0x1f, 0x8b, ..] => "gzip",
        _ => return Ok(()),
    };
    Err(ReadError::Encoding { found: found.to_owned() })
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
        for declaration in ["<!DOCTYPE u>", "<!DOCTYPE u [<!ENTITY a 'x'>", "<!DOCTYPE>", "<!doctype html>"] {
            let document = format!("\n{declaration}{OPEN}</urlset>");
            match tokens(&document) {
                Err(ReadError::Dtd { position }) => assert_eq!(position, Position { line: 2, column: 1 }),
                other => panic!("{declaration}: {other:?}"),
            }
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
