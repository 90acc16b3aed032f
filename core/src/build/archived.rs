//! What an archive lists.

use std::io::BufReader;

use super::rotation::WHOLLY;
use super::settings::Site;
use super::{BuildError, Documents};
use crate::datetime::DateTime;
use crate::document::{Entry, Header, Root};
use crate::xml::Reader;

/// A document with the start and the end of what it covers.
pub(super) type Archived = (String, Option<DateTime>, Option<DateTime>);

/// What an archive of this name, or the archives under it, list, in order; nothing where there is none.
pub(super) fn archived<D: Documents>(
    documents: &D,
    site: &Site,
    top: &str,
) -> Result<Vec<Archived>, BuildError> {
    let Some((header, entries)) = read(documents, top)? else { return Ok(Vec::new()) };
    if header.root == Root::UrlSet {
        return Ok(entries);
    }
    let mut all = Vec::new();
    for (part, ..) in entries {
        let found = site.name(&part).map(|name| read(documents, name)).transpose()?.flatten();
        let (_, entries) = found.ok_or_else(|| BuildError::NotContinuable {
            name: top.to_owned(),
            reason: "it lists a document that is missing",
        })?;
        all.extend(entries);
    }
    Ok(all)
}

fn read<D: Documents>(documents: &D, name: &str) -> Result<Option<(Header, Vec<Archived>)>, BuildError> {
    let unreadable = |source| BuildError::Published { name: name.to_owned(), source };
    let Some(published) = documents.open(name)? else { return Ok(None) };
    let reader = Reader::with_options(BufReader::new(published), WHOLLY).map_err(unreadable)?;
    let header = reader.header().clone();
    let entry = |entry: Entry| {
        let times = entry.metadata.unwrap_or_default();
        (entry.loc, times.at.or(times.from), times.completed.or(times.until))
    };
    let entries = reader.map(|found| found.map(entry).map_err(unreadable)).collect::<Result<_, _>>()?;
    Ok(Some((header, entries)))
}
