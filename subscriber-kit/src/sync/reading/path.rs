//! Maps a resource's URI to a file in the copy's directory, or refuses it: the Source is not trusted with paths.
//!
//! On Unix, names are bytes, so that every possible file name can be copied.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use url::Url;

use crate::fetch::MAX_URL;
use crate::state_folder::{STATE_FOLDER, is_foreign};

/// The longest file name and path of common file systems, in bytes.
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 4000;

/// How many segments a path may have: each folder is kept in memory.
const MAX_SEGMENTS: usize = 128;

/// Characters that are escaped in a segment of a URI.
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
    /// The URI is not below the base.
    #[error("it is not below {base}, the URL of the directory; give a --base-url that covers all resources")]
    OutsideBase {
        /// The URL that corresponds to the directory.
        base: Url,
    },
    /// A segment is `.`, `..` or empty, or holds a separator, written plainly or percent-encoded.
    #[error("its path would leave the directory or is ambiguous (segment {0:?})")]
    Segment(String),
    /// A segment has characters that are not allowed in a file name.
    #[error("its path has characters that no file name may have")]
    Characters,
    /// The name is reserved for this program.
    #[error("its path is reserved for this program ({0:?})")]
    Reserved(String),
    /// The name, path or URI is too long, or has too many segments.
    #[error("its URI or its path is too long for a file")]
    TooLong,
    /// A folder of the path is a symbolic link, which may lead anywhere.
    #[error("{0} is a symbolic link; nothing is written through links")]
    Symlink(PathBuf),
    /// There is a file instead of a folder, or the reverse.
    #[error("{0} is in the way: it is a {1}. --delete removes it if no listed resource needs it")]
    InTheWay(PathBuf, &'static str),
    /// A folder of the path is another copy, or has a state.
    #[error(
        "nothing is written into {0}, which is another copy or a state; keep it elsewhere, or use --exclude"
    )]
    Foreign(PathBuf),
    /// Another resource already has this file.
    #[error("{0:?} already belongs to another resource of the list")]
    Collision(PathBuf),
}

impl PathError {
    /// Whether it is about existing files and not about the name.
    pub(crate) fn is_about_what_is_there(&self) -> bool {
        matches!(self, Self::Symlink(_) | Self::InTheWay(..) | Self::Foreign(_) | Self::Collision(_))
    }
}

/// The path of `loc` relative to the directory that corresponds to `base`.
///
/// A URI that ends in `/` becomes `index.html`; a query becomes part of the name (`a?x=1`).
///
/// # Errors
/// [`PathError`]; no name is changed to make it possible.
pub(crate) fn relative_path(loc: &str, url: &Url, base: &Url) -> Result<PathBuf, PathError> {
    // Its fragment is no part of the path, and is held and saved with it.
    if loc.len().max(url.as_str().len()) > MAX_URL {
        return Err(PathError::TooLong);
    }
    path_of(loc, url, base)
}

