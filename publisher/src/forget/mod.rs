//! Takes versions of a resource out for good, as a takedown order or personal data published by mistake ask for (MEM-013, MEM-031).
//!
//! Bytes are kept once for each content, so all versions with the same bytes go together. The journal keeps their lines: they answer 410, and
//! each other version keeps its URI. No later run keeps these bytes again. The resource itself, dumps and published patches are not touched;
//! no later patch begins at these bytes.

mod naming;
mod unrecorded;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::OsStr,
    fmt, io, iter,
    path::Path,
};

use resync_core::{
    datetime::DateTime,
    digest::{Algorithm, Digest},
    document::Change,
};
use serde::Serialize;

use crate::{
    error::{Action, Error},
    helpers::serde_text::{text, text_list},
    inventory::StoredInventory,
    publish,
    state::{DumpLock, FOLDER, Lock, State},
    versions::{Forgotten, Journal, Sharers, Store, Version, retention, sharers},
};

/// How many versions of others are named for each content.
const MOST_NAMED: usize = 10;

/// Which versions of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those that began at this moment, or else within this second.
    At(DateTime),
    /// All.
    All,
}

impl Which {
    /// The moments that are meant, of all at which versions began.
    fn among(self, moments: impl Iterator<Item = DateTime> + Clone) -> BTreeSet<DateTime> {
        match self {
            Self::All => moments.collect(),
            Self::At(at) if moments.clone().any(|moment| moment == at) => [at].into(),
            Self::At(at) => moments.filter(|moment| moment.truncate_to_seconds() == at).collect(),
        }
    }
}

/// The versions of a resource whose bytes are kept. As JSON its names are stable, new ones may be added.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// The name of the set, in a site of several.
    pub set: Option<String>,
    /// The resource.
    pub uri: String,
    /// Whether the last build published it.
    pub published: bool,
    /// Oldest first.
    pub versions: Vec<KeptVersion>,
}

/// A version whose bytes are kept.
#[derive(Clone, Debug, Serialize)]
pub struct KeptVersion {
    /// When it began.
    #[serde(with = "text")]
    pub moment: DateTime,
    /// The length of its bytes.
    pub bytes: u64,
    /// Their SHA-256.
    #[serde(with = "text")]
    pub digest: Digest,
    /// How many other versions, of this resource and of others, have the same bytes.
    pub others: u64,
    /// The first of these.
    pub shared_with: Vec<VersionName>,
}

/// Names a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VersionName {
    /// The resource.
    pub uri: String,
    /// When the version began.
    #[serde(with = "text")]
    pub moment: DateTime,
}

/// What is taken out, or would be. As JSON its names are stable, new ones may be added.
#[derive(Clone, Debug, Serialize)]
pub struct Removal {
    /// The name of the set, in a site of several.
    pub set: Option<String>,
    /// The resource.
    pub uri: String,
    /// Whether the last build published it. It stays as it is.
    pub published: bool,
    /// The versions that were asked for; none where their bytes were not kept any more.
    pub versions: Vec<KeptVersion>,
    /// How many empty versions were asked for. They stay: nothing can be taken out of them.
    pub empty: u64,
    /// How many versions were asked for whose SHA-256 nobody knows any more. Their bytes are not kept, but a build that finds them again keeps
    /// them.
    pub without_digest: u64,
    /// The SHA-256 of all bytes that were asked for, also of those that are not kept now. No build keeps them again.
    #[serde(serialize_with = "text_list::serialize")]
    pub digests: Vec<Digest>,
    /// How many other versions, of this resource and of others, have the same bytes.
    pub others: u64,
    /// The first of these.
    pub shared_with: Vec<VersionName>,
    /// The resources of the set that the last build published with the same bytes. They stay as they are.
    pub published_with_same_bytes: Vec<String>,
    /// The length of the bytes, each content counted once.
    pub bytes: u64,
}

/// What the set in `out` keeps of a resource, which is named by its URI, or as a file: by its path, or its path below the collection. Several
/// where that may mean several; none where no version was ever kept. Takes no lock and changes nothing.
pub fn kept(out: &Path, named: &OsStr) -> Result<Vec<Kept>, Error> {
    let found = Found::all(out, &State::load(out)?, named)?;
    Ok(found.into_iter().map(|found| found.kept).collect())
}

