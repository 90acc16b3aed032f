//! A disk that can lose power and fail: a library under the hub keeps apart what is durable (`disk.c`), and from that a test
//! builds the folder that would be there after a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::ops::AddAssign;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use rustix::io::Errno;
use tempfile::TempDir;
use walkdir::WalkDir;

use super::preload;

/// What the disk forgets or keeps as one, unless it tears it.
const PAGE: usize = 4_096;
/// Microseconds that a sync takes at most.
const SYNC_TAKES: u32 = 6_000;
/// Where that stands.
const SYNC_TAKES_AT: u64 = 16;
/// Where the library counts what has failed.
const FAILURES_AT: u64 = 20;
/// Where it is told to hold syncs back, and where it counts those that wait.
const HELD_AT: u64 = 24;
const WAITING_AT: u64 = 28;
/// Where it is told which step to meet.
const STEP_AT: u64 = 32;
/// Where it counts steps, and those that were met, and tells of the last.
const STEPS_AT: u64 = 48;
const MET_AT: u64 = 52;
const TOLD_AT: u64 = 120;
/// How long a part of a path may be there, and what is told; `disk.c` says the same.
const ONLY: usize = 64;
const TOLD: usize = 512;
/// What it never tears.
const SECTOR: usize = 512;
/// How much of what was not synced a power cut may leave; drawn anew for each.
const LEFT: [f64; 5] = [0.0, 0.1, 0.5, 0.9, 1.0];

/// The disk under a folder.
#[derive(Debug)]
pub struct Disk {
    data: PathBuf,
    /// Library, platter and control.
    folder: TempDir,
    control: File,
    /// As long as they are open, no new file gets the number of an old one.
    held: Vec<File>,
}

/// How often the disk fails from now on, in 65,536.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Writes that fail, or are cut short.
    pub writes: u16,
    /// By which error.
    pub error: Errno,
    /// Syncs that fail; what they were about will not reach the disk by a later one.
    pub syncs: u16,
}

impl Faults {
    /// A disk in order.
    pub const NONE: Self = Self { writes: 0, error: Errno::IO, syncs: 0 };
}

/// What a program does with its folder, as far as the C library sees it.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Kind {
    /// Opens a file or a folder, or makes a file.
    Open = 1,
    /// Reads from a file.
    Read = 2,
    /// Writes to a file.
    Write = 4,
    /// Syncs a file or a folder.
    Sync = 8,
    /// Renames something; `tempfile` does that unseen.
    Rename = 16,
    /// Removes a name.
    Unlink = 32,
    /// Makes a folder.
    Mkdir = 64,
    /// Cuts or lengthens a file.
    Truncate = 128,
    /// Looks whether a name is there, and what it is.
    Look = 256,
}

impl Kind {
    /// Those that change something: between two of them there is one state only.
    pub const CHANGES: &[Self] =
        &[Self::Open, Self::Write, Self::Sync, Self::Rename, Self::Unlink, Self::Mkdir, Self::Truncate];
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Open,
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Rename,
        Self::Unlink,
        Self::Mkdir,
        Self::Truncate,
        Self::Look,
    ];
}

/// What happens at a step.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// It fails, this once.
    Fails(Errno),
    /// It fails, and so does each one after it, until the steps are forgotten.
    FailsFrom(Errno),
    /// It is done, and the process hears of an error.
    IsDoneAndFails(Errno),
    /// The process dies, and the step is not done.
    DiesBefore,
    /// The process dies when the step is done, and does not hear of it.
    DiesAfter,
}

/// One step of a program, to be met once.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Steps of other kinds are not counted.
    pub kinds: &'static [Kind],
    /// Nor are those at a path without this in it.
    pub only: &'static str,
    /// Which of them, beginning with 1.
    pub number: u32,
    /// What happens at it.
    pub event: Event,
}

/// What a power cut took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    /// Pages that were written and not synced.
    pub pages: usize,
    /// Pages of which a part was lost.
    pub torn: usize,
    /// Names that were made, replaced or removed, and whose folder was not synced.
    pub names: usize,
}

impl AddAssign for Loss {
    fn add_assign(&mut self, more: Self) {
        self.pages += more.pages;
        self.torn += more.torn;
        self.names += more.names;
    }
}

/// How much survives one power cut.
struct Cut<'a> {
    rng: &'a mut Rng,
    pages: f64,
    names: f64,
    loss: Loss,
}

/// A name in a folder stands for this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    number: u64,
    folder: bool,
}

