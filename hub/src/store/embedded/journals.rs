//! fjall's journals as files: what failed syncs and power cuts leave in them, and how that is made good.
//!
//! fjall has no option for either (in 3.1 its only way of recovery is to discard a batch without an end), so this relies on how fjall
//! reads its journals. `Cargo.toml` therefore takes one version only, and a test here fails on any other.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use resync_core::durable::sync_folder;

use super::directory::sync_folders;

/// Bytes that are read and written at once.
const CHUNK: usize = 64 * 1024;
/// What a file system gives room to at once.
const PAGE: usize = 4 * 1024;

/// A file beside the journals, there only from the end of a store that was closed in good order until it is opened again. It is never
/// synced: a power cut may bring it back or take it, and leaves no cache to mistrust.
const CLOSED: &str = "closed";

/// Where the store was not closed in good order, writes once more what the journals hold, and syncs them and all folders: its process may
/// have died after a sync had failed. The system takes for clean then what it did not write, and shows it to every process, but no later
/// sync would bring it to the disk.
pub(super) fn rewrite_unclosed(directory: &Path) -> io::Result<()> {
    if !directory.is_dir() || directory.join(CLOSED).try_exists()? {
        return Ok(());
    }
    for (_, path) in journals(directory)? {
        rewrite_one(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write {} anew: {error}", path.display()))
        })?;
    }
    sync_folders(directory)
}