/// The resources of the set in `out` that have one of these contents: the first of those whose versions are kept, and all that are published
/// with it. Takes no lock and changes nothing.
pub fn same_bytes(out: &Path, digests: &[Digest]) -> Result<BTreeSet<String>, Error> {
    let state = State::load(out)?;
    let contents: BTreeSet<Digest> = digests.iter().copied().collect();
    let (mut uris, mut present) = (BTreeSet::new(), BTreeSet::new());
    if let Some(journal) = Journal::of(out, &state) {
        let (folder, store) = (out.join(FOLDER), Store::of(out));
        let cannot = Error::cannot(Action::Read, &folder);
        for (digest, sharers) in sharers(&journal, "", &contents, MOST_NAMED).map_err(&cannot)? {
            if store.length(&digest).map_err(&cannot)?.is_some() {
                uris.extend(sharers.named.into_iter().map(|(uri, _)| uri));
            }
            present.extend(sharers.present);
        }
    }
    uris.extend(published_with(out, &contents, &present)?);
    Ok(uris)
}

/// Takes versions of a resource out of those that a set keeps.
#[must_use]
pub struct Forget<'a> {
    out: &'a Path,
    named: &'a OsStr,
    which: Which,
    with_others: bool,
    is_dry: bool,
    announce: &'a dyn Fn(&Removal),
}

impl fmt::Debug for Forget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { out, named, which, .. } = self;
        f.debug_struct("Forget")
            .field("out", out)
            .field("named", named)
            .field("which", which)
            .finish_non_exhaustive()
    }
}

impl<'a> Forget<'a> {
    /// These versions of a resource of the set in `out`, which is named as for [`kept`].
    pub fn new(out: &'a Path, named: &'a OsStr, which: Which) -> Self {
        Self { out, named, which, with_others: false, is_dry: false, announce: &|_| () }
    }

    /// Whether other versions with the same bytes may go, too.
    pub fn with_others(mut self, are_included: bool) -> Self {
        self.with_others = are_included;
        self
    }

    /// Changes nothing, and takes no lock.
    pub fn dry_run(mut self, is_dry: bool) -> Self {
        self.is_dry = is_dry;
        self
    }

    /// Is called with what goes before anything does, unless nothing goes.
    pub fn announce(mut self, announce: &'a dyn Fn(&Removal)) -> Self {
        self.announce = announce;
        self
    }

    /// Removes them. `None` where there never was such a version. Blocks while a build or a dump uses the same `out`.
    ///
    /// # Errors
    /// [`Error::SeveralKept`] where the name may mean several resources, [`Error::SharedBytes`] where others go with it and that is not
    /// allowed: then nothing is removed. After any other error, what was not done is done by the next build, or by calling this again.
    pub fn run(self) -> Result<Option<Removal>, Error> {
        // A lock would make a folder where no site is.
        let state = State::load(self.out)?;
        if self.is_dry {
            return self.plan(&state);
        }
        // A dump reads versions while the site is not locked. It takes its locks in this order.
        let _dump_lock = DumpLock::acquire(self.out)?;
        let lock = Lock::acquire(self.out)?;
        publish::complete(&lock)?;
        let mut state = State::load(self.out)?;
        let Some(removal) = self.plan(&state)? else { return Ok(None) };
        if !removal.versions.is_empty() {
            (self.announce)(&removal);
        }
        Forgotten::add(&lock, removal.digests.iter().copied())?;
        for KeptVersion { moment, digest, .. } in &removal.versions {
            tracing::info!(uri = %removal.uri, %moment, %digest, "this version is to be kept no longer");
        }
        // Also what a killed run has left.
        retention::remove_forgotten(&lock, &mut state)?;
        Ok(Some(removal))
    }

    /// What is to go.
    fn plan(&self, state: &State) -> Result<Option<Removal>, Error> {
        let mut found = Found::all(self.out, state, self.named)?;
        if found.len() > 1 {
            let uris = found.into_iter().map(|found| found.kept.uri).collect();
            return Err(Error::SeveralKept { name: self.named.to_string_lossy().into_owned(), uris });
        }
        let Some(found) = found.pop() else { return Ok(None) };
        let moments = self.which.among(found.versions.iter().map(|version| version.moment));
        if moments.is_empty() {
            return Ok(None);
        }
        // Also what is not kept now: a later build tries again what had no room.
        let contents = contents(found.versions.iter().filter(|version| moments.contains(&version.moment)));
        let forgotten = Forgotten::load(self.out)?.all();
        let new = contents.iter().copied().filter(|digest| !forgotten.contains(digest)).collect();
        let (others, named) = found.others(&new, &moments);
        if let Some(VersionName { uri, moment }) = named.into_iter().next().filter(|_| !self.with_others) {
            return Err(Error::SharedBytes { others, uri, moment });
        }
        found.removal(self.out, &moments, contents).map(Some)
    }
}

