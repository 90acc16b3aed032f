//! The bytes of versions: one file for each content, named by its SHA-256 (MEM-010).
//!
//! Where the file system can, a file shares its blocks with the resource (a reflink). A hard link would share the file itself: whoever
//! writes into the resource in place (an editor, `rsync --inplace`, a log) would change the version under its digest, so there are none.
//!
//! The files lie in a folder for each first byte of their digests. Beside them lie those of [`crate::inventory`] for JSON Patches.

use std::{
    collections::{BTreeSet, HashSet},
    fs::{self, File, Metadata},
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use resync_common::{space::Space, words::Size};
use resync_core::{
    build::{Item, OpenFolder},
    digest::{Agreement, Algorithm, Digest, Hasher},
    durable::{self, folder_of},
};
use tempfile::{NamedTempFile, TempPath};

use crate::{helpers::files, state::FOLDER};

/// Files that are synced and get their names together.
const TOGETHER: usize = 1024;
/// Bytes that are copied at once.
const BUFFER: usize = 128 * 1024;
/// Versions leave so many bytes of a disk free, or this part of a small one: lists, plan and state are to be written, too.
const RESERVE: u64 = 1 << 30;
const RESERVED_PART: u64 = 50;

/// The bytes of a resource as it is now.
pub(crate) enum Content {
    /// A file, whose blocks may be shared.
    File(File),
    /// Anything else.
    Other(Box<dyn Read>),
}

/// Where the bytes are.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    /// Of the set in `out`.
    pub(crate) fn of(out: &Path) -> Self {
        Self { folder: out.join(FOLDER).join("versions") }
    }

    /// The file of a content.
    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(name_of(digest))
    }

    /// Opens a content, if it is there.
    pub(crate) fn open(&self, digest: &Digest) -> io::Result<Option<File>> {
        files::if_there(File::open(self.path(digest)))
    }

    /// The length of the file of a content, whatever its bytes are now; `None` where there is none.
    pub(crate) fn length(&self, digest: &Digest) -> io::Result<Option<u64>> {
        let there = files::if_there(fs::metadata(self.path(digest)))?;
        Ok(there.filter(Metadata::is_file).map(|there| there.len()))
    }

    /// The files whose bytes are not those that their names tell.
    pub(crate) fn damaged(&self) -> io::Result<Vec<PathBuf>> {
        let mut damaged = Vec::new();
        for folder in files::folders_in(&self.folder)? {
            for entry in files::if_there(fs::read_dir(&folder))?.into_iter().flatten() {
                let path = entry?.path();
                // Retention may remove it meanwhile. Bytes that cannot be read are no better than others.
                if let Some(file) = files::if_there(File::open(&path))?
                    && !files::digest_of(file).is_ok_and(|digest| self.path(&digest) == path)
                {
                    damaged.push(path);
                }
            }
        }
        damaged.sort();
        Ok(damaged)
    }

    /// The folder of all of them.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folders of those whose digests begin with one of these 16 digits.
    pub(super) fn folders(&self, first: u8) -> impl Iterator<Item = PathBuf> + use<'_> {
        (0..16_u8).map(move |second| self.folder.join(format!("{first:x}{second:x}")))
    }

    /// Removes all of them.
    pub(super) fn remove_all(&self) -> io::Result<()> {
        (0..16).flat_map(|first| self.folders(first)).try_for_each(|folder| files::remove_folder(&folder))
    }
}

/// Contents that come in during a run. They have their names, and are on the disk, after [`finish`](Self::finish).
pub(super) struct Incoming {
    store: Store,
    /// The folder of all: in it each change looks for its content.
    there: OpenFolder,
    pending: Vec<(TempPath, Digest, u64)>,
    known: HashSet<Digest>,
    /// Those that nobody keeps any more.
    pub(super) forgotten: HashSet<Digest>,
    unsynced: BTreeSet<PathBuf>,
    /// When a run told last what it has seen: what a folder had then is on the disk. The state says nothing of that: others save it, too.
    synced: Option<SystemTime>,
    is_open: bool,
    /// The length of the new ones together.
    pub(super) bytes: u64,
    /// How many bytes were copied for them, since the file system did not share them.
    pub(super) copied: u64,
}

impl Incoming {
    /// For a store with this newest file of the journal, if there is any, and without what is forgotten.
    pub(super) fn new(store: Store, newest: Option<&Path>, forgotten: HashSet<Digest>) -> Self {
        let (pending, known, unsynced) = (Vec::new(), HashSet::new(), BTreeSet::new());
        let synced = newest.and_then(|path| fs::metadata(path).and_then(|file| file.modified()).ok());
        let there = OpenFolder::open(&store.folder);
        let (is_open, bytes, copied) = (false, 0, 0);
        Self { store, there, pending, known, forgotten, unsynced, synced, is_open, bytes, copied }
    }

