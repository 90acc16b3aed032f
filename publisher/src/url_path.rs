//! The path of a URL, and the relative path of the file that it stands for.

use std::{ffi::OsString, path::PathBuf};

use percent_encoding::percent_decode_str;

/// The decoded path, and whether it ends in `/`. Nothing that could climb or hide a separator gets through, and no empty part.
pub(crate) fn decode(path: &str) -> Option<(PathBuf, bool)> {
    let inner = path.strip_prefix('/')?;
    if inner.is_empty() {
        return Some((PathBuf::new(), true));
    }
    let (inner, is_folder) = match inner.strip_suffix('/') {
        Some(folder) => (folder, true),
        None => (inner, false),
    };
    let parts: Option<PathBuf> = inner.split('/').map(decode_part).collect();
    Some((parts?, is_folder))
}

fn decode_part(part: &str) -> Option<OsString> {
    let bytes: Vec<u8> = percent_decode_str(part).collect();
    let harmless = !matches!(bytes.as_slice(), b"" | b"." | b"..")
        && !bytes
            .iter()
            .any(|byte| matches!(byte, b'/' | b'\0') || (cfg!(windows) && matches!(byte, b'\\' | b':')));
    if harmless { file_name(bytes) } else { None }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_part_by_part() {
        assert_eq!(decode("/a%20b/gr%C3%B6%C3%9Fe.txt"), Some(("a b/größe.txt".into(), false)));
        assert_eq!(decode("/resync/framework/"), Some(("resync/framework".into(), true)));
        assert_eq!(decode("/"), Some((PathBuf::new(), true)));
    }

    #[test]
    fn nothing_that_climbs_or_hides_a_separator_gets_through() {
        for path in [
            "/../x",
            "/%2e%2e/x",
            "/a/..%2f..%2fx",
            "/a%2Fb",
            "//x",
            "//",
            "/a//",
            "/a/./b",
            "/a%00",
            "x",
            "*",
        ] {
            assert_eq!(decode(path), None, "{path}");
        }
    }
}
