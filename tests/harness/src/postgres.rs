//! A plain PostgreSQL server for tests: on a socket in a temporary folder, as an unprivileged user, for as long as the test program runs.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use rustix::process::geteuid;
use tempfile::TempDir;

use super::{PATIENCE, left_out};

/// Where Debian has the servers, each in a folder with the number of its version.
const INSTALLED: &str = "/usr/lib/postgresql";
/// The number of `nobody`, and of its group: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;
/// Everybody who may open the socket is this user of the database.
const USER: &str = "postgres";
/// The database that every server has.
const FIRST: &str = "postgres";
/// A part of the socket's name; nothing listens at a port.
const PORT: u16 = 5_432;
/// Many small databases are made, and many connections are open at once. A hub refuses a server that does not sync.
const SETTINGS: [&str; 10] = [
    "listen_addresses=",
    "fsync=on",
    "wal_level=minimal",
    "max_wal_senders=0",
    "max_wal_size=128MB",
    "max_connections=400",
    "shared_buffers=32MB",
    "max_locks_per_transaction=256",
    // Its compiler may not be installed.
    "jit=off",
    "log_min_messages=warning",
];
/// Nothing is to survive the machine, and to sync costs nothing here …
const MEMORY: &str = "/dev/shm";
/// … where so many bytes are free.
const ROOM: u64 = 1024 * 1024 * 1024;
/// Runs the server until standard input ends, which is when whoever has started this has ended, however that came. Then it is killed, and
/// its folder removed.
const KEEPER: &str = r#"trap '' INT TERM HUP
folder=$0
"$@" >"$folder/log" 2>&1 </dev/null &
server=$!
read -r _
kill -QUIT "$server"
wait "$server"
rm -rf "$folder""#;

/// A running server. It ends with the test program, also where that is killed.
#[derive(Debug)]
pub struct Postgres {
    folder: PathBuf,
    keeper: Child,
    /// The server ends when this is closed.
    _life: ChildStdin,
    databases: AtomicU32,
}

impl Postgres {
    /// The server of this test program, started when it is needed for the first time; `None` where there is no PostgreSQL, which is said.
    ///
    /// # Panics
    /// When it is there and does not start.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Postgres>> = OnceLock::new();
        SHARED
            .get_or_init(|| {
                let started = Programs::find().map(|programs| Self::start(&programs));
                started.inspect_err(|why| left_out("the store in PostgreSQL", why)).ok()
            })
            .as_ref()
    }

    fn start(programs: &Programs) -> Self {
        let folder = TempDir::with_prefix_in("postgres-", place()).expect("a temporary folder can be made");
        if programs.as_nobody {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may give a folder away");
        }
        let data = folder.path().join("data");
        let made = programs
            .command("initdb")
            .current_dir(folder.path())
            .arg("--pgdata")
            .arg(&data)
            .args(["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync"])
            .output()
            .expect("it was there a moment ago");
        assert!(made.status.success(), "initdb failed:\n{}", said(&made));
        // From now on the keeper removes it.
        let folder = folder.keep();
        let server = programs.command("postgres");
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER]).arg(&folder).arg(server.get_program()).args(server.get_args());
        keeper.arg("-D").arg(&data).arg("-k").arg(&folder).args(["-p", &PORT.to_string()]);
        for setting in SETTINGS {
            keeper.args(["-c", setting]);
        }
        // In a group of its own: what a terminal sends to the test program does not reach it.
        keeper.current_dir(&folder).process_group(0);
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut keeper = keeper.spawn().expect("there is a shell");
        let life = keeper.stdin.take().expect("standard input is piped");
        let server = Self { folder, keeper, _life: life, databases: AtomicU32::new(0) };
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

    /// A new, empty database.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn database(&'static self) -> Database {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(FIRST, &format!("CREATE DATABASE {name}")).expect("a database can be made");
        Database { server: self, name }
    }

    /// The folder in which its files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The number of the process that keeps it, and ends with it.
    pub fn keeper(&self) -> u32 {
        self.keeper.id()
    }

    /// Carries out statements in a database, and returns the rows that they give as text.
    ///
    /// # Errors
    /// What the server says against it, or why it says nothing.
    pub fn sql(&self, database: &str, statements: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        let socket = self.folder.join(format!(".s.PGSQL.{PORT}"));
        let stream = UnixStream::connect(socket).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        });
        let mut session = Session(stream.map_err(|error| error.to_string())?);
        session.begin(database)?;
        session.carry_out(statements)
    }
}

/// A database of its own, which is removed with whatever is connected to it when this is dropped.
#[derive(Debug)]
pub struct Database {
    server: &'static Postgres,
    name: String,
}

impl Database {
    /// Where it is, for `[store] url`.
    pub fn url(&self) -> String {
        let folder = self.server.folder.display().to_string().replace('/', "%2F");
        format!("postgres://{USER}@{folder}:{PORT}/{}", self.name)
    }

    /// As [`Postgres::sql`].
    ///
    /// # Errors
    /// What the server says against it.
    pub fn sql(&self, statements: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        self.server.sql(&self.name, statements)
    }

