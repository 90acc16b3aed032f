//! Names of files, and what stands for them in URLs.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, percent_encode};
use thiserror::Error;

/// Longest URI that a `loc` holds (RS-047).
pub const MAX_LOC: usize = 2048;

/// What RFC 3986 lets stand in a segment of a path is not encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// A resource that is listed, percent-encoded, under a name that a Destination on another system cannot give its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unportable {
    /// Where it lies, below the folder.
    pub path: PathBuf,
    /// What is in its name.
    pub cause: Foreign,
}

/// What some systems cannot keep in a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Foreign {
    /// Bytes that are not UTF-8.
    #[error("bytes that are not UTF-8")]
    NotUtf8,
    /// A backslash, which separates folders elsewhere.
    #[error("a backslash")]
    Backslash,
    /// A control character.
    #[error("a control character")]
    Control,
}

impl Foreign {
    /// What in the names of a relative path some systems cannot keep.
    pub(super) fn of(relative: &Path) -> Option<Self> {
        // Nearly all names are of this kind, and no part of theirs needs a look of its own.
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\\';
        if relative.as_os_str().as_encoded_bytes().iter().all(is_plain) {
            return None;
        }
        relative.components().find_map(|part| {
            let Component::Normal(name) = part else { return None };
            match name.to_str() {
                None => Some(Self::NotUtf8),
                Some(name) if name.contains('\\') => Some(Self::Backslash),
                Some(name) => name.contains(char::is_control).then_some(Self::Control),
            }
        })
    }
}

/// Whether somebody is still writing the file, going by its name.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    const ENDS: [&[u8]; 5] = [b"~", b".tmp", b".part", b".swp", b".crdownload"];
    ENDS.iter().any(|end| name.ends_with(end))
}

/// A name as it stands in a URL.
pub(super) fn segment_of(name: &OsStr) -> PercentEncode<'_> {
    percent_encode(name.as_encoded_bytes(), ENCODED)
}

/// What stands in a URL for a path below a folder, after the URL of that folder: [`path_of`] leads back.
///
/// ```
/// use std::path::Path;
/// use resync_core::build::url_path_of;
///
/// assert_eq!(url_path_of(Path::new("a b/größe.txt")), "a%20b/gr%C3%B6%C3%9Fe.txt");
/// ```
pub fn url_path_of(relative: &Path) -> String {
    let mut url = String::new();
    for part in relative.components() {
        let Component::Normal(name) = part else { continue };
        let slash = if url.is_empty() { "" } else { "/" };
        url.push_str(slash);
        url.extend(segment_of(name));
    }
    url
}

/// The path below a folder that the rest of a URL stands for. Nothing that could climb or hide a separator gets through, and no empty
/// part.
///
/// ```
/// use resync_core::build::path_of;
///
/// assert_eq!(path_of("a%20b/gr%C3%B6%C3%9Fe.txt"), Some("a b/größe.txt".into()));
/// assert_eq!(path_of("a/%2e%2e/b"), None);
/// ```
pub fn path_of(rest: &str) -> Option<PathBuf> {
    rest.split('/').map(name_of).collect()
}

/// The name that a segment of a URL stands for.
pub(super) fn name_of(segment: &str) -> Option<OsString> {
    let bytes: Vec<u8> = percent_decode_str(segment).collect();
    let climbs = matches!(bytes.as_slice(), b"" | b"." | b"..");
    let separates =
        |byte: &u8| matches!(byte, b'/' | b'\0') || (cfg!(windows) && matches!(byte, b'\\' | b':'));
    if climbs || bytes.iter().any(separates) { None } else { file_name(bytes) }
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "other systems have names that bytes cannot make")]
fn file_name(bytes: Vec<u8>) -> Option<OsString> {
    Some(std::os::unix::ffi::OsStringExt::from_vec(bytes))
}

#[cfg(not(unix))]
fn file_name(bytes: Vec<u8>) -> Option<OsString> {
    String::from_utf8(bytes).ok().map(OsString::from)
}

/// The base URL with a slash at its end.
pub(super) fn folder_url(base: &str) -> String {
    format!("{}/", base.strip_suffix('/').unwrap_or(base))
}

/// The extension of a file name as far as it is harmless: up to eight letters and digits, in lower case.
pub(super) fn extension(loc: &str) -> Option<String> {
    let path = loc.split(['?', '#']).next()?;
    let extension = Path::new(path.rsplit('/').next()?).extension().and_then(OsStr::to_str)?;
    let harmless = extension.len() <= 8 && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
    harmless.then(|| extension.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_part_by_part() {
        assert_eq!(path_of("a%20b/gr%C3%B6%C3%9Fe.txt"), Some("a b/größe.txt".into()));
        for rest in ["../x", "%2e%2e/x", "a/..%2f..%2fx", "a%2Fb", "", "/x", "a/", "a//b", "a/./b", "a%00"] {
            assert_eq!(path_of(rest), None, "{rest}");
        }
    }

    #[test]
    fn a_segment_leads_back_to_its_name() {
        for name in ["a b", "100%25", "größe", "a+b&c", "\\", "%2F"] {
            assert_eq!(name_of(&segment_of(OsStr::new(name)).to_string()), Some(name.into()));
        }
    }
}
