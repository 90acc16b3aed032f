//! The safe subset of XML as tokens: well-formed, in UTF-8, no document type, no entities but XML's own (RS-051).

use std::borrow::Cow;
use std::io::{self, BufRead};

use quick_xml::errors::Error;
use quick_xml::escape::{EscapeError, resolve_predefined_entity, unescape};
use quick_xml::events::attributes::Attribute as RawAttribute;
use quick_xml::events::{BytesDecl, BytesRef, BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::{NsReader, XmlVersion};

use super::characters::is_allowed;
use super::input::{Input, Reached};
use super::{
    Limit, Limits, MAX_ATTRIBUTES, MAX_DEPTH, MAX_TEXT, Position, RS_NAMESPACE, ReadError, SITEMAP_NAMESPACE,
    forbidden_character,
};

/// One token. White space is text like any other.
pub(super) enum Token<'b> {
    Open(Tag<'b>),
    Close,
    Text(Cow<'b, str>),
    /// A comment, a processing instruction or the XML declaration: nothing that is said to us.
    Aside,
    /// The end of a well-formed document.
    End,
}

/// A start tag; an empty element comes as [`Token::Open`] and [`Token::Close`].
pub(super) struct Tag<'b> {
    start: BytesStart<'b>,
    pub(super) space: Space,
}

/// The namespaces that mean something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    None,
    Sitemap,
    Rs,
    Foreign,
}

/// One attribute that is no namespace declaration.
pub(super) struct Attribute<'a> {
    pub(super) space: Space,
    /// Empty for none.
    pub(super) namespace: Cow<'a, str>,
    pub(super) prefix: &'a str,
    pub(super) name: &'a str,
    pub(super) value: Cow<'a, str>,
}

impl Tag<'_> {
    /// The local name.
    pub(super) fn name(&self) -> &str {
        self.start.local_name().into_inner()
    }
}

pub(super) struct Tokens<R: BufRead> {
    xml: NsReader<Input<R>>,
    limits: Limits,
    depth: usize,
    root_seen: bool,
    /// Where the last token started.
    position: Position,
}

impl<R: BufRead> Tokens<R> {
    pub(super) fn new(input: R, limits: Limits) -> Result<Self, ReadError> {
        let mut input = Input::new(input, limits.bytes);
        refuse_other_encodings(&mut input)?;
        let mut xml = NsReader::from_reader(input);
        let config = xml.config_mut();
        config.expand_empty_elements = true;
        config.check_comments = true;
        Ok(Self { xml, limits, depth: 0, root_seen: false, position: Position { line: 1, column: 1 } })
    }

