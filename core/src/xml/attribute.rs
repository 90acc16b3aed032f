//! Attributes as they are cut out of a tag.
//!
//! The iterator of `quick-xml` does not do: it hands out borrowed text where the reader keeps ranges of its own copy of the
//! tag, and it accepts two attributes without white space between them.

use std::ops::Range;

use super::characters::is_name;
use super::error::Fault;
use super::input::is_whitespace;

pub(super) const NAME: Fault =
    Fault::Form("a name begins with a letter and has letters, digits and -._: in it");
pub(super) const NO_VALUE: Fault = Fault::Form("an attribute has no value");
pub(super) const NO_QUOTES: Fault = Fault::Form("an attribute value has no quotes");

/// `name="value"`, the value without its quotes.
pub(super) struct RawAttribute {
    pub(super) name: Range<usize>,
    pub(super) value: Range<usize>,
}

/// The attribute that begins here, or what is wrong with it.
pub(super) fn attribute(tag: &str, start: usize) -> Result<RawAttribute, Fault> {
    let bytes = tag.as_bytes();
    let name = start..up_to(tag, start, |byte| byte == b'=' || is_whitespace(byte));
    let equals = up_to(tag, name.end, |byte| !is_whitespace(byte));
    if bytes.get(equals) != Some(&b'=') {
        return Err(NO_VALUE);
    }
    let quote = up_to(tag, equals + 1, |byte| !is_whitespace(byte));
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