/// A resource of which versions were kept.
struct Found {
    kept: Kept,
    /// All its versions, oldest first, also those whose bytes are not kept.
    versions: Vec<Version>,
    /// Of each content the versions of other resources.
    sharers: HashMap<Digest, Sharers>,
}

impl Found {
    /// All that the name may mean.
    fn all(out: &Path, state: &State, named: &OsStr) -> Result<Vec<Self>, Error> {
        let Some(journal) = Journal::of(out, state) else { return Ok(Vec::new()) };
        let folder = out.join(FOLDER);
        let cannot = Error::cannot(Action::Read, &folder);
        let mut all = Vec::new();
        for uri in naming::uris(&state.settings, named) {
            let mut versions: Vec<Version> =
                journal.versions(&uri).collect::<io::Result<_>>().map_err(&cannot)?;
            let Some(last) = versions.last_mut() else { continue };
            // The journal does not know what became of a file whose versions are kept no longer.
            let item = StoredInventory::last(out).find(&uri)?.map(|known| known.item);
            if last.digest.is_none() && last.length.is_some() {
                let same = item.as_ref().filter(|item| item.length == last.length);
                last.digest = same.and_then(|item| unrecorded::digest(&state.settings, out, item));
            }
            // Who writes a URI as the lists have it means no other.
            let is_exact = named.to_str() == Some(uri.as_str());
            let sharers = sharers(&journal, &uri, &contents(versions.iter()), MOST_NAMED).map_err(&cannot)?;
            let set = state.settings.root.as_ref().map(|root| root.name.to_string());
            let kept = Kept { set, uri, published: item.is_some(), versions: Vec::new() };
            let mut found = Self { kept, versions, sharers };
            found.kept.versions = found.kept_versions(&Store::of(out)).map_err(&cannot)?;
            all.push(found);
            if is_exact {
                break;
            }
        }
        Ok(all)
    }

    /// Those whose bytes are there, be they damaged or not.
    fn kept_versions(&self, store: &Store) -> io::Result<Vec<KeptVersion>> {
        let mut versions = Vec::new();
        for version in &self.versions {
            let Some(digest) = version.digest else { continue };
            if let Some(bytes) = store.length(&digest)? {
                let moment = version.moment;
                let (others, mut shared_with) = self.others(&contents(iter::once(version)), &[moment].into());
                shared_with.truncate(MOST_NAMED);
                versions.push(KeptVersion { moment, bytes, digest, others, shared_with });
            }
        }
        Ok(versions)
    }

    /// How many versions have these contents, without those of this resource that began at these moments; and the first of them.
    fn others(&self, contents: &BTreeSet<Digest>, moments: &BTreeSet<DateTime>) -> (u64, Vec<VersionName>) {
        let has = |version: &&Version| version.digest.is_some_and(|digest| contents.contains(&digest));
        let own = self.versions.iter().filter(has).filter(|version| !moments.contains(&version.moment));
        let name = |uri: &String, moment| VersionName { uri: uri.clone(), moment };
        let mut named: Vec<_> = own.map(|version| name(&self.kept.uri, version.moment)).collect();
        let mut count = named.len() as u64;
        for sharers in contents.iter().filter_map(|digest| self.sharers.get(digest)) {
            count += sharers.count;
            named.extend(sharers.named.iter().map(|(uri, moment)| name(uri, *moment)));
        }
        (count, named)
    }

    /// How many of the versions that began at these moments are empty, and of how many nobody knows the SHA-256.
    fn left(&self, moments: &BTreeSet<DateTime>) -> (u64, u64) {
        let (mut are_empty, mut without_digest) = (0, 0);
        for version in self.versions.iter().filter(|version| moments.contains(&version.moment)) {
            match version.digest {
                Some(digest) => are_empty += u64::from(digest == empty()),
                None => without_digest += u64::from(version.change != Change::Deleted),
            }
        }
        (are_empty, without_digest)
    }

