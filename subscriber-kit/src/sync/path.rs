//! From a resource's URI to a file under the copy's directory, or a named refusal: the Source is not trusted
//! with paths.
//!
//! A name is bytes where the file system's names are: on Unix everything that a file may be called can be
//! copied.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use url::Url;

use crate::state_folder::{STATE_FOLDER, is_state_folder};

/// The longest file name and the longest path, in bytes, as file systems have it.
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 4000;

/// How many folders deep a file may lie, and one: each of them is remembered.
const MAX_SEGMENTS: usize = 128;

/// What a segment of a URI cannot have as it is.
const IN_SEGMENT: AsciiSet = CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// Why a resource has no file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The URI cannot be read.
    #[error("its URI is not valid ({0})")]
    Uri(url::ParseError),
    /// The URI lies outside of what the directory stands for.
    #[error("it is not below {base}, the URL of the directory; give a --base that covers all resources")]
    OutsideBase {
        /// What the directory stands for.
        base: Url,
    },
    /// A segment is `.`, `..` or empty, or holds a separator, written plainly or percent-encoded.
    #[error("its path would leave the directory or is ambiguous (segment {0:?})")]
    Segment(String),
    /// A segment holds what no file name here may have: NUL, and where names are text also control characters
    /// and what is not UTF-8.
    #[error("its path has characters that no file name may have")]
    Characters,
    /// A name that this program uses itself.
    #[error("its path is reserved for this program ({0:?})")]
    Reserved(String),
    /// Longer than file systems take, or too many folders deep.
    #[error("its path is too long for a file")]
    TooLong,
    /// A folder on its way is a symbolic link, which may lead anywhere.
    #[error("{0} is a symbolic link; nothing is written through links")]
    Symlink(PathBuf),
    /// A folder on its way, or the file itself, is something else.
    #[error("{0} is in the way: it is a {1}. --delete removes it if no listed resource needs it")]
    InTheWay(PathBuf, &'static str),
    /// Another resource already has this file.
    #[error("{0:?} already belongs to another resource of the list")]
    Collision(PathBuf),
}

impl PathError {
    /// Whether it is not the name that is at fault but what stands in its place, or on the way there.
    pub(crate) fn is_about_what_is_there(&self) -> bool {
        matches!(self, Self::Symlink(_) | Self::InTheWay(..) | Self::Collision(_))
    }
}

/// The path of `loc` relative to the directory that stands for `base`.
///
/// A URI that ends in `/` becomes `index.html`; a query becomes part of the name (`a?x=1`).
///
/// # Errors
/// [`PathError`]; nothing is made to fit.
pub(crate) fn relative_path(loc: &str, url: &Url, base: &Url) -> Result<PathBuf, PathError> {
    // The URL parser silently resolves `..`, turns `\` into `/` and drops line breaks; a list that needs this
    // is not trusted.
    for segment in raw_path(loc.trim()).split('/') {
        if segment.contains('\\') || matches!(decode(segment).as_slice(), b"." | b"..") {
            return Err(PathError::Segment(segment.to_owned()));
        }
        if segment.chars().any(char::is_control) {
            return Err(PathError::Characters);
        }
    }
    let mut segments = segments(url);
    let mut prefix = self::segments(base);
    // What follows the last slash is a page in the folder, not the folder.
    prefix.pop();
    if segments.len() <= prefix.len() || segments.drain(..prefix.len()).ne(prefix.drain(..)) {
        return Err(PathError::OutsideBase { base: base.clone() });
    }
    let mut name = segments.pop().unwrap_or_default();
    if name.is_empty() {
        name.extend_from_slice(b"index.html");
    }
    if let Some(query) = url.query() {
        name.push(b'?');
        name.extend_from_slice(query.replace('/', "%2F").as_bytes());
    }
    segments.push(name);
    if segments.len() > MAX_SEGMENTS {
        return Err(PathError::TooLong);
    }
    let path = segments.into_iter().map(name_of).collect::<Result<PathBuf, _>>()?;
    if path.as_os_str().len() > MAX_PATH {
        return Err(PathError::TooLong);
    }
    Ok(path)
}

/// The URI of a file under the directory that stands for `base`; `None` for one that no URI leads to.
pub(crate) fn url_of(relative: &Path, base: &Url) -> Option<Url> {
    let names = relative.iter().map(|name| percent_encode(name.as_encoded_bytes(), &IN_SEGMENT).to_string());
    let url = base.join(&format!("./{}", names.collect::<Vec<_>>().join("/"))).ok()?;
    (relative_path(url.as_str(), &url, base).ok()? == relative).then_some(url)
}

/// By what a file is told of.
pub(crate) fn uri_or_path(relative: &Path, base: &Url) -> String {
    url_of(relative, base).map_or_else(|| relative.display().to_string(), String::from)
}

/// What stands between the authority and the query, as it was written.
fn raw_path(loc: &str) -> &str {
    let rest = loc
        .split_once("://")
        .map_or(loc, |(_, rest)| rest.find(['/', '\\']).map_or("", |at| &rest[at + 1..]));
    rest.split(['?', '#']).next().unwrap_or_default()
}

