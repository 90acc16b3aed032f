//! The inventory of a collection, stored from one run to the next ([`StoredInventory`]), and its changes since the last run.
//!
//! A run writes the next inventory beside the last one, and the changes between both. Files with the same time and length are not read again.

pub(crate) mod collection;
mod compare;
mod linker;
mod moments;
mod patches;
mod scope;
mod stored;
mod writing;

use std::{
    path::{Path, PathBuf},
    sync::mpsc::channel,
};

use resync_core::{
    build::{
        BuildError, FileInventory, Folder, Inventory, Item, Known, SkipReason, Skipped, Unportable,
        Versions as _,
    },
    datetime::DateTime,
    document::Change,
};
use serde::{Deserialize, Serialize};

use self::{
    compare::{ChangeRecorder, Compared},
    moments::{Moments, later},
    patches::Patches,
};
pub(crate) use self::{
    linker::Linker,
    moments::{MOST_BYTES, length},
    patches::{PATCH_FOLDER, PATCH_TYPE},
    scope::Scope,
    stored::{StoredInventory, is_whole},
    writing::{advance, changes},
};
use crate::{
    error::Error,
    settings::Settings,
    state::Totals,
    versions::{Content, Taken, Taking, Unkept},
};

/// So many symbolic links are remembered.
pub(crate) const MOST_LINKS: usize = 1_000;

/// A snapshot of a collection. Everything in it is at least as new as `started` (RS-021).
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Before the first file was looked at.
    pub(crate) started: DateTime,
    /// After the last file was read.
    pub(crate) completed: DateTime,
    /// The moment of the last change, or of the snapshot.
    pub(crate) until: DateTime,
    /// The resources.
    pub(crate) totals: Totals,
    /// Number of files that had to be read.
    pub(crate) reads: u64,
    /// Changes since the last inventory.
    pub(crate) changes: Changes,
    /// What was left out of the folder, ordered by path.
    pub(crate) skipped: Vec<Skipped>,
    /// The resources whose names not every Destination can store, ordered by path.
    pub(crate) unportable: Vec<Unportable>,
    /// The resources that are symbolic links, by their paths below the folder; at most one more than [`MOST_LINKS`].
    pub(crate) links: Vec<PathBuf>,
    /// The versions that were seen for the first time, and those that could not be kept.
    pub(crate) versions: Option<Taken>,
    pub(crate) unkept: Unkept,
}

/// How many resources changed in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Resources that are new.
    pub created: u64,
    /// Resources with another representation.
    pub updated: u64,
    /// Resources that are gone.
    pub deleted: u64,
}

impl Changes {
    /// Changes of all kinds.
    pub fn total(self) -> u64 {
        self.created + self.updated + self.deleted
    }

    /// The sum of these and others.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            created: self.created + other.created,
            updated: self.updated + other.updated,
            deleted: self.deleted + other.deleted,
        }
    }

    pub(super) fn count(&mut self, change: Change) {
        match change {
            Change::Created => self.created += 1,
            Change::Updated => self.updated += 1,
            Change::Deleted => self.deleted += 1,
        }
    }
}

/// What the last run published.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before {
    /// All changes up to this moment.
    Published {
        until: DateTime,
        /// Of the last inventory.
        totals: Totals,
        /// Whether the whole inventory is rewritten only when as much as that has changed.
        is_quick: bool,
        /// Whether the resources get other links than before.
        is_relinked: bool,
    },
    /// Nothing that could be continued.
    Nothing,
}

/// Is called with each resource, in the order of their URLs, and with `None` after the last one; also with the begin of the snapshot.
pub(crate) type Observe<'a> = &'a mut dyn FnMut(DateTime, Option<Item>) -> Result<(), BuildError>;

/// Takes the next inventory, and its changes since the last one, into the state of the site in `out`.
pub(crate) struct TakeSnapshot<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) out: &'a Path,
    pub(crate) before: Before,
    /// How many resources there were, if not all of them may be gone; else 0.
    pub(crate) guarded: u64,
    pub(crate) observe: Observe<'a>,
    pub(crate) versions: Taking,
    /// Is called with the number of resources so far.
    pub(crate) progress: &'a dyn Fn(u64),
}

