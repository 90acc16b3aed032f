//! From the path of a URL to the relative path of a file.

use std::path::PathBuf;

use resync_core::build::path_of;

/// The decoded path, and whether it ends in `/`. `None` for empty parts, `..` and encoded separators.
pub(crate) fn decode(path: &str) -> Option<(PathBuf, bool)> {
    let inner = path.strip_prefix('/')?;
    if inner.is_empty() {
        return Some((PathBuf::new(), true));
    }
    let (inner, is_folder) = match inner.strip_suffix('/') {
        Some(folder) => (folder, true),
        None => (inner, false),
    };
    Some((path_of(inner)?, is_folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_and_a_slash_at_its_end_is_told() {
        assert_eq!(decode("/a%20b/c.txt"), Some(("a b/c.txt".into(), false)));
        assert_eq!(decode("/resync/framework/"), Some(("resync/framework".into(), true)));
        assert_eq!(decode("/"), Some((PathBuf::new(), true)));
        for path in ["/../x", "/a%2Fb", "//x", "//", "/a//", "x", "*"] {
            assert_eq!(decode(path), None, "{path}");
        }
    }
}
