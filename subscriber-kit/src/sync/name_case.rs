//! Whether names that differ only in case are one file, as they are on macOS, on Windows, and in folders of ext4 with `casefold`.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use crate::state_folder::STATE_FOLDER;

/// How a directory compares names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NameCase {
    /// By their bytes.
    #[default]
    Sensitive,
    /// Without regard to case.
    Insensitive,
}

impl NameCase {
    /// That of a copy's directory: where case does not count, its state folder has its name in upper case, too. Sensitive while
    /// there is no state folder.
    pub(crate) fn of(directory: &Path) -> Self {
        Self::by(&directory.join(STATE_FOLDER), &directory.join(STATE_FOLDER.to_uppercase()))
    }

    /// By a file or folder, and its name in another case.
    fn by(name: &Path, in_other_case: &Path) -> Self {
        match is_one(name, in_other_case) {
            Ok(true) => Self::Insensitive,
            // Mostly, there is nothing of the other name.
            _ => Self::Sensitive,
        }
    }

    /// A path that is equal for equal names. Case is folded letter by letter to lower case, which differs from what file systems
    /// do for few letters, and names that are not Unicode count by their bytes.
    pub(crate) fn fold(self, relative: &Path) -> Cow<'_, Path> {
        if self == Self::Sensitive {
            return Cow::Borrowed(relative);
        }
        let folded = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<String>();
        relative.to_str().map_or(Cow::Borrowed(relative), |text| Cow::Owned(PathBuf::from(folded(text))))
    }
}

#[cfg(unix)]
fn is_one(name: &Path, in_other_case: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let other = in_other_case.symlink_metadata()?;
    let own = name.symlink_metadata()?;
    Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
}

#[cfg(not(unix))]
fn is_one(name: &Path, in_other_case: &Path) -> io::Result<bool> {
    let other = in_other_case.canonicalize()?;
    Ok(name.canonicalize()? == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn case_does_not_count_where_the_other_name_leads_to_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("one"), "").unwrap();
        std::fs::write(at("two"), "").unwrap();
        // As a disk would show it that does not tell case.
        std::fs::hard_link(at("one"), at("also one")).unwrap();
        assert_eq!(NameCase::by(&at("one"), &at("also one")), NameCase::Insensitive);
        assert_eq!(NameCase::by(&at("one"), &at("two")), NameCase::Sensitive);
        assert_eq!(NameCase::by(&at("one"), &at("none")), NameCase::Sensitive);
    }

    #[test]
    fn a_directory_is_asked_by_its_state_folder() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(NameCase::of(directory.path()), NameCase::Sensitive, "nothing to ask by");
        std::fs::create_dir(directory.path().join(STATE_FOLDER)).unwrap();
        let found = NameCase::of(directory.path());
        let has_room = std::fs::create_dir(directory.path().join(STATE_FOLDER.to_uppercase())).is_ok();
        assert_eq!(found == NameCase::Sensitive, has_room);
        assert_eq!(NameCase::of(directory.path()), found, "also if the other name is there");
    }

    #[test]
    fn only_letters_of_either_case_are_folded() {
        let folded = |name: &'static str| NameCase::Insensitive.fold(Path::new(name)).into_owned();
        assert_eq!(folded("Dir/\u{c9}T\u{c9} 1.TXT"), Path::new("dir/\u{e9}t\u{e9} 1.txt"));
        assert_eq!(NameCase::Sensitive.fold(Path::new("Dir")), Path::new("Dir"));
    }
}
