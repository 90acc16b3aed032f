//! Text and tags as they are cut out of the bytes, and attributes as they are cut out of a tag.

use std::io::{self, BufRead};
use std::ops::Range;

use quick_xml::parser::{ElementParser, Parser as _};

use super::characters::is_name;
use super::input::{Input, is_space};

pub(super) const NAME: &str = "a name begins with a letter and has letters, digits and -._: in it";
pub(super) const NO_VALUE: &str = "an attribute has no value";
pub(super) const NO_QUOTES: &str = "an attribute value has no quotes";

/// What comes next in the bytes.
pub(super) enum Piece {
    Text,
    /// A start tag or an empty element.
    Start,
    End,
    /// A tag that the bytes end in.
    Unclosed,
    /// Something else, of which nothing was taken yet.
    Other,
}

/// Takes what comes next when it is a text or a tag.
#[inline]
pub(super) fn take_piece<R: BufRead>(input: &mut Input<R>, keeps_space: bool) -> io::Result<Piece> {
    if keeps_space {
        input.begin();
    } else {
        input.begin_behind_space()?;
    }
    let piece = match input.next_two()? {
        [] | [b'&', ..] | [b'<', b'!' | b'?'] => return Ok(Piece::Other),
        [b'<', b'/'] => Piece::End,
        [b'<', ..] => Piece::Start,
        _ => {
            input.take_to(|bytes| memchr::memchr2(b'<', b'&', bytes))?;
            return Ok(Piece::Text);
        }
    };
    let mut tag = ElementParser::default();
    let is_closed = input.take_to(|bytes| tag.feed(bytes).map(|end| end + 1))?;
    Ok(if is_closed { piece } else { Piece::Unclosed })
}

/// `name="value"`, the value without its quotes.
pub(super) struct RawAttribute {
    pub(super) name: Range<usize>,
    pub(super) value: Range<usize>,
}

/// The attribute that begins here, or what is wrong with it.
pub(super) fn attribute(tag: &str, start: usize) -> Result<RawAttribute, &'static str> {
    let bytes = tag.as_bytes();
    let name = start..up_to(tag, start, |byte| byte == b'=' || is_space(byte));
    let equals = up_to(tag, name.end, |byte| !is_space(byte));
    if bytes.get(equals) != Some(&b'=') {
        return Err(NO_VALUE);
    }
    let quote = up_to(tag, equals + 1, |byte| !is_space(byte));
    let &mark = bytes.get(quote).ok_or(NO_VALUE)?;
    let value = &bytes[quote + 1..];
    let length = memchr::memchr(mark, value).filter(|_| matches!(mark, b'"' | b'\'')).ok_or(NO_QUOTES)?;
    if !is_name(&tag[name.clone()]) {
        return Err(NAME);
    }
    Ok(RawAttribute { name, value: quote + 1..quote + 1 + length })
}

/// The index of the first such byte at or behind the start; the end when there is none.
#[inline]
pub(super) fn up_to(text: &str, start: usize, wanted: impl Fn(u8) -> bool) -> usize {
    let rest = &text.as_bytes()[start..];
    start + rest.iter().position(|&byte| wanted(byte)).unwrap_or(rest.len())
}

/// The names of the elements that are open, outermost first.
#[derive(Default)]
pub(super) struct OpenElements {
    names: String,
    starts: Vec<usize>,
}

impl OpenElements {
    pub(super) fn depth(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn last(&self) -> &str {
        self.starts.last().map_or("", |&start| &self.names[start..])
    }

    pub(super) fn push(&mut self, name: &str) {
        self.starts.push(self.names.len());
        self.names.push_str(name);
    }

    pub(super) fn pop(&mut self) {
        if let Some(start) = self.starts.pop() {
            self.names.truncate(start);
        }
    }
}
