//! The paths of a manifest, and what is wrong with those that nobody should unpack.

use thiserror::Error;

/// What is wrong with a path of a manifest (RS-040, RS-110).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathFlaw {
    /// `..`
    #[error("points above the package")]
    Upwards,
    /// A second slash at its beginning.
    #[error("is absolute")]
    Absolute,
    /// A drive letter, such as `C:`, at the beginning of any part: somebody may take the part for a path of its own.
    #[error("names a drive")]
    Drive,
    /// A backslash, which separates folders on some systems.
    #[error("contains a backslash")]
    Backslash,
    /// NUL or another control character.
    #[error("contains a control character")]
    Control,
    /// Nothing, or `.`, between two slashes or at an end.
    #[error("has an empty part")]
    EmptyPart,
}

/// The name in the archive that a path of a manifest stands for: without the leading slash.
pub(crate) fn member_name(path: &str) -> Result<&str, PathFlaw> {
    let name = path.strip_prefix('/').unwrap_or(path);
    if name.starts_with('/') {
        return Err(PathFlaw::Absolute);
    }
    for part in name.split('/') {
        let flaw = match part.as_bytes() {
            b".." => Some(PathFlaw::Upwards),
            b"" | b"." => Some(PathFlaw::EmptyPart),
            bytes if bytes.contains(&b'\\') => Some(PathFlaw::Backslash),
            bytes if bytes.iter().any(u8::is_ascii_control) => Some(PathFlaw::Control),
            [letter, b':', ..] if letter.is_ascii_alphabetic() => Some(PathFlaw::Drive),
            _ => None,
        };
        if let Some(flaw) = flaw {
            return Err(flaw);
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rs110_paths_that_lead_elsewhere_have_a_named_flaw() {
        let cases = [
            ("/../etc/passwd", PathFlaw::Upwards),
            ("/a/../../b", PathFlaw::Upwards),
            ("..", PathFlaw::Upwards),
            ("//etc/passwd", PathFlaw::Absolute),
            ("/C:/windows", PathFlaw::Drive),
            ("/c:evil", PathFlaw::Drive),
            ("/a/c:evil", PathFlaw::Drive),
            ("/a\\..\\b", PathFlaw::Backslash),
            ("/a\0b", PathFlaw::Control),
            ("/a\nb", PathFlaw::Control),
            ("/a//b", PathFlaw::EmptyPart),
            ("/a/./b", PathFlaw::EmptyPart),
            ("/a/", PathFlaw::EmptyPart),
            ("/", PathFlaw::EmptyPart),
        ];
        for (path, flaw) in cases {
            assert_eq!(member_name(path), Err(flaw), "{path:?}");
        }
        assert_eq!(member_name("/resources/..a/b..txt"), Ok("resources/..a/b..txt"));
        assert_eq!(member_name("resources/a"), Ok("resources/a"));
    }
}