    /// Where the last token started.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// How many elements are open; after a start tag that one is counted.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The next token; the buffer holds its text.
    pub(super) fn next<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Result<Token<'b>, ReadError> {
        buffer.clear();
        let start = self.xml.buffer_position();
        self.position = self.xml.get_mut().token_at(start);
        match self.xml.read_event_into(buffer) {
            Err(error) => Err(self.broken(error)),
            Ok(Event::Start(start)) => self.open(start).map(Token::Open),
            Ok(Event::End(_)) => {
                self.depth -= 1;
                Ok(Token::Close)
            }
            Ok(Event::Text(text)) => self.text(text.xml10_content()),
            Ok(Event::CData(text)) => self.text(text.xml10_content()),
            Ok(Event::GeneralRef(reference)) => self.reference(&reference),
            Ok(Event::Decl(declaration)) => self.declaration(&declaration),
            Ok(Event::DocType(_)) => Err(ReadError::Dtd { position: self.position }),
            // With expand_empty_elements no Empty event comes.
            Ok(Event::Comment(_) | Event::PI(_) | Event::Empty(_)) => Ok(Token::Aside),
            Ok(Event::Eof) => self.end(),
        }
    }

    /// Gives every attribute of a tag to `each`.
    pub(super) fn attributes(
        &self,
        tag: &Tag<'_>,
        mut each: impl FnMut(Attribute<'_>),
    ) -> Result<(), ReadError> {
        for (count, attribute) in tag.start.attributes().enumerate() {
            if count == MAX_ATTRIBUTES {
                return Err(self.limit(Limit::Attributes));
            }
            let raw = attribute.map_err(|error| self.malformed(error.to_string()))?;
            let value = self.attribute_value(&raw)?;
            if raw.key.as_namespace_binding().is_some() {
                continue;
            }
            let (resolved, name) = self.xml.resolver().resolve_attribute(raw.key);
            let (space, namespace) = self.space(&resolved)?;
            let namespace = if space == Space::Foreign {
                unescape(namespace).map_err(|error| self.broken_escape(&error))?
            } else {
                Cow::Borrowed(namespace)
            };
            let prefix = raw.key.prefix().map_or("", |prefix| prefix.into_inner());
            each(Attribute { space, namespace, prefix, name: name.into_inner(), value });
        }
        Ok(())
    }

    pub(super) fn malformed(&self, reason: impl Into<String>) -> ReadError {
        ReadError::NotWellFormed { position: self.position, reason: reason.into() }
    }

    pub(super) fn limit(&self, limit: Limit) -> ReadError {
        let max = match limit {
            Limit::Bytes => self.limits.bytes,
            Limit::Entries => count(self.limits.entries),
            Limit::Links => count(super::MAX_LINKS),
            Limit::Depth => count(MAX_DEPTH),
            Limit::Attributes => count(MAX_ATTRIBUTES),
            Limit::Text => count(MAX_TEXT),
        };
        ReadError::Limit { limit, max, position: self.position }
    }

    fn open<'b>(&mut self, start: BytesStart<'b>) -> Result<Tag<'b>, ReadError> {
        if self.depth == 0 && self.root_seen {
            return Err(self.malformed("a second root element"));
        }
        self.root_seen = true;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.limit(Limit::Depth));
        }
        let (resolved, name) = self.xml.resolver().resolve_element(start.name());
        let (space, namespace) = self.space(&resolved)?;
        if self.depth == 1 && space != Space::Sitemap {
            return Err(ReadError::UnknownRoot {
                position: self.position,
                name: name.into_inner().to_owned(),
                namespace: namespace.to_owned(),
            });
        }
        Ok(Tag { start, space })
    }

    fn text<'b>(&self, text: Cow<'b, str>) -> Result<Token<'b>, ReadError> {
        if self.depth == 0 && !text.trim_ascii().is_empty() {
            return Err(self.malformed("text outside of the root element"));
        }
        self.refuse_forbidden(&text)?;
        Ok(Token::Text(text))
    }

    fn reference<'b>(&self, reference: &BytesRef<'_>) -> Result<Token<'b>, ReadError> {
        if self.depth == 0 {
            return Err(self.malformed("a reference outside of the root element"));
        }
        let name: &str = reference;
        match reference.resolve_char_ref() {
            Ok(Some(character)) if is_allowed(character) => Ok(Token::Text(Cow::Owned(character.into()))),
            Ok(None) => resolve_predefined_entity(name)
                .map(|text| Token::Text(Cow::Borrowed(text)))
                .ok_or_else(|| ReadError::Entity { position: self.position, name: name.to_owned() }),
            Ok(Some(_)) | Err(_) => Err(self.malformed(format!("&{name}; is no character of XML"))),
        }
    }

    fn declaration<'b>(&self, declaration: &BytesDecl<'_>) -> Result<Token<'b>, ReadError> {
        declaration.xml_version().map_err(|error| self.malformed(error.to_string()))?;
        if let Some(encoding) = declaration.encoding() {
            let name = encoding.map_err(|error| self.malformed(error.to_string()))?;
            if !["utf-8", "utf8", "us-ascii", "ascii"].iter().any(|known| name.eq_ignore_ascii_case(known)) {
                return Err(ReadError::Encoding { found: name.into_owned() });
            }
        }
        Ok(Token::Aside)
    }

    fn end<'b>(&self) -> Result<Token<'b>, ReadError> {
        match (self.depth, self.root_seen) {
            (0, true) => Ok(Token::End),
            (0, false) => Err(self.malformed("there is no element")),
            (open, _) => Err(self.malformed(format!("the document ends while {open} elements are open"))),
        }
    }

    fn space<'r>(&self, resolved: &ResolveResult<'r>) -> Result<(Space, &'r str), ReadError> {
        match resolved {
            ResolveResult::Unbound => Ok((Space::None, "")),
            ResolveResult::Bound(Namespace(SITEMAP_NAMESPACE)) => Ok((Space::Sitemap, SITEMAP_NAMESPACE)),
            ResolveResult::Bound(Namespace(RS_NAMESPACE)) => Ok((Space::Rs, RS_NAMESPACE)),
            ResolveResult::Bound(Namespace(other)) => Ok((Space::Foreign, other)),
            ResolveResult::Unknown(prefix) => {
                Err(self.malformed(format!("the namespace prefix {prefix:?} is not declared")))
            }
        }
    }

    fn attribute_value<'a>(&self, raw: &RawAttribute<'a>) -> Result<Cow<'a, str>, ReadError> {
        if raw.value.contains('<') {
            return Err(self.malformed("an attribute value has a bare <"));
        }
        let value = raw.normalized_value(XmlVersion::Implicit1_0).map_err(|error| match error {
            Error::Escape(escape) => self.broken_escape(&escape),
            other => self.malformed(other.to_string()),
        })?;
        self.refuse_forbidden(&value)?;
        Ok(value)
    }

    fn refuse_forbidden(&self, text: &str) -> Result<(), ReadError> {
        match forbidden_character(text) {
            None => Ok(()),
            Some(character) => {
                Err(self.malformed(format!("U+{:04X} is no character of XML", u32::from(character))))
            }
        }
    }

    fn broken_escape(&self, error: &EscapeError) -> ReadError {
        match error {
            EscapeError::UnrecognizedEntity(_, name) => {
                ReadError::Entity { position: self.position, name: name.clone() }
            }
            other => self.malformed(other.to_string()),
        }
    }

    fn broken(&mut self, error: Error) -> ReadError {
        let offset = self.xml.error_position();
        self.position = self.xml.get_mut().position(offset).max(self.position);
        match error {
            Error::Io(cause) => match cause.get_ref().and_then(|inner| inner.downcast_ref::<Reached>()) {
                Some(Reached(limit)) => self.limit(*limit),
                None => ReadError::Io(io::Error::new(cause.kind(), cause)),
            },
            other => self.malformed(other.to_string()),
        }
    }
}

fn count(limit: usize) -> u64 {
    u64::try_from(limit).unwrap_or(u64::MAX)
}

/// Names what cannot be read as UTF-8 by its first bytes, and takes a UTF-8 byte order mark.
fn refuse_other_encodings<R: BufRead>(input: &mut Input<R>) -> Result<(), ReadError> {
    let first = input.peek().map_err(ReadError::Io)?;
    let found = match first {
        [0xef, 0xbb, 0xbf, ..] => {
            input.skip_mark(3);
            return Ok(());
        }
        [0xfe, 0xff, ..] | [0xff, 0xfe, ..] | [0, b'<', ..] | [b'<', 0, ..] => "UTF-16",
        [0x1f, 0x8b, ..] => "gzip",
        _ => return Ok(()),
    };
    Err(ReadError::Encoding { found: found.to_owned() })
}