    /// Whether a content is there, or on its way. It is not read: a file with its name and, where that is told, its length is trusted.
    pub(super) fn has(&self, digest: &Digest, length: Option<u64>) -> bool {
        if self.known.contains(digest) {
            return true;
        }
        let there = self.there.stamp(Path::new(&name_of(digest)));
        there.is_ok_and(|there| {
            there.is_some_and(|there| length.is_none_or(|length| length == there.length()))
        })
    }

    /// Takes a content over, if it has the length and the digests of the item; returns its SHA-256. One that is forgotten is not kept. What
    /// would fill the disk is refused.
    pub(super) fn take(&mut self, content: Content, item: &Item) -> io::Result<Option<Digest>> {
        self.open()?;
        let mut draft = durable::temporary(&self.store.folder)?;
        let algorithms = item.hashes.iter().map(Digest::algorithm).chain([Algorithm::Sha256]);
        let mut hasher = Hasher::new(algorithms);
        let (length, copied) = fill(&mut draft, content, item.length, &mut hasher)?;
        let hashes = hasher.finish();
        let is_it =
            item.length.is_none_or(|told| told == length) && item.hashes.compare(&hashes) == Agreement::Same;
        let Some(digest) = hashes.get(Algorithm::Sha256).copied().filter(|_| is_it) else { return Ok(None) };
        if !self.forgotten.contains(&digest) && !self.has(&digest, Some(length)) {
            self.pending.push((draft.into_temp_path(), digest, length));
            self.known.insert(digest);
            self.bytes += length;
            self.copied += copied;
        }
        Ok(Some(digest))
    }

    /// Whether so many wait that they are to be brought to the disk.
    pub(super) fn is_crowded(&self) -> bool {
        self.pending.len() >= TOGETHER
    }

    /// Brings those that wait to the disk, and gives them their names. With an error comes how many have none.
    pub(super) fn flush(&mut self) -> Result<(), (u64, io::Error)> {
        self.known.clear();
        let pending = std::mem::take(&mut self.pending);
        let files: Vec<_> = pending.iter().map(|(draft, ..)| draft.to_path_buf()).collect();
        let mut lost: Vec<_> = pending.iter().rev().map(|(.., length)| *length).collect();
        let mut placed = durable::sync_many(&files, &BTreeSet::new(), &self.store.folder);
        for (draft, digest, _) in pending {
            placed = placed.and_then(|()| self.place(draft, &digest));
            if placed.is_err() {
                break;
            }
            lost.pop();
        }
        placed.map_err(|error| {
            self.bytes -= lost.iter().sum::<u64>();
            (lost.len() as u64, error)
        })
    }

    /// Makes their names durable, and those that a killed run may have left for others to sync: after a run told last what it has seen. Where
    /// there are none it syncs nothing.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.unsynced.extend(changed_since(&self.store.folder, self.synced)?);
        durable::sync_many(&[], &std::mem::take(&mut self.unsynced), &self.store.folder)
    }

    fn place(&mut self, draft: TempPath, digest: &Digest) -> io::Result<()> {
        files::step()?;
        let path = self.store.path(digest);
        let folder = folder_of(&path);
        if self.unsynced.insert(folder.to_owned()) {
            if !folder.is_dir() {
                fs::create_dir(folder)?;
            }
            self.unsynced.insert(self.store.folder.clone());
        }
        draft.persist(&path).map_err(|error| error.error)
    }

    /// Makes the folder, and removes what a killed run left.
    fn open(&mut self) -> io::Result<()> {
        if !self.is_open {
            durable::make_folder(&self.store.folder)?;
            durable::sweep(&self.store.folder)?;
            self.is_open = true;
        }
        Ok(())
    }
}

/// The folders of contents that changed at this moment or later, with that of all; every one where there was no such moment.
fn changed_since(all: &Path, moment: Option<SystemTime>) -> io::Result<Vec<PathBuf>> {
    // A run makes its drafts in the folder of all: as long as that is older, nothing got a name in another one.
    if fs::metadata(all).and_then(|all| all.modified()).is_ok_and(|modified| Some(modified) < moment) {
        return Ok(Vec::new());
    }
    let folders = match fs::read_dir(all) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        folders => folders?,
    };
    let mut changed = Vec::new();
    for folder in folders {
        let folder = folder?;
        if folder.file_type()?.is_dir() && Some(folder.metadata()?.modified()?) >= moment {
            changed.push(folder.path());
        }
    }
    if !changed.is_empty() {
        changed.push(all.to_owned());
    }
    Ok(changed)
}

