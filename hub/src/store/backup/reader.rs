//! Reading a backup. Nothing is handed out whose checksum does not match.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use sha2::{Digest as _, Sha256};

use super::writer::checksum;
use super::{BackupError, CHANGES, Copied, END, FILE, HEADER, Header, LARGEST_FRAME, MAGIC, VERSION};

/// What a frame holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum Content {
    /// Changes in their order: space, key, and the value unless the record is removed.
    Changes(Vec<(u8, Bytes, Option<Bytes>)>),
    /// A file beside the store.
    File { name: String, bytes: Bytes },
}

/// Reads frame after frame.
pub(in crate::store) struct Reader<R> {
    from: R,
    digest: Sha256,
    header: Header,
    copied: Copied,
    /// Where the present frame begins.
    frame_at: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the beginning, which says whether the rest can be read.
    pub(in crate::store) fn open(mut from: R) -> Result<Self, BackupError> {
        let mut magic = [0; MAGIC.len()];
        match from.read_exact(&mut magic) {
            Ok(()) if magic == MAGIC => {}
            Ok(()) => return Err(BackupError::NoBackup),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(BackupError::NoBackup),
            Err(error) => return Err(BackupError::Input(error.to_string())),
        }
        let header = Header { version: VERSION, store: 0, begun: String::new(), hub: String::new() };
        let copied = Copied { records: 0, bytes: MAGIC.len() as u64 };
        let digest = Sha256::new().chain_update(MAGIC);
        let mut reader = Self { from, digest, header, copied, frame_at: 0 };
        let (kind, content) = reader.frame()?;
        // A newer version may say more of itself than this one understands, but it says which it is.
        let said: serde_json::Value =
            serde_json::from_slice(&content).map_err(|_| reader.damaged("it does not say what it is"))?;
        let version = said["version"].as_u64().and_then(|version| u16::try_from(version).ok());
        let version = version.filter(|_| kind == HEADER);
        let version = version.ok_or_else(|| reader.damaged("it does not say what it is"))?;
        if version != VERSION {
            return Err(BackupError::Format { found: version, supported: VERSION });
        }
        reader.header =
            serde_json::from_value(said).map_err(|_| reader.damaged("it does not say what it is"))?;
        Ok(reader)
    }

    /// What it says of itself.
    pub(in crate::store) fn header(&self) -> &Header {
        &self.header
    }

    /// What was read so far.
    pub(in crate::store) fn copied(&self) -> Copied {
        self.copied
    }

    /// The next frame; `None` after the end, when all of it was what had been written.
    pub(in crate::store) fn next(&mut self) -> Result<Option<Content>, BackupError> {
        let before = self.digest.clone().finalize();
        let (kind, content) = self.frame()?;
        match kind {
            CHANGES => {
                let changes = changes(content).ok_or_else(|| self.damaged("a record is cut off"))?;
                self.copied.records += changes.len() as u64;
                Ok(Some(Content::Changes(changes)))
            }
            FILE => file(content).map(Some).ok_or_else(|| self.damaged("a file has no name")),
            END if content[..] != before[..] => Err(self.damaged("its checksum does not match")),
            END => match self.from.read(&mut [0]) {
                Ok(0) => Ok(None),
                Ok(_) => Err(self.damaged("something follows its end")),
                Err(error) => Err(BackupError::Input(error.to_string())),
            },
            _ => Err(self.damaged("a part of it is of an unknown kind")),
        }
    }

    fn frame(&mut self) -> Result<(u8, Bytes), BackupError> {
        self.frame_at = self.copied.bytes;
        let mut head = [0; 5];
        self.fill(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_be_bytes(length);
        if length > LARGEST_FRAME {
            return Err(self.damaged("a part of it is larger than any"));
        }
        let mut content = vec![0; length as usize];
        self.fill(&mut content)?;
        let mut kept = [0; 4];
        self.fill(&mut kept)?;
        if checksum(&head, &content).to_be_bytes() != kept {
            return Err(self.damaged("the checksum of a part does not match"));
        }
        Ok((kind, content.into()))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        self.from.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => BackupError::CutOff(self.copied.bytes),
            _ => BackupError::Input(error.to_string()),
        })?;
        self.digest.update(&*bytes);
        self.copied.bytes += bytes.len() as u64;
        Ok(())
    }

    fn damaged(&self, reason: &'static str) -> BackupError {
        BackupError::Damaged { at: self.frame_at, reason }
    }
}

fn changes(mut content: Bytes) -> Option<Vec<(u8, Bytes, Option<Bytes>)>> {
    let mut changes = Vec::new();
    while !content.is_empty() {
        let space = content.try_get_u8().ok()?;
        let key = counted(&mut content)?;
        let value = match content.try_get_u8().ok()? {
            0 => None,
            1 => Some(counted(&mut content)?),
            _ => return None,
        };
        changes.push((space, key, value));
    }
    Some(changes)
}

fn counted(content: &mut Bytes) -> Option<Bytes> {
    let length = content.try_get_u32().ok()? as usize;
    (length <= content.len()).then(|| content.split_to(length))
}

fn file(mut content: Bytes) -> Option<Content> {
    let length = usize::from(content.try_get_u16().ok()?);
    if length > content.len() {
        return None;
    }
    let name = String::from_utf8(content.split_to(length).to_vec()).ok()?;
    Some(Content::File { name, bytes: content })
}
