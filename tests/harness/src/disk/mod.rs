//! A disk that can lose power and fail: a library under a program keeps apart what is durable, lets steps of the program fail or be its last
//! (`disk.h`), and from that a test builds the folder that would be there after a power cut.

mod faults;
mod power;
mod record;

use std::path::{Path, PathBuf};

use fastrand::Rng;
use tempfile::TempDir;

use super::preload;
use faults::Control;
use power::Cut;
use record::Record;

pub use faults::{Event, Faults, Kind, Step, Taken, drawn, failures};
pub use power::Loss;

/// The disk under a folder.
#[derive(Debug)]
pub struct Disk {
    data: PathBuf,
    /// Library, platter and control.
    folder: TempDir,
    control: Control,
    record: Record,
}

impl Disk {
    /// The disk under `data`; whatever is there now is durable. Each process on it draws other failures, the same again from the same seed.
    ///
    /// # Panics
    /// When the library cannot be built: the system has no C compiler.
    pub fn under(data: &Path, seed: u64) -> Self {
        let data = data.canonicalize().expect("it is there");
        let folder = tempfile::tempdir_in(data.parent().expect("a data folder is in a folder"))
            .expect("a temporary folder can be made");
        let sources = [
            ("disk.h", include_str!("disk.h")),
            ("record.c", include_str!("record.c")),
            ("faults.c", include_str!("faults.c")),
            ("calls.c", include_str!("calls.c")),
        ];
        preload::build("disk", &sources, folder.path());
        let inside = |name| folder.path().join(name);
        let control = Control::new(&inside("control"), inside("log"), seed);
        let mut disk = Self { data, record: Record(inside("platter")), control, folder };
        disk.assume_durable();
        disk
    }

    /// The environment of a process that lives on this disk.
    pub fn environment(&self) -> [(String, String); 5] {
        let inside = |name| self.folder.path().join(name).display().to_string();
        [
            ("LD_PRELOAD".to_owned(), inside("disk.so")),
            ("RESYNC_DISK_FOLDER".to_owned(), self.data.display().to_string()),
            ("RESYNC_DISK_PLATTER".to_owned(), inside("platter")),
            ("RESYNC_DISK_CONTROL".to_owned(), inside("control")),
            ("RESYNC_DISK_LOG".to_owned(), inside("log")),
        ]
    }

    /// From now on the disk fails so often.
    ///
    /// # Panics
    /// When the file for it cannot be written.
    pub fn fail(&self, faults: Faults) {
        self.control.fail(faults);
    }

    /// Writes and syncs that have failed so far.
    ///
    /// # Panics
    /// When the file for it cannot be read.
    pub fn failures(&self) -> u32 {
        self.control.failures()
    }

    /// From now on no sync ends, or all do again.
    ///
    /// # Panics
    /// When the file for it cannot be written.
    pub fn hold(&self, held: bool) {
        self.control.hold(held);
    }

    /// Whether a sync waits for that.
    ///
    /// # Panics
    /// When the file for it cannot be read.
    pub fn is_waited_for(&self) -> bool {
        self.control.is_waited_for()
    }

    /// Syncs take no time from now on.
    ///
    /// # Panics
    /// When the file for it cannot be written.
    pub fn sync_at_once(&self) {
        self.control.sync_at_once();
    }

    /// From now on steps are counted, from 1, until this one is met; it is forgotten at the next call only.
    ///
    /// # Panics
    /// When the file for it cannot be written, or the part of the path is too long.
    pub fn meet(&self, step: Step) {
        self.control.meet(step);
    }

    /// From now on no step is counted.
    ///
    /// # Panics
    /// When the file for it cannot be written.
    pub fn forget_steps(&self) {
        self.control.forget_steps();
    }

    /// Whether a process dies by a step, or has died by one, since the last call of [`Disk::meet`].
    ///
    /// # Panics
    /// When the file for it cannot be read.
    pub fn is_killing(&self) -> bool {
        self.control.is_killing()
    }

    /// The steps that were counted.
    pub fn taken(&self) -> Vec<Taken> {
        self.control.taken()
    }

    /// Which step was met last, if one was.
    pub fn met(&self) -> Option<Taken> {
        self.taken().into_iter().rfind(|step| step.is_met)
    }

    /// The folder as it is after a power cut, once no process lives on it any more.
    ///
    /// # Panics
    /// When files cannot be read or written.
    pub fn cut_power(&mut self, rng: &mut Rng) -> Loss {
        self.cut(Cut::any(rng))
    }

    /// The same, with nothing left of what was not synced.
    ///
    /// # Panics
    /// As [`Disk::cut_power`].
    pub fn cut_power_at_once(&mut self, rng: &mut Rng) -> Loss {
        self.cut(Cut::whole(rng))
    }