impl TakeSnapshot<'_> {
    /// Of the files of a folder. With a `scope`, only the files in it are looked at, everything else counts as unchanged, and nobody observes.
    pub(crate) fn of_files(mut self, collection: Folder, scope: Option<&Scope>) -> Result<Snapshot, Error> {
        let Self { settings, out, progress, .. } = self;
        let ((skip, skipped), (warn, unportable)) = (channel(), channel());
        let (link, links) = channel();
        let mut rest = MOST_LINKS + 1;
        let on_link = move |path: &Path| {
            if rest > 0 {
                rest -= 1;
                drop(link.send(path.to_owned()));
            }
        };
        let last = StoredInventory::last(out);
        let known = scope.map(|scope| scope.known(&last, &settings.base_url)).transpose()?;
        let files = FileInventory::below(collection, settings.base_url.as_str())
            .algorithms(settings.hash.iter().copied())
            .media_type(|path| mime_guess::from_path(path).first_raw().map(str::to_ascii_lowercase))
            .on_skipped(move |one| drop(skip.send(one)))
            .on_unportable(move |one| drop(warn.send(one)))
            .on_link(on_link);
        let mut contents = files.contents();
        let mut files = match &known {
            None => files.known(last.resources()?),
            Some(known) => files.known(known.clone().into_iter().map(Ok)),
        }
        .start()?;
        let started = files.started();
        self.versions.contents(move |event| Ok(contents.open_version(event)?.map(Content::File)));
        let mut seen = 0;
        let next = || {
            seen += 1;
            progress(seen);
            files.next_known()
        };
        let mut found = std::iter::from_fn(next).peekable();
        // Those out of the scope are still there.
        let in_scope = known.as_ref().map_or(self.guarded, |known| known.len() as u64);
        if self.guarded > 0 && self.guarded == in_scope && found.peek().is_none() {
            return Err(Error::EmptyCollection { path: settings.directory.clone(), before: self.guarded });
        }
        let mut patches = Patches::of(settings, out);
        let compared = match (known, self.before) {
            (Some(known), Before::Published { until, totals, is_quick, .. }) => {
                let mut recorder = self.recorder(started, until, false);
                recorder.compare(known, found, &mut patches)?;
                recorder.save(out, &last, totals, last.is_rewrite_due(is_quick))?
            }
            _ => self.compare(started, found, &mut patches)?,
        };
        // A link to a file that has just vanished is not worth a warning.
        let mut skipped: Vec<_> = skipped.iter().filter(|one| one.reason != SkipReason::Dangling).collect();
        skipped.sort_by(|one, other| one.path.cmp(&other.path));
        let mut unportable: Vec<_> = unportable.iter().collect();
        unportable.sort_by(|one, other| one.path.cmp(&other.path));
        let (reads, links) = (files.reads(), links.iter().collect());
        Ok(Snapshot { reads, skipped, unportable, links, ..Snapshot::of(started, compared) })
    }

    /// Of resources that are not files, in the order of their URIs.
    pub(crate) fn of_resources(mut self, resources: impl Inventory) -> Result<Snapshot, Error> {
        let started = DateTime::now();
        let mut found = resources.map(|item| item.map(|item| Known { item, stamp: None })).peekable();
        if self.guarded > 0 && found.peek().is_none() {
            return Err(Error::EmptyList { out: self.out.to_owned(), before: self.guarded });
        }
        Ok(Snapshot::of(started, self.compare(started, found, &mut Patches::none())?))
    }

    /// Of the last inventory with these changes, or `None` if there is none to be continued. The changes are published as they are, in their order.
    pub(crate) fn of_changes(mut self, recorded: &[(Change, Item)]) -> Result<Option<Snapshot>, BuildError> {
        let Before::Published { until, totals, is_quick, .. } = self.before else { return Ok(None) };
        let started = DateTime::now();
        let mut recorder = self.recorder(started, until, true);
        recorder.record_all(recorded)?;
        let last = StoredInventory::last(self.out);
        let compared = recorder.save(self.out, &last, totals, last.is_rewrite_due(is_quick))?;
        Ok(Some(Snapshot::of(started, compared)))
    }

    /// For changes after a moment. With `repeats`, one resource can have several.
    fn recorder(&mut self, started: DateTime, until: DateTime, repeats: bool) -> ChangeRecorder {
        let mut versions = std::mem::replace(&mut self.versions, Taking::none());
        versions.see_some(repeats);
        ChangeRecorder::new(Moments::new(started.max(later(until, 1)), self.settings), versions)
    }
}

impl Snapshot {
    /// Without anything that only files have.
    fn of(started: DateTime, compared: Compared) -> Self {
        let Compared { totals, changes, until, versions, unkept } = compared;
        let completed = DateTime::now().max(started);
        let (reads, skipped, unportable, links) = (0, Vec::new(), Vec::new(), Vec::new());
        Self {
            started,
            completed,
            until,
            totals,
            reads,
            changes,
            skipped,
            unportable,
            links,
            versions,
            unkept,
        }
    }
}

