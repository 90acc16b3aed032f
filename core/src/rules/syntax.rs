//! The shape of single values: URIs, relations, media types, paths, XML text.

/// What keeps a text from being an absolute URI; characters beyond ASCII are let through, as the schemas' anyURI does.
pub(super) fn uri_flaw(text: &str) -> Option<&'static str> {
    let Some((scheme, rest)) = split_once(text, b':') else {
        return Some(if text.is_empty() { "it is empty" } else { "it has no scheme such as https:" });
    };
    let mut letters = scheme.bytes();
    let scheme_fits = letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !scheme_fits {
        return Some("it has no scheme such as https:");
    }
    // Looking at every byte without stopping is several bytes a cycle.
    let must_be_encoded = |byte: u8| byte <= b' ' || byte == 0x7f || matches!(byte, b'<' | b'>' | b'"');
    if text.bytes().fold(false, |found, byte| found | must_be_encoded(byte)) {
        return Some("it has a character that must be percent-encoded");
    }
    let web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let host_fits =
        || rest.strip_prefix("//").is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#']));
    if rest.is_empty() || web && !host_fits() {
        return Some("it ends before naming anything");
    }
    None
}

/// The lengths that the sitemap schema allows for `loc`, in characters.
pub(super) fn loc_length_fits(loc: &str) -> bool {
    // Bytes are never fewer than characters, so most texts need no counting.
    loc.len() >= 12
        && (loc.len() <= 2048 || loc.chars().count() <= 2048)
        && (loc.len() >= 48 || loc.chars().count() >= 12)
}

/// A relation as registered ones are written, or an absolute URI.
pub(super) fn is_relation(text: &str) -> bool {
    let mut bytes = text.bytes();
    let registered = bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte));
    registered || uri_flaw(text).is_none()
}

/// `type/subtype`, with any parameters.
pub(super) fn is_media_type(text: &str) -> bool {
    let essence = split_once(text, b';').map_or(text, |(essence, _)| essence).trim_ascii_end();
    let token = |part: &str| !part.is_empty() && part.bytes().all(is_token_byte);
    split_once(essence, b'/').is_some_and(|(kind, subtype)| token(kind) && token(subtype))
}

#[inline]
fn is_token_byte(byte: u8) -> bool {
    const TOKEN: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 128_u8 {
            table[byte as usize] = byte.is_ascii_alphanumeric()
                || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
            byte += 1;
        }
        table
    };
    TOKEN[usize::from(byte)]
}

/// What stands before and behind the first such ASCII character, which is near the start: setting up a faster search
/// would take longer than to get there.
#[inline]
fn split_once(text: &str, mark: u8) -> Option<(&str, &str)> {
    let place = text.bytes().position(|byte| byte == mark)?;
    Some((&text[..place], &text[place + 1..]))
}

/// Starts with a slash, goes on, and does not end with one.
pub(super) fn is_path(text: &str) -> bool {
    text.len() > 1 && text.starts_with('/') && !text.ends_with('/')
}

/// A name without colon, as XML namespaces have it for prefixes and local names.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(is_name_start) && text.chars().all(|c| {
        is_name_start(c)
            || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}' | '\u{2040}')
    })
}

fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
        | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}' | '\u{200d}' | '\u{2070}'..='\u{218f}'
        | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}'
        | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rs047_absolute_uris_of_any_scheme_pass_and_everything_else_is_told_why() {
        for uri in [
            "http://example.org",
            "https://example.org:8443/ä?q#f",
            "ftp://a/b",
            "urn:isbn:0451450523",
            "mailto:a@b",
        ] {
            assert_eq!(uri_flaw(uri), None, "{uri}");
        }
        for text in [
            "",
            "example.org/a",
            "/a",
            "1http://a",
            "http:",
            "http:///a",
            "https://?q",
            "http://a/ b",
            "http://a/<b>",
        ] {
            assert!(uri_flaw(text).is_some(), "{text}");
        }
    }

    #[test]
    fn rs047_the_length_of_loc_counts_characters() {
        assert!(!loc_length_fits("http://a.b/"));
        assert!(loc_length_fits("http://a.b/c"));
        assert!(!loc_length_fits("urn:äöüäöüä"));
        assert!(loc_length_fits(&format!("http://a.b/{}", "ä".repeat(2037))));
        assert!(!loc_length_fits(&format!("http://a.b/{}", "ä".repeat(2038))));
    }

    #[test]
    fn rs057_a_relation_is_a_lower_case_name_or_a_uri() {
        assert!(is_relation("describedby") && is_relation("http://example.org/rel/x"));
        for text in ["", "Up", "alternate http://example.org/mirror", "up down"] {
            assert!(!is_relation(text), "{text}");
        }
    }

    #[test]
    fn rs037_media_types_may_have_dots_suffixes_and_parameters() {
        for text in [
            "text/html",
            "application/vnd.oasis.opendocument.text",
            "image/svg+xml",
            "text/html; charset=utf-8",
        ] {
            assert!(is_media_type(text), "{text}");
        }
        for text in ["", "html", "text/", "/html", "text/html/x", "text html/x"] {
            assert!(!is_media_type(text), "{text}");
        }
        let mut tokens: Vec<u8> = (0..=u8::MAX).filter(|&byte| is_token_byte(byte)).collect();
        tokens.retain(|byte| !byte.is_ascii_alphanumeric());
        assert_eq!(tokens, b"!#$%&'*+-.^_`|~");
    }

    #[test]
    fn rs040_paths_start_at_the_top_and_end_in_a_name() {
        assert!(is_path("/a") && is_path("/a/b.txt") && is_path("/../a"));
        assert!(!is_path("a") && !is_path("/") && !is_path("/a/") && !is_path(""));
    }
}
