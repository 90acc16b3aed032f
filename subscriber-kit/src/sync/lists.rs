//! Reading a Resource List, through its index, entry by entry and in constant memory (RS-190).

use std::io::BufReader;
use std::time::Duration;

use resync_core::document::{Capability, Entry, Root};
use resync_core::xml::Reader;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use url::{Origin, Url};

use super::download::blocking;
use super::{Authority, SyncError, SyncOptions};
use crate::fetch::{Client, Fetched};

/// How many entries are read ahead of the work on them.
const READ_AHEAD: usize = 64;

/// An entry and the document it stands in.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) entry: Entry,
    /// Its URI, made absolute.
    pub(crate) url: Result<Url, url::ParseError>,
    /// The origin of the list, or of its index: whose resources it may name (RS-200).
    pub(crate) home: Origin,
}

/// The entries of a list while it is read.
pub(crate) struct Entries {
    receiver: mpsc::Receiver<Listed>,
    reading: JoinHandle<Result<(), SyncError>>,
    list: Url,
}

impl Entries {
    /// The next entry; `None` only after the whole list was read, since what follows may be deletion. Safe to
    /// cancel, but not to be asked again after `None` or an error.
    pub(crate) async fn next(&mut self) -> Result<Option<Listed>, SyncError> {
        if let Some(entry) = self.receiver.recv().await {
            return Ok(Some(entry));
        }
        match (&mut self.reading).await {
            Ok(read) => read.map(|()| None),
            Err(_) => Err(SyncError::Interrupted { url: self.list.clone() }),
        }
    }
}

/// Begins to read the list at `url`.
pub(crate) fn entries(client: &Client, url: &Url, options: &SyncOptions) -> Entries {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    let reading = Reading { client: client.clone(), options: options.clone(), sender };
    let list = url.clone();
    Entries { receiver, reading: tokio::spawn(async move { reading.all(&list).await }), list: url.clone() }
}

struct Reading {
    client: Client,
    options: SyncOptions,
    sender: mpsc::Sender<Listed>,
}

impl Reading {
    async fn all(&self, url: &Url) -> Result<(), SyncError> {
        let root = self.fetch(url).await?;
        let home = root.url.origin();
        for component in self.read(root, true, &home).await? {
            if self.sender.is_closed() {
                break;
            }
            let list = self.fetch(&component).await?;
            if self.options.authority == Authority::SameOrigin && list.url.origin() != home {
                return Err(SyncError::ForeignComponent { url: list.url });
            }
            self.read(list, false, &home).await?;
        }
        Ok(())
    }

    /// Sends the entries of a list; gives the components of an index, which an index cannot have again
    /// (RS-044).
    async fn read(&self, list: Fetched, may_be_index: bool, home: &Origin) -> Result<Vec<Url>, SyncError> {
        let (sender, home) = (self.sender.clone(), home.clone());
        blocking(move || read_document(list, may_be_index, &home, &sender)).await
    }

    async fn fetch(&self, url: &Url) -> Result<Fetched, SyncError> {
        let mut pause = self.options.retry_pause;
        for _ in 0..self.options.retries {
            match self.client.document(url).await {
                Err(error) if error.is_transient() => tracing::debug!(%error, "a list is asked for again"),
                result => return Ok(result?),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(30));
        }
        Ok(self.client.document(url).await?)
    }
}

fn read_document(
    fetched: Fetched,
    may_be_index: bool,
    home: &Origin,
    sender: &mpsc::Sender<Listed>,
) -> Result<Vec<Url>, SyncError> {
    let Fetched { url, file, .. } = fetched;
    let unreadable = |source| SyncError::List { url: url.clone(), source: Box::new(source) };
    let mut reader = Reader::new(BufReader::new(file)).map_err(unreadable)?;
    let header = reader.header();
    match header.capability() {
        // RS-050: a plain Sitemap may be used as a Resource List.
        None | Some(Capability::ResourceList) => {}
        Some(other) => {
            return Err(SyncError::NotAResourceList { url: url.clone(), found: other.to_string() });
        }
    }
    let is_index = header.root == Root::SitemapIndex;
    if is_index && !may_be_index {
        return Err(SyncError::NestedIndex { url });
    }
    let mut components = Vec::new();
    for entry in reader.by_ref() {
        let entry = entry.map_err(unreadable)?;
        let resolved = url.join(entry.loc.trim());
        if is_index {
            let component =
                resolved.map_err(|_| SyncError::Component { index: url.clone(), loc: entry.loc })?;
            components.push(component);
        } else if sender.blocking_send(Listed { entry, url: resolved, home: home.clone() }).is_err() {
            return Ok(Vec::new());
        }
    }
    Ok(components)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rs201_a_reading_that_breaks_off_is_not_the_end_of_the_list() {
        let (sender, receiver) = mpsc::channel(1);
        let reading = tokio::spawn(async move {
            let _held = sender;
            std::future::pending().await
        });
        reading.abort();
        let mut entries = Entries { receiver, reading, list: Url::parse("http://a.example/rl.xml").unwrap() };
        assert!(matches!(entries.next().await, Err(SyncError::Interrupted { .. })));
    }
}
