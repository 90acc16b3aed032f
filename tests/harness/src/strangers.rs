//! Programs that others wrote, from their registries, exactly as lock files with hashes name them. Each is installed once below `target/`, for
//! all runs; `tests/peers/lock` renews the lock files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use super::process::programs;

/// Packages of Python.
#[derive(Clone, Copy, Debug)]
pub struct PythonPeer {
    name: &'static str,
    locked: &'static str,
}

/// Packages of Node.
#[derive(Clone, Copy, Debug)]
pub struct NodePeer {
    name: &'static str,
    wanted: &'static str,
    locked: &'static str,
}

macro_rules! python {
    ($name:literal) => {
        PythonPeer { name: $name, locked: include_str!(concat!("../../peers/python/", $name, ".txt")) }
    };
}

macro_rules! node {
    ($name:literal) => {
        NodePeer {
            name: $name,
            wanted: include_str!(concat!("../../peers/node/", $name, "/package.json")),
            locked: include_str!(concat!("../../peers/node/", $name, "/package-lock.json")),
        }
    };
}

/// A hub, `Flask-WebSub`, with the web framework and the task queue that it needs.
pub const FLASK_HUB: PythonPeer = python!("hub");
/// The subscriber of `Flask-WebSub`.
pub const FLASK_SUBSCRIBER: PythonPeer = python!("subscriber");
/// A publisher, `django-push`.
pub const DJANGO_PUSH: PythonPeer = python!("publisher");
/// A client of `ResourceSync`.
pub const RESYNC: PythonPeer = python!("resync");
/// The test server of Memento's authors, `memento_test`.
pub const MEMENTO_SERVER: PythonPeer = python!("memento_server");
/// Who judges `OpenAPI`, JSON Schema, Kubernetes' objects and JSON Patch.
pub const JUDGES: PythonPeer = python!("judges");
/// A client of Memento, `memento_client`.
pub const MEMENTO_CLIENT: PythonPeer = python!("memento");
/// A web archive, `pywb`.
pub const PYWB: PythonPeer = python!("archive");
/// A subscriber, `pubsubhubbub`.
pub const NODE_SUBSCRIBER: NodePeer = node!("subscriber");
/// A hub, `@dwk/websub`, with its database.
pub const NODE_HUB: NodePeer = node!("hub");
/// What looks at pages in Chromium: Puppeteer and axe.
pub const BROWSER: NodePeer = node!("browser");

impl PythonPeer {
    /// The environment in which it is installed, with `bin/python`.
    ///
    /// # Panics
    /// When it cannot be installed.
    pub fn installed(&self) -> PathBuf {
        let mut version = Command::new("python3");
        version.args(["-c", "import sys; print(sys.version, sys.prefix)"]);
        cached(&format!("python-{}", self.name), self.locked, version, |folder| self.install(folder))
    }

    /// Makes an environment with these packages, and no others, in this folder.
    ///
    /// # Errors
    /// Says which command failed, and its words.
    pub fn install(&self, environment: &Path) -> Result<(), String> {
        run(Command::new("python3").args(["-m", "venv"]).arg(environment))?;
        let requirements = environment.join("requirements.txt");
        fs::write(&requirements, self.locked)
            .map_err(|error| format!("{}: {error}", requirements.display()))?;
        let mut pip = Command::new(environment.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--requirement"]);
        run(pip.arg(requirements)).map(drop)
    }
}

impl NodePeer {
    /// The folder in which it is installed, with `node_modules`.
    ///
    /// # Panics
    /// When it cannot be installed.
    pub fn installed(&self) -> PathBuf {
        let mut version = Command::new("node");
        version.arg("--version");
        let locks = [self.wanted, self.locked].concat();
        cached(&format!("node-{}", self.name), &locks, version, |folder| {
            for (name, text) in [("package.json", self.wanted), ("package-lock.json", self.locked)] {
                fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))?;
            }
            let mut npm = Command::new("npm");
            run(npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(folder)).map(drop)
        })
    }
}

/// The folder of this lock file and this interpreter, which `make` fills unless that was done before. Who needs it meanwhile, in
/// this run or in another one, waits.
fn cached(
    name: &str,
    locked: &str,
    mut version: Command,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> PathBuf {
    let version =
        run(&mut version).unwrap_or_else(|error| panic!("tests/run installs what is missing: {error}"));
    let hash = Sha256::new().chain_update(locked).chain_update(version).finalize();
    let hash = hash.iter().take(8).fold(0, |number: u64, byte| (number << 8) | u64::from(*byte));
    let profile = programs();
    let cache = profile.parent().expect("a profile is in the target folder").join("cache");
    let folder = cache.join(format!("{name}-{hash:016x}"));
    let done = folder.join("installed");
    fs::create_dir_all(&cache).expect("a folder can be made");
    let turn = File::create(cache.join(format!("{name}.lock"))).expect("a file can be made");
    turn.lock().expect("a file can be locked");
    if !done.exists() {
        // What an earlier run did not finish.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder can be made");
        make(&folder).unwrap_or_else(|error| panic!("{name} is needed from its registry: {error}"));
        fs::write(done, "").expect("a file can be written");
    }
    folder
}

/// What a command says that must succeed.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let [said, errors] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if output.status.success() {
        return Ok(said);
    }
    Err(format!("{command:?} failed: {}: {said}{errors}", output.status))
}
