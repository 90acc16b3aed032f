//! Takes versions of a resource out for good, as a takedown order or personal data published by mistake ask for (MEM-013, MEM-031).
//!
//! Bytes are kept once for each content, so all versions with the same bytes go together. The journal keeps their lines: they answer 410, and
//! each other version keeps its URI. No later run keeps these bytes again. The resource itself, dumps and patches are not touched.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ffi::OsStr,
    io,
    path::{Component, Path, PathBuf},
};

use resync_core::{datetime::DateTime, digest::Digest, document::Change};
use serde::Serialize;

use crate::{
    error::{Action, Error},
    helpers::serde_text::text,
    publish,
    settings::Settings,
    state::{FOLDER, Lock, State},
    versions::{Forgotten, Journal, Store, Version, retention, sharers, spellings},
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
    /// How many versions of other resources have the same bytes.
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

/// What is taken out. As JSON its names are stable, new ones may be added.
#[derive(Clone, Debug, Serialize)]
pub struct Removed {
    /// The name of the set, in a site of several.
    pub set: Option<String>,
    /// The resource.
    pub uri: String,
    /// Whether the last build published it. It stays as it is.
    pub published: bool,
    /// Whether it was published with bytes that are taken out of the versions.
    pub same_bytes_published: bool,
    /// The versions that were asked for; none where their bytes were not kept any more.
    pub versions: Vec<KeptVersion>,
    /// How many other versions, of this resource and of others, have the same bytes.
    pub others: u64,
    /// The first of these.
    pub shared_with: Vec<VersionName>,
    /// The length of the bytes, each content counted once.
    pub bytes: u64,
}

/// What the set in `out` keeps of a resource, which is named by its URI, or as a file: by its path, or its path below the collection. `None`
/// where no version of it was ever kept. Takes no lock and changes nothing.
pub fn kept(out: &Path, named: &OsStr) -> Result<Option<Kept>, Error> {
    let found = Found::of(out, &State::load(out)?, named)?;
    Ok(found.map(|found| found.kept))
}

/// Takes versions of a resource, which is named as for [`kept`], out of those that the set in `out` keeps. `announce` is called with what goes
/// before anything does. `None` where there never was such a version. Blocks while a build uses the same `out`.
///
/// # Errors
/// [`Error::SharedBytes`] where others go with them and that is not allowed: then nothing is removed. After any other error, what was not
/// done is done by the next build, or by calling this again.
pub fn forget(
    out: &Path,
    named: &OsStr,
    which: Which,
    with_others: bool,
    announce: impl FnOnce(&Removed),
) -> Result<Option<Removed>, Error> {
    let lock = Lock::acquire(out)?;
    publish::complete(&lock)?;
    let mut state = State::load(out)?;
    let Some(found) = Found::of(out, &state, named)? else { return Ok(None) };
    let moments = which.among(found.told.iter().map(|version| version.moment));
    if moments.is_empty() {
        return Ok(None);
    }
    let asked = found.told.iter().filter(|version| moments.contains(&version.moment));
    // Also what is not kept now: a later build tries again what had no room.
    let contents: Vec<Digest> = asked.filter_map(|version| version.digest).collect();
    let removed = Removed::of(found, &moments);
    if let Some(VersionName { uri, moment }) = removed.shared_with.first().filter(|_| !with_others) {
        let (others, uri, moment) = (removed.others, uri.clone(), *moment);
        return Err(Error::SharedBytes { others, uri, moment });
    }
    if !removed.versions.is_empty() {
        announce(&removed);
    }
    Forgotten::add(&lock, contents)?;
    // Also what a killed run has left.
    retention::remove_forgotten(&lock, &mut state)?;
    Ok(Some(removed))
}

/// A resource of which versions were kept.
struct Found {
    kept: Kept,
    /// All its versions, oldest first.
    told: Vec<Version>,
}

impl Found {
    fn of(out: &Path, state: &State, named: &OsStr) -> Result<Option<Self>, Error> {
        let Some(journal) = Journal::of(out, state) else { return Ok(None) };
        let folder = out.join(FOLDER);
        let cannot = Error::cannot(Action::Read, &folder);
        for uri in uris(&state.settings, named) {
            let told: Vec<_> = journal.versions(&uri).collect::<io::Result<_>>().map_err(&cannot)?;
            if let Some(last) = told.last() {
                let set = state.settings.root.as_ref().map(|root| root.name.to_string());
                let published = last.change != Change::Deleted;
                let versions = kept_of(&uri, &told, &journal, &Store::of(out)).map_err(&cannot)?;
                return Ok(Some(Self { kept: Kept { set, uri, published, versions }, told }));
            }
        }
        Ok(None)
    }
}

/// Those whose bytes are there, be they damaged or not.
fn kept_of(uri: &str, told: &[Version], journal: &Journal, store: &Store) -> io::Result<Vec<KeptVersion>> {
    let mut versions = Vec::new();
    for version in told.iter().filter(|version| version.change != Change::Deleted) {
        let Some(digest) = version.digest else { continue };
        if let Some(bytes) = store.length(&digest)? {
            let (moment, others, shared_with) = (version.moment, 0, Vec::new());
            versions.push(KeptVersion { moment, bytes, digest, others, shared_with });
        }
    }
    let contents: HashSet<Digest> = versions.iter().map(|version| version.digest).collect();
    let sharers = sharers(journal, uri, &contents, MOST_NAMED)?;
    for version in &mut versions {
        if let Some(sharers) = sharers.get(&version.digest) {
            let name = |(uri, moment): &(String, DateTime)| VersionName { uri: uri.clone(), moment: *moment };
            version.others = sharers.count;
            version.shared_with = sharers.named.iter().map(name).collect();
        }
    }
    Ok(versions)
}

impl Removed {
    fn of(found: Found, moments: &BTreeSet<DateTime>) -> Self {
        let Found { kept: Kept { set, uri, published, versions }, told } = found;
        let (asked, rest): (Vec<_>, Vec<_>) =
            versions.into_iter().partition(|version| moments.contains(&version.moment));
        let contents: BTreeMap<Digest, &KeptVersion> =
            asked.iter().map(|version| (version.digest, version)).collect();
        let also = rest.iter().filter(|version| contents.contains_key(&version.digest));
        let also = also.map(|version| VersionName { uri: uri.clone(), moment: version.moment });
        let mut shared_with: Vec<_> = also.collect();
        let others = shared_with.len() as u64 + contents.values().map(|version| version.others).sum::<u64>();
        shared_with.extend(contents.values().flat_map(|version| version.shared_with.iter().cloned()));
        let bytes = contents.values().map(|version| version.bytes).sum();
        let present = told.last().and_then(|last| last.digest);
        let same_bytes_published = present.is_some_and(|present| contents.contains_key(&present));
        Self { set, uri, published, same_bytes_published, versions: asked, others, shared_with, bytes }
    }
}

/// The URIs that a resource may have in the lists by what somebody calls it, the likeliest first.
fn uris(settings: &Settings, named: &OsStr) -> Vec<String> {
    let as_uri = named.to_str().into_iter().flat_map(spellings);
    let paths = paths_below(&settings.directory, Path::new(named));
    as_uri.chain(paths.iter().map(|path| settings.base_url.join(path))).collect()
}

/// The paths below the collection that a path may mean: one from the present folder, or one from the collection.
fn paths_below(collection: &Path, named: &Path) -> Vec<PathBuf> {
    // The records of a program are in no folder.
    let absolute = std::path::absolute(named).ok().filter(|_| collection.is_absolute());
    // The file may be gone, and a folder above it a link.
    let real = absolute.as_deref().and_then(|path| {
        let real = |above: &Path| Some(above.canonicalize().ok()?.join(path.strip_prefix(above).ok()?));
        path.ancestors().skip(1).find_map(real)
    });
    let below = |path: &PathBuf| path.strip_prefix(collection).ok().map(Path::to_owned);
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    let from_collection = named.components().all(is_plain).then(|| named.to_owned());
    let mut paths: Vec<_> = [&absolute, &real].into_iter().flatten().filter_map(below).collect();
    paths.extend(from_collection);
    paths
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        BaseUrl, build,
        helpers::files::tests::interrupt_after,
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

    fn forget_all(out: &Path) -> Result<Removed, Error> {
        Ok(forget(out, URI.as_ref(), Which::All, true, |_| ())?.unwrap())
    }

    fn is_there(out: &Path) -> bool {
        !kept(out, URI.as_ref()).unwrap().unwrap().versions.is_empty()
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
        assert!(forget_all(&out).unwrap().versions.is_empty());
        // Another choice has the build compare all files with what is kept.
        settings.versions.only = vec!["*".to_owned()];
        build(&settings, &out).unwrap();
        assert!(!is_there(&out));
        assert_eq!(counted(&out), (0, 0));
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
            let left = kept(&out, URI.as_ref()).unwrap().unwrap().versions;
            let lengths: Vec<_> = left.iter().map(|version| version.bytes).collect();
            assert!(lengths.is_empty() || lengths == [7_u64], "step {step}: {lengths:?}");
            if built.is_ok() {
                assert!(lengths.is_empty());
                break;
            }
        }
    }

    #[test]
    fn a_file_is_named_by_its_path_from_here_or_from_the_collection_also_when_it_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let whole = place.path().canonicalize().unwrap();
        let collection = whole.join("papers");
        fs::create_dir_all(collection.join("sub")).unwrap();
        let means = |named: &Path, path: &str| paths_below(&collection, named).contains(&PathBuf::from(path));
        assert!(means(&collection.join("gone/a.pdf"), "gone/a.pdf"));
        assert!(means(&collection.join("sub/../a.pdf"), "a.pdf"));
        assert!(means(Path::new("sub/a.pdf"), "sub/a.pdf"));
        assert!(paths_below(&collection, &whole.join("other/a.pdf")).is_empty());
        assert!(paths_below(&collection, Path::new("../a.pdf")).is_empty());
        assert_eq!(paths_below(Path::new(""), Path::new("a.pdf")), [Path::new("a.pdf")]);
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
