//! The sizes and dates of a Source's documents, as these state them.

use std::io::BufReader;

use resync_core::datetime::DateTime;
use resync_core::document::Root;
use resync_core::xml::Reader;
use serde::Serialize;
use url::Url;

use crate::blocking::blocking;
use crate::fetch::Client;
use crate::text;

/// What a document states about itself and its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Measure {
    /// Its own length in bytes, as it was sent.
    pub document_bytes: u64,
    /// Whether it is an index of further documents.
    pub is_index: bool,
    /// How many entries it has.
    pub entries: u64,
    /// The sum of their lengths, as far as stated.
    pub listed_bytes: u64,
    /// When the snapshot was begun.
    #[serde(with = "text::option")]
    pub at: Option<DateTime>,
    /// The beginning of the changes that it lists.
    #[serde(with = "text::option")]
    pub from: Option<DateTime>,
    /// The end of these changes; `None` while it grows.
    #[serde(with = "text::option")]
    pub until: Option<DateTime>,
}

/// Reads one document to its end and measures it.
///
/// # Errors
/// Why it cannot be fetched or read, as a sentence.
pub async fn measure(client: &Client, url: &Url) -> Result<Measure, String> {
    let fetched = client.document(url).await.map_err(|error| error.to_string())?;
    blocking(move || {
        let mut reader = Reader::new(BufReader::new(&fetched.file)).map_err(|error| error.to_string())?;
        let header = reader.header();
        let metadata = &header.metadata;
        let mut measure = Measure {
            document_bytes: fetched.length,
            is_index: header.root == Root::SitemapIndex,
            at: metadata.at,
            from: metadata.from,
            until: metadata.until,
            ..Measure::default()
        };
        for entry in reader.by_ref() {
            let entry = entry.map_err(|error| error.to_string())?;
            measure.entries += 1;
            let length = entry.metadata.and_then(|metadata| metadata.length).unwrap_or(0);
            measure.listed_bytes = measure.listed_bytes.saturating_add(length);
        }
        Ok(measure)
    })
    .await
}