impl Disk {
    /// The disk under `data`; whatever is there now is durable.
    ///
    /// # Panics
    /// When the library cannot be built: the system has no C compiler.
    pub fn under(data: &Path, seed: u32) -> Self {
        let folder = tempfile::tempdir_in(data.parent().expect("a data folder is in a folder"))
            .expect("a temporary folder can be made");
        preload::build("disk", include_str!("disk.c"), folder.path());
        let mut shared = File::options();
        let control = shared.read(true).write(true).create_new(true).open(folder.path().join("control"));
        let control = control.expect("a file can be made");
        let words = [0, 0, 0, seed, SYNC_TAKES, 0, 0, 0].map(u32::to_ne_bytes).concat();
        control.write_all_at(&words, 0).expect("a file can be written");
        control.set_len(TOLD_AT + TOLD as u64).expect("a file can be written");
        let mut disk =
            Self { data: data.canonicalize().expect("it is there"), folder, control, held: Vec::new() };
        disk.assume_durable();
        disk
    }

    /// The environment of a process that lives on this disk.
    pub fn environment(&self) -> [(String, String); 4] {
        let inside = |name| self.folder.path().join(name).display().to_string();
        [
            ("LD_PRELOAD".to_owned(), inside("disk.so")),
            ("RESYNC_DISK_FOLDER".to_owned(), self.data.display().to_string()),
            ("RESYNC_DISK_PLATTER".to_owned(), inside("platter")),
            ("RESYNC_DISK_CONTROL".to_owned(), inside("control")),
        ]
    }

    /// From now on the disk fails so often.
    ///
    /// # Panics
    /// When the file for it cannot be written.
    pub fn fail(&self, faults: Faults) {
        let error = u32::try_from(faults.error.raw_os_error()).expect("numbers of errors are positive");
        let words = [faults.writes.into(), error, faults.syncs.into()];
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        self.control.write_all_at(&bytes, 0).expect("a file can be written");
    }

    /// Writes and syncs that have failed so far.
    ///
    /// # Panics
    /// When the file for it cannot be read.
    pub fn failures(&self) -> u32 {
        self.word(FAILURES_AT)
    }

    /// From now on no sync ends, or all do again.
    ///
    /// # Panics
    /// When the file for it cannot be written.
    pub fn hold(&self, held: bool) {
        self.control.write_all_at(&u32::from(held).to_ne_bytes(), HELD_AT).expect("a file can be written");
    }

    /// Whether a sync waits for that.
    ///
    /// # Panics
    /// When the file for it cannot be read.
    pub fn is_waited_for(&self) -> bool {
        self.word(WAITING_AT) > 0
    }

    /// From now on steps are counted, from 1, until this one is met; it is forgotten at the next call only.
    ///
    /// # Panics
    /// When the file for it cannot be written, or the part of the path is too long.
    pub fn meet(&self, step: Step) {
        let (event, error) = match step.event {
            Event::Fails(error) => (0, error.raw_os_error()),
            Event::DiesBefore => (1, 0),
            Event::DiesAfter => (2, 0),
            Event::FailsFrom(error) => (3, error.raw_os_error()),
            Event::IsDoneAndFails(error) => (4, error.raw_os_error()),
        };
        let error = u32::try_from(error).expect("numbers of errors are positive");
        let kinds = step.kinds.iter().fold(0, |kinds, kind| kinds | *kind as u32);
        assert!(step.only.len() < ONLY, "{}", step.only);
        self.forget_steps();
        let mut bytes = [step.number, event, error, 0, 0].map(u32::to_ne_bytes).concat();
        bytes.extend_from_slice(step.only.as_bytes());
        bytes.resize(bytes.len() + ONLY - step.only.len(), 0);
        self.control.write_all_at(&bytes, STEP_AT + 4).expect("a file can be written");
        self.control.write_all_at(&kinds.to_ne_bytes(), STEP_AT).expect("a file can be written");
    }

    /// From now on no step is counted.
    ///
    /// # Panics
    /// When the file for it cannot be written.
    pub fn forget_steps(&self) {
        self.control.write_all_at(&[0; 4], STEP_AT).expect("a file can be written");
    }

    /// How many steps there were since then.
    ///
    /// # Panics
    /// When the file for it cannot be read.
    pub fn steps(&self) -> u32 {
        self.word(STEPS_AT)
    }

    /// Which step was met, if it was.
    ///
    /// # Panics
    /// When the file for it cannot be read.
    pub fn met(&self) -> Option<String> {
        let mut told = [0; TOLD];
        self.control.read_exact_at(&mut told, TOLD_AT).expect("a file can be read");
        let told = told.split(|byte| *byte == 0).next().unwrap_or_default();
        (self.word(MET_AT) > 0).then(|| String::from_utf8_lossy(told).into_owned())
    }

