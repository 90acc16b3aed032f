//! The content of a resource before it is in place: short ones in memory, so that one thread writes many at a time; others in a
//! file of the work folder.

use std::io::Write as _;

use tempfile::NamedTempFile;

use super::folder::Staging;
use super::resource_error::ResourceError;

/// How many bytes of a resource are kept in memory.
pub(crate) const MAX_IN_MEMORY: usize = 128 * 1024;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_content_is_held_in_memory() {
        let held = |length: usize| Content::of(vec![0; length], &Staging::Temporary).unwrap().in_memory();
        assert_eq!((held(MAX_IN_MEMORY), held(MAX_IN_MEMORY + 1)), (MAX_IN_MEMORY, 0));
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