    fn cut(&mut self, cut: Cut<'_>) -> Loss {
        let loss = cut.apply(&self.data, &self.record, self.folder.path()).expect("a folder can be built");
        self.assume_durable();
        loss
    }

    /// Whatever is in the folder now is durable, as if it had always been there. No process lives on it meanwhile.
    ///
    /// # Panics
    /// When files cannot be read or written.
    pub fn assume_durable(&mut self) {
        self.record.begin(&self.data).expect("a folder can be copied");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::future::ready;
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};

    use rustix::io::Errno;

    use super::*;
    use crate::eventually;

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

    /// How much of each of its writes some shells on one disk get to it, where half of the writes fail.
    fn lives(seed: u64) -> Vec<Vec<u64>> {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let disk = Disk::under(&data, seed);
        disk.fail(Faults { writes: 1 << 15, error: Errno::IO, syncs: 0 });
        let life = |_| {
            sh(&disk, &data, "for file in $(seq 40); do printf four > $file; done");
            (1..=40).map(|file| fs::metadata(data.join(file.to_string())).unwrap().len()).collect()
        };
        (0..3).map(life).collect()
    }

    #[test]
    fn each_life_on_a_disk_meets_its_own_failures_and_the_same_seed_brings_them_again() {
        let drawn = lives(7);
        assert_eq!(drawn, lives(7));
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len(), "{drawn:?}");
        // All bits of a seed count.
        for other in [8, 7 + (1 << 32), 7 + (1 << 63)] {
            assert!(lives(other).iter().all(|life| !drawn.contains(life)), "{other}");
        }
    }

    /// A shell that makes a folder, writes a file into it, syncs and renames that: how it ended, and what is there.
    fn run(disk: &Disk, data: &Path) -> (bool, Vec<String>) {
        let _ = fs::remove_dir_all(data.join("new"));
        let script = "mkdir new && dd if=/dev/zero of=new/a bs=8 count=2 conv=fsync && mv -T new/a new/b";
        let is_done = sh(disk, data, script);
        let mut left: Vec<_> = record::names(&data.join("new")).unwrap_or_default().into_keys().collect();
        left.sort_unstable();
        (is_done, left)
    }

    /// Whether it went well.
    fn sh(disk: &Disk, data: &Path, script: &str) -> bool {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(data).envs(disk.environment());
        shell.output().unwrap().status.success()
    }

    #[test]
    fn each_step_of_a_program_can_fail_or_be_its_last_and_no_other_does() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let disk = Disk::under(&data, 1);
        let kinds: &[Kind] = &[Kind::Mkdir, Kind::Write, Kind::Sync, Kind::Rename];
        let meet = |number, event| {
            disk.meet(Step { kinds, only: "new", number, event });
            run(&disk, &data)
        };
        let whole = (true, vec!["b".to_owned()]);
        let all = [
            (Kind::Mkdir, "new"),
            (Kind::Write, "new/a"),
            (Kind::Write, "new/a"),
            (Kind::Sync, "new/a"),
            (Kind::Rename, "new/b"),
        ];
        assert_eq!(meet(u32::MAX, Event::DiesBefore), whole);
        let taken = disk.taken();
        let taken: Vec<_> = taken.iter().map(|step| (step.kind, step.path.to_str().unwrap())).collect();
        assert_eq!((&taken[..], disk.met()), (&all[..], None));
        let made = |names: &[&str]| (false, names.iter().map(|name| (*name).to_owned()).collect());
        for (number, (kind, path)) in (1..).zip(all) {
            assert!(!meet(number, Event::Fails(Errno::IO)).0, "{kind:?}");
            assert_eq!(disk.met(), Some(Taken { kind, path: path.into(), is_met: true }));
            let (before, after) = match number {
                1 => (made(&[]), made(&[])),
                5 => (made(&["a"]), made(&["b"])),
                _ => (made(&["a"]), made(&["a"])),
            };
            assert!(!disk.is_killing(), "{kind:?}: it only fails");
            assert_eq!(meet(number, Event::DiesBefore), before, "{kind:?}");
            assert!(disk.is_killing(), "{kind:?}");
            assert_eq!(meet(number, Event::DiesAfter), after, "{kind:?}");
            assert!(disk.is_killing(), "{kind:?}");
        }
        let gone_on = meet(3, Event::IsDoneAndFails(Errno::IO));
        assert_eq!((gone_on, fs::metadata(data.join("new/a")).unwrap().len()), (made(&["a"]), 16));
        // The write fails, and so does the sync after it, which is the last that was met.
        let fails_on = meet(2, Event::FailsFrom(Errno::IO)).0;
        assert_eq!((fails_on, disk.met().map(|step| step.kind)), (false, Some(Kind::Sync)));
        disk.meet(Step { kinds, only: "elsewhere", number: 1, event: Event::DiesBefore });
        assert_eq!((run(&disk, &data), disk.taken()), (whole.clone(), Vec::new()));
        disk.forget_steps();
        assert_eq!(run(&disk, &data), whole);
    }

    #[test]
    fn what_a_process_left_unsynced_the_next_one_syncs_and_not_what_a_failed_sync_has_lost() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let mut disk = Disk::under(&data, 1);
        let run = |disk: &Disk, script: &str| sh(disk, &data, script);
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

    /// What `threads.c` writes and syncs: by so many threads, in so many rounds, pieces of this size.
    const WRITERS: usize = 6;
    const ROUNDS: usize = 64;
    const PIECE: usize = 512;

    /// An empty file whose name is durable, and `threads.c` on its disk, to do this with it.
    fn threads(folder: &Path, does: &str) -> (PathBuf, Disk, Command) {
        let [program, source, data] = ["threads", "threads.c", "data"].map(|name| folder.join(name));
        fs::write(&source, include_str!("threads.c")).unwrap();
        let built = Command::new("cc").args(["-O1", "-pthread", "-o"]).args([&program, &source]).output();
        let built = built.unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        fs::create_dir(&data).unwrap();
        let file = data.join("file");
        fs::write(&file, "").unwrap();
        let disk = Disk::under(&data, 1);
        disk.sync_at_once();
        let mut command = Command::new(program);
        command.arg(does).arg(&file).envs(disk.environment());
        (file, disk, command)
    }

    #[test]
    fn what_a_thread_has_written_and_synced_is_durable_whatever_others_sync_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (file, mut disk, mut threads) = threads(folder.path(), "parts");
        assert!(threads.status().unwrap().success());
        disk.cut_power_at_once(&mut Rng::with_seed(1));
        let left = fs::read(file).unwrap();
        for number in 0..WRITERS * ROUNDS {
            let writer = b'a' + u8::try_from(number / ROUNDS).unwrap();
            let piece = left.get(number * PIECE..(number + 1) * PIECE);
            assert_eq!(piece, Some(&[writer; PIECE][..]), "piece {number}");
        }
    }

    #[tokio::test]
    async fn a_sync_brings_to_the_disk_what_was_written_before_it_began_and_nothing_later() {
        let folder = tempfile::tempdir().unwrap();
        let (file, disk, mut threads) = threads(folder.path(), "late");
        disk.hold(true);
        let mut child = threads.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        eventually("what was written first is being synced", || ready(disk.is_waited_for())).await;
        child.stdin.take().unwrap().write_all(b"!").unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "onetwo");
        disk.hold(false);
        assert!(child.wait().unwrap().success());
        let durable = disk.record.bytes(record::number(&file).unwrap());
        assert_eq!(fs::read_to_string(durable).unwrap(), "one");
    }

    #[test]
    fn a_file_that_got_another_name_is_there_under_one_at_least() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let mut seen = BTreeSet::new();
        let mut rng = Rng::with_seed(1);
        for _ in 0..50 {
            for (name, text) in [("new", "new"), ("old", "old")] {
                fs::write(data.join(name), text).unwrap();
            }
            let mut disk = Disk::under(&data, 1);
            assert!(sh(&disk, &data, "mv new old"));
            disk.cut_power(&mut rng);
            let left = ["new", "old"].map(|name| fs::read_to_string(data.join(name)).unwrap_or_default());
            seen.insert(left);
        }
        let expected = [["", "new"], ["new", "new"], ["new", "old"]];
        assert_eq!(seen, expected.map(|left| left.map(str::to_owned)).into());
    }

    #[test]
    fn a_number_that_is_durable_is_never_given_again_whatever_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let mut disk = Disk::under(&data, 1);
        disk.sync_at_once();
        let numbers = || -> BTreeSet<u64> { record::paths(&data).unwrap().into_keys().collect() };
        let mut seen = numbers();
        for round in 0..20 {
            let made = "mkdir folder folder/in && echo one > file && echo two > folder/in/file && sync file folder/in/file folder/in folder .";
            assert!(sh(&disk, &data, made));
            let new: BTreeSet<_> = numbers().difference(&seen).copied().collect();
            assert_eq!(new.len(), 4, "in round {round}");
            seen.extend(new);
            assert!(sh(&disk, &data, "rm -r folder && rm file"));
        }
        // The last is durable, and its end is not.
        disk.cut_power_at_once(&mut Rng::with_seed(1));
        assert_eq!(fs::read_to_string(data.join("folder/in/file")).unwrap(), "two\n");
        assert!(!sh(&disk, &data, "rmdir folder") && sh(&disk, &data, "rmdir folder/in || rm -r folder"));
        assert!(!data.join("folder").exists());
    }
}