    fn word(&self, at: u64) -> u32 {
        let mut word = [0; 4];
        self.control.read_exact_at(&mut word, at).expect("a file can be read");
        u32::from_ne_bytes(word)
    }

    /// The folder as it is after a power cut, once no process lives on it any more.
    ///
    /// # Panics
    /// When files cannot be read or written.
    pub fn cut_power(&mut self, rng: &mut Rng) -> Loss {
        let (pages, names) = (rng.choice(LEFT).unwrap_or(0.0), rng.choice(LEFT).unwrap_or(0.0));
        self.leave(rng, pages, names)
    }

    /// The same, with nothing left of what was not synced.
    ///
    /// # Panics
    /// As [`Disk::cut_power`].
    pub fn cut_power_at_once(&mut self, rng: &mut Rng) -> Loss {
        self.leave(rng, 0.0, 0.0)
    }

    fn leave(&mut self, rng: &mut Rng, pages: f64, names: f64) -> Loss {
        let mut cut = Cut { rng, pages, names, loss: Loss::default() };
        let (before, after) = (self.folder.path().join("before"), self.folder.path().join("after"));
        let live = paths(&self.data).expect("a folder can be read");
        let root = number(&self.data).expect("the folder is there");
        self.rebuild_folder(root, &live, &after, &mut cut).expect("a folder can be built");
        fs::rename(&self.data, &before).expect("a folder can be renamed");
        fs::rename(&after, &self.data).expect("a folder can be renamed");
        fs::remove_dir_all(&before).expect("a folder can be removed");
        let loss = cut.loss;
        self.assume_durable();
        loss
    }

    /// Whatever is in the folder now is durable, as if it had always been there. No process lives on it meanwhile.
    ///
    /// # Panics
    /// When files cannot be read or written.
    pub fn assume_durable(&mut self) {
        self.settle().expect("a folder can be copied");
    }

    /// Between two programs. What the first removed is gone for good, since the number of a file may be given again; what is there keeps its own.
    ///
    /// # Errors
    /// When files cannot be read or written.
    pub fn pass_on(&mut self) -> io::Result<()> {
        let live = paths(&self.data)?;
        for entry in fs::read_dir(self.platter(""))? {
            let path = entry?.path();
            let is_live = |number: &str| number.parse().is_ok_and(|number: u64| live.contains_key(&number));
            if path.file_stem().and_then(|name| name.to_str()).is_none_or(|name| !is_live(name)) {
                fs::remove_file(&path)?;
            } else if path.extension().is_some() {
                let is_live = |line: &&str| is_live(line.split(' ').next().unwrap_or_default());
                let text = fs::read_to_string(&path)?;
                fs::write(
                    &path,
                    text.lines().filter(is_live).flat_map(|line| [line, "\n"]).collect::<String>(),
                )?;
            }
        }
        for path in live.values() {
            self.held.push(File::open(path)?);
        }
        Ok(())
    }

    /// Syncs take no time from now on.
    ///
    /// # Panics
    /// When the file for it cannot be written.
    pub fn sync_at_once(&self) {
        self.control.write_all_at(&0_u32.to_ne_bytes(), SYNC_TAKES_AT).expect("a file can be written");
    }

    fn platter(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join("platter").join(name)
    }

    /// Whatever is in the folder is durable.
    ///
    /// # Errors
    /// When files cannot be read or copied.
    pub fn settle(&mut self) -> io::Result<()> {
        let platter = self.platter("");
        if platter.exists() {
            fs::remove_dir_all(&platter)?;
        }
        fs::create_dir(&platter)?;
        self.held.clear();
        for (number, path) in paths(&self.data)? {
            if path.is_dir() {
                let line = |(name, node): (String, Node)| {
                    format!("{} {} {name}\n", node.number, if node.folder { 'd' } else { 'f' })
                };
                let text: String = names(&path)?.into_iter().map(line).collect();
                fs::write(self.platter(format!("{number}.names")), text)?;
            } else {
                copy(&path, &self.platter(number.to_string()))?;
            }
            self.held.push(File::open(&path)?);
        }
        Ok(())
    }

