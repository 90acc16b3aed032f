//! From a resource's URI to a file under the copy's directory, or a named refusal: the Source is not trusted
//! with paths.

use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use url::Url;

use crate::state::STATE_FOLDER;

/// How files begin that are not complete yet.
pub(crate) const UNFINISHED: &str = ".resync-unfinished-";

/// The longest file name and the longest path, in bytes, as file systems have it.
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 4000;

/// Why a resource has no file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The URI cannot be read.
    #[error("its URI is not valid ({0})")]
    Uri(url::ParseError),
    /// The URI lies outside of what the directory stands for.
    #[error(
        "it lies outside of {base}, which the directory stands for: give a --base that holds all resources"
    )]
    OutsideBase {
        /// What the directory stands for.
        base: Url,
    },
    /// A segment is `.`, `..` or empty, or holds a separator, written plainly or percent-encoded.
    #[error("its path would leave the directory or is ambiguous (segment {0:?})")]
    Segment(String),
    /// A segment holds NUL or another control character, or is not UTF-8.
    #[error("its path holds characters that no file name may have")]
    Characters,
    /// A name that this program uses itself.
    #[error("its path is one of this program's own names ({0:?})")]
    Reserved(String),
    /// Longer than file systems take.
    #[error("its path is too long for a file")]
    TooLong,
    /// A folder on its way is a symbolic link, which may lead anywhere.
    #[error("{0} is a symbolic link, so nothing is written through it")]
    Symlink(PathBuf),
    /// A folder on its way, or the file itself, is something else.
    #[error("{0} is in the way: it is a {1}")]
    InTheWay(PathBuf, &'static str),
    /// Another resource already has this file.
    #[error("{0:?} already belongs to another resource of the list")]
    Collision(String),
}

/// The path of `loc` relative to the directory that stands for `base`, with `/` between its segments.
///
/// A URI that ends in `/` becomes `index.html`; a query becomes part of the name (`a?x=1`).
///
/// # Errors
/// [`PathError`]; nothing is made to fit.
pub(crate) fn relative_path(loc: &str, url: &Url, base: &Url) -> Result<String, PathError> {
    // The URL parser silently resolves `..` and turns `\` into `/`; a list that needs this is not trusted.
    for segment in raw_path(loc).split('/') {
        let decoded = decode(segment)?;
        if matches!(decoded.as_str(), "." | "..") || decoded.contains(['/', '\\']) {
            return Err(PathError::Segment(segment.to_owned()));
        }
    }
    let mut segments = segments(url)?;
    let mut prefix = segments_of_folder(base)?;
    if segments.len() <= prefix.len() || segments.drain(..prefix.len()).ne(prefix.drain(..)) {
        return Err(PathError::OutsideBase { base: base.clone() });
    }
    let mut name = segments.pop().unwrap_or_default();
    if name.is_empty() {
        "index.html".clone_into(&mut name);
    }
    if let Some(query) = url.query() {
        name = format!("{name}?{}", query.replace('/', "%2F"));
    }
    segments.push(name);
    segments.iter().try_for_each(|segment| check_segment(segment))?;
    let path = segments.join("/");
    if path.len() > MAX_PATH {
        return Err(PathError::TooLong);
    }
    Ok(path)
}

/// The file for a relative path, once every folder on its way is known to be a folder. Missing folders are
/// made.
///
/// # Errors
/// [`PathError::Symlink`] or [`PathError::InTheWay`] inside `Ok(Err(_))`; the outer error is the file
/// system's.
pub(crate) fn prepare(directory: &Path, relative: &str) -> std::io::Result<Result<PathBuf, PathError>> {
    let path = directory.join(relative);
    let parent = Path::new(relative).parent().unwrap_or(Path::new(""));
    let mut folder = directory.to_owned();
    for segment in parent.components() {
        folder.push(segment);
        match obstacle(&folder)? {
            Some(error) => return Ok(Err(error)),
            None => match std::fs::create_dir(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            },
        }
    }
    match std::fs::symlink_metadata(&path) {
        Ok(data) if data.is_dir() => Ok(Err(PathError::InTheWay(path, "folder"))),
        _ => Ok(Ok(path)),
    }
}

/// The first symbolic link or file among the folders of `relative`; for looking without making anything.
pub(crate) fn blocked(directory: &Path, relative: &str) -> std::io::Result<Option<PathError>> {
    let mut folder = directory.to_owned();
    for segment in Path::new(relative).parent().unwrap_or(Path::new("")).components() {
        folder.push(segment);
        if let Some(error) = obstacle(&folder)? {
            return Ok(Some(error));
        }
    }
    Ok(None)
}

