//! Characters: which ones XML can carry, how the ones with a meaning are escaped, and what raw text stands for.

use std::borrow::Cow;

use quick_xml::XmlVersion;
use quick_xml::errors::Error;
use quick_xml::escape::{EscapeError, resolve_predefined_entity};
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesRef, BytesText};
use quick_xml::name::QName;

use super::error::Unreadable;

pub(super) const BARE: Unreadable = Unreadable::Form("an & begins no reference; write it as &amp;");

/// The first character that XML 1.0 cannot carry, not even as a character reference.
pub(crate) fn forbidden_character(text: &str) -> Option<char> {
    if !any(text, [0xef]) {
        return None;
    }
    text.chars().find(|&c| !is_allowed(c))
}

/// Whether an attribute value means itself: no references, nothing to normalise, nothing that may be forbidden.
#[inline]
pub(super) fn is_plain_value(raw: &str) -> bool {
    !any(raw, [b'&', b'<', 0xef])
}

/// The same for text between tags, which has its references apart and may not have the end of CDATA.
#[inline]
pub(super) fn is_plain_text(raw: &str) -> bool {
    !any(raw, [b']', 0xef])
}

/// What an attribute value stands for (XML 1.0, 3.3.3).
pub(super) fn cook_value(raw: &str) -> Result<String, Unreadable> {
    if raw.contains('<') {
        return Err(Unreadable::Form("an attribute value has a bare <"));
    }
    let attribute = Attribute { key: QName(""), value: Cow::Borrowed(raw) };
    let cooked = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| match error {
        Error::Escape(EscapeError::UnrecognizedEntity(_, name)) => undefined(&name),
        Error::Escape(EscapeError::InvalidCharRef(_)) => {
            Unreadable::Form("a reference names no character of XML")
        }
        _ => BARE,
    })?;
    refuse_forbidden(&cooked)?;
    Ok(cooked.into_owned())
}

/// What text between tags or in CDATA stands for (XML 1.0, 2.11).
pub(super) fn cook_text(raw: &str) -> Result<Cow<'_, str>, Unreadable> {
    refuse_forbidden(raw)?;
    if raw.contains("]]>") {
        return Err(Unreadable::Form("]]> stands outside of CDATA; write it as ]]&gt;"));
    }
    Ok(BytesText::from_escaped(raw).xml10_content())
}

/// The character that a reference names, without its `&` and `;`.
pub(super) fn referenced(name: &str) -> Result<char, Unreadable> {
    match BytesRef::new(name).resolve_char_ref() {
        Ok(Some(character)) if is_allowed(character) => Ok(character),
        Ok(None) => resolve_predefined_entity(name)
            .and_then(|text| text.chars().next())
            .ok_or_else(|| undefined(name)),
        Ok(Some(_)) | Err(_) => Err(Unreadable::Reference(name.to_owned())),
    }
}

fn undefined(name: &str) -> Unreadable {
    if is_name(name) { Unreadable::Entity(name.to_owned()) } else { BARE }
}

/// Whether this may be a name. Every character beyond ASCII passes: which of them may stand in names depends on the
/// edition of XML.
#[inline]
pub(super) fn is_name(name: &str) -> bool {
    let fits =
        |byte: u8| byte.is_ascii_alphanumeric() || byte >= 0x80 || matches!(byte, b':' | b'_' | b'-' | b'.');
    !name.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '.'))
        && !name.is_empty()
        && name.bytes().all(fits)
}

fn refuse_forbidden(text: &str) -> Result<(), Unreadable> {
    forbidden_character(text).map_or(Ok(()), |character| Err(Unreadable::Character(character)))
}

pub(super) fn is_allowed(c: char) -> bool {
    !matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Appends a text so that it is read back unchanged as element content or, within double quotes, as attribute value.
///
/// Line ends and tabs become references, since a reader would turn them into other white space.
pub(super) fn push_escaped(out: &mut String, text: &str) {
    if !any(text, [b'&', b'<', b'>', b'"']) {
        out.push_str(text);
        return;
    }
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'"' => "&quot;",
            b'\t' => "&#9;",
            b'\n' => "&#10;",
            b'\r' => "&#13;",
            _ => continue,
        };
        out.push_str(&text[plain..at]);
        out.push_str(escape);
        plain = at + 1;
    }
    out.push_str(&text[plain..]);
}

/// Whether there is any of these bytes or a control character. Looking at every byte without a branch is faster than
/// stopping early, since it takes many at once.
#[inline]
fn any<const N: usize>(text: &str, special: [u8; N]) -> bool {
    const MANY: usize = 16;
    const SOME: usize = 8;
    let is_special =
        |byte: u8| special.iter().fold(u8::from(byte < b' '), |found, &one| found | u8::from(byte == one));
    let look = |bytes: &[u8]| bytes.iter().fold(0, |found, &byte| found | is_special(byte));
    let bytes = text.as_bytes();
    // Some are looked at twice rather than one by one.
    let found = if let Some(last) = bytes.last_chunk::<MANY>() {
        bytes.as_chunks::<MANY>().0.iter().fold(look(last), |found, many| found | look(many))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<SOME>(), bytes.last_chunk::<SOME>()) {
        look(first) | look(last)
    } else {
        look(bytes)
    };
    found != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_noncharacters_are_found_among_others() {
        assert_eq!(forbidden_character("a\tb\r\n\u{feff}\u{fffd}ﬁ"), None);
        assert_eq!(forbidden_character("a\u{1}b"), Some('\u{1}'));
        assert_eq!(forbidden_character("a\u{ffff}"), Some('\u{ffff}'));
    }

    #[test]
    fn a_special_byte_is_found_at_every_place_of_a_text_of_every_length() {
        for length in 1..70 {
            assert!(is_plain_value(&"a".repeat(length)));
            for place in 0..length {
                let mut text = "a".repeat(length);
                text.replace_range(place..=place, "&");
                assert!(!is_plain_value(&text), "{place} of {length}");
            }
        }
    }

    #[test]
    fn text_is_plain_when_nothing_in_it_needs_a_second_look() {
        assert!(is_plain_value("http://example.org/a?b='c'>é]"));
        for value in ["a&amp;b", "a\nb", "a\tb", "\u{ffff}"] {
            assert!(!is_plain_value(value), "{value:?}");
        }
        assert!(is_plain_text("a>b") && !is_plain_text("a\rb") && !is_plain_text("]]>"));
    }

    #[test]
    fn raw_values_stand_for_what_xml_says() {
        assert_eq!(cook_value("a&amp;&#x62;\r\nc\td&#10;").unwrap(), "a&b c d\n");
        assert_eq!(cook_text("a\r\nb\rc").unwrap(), "a\nb\nc");
        assert!(matches!(cook_value("&x;"), Err(Unreadable::Entity(name)) if name == "x"));
        for value in ["&", "&#0;", "&#xd800;", "&#+65;", "&#x;", "\u{1}"] {
            assert!(cook_value(value).is_err(), "{value:?}");
        }
        assert!(cook_text("]]>").is_err());
    }

    #[test]
    fn what_has_a_meaning_in_xml_is_escaped_and_the_rest_is_not() {
        let mut out = String::new();
        push_escaped(&mut out, "a&b<c>\"d'\n\té");
        assert_eq!(out, "a&amp;b&lt;c&gt;&quot;d'&#10;&#9;é");
    }
}