    fn rebuild_folder(
        &self,
        number: u64,
        live: &BTreeMap<u64, PathBuf>,
        to: &Path,
        cut: &mut Cut<'_>,
    ) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(to)?;
        let durable = self.durable_names(number)?;
        let newest = live.get(&number).map_or_else(|| Ok(BTreeMap::new()), |path| names(path))?;
        for name in durable.keys().chain(newest.keys()).collect::<BTreeSet<_>>() {
            let (old, new) = (durable.get(name), newest.get(name));
            let Some(node) = cut.name(old, new) else { continue };
            let to = to.join(name);
            if node.folder {
                self.rebuild_folder(node.number, live, &to, cut)?;
            } else {
                let durable = self.platter(node.number.to_string());
                rebuild_file(&durable, live.get(&node.number), &to, cut)?;
            }
        }
        Ok(())
    }

    fn durable_names(&self, number: u64) -> io::Result<BTreeMap<String, Node>> {
        let path = self.platter(format!("{number}.names"));
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        let parsed = text.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ' ');
            let (number, kind, name) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
            Some((name.to_owned(), Node { number, folder: kind == "d" }))
        });
        Ok(parsed.collect())
    }
}

impl Cut<'_> {
    fn name<'n>(&mut self, old: Option<&'n Node>, new: Option<&'n Node>) -> Option<&'n Node> {
        if old == new || self.rng.f64() < self.names {
            return new;
        }
        self.loss.names += 1;
        old
    }

    fn length(&mut self, old: u64, new: u64) -> u64 {
        match self.rng.u8(0..4) {
            0 => old,
            1 => self.rng.u64(old.min(new)..=old.max(new)),
            _ => new,
        }
    }

    fn page(&mut self, old: &[u8], new: &[u8]) -> Vec<u8> {
        if old == new || self.rng.f64() < self.pages {
            return new.to_vec();
        }
        if self.rng.u8(0..4) > 0 {
            self.loss.pages += 1;
            return old.to_vec();
        }
        self.loss.torn += 1;
        let sectors = old.chunks(SECTOR).zip(new.chunks(SECTOR));
        sectors.flat_map(|(old, new)| if self.rng.bool() { old } else { new }).copied().collect()
    }
}

fn rebuild_file(durable: &Path, live: Option<&PathBuf>, to: &Path, cut: &mut Cut<'_>) -> io::Result<()> {
    let durable = durable.exists().then(|| File::open(durable)).transpose()?;
    // What is not in any folder any more keeps its durable bytes, in case that its name comes back.
    let live = live.map(File::open).transpose()?;
    let size =
        |file: &Option<File>| file.as_ref().map_or(Ok(0), |file| file.metadata().map(|found| found.len()));
    let old_size = size(&durable)?;
    let new_size = if live.is_some() { size(&live)? } else { old_size };
    let length = if old_size == new_size { new_size } else { cut.length(old_size, new_size) };
    let out = File::create(to)?;
    out.set_permissions(Permissions::from_mode(0o600))?;
    out.set_len(length)?;
    for at in (0..length).step_by(PAGE) {
        let old = read_page(durable.as_ref(), at)?;
        let new = if live.is_some() { read_page(live.as_ref(), at)? } else { old.clone() };
        let page = cut.page(&old, &new);
        let wanted = usize::try_from(length - at).unwrap_or(PAGE).min(PAGE);
        if page.iter().any(|byte| *byte != 0) {
            out.write_all_at(&page[..wanted], at)?;
        }
    }
    Ok(())
}