    /// What goes with the versions that began at these moments and have these contents.
    fn removal(
        self,
        out: &Path,
        moments: &BTreeSet<DateTime>,
        contents: BTreeSet<Digest>,
    ) -> Result<Removal, Error> {
        let (others, shared_with) = self.others(&contents, moments);
        let (empty, without_digest) = self.left(moments);
        let Self { kept: Kept { set, uri, published, versions: kept }, versions, mut sharers } = self;
        let present = contents.iter().filter_map(|digest| sharers.remove(digest));
        let mut present: BTreeSet<String> = present.flat_map(|sharers| sharers.present).collect();
        if versions.last().and_then(|last| last.digest).is_some_and(|last| contents.contains(&last)) {
            present.insert(uri.clone());
        }
        let published_with_same_bytes = published_with(out, &contents, &present)?;
        let is_asked =
            |version: &KeptVersion| moments.contains(&version.moment) && contents.contains(&version.digest);
        let versions: Vec<_> = kept.into_iter().filter(is_asked).collect();
        let lengths: BTreeMap<Digest, u64> =
            versions.iter().map(|version| (version.digest, version.bytes)).collect();
        let (bytes, digests) = (lengths.values().sum(), contents.into_iter().collect());
        Ok(Removal {
            set,
            uri,
            published,
            versions,
            empty,
            without_digest,
            digests,
            others,
            shared_with,
            published_with_same_bytes,
            bytes,
        })
    }
}

/// What can be taken out of versions. Many files are empty, and that is no secret.
fn contents<'a>(versions: impl Iterator<Item = &'a Version>) -> BTreeSet<Digest> {
    let empty = empty();
    versions.filter_map(|version| version.digest).filter(|digest| *digest != empty).collect()
}

fn empty() -> Digest {
    Digest::of(Algorithm::Sha256, b"")
}

/// The resources that the last build published with one of these contents. Where it told no SHA-256, they are those of `present`: their
/// last versions have it.
fn published_with(
    out: &Path,
    contents: &BTreeSet<Digest>,
    present: &BTreeSet<String>,
) -> Result<Vec<String>, Error> {
    let mut uris = Vec::new();
    if contents.is_empty() {
        return Ok(uris);
    }
    for known in StoredInventory::last(out).resources()? {
        let item = known?.item;
        let has = match item.hashes.get(Algorithm::Sha256) {
            Some(digest) => contents.contains(digest),
            None => present.contains(&item.loc),
        };
        if has {
            uris.push(item.loc);
        }
    }
    Ok(uris)
}

