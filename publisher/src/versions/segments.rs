//! The files of the journal from one run to the next: each run adds one, and small ones are merged, so that there are few and none is
//! rewritten often.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use resync_core::build::{Documents as _, FolderSink};

use super::{
    journal::{Lines, paths},
    store::Store,
    taken::{Merged, Taken},
};
use crate::{
    error::{Action, Error},
    helpers::files,
    state::{FOLDER, KeptVersions, Segment},
};

/// So many are merged at once, or more.
const TOGETHER: usize = 4;

/// How the names of these files begin and end.
const NAME: (&str, &str) = ("versions-", ".jsonl");

/// The file that the run of a number writes.
pub(super) fn name(build: u64) -> String {
    format!("{}{build}{}", NAME.0, NAME.1)
}

/// What is kept after a run that saw these versions.
pub(crate) fn advanced(before: Option<&KeptVersions>, taken: &Taken) -> KeptVersions {
    let mut kept = before.cloned().unwrap_or_else(|| KeptVersions {
        segments: Vec::new(),
        count: 0,
        bytes: 0,
        present: taken.bytes,
        since: taken.first,
        until: taken.last,
        replaced: None,
        is_whole: false,
    });
    if let Some(Merged { from, segment }) = &taken.merged {
        kept.segments.truncate(*from);
        kept.segments.push(segment.clone());
    }
    kept.segments.extend(taken.segment.clone());
    kept.count += taken.count;
    kept.bytes += taken.bytes;
    kept.until = kept.until.max(taken.last);
    kept.replaced = kept.replaced.or(taken.replaced);
    kept.is_whole = taken.is_whole;
    kept
}

/// The last files of the journal that are to become one, which a run writes with its own files: so a merge takes no sync that the run does
/// not take.
#[derive(Debug)]
pub(crate) struct Merge {
    name: String,
    from: usize,
    paths: Vec<PathBuf>,
}

impl Merge {
    /// For the run of a number: the last files as soon as several have less than twice the length of those after them together.
    pub(super) fn due(out: &Path, segments: &[Segment], build: u64) -> Option<Self> {
        let mut from = segments.len();
        let mut bytes = 0;
        while let Some(segment) = from.checked_sub(1).and_then(|last| segments.get(last))
            && (bytes == 0 || segment.bytes < 2 * bytes)
        {
            (from, bytes) = (from - 1, bytes + segment.bytes);
        }
        (segments.len() - from >= TOGETHER).then(|| Self {
            name: format!("{}{build}-merged{}", NAME.0, NAME.1),
            from,
            paths: paths(out, &segments[from..]),
        })
    }

    /// The name of the one file.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Writes it.
    pub(crate) fn write(self, out: &mut impl Write) -> io::Result<Merged> {
        let Self { name, from, paths } = self;
        let (mut lines, mut line, mut bytes) = (Lines::of(&paths)?, Vec::new(), 0);
        while lines.next_into(&mut line)? {
            out.write_all(&line)?;
            bytes += line.len() as u64;
        }
        Ok(Merged { from, segment: Segment { name, bytes } })
    }
}

/// Removes files of the journal that neither the state nor the one before names: who reads by the latter still finds its own.
pub(crate) fn sweep(out: &Path, states: [Option<&KeptVersions>; 2]) -> Result<(), Error> {
    let folder = out.join(FOLDER);
    let is_named = |name: &str| {
        states.iter().flatten().flat_map(|kept| &kept.segments).any(|segment| segment.name == name)
    };
    let swept = names(out).and_then(|names| {
        let unnamed = names.iter().filter(|name| !is_named(name));
        unnamed.map(|name| folder.join(name)).try_for_each(|path| files::remove_unsynced(&path))
    });
    swept.map_err(Error::cannot(Action::Remove, &folder))
}

/// Removes the journal and all bytes.
pub(crate) fn remove_all(out: &Path) -> Result<(), Error> {
    let store = Store::of(out);
    store.remove_all().map_err(Error::cannot(Action::Remove, store.folder()))?;
    sweep(out, [None, None])
}

/// The files of the journal that are there.
fn names(out: &Path) -> io::Result<Vec<String>> {
    let mut names = FolderSink::read(out.join(FOLDER)).list(NAME.0)?;
    names.retain(|name| name.ends_with(NAME.1));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use resync_core::{datetime::DateTime, document::Change};

    use super::*;
    use crate::versions::{Journal, VersionLine};

    fn run(out: &Path, before: Option<&KeptVersions>, build: u64, locs: &[u32]) -> KeptVersions {
        let moment = DateTime::from_unix_millis(i64::try_from(build).unwrap() * 1000).unwrap();
        let line = |loc: &u32| VersionLine::gone(format!("http://e.x/{loc:03}"), moment);
        let lines = locs.iter().map(|loc| serde_json::to_string(&line(loc)).unwrap() + "\n");
        let text = lines.collect::<String>();
        fs::create_dir_all(out.join(FOLDER)).unwrap();
        fs::write(out.join(FOLDER).join(name(build)), &text).unwrap();
        let segment = Some(Segment { name: name(build), bytes: text.len() as u64 });
        let (count, bytes, copied) = (locs.len() as u64, 10, 0);
        let (first, last, replaced) = (moment, moment, Some(moment));
        let merged = before.and_then(|before| Merge::due(out, &before.segments, build)).map(|merge| {
            let mut file = fs::File::create(out.join(FOLDER).join(merge.name())).unwrap();
            merge.write(&mut file).unwrap()
        });
        let taken = Taken { segment, merged, count, bytes, copied, first, last, replaced, is_whole: true };
        let kept = advanced(before, &taken);
        let planned: Taken = serde_json::from_str(&serde_json::to_string(&taken).unwrap()).unwrap();
        assert_eq!(advanced(before, &planned), kept, "an interrupted run is completed by its plan");
        sweep(out, [before, Some(&kept)]).unwrap();
        kept
    }

    #[test]
    fn mem011_many_small_runs_leave_few_files_and_a_large_one_is_not_rewritten_for_them() {
        let out = tempfile::tempdir().unwrap();
        let all: Vec<u32> = (0..400).collect();
        let mut kept = run(out.path(), None, 1, &all);
        let (first, mut merges) = (kept.clone(), 0);
        for build in 2..100 {
            kept = run(out.path(), Some(&kept), build, &[7]);
            let merged = format!("{}{build}-merged{}", NAME.0, NAME.1);
            merges += usize::from(kept.segments.iter().any(|segment| segment.name == merged));
            assert!(kept.segments.len() < 10, "{kept:?}");
            assert_eq!(kept.segments[0], first.segments[0], "the large one stays");
        }
        assert!((1..98 / 3).contains(&merges), "{merges}: most runs write no other file than their own");
        let journal = Journal::with(out.path(), Some(&kept));
        let moments: Vec<_> =
            journal.versions("http://e.x/007").map(|version| version.unwrap().moment).collect();
        assert!(moments.is_sorted() && moments.len() == 99, "{moments:?}");
        assert!(journal.versions("http://e.x/008").all(|version| version.unwrap().change == Change::Deleted));
        assert_eq!((kept.count, kept.bytes, kept.since), (498, 990, first.since));
        assert!(names(out.path()).unwrap().len() < 20);
        remove_all(out.path()).unwrap();
        assert!(names(out.path()).unwrap().is_empty());
    }
}