/// A page of a file; what is beyond its end reads as zeros.
fn read_page(file: Option<&File>, at: u64) -> io::Result<Vec<u8>> {
    let mut page = vec![0; PAGE];
    let mut filled = 0;
    while let Some(file) = file.filter(|_| filled < PAGE) {
        match file.read_at(&mut page[filled..], at + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(page)
}

/// Copies a file without giving its holes a place.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    let length = from.metadata()?.len();
    to.set_len(length)?;
    for at in (0..length).step_by(PAGE) {
        let page = read_page(Some(&from), at)?;
        let wanted = usize::try_from(length - at).unwrap_or(PAGE).min(PAGE);
        if page.iter().any(|byte| *byte != 0) {
            to.write_all_at(&page[..wanted], at)?;
        }
    }
    Ok(())
}

fn number(path: &Path) -> io::Result<u64> {
    Ok(fs::symlink_metadata(path)?.ino())
}

/// Everything below a folder, and the folder itself.
fn paths(folder: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
    WalkDir::new(folder)
        .into_iter()
        .map(|entry| {
            let path = entry?.into_path();
            Ok((number(&path)?, path))
        })
        .collect()
}

fn names(folder: &Path) -> io::Result<BTreeMap<String, Node>> {
    fs::read_dir(folder)?
        .map(|entry| {
            let entry = entry?;
            let node = Node { number: number(&entry.path())?, folder: entry.file_type()?.is_dir() };
            Ok((entry.file_name().to_string_lossy().into_owned(), node))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn whatever_fails_is_counted_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let disk = Disk::under(&data, 1);
        let is_written = || {
            let mut dd = Command::new("dd");
            dd.args(["if=/dev/zero", "bs=8", "count=64"]).arg(format!("of={}", data.join("file").display()));
            dd.envs(disk.environment()).output().unwrap().status.success()
        };
        assert!(is_written() && disk.failures() == 0);
        disk.fail(Faults { writes: u16::MAX, error: Errno::IO, syncs: 0 });
        assert_eq!(disk.failures(), 0, "what may fail has not failed");
        assert!(
            !is_written() && disk.failures() == 1,
            "{} failures, the first of which ends it",
            disk.failures()
        );
        disk.fail(Faults::NONE);
        assert!(is_written() && disk.failures() == 1);
    }

    /// A shell that makes a folder, writes a file into it, syncs and renames that: how it ended, and what is there.
    fn run(disk: &Disk, data: &Path) -> (bool, Vec<String>) {
        let _ = fs::remove_dir_all(data.join("new"));
        let mut shell = Command::new("sh");
        let script = "mkdir new && dd if=/dev/zero of=new/a bs=8 count=2 conv=fsync && mv -T new/a new/b";
        shell.args(["-c", script]).current_dir(data).envs(disk.environment());
        let is_done = shell.output().unwrap().status.success();
        let mut left: Vec<_> = names(&data.join("new")).unwrap_or_default().into_keys().collect();
        left.sort_unstable();
        (is_done, left)
    }

    #[test]
    fn each_step_of_a_program_can_fail_or_be_its_last_and_no_other_does() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let disk = Disk::under(&data, 1);
        let kinds: &[Kind] = &[Kind::Mkdir, Kind::Write, Kind::Sync];
        let meet = |number, event| {
            disk.meet(Step { kinds, only: "new", number, event });
            run(&disk, &data)
        };
        let whole = (true, vec!["b".to_owned()]);
        assert_eq!(meet(u32::MAX, Event::DiesBefore), whole);
        assert_eq!((disk.steps(), disk.met()), (4, None), "a folder, two writes and a sync");
        let made = |names: &[&str]| (false, names.iter().map(|name| (*name).to_owned()).collect());
        for (number, told) in
            [(1, "mkdir /new"), (2, "write /new/a"), (3, "write /new/a"), (4, "sync /new/a")]
        {
            assert!(!meet(number, Event::Fails(Errno::IO)).0, "{told}");
            assert_eq!(disk.met().as_deref(), Some(told));
            assert_eq!(meet(number, Event::DiesBefore), made(&["a"][..usize::from(number > 1)]), "{told}");
            assert_eq!(meet(number, Event::DiesAfter), made(&["a"][..usize::from(number > 1)]), "{told}");
        }
        let gone_on = meet(3, Event::IsDoneAndFails(Errno::IO));
        assert_eq!((gone_on, fs::metadata(data.join("new/a")).unwrap().len()), (made(&["a"]), 16));
        // The write fails, and so does the sync after it, which is the last that was met.
        let fails_on = meet(2, Event::FailsFrom(Errno::IO)).0;
        assert_eq!((fails_on, disk.met().as_deref()), (false, Some("sync /new/a")));
        disk.meet(Step { kinds, only: "elsewhere", number: 1, event: Event::DiesBefore });
        assert_eq!((run(&disk, &data), disk.steps()), (whole.clone(), 0));
        disk.forget_steps();
        assert_eq!(run(&disk, &data), whole);
    }

    #[test]
    fn what_a_process_left_unsynced_the_next_one_syncs_and_not_what_a_failed_sync_has_lost() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let mut disk = Disk::under(&data, 1);
        let run = |disk: &Disk, script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).current_dir(&data).envs(disk.environment());
            shell.output().unwrap().status.success()
        };
        assert!(run(&disk, "printf one > file"));
        assert!(run(&disk, "printf two >> file && sync file ."));
        disk.cut_power_at_once(&mut Rng::with_seed(1));
        assert_eq!(fs::read_to_string(data.join("file")).unwrap(), "onetwo");
        disk.meet(Step { kinds: &[Kind::Sync], only: "file", number: 1, event: Event::Fails(Errno::IO) });
        assert!(!run(&disk, "printf lost >> file; sync file"));
        assert!(run(&disk, "printf kept >> file && sync file ."));
        let loss = disk.cut_power_at_once(&mut Rng::with_seed(1));
        let left = fs::read_to_string(data.join("file")).unwrap();
        assert_eq!((left.as_str(), loss.pages), ("onetwo\0\0\0\0kept", 1));
    }
}