/// The path of a content below the folder of all.
fn name_of(digest: &Digest) -> String {
    let text = digest.to_string();
    let name = text.rsplit(':').next().unwrap_or_default();
    [name.get(..2).unwrap_or_default(), name].join("/")
}

/// Writes a content, of which this length is told, into a new file; returns its length, and how much was copied.
fn fill(
    draft: &mut NamedTempFile,
    content: Content,
    told: Option<u64>,
    hasher: &mut Hasher,
) -> io::Result<(u64, u64)> {
    let expected = match &content {
        Content::File(file) => file.metadata()?.len(),
        Content::Other(_) => told.unwrap_or_default(),
    };
    let content: Box<dyn Read> = match content {
        Content::File(file) if durable::share_bytes(&file, draft.as_file()) => {
            return Ok((io::copy(&mut BufReader::with_capacity(BUFFER, draft.as_file()), hasher)?, 0));
        }
        Content::File(file) => Box::new(file),
        Content::Other(content) => content,
    };
    if let Ok(space) = Space::of(folder_of(draft.path())) {
        has_room(space, expected)?;
    }
    let copied = io::copy(&mut BufReader::with_capacity(BUFFER, content), &mut Both { draft, hasher })?;
    Ok((copied, copied))
}

/// Whether a disk can take so many bytes and keep its reserve. What is too long for that need not keep shorter ones out.
fn has_room(disk: Space, length: u64) -> io::Result<()> {
    let reserve = RESERVE.min(disk.size / RESERVED_PART);
    let kind = match disk.free.checked_sub(reserve) {
        None => io::ErrorKind::StorageFull,
        Some(left) if left < length => io::ErrorKind::FileTooLarge,
        Some(_) => return Ok(()),
    };
    let (free, reserve) = (Size(disk.free), Size(reserve));
    Err(io::Error::new(
        kind,
        format!("there is no room: {free} are free, and versions leave {reserve} of them"),
    ))
}

/// Writes into a file and digests what was written.
struct Both<'a> {
    draft: &'a mut NamedTempFile,
    hasher: &'a mut Hasher,
}