/// As [`relative_path`], for a URI of any length.
fn path_of(loc: &str, url: &Url, base: &Url) -> Result<PathBuf, PathError> {
    // The URL parser silently resolves `..`, converts `\` to `/` and drops line breaks. Such URIs are refused.
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
    // The part after the last slash is a page in the folder.
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

/// The URI of a file in the directory that corresponds to `base`; `None` if it has none.
pub(crate) fn url_of(relative: &Path, base: &Url) -> Option<Url> {
    let names = relative.iter().map(|name| percent_encode(name.as_encoded_bytes(), &IN_SEGMENT).to_string());
    let url = base.join(&format!("./{}", names.collect::<Vec<_>>().join("/"))).ok()?;
    // Each byte of a name may be three of the URL, so that of a file which is there may be longer than lists may say.
    (path_of(url.as_str(), &url, base).ok()? == relative).then_some(url)
}

/// The name of a file in reports.
pub(crate) fn uri_or_path(relative: &Path, base: &Url) -> String {
    url_of(relative, base).map_or_else(|| relative.display().to_string(), String::from)
}

/// The part between authority and query, as it was written.
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

/// The checked name of one file or folder.
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

/// Names are bytes.
#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere names are text, which not all bytes are")]
pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<OsString, PathError> {
    Ok(std::os::unix::ffi::OsStringExt::from_vec(bytes))
}

/// Names are text.
#[cfg(not(unix))]
pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<OsString, PathError> {
    text_name(bytes)
}

/// Some characters have a meaning: a name with `:` may be that of another drive, and its path would replace all before it. What a
/// name ends with may be dropped.
#[cfg(any(not(unix), test))]
fn text_name(bytes: Vec<u8>) -> Result<OsString, PathError> {
    let text = String::from_utf8(bytes).map_err(|_| PathError::Characters)?;
    if text.chars().any(|c| c.is_control() || matches!(c, '\\' | ':')) || text.ends_with(['.', ' ']) {
        return Err(PathError::Characters);
    }
    Ok(text.into())
}

/// What is in the way of a resource's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) path: PathBuf,
    pub(crate) kind: ObstacleKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObstacleKind {
    /// In the path of the file.
    Symlink,
    /// Something else than a folder in the path.
    File,
    /// A folder instead of the file.
    Folder,
    /// Another copy in the path, or a state folder of any program.
    Foreign,
}

impl From<Obstacle> for PathError {
    fn from(obstacle: Obstacle) -> Self {
        match obstacle.kind {
            ObstacleKind::Symlink => Self::Symlink(obstacle.path),
            ObstacleKind::File => Self::InTheWay(obstacle.path, "file"),
            ObstacleKind::Folder => Self::InTheWay(obstacle.path, "folder"),
            ObstacleKind::Foreign => Self::Foreign(obstacle.path),
        }
    }
}

/// Folders that were checked, while nobody else changes them: each is checked once per batch.
#[derive(Debug, Default)]
pub(crate) struct CheckedFolders(HashSet<PathBuf>);

impl CheckedFolders {
    /// After a file or folder was moved.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

/// The first obstacle in the path of a file, or in its place.
pub(crate) fn obstacle(
    directory: &Path,
    relative: &Path,
    checked: &mut CheckedFolders,
) -> std::io::Result<Option<Obstacle>> {
    let way = relative.parent().unwrap_or(Path::new(""));
    if !checked.0.contains(way) {
        let mut folder = directory.to_owned();
        for segment in way.components() {
            folder.push(segment);
            let kind = match kind_at(&folder)? {
                None => return Ok(None),
                Some(kind) if kind.is_dir() && is_foreign(&folder) => ObstacleKind::Foreign,
                Some(kind) if kind.is_dir() => continue,
                Some(kind) if kind.is_symlink() => ObstacleKind::Symlink,
                Some(_) => ObstacleKind::File,
            };
            return Ok(Some(Obstacle { path: folder, kind }));
        }
        checked.0.insert(way.to_owned());
    }
    let path = directory.join(relative);
    let is_folder = kind_at(&path)?.is_some_and(|kind| kind.is_dir());
    Ok(is_folder.then_some(Obstacle { path, kind: ObstacleKind::Folder }))
}

fn kind_at(path: &Path) -> std::io::Result<Option<std::fs::FileType>> {
    match std::fs::symlink_metadata(path) {
        Ok(data) => Ok(Some(data.file_type())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        // There is a file in its path.
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
    fn a_name_that_is_text_leads_to_no_other_drive_or_folder() {
        for refused in ["C:", "c:x", "a:stream", "..\\x", ".. ", "...", "a\nb"] {
            assert_eq!(text_name(refused.into()), Err(PathError::Characters), "{refused}");
        }
        assert_eq!(text_name(b"\xff".to_vec()), Err(PathError::Characters));
        assert_eq!(text_name("a ü.txt".into()), Ok("a ü.txt".into()));
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
    fn a_uri_is_as_long_as_any_other_url_may_be_with_all_that_is_no_part_of_the_path() {
        let of_length = |length: usize| {
            let begin = "http://a.example/data/x#";
            format!("{begin}{}", "f".repeat(length - begin.len()))
        };
        assert_eq!(place(&of_length(MAX_URL)), Ok(PathBuf::from("x")));
        assert_eq!(place(&of_length(MAX_URL + 1)), Err(PathError::TooLong));
        // As a list resolved a shorter reference.
        let (url, base) = (of_length(MAX_URL + 1), "http://a.example/data/");
        let [url, base] = [url.as_str(), base].map(|text| Url::parse(text).unwrap());
        assert_eq!(relative_path("x", &url, &base), Err(PathError::TooLong));
    }

    #[test]
    fn a_file_whose_url_is_longer_than_a_list_may_say_has_it_all_the_same() {
        let base = Url::parse("http://a.example/data/").unwrap();
        let relative: PathBuf = std::iter::repeat_n("ü".repeat(100), 10).collect();
        assert!(url_of(&relative, &base).is_some_and(|url| url.as_str().len() > MAX_URL));
    }

    #[test]
    fn what_is_in_the_way_is_named_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "x").unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        let kind = |relative: &str| {
            let found = obstacle(folder.path(), Path::new(relative), &mut CheckedFolders::default()).unwrap();
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
        let mut checked = CheckedFolders::default();
        let kind = |checked: &mut CheckedFolders| {
            obstacle(copy.path(), Path::new("a/b/x"), checked).unwrap().map(|obstacle| obstacle.kind)
        };
        std::fs::write(copy.path().join("a"), "x").unwrap();
        assert_eq!(kind(&mut checked), Some(ObstacleKind::File));
        std::fs::remove_file(copy.path().join("a")).unwrap();
        assert_eq!(kind(&mut checked), None);
        std::fs::create_dir(copy.path().join("a")).unwrap();
        std::fs::write(copy.path().join("a/b"), "x").unwrap();
        assert_eq!(kind(&mut checked), Some(ObstacleKind::File), "what was missing is no way");
        std::fs::remove_file(copy.path().join("a/b")).unwrap();
        std::fs::create_dir_all(copy.path().join("a/b/x")).unwrap();
        assert_eq!(kind(&mut checked), Some(ObstacleKind::Folder));
        assert_eq!(kind(&mut checked), Some(ObstacleKind::Folder), "the place itself is always looked at");
        std::fs::remove_dir_all(copy.path().join("a")).unwrap();
        std::fs::write(copy.path().join("a"), "x").unwrap();
        checked.forget();
        assert_eq!(kind(&mut checked), Some(ObstacleKind::File));
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_on_the_way_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        let found =
            obstacle(folder.path(), Path::new("link/x"), &mut CheckedFolders::default()).unwrap().unwrap();
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