/// From now on the disk may have less than the system's cache shows.
pub(super) fn mark_open(directory: &Path) -> io::Result<()> {
    match fs::remove_file(directory.join(CLOSED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The disk has what the system's cache shows.
pub(super) fn mark_closed(directory: &Path) -> io::Result<()> {
    File::create(directory.join(CLOSED)).map(drop)
}

fn rewrite_one(path: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(path)?;
    each_chunk(&mut file, |file, at, chunk| {
        // A journal is made longer than what it holds: no page of the hole behind that is filled, for which the disk may have no room.
        let used = chunk.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&chunk[..used.next_multiple_of(PAGE).min(chunk.len())])
    })?;
    file.sync_all()
}

/// The last batch of the newest journal, made invalid. Until that is undone or final, a note beside the journals says what was there,
/// so that a process that dies in between takes nothing away.
#[derive(Debug)]
pub(super) struct Invalidated {
    path: PathBuf,
    at: u64,
    byte: u8,
}

/// The note: name of the journal, place and byte.
const NOTE: &str = "invalidated";

/// Invalidates the last batch, so that fjall discards it like one whose end is missing; `None` where there is none.
///
/// A batch that was not synced can come to the disk with a hole. fjall discards a batch without an end, but refuses to
/// open a journal with a batch whose checksum is wrong. The last one may go, since nothing is written before the batch before it
/// has been synced, and nothing is acknowledged before that.
pub(super) fn invalidate_last(directory: &Path) -> io::Result<Option<Invalidated>> {
    let mut journals = journals(directory)?;
    journals.sort_unstable();
    for (_, path) in journals.into_iter().rev() {
        let mut file = File::options().read(true).write(true).open(&path)?;
        let mut last = None;
        // What is allocated in advance reads as zeros; a batch ends with something else.
        each_chunk(&mut file, |_, at, chunk| {
            let place = chunk.iter().rposition(|byte| *byte != 0);
            last = place.map(|place| (at + place as u64, chunk[place])).or(last);
            Ok(())
        })?;
        if let Some((at, byte)) = last {
            let invalidated = Invalidated { path, at, byte };
            invalidated.note()?;
            write_byte(&invalidated.path, at, 0)?;
            return Ok(Some(invalidated));
        }
    }
    Ok(None)
}

impl Invalidated {
    /// Puts it back as it was.
    pub(super) fn undo(self) -> io::Result<()> {
        write_byte(&self.path, self.at, self.byte)?;
        self.keep()
    }

    /// It stays as it is now.
    pub(super) fn keep(self) -> io::Result<()> {
        let folder = self.folder();
        fs::remove_file(folder.join(NOTE))?;
        sync_folder(folder)
    }

    fn note(&self) -> io::Result<()> {
        let name = self.path.file_name().unwrap_or_default();
        let mut note = File::create(self.folder().join(NOTE))?;
        writeln!(note, "{} {} {}", name.display(), self.at, self.byte)?;
        note.sync_all()?;
        sync_folder(self.folder())
    }

    /// Reads a note. One that is not whole was not finished, and nothing was invalidated.
    fn noted(directory: &Path, note: &str) -> Option<Self> {
        let (name, rest) = note.strip_suffix('\n')?.split_once(' ')?;
        let (at, byte) = rest.split_once(' ')?;
        Some(Self { path: directory.join(name), at: at.parse().ok()?, byte: byte.parse().ok()? })
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

/// Undoes what a process has invalidated that died before it knew whether that helps.
pub(super) fn undo_unfinished(directory: &Path) -> io::Result<()> {
    let note = match fs::read_to_string(directory.join(NOTE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        note => note?,
    };
    let noted = Invalidated::noted(directory, &note).filter(|noted| noted.path.is_file());
    match noted {
        Some(invalidated) => invalidated.undo(),
        None => fs::remove_file(directory.join(NOTE)),
    }
}

fn write_byte(path: &Path, at: u64, byte: u8) -> io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(&[byte])?;
    file.sync_all()
}

/// The journals with their numbers.
fn journals(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if let Some(number) = number.filter(|_| path.extension().is_some_and(|extension| extension == "jnl"))
        {
            found.push((number, path));
        }
    }
    Ok(found)
}

/// Goes through a file, and leaves out its holes.
fn each_chunk(
    file: &mut File,
    mut see: impl FnMut(&mut File, u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let (mut chunk, mut at) = (vec![0; CHUNK], 0);
    loop {
        file.seek(SeekFrom::Start(at))?;
        let read = file.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        if chunk[..read].iter().any(|byte| *byte != 0) {
            see(file, at, &chunk[..read])?;
        }
        at += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before another version is taken, read its `src/journal`. Does it still discard a last batch without an end, and refuse one with a
    /// wrong checksum? Then the versions here and in `Cargo.toml` change, and `tests/tests/crash` must pass. If it can discard a last
    /// batch with a wrong checksum by itself, this file may go.
    #[test]
    fn the_version_of_fjall_is_the_one_whose_journals_are_known_here() {
        let lock = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
        for (name, known) in [("fjall", "3.1.13"), ("lsm-tree", "3.1.10")] {
            let packages = lock.split("[[package]]\nname = ").skip(1);
            let own = packages.filter_map(|package| package.strip_prefix(&format!("{name:?}\nversion = \"")));
            let versions: Vec<_> = own.filter_map(|rest| rest.split('"').next()).collect();
            assert_eq!(versions, [known], "{name}");
        }
    }

    #[test]
    fn what_a_process_has_invalidated_that_died_is_undone_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, note) = (folder.path().join("7.jnl"), folder.path().join(NOTE));
        let whole = [b"a batch".as_slice(), &[0; 100]].concat();
        let read = || fs::read(&journal).unwrap();
        fs::write(&journal, &whole).unwrap();
        // One whose note was not finished had not begun.
        fs::write(&note, "7.jnl 3").unwrap();
        undo_unfinished(folder.path()).unwrap();
        assert_eq!((read(), note.exists()), (whole.clone(), false));

        drop(invalidate_last(folder.path()).unwrap().unwrap());
        assert_ne!(read(), whole);
        undo_unfinished(folder.path()).unwrap();
        assert_eq!((read(), note.exists()), (whole.clone(), false));

        let invalidated = invalidate_last(folder.path()).unwrap().unwrap();
        let kept = read();
        invalidated.keep().unwrap();
        undo_unfinished(folder.path()).unwrap();
        assert_eq!((read(), note.exists()), (kept, false));
    }
}
