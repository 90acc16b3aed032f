//! Topic and callback URLs: kept exactly as written, compared by a normalised key (section 5.1.1, D-01).

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::{Arc, OnceLock},
};

use url::Url;

use super::excerpt;

/// The longest topic or callback URL in bytes.
pub const MAX_URL: usize = 2048;

/// Why a text cannot be a topic or a callback. No variant repeats the whole URL: a callback is a capability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// No text at all.
    #[error("the URL is empty: give an absolute http or https URL")]
    Empty,
    /// More than [`MAX_URL`] bytes.
    #[error("the URL has {length} bytes: it may have at most {MAX_URL}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// A character that no URL may contain unescaped, among them white space and control characters.
    #[error("the URL contains {found:?} at byte {at}: percent-encode it")]
    Character {
        /// The first such character.
        found: char,
        /// Where it stands, in bytes from 0.
        at: usize,
    },
    /// Not of the form `scheme://…`.
    #[error("the URL is not absolute: it must begin with http:// or https://")]
    NotAbsolute,
    /// Some other scheme (W-070).
    #[error("the URL's scheme is \"{found}\": it must be http or https")]
    Scheme {
        /// The scheme as written, shortened.
        found: String,
    },
    /// A user name or password (RFC 9110, section 4.2.4).
    #[error(
        "the URL contains a user name or password before \"@\": leave them out, and put a token in the path or query"
    )]
    Credentials,
    /// A host that means another one, such as `0x7f.1` or one with percent escapes.
    #[error("the URL's host must be written as \"{expected}\"")]
    Host {
        /// The only spelling that is accepted.
        expected: String,
    },
    /// Anything else that keeps it from being a URL.
    #[error("the URL cannot be read: {0}")]
    Syntax(#[from] url::ParseError),
}

/// An absolute `http` or `https` URL as it was written, with what it is compared by. Clones share it.
#[derive(Clone)]
struct WebUrl(Arc<Parsed>);

struct Parsed {
    written: Box<str>,
    url: Url,
    /// Made when it is asked for: whoever only delivers never does.
    key: OnceLock<Box<str>>,
}

macro_rules! web_url {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// At most [`MAX_URL`] bytes, without credentials, its host written as it will be resolved.
        /// Equality, order and hash are those of [`key`](Self::key).
        #[derive(Clone)]
        pub struct $name(WebUrl);

        impl $name {
            /// Checks that the text is an absolute `http` or `https` URL (W-070).
            pub fn parse(text: &str) -> Result<Self, UrlError> {
                WebUrl::parse(text).map(Self)
            }

            /// Exactly what was written (W-190).
            pub fn as_str(&self) -> &str {
                &self.0.0.written
            }

            /// As a URL library sees it: possibly spelled differently from [`as_str`](Self::as_str).
            pub fn url(&self) -> &Url {
                &self.0.0.url
            }

            /// The normalised form by which subscriptions are told apart (D-01): unreserved characters decoded (W-073),
            /// other escapes in upper case, scheme and host in lower case, no default port, no fragment. For comparison
            /// only, never a place to send anything to.
            pub fn key(&self) -> &str {
                self.0.key()
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.key() == other.key()
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.key().cmp(other.key())
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.key().hash(state);
            }
        }

        impl FromStr for $name {
            type Err = UrlError;

            fn from_str(text: &str) -> Result<Self, UrlError> {
                Self::parse(text)
            }
        }
    };
}

web_url! {
    /// The URL of a topic: what a publisher advertises as `rel="self"` (W-047, W-048).
    TopicUrl
}

web_url! {
    /// The URL to which a hub delivers (W-044). It is a capability (W-074), so `Debug` shows its origin only and there
    /// is no `Display`.
    CallbackUrl
}

impl CallbackUrl {
    /// Scheme, host and port, such as `https://destination.example` or `http://10.0.0.1:8080`; a default port is left out.
    /// This much may be shown and counted.
    pub fn origin(&self) -> String {
        self.url().origin().ascii_serialization()
    }
}

impl fmt::Debug for CallbackUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallbackUrl({}/…)", self.origin())
    }
}

