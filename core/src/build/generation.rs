//! Names of the documents of one snapshot: they carry its moment, so that no snapshot overwrites what a poller of another one
//! may still be reading.
//!
//! Two generations stay readable: the one that the index leads to, and the one it led to before; and those that archived indexes lead to. What is older, or
//! was left behind by a run that was killed, goes. Only names of exactly the form that is given here are ever taken away.

use std::collections::BTreeSet;
use std::io::BufReader;

use super::archived::archived;
use super::rotation::WHOLLY;
use super::settings::Settings;
use super::{BuildError, Documents, Sink};
use crate::datetime::DateTime;
use crate::document::{Entry, Relation};
use crate::xml::{ReadError, Reader};

/// What names end with, after the number.
pub(super) const DOCUMENT: &str = ".xml";
pub(super) const PACKAGE: &str = ".zip";
pub(super) const MANIFEST_COPY: &str = "-manifest.xml";
const ENDS: [&str; 3] = [DOCUMENT, PACKAGE, MANIFEST_COPY];

/// The names of one run: `STEM-MOMENT-NUMBER`, or `STEM-MOMENT_RUN-NUMBER` where another run had the same moment.
#[derive(Clone, Debug)]
pub(super) struct Generation {
    stem: String,
    id: String,
}

impl Generation {
    /// Names for a snapshot of this moment that nothing in the sink has.
    pub(super) fn new<S: Sink>(sink: &S, stem: &str, moment: DateTime) -> Result<Self, BuildError> {
        let stamp = stamp(moment);
        let names = list(sink, &format!("{stem}-{stamp}"))?;
        let taken: BTreeSet<&str> = names.iter().filter_map(|name| id(stem, name)).collect();
        let mut free = stamp.clone();
        let mut run = 1_u64;
        while taken.contains(free.as_str()) {
            run += 1;
            free = format!("{stamp}_{run}");
        }
        Ok(Self { stem: stem.to_owned(), id: free })
    }

    /// The name of the document or package of this number.
    pub(super) fn name(&self, number: u64, end: &str) -> String {
        format!("{}-{}-{number}{end}", self.stem, self.id)
    }
}

/// The generations that stay.
#[derive(Debug)]
pub(super) struct Kept {
    /// Unknown when a document that leads to them cannot be read: then all stay.
    ids: Option<BTreeSet<String>>,
}

impl Kept {
    /// The generations that the published documents, and those in their archive, lead to now.
    pub(super) fn now<S: Sink>(sink: &S, settings: &Settings) -> Self {
        Self { ids: led_to_now(sink, settings).ok() }
    }

    /// Removes all generations but these and the one that was just published.
    pub(super) fn sweep<S: Sink>(self, sink: &mut S, published: Generation) -> Result<(), BuildError> {
        let Some(mut ids) = self.ids else { return Ok(()) };
        let Generation { stem, id: newest } = published;
        ids.insert(newest);
        for name in list(sink, &format!("{stem}-"))? {
            if id(&stem, &name).is_some_and(|id| !ids.contains(id)) {
                sink.remove(&name).map_err(|source| BuildError::Remove { name, source })?;
            }
        }
        Ok(())
    }
}

fn led_to_now<D: Documents>(sink: &D, settings: &Settings) -> Result<BTreeSet<String>, BuildError> {
    let archived = archived(sink, &settings.site, &settings.archive().top())?;
    let mut tops = vec![settings.top()];
    tops.extend(archived.iter().filter_map(|(loc, ..)| settings.site.name(loc)).map(str::to_owned));
    let mut ids = BTreeSet::new();
    for name in tops {
        let id = led_to(sink, &settings.stem, &name);
        ids.extend(id.map_err(|source| BuildError::Published { name, source })?);
    }
    Ok(ids)
}

/// The generation that the first entry of a document belongs to, and so all of them; an error where that is unknown.
fn led_to<D: Documents>(sink: &D, stem: &str, top: &str) -> Result<Option<String>, ReadError> {
    let Some(published) = sink.open(top).map_err(ReadError::Io)? else { return Ok(None) };
    let first = Reader::new(BufReader::new(published))?.next().transpose()?;
    let name = first.as_ref().and_then(|entry| name_in(stem, &entry.loc));
    Ok(name.and_then(|name| id(stem, name)).map(str::to_owned))
}

/// The name of a document. The site may have moved since, so only the end of the URL counts.
fn name_in<'a>(stem: &str, url: &'a str) -> Option<&'a str> {
    Some(&url[url.rfind(&format!("/{stem}-"))? + 1..])
}