    /// The folder with its tables, as they are now.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn files(&self) -> PathBuf {
        let number = "SELECT oid FROM pg_database WHERE datname = current_database()";
        let found = self.sql("CHECKPOINT").and_then(|_| self.sql(number)).expect("a running server answers");
        let number = found.into_iter().flatten().flatten().next().expect("the database is there");
        self.server.folder.join("data/base").join(number)
    }

    /// The server that it is in.
    pub fn server(&self) -> &'static Postgres {
        self.server
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let removed = self.server.sql(FIRST, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        if let Err(error) = removed {
            eprintln!("the database {} stays: {error}", self.name);
        }
    }
}

/// The server's programs, and how they are run.
struct Programs {
    folder: PathBuf,
    /// We are root, and PostgreSQL may not be.
    as_nobody: bool,
}

impl Programs {
    /// Why there are none that can be run is the error.
    fn find() -> Result<Self, String> {
        let path = env::var_os("PATH").unwrap_or_default();
        let on_path = env::split_paths(&path).collect::<Vec<_>>();
        let folder = on_path
            .into_iter()
            .chain(installed())
            .find(|folder| ["initdb", "postgres"].iter().all(|program| folder.join(program).is_file()));
        let folder = folder.ok_or_else(|| {
            format!("there is no postgres on PATH or below {INSTALLED} (Debian's package is postgresql)")
        })?;
        let programs = Self { folder, as_nobody: geteuid().is_root() };
        let tried = programs.command("postgres").arg("--version").current_dir("/").output();
        match tried {
            Ok(output) if output.status.success() => Ok(programs),
            Ok(output) => Err(format!("{} cannot be run: {}", programs.folder.display(), said(&output))),
            Err(error) => Err(format!("{} cannot be run: {error}", programs.folder.display())),
        }
    }

    fn command(&self, program: &str) -> Command {
        let program = self.folder.join(program);
        if !self.as_nobody {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        let nobody = NOBODY.to_string();
        command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups", "--"]).arg(program);
        command
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

/// As much of the protocol as it takes to say something to a server that trusts everybody: the judge shares no client with the hub.
struct Session(UnixStream);

/// The version of the protocol.
const PROTOCOL: u32 = 196_608;

impl Session {
    fn begin(&mut self, database: &str) -> Result<(), String> {
        let parameters = format!("user\0{USER}\0database\0{database}\0\0");
        self.send(&[], &[&PROTOCOL.to_be_bytes(), parameters.as_bytes()].concat())?;
        self.until_ready().map(drop)
    }

    fn carry_out(&mut self, statements: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        self.send(b"Q", &[statements.as_bytes(), &[0]].concat())?;
        self.until_ready()
    }

    fn send(&mut self, kind: &[u8], content: &[u8]) -> Result<(), String> {
        let length = u32::try_from(content.len() + 4).map_err(|error| error.to_string())?;
        let message = [kind, &length.to_be_bytes(), content].concat();
        self.0.write_all(&message).map_err(|error| error.to_string())
    }

    /// Everything that is said until the server waits for more.
    fn until_ready(&mut self) -> Result<Vec<Vec<Option<String>>>, String> {
        let (mut rows, mut failed) = (Vec::new(), None);
        loop {
            let message = self.message();
            // After some errors it hangs up.
            let (kind, content) = message.map_err(|error| failed.take().unwrap_or(error.to_string()))?;
            match kind {
                b'E' => failed = failed.or_else(|| Some(reason(&content))),
                b'D' => rows.push(row(&content).ok_or("a row is cut off")?),
                b'Z' => return failed.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_be_bytes(length).saturating_sub(4);
        let mut content = vec![0; length as usize];
        self.0.read_exact(&mut content)?;
        Ok((kind, content))
    }
}

/// What an error says: of its parts that of the kind M.
fn reason(content: &[u8]) -> String {
    let parts = content.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let mut words = parts.filter_map(|part| part.strip_prefix('M').map(str::to_owned));
    words.next().unwrap_or_else(|| "an error without words".to_owned())
}

fn row(content: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = content.split_first_chunk()?;
    let mut columns = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, behind) = rest.split_first_chunk()?;
        rest = behind;
        columns.push(match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                let (text, behind) = rest.split_at_checked(length)?;
                rest = behind;
                Some(String::from_utf8_lossy(text).into_owned())
            }
            // Nothing is there.
            Err(_) => None,
        });
    }
    Some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_there_until_it_is_dropped() {
        let Some(server) = Postgres::shared() else { return };
        let (one, other) = (server.database(), server.database());
        one.sql("CREATE TABLE kept (word text); INSERT INTO kept VALUES ('yes'), (NULL)").unwrap();
        let kept = one.sql("SELECT word, 7 FROM kept ORDER BY word NULLS LAST").unwrap();
        let seven = Some("7".to_owned());
        assert_eq!(kept, [vec![Some("yes".to_owned()), seven.clone()], vec![None, seven]]);
        let error = other.sql("SELECT word FROM kept").unwrap_err();
        assert!(error.contains("kept"), "{error}");
        let name = one.name.clone();
        drop(one);
        assert!(server.sql(&name, "SELECT 1").unwrap_err().contains(&name));
    }

    #[test]
    fn a_server_ends_with_whoever_has_started_it_and_leaves_nothing() {
        let Ok(programs) = Programs::find() else { return };
        let Postgres { folder, mut keeper, _life: life, .. } = Postgres::start(&programs);
        assert!(folder.exists());
        drop(life);
        keeper.wait().unwrap();
        assert!(!folder.exists());
    }
}