impl fmt::Debug for TopicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicUrl({:?})", self.as_str())
    }
}

impl fmt::Display for TopicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl WebUrl {
    fn parse(text: &str) -> Result<Self, UrlError> {
        check_text(text)?;
        let (scheme, rest) = text.split_once(':').ok_or(UrlError::NotAbsolute)?;
        if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(not_http(scheme));
        }
        let rest = rest.strip_prefix("//").ok_or(UrlError::NotAbsolute)?;
        let (authority, _) = rest.split_at(end_of_authority(rest));
        let url = Url::parse(text)?;
        check_authority(authority, &url)?;
        Ok(Self(Arc::new(Parsed { written: text.into(), url, key: OnceLock::new() })))
    }

    fn key(&self) -> &str {
        let Parsed { written, url, key: made } = self.0.as_ref();
        made.get_or_init(|| key(url, target(written)).into())
    }
}

/// Where the path, the query or the fragment begins in what follows `://`.
fn end_of_authority(rest: &str) -> usize {
    rest.find(['/', '?', '#']).unwrap_or(rest.len())
}

/// What follows the authority of an absolute URL.
fn target(written: &str) -> &str {
    let rest = written.split_once("://").map_or("", |(_, rest)| rest);
    &rest[end_of_authority(rest)..]
}

fn check_text(text: &str) -> Result<(), UrlError> {
    if text.is_empty() {
        return Err(UrlError::Empty);
    }
    if text.len() > MAX_URL {
        return Err(UrlError::TooLong { length: text.len() });
    }
    match text.char_indices().find(|&(_, c)| is_illegal(c)) {
        Some((at, found)) => Err(UrlError::Character { found, at }),
        None => Ok(()),
    }
}

/// What would end a URL early in a header, or be read differently by different URL libraries.
fn is_illegal(c: char) -> bool {
    c.is_control() || c.is_whitespace() || matches!(c, '"' | '<' | '>' | '\\' | '`')
}

fn not_http(scheme: &str) -> UrlError {
    let well_formed = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if well_formed { UrlError::Scheme { found: excerpt(scheme) } } else { UrlError::NotAbsolute }
}

fn check_authority(authority: &str, url: &Url) -> Result<(), UrlError> {
    if authority.contains('@') {
        return Err(UrlError::Credentials);
    }
    if authority.starts_with('[') {
        return Ok(());
    }
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    // In `http:///host` URL libraries for browsers take the host from the path.
    let Some(canonical) = url.host_str().filter(|_| !host.is_empty()) else {
        return Err(UrlError::Syntax(url::ParseError::EmptyHost));
    };
    if !host.eq_ignore_ascii_case(canonical) {
        return Err(UrlError::Host { expected: canonical.to_owned() });
    }
    // URL libraries for browsers let pass what no HTTP library sends and no name server knows.
    if !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')) {
        return Err(UrlError::Syntax(url::ParseError::InvalidDomainCharacter));
    }
    Ok(())
}

fn key(url: &Url, target: &str) -> String {
    let mut key = url.origin().ascii_serialization();
    let target = target.split_once('#').map_or(target, |(before, _)| before);
    if !target.starts_with('/') {
        key.push('/');
    }
    push_normalised(&mut key, target);
    key
}

/// Decodes escapes of unreserved characters, writes other escapes in upper case, and escapes what is not ASCII.
/// A `%` that begins no escape is escaped itself, or else decoding what follows could make it begin one.
fn push_normalised(key: &mut String, target: &str) {
    let mut rest = target.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let escaped = (byte == b'%').then(|| after.get(..2).and_then(escaped_byte)).flatten();
        match escaped {
            Some(value) => {
                rest = &after[2..];
                if is_unreserved(value) { key.push(value.into()) } else { push_escape(key, value) }
            }
            None if byte == b'%' || !byte.is_ascii() => push_escape(key, byte),
            None => key.push(byte.into()),
        }
    }
}

fn escaped_byte(digits: &[u8]) -> Option<u8> {
    let mut byte = [0];
    hex::decode_to_slice(digits, &mut byte).ok().map(|()| byte[0])
}

