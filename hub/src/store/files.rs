//! Documents and the log of commands as files beside the store, for hubs that share it with no other.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::UNIX_EPOCH;

use resync_common::locks::lock;
use resync_core::durable::{folder_of, replace, replace_private};
use resync_core::lock::FileLock;

use super::{Change, Document, DocumentVersion, Registry};

/// The files in a data folder.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    /// Held while a document is changed. Readers see the old one or the new one.
    changing: Mutex<()>,
    /// Open from an append that succeeded to one that does not.
    log: Mutex<Option<File>>,
}

impl Files {
    /// Those of this data folder. Neither they nor the folder need to exist.
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), changing: Mutex::default(), log: Mutex::default() }
    }

    fn path(&self, of: Document) -> PathBuf {
        self.folder.join(match of {
            Document::PublisherTokens => "publisher-tokens.json",
            Document::TokenUses => "publisher-tokens.used.json",
            Document::TicketKey => "ticket-key",
            Document::PageAddresses => "status-pages.json",
            Document::EndedSessions => "ended-sessions.json",
        })
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("audit.jsonl")
    }

    /// Locks a document against other processes until this is dropped: commands change tokens while the hub runs. The lock is a file of
    /// its own, since each change replaces that of the document.
    fn lock(&self, of: Document) -> io::Result<Option<FileLock>> {
        if of != Document::PublisherTokens {
            return Ok(None);
        }
        let path = self.path(of);
        fs::create_dir_all(folder_of(&path))?;
        let lock = path.with_extension("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock)?;
        FileLock::lock(file).map(Some)
    }

    fn with_log(&self, work: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let mut log = lock(&self.log);
        let mut file = match log.take() {
            Some(file) => file,
            None => open_log(&self.log_path())?,
        };
        work(&mut file)?;
        // After a failure half a line may stand at the end, which opening anew closes.
        *log = Some(file);
        Ok(())
    }
}

impl Registry for Files {
    fn place(&self, of: Document) -> String {
        self.path(of).display().to_string()
    }

    /// Every change makes a new file, so two within one tick of the file system's clock differ too.
    fn version(&self, of: Document) -> Option<DocumentVersion> {
        let metadata = fs::metadata(self.path(of)).ok()?;
        let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
        let modified = u64::try_from(modified).unwrap_or(u64::MAX);
        Some(DocumentVersion([modified, metadata.ino(), metadata.len()]))
    }

    fn read(&self, of: Document) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path(of)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn change(&self, of: Document, change: &mut Change<'_>) -> io::Result<()> {
        let _changing = lock(&self.changing);
        let _lock = self.lock(of)?;
        match change(self.read(of)?) {
            Some(bytes) if of == Document::PageAddresses => replace(&self.path(of), &bytes),
            Some(bytes) => replace_private(&self.path(of), &bytes),
            None => Ok(()),
        }
    }

    fn log_place(&self) -> String {
        self.log_path().display().to_string()
    }

    fn open_log(&self) -> io::Result<()> {
        self.with_log(|_| Ok(()))
    }

    fn shorten_log(&self, longest: u64) -> io::Result<()> {
        let mut log = lock(&self.log);
        let path = self.log_path();
        if fs::exists(&path)? && fs::metadata(&path)?.len() > longest {
            // What is open is the old one.
            *log = None;
            replace_private(&path, newer_half(&fs::read(&path)?))?;
        }
        Ok(())
    }

    fn append_to_log(&self, line: &[u8]) -> io::Result<()> {
        self.with_log(|file| {
            file.write_all(line)?;
            file.sync_data()
        })
    }

    fn read_log(&self) -> io::Result<Vec<u8>> {
        fs::read(self.log_path())
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n")?;
        file.sync_data()?;
    }
    Ok(file)
}

fn newer_half(text: &[u8]) -> &[u8] {
    let half = &text[text.len() / 2..];
    let line = half.iter().position(|byte| *byte == b'\n').map_or(half.len(), |end| end + 1);
    &half[line..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::BESIDE;

    #[test]
    fn every_document_and_the_log_are_files_that_a_backup_takes() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::in_folder(folder.path());
        let documents = [
            Document::PublisherTokens,
            Document::TokenUses,
            Document::TicketKey,
            Document::PageAddresses,
            Document::EndedSessions,
        ];
        for of in documents {
            assert_eq!((files.version(of), files.read(of).unwrap()), (None, None));
            files.change(of, &mut |kept: Option<Vec<u8>>| kept.is_none().then(|| b"{}".to_vec())).unwrap();
            let first = files.version(of);
            assert_eq!(files.read(of).unwrap().as_deref(), Some(b"{}".as_slice()));
            files.change(of, &mut |_: Option<Vec<u8>>| None).unwrap();
            assert_eq!(files.version(of), first, "it was left as it is");
            files.change(of, &mut |_: Option<Vec<u8>>| Some(b"[]".to_vec())).unwrap();
            assert!(files.version(of) != first);
        }
        files.append_to_log(b"{}\n").unwrap();
        let places = documents.map(|of| files.place(of)).into_iter().chain([files.log_place()]);
        let expected = BESIDE.map(|name| folder.path().join(name).display().to_string());
        assert!(places.eq(expected));
        assert!(BESIDE.iter().all(|name| folder.path().join(name).exists()));
    }

    #[test]
    fn a_line_that_was_written_in_half_takes_no_later_one_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::in_folder(folder.path());
        files.append_to_log(b"{\"first\": 1}\n").unwrap();
        let full = files.with_log(|file| {
            file.write_all(b"{\"second\"")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        files.append_to_log(b"{\"third\": 3}\n").unwrap();
        let log = String::from_utf8(files.read_log().unwrap()).unwrap();
        assert_eq!(log.lines().collect::<Vec<_>>(), ["{\"first\": 1}", "{\"second\"", "{\"third\": 3}"]);
    }
}
