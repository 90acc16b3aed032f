//! Lines of a file found by their URLs, in whose order they stand, without reading those in between. Each is an object of JSON that
//! begins with its URL, called `loc`.

use std::{
    borrow::Cow,
    fs::File,
    io,
    marker::PhantomData,
    ops::Range,
    path::{Path, PathBuf},
};

use resync_core::build::BuildError;
use serde::{Deserialize, de::DeserializeOwned};

use super::files;

/// How near a search comes in steps before it goes line by line, and what is read at one go: a few lines.
const NEAR: u64 = 4 * 1024;

/// A file, and how far searches have come in it: each looks for something after what the one before looked for.
pub(crate) struct Search<T> {
    file: File,
    path: PathBuf,
    length: u64,
    /// Where the first line begins that is not before what was looked for last.
    at: u64,
    /// How far the last search went; the next one may go as far.
    stride: u64,
    /// What was read last, and from where on.
    window: Vec<u8>,
    start: u64,
    of: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Search<T> {
    pub(crate) fn open_if_there(path: &Path) -> Result<Option<Self>, BuildError> {
        let failed = |source| BuildError::File { path: path.to_owned(), source };
        let Some(file) = files::if_there(File::open(path)).map_err(failed)? else { return Ok(None) };
        let length = file.metadata().map_err(failed)?.len();
        let (path, window) = (path.to_owned(), Vec::new());
        Ok(Some(Self { file, path, length, at: 0, stride: NEAR, window, start: 0, of: PhantomData }))
    }

    /// The line of a resource.
    pub(crate) fn find(&mut self, loc: &str) -> Result<Option<T>, BuildError> {
        let mut found = self.lines(loc, |found| found == loc)?;
        Ok(found.pop())
    }

    /// The lines of the resources whose URLs begin like this.
    pub(crate) fn below(&mut self, beginning: &str) -> Result<Vec<T>, BuildError> {
        self.lines(beginning, |found| found.starts_with(beginning))
    }

    /// The next line of one resource, of which there may be many in a row: call it until there is none.
    pub(crate) fn next_of(&mut self, loc: &str) -> Result<Option<T>, BuildError> {
        let next = self.go_to(loc).and_then(|()| self.take_if(|found| found == loc));
        next.map_err(|source| BuildError::File { path: self.path.clone(), source })
    }

    /// The line at which the search is, if it is wanted; then the search is at the one after it.
    fn take_if(&mut self, is_wanted: impl Fn(&str) -> bool) -> io::Result<Option<T>> {
        let Some(line) = self.line(self.at)? else { return Ok(None) };
        let line = &self.window[line];
        if !is_wanted(&loc_of(line)?) {
            return Ok(None);
        }
        let found = serde_json::from_slice(line)?;
        self.at += length(line);
        Ok(Some(found))
    }

    /// The lines from the first that is not before `loc`, for as long as they are wanted.
    fn lines(&mut self, loc: &str, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<T>, BuildError> {
        let lines = self.go_to(loc).and_then(|()| self.while_wanted(is_wanted));
        lines.map_err(|source| BuildError::File { path: self.path.clone(), source })
    }

    fn while_wanted(&mut self, is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<T>> {
        let (mut begin, mut lines) = (self.at, Vec::new());
        while let Some(line) = self.line(begin)? {
            let line = &self.window[line];
            if !is_wanted(&loc_of(line)?) {
                break;
            }
            lines.push(serde_json::from_slice(line)?);
            begin += length(line);
        }
        Ok(lines)
    }

    /// Goes to the first line that is not before `loc`: in growing steps, then by halving, then line by line.
    fn go_to(&mut self, loc: &str) -> io::Result<()> {
        if !self.is_before(self.at, loc)? {
            return Ok(());
        }
        let (mut low, mut high, mut step) = (self.at, self.length, self.stride.max(NEAR));
        while low + step < self.length {
            let begin = self.line_after(low + step)?;
            if !self.is_before(begin, loc)? {
                high = low + step;
                break;
            }
            (low, step) = (begin, step * 2);
        }
        while high - low > NEAR {
            let middle = low + (high - low) / 2;
            let begin = self.line_after(middle)?;
            if begin < high && self.is_before(begin, loc)? {
                low = begin;
            } else {
                high = middle;
            }
        }
        while self.is_before(low, loc)? {
            low = self.line_after(low)?;
        }
        (self.stride, self.at) = (low - self.at, low);
        Ok(())
    }

    /// Whether a line begins here that is before `loc`.
    fn is_before(&mut self, begin: u64, loc: &str) -> io::Result<bool> {
        let line = self.line(begin)?;
        line.map_or(Ok(false), |line| Ok(*loc_of(&self.window[line])? < *loc))
    }

    /// Where the first line begins after a place.
    fn line_after(&mut self, place: u64) -> io::Result<u64> {
        Ok(self.line(place)?.map_or(self.length, |rest| place + length(&self.window[rest])))
    }

    /// Where the line, or the rest of one, stands in the window that begins here, without its end.
    fn line(&mut self, begin: u64) -> io::Result<Option<Range<usize>>> {
        if begin >= self.length {
            return Ok(None);
        }
        let mut most = NEAR;
        loop {
            let offset = begin.checked_sub(self.start).and_then(|offset| usize::try_from(offset).ok());
            if let Some(offset) = offset.filter(|offset| *offset < self.window.len()) {
                let rest = &self.window[offset..];
                let is_last =
                    self.start + u64::try_from(self.window.len()).unwrap_or(u64::MAX) >= self.length;
                let end = rest.iter().position(|byte| *byte == b'\n').or(is_last.then_some(rest.len()));
                if let Some(end) = end {
                    return Ok(Some(offset..offset + end));
                }
            }
            self.read(begin, most)?;
            most *= 2;
        }
    }

    fn read(&mut self, start: u64, most: u64) -> io::Result<()> {
        let most = most.min(self.length - start);
        self.window.resize(usize::try_from(most).unwrap_or(usize::MAX), 0);
        self.start = start;
        read_exact_at(&self.file, &mut self.window, start)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], place: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, place)
}

#[cfg(not(unix))]
fn read_exact_at(mut file: &File, bytes: &mut [u8], place: u64) -> io::Result<()> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(bytes)
}

/// The URL of a line, which comes first in it.
pub(crate) fn loc_of(line: &[u8]) -> io::Result<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Beginning {
        loc: String,
    }
    // Hardly any URL has escaped characters.
    if let Some(rest) = line.strip_prefix(b"{\"loc\":\"")
        && let Some(end) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))
        && rest[end] == b'"'
        && let Ok(loc) = std::str::from_utf8(&rest[..end])
    {
        return Ok(loc.into());
    }
    let Beginning { loc } = serde_json::from_slice(line)?;
    Ok(loc.into())
}

/// Of a line, its end included.
fn length(line: &[u8]) -> u64 {
    u64::try_from(line.len() + 1).unwrap_or(u64::MAX)
}
