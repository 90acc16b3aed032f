//! Whose a site is: one configuration names all of its sets, so two that did would retire each other's.
//!
//! The site remembers the file that it was built from last. A file that is gone owns nothing any more.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use super::BuildError;
use crate::{files, state::FOLDER};

/// That a site may be built from a configuration file.
#[derive(Debug)]
#[must_use]
pub struct Claim {
    record: PathBuf,
    /// What is to stand there, unless it does.
    news: Option<String>,
}

impl Claim {
    /// Makes the site that of the file, once something of it was built.
    pub fn keep(self) -> Result<(), BuildError> {
        let Self { record, news } = self;
        let written = news.map_or(Ok(()), |news| files::replace(&record, news.as_bytes()));
        written.map_err(|source| BuildError::Write { path: record, source })
    }
}

/// Claims the site in `out` for a configuration file; refuses where it is that of another one, unless it is to be taken over.
pub fn claim(out: &Path, configuration: &Path, takes_over: bool) -> Result<Claim, BuildError> {
    let unread = |path: &Path, source| BuildError::Read { path: path.to_owned(), source };
    let configuration = configuration.canonicalize().map_err(|source| unread(configuration, source))?;
    let record = out.join(FOLDER).join("configuration");
    let site = std::path::absolute(out).map_err(|source| unread(out, source))?;
    let site = site.canonicalize().unwrap_or(site);
    match fs::read_to_string(&record) {
        Ok(known) => {
            let owner = site.join(known.trim_end()).canonicalize().ok().filter(|owner| owner.is_file());
            match owner {
                Some(owner) if owner == configuration => return Ok(Claim { record, news: None }),
                Some(owner) if !takes_over => {
                    return Err(BuildError::OfAnother { out: out.to_owned(), owner, configuration });
                }
                _ => {}
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(unread(&record, source)),
    }
    let news = Some(format!("{}\n", from(&site, &configuration).display()));
    Ok(Claim { record, news })
}

/// The way from one folder to a file, so that both can be moved or copied together.
fn from(folder: &Path, file: &Path) -> PathBuf {
    let common = folder.components().zip(file.components()).take_while(|(one, other)| one == other).count();
    // Nothing but the root in common is no neighbourhood.
    if common < 2 {
        return file.to_owned();
    }
    let up = folder.components().skip(common).map(|_| Component::ParentDir);
    up.chain(file.components().skip(common)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(out: &Path, configuration: &Path, takes_over: bool) -> Result<(), BuildError> {
        claim(out, configuration, takes_over)?.keep()
    }

    fn place() -> (tempfile::TempDir, PathBuf, [PathBuf; 2]) {
        let place = tempfile::tempdir().unwrap();
        let files = ["a.toml", "b.toml"].map(|name| place.path().join(name));
        for file in &files {
            fs::write(file, "x").unwrap();
        }
        let out = place.path().join("deep/site");
        (place, out, files)
    }

    #[test]
    fn a_site_is_that_of_one_file_until_another_one_takes_it_over() {
        let (_place, out, [a, b]) = place();
        for _ in 0..2 {
            claimed(&out, &a, false).unwrap();
        }
        let error = claimed(&out, &b, false).unwrap_err();
        assert!(
            matches!(&error, BuildError::OfAnother { owner, .. } if owner.ends_with("a.toml")),
            "{error}"
        );
        claimed(&out, &b, true).unwrap();
        claimed(&out, &b, false).unwrap();
        assert!(claimed(&out, &a, false).is_err());
    }

    #[test]
    fn a_file_that_is_gone_owns_nothing_and_one_that_is_moved_with_its_site_still_does() {
        let (place, out, [a, b]) = place();
        claimed(&out, &a, false).unwrap();
        let moved = tempfile::tempdir().unwrap();
        let moved = moved.path().join("all");
        fs::rename(place.path(), &moved).unwrap();
        let (out, b) = (moved.join("deep/site"), moved.join(b.file_name().unwrap()));
        assert!(claimed(&out, &b, false).is_err());
        fs::remove_file(moved.join("a.toml")).unwrap();
        claimed(&out, &b, false).unwrap();
    }

    #[test]
    fn who_has_built_nothing_owns_nothing() {
        let (_place, out, [a, b]) = place();
        drop(claim(&out, &a, false).unwrap());
        assert!(!out.exists());
        claimed(&out, &b, false).unwrap();
    }
}
