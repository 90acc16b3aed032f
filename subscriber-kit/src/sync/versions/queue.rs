//! Versions that wait to be fetched, in the state of the copy. Each run adds a file of them before it saves how far it came; who fetches
//! takes all files, and leaves one with what is left. So both can work at the same time, and a crash forgets nothing.

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use resync_core::datetime::DateTime;
use resync_core::durable::sync_folder;
use resync_core::lock::FileLock;
use tempfile::NamedTempFile;

use super::store::LEFT_AFTER;
use crate::state_folder::{self, STATE_FOLDER, make_private_folder};
use crate::sync::files::folder::unfinished_in;
use crate::sync::reading::told::{ToldVersion, write_version};

const FOLDER_NAME: &str = "versions";
const LOCK_NAME: &str = "versions.lock";
const ENDING: &str = "jsonl";

/// How many bytes of waiting versions are kept.
const MAX_BYTES: u64 = 256 << 20;

/// The versions of one copy that wait.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    state: PathBuf,
    folder: PathBuf,
}

/// Versions that are being added.
pub(super) struct Waiting {
    out: BufWriter<NamedTempFile>,
    /// How many bytes they may have.
    room: u64,
    pub(super) count: u64,
}

impl Queue {
    /// Of the copy in this directory.
    pub(super) fn of(copy: &Path) -> Self {
        let state = copy.join(STATE_FOLDER);
        Self { folder: state.join(FOLDER_NAME), state }
    }

    /// The right to fetch what waits; `None` while another process does.
    pub(super) fn lock(&self) -> io::Result<Option<FileLock>> {
        state_folder::lock(&self.state.join(LOCK_NAME))
    }

    /// The files of those that wait, oldest first.
    pub(super) fn files(&self) -> io::Result<Vec<PathBuf>> {
        let found = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        let paths = found.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        let mut files: Vec<_> = paths.into_iter().filter(|path| is_queue(path)).collect();
        files.sort();
        Ok(files)
    }

    /// Begins to add versions. `instead_of` says which files they replace.
    pub(super) fn begin(&self, instead_of: &[PathBuf]) -> io::Result<Waiting> {
        make_private_folder(&self.folder)?;
        state_folder::sweep(&self.folder, LEFT_AFTER, |path| !is_queue(path));
        let length = |path: &PathBuf| path.metadata().map_or(0, |found| found.len());
        let there: u64 = self.files()?.iter().filter(|file| !instead_of.contains(file)).map(length).sum();
        let out = BufWriter::new(unfinished_in(&self.folder)?);
        Ok(Waiting { out, room: MAX_BYTES.saturating_sub(there), count: 0 })
    }

    /// Adds them durably, and then removes the files that they replace.
    pub(super) fn end(&self, waiting: Waiting, instead_of: &[PathBuf]) -> io::Result<()> {
        let Waiting { out, count, .. } = waiting;
        if count > 0 {
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.as_file().sync_all()?;
            file.persist(self.folder.join(new_name())).map_err(|error| error.error)?;
            sync_folder(&self.folder)?;
        }
        instead_of.iter().try_for_each(std::fs::remove_file)
    }
}

impl Waiting {
    /// Adds a version; `false` if there is no room for it.
    pub(super) fn push(&mut self, version: &ToldVersion) -> io::Result<bool> {
        if self.room == 0 {
            return Ok(false);
        }
        self.room = self.room.saturating_sub(write_version(&mut self.out, version)?);
        self.count += 1;
        Ok(true)
    }
}

/// Later ones sort behind earlier ones.
fn new_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{:015}-{:010}-{number:010}.{ENDING}", DateTime::now().unix_millis(), std::process::id())
}

fn is_queue(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENDING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memento::VersionLinks;
    use crate::sync::files::local::Facts;
    use crate::sync::reading::told::VersionLines;

    fn version(number: u32) -> ToldVersion {
        let url = format!("http://a.example/{number}");
        ToldVersion {
            loc: url.clone(),
            url,
            at: DateTime::from_unix_millis(1_795_000_000_000).unwrap(),
            facts: Facts::default(),
            links: VersionLinks { memento: Some("http://a.example/v".to_owned()), timegate: None },
            packed: None,
            is_deleted: false,
            tries: 1,
            paused_until_unix_millis: Some(7),
        }
    }

    fn add(queue: &Queue, numbers: &[u32], instead_of: &[PathBuf]) {
        let mut waiting = queue.begin(instead_of).unwrap();
        for number in numbers {
            assert!(waiting.push(&version(*number)).unwrap());
        }
        queue.end(waiting, instead_of).unwrap();
    }

    fn all(queue: &Queue) -> Vec<ToldVersion> {
        VersionLines::of_all(queue.files().unwrap()).map(Result::unwrap).collect()
    }

    #[test]
    fn mem071_what_waits_is_known_after_a_crash_and_is_added_to_while_it_is_fetched() {
        let copy = tempfile::tempdir().unwrap();
        let queue = Queue::of(copy.path());
        assert!(queue.files().unwrap().is_empty());
        add(&queue, &[1, 2], &[]);
        let taken = queue.files().unwrap();
        add(&queue, &[3], &[]);
        assert_eq!(all(&queue), [version(1), version(2), version(3)]);
        add(&queue, &[2], &taken);
        assert_eq!(all(&queue), [version(3), version(2)], "what came meanwhile stays");
        add(&queue, &[], &queue.files().unwrap());
        assert!(queue.files().unwrap().is_empty());

        add(&queue, &[4, 5], &[]);
        let file = queue.files().unwrap().remove(0);
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..whole.len() - 5]).unwrap();
        assert_eq!(all(&queue), [version(4)], "a line that was cut off is left out");
        std::fs::write(&file, [&b"\xc3\n"[..], &whole].concat()).unwrap();
        assert_eq!(all(&queue), [version(4), version(5)], "and one that was cut off within a character");
    }

    #[test]
    fn mem071_whatever_byte_of_a_file_is_damaged_only_the_lines_there_are_left_out() {
        let copy = tempfile::tempdir().unwrap();
        let queue = Queue::of(copy.path());
        let written = [1, 2, 3].map(version);
        add(&queue, &[1, 2, 3], &[]);
        let file = queue.files().unwrap().remove(0);
        let bytes = std::fs::read(&file).unwrap();
        for (at, byte) in bytes.iter().enumerate() {
            let here = bytes[..at].split(|byte| *byte == b'\n').count() - 1;
            // Without its end, a line is one with the next.
            let next = here + usize::from(*byte == b'\n');
            for other in [&b""[..], b"\n", b"\"", b"{", b"\0", b"\xff", b"\n[]\n{}\n"] {
                std::fs::write(&file, [&bytes[..at], other, &bytes[at + 1..]].concat()).unwrap();
                let read = all(&queue);
                assert!(read.len() <= written.len(), "{other:?} at {at}: {read:?}");
                for (number, line) in written.iter().enumerate() {
                    let is_whole = read.contains(line) || number == here || number == next;
                    assert!(is_whole, "{other:?} at {at}: {number} of {read:?}");
                }
            }
        }
    }

    #[test]
    fn mem071_only_one_process_fetches_what_waits() {
        let copy = tempfile::tempdir().unwrap();
        let queue = Queue::of(copy.path());
        add(&queue, &[1], &[]);
        let held = queue.lock().unwrap();
        assert!(held.is_some() && queue.lock().unwrap().is_none());
    }
}
