//! Characters that XML can carry.

/// The first character that XML 1.0 cannot carry, not even as a character reference.
pub(crate) fn forbidden_character(text: &str) -> Option<char> {
    if !has_any(text, [0xef]) {
        return None;
    }
    text.chars().find(|&c| !is_allowed(c))
}

pub(crate) fn is_allowed(c: char) -> bool {
    !matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether there is any of these bytes or a control character. Looking at every byte without a branch is faster than
/// stopping early, since it takes many at once.
#[inline]
pub(crate) fn has_any<const N: usize>(text: &str, special: [u8; N]) -> bool {
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
            assert!(!has_any(&"a".repeat(length), [b'&']));
            for place in 0..length {
                let mut text = "a".repeat(length);
                text.replace_range(place..=place, "&");
                assert!(has_any(&text, [b'&']), "{place} of {length}");
            }
        }
    }
}