impl Write for Both<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.draft.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.draft.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A store in which the text `one` lies, its item and its digest.
    fn stored(out: &Path) -> (Store, Item, Digest) {
        let (store, item) = (Store::of(out), Item::new("http://e.x/").content(b"one"));
        let mut incoming = Incoming::new(store.clone(), None, HashSet::new());
        let digest = take(&mut incoming, "one", &item).unwrap();
        incoming.flush().unwrap();
        incoming.finish().unwrap();
        (store, item, digest)
    }

    fn take(incoming: &mut Incoming, text: &str, item: &Item) -> Option<Digest> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let content = Content::Other(Box::new(io::Cursor::new(text.to_owned())));
        let taken = incoming.take(content, item).unwrap();
        assert_eq!(
            incoming.take(Content::File(file), item).unwrap(),
            taken,
            "a file is taken as a stream is"
        );
        taken
    }

    #[test]
    fn mem010_only_bytes_that_have_the_told_digests_come_in_and_each_content_once() {
        let out = tempfile::tempdir().unwrap();
        let store = Store::of(out.path());
        let mut incoming = Incoming::new(store.clone(), None, HashSet::new());
        let item = |text: &str| Item::new("http://e.x/").content(text.as_bytes());
        let digest = Digest::of(Algorithm::Sha256, b"one");
        assert_eq!(take(&mut incoming, "one", &item("one")), Some(digest));
        assert_eq!(take(&mut incoming, "two", &item("one")), None);
        assert_eq!(take(&mut incoming, "one", &Item { length: Some(4), ..item("one") }), None);
        assert_eq!(take(&mut incoming, "one", &Item::new("http://e.x/")), None, "nothing is told of it");
        let md5 = Item { hashes: Digest::of(Algorithm::Md5, b"two").into(), ..item("two") };
        assert_eq!(take(&mut incoming, "two", &md5), Some(Digest::of(Algorithm::Sha256, b"two")));
        assert!(
            incoming.has(&digest, None) && store.open(&digest).unwrap().is_none(),
            "it waits for its name"
        );
        incoming.flush().unwrap();
        incoming.finish().unwrap();
        assert!(incoming.has(&digest, None) && (incoming.bytes, incoming.copied) == (6, 6));
        assert_eq!(take(&mut incoming, "one", &item("one")), Some(digest));
        incoming.flush().unwrap();
        assert_eq!(incoming.bytes, 6);
        assert_eq!(fs::read(store.path(&digest)).unwrap(), b"one");
        let mut left = fs::read_dir(store.folder()).unwrap().map(|entry| entry.unwrap().path());
        assert!(left.all(|path| path.is_dir()), "no draft is left");
        store.remove_all().unwrap();
        assert!(store.open(&digest).unwrap().is_none());
    }

    #[test]
    fn mem010_names_are_synced_again_only_where_no_run_has_told_of_versions_since() {
        let out = tempfile::tempdir().unwrap();
        let (store, _, digest) = stored(out.path());
        let folder = folder_of(&store.path(&digest)).to_owned();
        let all = vec![folder.clone(), store.folder().to_owned()];
        let named = fs::metadata(&folder).unwrap().modified().unwrap();
        let second = Duration::from_secs(1);
        let to_sync = |synced| changed_since(store.folder(), synced).unwrap();
        for synced in [None, Some(named - second), Some(named)] {
            assert_eq!(to_sync(synced), all, "{synced:?}");
        }
        assert!(to_sync(Some(named + second)).is_empty());
        // As a removal changes it, which leaves no time in the folder of all.
        File::open(&folder).unwrap().set_modified(named + 2 * second).unwrap();
        assert!(to_sync(Some(named + second)).is_empty(), "nothing got a name");
        assert!(changed_since(&out.path().join("none"), None).unwrap().is_empty());
        let newest = out.path().join("versions-2.jsonl");
        let synced = || Incoming::new(store.clone(), Some(newest.as_path()), HashSet::new()).synced;
        assert_eq!(synced(), None, "there is none");
        File::create(&newest).unwrap().set_modified(named + second).unwrap();
        assert_eq!(synced(), Some(named + second));
    }

    #[test]
    fn mem010_a_file_of_another_length_is_not_trusted_and_the_content_takes_its_place() {
        let out = tempfile::tempdir().unwrap();
        let (store, item, digest) = stored(out.path());
        for wrong in ["", "on", "one "] {
            fs::write(store.path(&digest), wrong).unwrap();
            let mut incoming = Incoming::new(store.clone(), None, HashSet::new());
            assert!(!incoming.has(&digest, Some(3)), "{wrong:?}");
            assert_eq!(take(&mut incoming, "one", &item), Some(digest));
            incoming.flush().unwrap();
            incoming.finish().unwrap();
            assert_eq!(fs::read(store.path(&digest)).unwrap(), b"one");
        }
    }

    #[test]
    fn mem014_what_would_leave_no_room_for_lists_and_state_is_refused_and_shorter_ones_are_not() {
        let refused = |free: u64, size: u64, length: u64| {
            has_room(Space { free, size }, length).err().map(|error| error.kind())
        };
        let too_large = Some(io::ErrorKind::FileTooLarge);
        assert_eq!([8, 9].map(|length| refused(10, 100, length)), [None, too_large]);
        assert_eq!(refused(1, 100, 0), Some(io::ErrorKind::StorageFull));
        assert_eq!([5, 6].map(|length| refused(RESERVE + 5, 1 << 50, length)), [None, too_large]);

        let out = tempfile::tempdir().unwrap();
        let store = Store::of(out.path());
        let mut incoming = Incoming::new(store.clone(), None, HashSet::new());
        let endless = Item { length: Some(u64::MAX), ..Item::new("http://e.x/") };
        let content = Content::Other(Box::new(io::empty()));
        assert!(incoming.take(content, &endless).is_err(), "before a byte is copied");
        assert_eq!(fs::read_dir(store.folder()).unwrap().count(), 0, "no draft is left");
        assert!(take(&mut incoming, "one", &Item::new("http://e.x/").content(b"one")).is_some());
    }

    #[test]
    fn mem014_what_cannot_get_its_name_is_counted_and_does_not_count_as_kept() {
        let out = tempfile::tempdir().unwrap();
        let store = Store::of(out.path());
        let mut incoming = Incoming::new(store.clone(), None, HashSet::new());
        for text in ["one", "three"] {
            let item = Item::new("http://e.x/").content(text.as_bytes());
            take(&mut incoming, text, &item).unwrap();
        }
        fs::remove_dir_all(store.folder()).unwrap();
        let (lost, _) = incoming.flush().unwrap_err();
        assert_eq!((lost, incoming.bytes), (2, 0));
    }
}
