//! The documents that hubs share, as this one knows them, and how they are kept.

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard};

use resync_common::locks::lock;
use resync_core::websub::Secret;
use tokio_postgres::Row;

use super::rows::Fields;
use super::secrets::Row as Secrets;
use crate::store::{BESIDE, Document, Keyring, Result, StoreError};

/// All of them, in the order of their numbers.
pub(in crate::store) const ALL: [Document; 5] = [
    Document::PublisherTokens,
    Document::TokenUses,
    Document::TicketKey,
    Document::PageAddresses,
    Document::EndedSessions,
];
/// What the log of commands is called where it is a file.
pub(in crate::store) const LOG: &str = BESIDE[ALL.len()];

/// Those that were written, each with its content as it is kept.
pub(super) const WRITTEN: &str =
    "SELECT d.kind, d.content FROM hub.document d WHERE d.content IS NOT NULL ORDER BY d.kind";
/// The lines of the log of commands, for [`log_of`].
pub(super) const LINES: &str = "SELECT a.line FROM hub.audit a ORDER BY a.id";

/// The documents, each as it was read or written last.
#[derive(Default)]
pub(super) struct Documents(Mutex<All>);

#[derive(Default)]
struct All {
    known: [Known; ALL.len()],
    /// How often one of them was put here.
    changes: u64,
}

struct Known {
    /// 0: it was never written.
    version: i64,
    /// Or why it cannot be read.
    content: Content,
}

type Content = std::result::Result<Option<Vec<u8>>, String>;

impl Default for Known {
    fn default() -> Self {
        Self { version: 0, content: Ok(None) }
    }
}

/// One of them is secret.
impl fmt::Debug for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Documents").field("versions", &self.versions()).finish_non_exhaustive()
    }
}

/// The number of a document, from 1.
pub(super) fn number(of: Document) -> i16 {
    match of {
        Document::PublisherTokens => 1,
        Document::TokenUses => 2,
        Document::TicketKey => 3,
        Document::PageAddresses => 4,
        Document::EndedSessions => 5,
    }
}

/// The document with this number. A later version of the hub may have more of them.
pub(super) fn of_number(kind: i16) -> Option<Document> {
    ALL.into_iter().find(|of| number(*of) == kind)
}

/// What it is called where it is a file.
pub(in crate::store) fn name(of: Document) -> &'static str {
    BESIDE[index(of)]
}

fn index(of: Document) -> usize {
    // It is one of them.
    ALL.iter().position(|known| *known == of).unwrap_or_default()
}

/// What is kept of it. Tokens are in it as hashes; only the key of status URLs is a secret.
pub(super) fn seal(keys: &Keyring, of: Document, content: &[u8]) -> Result<Vec<u8>> {
    if of != Document::TicketKey {
        return Ok(content.to_vec());
    }
    let secret = Secret::new(content.to_vec()).map_err(|error| damaged(of, &error))?;
    Ok(Secrets::document(number(of)).seal(keys, &secret))
}

/// The document of which this is kept.
pub(super) fn open(keys: &Keyring, of: Document, kept: &[u8]) -> Result<Vec<u8>> {
    if of != Document::TicketKey {
        return Ok(kept.to_vec());
    }
    Ok(Secrets::document(number(of)).open(keys, kept)?.as_bytes().to_vec())
}

fn damaged(of: Document, reason: &dyn fmt::Display) -> StoreError {
    StoreError::Damaged { space: "documents", reason: format!("{}: {reason}", name(of)) }
}

/// The log of commands, of its lines.
pub(super) fn log_of(lines: &[Row]) -> Result<Vec<u8>> {
    let lines = lines.iter().map(|row| Fields::of("audit", row).bytes("line"));
    Ok(lines.collect::<Result<Vec<_>>>()?.concat())
}

/// What was read: the columns `kind, version, content`.
fn read(keys: &Keyring, fields: Fields<'_>) -> Result<Option<(Document, Known)>> {
    let Some(of) = of_number(fields.get("kind")?) else { return Ok(None) };
    let kept: &[u8] = fields.get("content")?;
    let content = open(keys, of, kept).map(Some).map_err(|error| error.to_string());
    Ok(Some((of, Known { version: fields.get("version")?, content })))
}

impl Documents {
    /// The versions by their numbers.
    pub(super) fn versions(&self) -> Vec<i64> {
        self.lock().known.iter().map(|known| known.version).collect()
    }

    pub(super) fn version(&self, of: Document) -> i64 {
        self.lock().known[index(of)].version
    }

    pub(super) fn content(&self, of: Document) -> io::Result<Option<Vec<u8>>> {
        let content = self.lock().known[index(of)].content.clone();
        content.map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))
    }

    /// Takes what was read: the columns `kind, version, content`.
    pub(super) fn take(&self, keys: &Keyring, fields: Fields<'_>) -> Result<()> {
        if let Some((of, Known { version, content })) = read(keys, fields)? {
            self.put_known(of, version, content);
        }
        Ok(())
    }

    /// How often one of them was put here, for [`Documents::replace`].
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Takes these rows as all that there is, in whatever versions, unless something was put here since there were so many changes; tells which.
    pub(super) fn replace<'a>(
        &self,
        changes: u64,
        keys: &Keyring,
        rows: impl Iterator<Item = Fields<'a>>,
    ) -> Result<bool> {
        let mut known = <[Known; ALL.len()]>::default();
        for fields in rows {
            if let Some((of, read)) = read(keys, fields)? {
                known[index(of)] = read;
            }
        }
        let mut all = self.lock();
        let is_current = all.changes == changes;
        if is_current {
            all.known = known;
        }
        Ok(is_current)
    }

    /// This is what it is in this version, unless a newer one is known.
    pub(super) fn put(&self, of: Document, version: i64, content: Option<Vec<u8>>) {
        self.put_known(of, version, Ok(content));
    }

    fn put_known(&self, of: Document, version: i64, content: Content) {
        let mut all = self.lock();
        all.changes += 1;
        let known = &mut all.known[index(of)];
        if known.version < version {
            *known = Known { version, content };
        }
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        // What it guards is complete between any two statements.
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_document_has_a_number_and_a_name_of_its_own_and_the_key_of_urls_is_sealed() {
        let keys = Keyring::parse(&Keyring::generate()).unwrap();
        let documents = Documents::default();
        for (place, of) in ALL.into_iter().enumerate() {
            assert_eq!((usize::try_from(number(of)).unwrap(), name(of)), (place + 1, BESIDE[place]));
            let kept = seal(&keys, of, b"a text").unwrap();
            assert_eq!(kept.windows(6).any(|part| part == b"a text"), of != Document::TicketKey);
            assert_eq!(open(&keys, of, &kept).unwrap(), b"a text");
            documents.put(of, 2, Some(kept));
            documents.put(of, 1, None);
            assert!(documents.version(of) == 2 && documents.content(of).unwrap().is_some());
        }
        assert_eq!(documents.versions(), [2; ALL.len()]);
        assert!(open(&Keyring::none(), Document::TicketKey, b"\x02").is_err());
        let changes = documents.changes();
        documents.put(Document::PublisherTokens, 3, None);
        assert!(!documents.replace(changes, &keys, std::iter::empty()).unwrap(), "one was changed meanwhile");
        assert_eq!(documents.versions(), [3, 2, 2, 2, 2]);
        assert!(documents.replace(documents.changes(), &keys, std::iter::empty()).unwrap());
        assert_eq!(documents.versions(), [0; ALL.len()]);
    }
}