fn push_escape(key: &mut String, byte: u8) {
    key.push_str(percent_encoding::percent_encode_byte(byte));
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key_of(text: &str) -> String {
        TopicUrl::parse(text).unwrap().key().to_owned()
    }

    fn cause(text: &str) -> UrlError {
        CallbackUrl::parse(text).unwrap_err()
    }

    #[test]
    fn w073_b07_percent_encoded_unreserved_characters_make_no_other_subscription() {
        let (plain, escaped) = (
            TopicUrl::parse("http://s.example/~foo").unwrap(),
            TopicUrl::parse("http://s.example/%7Efoo").unwrap(),
        );
        assert_eq!(plain, escaped);
        assert_eq!(plain.cmp(&escaped), Ordering::Equal);
        assert_eq!(escaped.as_str(), "http://s.example/%7Efoo");
        assert_eq!(
            CallbackUrl::parse("http://d.example/?t=%41%2d%5F").unwrap(),
            CallbackUrl::parse("http://d.example/?t=A-_").unwrap()
        );
    }

    #[test]
    fn d01_the_key_normalises_what_cannot_make_a_difference() {
        assert_eq!(key_of("HTTPS://S.Example:443/A%2fb?x=%c3%bc#part"), "https://s.example/A%2Fb?x=%C3%BC");
        assert_eq!(key_of("http://s.example:80"), "http://s.example/");
        assert_eq!(key_of("http://s.example?q"), "http://s.example/?q");
        assert_eq!(key_of("http://s.example:8080/"), "http://s.example:8080/");
        assert_eq!(key_of("http://s.example/ü"), key_of("http://s.example/%c3%bc"));
        assert_eq!(key_of("http://[0:0::1]:81/"), "http://[::1]:81/");
        assert_eq!(key_of("http://[0:0::1]"), "http://[::1]/");
    }

    #[test]
    fn d01_the_key_keeps_what_can_make_a_difference() {
        let different = [
            "http://s.example/a",
            "https://s.example/a",
            "http://s.example/A",
            "http://s.example/a/",
            "http://s.example/a?",
            "http://s.example/a?b+c",
            "http://s.example/a?b%20c",
            "http://s.example/a?b%2Bc",
            "http://s.example/x/../a",
            "http://s.example:81/a",
            "http://s.example//a",
            "http://s.example/%2Fa",
        ];
        let keys: std::collections::BTreeSet<_> = different.iter().map(|text| key_of(text)).collect();
        assert_eq!(keys.len(), different.len(), "{keys:#?}");
    }

    #[test]
    fn d01_a_percent_sign_that_begins_no_escape_never_comes_to_begin_one() {
        assert_eq!(key_of("http://s.example/%%411"), "http://s.example/%25A1");
        assert_eq!(key_of("http://s.example/%2541%zz%"), "http://s.example/%2541%25zz%25");
    }

    #[test]
    fn w190_the_url_is_kept_exactly_as_written() {
        for text in
            ["HTTP://D.example:80/a/../%7e?x='y'#z", "https://d.example", "https://d.example/ü|{}%zz%"]
        {
            assert_eq!(CallbackUrl::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn b02_every_refusal_has_its_cause() {
        assert_eq!(cause(""), UrlError::Empty);
        assert_eq!(cause("d.example/cb"), UrlError::NotAbsolute);
        assert_eq!(cause("/cb"), UrlError::NotAbsolute);
        assert_eq!(cause("//d.example/cb"), UrlError::NotAbsolute);
        assert_eq!(cause("/cb?to=http://d.example"), UrlError::NotAbsolute);
        assert_eq!(cause("d.example/cb?to=http://d.example"), UrlError::NotAbsolute);
        assert_eq!(cause("http:d.example"), UrlError::NotAbsolute);
        assert_eq!(cause("https:/d.example"), UrlError::NotAbsolute);
        assert_eq!(cause("ftp://d.example/cb"), UrlError::Scheme { found: "ftp".into() });
        assert_eq!(cause("file:///etc/passwd"), UrlError::Scheme { found: "file".into() });
        assert_eq!(cause("javascript:alert(1)"), UrlError::Scheme { found: "javascript".into() });
        assert_eq!(cause("http://d.example/a b"), UrlError::Character { found: ' ', at: 18 });
        assert_eq!(cause(" http://d.example/"), UrlError::Character { found: ' ', at: 0 });
        assert_eq!(cause("http://d.example/\r\nHost:x"), UrlError::Character { found: '\r', at: 17 });
        assert_eq!(cause(r"http:\\d.example\cb"), UrlError::Character { found: '\\', at: 5 });
        assert_eq!(cause("http://d.example/>;rel=x"), UrlError::Character { found: '>', at: 17 });
        assert_eq!(cause("http://user:word@d.example/"), UrlError::Credentials);
        assert_eq!(cause("http://public.example@10.0.0.1/"), UrlError::Credentials);
        assert_eq!(cause("http://d.example:99999/"), UrlError::Syntax(url::ParseError::InvalidPort));
        assert_eq!(cause("http://d{x}.example/"), UrlError::Syntax(url::ParseError::InvalidDomainCharacter));
        for hostless in ["http://", "http:///d.example", "http://?q", "http://:80/"] {
            assert_eq!(cause(hostless), UrlError::Syntax(url::ParseError::EmptyHost), "{hostless}");
        }
    }

    #[test]
    fn a_host_in_disguise_is_refused_and_told_its_name() {
        for written in [
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://%3127.0.0.1/",
        ] {
            assert_eq!(cause(written), UrlError::Host { expected: "127.0.0.1".into() }, "{written}");
        }
        let error = cause("http://bücher.example/cb");
        assert_eq!(error.to_string(), "the URL's host must be written as \"xn--bcher-kva.example\"");
        assert!(CallbackUrl::parse("http://XN--bcher-kva.Example/cb").is_ok());
    }

    #[test]
    fn the_longest_url_has_2048_bytes() {
        let base = "https://d.example/";
        let longest = format!("{base}{}", "a".repeat(MAX_URL - base.len()));
        assert!(TopicUrl::parse(&longest).is_ok());
        assert_eq!(TopicUrl::parse(&format!("{longest}a")), Err(UrlError::TooLong { length: 2049 }));
    }

    #[test]
    fn w195_debug_shows_no_more_than_the_origin_of_a_callback() {
        let callback = CallbackUrl::parse("https://D.example:8443/unguessable?token=1").unwrap();
        assert_eq!(callback.origin(), "https://d.example:8443");
        assert_eq!(format!("{callback:?}"), "CallbackUrl(https://d.example:8443/…)");
        assert_eq!(CallbackUrl::parse("http://d.example:80/x").unwrap().origin(), "http://d.example");
    }

    proptest! {
        #[test]
        fn no_text_makes_parsing_panic(text in "\\PC{0,100}|(?i:https?)://[a-z0-9.:@%\\[\\]/?#]{0,40}") {
            if let Ok(url) = TopicUrl::parse(&text) {
                prop_assert_eq!(url.as_str(), text);
                prop_assert!(url.key().len() <= 3 * MAX_URL);
            }
        }

        #[test]
        fn d01_a_key_is_its_own_key(target in "[/a-zA-Z0-9%~_.?&=ü+#:@-]{0,60}|(%[0-9a-fA-F%]{0,2}){0,20}") {
            let key = key_of(&format!("HTTPS://S.example/{target}"));
            prop_assert!(key.is_ascii());
            prop_assert_eq!(key_of(&key), key);
        }

        #[test]
        fn w073_escaping_any_unreserved_character_changes_no_key(path in "[a-zA-Z0-9._~-]{1,20}", at: prop::sample::Index) {
            let at = at.index(path.len());
            let escaped = format!("{}%{:02x}{}", &path[..at], path.as_bytes()[at], &path[at + 1..]);
            prop_assert_eq!(key_of(&format!("http://s.example/{escaped}")), format!("http://s.example/{path}"));
        }
    }
}
