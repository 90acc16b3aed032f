//! What fails on a disk, and when a program on it dies: writes and syncs by chance, or one step by its number (`faults.c`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use rustix::io::Errno;

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

/// What a program does with its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Kind {
    /// Opens a file or a folder that is there.
    Open = 1,
    /// Opens a file that may be new.
    Create = 2,
    /// Reads from a file.
    Read = 4,
    /// Writes to a file.
    Write = 8,
    /// Syncs a file, a folder, or everything.
    Sync = 16,
    /// Gives something another name; its path is the new one.
    Rename = 32,
    /// Removes a file or a folder.
    Unlink = 64,
    /// Makes a folder.
    Mkdir = 128,
    /// Cuts or lengthens a file.
    Truncate = 256,
    /// Looks whether a name is there, and what it is.
    Look = 512,
}

impl Kind {
    /// Those that change something: between two of them there is one state only.
    pub const CHANGES: &[Self] =
        &[Self::Create, Self::Write, Self::Sync, Self::Rename, Self::Unlink, Self::Mkdir, Self::Truncate];
    /// Those that take room.
    pub const TAKE_ROOM: &[Self] = &[Self::Create, Self::Write, Self::Mkdir, Self::Truncate];
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Open,
        Self::Create,
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

impl Step {
    /// None: all of these kinds are counted only.
    pub const fn none(kinds: &'static [Kind]) -> Self {
        Self { kinds, only: "", number: u32::MAX, event: Event::DiesBefore }
    }
}

/// A step that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// What it does.
    pub kind: Kind,
    /// To what, below the folder.
    pub path: PathBuf,
    /// Whether it was the one to be met.
    pub is_met: bool,
}

/// The failures of a disk: each kind of step by itself but a look, of which the standard library hides the cause, and a full disk, for once
/// and from then on.
pub fn failures() -> Vec<(&'static [Kind], Event)> {
    let each =
        Kind::ALL.chunks(1).filter(|kind| *kind != [Kind::Look]).map(|kind| (kind, Event::Fails(Errno::IO)));
    let full = [Event::Fails(Errno::NOSPC), Event::FailsFrom(Errno::NOSPC)];
    each.chain(full.map(|event| (Kind::TAKE_ROOM, event))).collect()
}

/// The numbers of some steps of these kinds, each at another path.
pub fn drawn(taken: &[Taken], kinds: &[Kind], most: usize, rng: &mut Rng) -> Vec<u32> {
    let paths = taken.iter().filter(|step| kinds.contains(&step.kind)).map(|step| &step.path);
    let mut steps: Vec<_> = (1..).zip(paths).collect();
    rng.shuffle(&mut steps);
    let mut paths = BTreeSet::new();
    let steps = steps.into_iter().filter(|(_, path)| paths.insert(*path));
    steps.map(|(number, _)| number).take(most).collect()
}

/// Microseconds that a sync takes at most.
const SYNC_TAKES: u32 = 6_000;
/// Where things are in the control; `disk.h` says the same.
const SEED_AT: u64 = 16;
const SYNC_TAKES_AT: u64 = 24;
const FAILURES_AT: u64 = 28;
const HELD_AT: u64 = 32;
const WAITING_AT: u64 = 36;
const STEP_AT: u64 = 40;
const KILLING_AT: u64 = 124;
const LENGTH: u64 = 128;
/// How long a part of a path may be there.
const ONLY: usize = 64;

/// What the library is told, and what it tells.
#[derive(Debug)]
pub(super) struct Control {
    shared: File,
    log: PathBuf,
}

impl Control {
    /// Two files in a folder.
    pub(super) fn new(shared: &Path, log: PathBuf, seed: u64) -> Self {
        let mut options = File::options();
        let shared = options.read(true).write(true).create_new(true).open(shared);
        let control = Self { shared: shared.expect("a file can be made"), log };
        control.shared.set_len(LENGTH).expect("a file can be written");
        control.shared.write_all_at(&seed.to_ne_bytes(), SEED_AT).expect("a file can be written");
        control.tell(SYNC_TAKES_AT, &[SYNC_TAKES]);
        control
    }

    pub(super) fn fail(&self, faults: Faults) {
        self.tell(0, &[faults.writes.into(), number(faults.error), faults.syncs.into()]);
    }

    pub(super) fn failures(&self) -> u32 {
        self.word(FAILURES_AT)
    }

    pub(super) fn hold(&self, held: bool) {
        self.tell(HELD_AT, &[held.into()]);
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.word(WAITING_AT) > 0
    }

    pub(super) fn sync_at_once(&self) {
        self.tell(SYNC_TAKES_AT, &[0]);
    }

    pub(super) fn meet(&self, step: Step) {
        let (event, error) = match step.event {
            Event::Fails(error) => (0, number(error)),
            Event::DiesBefore => (1, 0),
            Event::DiesAfter => (2, 0),
            Event::FailsFrom(error) => (3, number(error)),
            Event::IsDoneAndFails(error) => (4, number(error)),
        };
        assert!(step.only.len() < ONLY, "{}", step.only);
        self.forget_steps();
        fs::write(&self.log, "").expect("a file can be written");
        let mut only = [0; ONLY];
        only[..step.only.len()].copy_from_slice(step.only.as_bytes());
        self.shared.write_all_at(&only, STEP_AT + 20).expect("a file can be written");
        self.tell(KILLING_AT, &[0]);
        self.tell(STEP_AT + 4, &[step.number, event, error, 0]);
        self.tell(STEP_AT, &[step.kinds.iter().fold(0, |kinds, kind| kinds | *kind as u32)]);
    }

    pub(super) fn forget_steps(&self) {
        self.tell(STEP_AT, &[0]);
    }

    pub(super) fn is_killing(&self) -> bool {
        self.word(KILLING_AT) > 0
    }

    pub(super) fn taken(&self) -> Vec<Taken> {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).lines().filter_map(parse).collect()
    }

    fn tell(&self, at: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().copied().flat_map(u32::to_ne_bytes).collect();
        self.shared.write_all_at(&bytes, at).expect("a file can be written");
    }

    fn word(&self, at: u64) -> u32 {
        let mut word = [0; 4];
        self.shared.read_exact_at(&mut word, at).expect("a file can be read");
        u32::from_ne_bytes(word)
    }
}

fn number(error: Errno) -> u32 {
    u32::try_from(error.raw_os_error()).expect("numbers of errors are positive")
}

fn parse(line: &str) -> Option<Taken> {
    let mut parts = line.splitn(3, ' ');
    let (number, is_met, path) = (parts.next()?.parse().ok()?, parts.next()? == "1", parts.next()?);
    let kind = *Kind::ALL.iter().find(|kind| **kind as u32 == number)?;
    Some(Taken { kind, path: path.trim_start_matches('/').into(), is_met })
}