/// Removes the packages, and the copies of their manifests, that no document of a series leads to: a run that was killed left them.
pub(super) fn sweep_packages<S: Sink>(sink: &mut S, settings: &Settings) -> Result<(), BuildError> {
    let stem = settings.stem.as_str();
    let names = list(sink, &format!("{stem}-"))?;
    let is_package = |name: &&String| {
        id(stem, name).is_some() && [PACKAGE, MANIFEST_COPY].iter().any(|end| name.ends_with(end))
    };
    let mut orphans: BTreeSet<&str> = names.iter().filter(is_package).map(String::as_str).collect();
    for document in names.iter().filter(|name| settings.is_component(name)) {
        if orphans.is_empty() {
            break;
        }
        // Who knows what a document leads to that cannot be read?
        let Ok(entries) = entries(sink, document) else { return Ok(()) };
        for entry in entries {
            let Ok(entry) = entry else { return Ok(()) };
            let copy = entry.link(&Relation::Contents).map(|link| link.href.as_str());
            for url in std::iter::once(entry.loc.as_str()).chain(copy) {
                name_in(stem, url).map(|name| orphans.remove(name));
            }
        }
    }
    for name in orphans {
        sink.remove(name).map_err(|source| BuildError::Remove { name: name.to_owned(), source })?;
    }
    Ok(())
}

fn entries<D: Documents>(
    documents: &D,
    name: &str,
) -> Result<impl Iterator<Item = Result<Entry, ReadError>> + use<D>, ReadError> {
    let missing = || ReadError::Io(std::io::ErrorKind::NotFound.into());
    let published = documents.open(name).map_err(ReadError::Io)?.ok_or_else(missing)?;
    Reader::with_options(BufReader::new(published), WHOLLY)
}

fn list<D: Documents>(sink: &D, prefix: &str) -> Result<Vec<String>, BuildError> {
    sink.list(prefix).map_err(|source| BuildError::Names { prefix: prefix.to_owned(), source })
}

/// The generation that a name belongs to, if it is one of ours.
fn id<'a>(stem: &str, name: &'a str) -> Option<&'a str> {
    let (id, rest) = name.strip_prefix(stem)?.strip_prefix('-')?.split_once('-')?;
    let (stamp, run) = id.split_once('_').map_or((id, None), |(stamp, run)| (stamp, Some(run)));
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let (number, end) = rest.split_at(digits);
    let is_ours = is_stamp(stamp) && run.is_none_or(is_number) && is_number(number) && ENDS.contains(&end);
    is_ours.then_some(id)
}

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|number| number > 0 && number.to_string() == text)
}

/// A moment as part of a file name.
fn stamp(moment: DateTime) -> String {
    moment.to_string().replace(['-', ':'], "")
}

fn is_stamp(text: &str) -> bool {
    let Some(text) = text.strip_suffix('Z') else { return false };
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, part)| (whole, Some(part)));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = whole.split_once('T').is_some_and(|(date, time)| {
        date.len() == 8 && time.len() == 6 && are_digits(date) && are_digits(time)
    });
    is_whole && fraction.is_none_or(are_digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::MemorySink;

    #[test]
    fn names_of_a_snapshot_are_recognised_and_no_others() {
        let moment: DateTime = "2026-01-02T03:04:05.25Z".parse().unwrap();
        let mut sink = MemorySink::default();
        for run in ["", "_2", "_3"] {
            let generation = Generation::new(&sink, "sets/list", moment).unwrap();
            for end in ENDS {
                let name = generation.name(12, end);
                assert_eq!(name, format!("sets/list-20260102T030405.25Z{run}-12{end}"));
                assert_eq!(id("sets/list", &name), Some(format!("20260102T030405.25Z{run}").as_str()));
                let draft = sink.create(&name).unwrap();
                sink.publish(draft).unwrap();
            }
        }
        for foreign in [
            "list.xml",
            "list-1.xml",
            "list-archive-20260102T030405Z-1.xml",
            "list-20260102T030405Z.xml",
            "list-20260102T030405Z-.xml",
            "list-20260102T030405Z-0.xml",
            "list-20260102T030405Z-01.xml",
            "list-20260102T030405Z_-1.xml",
            "list-20260102T030405Z_x-1.xml",
            "list-20260102T030405-1.xml",
            "list-2026010T030405Z-1.xml",
            "list-20260102T030405.Z-1.xml",
            "list-20260102T030405Z-1.html",
            "list-20260102T030405Z-1.xml.bak",
            "mylist-20260102T030405Z-1.xml",
        ] {
            assert_eq!(id("list", foreign), None, "{foreign}");
        }
    }
}
