//! Reading the files that a walk has found, on one of several threads: each until it is the same before and after.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::super::file_path::{FilePath, is_there, open_folder, open_judged};
use super::super::folder::{Folder, LocateError};
use super::super::status::{Identity, Status};
use super::super::walk::Found;
use super::super::{BuildError, Item, Known, Stamp};
use super::{Job, MediaType, Outcome, lastmod_of};
use crate::digest::{Algorithm, Hasher, Hashes};

/// How often a file that changes while it is read is read again.
pub const MAX_READS: usize = 4;
const BUFFER: usize = 256 * 1024;
/// A folder is held open for so many of its files.
const NEIGHBOURS: usize = 4;

/// What the reading threads have in common.
pub(super) struct Task {
    pub(super) folder: Folder,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) media_type: MediaType,
    pub(super) reads: AtomicU64,
}

impl Task {
    /// Reads what there is to do, until there is no more of it or nobody listens.
    pub(super) fn work(&self, jobs: &Mutex<Receiver<Job>>) {
        let mut reader = Reader { task: self, buffer: vec![0; BUFFER] };
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Job { files, answer }) = job else { return };
            if answer.send(reader.look_at_all(&files)).is_err() {
                return;
            }
        }
    }

    /// Whether a file is known with the digests that are asked for; one that cannot be looked at is not.
    fn is_current(&self, known: &Known, path: FilePath<'_>, target: Option<Identity>) -> bool {
        let hashes = &known.item.hashes;
        let has_all = hashes.iter().count() == self.algorithms.len()
            && self.algorithms.iter().all(|&algorithm| hashes.get(algorithm).is_some());
        let is_same = |stamp| {
            let is_it = |now: &Status| now.is_file && (target.is_none() || target == now.identity);
            path.status(target.is_some()).is_ok_and(|now| is_it(&now) && now.stamp == stamp)
        };
        has_all && known.stamp.is_some_and(is_same)
    }
}

/// One thread.
struct Reader<'a> {
    task: &'a Task,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    fn look_at_all(&mut self, files: &[(Found, Option<Known>)]) -> Vec<Outcome> {
        let are_neighbours =
            |(one, _): &(Found, _), (other, _): &(Found, _)| folder_in(&one.path) == folder_in(&other.path);
        let mut outcomes = Vec::with_capacity(files.len());
        for group in files.chunk_by(are_neighbours) {
            let level = self.level_of(group);
            let begin = outcomes.len();
            self.look_at(group, level.as_ref().map(|(_, open)| open), &mut outcomes);
            if level.is_some_and(|(path, open)| !is_there(&path, &open)) {
                // What was read may be that of a folder with another name by now.
                outcomes.truncate(begin);
                self.look_at(group, None, &mut outcomes);
            }
        }
        outcomes
    }

    /// The folder of neighbours, held open where that is worth it. Where it cannot be opened, each file says why.
    fn level_of(&self, group: &[(Found, Option<Known>)]) -> Option<(PathBuf, File)> {
        let (first, _) = group.first().filter(|_| group.len() >= NEIGHBOURS)?;
        let path = self.task.folder.root().join(first.path.parent()?);
        let open = open_folder(&path).ok()?;
        Some((path, open))
    }

    fn look_at(
        &mut self,
        group: &[(Found, Option<Known>)],
        level: Option<&File>,
        outcomes: &mut Vec<Outcome>,
    ) {
        for (found, known) in group {
            outcomes.push(self.look(found, known.as_ref(), level));
        }
    }

    fn look(&mut self, found: &Found, known: Option<&Known>, level: Option<&File>) -> Outcome {
        let full = self.task.folder.root().join(&found.path);
        let path = FilePath::within(&full, level);
        let media_type = (self.task.media_type)(&found.path);
        let looked = match known.filter(|known| self.task.is_current(known, path, found.target)) {
            Some(Known { item, stamp }) => {
                Ok(Some(Known { item: Item { media_type, ..item.clone() }, stamp: *stamp }))
            }
            None => self.read(found, media_type, path),
        };
        looked.map_err(|source| BuildError::File { path: full, source })
    }

    fn read(
        &mut self,
        Found { loc, target, .. }: &Found,
        media_type: Option<String>,
        path: FilePath<'_>,
    ) -> io::Result<Option<Known>> {
        self.task.reads.fetch_add(1, Ordering::Relaxed);
        let Task { folder, algorithms, .. } = self.task;
        let reading = read(folder, path, *target, algorithms, &mut self.buffer, || ())?;
        let (modified, length, hashes, stamp) = match reading {
            Reading::Gone => return Ok(None),
            Reading::Steady { modified, length, hashes, stamp } => (modified, Some(length), hashes, stamp),
            Reading::Restless { modified } => (modified, None, Hashes::default(), None),
        };
        let lastmod = Some(lastmod_of(modified));
        let item = Item { lastmod, length, hashes, media_type, ..Item::new(loc.clone()) };
        Ok(Some(Known { item, stamp }))
    }
}

/// What stands before the name in the path of a file, as bytes, which are compared much faster than parts of paths.
fn folder_in(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_encoded_bytes();
    let end = bytes.iter().rposition(|&byte| std::path::is_separator(char::from(byte)));
    &bytes[..end.unwrap_or_default()]
}

#[derive(Debug)]
pub(super) enum Reading {
    Steady { modified: SystemTime, length: u64, hashes: Hashes, stamp: Option<Stamp> },
    Restless { modified: SystemTime },
    Gone,
}

/// Reads a file until it is the same before and after, at most [`MAX_READS`] times. `meanwhile` runs between reading and looking again.
///
/// What is another file than was judged is judged again: only what is refused then, or gone, is no resource any more.
pub(super) fn read(
    folder: &Folder,
    mut path: FilePath<'_>,
    mut target: Option<Identity>,
    algorithms: &[Algorithm],
    buffer: &mut [u8],
    mut meanwhile: impl FnMut(),
) -> io::Result<Reading> {
    let mut modified = SystemTime::UNIX_EPOCH;
    for _ in 0..MAX_READS {
        let begun = SystemTime::now();
        let Some((mut file, before)) = open_judged(path, target)? else {
            // The folder may be another by now, too.
            path = FilePath::at(path.path());
            match folder.judge_again(path.path()) {
                Ok(judged) => (target, modified) = (judged.target, judged.metadata.modified()?),
                Err(LocateError::Refused(_)) => return Ok(Reading::Gone),
                Err(LocateError::Unknown(error)) => return Err(error),
            }
            meanwhile();
            continue;
        };
        let before = before.stamp;
        let (length, hashes) = take(&mut file, before.length(), algorithms, buffer)?;
        meanwhile();
        let after = Status::of_open(&file)?.stamp;
        modified = after.modified();
        if length == before.length() && before.is_same_content(&after) {
            let stamp = Some(after).filter(|after| after.is_at_rest(begun));
            return Ok(Reading::Steady { modified, length, hashes, stamp });
        }
    }
    Ok(Reading::Restless { modified })
}

/// Stops at the length that the file had; whether it grew is seen afterwards, and one call less is made for each small file.
fn take(
    file: &mut File,
    expected: u64,
    algorithms: &[Algorithm],
    buffer: &mut [u8],
) -> io::Result<(u64, Hashes)> {
    let mut hasher = Hasher::new(algorithms.iter().copied());
    let mut length = 0;
    while length < expected {
        match file.read(buffer) {
            Ok(0) => break,
            Ok(count) => {
                length += count as u64;
                hasher.update(&buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((length, hasher.finish()))
}