fn segments(url: &Url) -> Vec<Vec<u8>> {
    let path = url.path();
    path.strip_prefix('/').unwrap_or(path).split('/').map(decode).collect()
}

fn decode(segment: &str) -> Vec<u8> {
    percent_decode_str(segment).collect()
}

/// The name of one file or folder, once it can do no harm.
fn name_of(bytes: Vec<u8>) -> Result<OsString, PathError> {
    let shown = || String::from_utf8_lossy(&bytes).into_owned();
    if matches!(bytes.as_slice(), b"" | b"." | b"..") || bytes.contains(&b'/') {
        return Err(PathError::Segment(shown()));
    }
    if bytes.contains(&0) {
        return Err(PathError::Characters);
    }
    if bytes.starts_with(STATE_FOLDER.as_bytes()) {
        return Err(PathError::Reserved(shown()));
    }
    if bytes.len() > MAX_NAME {
        return Err(PathError::TooLong);
    }
    from_bytes(bytes)
}

/// A name is whatever bytes it is.
#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere names are text, which not all bytes are")]
pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<OsString, PathError> {
    Ok(std::os::unix::ffi::OsStringExt::from_vec(bytes))
}

/// A name is text, and some of it would mean something else.
#[cfg(not(unix))]
pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<OsString, PathError> {
    let text = String::from_utf8(bytes).map_err(|_| PathError::Characters)?;
    if text.chars().any(|c| c.is_control() || c == '\\') {
        return Err(PathError::Characters);
    }
    Ok(text.into())
}

/// What stands where a resource's file or one of its folders must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) path: PathBuf,
    pub(crate) kind: ObstacleKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObstacleKind {
    /// On the way to the file.
    Symlink,
    /// A file, or another thing that is no folder, on the way.
    File,
    /// A folder in the place of the file.
    Folder,
    /// A folder on the way that keeps a state, whoever's.
    State,
}

impl From<Obstacle> for PathError {
    fn from(obstacle: Obstacle) -> Self {
        match obstacle.kind {
            ObstacleKind::Symlink => Self::Symlink(obstacle.path),
            ObstacleKind::File => Self::InTheWay(obstacle.path, "file"),
            ObstacleKind::Folder => Self::InTheWay(obstacle.path, "folder"),
            ObstacleKind::State => Self::Reserved(obstacle.path.display().to_string()),
        }
    }
}

/// Folders of a copy that were found to be folders and no more than that, while nobody else changes them: what is put in place
/// together asks once for each.
#[derive(Debug, Default)]
pub(crate) struct Ways(HashSet<PathBuf>);