/// The inventory of the run that is under way, or of the last one.
pub(crate) fn newest(
    out: &Path,
) -> Result<impl Iterator<Item = Result<Item, BuildError>> + use<>, BuildError> {
    Ok(StoredInventory::newest(out).resources()?.map(|known| known.map(|known| known.item)))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        time::SystemTime,
    };

    use resync_core::digest::{Algorithm, Digest};

    use super::*;
    use crate::BaseUrl;

    fn taken(data: &Path, out: &Path, before: Before) -> Snapshot {
        fs::create_dir_all(out).unwrap();
        let base = BaseUrl::parse("http://example.org/c").unwrap();
        let collection = collection::open(&Settings::new(data, base.clone()), out).unwrap();
        let settings = Settings::new(data, base);
        let task = TakeSnapshot {
            settings: &settings,
            out,
            before,
            guarded: 0,
            observe: &mut |_, _| Ok(()),
            versions: Taking::none(),
            progress: &|_| (),
        };
        task.of_files(collection, None).unwrap()
    }

    fn published_until(until: DateTime) -> Before {
        Before::Published { until, totals: Totals::default(), is_quick: false, is_relinked: false }
    }

    fn recorded(out: &Path) -> Vec<(Change, String)> {
        let name = |event: resync_core::build::Event| event.item.loc.replace("http://example.org/c/", "");
        let events = changes(out).unwrap().map(|change| change.unwrap().event);
        events.map(|event| (event.change, name(event))).collect()
    }

    #[test]
    fn an_inventory_is_stored_with_length_digest_and_type_in_the_order_of_urls() {
        let place = tempfile::tempdir().unwrap();
        let (data, out) = (place.path().join("data"), place.path().join("out"));
        fs::create_dir_all(data.join("b")).unwrap();
        for name in ["c.txt", "b/z.xml", "b/a b.pdf", "a", "b.part", "d.xlsm"] {
            fs::write(data.join(name), name).unwrap();
        }
        let taken = taken(&data, &out, Before::Nothing);
        assert_eq!(
            (taken.totals.resources, taken.totals.bytes, taken.skipped.len(), taken.reads),
            (5, 28, 1, 5)
        );
        assert_eq!((taken.changes, recorded(&out)), (Changes::default(), vec![]));
        assert!(taken.started <= taken.completed);
        let items: Vec<_> = newest(&out).unwrap().map(Result::unwrap).collect();
        let locs: Vec<_> =
            items.iter().map(|item| item.loc.strip_prefix("http://example.org/c/").unwrap()).collect();
        assert_eq!(locs, ["a", "b/a%20b.pdf", "b/z.xml", "c.txt", "d.xlsm"]);
        let text = &items[3];
        assert_eq!(text.length, Some(5));
        assert_eq!(text.hashes.get(Algorithm::Sha256), Some(&Digest::of(Algorithm::Sha256, b"c.txt")));
        assert_eq!(text.media_type.as_deref(), Some("text/plain"));
        assert!(text.lastmod.is_some_and(|lastmod| lastmod <= taken.started));
        assert_eq!(items[0].media_type, None);
        let macros = "application/vnd.ms-excel.sheet.macroenabled.12";
        assert_eq!(items[4].media_type.as_deref(), Some(macros), "as it always was");
    }

    #[test]
    fn a_change_is_recorded_once_after_the_last_moment_and_a_new_time_alone_is_no_difference() {
        let place = tempfile::tempdir().unwrap();
        let (data, out) = (place.path().join("data"), place.path().join("out"));
        fs::create_dir(&data).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(data.join(name), name).unwrap();
        }
        let first = taken(&data, &out, Before::Nothing);
        advance(&out).unwrap();
        fs::write(data.join("a"), "other").unwrap();
        fs::remove_file(data.join("b")).unwrap();
        fs::write(data.join("d"), "d").unwrap();
        let touched = File::options().write(true).open(data.join("c")).unwrap();
        touched.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let ahead = later(first.until, 3_600_000);
        let second = taken(&data, &out, published_until(ahead));
        let expected = [(Change::Updated, "a"), (Change::Deleted, "b"), (Change::Created, "d")];
        assert_eq!(recorded(&out), expected.map(|(change, name)| (change, name.to_owned())));
        assert_eq!(second.changes, Changes { created: 1, updated: 1, deleted: 1 });
        assert!(second.until > ahead, "the clock was set back, time goes on");
        advance(&out).unwrap();
        advance(&out).unwrap();
        let third = taken(&data, &out, published_until(second.until));
        assert_eq!((third.changes.total(), recorded(&out)), (0, vec![]));
    }
}
