//! The server's programs, and how they are run.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use rustix::process::geteuid;
use tempfile::TempDir;

/// Where Debian has the servers, each in a folder with the number of its version.
const INSTALLED: &str = "/usr/lib/postgresql";
/// The number of `nobody`, and of its group: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;
/// Nothing of a test is to survive the machine, and to sync costs nothing here …
const MEMORY: &str = "/dev/shm";
/// … where so many bytes are free.
const ROOM: u64 = 1024 * 1024 * 1024;
/// How the names of servers' folders begin.
const PREFIX: &str = "postgres-";
/// A file in such a folder that somebody keeps locked for as long as the folder is in use.
const LOCK: &str = "lock";
/// So long a program may run that ends by itself. To make a server takes seconds.
const RUNS: Duration = Duration::from_secs(120);

/// The programs of one version, and where they keep their data.
#[derive(Debug)]
pub(super) struct Programs {
    folder: PathBuf,
    /// We are root, and PostgreSQL may not be.
    as_nobody: bool,
    medium: Medium,
}

/// Where the data of servers lie.
#[derive(Clone, Copy, Debug)]
pub(super) enum Medium {
    /// In memory where there is room, and else on the disk.
    Memory,
    /// Where temporary files are, so that a commit costs what a disk makes it cost.
    Disk,
}

impl Programs {
    /// Those of a folder that has all of these, `postgres` among them. Why there are none that can be run is the error.
    pub(super) fn find(needed: &[&str], medium: Medium) -> Result<Self, String> {
        let path = env::var_os("PATH").unwrap_or_default();
        let on_path = env::split_paths(&path).collect::<Vec<_>>();
        let folder = on_path
            .into_iter()
            .chain(installed())
            .find(|folder| needed.iter().all(|program| folder.join(program).is_file()));
        let folder = folder.ok_or_else(|| {
            let needed = needed.join(", ");
            format!("there is no {needed} on PATH or below {INSTALLED} (Debian's package is postgresql)")
        })?;
        let programs = Self { folder, as_nobody: geteuid().is_root(), medium };
        let tried = programs.command("postgres").arg("--version").current_dir("/").output();
        match tried {
            Ok(output) if output.status.success() => Ok(programs),
            Ok(output) => Err(format!("{} cannot be run: {}", programs.folder.display(), said(&output))),
            Err(error) => Err(format!("{} cannot be run: {error}", programs.folder.display())),
        }
    }

    pub(super) fn command(&self, program: &str) -> Command {
        let program = self.folder.join(program);
        if !self.as_nobody {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        let nobody = NOBODY.to_string();
        command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups", "--"]).arg(program);
        command
    }

    /// Runs one of them with these arguments in a folder that is its user's.
    ///
    /// # Panics
    /// When it fails, or does not end in time.
    pub(super) fn run(&self, program: &str, arguments: &[&str], folder: &Path) {
        let mut command = self.command(program);
        command.args(arguments).current_dir(folder);
        let (status, said) = run_within(RUNS, &mut command).expect("it was there a moment ago");
        let status = status.unwrap_or_else(|| panic!("{program} did not end within {RUNS:?}:\n{said}"));
        assert!(status.success(), "{program} failed:\n{said}");
    }

    /// A new folder that is the server's. What nobody uses any more is removed before: a test program that was killed while it made a server
    /// leaves its folder.
    pub(super) fn folder(&self) -> Folder {
        static SWEPT: Once = Once::new();
        let place = self.medium.place();
        SWEPT.call_once(|| sweep(&place));
        let dir = TempDir::with_prefix_in(PREFIX, place).expect("a temporary folder can be made");
        let lock = lock(dir.path()).expect("a file can be locked in a new folder");
        if self.as_nobody {
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("root may give a folder away");
        }
        Folder { dir, lock }
    }
}

impl Medium {
    /// Where folders of servers are made.
    fn place(self) -> PathBuf {
        let room = || statvfs(MEMORY).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        match self {
            Self::Memory if room() >= ROOM => PathBuf::from(MEMORY),
            Self::Memory | Self::Disk => env::temp_dir(),
        }
    }
}

/// A folder of a server. It is removed when dropped.
#[derive(Debug)]
pub(super) struct Folder {
    dir: TempDir,
    lock: File,
}

impl Folder {
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// From now on somebody else removes it; it is in use for as long as the file is open.
    pub(super) fn keep(self) -> (PathBuf, File) {
        (self.dir.keep(), self.lock)
    }
}

/// Nobody sees the lock before it is locked.
fn lock(folder: &Path) -> io::Result<File> {
    let new = folder.join("lock.new");
    let file = File::create_new(&new)?;
    file.try_lock()?;
    fs::rename(new, folder.join(LOCK))?;
    Ok(file)
}

/// Removes the folders of servers that nobody uses. Those of other users stay.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().filter_map(Result::ok) {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let lock = File::open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            // Somebody else may do the same at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// How a program ended, `None` where it had to be killed, and what it said on both outputs.
fn run_within(patience: Duration, command: &mut Command) -> io::Result<(Option<ExitStatus>, String)> {
    let mut words = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(words.try_clone()?).stderr(words.try_clone()?);
    let (mut child, deadline) = (command.spawn()?, Instant::now() + patience);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(10));
    };
    let mut said = Vec::new();
    words.rewind()?;
    words.read_to_end(&mut said)?;
    Ok((status, String::from_utf8_lossy(&said).trim().to_owned()))
}

/// The folders of the versions that the system has, the newest first.
fn installed() -> Vec<PathBuf> {
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let entries = fs::read_dir(INSTALLED).into_iter().flatten().filter_map(Result::ok);
    let mut folders: Vec<_> = entries.map(|entry| entry.path()).collect();
    folders.sort_by_key(|folder| std::cmp::Reverse(version(folder)));
    folders.into_iter().map(|folder| folder.join("bin")).collect()
}

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_nobody_uses_is_removed_and_one_in_use_stays() {
        let place = tempfile::tempdir().unwrap();
        let [used, left, other] =
            ["postgres-used", "postgres-left", "other"].map(|name| place.path().join(name));
        for folder in [&used, &left, &other] {
            fs::create_dir(folder).unwrap();
        }
        let in_use = lock(&used).unwrap();
        drop((lock(&left).unwrap(), lock(&other).unwrap()));
        sweep(place.path());
        assert_eq!([&used, &left, &other].map(|folder| folder.exists()), [true, false, true]);
        drop(in_use);
        sweep(place.path());
        assert!(!used.exists());
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_what_it_said_is_known() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo before; exec sleep 600"]);
        let (status, said) = run_within(Duration::from_secs(2), &mut command).unwrap();
        assert_eq!((status, said.as_str()), (None, "before"));
        let (status, said) =
            run_within(RUNS, Command::new("sh").args(["-c", "echo yes >&2; exit 3"])).unwrap();
        assert_eq!((status.and_then(|status| status.code()), said.as_str()), (Some(3), "yes"));
    }
}
