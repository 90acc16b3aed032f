//! The documents that hubs share, as this one knows them, and how they are kept.

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard};

use resync_common::locks::lock;
use resync_core::websub::Secret;

use super::rows::Fields;
use super::secrets::Row as Secrets;
use crate::store::{BESIDE, Document, Keyring, Result, StoreError};

/// All of them, in the order of their numbers.
pub(super) const ALL: [Document; 4] =
    [Document::PublisherTokens, Document::TokenUses, Document::TicketKey, Document::PageAddresses];
/// What the log of commands is called where it is a file.
pub(super) const LOG: &str = BESIDE[4];

/// The documents, each as it was read or written last.
#[derive(Default)]
pub(super) struct Documents(Mutex<[Known; ALL.len()]>);

struct Known {
    /// 0: it was never written.
    version: i64,
    /// Or why it cannot be read.
    content: std::result::Result<Option<Vec<u8>>, String>,
}

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
    }
}

/// What it is called where it is a file.
pub(super) fn name(of: Document) -> &'static str {
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

impl Documents {
    /// The versions by their numbers.
    pub(super) fn versions(&self) -> Vec<i64> {
        self.lock().iter().map(|known| known.version).collect()
    }

    pub(super) fn version(&self, of: Document) -> i64 {
        self.lock()[index(of)].version
    }

    pub(super) fn content(&self, of: Document) -> io::Result<Option<Vec<u8>>> {
        let content = self.lock()[index(of)].content.clone();
        content.map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))
    }

    /// Takes what was read: the columns `kind, version, content`.
    pub(super) fn take(&self, keys: &Keyring, fields: Fields<'_>) -> Result<()> {
        let kind: i16 = fields.get("kind")?;
        // A later version of the hub may have more of them.
        let Some(of) = ALL.into_iter().find(|of| number(*of) == kind) else { return Ok(()) };
        let kept: &[u8] = fields.get("content")?;
        self.put(of, fields.get("version")?, open(keys, of, kept).map(Some));
        Ok(())
    }

    /// This is what it is in this version, unless a newer one is known.
    pub(super) fn put(&self, of: Document, version: i64, content: Result<Option<Vec<u8>>>) {
        let mut all = self.lock();
        let known = &mut all[index(of)];
        if known.version < version {
            *known = Known { version, content: content.map_err(|error| error.to_string()) };
        }
    }

    /// Another server may have older versions.
    pub(super) fn forget(&self) {
        *self.lock() = std::array::from_fn(|_| Known::default());
    }

    fn lock(&self) -> MutexGuard<'_, [Known; ALL.len()]> {
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
            documents.put(of, 2, Ok(Some(kept)));
            documents.put(of, 1, Ok(None));
            assert!(documents.version(of) == 2 && documents.content(of).unwrap().is_some());
        }
        assert_eq!(documents.versions(), [2; 4]);
        assert!(open(&Keyring::none(), Document::TicketKey, b"\x02").is_err());
        documents.forget();
        assert_eq!(documents.versions(), [0; 4]);
    }
}
