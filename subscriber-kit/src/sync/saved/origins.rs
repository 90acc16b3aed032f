//! From where each file of the copy came, for a Source that publishes the copy on (RS-180). It reads this record, whose form is in
//! [`resync_core::origins`].
//!
//! A baseline writes it anew, and an incremental run adds to it. It only spares a Source questions, so that a copy is in step without it.

use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use resync_core::origins::{ADDED_FILE, FILE, Origin, name, write};
use tempfile::NamedTempFile;

use super::cache::CachedFile;
use crate::sync::files::folder::CopyFolder;
use crate::sync::reading::plan::Line;

/// How much longer the second file may become than the first. Then it begins anew, and what it had is known again after the next
/// baseline.
const MAX_ADDED: u64 = 64 << 20;

/// The origins that one run finds out.
#[derive(Debug, Default)]
pub(crate) enum OriginRecord {
    /// Nothing is recorded.
    #[default]
    None,
    /// Of a baseline: of all resources.
    Whole(BufWriter<NamedTempFile>),
    /// Of an incremental run: of those that changed.
    Added(BufWriter<NamedTempFile>),
}

impl OriginRecord {
    /// Of a baseline.
    pub(crate) fn whole(folder: &CopyFolder) -> Self {
        begun(folder).map_or(Self::None, Self::Whole)
    }

    /// Of an incremental run.
    pub(crate) fn added(folder: &CopyFolder) -> Self {
        begun(folder).map_or(Self::None, Self::Added)
    }

    /// Records a resource whose file is as listed. Without a digest nobody can tell later whether it still is.
    pub(crate) fn take(&mut self, relative: &Path, line: &Line, known: Option<&CachedFile>, is_new: bool) {
        let out = match self {
            Self::Added(out) if is_new => out,
            Self::Whole(out) => out,
            Self::Added(_) | Self::None => return,
        };
        let hashes = match (line.facts.algorithm(), known) {
            (None, Some(known)) => known.hashes.clone(),
            _ => line.facts.hashes.clone(),
        };
        let from = line.provenance.original.as_ref().or(line.alternate.as_ref()).unwrap_or(&line.url);
        let origin = Origin {
            path: name(relative),
            uri: from.clone(),
            modified: line.facts.modified,
            length: line.facts.length,
            hashes,
            media_type: line.provenance.media_type.clone().filter(|_| line.alternate.is_none()),
            links: line.provenance.links.clone(),
        };
        if let Err(error) = write(out, &origin) {
            tracing::info!(%error, "cannot record from where files came; who publishes the copy on has to say it");
            *self = Self::None;
        }
    }

    /// Puts the record in place.
    pub(crate) fn save(self, folder: &CopyFolder) {
        let saved = match self {
            Self::None => return,
            Self::Whole(out) => save_whole(out, folder),
            Self::Added(out) => save_added(out, folder),
        };
        if let Err(error) = saved {
            tracing::info!(%error, "cannot save from where files came; who publishes the copy on has to say it");
        }
    }
}

fn begun(folder: &CopyFolder) -> Option<BufWriter<NamedTempFile>> {
    match folder.unfinished() {
        Ok(file) => Some(BufWriter::new(file)),
        Err(error) => {
            tracing::info!(%error, "cannot record from where files come");
            None
        }
    }
}

fn save_whole(out: BufWriter<NamedTempFile>, folder: &CopyFolder) -> io::Result<()> {
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    // First, since it would count as newer.
    match std::fs::remove_file(folder.file(ADDED_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    file.persist(folder.file(FILE)).map_err(|error| error.error)?;
    Ok(())
}

fn save_added(mut out: BufWriter<NamedTempFile>, folder: &CopyFolder) -> io::Result<()> {
    out.flush()?;
    let length = |path: &Path| path.metadata().map_or(0, |found| found.len());
    if length(out.get_ref().path()) == 0 {
        return Ok(());
    }
    let path = folder.file(ADDED_FILE);
    let is_too_long = length(&path) > length(&folder.file(FILE)) + MAX_ADDED;
    let mut how = std::fs::File::options();
    let how = if is_too_long { how.write(true).truncate(true) } else { how.append(true) };
    let mut record = how.create(true).open(&path)?;
    io::copy(&mut std::fs::File::open(out.get_ref().path())?, &mut record)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_folder::STATE_FOLDER;
    use crate::sync::Target;
    use crate::sync::files::local::Facts;
    use resync_core::digest::{Algorithm, Digest};
    use resync_core::origins::{FOLDER, Origins};
    use url::Url;

    fn line(path: &str, content: &str) -> Line {
        let url = format!("http://a.example/{path}");
        let hashes = Digest::of(Algorithm::Sha256, content.as_bytes()).into();
        Line { loc: url.clone(), url, facts: Facts { hashes, ..Facts::default() }, ..Line::default() }
    }

    #[test]
    fn rs180_a_source_finds_what_the_last_baseline_and_the_runs_since_recorded() {
        assert_eq!(FOLDER, STATE_FOLDER);
        let copy = tempfile::tempdir().unwrap();
        let target = Target::open(copy.path(), Url::parse("http://a.example/").unwrap()).unwrap();
        let folder = CopyFolder::open(&target).unwrap();
        let run = |mut record: OriginRecord, lines: &[(&str, &str, bool)]| {
            for (path, content, is_new) in lines {
                record.take(Path::new(path), &line(path, content), None, *is_new);
            }
            record.save(&folder);
        };
        run(OriginRecord::whole(&folder), &[("a", "1", false), ("b", "1", true)]);
        run(OriginRecord::added(&folder), &[("a", "2", true), ("b", "2", false)]);
        let is_known = |path: &str, content: &str| {
            let origin = Origins::open(copy.path()).unwrap().unwrap().find(Path::new(path)).unwrap().unwrap();
            assert_eq!(origin.uri, format!("http://a.example/{path}"));
            origin.is_of(None, &Digest::of(Algorithm::Sha256, content.as_bytes()).into())
        };
        assert!(is_known("a", "2") && is_known("b", "1"), "what did not change is not recorded again");
        run(OriginRecord::whole(&folder), &[("a", "3", true)]);
        assert!(is_known("a", "3"));
        assert!(Origins::open(copy.path()).unwrap().unwrap().find(Path::new("b")).unwrap().is_none());
    }
}