impl Ways {
    /// Something was moved.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

/// The first thing on the way to a file, or in its place, that lets it not be written. Nothing is made.
pub(crate) fn obstacle(
    directory: &Path,
    relative: &Path,
    ways: &mut Ways,
) -> std::io::Result<Option<Obstacle>> {
    let way = relative.parent().unwrap_or(Path::new(""));
    if !ways.0.contains(way) {
        let mut folder = directory.to_owned();
        for segment in way.components() {
            folder.push(segment);
            let kind = match kind_at(&folder)? {
                None => return Ok(None),
                Some(kind) if kind.is_dir() && is_state_folder(&folder) => ObstacleKind::State,
                Some(kind) if kind.is_dir() => continue,
                Some(kind) if kind.is_symlink() => ObstacleKind::Symlink,
                Some(_) => ObstacleKind::File,
            };
            return Ok(Some(Obstacle { path: folder, kind }));
        }
        ways.0.insert(way.to_owned());
    }
    let path = directory.join(relative);
    let is_folder = kind_at(&path)?.is_some_and(|kind| kind.is_dir());
    Ok(is_folder.then_some(Obstacle { path, kind: ObstacleKind::Folder }))
}

fn kind_at(path: &Path) -> std::io::Result<Option<std::fs::FileType>> {
    match std::fs::symlink_metadata(path) {
        Ok(data) => Ok(Some(data.file_type())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        // The way there leads through a file.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(loc: &str) -> Result<PathBuf, PathError> {
        let url = Url::parse(loc).map_err(PathError::Uri)?;
        relative_path(loc, &url, &Url::parse("http://a.example/data/").unwrap())
    }

    #[test]
    fn a_uri_under_the_base_becomes_a_relative_path() {
        let place = |loc| place(loc).unwrap().into_os_string();
        assert_eq!(place("http://a.example/data/x/y.txt"), "x/y.txt");
        assert_eq!(place("http://a.example/data/gr%C3%BC%C3%9Fe%20.txt"), "grüße .txt");
        assert_eq!(place("http://a.example/data/"), "index.html");
        assert_eq!(place("http://a.example/data/a?x=/1#part"), "a?x=%2F1");
    }

    #[test]
    fn a_file_under_the_directory_has_the_uri_that_leads_to_it() {
        let base = Url::parse("http://a.example/data/list.xml").unwrap();
        assert_eq!(
            url_of(Path::new("x-1/y_z.txt"), &base).unwrap().as_str(),
            "http://a.example/data/x-1/y_z.txt"
        );
        for name in ["x", "grüße 100%?.txt", "a:b/c#d"] {
            let url = url_of(Path::new(name), &base).unwrap();
            assert_eq!(relative_path(url.as_str(), &url, &base).unwrap(), Path::new(name), "{url}");
        }
        assert_eq!(url_of(Path::new(".resync-destination/x"), &base), None);
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
            "http://a.example/data//etc/passwd",
            "http://a.example/data/./x",
        ] {
            assert!(matches!(place(loc), Err(PathError::Segment(_))), "{loc}: {:?}", place(loc));
        }
        for loc in ["http://a.example/data/a%00b", "http://a.example/data/a\nb", "http://a.example/data/a\tb"]
        {
            assert_eq!(place(loc), Err(PathError::Characters), "{loc}");
        }
        assert!(matches!(place("http://a.example/other/x"), Err(PathError::OutsideBase { .. })));
        assert!(matches!(place("http://a.example/data"), Err(PathError::OutsideBase { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_unix_allows_is_a_name_here() {
        use std::os::unix::ffi::OsStrExt as _;
        for (written, name) in [
            ("..%5csecret", &b"..\\secret"[..]),
            ("a%0Ab", b"a\nb"),
            ("%ff%FE", b"\xff\xfe"),
            ("%1b%5B2J", b"\x1b[2J"),
        ] {
            let path = place(&format!("http://a.example/data/{written}")).unwrap();
            assert_eq!(path.as_os_str().as_bytes(), name, "{written}");
            assert_eq!(path.components().count(), 1, "{written}");
        }
    }

    #[test]
    fn this_programs_own_names_are_out_of_reach() {
        for loc in [
            "http://a.example/data/.resync-destination/state.json",
            "http://a.example/data/%2eresync-destination/state.json",
            "http://a.example/data/x/.resync-destination-state",
        ] {
            assert!(matches!(place(loc), Err(PathError::Reserved(_))), "{loc}");
        }
        assert_eq!(place(&format!("http://a.example/data/{}", "a".repeat(256))), Err(PathError::TooLong));
        assert!(place(&format!("http://a.example/data/{}", "a/".repeat(127))).is_ok());
        assert_eq!(place(&format!("http://a.example/data/{}", "a/".repeat(128))), Err(PathError::TooLong));
    }

    #[test]
    fn what_is_in_the_way_is_named_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "x").unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        let kind = |relative: &str| {
            let found = obstacle(folder.path(), Path::new(relative), &mut Ways::default()).unwrap();
            found.map(|obstacle| obstacle.kind)
        };
        assert_eq!(kind("file/x/y"), Some(ObstacleKind::File));
        assert_eq!(kind("folder"), Some(ObstacleKind::Folder));
        assert_eq!(kind("folder/x"), None);
        assert_eq!(kind("new/x"), None);
        assert!(!folder.path().join("new").exists());
    }

    #[test]
    fn only_what_is_no_obstacle_is_known_as_a_way_until_something_moves() {
        let copy = tempfile::tempdir().unwrap();
        let mut ways = Ways::default();
        let kind = |ways: &mut Ways| {
            obstacle(copy.path(), Path::new("a/b/x"), ways).unwrap().map(|obstacle| obstacle.kind)
        };
        std::fs::write(copy.path().join("a"), "x").unwrap();
        assert_eq!(kind(&mut ways), Some(ObstacleKind::File));
        std::fs::remove_file(copy.path().join("a")).unwrap();
        assert_eq!(kind(&mut ways), None);
        std::fs::create_dir(copy.path().join("a")).unwrap();
        std::fs::write(copy.path().join("a/b"), "x").unwrap();
        assert_eq!(kind(&mut ways), Some(ObstacleKind::File), "what was missing is no way");
        std::fs::remove_file(copy.path().join("a/b")).unwrap();
        std::fs::create_dir_all(copy.path().join("a/b/x")).unwrap();
        assert_eq!(kind(&mut ways), Some(ObstacleKind::Folder));
        assert_eq!(kind(&mut ways), Some(ObstacleKind::Folder), "the place itself is always looked at");
        std::fs::remove_dir_all(copy.path().join("a")).unwrap();
        std::fs::write(copy.path().join("a"), "x").unwrap();
        ways.forget();
        assert_eq!(kind(&mut ways), Some(ObstacleKind::File));
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_on_the_way_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        let found = obstacle(folder.path(), Path::new("link/x"), &mut Ways::default()).unwrap().unwrap();
        assert_eq!(found.kind, ObstacleKind::Symlink);
    }

    proptest::proptest! {
        #[test]
        fn whatever_the_uri_the_file_stays_under_the_directory(path in "[a-c./\\\\%2eEfF5cC0?#~ -]{0,40}") {
            let loc = format!("http://a.example/data/{path}");
            if let Ok(relative) = place(&loc) {
                let inside = relative.components().all(|part| matches!(part, std::path::Component::Normal(_)));
                proptest::prop_assert!(inside && relative.components().next().is_some(), "{loc} -> {relative:?}");
            }
        }
    }
}
