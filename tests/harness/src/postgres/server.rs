//! One server process: a keeper starts it and ends it with the test program, and it can be killed and paused like a machine.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::FIRST;
use super::programs::{Folder, Programs};
use super::session::{Rows, carry_out};
use crate::PATIENCE;

/// Many small databases are made, and many connections are open at once. A hub refuses a server that does not sync.
const SETTINGS: [&str; 8] = [
    "fsync=on",
    "max_wal_size=128MB",
    "max_connections=400",
    "shared_buffers=32MB",
    "max_locks_per_transaction=256",
    // Its compiler may not be installed.
    "jit=off",
    "log_min_messages=warning",
    // In its own folder, so that nothing is left of a server that is killed.
    "dynamic_shared_memory_type=mmap",
];
/// The folder of its data, below its own.
pub(super) const DATA: &str = "data";
/// Runs the server until standard input ends, which is when whoever has started this has ended, however that came. Then it is killed, also
/// while it is paused, and its folder removed.
const KEEPER: &str = r#"trap '' INT TERM HUP
folder=$0
"$@" >"$folder/log" 2>&1 </dev/null &
server=$!
read -r _
kill -QUIT "$server"
for paused in $(cat "/proc/$server/task/$server/children") "$server"; do
    kill -CONT "$paused"
done
wait "$server"
rm -rf "$folder""#;

/// A server with its keeper. It ends with the test program, also where that is killed.
#[derive(Debug)]
pub(super) struct Server {
    folder: PathBuf,
    port: u16,
    keeper: Child,
    /// The server ends when this is closed.
    life: ChildStdin,
    /// The folder is in use while this is open.
    lock: File,
}

impl Server {
    /// Starts the server whose data are in this folder, from now on its keeper's to remove. Its socket is there too; the port is a part of the
    /// socket's name.
    ///
    /// # Panics
    /// When it does not start.
    pub(super) fn start(programs: &Programs, folder: Folder, port: u16, settings: &[String]) -> Self {
        let (folder, lock) = folder.keep();
        let server = programs.command("postgres");
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER]).arg(&folder).arg(server.get_program()).args(server.get_args());
        keeper.arg("-D").arg(folder.join(DATA)).arg("-k").arg(&folder).args(["-p", &port.to_string()]);
        for setting in SETTINGS.into_iter().chain(settings.iter().map(String::as_str)) {
            keeper.args(["-c", setting]);
        }
        // In a group of its own: what a terminal sends to the test program does not reach it.
        keeper.current_dir(&folder).process_group(0);
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut keeper = keeper.spawn().expect("there is a shell");
        let life = keeper.stdin.take().expect("standard input is piped");
        let server = Self { folder, port, keeper, life, lock };
        server.until_ready();
        server
    }

    fn until_ready(&self) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.sql(FIRST, "SELECT 1") {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "PostgreSQL did not start ({error}):\n{}", log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The folder in which its files are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The number of the process that keeps it, and ends with it.
    pub(super) fn keeper(&self) -> u32 {
        self.keeper.id()
    }

    /// Where it listens for who is on this machine.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join(format!(".s.PGSQL.{}", self.port))
    }

    /// Carries out statements in a database.
    pub(super) fn sql(&self, database: &str, statements: &str) -> Result<Rows, String> {
        carry_out(&self.socket(), database, statements, PATIENCE)
    }

    /// Ends it at once, and removes its folder.
    ///
    /// # Panics
    /// When its keeper cannot be waited for.
    pub(super) fn end(self) {
        let Self { mut keeper, life, lock, .. } = self;
        drop(life);
        keeper.wait().expect("a child can be waited for");
        drop(lock);
    }

    /// Ends it in order: its standbys have everything by then.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`].
    pub(super) fn shut_down(&self) {
        let Some(postmaster) = self.postmaster() else { return };
        send(postmaster, Signal::INT);
        let deadline = Instant::now() + PATIENCE;
        // It removes the file with its number at its end.
        while self.postmaster().is_some() {
            assert!(Instant::now() < deadline, "PostgreSQL did not shut down");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its machine dies: all its processes end at once.
    pub(super) fn kill(&self) {
        let Some(postmaster) = self.pause_postmaster() else { return };
        for child in children_of(postmaster) {
            send(child, Signal::KILL);
        }
        send(postmaster, Signal::KILL);
        self.remove_shared_memory();
    }

    /// Its machine stands still.
    pub(super) fn pause(&self) {
        let Some(postmaster) = self.pause_postmaster() else { return };
        for child in children_of(postmaster) {
            send(child, Signal::STOP);
        }
    }

    /// Its machine goes on.
    pub(super) fn resume(&self) {
        let Some(postmaster) = self.postmaster() else { return };
        for child in children_of(postmaster) {
            send(child, Signal::CONT);
        }
        send(postmaster, Signal::CONT);
    }

    /// The first of its processes stands still, so that it makes no others and does not see them die.
    fn pause_postmaster(&self) -> Option<Pid> {
        let postmaster = self.postmaster()?;
        send(postmaster, Signal::STOP);
        let deadline = Instant::now() + PATIENCE;
        while parent_and_state(postmaster).is_some_and(|(_, state)| !matches!(state, b'T' | b'Z')) {
            assert!(Instant::now() < deadline, "PostgreSQL cannot be paused");
            thread::sleep(Duration::from_millis(1));
        }
        Some(postmaster)
    }

    /// The first of its processes, while it runs. The file with its number outlives one that was killed; the keeper has no other child.
    fn postmaster(&self) -> Option<Pid> {
        let process = Pid::from_raw(self.noted(0)?.parse().ok()?)?;
        let (parent, state) = parent_and_state(process)?;
        (u32::try_from(parent).ok()? == self.keeper.id() && state != b'Z').then_some(process)
    }

    /// Of what it has written about itself, the line of this number, from 0.
    fn noted(&self, line: usize) -> Option<String> {
        let noted = fs::read_to_string(self.folder.join(DATA).join("postmaster.pid")).ok()?;
        noted.lines().nth(line).map(|line| line.trim().to_owned())
    }

    /// A machine that dies takes this with it. Where there is no such program a few bytes stay.
    fn remove_shared_memory(&self) {
        let noted = self.noted(6).unwrap_or_default();
        if let Some(id) = noted.split_whitespace().nth(1) {
            let _ = Command::new("ipcrm").args(["-m", id]).stderr(Stdio::null()).status();
        }
    }
}

/// Who is gone needs no signal.
fn send(process: Pid, signal: Signal) {
    let _ = kill_process(process, signal);
}

/// Each of them is in a group of its own, so they are found by their parent.
fn children_of(parent: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let processes = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    processes
        .filter(|process| parent_and_state(*process).is_some_and(|(of, _)| of == parent.as_raw_pid()))
        .collect()
}

/// The number of a process's parent, and its state as one letter.
fn parent_and_state(process: Pid) -> Option<(i32, u8)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).ok()?;
    // Its name may hold anything, and ends with the last bracket.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = *fields.next()?.as_bytes().first()?;
    Some((fields.next()?.parse().ok()?, state))
}
