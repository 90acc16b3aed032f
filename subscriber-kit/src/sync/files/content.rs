//! The content of a resource before it is in place: short ones in memory, so that one thread writes many at a time; others in a
//! file of the work folder.

use std::io::{self, Write as _};

use tempfile::NamedTempFile;

use super::folder::Staging;
use super::resource_error::ResourceError;

/// How many bytes of a resource are kept in memory.
pub(crate) const MAX_IN_MEMORY: usize = 128 * 1024;

/// After how many bytes of a file it is asked again how much space is free; less than what always stays free.
const ASK_EVERY: u64 = 16 * 1024 * 1024;

/// All the bytes of a resource.
#[derive(Debug)]
pub(crate) enum Content {
    Memory(Vec<u8>),
    File(NamedTempFile),
}

impl Content {
    /// In memory if it is short.
    pub(crate) fn of(bytes: Vec<u8>, staging: &Staging) -> Result<Self, ResourceError> {
        Ok(if bytes.len() > MAX_IN_MEMORY {
            Self::File(Space::of(staging).write(&bytes)?)
        } else {
            Self::Memory(bytes)
        })
    }

    /// How many bytes of memory it takes.
    pub(crate) fn in_memory(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(_) => 0,
        }
    }

    /// As a file, if there is enough space.
    pub(crate) fn into_file(self, space: &mut Space<'_>) -> Result<NamedTempFile, ResourceError> {
        match self {
            Self::Memory(bytes) => space.write(&bytes),
            Self::File(file) => Ok(file),
        }
    }
}

/// Free space for several files; the file system is asked once.
#[derive(Debug)]
pub(crate) struct Space<'r> {
    staging: &'r Staging,
    /// `None` if unknown; then writing may fail.
    free: Option<u64>,
}

impl<'r> Space<'r> {
    pub(crate) fn of(staging: &'r Staging) -> Self {
        Self { staging, free: staging.free_space().ok() }
    }

    /// Fails if there is not enough space.
    pub(crate) fn check(&self, needed: u64) -> Result<(), ResourceError> {
        match self.free {
            Some(free) if needed > free => Err(ResourceError::NoSpace { needed, free }),
            _ => Ok(()),
        }
    }

    /// A new file of these bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<NamedTempFile, ResourceError> {
        let needed = bytes.len() as u64;
        self.check(needed)?;
        let mut file = self.staging.unfinished()?;
        file.write_all(bytes)?;
        self.free = self.free.map(|free| free.saturating_sub(needed));
        Ok(file)
    }
}

/// The space of one file while it is written, since its length may not be known before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    /// How many bytes were written since the file system was asked.
    since_asked: u64,
}

impl Growth {
    /// Before the next bytes are written: fails if it is time to ask, and there is not enough space. If the free space is unknown,
    /// writing may fail.
    pub(crate) fn check(
        &mut self,
        needed: u64,
        free: impl FnOnce() -> io::Result<u64>,
    ) -> Result<(), ResourceError> {
        self.since_asked += needed;
        if self.since_asked < ASK_EVERY {
            return Ok(());
        }
        self.since_asked = 0;
        match free() {
            Ok(free) if needed > free => Err(ResourceError::NoSpace { needed, free }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_content_is_held_in_memory() {
        let held = |length: usize| Content::of(vec![0; length], &Staging::Temporary).unwrap().in_memory();
        assert_eq!((held(MAX_IN_MEMORY), held(MAX_IN_MEMORY + 1)), (MAX_IN_MEMORY, 0));
    }

    #[test]
    fn a_file_whose_length_nobody_told_asks_for_space_again_every_16_mib() {
        let (mut growth, mut asked) = (Growth::default(), 0);
        let piece = MAX_IN_MEMORY as u64;
        let mut grow = |free: u64| {
            growth.check(piece, || {
                asked += 1;
                Ok(free)
            })
        };
        // 39 MiB.
        for _ in 0..39 * 8 {
            assert!(grow(piece).is_ok());
        }
        for _ in 1..9 * 8 {
            assert!(grow(piece - 1).is_ok(), "it is not time yet");
        }
        assert!(matches!(grow(piece - 1), Err(ResourceError::NoSpace { .. })));
        assert_eq!(asked, 3);
    }

    #[test]
    fn files_that_are_written_together_share_the_room_there_is() {
        let mut space = Space { staging: &Staging::Temporary, free: Some(10) };
        let mut write = |count: usize| space.write(&vec![0; count]);
        assert!(write(6).is_ok());
        assert!(matches!(write(6), Err(ResourceError::NoSpace { needed: 6, free: 4 })));
        assert!(write(4).is_ok(), "what was refused took none");
    }
}
