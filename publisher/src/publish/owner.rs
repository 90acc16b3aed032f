//! Which configuration a site belongs to: each lists all sets, so two of them would retire each other's.
//!
//! The site records the path of the file that it is built from, and its sets. Another file may have the site if no set would be lost. It does not matter
//! whether the first file still exists: it may be in use in another container.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::retire::{self, RetireFailure};
use crate::{
    error::{Action, Error},
    helpers::files,
    state::{FOLDER, lock_configuration, parse_format},
};

/// The version of `configuration.json`.
const FORMAT: u32 = 1;

/// The record that a site is built from a configuration file, until another file takes it over.
#[derive(Clone, Debug)]
pub struct Claim {
    out: PathBuf,
    /// As the site records it.
    owner: Exact,
    configuration: PathBuf,
    retire_failures: Vec<RetireFailure>,
}

impl Claim {
    /// The sets that the file no longer lists and that could not be retired.
    pub fn retire_failures(&self) -> &[RetireFailure] {
        &self.retire_failures
    }

    /// Fails if another file has taken over the site. While a set is locked, that cannot retire it.
    pub(super) fn check(&self) -> Result<(), Error> {
        match Record::read(&self.out)? {
            Some(record) if record.configuration != self.owner => Err(Error::TakenOver {
                out: self.out.clone(),
                owner: record.configuration.path(),
                configuration: self.configuration.clone(),
            }),
            _ => Ok(()),
        }
    }
}

/// Claims the site in `out` for a configuration file with the sets `staying`, and retires all others whose state can be read. Refuses if that is another file
/// than before and sets would be lost, unless the site is to be taken over.
///
/// Builds write a Source Description without the others from then on; after that, [`clear`](super::clear) removes the rest.
pub fn claim(
    out: &Path,
    configuration: &Path,
    staying: &[PathBuf],
    takes_over: bool,
) -> Result<Claim, Error> {
    let configuration =
        std::path::absolute(configuration).map_err(Error::cannot(Action::Read, configuration))?;
    let ownership = lock_configuration(out)?;
    let before = Record::read(out)?;
    let sets = staying.iter().map(|set| Exact::of(set.strip_prefix(out).unwrap_or(set).as_os_str()));
    let mut record =
        Record { format: FORMAT, configuration: Exact::of(configuration.as_os_str()), sets: sets.collect() };
    if let Some(before) = &before {
        let owner = before.configuration.path();
        if is_same(&owner, &configuration) {
            record.configuration = before.configuration.clone();
        } else if !takes_over {
            // Sets that are being built for the first time count, too.
            let names_all = before.sets.iter().all(|set| record.sets.contains(set));
            if !names_all || !retire::unlisted(out, staying)?.is_empty() {
                return Err(Error::OfAnother { out: out.to_owned(), owner, configuration });
            }
        }
    }
    if before.as_ref() != Some(&record) {
        record.write(out)?;
    }
    let retire_failures = retire::retire(out, staying)?;
    drop(ownership);
    Ok(Claim { out: out.to_owned(), owner: record.configuration, configuration, retire_failures })
}

/// The configuration file that the site in `out` is built from, if it is.
pub fn configuration_of(out: &Path) -> Result<Option<PathBuf>, Error> {
    Ok(Record::read(out)?.map(|record| record.configuration.path()))
}

/// Whether two paths are the same, or lead to one file now.
fn is_same(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| path.canonicalize().ok();
    one == other || found(one).is_some_and(|one| found(other) == Some(one))
}

/// What a site records of the file.
#[derive(PartialEq, Serialize, Deserialize)]
struct Record {
    format: u32,
    configuration: Exact,
    /// The names of their folders; that of a set without a name is empty.
    sets: Vec<Exact>,
}

impl Record {
    fn path(out: &Path) -> PathBuf {
        out.join(FOLDER).join("configuration.json")
    }

    fn read(out: &Path) -> Result<Option<Self>, Error> {
        let path = Self::path(out);
        let bytes = files::read_if_there(&path).map_err(Error::cannot(Action::Read, &path))?;
        let damaged = |reason| Error::DamagedClaim { path: path.clone(), reason };
        bytes.map(|bytes| parse_format(&bytes, &path, FORMAT, damaged)).transpose()
    }

    fn write(&self, out: &Path) -> Result<(), Error> {
        let path = Self::path(out);
        files::replace_json(&path, self).map_err(Error::cannot(Action::Write, &path))
    }
}