fn obstacle(folder: &Path) -> std::io::Result<Option<PathError>> {
    match std::fs::symlink_metadata(folder) {
        Ok(data) if data.is_dir() => Ok(None),
        Ok(data) if data.is_symlink() => Ok(Some(PathError::Symlink(folder.to_owned()))),
        Ok(_) => Ok(Some(PathError::InTheWay(folder.to_owned(), "file"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What stands between the authority and the query, as it was written.
fn raw_path(loc: &str) -> &str {
    let rest = loc
        .split_once("://")
        .map_or(loc, |(_, rest)| rest.find(['/', '\\']).map_or("", |at| &rest[at + 1..]));
    rest.split(['?', '#']).next().unwrap_or_default()
}

fn segments(url: &Url) -> Result<Vec<String>, PathError> {
    url.path().trim_start_matches('/').split('/').map(decode).collect()
}

fn segments_of_folder(base: &Url) -> Result<Vec<String>, PathError> {
    let mut segments = segments(base)?;
    // What follows the last slash is a page in the folder, not the folder.
    segments.pop();
    Ok(segments)
}

fn decode(segment: &str) -> Result<String, PathError> {
    let decoded = percent_decode_str(segment).decode_utf8().map_err(|_| PathError::Characters)?;
    if decoded.chars().any(char::is_control) {
        return Err(PathError::Characters);
    }
    Ok(decoded.into_owned())
}

fn check_segment(segment: &str) -> Result<(), PathError> {
    if matches!(segment, "" | "." | "..") || segment.contains(['/', '\\']) {
        return Err(PathError::Segment(segment.to_owned()));
    }
    if segment.starts_with(STATE_FOLDER) || segment.starts_with(UNFINISHED) {
        return Err(PathError::Reserved(segment.to_owned()));
    }
    if segment.len() > MAX_NAME {
        return Err(PathError::TooLong);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(loc: &str) -> Result<String, PathError> {
        let url = Url::parse(loc).map_err(PathError::Uri)?;
        relative_path(loc, &url, &Url::parse("http://a.example/data/").unwrap())
    }

    #[test]
    fn a_uri_under_the_base_becomes_a_relative_path() {
        assert_eq!(place("http://a.example/data/x/y.txt").unwrap(), "x/y.txt");
        assert_eq!(place("http://a.example/data/gr%C3%BC%C3%9Fe%20.txt").unwrap(), "grüße .txt");
        assert_eq!(place("http://a.example/data/").unwrap(), "index.html");
        assert_eq!(place("http://a.example/data/a?x=/1#part").unwrap(), "a?x=%2F1");
    }

    #[test]
    fn rs202_a_path_that_leaves_the_directory_is_refused_however_it_is_written() {
        for loc in [
            "http://a.example/data/../secret",
            "http://a.example/data/x/../../secret",
            "http://a.example/data/%2e%2e/secret",
            "http://a.example/data/.%2E/secret",
            "http://a.example/data/..%2fsecret",
            "http://a.example/data/x%2fy",
            "http://a.example/data/..\\secret",
            "http://a.example/data/..%5csecret",
            "http://a.example/data//etc/passwd",
            "http://a.example/data/./x",
        ] {
            assert!(matches!(place(loc), Err(PathError::Segment(_))), "{loc}: {:?}", place(loc));
        }
        for loc in ["http://a.example/data/a%00b", "http://a.example/data/a%0Ab", "http://a.example/data/%ff"]
        {
            assert_eq!(place(loc), Err(PathError::Characters), "{loc}");
        }
        assert!(matches!(place("http://a.example/other/x"), Err(PathError::OutsideBase { .. })));
        assert!(matches!(place("http://a.example/data"), Err(PathError::OutsideBase { .. })));
    }

    #[test]
    fn this_programs_own_names_are_out_of_reach() {
        for loc in [
            "http://a.example/data/.resync-destination/state.json",
            "http://a.example/data/%2eresync-destination/state.json",
            "http://a.example/data/x/.resync-unfinished-1",
        ] {
            assert!(matches!(place(loc), Err(PathError::Reserved(_))), "{loc}");
        }
        assert_eq!(place(&format!("http://a.example/data/{}", "a".repeat(256))), Err(PathError::TooLong));
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_written_through_a_symbolic_link() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        assert!(matches!(prepare(folder.path(), "link/x").unwrap(), Err(PathError::Symlink(_))));
        assert!(matches!(blocked(folder.path(), "link/x").unwrap(), Some(PathError::Symlink(_))));
        assert!(prepare(folder.path(), "real/x").unwrap().is_ok());
    }

    proptest::proptest! {
        #[test]
        fn whatever_the_uri_the_file_stays_under_the_directory(path in "[a-c./\\\\%2eEfF5cC0?#~ -]{0,40}") {
            let loc = format!("http://a.example/data/{path}");
            if let Ok(relative) = place(&loc) {
                let inside = Path::new(&relative).components().all(|part| matches!(part, std::path::Component::Normal(_)));
                proptest::prop_assert!(inside && !relative.is_empty(), "{} -> {}", loc, relative);
            }
        }
    }
}
