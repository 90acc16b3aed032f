//! `resync-load copy`: a first copy of a Source behind nginx, by `resync-destination` and by the Python client `resync`, in turns.

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use resync_publisher::{BaseUrl, Settings, build};
use serde::Serialize;
use serde_json::Value;

use super::{Failure, median};
use resync_harness::tree::differences;
use resync_harness::{RESYNC, binary};

/// How long nginx may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Files of the Source.
    pub files: usize,
    /// Bytes of each, at most; half of that on average.
    pub bytes: usize,
    /// Copies that each client makes.
    pub rounds: usize,
    /// The program nginx.
    pub nginx: PathBuf,
}

/// What came out. Each copy was compared byte for byte.
#[derive(Clone, Debug, Serialize)]
pub struct CopyReport {
    /// Files of each copy.
    pub files: usize,
    /// Bytes of each copy.
    pub bytes: u64,
    /// Seconds of each copy by `resync-destination`, SHA-256 checked.
    pub ours: Vec<f64>,
    /// Seconds of each copy by the Python client, as it is by default: no hash checked.
    pub python: Vec<f64>,
    /// Seconds in which `resync-destination` then found that nothing had changed.
    pub again: f64,
    /// The Python client's middle one by the middle one of `resync-destination`.
    pub times_faster: f64,
}

/// Measures copies of a Source whose files are in `folder`.
///
/// # Errors
/// Where nginx or the Python client cannot be had, or a copy is not the same.
pub fn copy(plan: &Copy, folder: &Path) -> Result<CopyReport, Failure> {
    let folder = folder.canonicalize()?;
    let collection = folder.join("collection");
    let bytes = fill(&collection, plan)?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let url = format!("http://127.0.0.1:{port}/");
    let site = folder.join("site");
    build(&Settings::new(&collection, BaseUrl::parse(&url)?), &site)?;
    let _nginx = Nginx::start(&plan.nginx, &folder, port)?;
    let client = install(&folder)?;
    let list = list_of(&url)?;

    let (mut ours, mut python, mut again) = (Vec::new(), Vec::new(), 0.0);
    for round in 0..plan.rounds.max(1) {
        let (here, there) = (folder.join(format!("ours-{round}")), folder.join(format!("python-{round}")));
        let mut destination = Command::new(binary("resync-destination"));
        destination.args(["sync", &url]).arg(&here).args(["--baseline", "list"]);
        ours.push(timed(&mut destination)?);
        again = timed(&mut destination)?;
        std::fs::create_dir(&there)?;
        let mut stranger = Command::new(&client);
        stranger.args(["--baseline", "--sitemap", &list]);
        stranger.arg(format!("{url}={}", there.display())).current_dir(&folder);
        python.push(timed(&mut stranger)?);
        for copy in [&here, &there] {
            let found = differences(&collection, copy)?;
            if !found.is_empty() {
                return Err(format!("{} is not the same: {found:?}", copy.display()).into());
            }
            // It stays until the end: some file systems are slow to make files soon after many were removed.
        }
    }
    let times_faster = median(python.iter().copied()) / median(ours.iter().copied());
    Ok(CopyReport { files: plan.files, bytes, ours, python, again, times_faster })
}

fn fill(collection: &Path, plan: &Copy) -> Result<u64, Failure> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut all = 0;
    for number in 0..plan.files {
        let place = collection.join(format!("{}/{number}.bin", number % 50));
        std::fs::create_dir_all(place.parent().unwrap_or(collection))?;
        let length = random.usize(0..=plan.bytes);
        let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
        std::fs::write(place, &content)?;
        all += content.len() as u64;
    }
    Ok(all)
}

/// Where the Resource List is.
fn list_of(url: &str) -> Result<String, Failure> {
    let mut discover = Command::new(binary("resync-destination"));
    let output = discover.args(["discover", url, "--no-sizes", "--json"]).output()?;
    let told: Value = serde_json::from_slice(&output.stdout)?;
    Ok(told["sets"][0]["resource_list"].as_str().ok_or("the Source has no Resource List")?.to_owned())
}

/// A program of strangers from its registry.
fn install(folder: &Path) -> Result<PathBuf, Failure> {
    let environment = folder.join("python");
    RESYNC.install(&environment)?;
    Ok(environment.join("bin/resync-sync"))
}

/// How many seconds a command takes; its last words where it fails.
fn timed(command: &mut Command) -> Result<f64, Failure> {
    let begun = Instant::now();
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(begun.elapsed().as_secs_f64());
    }
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Err(format!("{command:?} ended with {}: {}", output.status, said.concat()).into())
}

/// Serves the documents, and what is no document from the collection.
struct Nginx(Child);

impl Nginx {
    fn start(program: &Path, folder: &Path, port: u16) -> Result<Self, Failure> {
        let root = folder.display();
        let config = format!(
            "daemon off;\npid {root}/nginx.pid;\nerror_log {root}/nginx.log;\nworker_processes 1;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n  access_log off;\n  default_type application/xml;\n  client_body_temp_path {root}/t1;\n  proxy_temp_path {root}/t2;\n\
             \x20 fastcgi_temp_path {root}/t3;\n  uwsgi_temp_path {root}/t4;\n  scgi_temp_path {root}/t5;\n\
             \x20 server {{\n    listen 127.0.0.1:{port};\n    location / {{ root {root}/site; try_files $uri @files; }}\n\
             \x20   location @files {{ root {root}/collection; }}\n  }}\n}}\n"
        );
        let path = folder.join("nginx.conf");
        File::create(&path)?.write_all(config.as_bytes())?;
        // Whose files these are, also where it is started by the owner of the machine.
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let mut command = Command::new(program);
        command.arg("-c").arg(&path).arg("-p").arg(folder).args(["-g", user]);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let started = Self(child.map_err(|error| format!("{} cannot be run: {error}", program.display()))?);
        let begun = Instant::now();
        while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if begun.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(folder.join("nginx.log")).unwrap_or_default();
                return Err(format!("nginx does not answer: {log}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(started)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            // It ends its workers by itself; one that is gone is no trouble.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}
