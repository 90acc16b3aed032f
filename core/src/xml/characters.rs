//! Characters: how those with a meaning in XML are escaped, and what raw text stands for.

use std::borrow::Cow;

use quick_xml::XmlVersion;
use quick_xml::errors::Error;
use quick_xml::escape::{EscapeError, resolve_predefined_entity};
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesRef, BytesText};
use quick_xml::name::QName;

use super::error::Fault;
use crate::rules::{forbidden_character, has_any, is_allowed};

/// Whether an attribute value means itself: no references, nothing to normalise, nothing that may be forbidden.
#[inline]
pub(super) fn is_plain_value(raw: &str) -> bool {
    !has_any(raw, [b'&', b'<', 0xef])
}

/// The same for text between tags, which has its references apart and may not have the end of CDATA.
#[inline]
pub(super) fn is_plain_text(raw: &str) -> bool {
    !has_any(raw, [b']', 0xef])
}

/// What an attribute value stands for (XML 1.0, 3.3.3).
pub(super) fn unescape_value(raw: &str) -> Result<String, Fault> {
    if raw.contains('<') {
        return Err(Fault::Form("an attribute value has a bare <"));
    }
    let attribute = Attribute { key: QName(""), value: Cow::Borrowed(raw) };
    let unescaped = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| match error {
        Error::Escape(EscapeError::UnrecognizedEntity(_, name)) => undefined(&name),
        Error::Escape(EscapeError::InvalidCharRef(_)) => Fault::Form("a reference names no character of XML"),
        _ => Fault::BARE_AMPERSAND,
    })?;
    refuse_forbidden(&unescaped)?;
    Ok(unescaped.into_owned())
}

/// What text between tags or in CDATA stands for (XML 1.0, 2.11).
pub(super) fn unescape_text(raw: &str) -> Result<Cow<'_, str>, Fault> {
    refuse_forbidden(raw)?;
    if raw.contains("]]>") {
        return Err(Fault::Form("]]> stands outside of CDATA; write it as ]]&gt;"));
    }
    Ok(BytesText::from_escaped(raw).xml10_content())
}

/// The character that a reference names, without its `&` and `;`.
pub(super) fn referenced(name: &str) -> Result<char, Fault> {
    match BytesRef::new(name).resolve_char_ref() {
        Ok(Some(character)) if is_allowed(character) => Ok(character),
        Ok(None) => resolve_predefined_entity(name)
            .and_then(|text| text.chars().next())
            .ok_or_else(|| undefined(name)),
        Ok(Some(_)) | Err(_) => Err(Fault::Reference(name.to_owned())),
    }
}

fn undefined(name: &str) -> Fault {
    if is_name(name) { Fault::Entity(name.to_owned()) } else { Fault::BARE_AMPERSAND }
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

fn refuse_forbidden(text: &str) -> Result<(), Fault> {
    forbidden_character(text).map_or(Ok(()), |character| Err(Fault::Character(character)))
}

/// Appends a text so that it is read back unchanged as element content or, within double quotes, as attribute value.
///
/// Line ends and tabs become references, since a reader would turn them into other white space.
pub(super) fn push_escaped(out: &mut String, text: &str) {
    if !has_any(text, [b'&', b'<', b'>', b'"']) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(unescape_value("a&amp;&#x62;\r\nc\td&#10;").unwrap(), "a&b c d\n");
        assert_eq!(unescape_text("a\r\nb\rc").unwrap(), "a\nb\nc");
        assert!(matches!(unescape_value("&x;"), Err(Fault::Entity(name)) if name == "x"));
        for value in ["&", "&#0;", "&#xd800;", "&#+65;", "&#x;", "\u{1}"] {
            assert!(unescape_value(value).is_err(), "{value:?}");
        }
        assert!(unescape_text("]]>").is_err());
    }

    #[test]
    fn what_has_a_meaning_in_xml_is_escaped_and_the_rest_is_not() {
        let mut out = String::new();
        push_escaped(&mut out, "a&b<c>\"d'\n\té");
        assert_eq!(out, "a&amp;b&lt;c&gt;&quot;d'&#10;&#9;é");
    }
}