#[cfg(test)]
mod tests {
    use std::{
        cell::OnceCell,
        fs,
        path::PathBuf,
        sync::{
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
        thread,
    };

    use super::*;
    use crate::{
        BaseUrl, Settings, build,
        helpers::files::tests::interrupt_after,
        publish::{Dump, dump},
        settings::{Keep, VersionRules},
    };

    const URI: &str = "http://example.org/a.txt";

    /// A site in which `a.txt` was one and then three, and `b.txt` is one.
    fn site(place: &Path) -> (Settings, PathBuf) {
        let (data, out) = (place.join("data"), place.join("site"));
        fs::create_dir(&data).unwrap();
        let mut settings = Settings::new(&data, BaseUrl::parse("http://example.org/").unwrap());
        settings.versions = VersionRules { keep: Keep::Always, ..VersionRules::default() };
        for text in ["one", "three"] {
            fs::write(data.join("a.txt"), text).unwrap();
            fs::write(data.join("b.txt"), "one").unwrap();
            build(&settings, &out).unwrap();
        }
        (settings, out)
    }

    fn forget_all(out: &Path) -> Result<Removal, Error> {
        Ok(Forget::new(out, URI.as_ref(), Which::All).with_others(true).run()?.unwrap())
    }

    fn is_there(out: &Path) -> bool {
        !kept(out, URI.as_ref()).unwrap()[0].versions.is_empty()
    }

    /// Number of versions and their bytes, by the state.
    fn counted(out: &Path) -> (u64, u64) {
        let kept = State::load(out).unwrap().versions.unwrap();
        (kept.count, kept.bytes)
    }

    #[test]
    fn mem013_a_removal_that_dies_at_any_step_is_completed_by_the_next_build_or_by_itself() {
        let mut steps = 0;
        for next_is_build in [true, false] {
            for step in 0.. {
                let place = tempfile::tempdir().unwrap();
                let (settings, out) = site(place.path());
                assert_eq!(counted(&out), (3, 8));
                interrupt_after(Some(step));
                let forgotten = forget_all(&out);
                interrupt_after(None);
                let is_begun = fs::exists(out.join(FOLDER).join("forgotten.json")).unwrap();
                if next_is_build {
                    build(&settings, &out).unwrap();
                    assert_eq!(is_there(&out), !is_begun, "step {step}");
                    assert_eq!(counted(&out), if is_begun { (0, 0) } else { (3, 8) }, "step {step}");
                }
                forget_all(&out).unwrap();
                assert!(!is_there(&out), "step {step}");
                assert_eq!(counted(&out), (0, 0), "step {step}");
                assert!(forget_all(&out).unwrap().versions.is_empty(), "step {step}");
                if forgotten.is_ok() {
                    break;
                }
                steps += 1;
            }
        }
        assert!(steps > 10, "{steps}");
    }

    #[test]
    fn mem013_bytes_that_are_not_kept_when_they_are_forgotten_are_not_kept_later_either() {
        let place = tempfile::tempdir().unwrap();
        let (mut settings, out) = site(place.path());
        fs::remove_dir_all(Store::of(&out).folder()).unwrap();
        let alone = Forget::new(&out, URI.as_ref(), Which::All).run();
        assert!(matches!(&alone, Err(Error::SharedBytes { others: 1, uri, .. }) if uri.ends_with("b.txt")));
        assert!(!fs::exists(out.join(FOLDER).join("forgotten.json")).unwrap());
        let removed = forget_all(&out).unwrap();
        assert!(removed.versions.is_empty() && (removed.digests.len(), removed.others) == (2, 1));
        // Another choice has the build compare all files with what is kept.
        settings.versions.only = vec!["*".to_owned()];
        build(&settings, &out).unwrap();
        assert!(!is_there(&out));
        assert_eq!(counted(&out), (0, 0));
    }

    #[test]
    fn mem013_a_removal_that_dies_is_completed_by_a_build_that_keeps_no_versions_any_more_too() {
        for step in 0.. {
            let place = tempfile::tempdir().unwrap();
            let (mut settings, out) = site(place.path());
            // So the last text of a JSON file lies there, at which its next patch would begin.
            let text = Store::of(&out).folder().join("0".repeat(64));
            fs::write(&text, "one").unwrap();
            interrupt_after(Some(step));
            let forgotten = forget_all(&out);
            interrupt_after(None);
            settings.versions.keep = Keep::Never;
            build(&settings, &out).unwrap();
            let list = fs::read_to_string(out.join(FOLDER).join("forgotten.json")).ok();
            assert_eq!(text.exists(), list.is_none(), "step {step}");
            assert!(list.is_none_or(|list| list.contains("\"pending\": []")), "step {step}");
            if forgotten.is_ok() {
                assert!(step > 5, "{step}");
                break;
            }
        }
    }

    #[test]
    fn mem010_bytes_that_had_no_room_and_no_sha256_are_not_kept_later_as_far_as_the_file_still_has_them() {
        for is_changed in [false, true] {
            let place = tempfile::tempdir().unwrap();
            let (mut settings, out) = site(place.path());
            let (file, folder) = (settings.directory.join("a.txt"), Store::of(&out).folder().to_owned());
            settings.hash = vec![Algorithm::Md5];
            fs::remove_dir_all(&folder).unwrap();
            fs::write(&folder, "no folder, so there is no room").unwrap();
            fs::write(&file, "late").unwrap();
            assert!(build(&settings, &out).unwrap().unkept.failed > 0);
            fs::remove_file(&folder).unwrap();
            if is_changed {
                fs::write(&file, "later").unwrap();
                build(&settings, &out).unwrap();
            }
            let removal = forget_all(&out).unwrap();
            let last = if is_changed { "later" } else { "late" };
            let last = Digest::of(Algorithm::Sha256, last.as_bytes());
            assert!(removal.digests.len() == 3 && removal.digests.contains(&last), "{is_changed}");
            assert_eq!(removal.without_digest, u64::from(is_changed));
            // Another choice has the build compare all files with what is kept.
            settings.versions.only = vec!["*".to_owned()];
            assert_eq!(build(&settings, &out).unwrap().unkept.failed, 0);
            assert!(!is_there(&out), "{is_changed}");
        }
    }

    #[test]
    fn mem010_an_interrupted_build_is_completed_first_so_its_versions_go_too() {
        for step in 0.. {
            let place = tempfile::tempdir().unwrap();
            let (settings, out) = site(place.path());
            fs::write(settings.directory.join("a.txt"), "sixteen").unwrap();
            interrupt_after(Some(step));
            let built = build(&settings, &out);
            interrupt_after(None);
            forget_all(&out).unwrap();
            build(&settings, &out).unwrap();
            // Without a plan it is a change of the next build.
            let left = kept(&out, URI.as_ref()).unwrap().remove(0).versions;
            let lengths: Vec<_> = left.iter().map(|version| version.bytes).collect();
            assert!(lengths.is_empty() || lengths == [7_u64], "step {step}: {lengths:?}");
            if built.is_ok() {
                assert!(lengths.is_empty());
                break;
            }
        }
    }

    #[test]
    fn nothing_is_forgotten_while_a_dump_packs_it_and_no_dump_begins_before_it_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let (_, out) = site(place.path());
        let is_dump_locked = || DumpLock::try_acquire(&out).unwrap().is_none();
        let is_announced = AtomicBool::new(false);
        let announce = |_: &Removal| {
            assert!(is_dump_locked());
            is_announced.store(true, Ordering::SeqCst);
        };
        let (begins, begun) = mpsc::channel();
        let forget = || {
            begins.send(()).unwrap();
            let forget = Forget::new(&out, URI.as_ref(), Which::All).with_others(true);
            forget.announce(&announce).run().unwrap().unwrap()
        };
        thread::scope(|scope| {
            let removal = OnceCell::new();
            let begin = || {
                let removal = scope.spawn(forget);
                begun.recv().unwrap();
                removal
            };
            let pack = |_| {
                removal.get_or_init(begin);
                assert!(is_dump_locked() && !is_announced.load(Ordering::SeqCst));
            };
            dump(&out, Dump::Resources, &pack).unwrap();
            let removal: Removal = removal.into_inner().unwrap().join().unwrap();
            assert!(removal.versions.len() == 2 && is_announced.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn builds_and_removals_at_once_leave_nothing_of_what_is_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let (settings, out) = site(place.path());
        let one = Digest::of(Algorithm::Sha256, b"one");
        let removals = || {
            for _ in 0..5 {
                forget_all(&out).unwrap();
                assert!(Store::of(&out).open(&one).unwrap().is_none());
            }
        };
        let builds = || {
            for round in 0..5 {
                for text in [round.to_string(), "one".to_owned()] {
                    fs::write(settings.directory.join("a.txt"), text).unwrap();
                    build(&settings, &out).unwrap();
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(removals);
            scope.spawn(removals);
            scope.spawn(builds);
        });
        assert!(Store::of(&out).open(&one).unwrap().is_none());
        forget_all(&out).unwrap();
        assert_eq!(counted(&out), (0, 0));
    }

    #[test]
    fn empty_bytes_are_never_forgotten_since_many_files_have_them() {
        let place = tempfile::tempdir().unwrap();
        let (settings, out) = site(place.path());
        for name in ["empty.txt", "other.txt"] {
            fs::write(settings.directory.join(name), "").unwrap();
        }
        build(&settings, &out).unwrap();
        let uri = "http://example.org/empty.txt";
        let removed = Forget::new(&out, uri.as_ref(), Which::All).run().unwrap().unwrap();
        assert!(removed.versions.is_empty() && removed.digests.is_empty() && removed.empty == 1);
        assert!(removed.published && removed.published_with_same_bytes.is_empty());
        assert_eq!(kept(&out, uri.as_ref()).unwrap()[0].versions.len(), 1);
    }

    #[test]
    fn where_no_site_is_nothing_is_made() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("mistyped");
        let forgotten = Forget::new(&out, URI.as_ref(), Which::All).run();
        assert!(matches!(forgotten, Err(Error::NotBuilt { .. })) && !out.exists());
    }

    #[test]
    fn a_moment_without_a_fraction_means_its_second_unless_a_version_began_then() {
        let moments = |texts: &[&str]| -> BTreeSet<DateTime> {
            let texts = texts.iter().map(|text| format!("2026-03-01T09:30:{text}Z"));
            texts.map(|text| text.parse().unwrap()).collect()
        };
        let all = moments(&["00", "00.25", "01.25", "01.5"]);
        let cases: [(&str, &[&str]); 5] =
            [("00", &["00"]), ("00.25", &["00.25"]), ("01", &["01.25", "01.5"]), ("01.7", &[]), ("02", &[])];
        for (at, expected) in cases {
            let at = Which::At(format!("2026-03-01T09:30:{at}Z").parse().unwrap());
            assert_eq!(at.among(all.iter().copied()), moments(expected), "{at:?}");
        }
        assert_eq!(Which::All.among(all.iter().copied()), all);
    }
}
