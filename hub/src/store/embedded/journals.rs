//! fjall's journals as files: what failed syncs and power cuts leave of them, and how that is made good.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Bytes that are read and written at once.
const CHUNK: usize = 64 * 1024;

/// Writes once more what the journals hold, and syncs them. After a failed sync the system takes for clean what it did not
/// write, so that no later sync would bring it to the disk.
pub(super) fn rewrite(directory: &Path) -> io::Result<()> {
    for (_, path) in journals(directory)? {
        match rewrite_one(&path) {
            // fjall may remove one that it needs no more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            rewritten => rewritten?,
        }
    }
    Ok(())
}

fn rewrite_one(path: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(path)?;
    each_chunk(&mut file, |file, at, chunk| {
        file.seek(SeekFrom::Start(at))?;
        file.write_all(chunk)
    })?;
    file.sync_all()
}

/// The last batch of the newest journal, made invalid.
#[derive(Debug)]
pub(super) struct Spoilt {
    path: PathBuf,
    at: u64,
    byte: u8,
}

/// Spoils the last batch, so that fjall discards it like one whose end is missing; `None` where there is none.
///
/// A batch that was not synced can come to the disk with a hole. fjall discards a batch without an end, but refuses to
/// open a journal with a batch whose checksum is wrong. The last one may go, since nothing is written before the batch before it
/// has been synced, and nothing is acknowledged before that.
pub(super) fn spoil_last(directory: &Path) -> io::Result<Option<Spoilt>> {
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
            write_byte(&path, at, 0)?;
            return Ok(Some(Spoilt { path, at, byte }));
        }
    }
    Ok(None)
}

impl Spoilt {
    /// Puts it back as it was.
    pub(super) fn undo(self) -> io::Result<()> {
        write_byte(&self.path, self.at, self.byte)
    }
}

fn write_byte(path: &Path, at: u64, byte: u8) -> io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(&[byte])
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