/// The name of a file with all its bytes, readable if it is text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Exact {
    Text(String),
    Other(OsString),
}

impl Exact {
    fn of(name: &OsStr) -> Self {
        name.to_str().map_or_else(|| Self::Other(name.to_owned()), |text| Self::Text(text.to_owned()))
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Text(text) => text.into(),
            Self::Other(name) => name.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn claim(&self, configuration: &Path, sets: &[&str], takes_over: bool) -> Result<Claim, Error> {
            let out = self.at("site");
            let sets: Vec<_> = sets.iter().map(|set| out.join(set)).collect();
            claim(&out, configuration, &sets, takes_over)
        }
    }

    #[test]
    fn a_site_is_that_of_one_file_until_another_one_names_all_of_its_sets_or_takes_it_over() {
        let place = Place::new();
        let [a, b] = ["a.toml", "b.toml"].map(|name| place.at(name));
        for sets in [["x", "z"], ["x", "y"]] {
            place.claim(&a, &sets, false).unwrap();
        }
        let error = place.claim(&b, &["x"], false).unwrap_err();
        assert!(matches!(&error, Error::OfAnother { owner, .. } if *owner == a), "{error}");
        place.claim(&b, &["x", "y", "z"], false).unwrap();
        place.claim(&a, &["x"], false).unwrap_err();
        place.claim(&a, &["x"], true).unwrap();
        place.claim(&b, &["y"], false).unwrap_err();
    }

    #[test]
    fn who_has_lost_the_site_is_told_to_whom_and_who_names_other_sets_has_not() {
        let place = Place::new();
        let [a, b] = ["a.toml", "b.toml"].map(|name| place.at(name));
        let first = place.claim(&a, &["x"], false).unwrap();
        place.claim(&a, &["y"], false).unwrap();
        first.check().unwrap();
        place.claim(&b, &["y"], false).unwrap();
        let error = first.check().unwrap_err();
        assert!(matches!(&error, Error::TakenOver { owner, .. } if *owner == b), "{error}");
    }

    #[test]
    fn a_record_that_cannot_be_read_is_nobodys_leave_to_remove_sets() {
        let place = Place::new();
        let a = place.at("a.toml");
        place.claim(&a, &["x"], false).unwrap();
        let path = Record::path(&place.at("site"));
        fs::write(&path, "?").unwrap();
        let error = place.claim(&a, &["x"], true).unwrap_err();
        assert!(matches!(&error, Error::DamagedClaim { path: unread, .. } if *unread == path), "{error}");
        fs::write(&path, r#"{"format": 2, "configurations": []}"#).unwrap();
        let error = place.claim(&a, &["x"], true).unwrap_err();
        assert!(matches!(error, Error::Newer { found: 2, .. }), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_known_by_the_path_that_was_given_and_by_any_other_that_leads_to_it_now() {
        use std::os::unix::fs::symlink;
        let place = Place::new();
        for release in ["1", "2"] {
            fs::create_dir(place.at(release)).unwrap();
            fs::write(place.at(release).join("source.toml"), release).unwrap();
        }
        let current = place.at("current");
        symlink(place.at("1"), &current).unwrap();
        let file = current.join("source.toml");
        place.claim(&file, &["x", "y"], false).unwrap();
        place.claim(&place.at("1/source.toml"), &["x"], false).unwrap();
        fs::remove_file(&current).unwrap();
        symlink(place.at("2"), &current).unwrap();
        place.claim(&file, &["y"], false).unwrap();
        place.claim(&place.at("1/source.toml"), &["x"], false).unwrap_err();
    }

    #[cfg(unix)]
    #[test]
    fn paths_that_are_no_text_or_end_in_a_new_line_are_told_apart() {
        use std::os::unix::ffi::OsStrExt as _;
        let place = Place::new();
        let names: [&[u8]; 4] = [b"a", b"a\n", b"a\xff", b"a\xfe"];
        for name in names {
            let file = place.0.path().join(OsStr::from_bytes(name));
            place.claim(&file, &["x"], true).unwrap();
            place.claim(&file, &["y"], false).unwrap();
            for other in names.into_iter().filter(|other| *other != name) {
                place.claim(&place.0.path().join(OsStr::from_bytes(other)), &["x"], false).unwrap_err();
            }
        }
    }
}
