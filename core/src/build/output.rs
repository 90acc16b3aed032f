//! What an archive is written to.

use std::io::{self, Seek, SeekFrom, Write};

use crate::digest::{Algorithm, Hasher, Hashes};

/// Reports the first failure, and then swallows everything: a writer of archives that is dropped halfway tries to end its archive,
/// and prints where that fails, too.
#[derive(Debug)]
pub(super) struct Careful<W> {
    out: W,
    /// Where it is; after a failure, the furthest place where it was or would have been.
    at: u64,
    furthest: u64,
    failure: Option<io::Error>,
}

impl<W> Careful<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, at: 0, furthest: 0, failure: None }
    }

    fn move_to(&mut self, at: u64) {
        (self.at, self.furthest) = (at, self.furthest.max(at));
    }

    /// Where everything was written to; an error where not everything was.
    pub(super) fn into_inner(self) -> io::Result<W> {
        self.failure.map_or(Ok(self.out), Err)
    }
}

impl<W: Write> Write for Careful<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failure.is_some() {
            self.move_to(self.at + bytes.len() as u64);
            return Ok(bytes.len());
        }
        let outcome = self.out.write(bytes);
        self.move_to(self.at + outcome.as_ref().map_or(0, |count| *count as u64));
        let failure = outcome.as_ref().err().filter(|error| error.kind() != io::ErrorKind::Interrupted);
        self.failure = failure.map(|error| io::Error::new(error.kind(), error.to_string()));
        outcome
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failure.is_some() { Ok(()) } else { self.out.flush() }
    }
}

impl<W: Seek> Seek for Careful<W> {
    /// Only whoever gives up halfway seeks where that is impossible, so this is reported in the end alone.
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        if self.failure.is_none() {
            match self.out.seek(place) {
                Ok(at) => {
                    self.move_to(at);
                    return Ok(at);
                }
                Err(error) => self.failure = Some(error),
            }
        }
        // A writer of archives that gives up counts on it that it is not before the beginning of the last entry, wherever it has gone.
        let place = match place {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) | SeekFrom::End(by) => self.at.saturating_add_signed(by),
        };
        self.at = place.max(self.furthest);
        Ok(self.at)
    }
}

/// Counts and hashes what passes.
#[derive(Debug)]
pub(super) struct Measured<W> {
    out: W,
    length: u64,
    hasher: Hasher,
}

impl<W: Write> Measured<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, length: 0, hasher: Hasher::new([Algorithm::Sha256]) }
    }

    /// How many bytes there were, and their digest.
    pub(super) fn finish(self) -> (u64, Hashes) {
        (self.length, self.hasher.finish())
    }
}

impl<W: Write> Write for Measured<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// Has room for so many bytes.
    struct Disk {
        written: Cursor<Vec<u8>>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.room = self.room.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            self.written.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Disk {
        fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
            self.written.seek(place)
        }
    }

    fn archived_within(room: usize) -> io::Result<Disk> {
        let mut archive = ZipWriter::new(Careful::new(Disk { written: Cursor::default(), room }));
        for number in 0..5 {
            archive.start_file(number.to_string(), SimpleFileOptions::default())?;
            archive.write_all(&[number; 100])?;
        }
        archive.finish()?.into_inner()
    }

    #[test]
    fn an_archive_that_is_given_up_anywhere_ends_with_the_cause_and_no_panic() {
        let outcomes = (0..2_000).map(archived_within).map(|outcome| outcome.map_err(|error| error.kind()));
        let outcomes: Vec<_> = outcomes.map(Result::err).collect();
        let whole = outcomes.iter().position(Option::is_none).expect("there is room enough in the end");
        assert!(whole > 500);
        assert!(
            outcomes[..whole].iter().all(|error| *error == Some(io::ErrorKind::StorageFull)),
            "{outcomes:?}"
        );
    }
}
