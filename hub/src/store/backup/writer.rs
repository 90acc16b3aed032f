//! Writing a backup.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{BackupError, CHANGES, Copied, END, FILE, HEADER, Header, MAGIC};

/// So much of a file is in one frame.
const FILE_PART: usize = 16 * 1024 * 1024;

/// Changes of records, as they stand in a frame.
///
/// ```text
/// space u8 | length of the key u32 | key | 0, or 1 | length of the value u32 | value
/// ```
#[derive(Debug, Default)]
pub(in crate::store) struct Changes {
    written: Vec<u8>,
    count: u64,
}

impl Changes {
    /// A record gets this value, or is removed.
    pub(in crate::store) fn push(&mut self, space: u8, key: &[u8], value: Option<&[u8]>) {
        self.written.push(space);
        self.bytes(key);
        self.written.push(u8::from(value.is_some()));
        if let Some(value) = value {
            self.bytes(value);
        }
        self.count += 1;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let length =
            u32::try_from(bytes.len()).expect("keys and values are parts of requests, far below 4 GiB");
        self.written.extend_from_slice(&length.to_be_bytes());
        self.written.extend_from_slice(bytes);
    }

    /// How many bytes they take.
    pub(in crate::store) fn len(&self) -> usize {
        self.written.len()
    }
}

/// Writes frame after frame.
pub(in crate::store) struct Writer<W> {
    out: W,
    digest: Sha256,
    copied: Copied,
}

impl<W: Write> Writer<W> {
    /// Begins a backup.
    pub(in crate::store) fn begin(out: W, header: &Header) -> Result<Self, BackupError> {
        let mut writer = Self { out, digest: Sha256::new(), copied: Copied::default() };
        writer.put(MAGIC)?;
        let header = serde_json::to_vec(header).map_err(|error| BackupError::Output(error.to_string()))?;
        writer.frame(HEADER, &header)?;
        Ok(writer)
    }

    /// Adds changes, to be made after those before.
    pub(in crate::store) fn changes(&mut self, changes: &Changes) -> Result<(), BackupError> {
        if changes.count > 0 {
            self.frame(CHANGES, &changes.written)?;
            self.copied.records += changes.count;
        }
        Ok(())
    }

    /// Adds a file beside the store, in as many frames as it takes.
    pub(in crate::store) fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), BackupError> {
        let length =
            u16::try_from(name.len()).map_err(|_| BackupError::Output("a name is too long".into()))?;
        let head = [&length.to_be_bytes(), name.as_bytes()].concat();
        let (first, rest) = bytes.split_at(bytes.len().min(FILE_PART));
        self.frame(FILE, &[&head, first].concat())?;
        rest.chunks(FILE_PART).try_for_each(|part| self.frame(FILE, &[&head, part].concat()))
    }

    /// Adds a file beside the store under its name, if it exists.
    pub(in crate::store) fn file_beside(&mut self, path: &Path) -> Result<(), BackupError> {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
        match fs::read(path) {
            Ok(bytes) => self.file(name, &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(BackupError::Input(format!("{}: {error}", path.display()))),
        }
    }

    /// Ends the backup.
    pub(in crate::store) fn finish(mut self) -> Result<Copied, BackupError> {
        let digest = self.digest.clone().finalize();
        self.frame(END, &digest)?;
        self.out.flush().map_err(|error| failed(&error))?;
        Ok(self.copied)
    }

    fn frame(&mut self, kind: u8, content: &[u8]) -> Result<(), BackupError> {
        let length = u32::try_from(content.len()).ok().filter(|length| *length <= super::LARGEST_FRAME);
        let length =
            length.ok_or_else(|| BackupError::Output("something is too large for a backup".into()))?;
        let head = [&[kind][..], &length.to_be_bytes()].concat();
        let checksum = checksum(&head, content);
        self.put(&head)?;
        self.put(content)?;
        self.put(&checksum.to_be_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.digest.update(bytes);
        self.copied.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|error| failed(&error))
    }
}

fn failed(error: &io::Error) -> BackupError {
    BackupError::Output(error.to_string())
}

pub(super) fn checksum(head: &[u8], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(content);
    hasher.finalize()
}
