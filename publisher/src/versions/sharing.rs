//! Which versions of other resources have the same bytes: these are kept once, so they go together (MEM-010).

use std::{
    collections::{BTreeSet, HashMap},
    io,
};

use resync_core::{datetime::DateTime, digest::Digest, document::Change};

use super::journal::Journal;

/// The versions of other resources with one content.
#[derive(Default)]
pub(crate) struct Sharers {
    pub(crate) count: u64,
    /// The first of them, by URI and moment.
    pub(crate) named: Vec<(String, DateTime)>,
    /// The resources whose last version has it.
    pub(crate) present: Vec<String>,
}

/// Of each content the versions that resources other than `loc` have of it, so many of them with their names. Reads the whole journal.
pub(crate) fn sharers(
    journal: &Journal,
    loc: &str,
    contents: &BTreeSet<Digest>,
    most_named: usize,
) -> io::Result<HashMap<Digest, Sharers>> {
    let mut found: HashMap<Digest, Sharers> = HashMap::new();
    if contents.is_empty() {
        return Ok(found);
    }
    let (mut lines, mut buffer) = (journal.lines()?, Vec::new());
    // The last line so far of a resource, if it has one of the contents.
    let mut last: Option<(String, Digest)> = None;
    loop {
        let line = lines.next_line(&mut buffer)?;
        let is_next = |(uri, _): &(String, Digest)| line.as_ref().is_none_or(|line| line.loc != *uri);
        if let Some((uri, digest)) = last.take().filter(is_next) {
            found.entry(digest).or_default().present.push(uri);
        }
        let Some(line) = line else { return Ok(found) };
        let is_other = line.loc != loc && line.change != Change::Deleted;
        let Some(digest) = line.digest.filter(|digest| is_other && contents.contains(digest)) else {
            continue;
        };
        let sharers = found.entry(digest).or_default();
        sharers.count += 1;
        if sharers.named.len() < most_named {
            sharers.named.push((line.loc.clone(), line.moment));
        }
        last = Some((line.loc, digest));
    }
}
