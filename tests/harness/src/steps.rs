//! Where a program can die, and what can fail under it: each of its steps on the disk is counted, and one of them is its last or fails (`steps.c`).

use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tempfile::TempDir;

use super::{Disk, preload};

/// A kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Opens a file or folder that is there.
    Open,
    /// Opens a file that may be new.
    Create,
    /// Reads.
    Read,
    /// Writes, or sets a length.
    Write,
    /// Makes a file, the names in a folder, or everything durable.
    Sync,
    /// Gives a file another name; its path is the new one.
    Rename,
    /// Removes a file or a folder.
    Remove,
    /// Makes a folder.
    MakeFolder,
}

const LETTERS: [(Kind, char); 8] = [
    (Kind::Open, 'o'),
    (Kind::Create, 'c'),
    (Kind::Read, 'r'),
    (Kind::Write, 'w'),
    (Kind::Sync, 's'),
    (Kind::Rename, 'n'),
    (Kind::Remove, 'd'),
    (Kind::MakeFolder, 'f'),
];

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Open,
        Self::Create,
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Rename,
        Self::Remove,
        Self::MakeFolder,
    ];

    fn letter(self) -> char {
        LETTERS.iter().find(|(kind, _)| *kind == self).map_or('?', |(_, letter)| *letter)
    }
}

/// What becomes of a step.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// The program is killed before it.
    Death,
    /// It fails.
    Error(Errno),
    /// It fails, and so does each later one of these kinds.
    Lasting(Errno),
}

/// What takes room.
const TAKE_ROOM: &[Kind] = &[Kind::Write, Kind::Create, Kind::MakeFolder];

/// The failures of a disk: each kind of step by itself, and a full disk, for once and from then on.
pub fn failures() -> Vec<(&'static [Kind], Fate)> {
    const KINDS: &[Kind] = &Kind::ALL;
    let each = KINDS.chunks(1).map(|kind| (kind, Fate::Error(Errno::IO)));
    let full = [Fate::Error(Errno::NOSPC), Fate::Lasting(Errno::NOSPC)].map(|fate| (TAKE_ROOM, fate));
    each.chain(full).collect()
}

/// The step of this number, counted from 1, among those of these kinds.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The kinds that are counted.
    pub kinds: &'a [Kind],
    /// Its number.
    pub number: usize,
    /// What becomes of it.
    pub fate: Fate,
}

/// A step that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub kind: Kind,
    /// To what.
    pub path: PathBuf,
    /// Whether it failed, or was the last one.
    pub failed: bool,
}

/// The steps of programs below a folder.
#[derive(Debug)]
pub struct Steps {
    under: PathBuf,
    /// Library and log.
    folder: TempDir,
    is_plain: bool,
}

impl Steps {
    /// The steps below `under`.
    ///
    /// # Panics
    /// When the library cannot be built: the system has no C compiler.
    pub fn under(under: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        preload::build("steps", include_str!("steps.c"), folder.path());
        Self { under: under.canonicalize().expect("it is there"), folder, is_plain: false }
    }

    /// Sees only what goes through the C library, of programs that start others.
    #[must_use]
    pub fn plain(self) -> Self {
        Self { is_plain: true, ..self }
    }

    /// The environment of a program whose steps are counted, on this disk if there is one.
    pub fn environment(&self, at: Option<At<'_>>, disk: Option<&Disk>) -> Vec<(String, String)> {
        let mut environment: Vec<_> = disk.map(Disk::environment).into_iter().flatten().collect();
        let library = self.inside("steps.so");
        let preloaded = environment.iter_mut().find(|(name, _)| name == "LD_PRELOAD");
        match preloaded {
            Some((_, libraries)) => *libraries = format!("{library}:{libraries}"),
            None => environment.push(("LD_PRELOAD".to_owned(), library)),
        }
        let mut add = |name: &str, value: String| environment.push((name.to_owned(), value));
        add("RESYNC_STEPS_FOLDER", self.under.display().to_string());
        add("RESYNC_STEPS_LOG", self.inside("log"));
        if self.is_plain {
            add("RESYNC_STEPS_PLAIN", "1".to_owned());
        }
        if let Some(At { kinds, number, fate }) = at {
            let letters: String = kinds.iter().map(|kind| kind.letter()).collect();
            let (error, lasting) = match fate {
                Fate::Death => (0, 0),
                Fate::Error(error) => (error.raw_os_error(), 0),
                Fate::Lasting(error) => (error.raw_os_error(), 1),
            };
            add("RESYNC_STEPS_AT", format!("{letters}:{number}:{error}:{lasting}"));
        }
        environment
    }

    /// What was done since this was asked last.
    ///
    /// # Panics
    /// When the log cannot be read.
    pub fn taken(&self) -> Vec<Step> {
        let log = self.folder.path().join("log");
        // Nothing was done below the folder.
        let text = fs::read(&log).unwrap_or_default();
        if !text.is_empty() {
            fs::remove_file(&log).expect("the log can be removed");
        }
        String::from_utf8_lossy(&text).lines().filter_map(parse).collect()
    }

    fn inside(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

fn parse(line: &str) -> Option<Step> {
    let mut letters = line.chars();
    let (letter, mark) = (letters.next()?, letters.next()?);
    let (kind, _) = *LETTERS.iter().find(|(_, known)| *known == letter)?;
    Some(Step { kind, path: letters.as_str().into(), failed: mark == '!' })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn each_step_is_seen_and_fails_or_kills_as_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let steps = Steps::under(folder.path());
        // `touch` and `mv` make system calls of their own kind each.
        let run = |program: &str, arguments: &[&str], at: Option<At<'_>>| {
            let mut command = Command::new(program);
            command.current_dir(folder.path()).args(arguments).envs(steps.environment(at, None));
            command.output().unwrap()
        };
        assert!(run("mkdir", &["there"], None).status.success());
        assert!(
            run("dd", &["if=/dev/zero", "of=one", "bs=8", "count=2", "conv=fsync"], None).status.success()
        );
        assert!(run("mv", &["one", "there/two"], None).status.success());
        let seen = steps.taken();
        let of = |kind| seen.iter().filter(|step: &&Step| step.kind == kind).count();
        let counts = [Kind::MakeFolder, Kind::Create, Kind::Write, Kind::Sync, Kind::Rename].map(of);
        assert_eq!(counts, [1, 1, 2, 1, 1], "{seen:?}");
        assert!(seen.iter().all(|step| !step.failed && step.path.starts_with(folder.path())), "{seen:?}");

        let at = |kinds: &'static [Kind], fate| Some(At { kinds, number: 1, fate });
        let failed = run("rm", &["there/two"], at(&[Kind::Remove], Fate::Error(Errno::IO)));
        assert!(!failed.status.success() && folder.path().join("there/two").exists(), "{failed:?}");
        let killed = run("rmdir", &["there"], at(&[Kind::Remove], Fate::Death));
        assert_eq!(killed.status.signal(), Some(9));
        assert!(steps.taken().iter().filter(|step| step.failed).count() == 2);
    }
}
