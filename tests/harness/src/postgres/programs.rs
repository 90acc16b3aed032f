//! The server's programs, and how they are run.

use std::env;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::statvfs;
use rustix::process::geteuid;
use tempfile::TempDir;

/// Where Debian has the servers, each in a folder with the number of its version.
const INSTALLED: &str = "/usr/lib/postgresql";
/// The number of `nobody`, and of its group: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;
/// Nothing is to survive the machine, and to sync costs nothing here …
const MEMORY: &str = "/dev/shm";
/// … where so many bytes are free.
const ROOM: u64 = 1024 * 1024 * 1024;

/// The programs of one version.
#[derive(Debug)]
pub(super) struct Programs {
    folder: PathBuf,
    /// We are root, and PostgreSQL may not be.
    as_nobody: bool,
}

impl Programs {
    /// Those of a folder that has all of these, `postgres` among them. Why there are none that can be run is the error.
    pub(super) fn find(needed: &[&str]) -> Result<Self, String> {
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
        let programs = Self { folder, as_nobody: geteuid().is_root() };
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
    /// When it fails.
    pub(super) fn run(&self, program: &str, arguments: &[&str], folder: &Path) {
        let ran = self.command(program).args(arguments).current_dir(folder).output();
        let ran = ran.expect("it was there a moment ago");
        assert!(ran.status.success(), "{program} failed:\n{}", said(&ran));
    }

    /// A new folder that is the server's.
    pub(super) fn folder(&self) -> TempDir {
        let folder = TempDir::with_prefix_in("postgres-", place()).expect("a temporary folder can be made");
        if self.as_nobody {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may give a folder away");
        }
        folder
    }
}

/// Where its folder is made.
fn place() -> PathBuf {
    let room = statvfs(MEMORY).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    if room >= ROOM { PathBuf::from(MEMORY) } else { env::temp_dir() }
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
