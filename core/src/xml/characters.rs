//! Characters: which ones XML can carry, and how the ones with a meaning are escaped.

/// The first character that XML 1.0 cannot carry, not even as a character reference.
pub(crate) fn forbidden_character(text: &str) -> Option<char> {
    let suspicious = |byte: u8| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r') || byte == 0xef;
    if !text.bytes().any(suspicious) {
        return None;
    }
    text.chars().find(|&c| !is_allowed(c))
}

pub(super) fn is_allowed(c: char) -> bool {
    !matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Appends a text so that it is read back unchanged as element content or, within double quotes, as attribute value.
///
/// Line ends and tabs become references, since a reader would turn them into other white space.
pub(super) fn push_escaped(out: &mut String, text: &str) {
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
    fn control_characters_and_noncharacters_are_found_among_others() {
        assert_eq!(forbidden_character("a\tb\r\n\u{feff}\u{fffd}ﬁ"), None);
        assert_eq!(forbidden_character("a\u{1}b"), Some('\u{1}'));
        assert_eq!(forbidden_character("a\u{ffff}"), Some('\u{ffff}'));
    }

    #[test]
    fn what_has_a_meaning_in_xml_is_escaped_and_the_rest_is_not() {
        let mut out = String::new();
        push_escaped(&mut out, "a&b<c>\"d'\n\té");
        assert_eq!(out, "a&amp;b&lt;c&gt;&quot;d'&#10;&#9;é");
    }
}
