//! Readers of the past that no one here wrote, against our Source: `memento_client`, which finds TimeGates by itself, and `pywb`, a web
//! archive that shows what another archive has. Both come from their registry; without a way there the tests fail.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use fastrand::Rng;
use resync_harness::{Clock, MEMENTO_CLIENT, PYWB, Process, binary, eventually, free_address, request, seed};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

const DAY: i64 = 86_400;
/// Builds of the Source, a day apart.
const BUILDS: i64 = 8;
/// Moments that `memento_client` asks for (acceptance row 1).
const ASKED: usize = 200;

/// One version of a resource.
#[derive(Clone, Debug)]
struct Version {
    /// In seconds of Unix time.
    moment: i64,
    /// `None` of a deletion.
    content: Option<String>,
}

/// A Source in a process of its own that keeps its versions, and what they are by the test's own account.
struct Source {
    folder: TempDir,
    address: SocketAddr,
    versions: BTreeMap<String, Vec<Version>>,
    _process: Process,
}

impl Source {
    /// Eight days of a collection whose files change, go and come back.
    async fn start(rng: &mut Rng) -> Self {
        let folder = TempDir::new().unwrap();
        let address = free_address();
        fs::create_dir(folder.path().join("collection")).unwrap();
        let toml = format!(
            "out = \"site\"\nbase_url = \"http://{address}/\"\ndirectory = \"collection\"\n[versions]\nkeep = \"always\"\n"
        );
        fs::write(folder.path().join("source.toml"), toml).unwrap();
        let clock = Clock::new(folder.path());
        let mut versions: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for day in 0..BUILDS {
            let changed = change(&folder.path().join("collection"), day, rng);
            clock.jump(day * DAY);
            let before = now() + day * DAY;
            build(folder.path(), &clock).await;
            let window = before..=now() + day * DAY;
            for (name, content) in changed {
                versions.entry(name).or_default().push((window.clone(), content));
            }
        }
        let site = folder.path().join("site").display().to_string();
        let arguments = ["serve", "--out", &site, "--listen", &address.to_string()];
        let mut process = Process::start("resync-source", &arguments, &HashMap::new());
        process.line("http://").await;
        let mut known = BTreeMap::new();
        for (name, windows) in versions {
            let moments = moments(address, &format!("http://{address}/{name}")).await;
            assert_eq!(moments.len(), windows.len(), "{name}");
            let versions: Vec<_> = moments
                .into_iter()
                .zip(windows)
                .map(|(moment, (window, content))| {
                    assert!(window.contains(&moment), "{name}: {moment} is not in {window:?}");
                    Version { moment, content }
                })
                .collect();
            known.insert(name, versions);
        }
        Self { folder, address, versions: known, _process: process }
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    fn prefix(&self) -> String {
        self.url("resync/versions/")
    }
}

/// Changes some files, removes some and makes some; says what became of which.
fn change(collection: &Path, day: i64, rng: &mut Rng) -> Vec<(String, Option<String>)> {
    let mut changed = Vec::new();
    for number in 0..10 {
        let name = format!("{number}.txt");
        let path = collection.join(&name);
        let is_there = path.exists();
        // All of them begin, and each has a second version on the second day.
        let fate = if day < 2 { 0 } else { rng.u8(0..4) };
        match fate {
            0 => {
                let content = format!("{name} on day {day}, {}", rng.u64(..));
                fs::write(path, &content).unwrap();
                changed.push((name, Some(content)));
            }
            1 if is_there => {
                fs::remove_file(path).unwrap();
                changed.push((name, None));
            }
            _ => {}
        }
    }
    changed
}

async fn build(folder: &Path, clock: &Clock) {
    let mut command = Command::new(binary("resync-source"));
    command.arg("build").arg("--config").arg(folder.join("source.toml")).envs(clock.environment());
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

async fn get(address: SocketAddr, path: &str) -> resync_harness::Answer {
    let ask = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    request(address, ask.as_bytes()).await.unwrap()
}

/// The moments of a TimeMap.
async fn moments(address: SocketAddr, original: &str) -> Vec<i64> {
    let answer = get(address, &format!("/resync/versions/timemap/link/{original}")).await;
    assert_eq!(answer.status, 200, "{original}");
    dates(&answer.text()).collect()
}

/// The dates of the mementos in the text of a TimeMap.
fn dates(text: &str) -> impl Iterator<Item = i64> {
    text.lines().filter(|line| line.contains("memento\"; datetime=\"")).map(|line| {
        let date = line.split("datetime=\"").nth(1).unwrap().split('"').next().unwrap();
        let date: resync_core::memento::HttpDate = date.parse().unwrap();
        date.datetime().unix_millis() / 1000
    })
}

/// 14 digits.
fn digits(moment: i64) -> String {
    let moment = resync_core::datetime::DateTime::from_unix_millis(moment * 1000).unwrap();
    moment.to_string().chars().filter(char::is_ascii_digit).collect()
}

/// A stranger's program, without a way round by a proxy.
fn stranger(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.to_lowercase().contains("proxy")) {
        command.env_remove(name);
    }
    command
}

/// Which version was there at a moment, by looking at each; before the first it is the first.
fn closest(versions: &[Version], asked: i64) -> usize {
    versions.iter().rposition(|version| version.moment <= asked).unwrap_or(0)
}

#[tokio::test]
async fn mem021_to_mem026_mem028_memento_client_finds_the_time_gate_and_the_versions_of_200_moments() {
    let mut rng = Rng::with_seed(seed());
    let source = Source::start(&mut rng).await;
    let names: Vec<&String> = source.versions.keys().collect();
    let (begin, end) = (now() - 3 * DAY, now() + (BUILDS + 3) * DAY);
    let questions: Vec<(&String, i64)> = (0..ASKED)
        .map(|number| {
            let name = names[rng.usize(..names.len())];
            // At first the very seconds of versions.
            let versions = &source.versions[name];
            let exact = versions[rng.usize(..versions.len())].moment;
            (name, if number < 20 { exact } else { rng.i64(begin..end) })
        })
        .collect();
    let lines: Vec<String> =
        questions.iter().map(|(name, asked)| format!("{} {asked}\n", source.url(name))).collect();
    let asked = source.folder.path().join("asked");
    fs::write(&asked, lines.concat()).unwrap();
    let output = stranger(MEMENTO_CLIENT.installed().join("bin/python"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/memento_reader.py"))
        .stdin(Stdio::from(File::open(asked).unwrap()))
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), ASKED);
    for ((name, asked), answer) in questions.into_iter().zip(answers) {
        agrees(&source, name, asked, &answer);
    }
}

/// What `memento_client` found is what the test knows.
fn agrees(source: &Source, name: &str, asked: i64, answer: &Value) {
    let (url, prefix, versions) = (source.url(name), source.prefix(), &source.versions[name]);
    assert_eq!(answer["original"], url);
    assert_eq!(answer["timegate"], format!("{prefix}{url}"));
    assert!(answer["is_timegate"] == true && answer["is_memento"] == true, "{answer}");
    let chosen = closest(versions, asked);
    let last = versions.len() - 1;
    let expected = [
        ("closest", Some(chosen)),
        ("first", Some(0)),
        ("last", Some(last)),
        ("prev", chosen.checked_sub(1)),
        ("next", Some(chosen + 1).filter(|next| *next <= last)),
    ];
    let expected: BTreeMap<&str, Value> = expected
        .into_iter()
        .filter_map(|(relation, index)| {
            let moment = versions[index?].moment;
            let uri = format!("{prefix}{}/{url}", digits(moment));
            Some((relation, serde_json::json!([uri, moment])))
        })
        .collect();
    let found: BTreeMap<&str, Value> = answer["mementos"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(relation, memento)| (relation.as_str(), memento.clone()))
        .collect();
    assert_eq!(found, expected, "{url} at {asked}");
}

#[tokio::test]
async fn mem020_mem022_mem024_mem028_mem031_mem033_pywb_shows_each_version_byte_for_byte_and_every_moment() {
    let mut rng = Rng::with_seed(seed());
    let source = Source::start(&mut rng).await;
    let archive = source.folder.path().join("archive");
    fs::create_dir(&archive).unwrap();
    let config = format!("framed_replay: false\ncollections:\n  past: memento+{}\n", source.prefix());
    fs::write(archive.join("config.yaml"), config).unwrap();
    let address = free_address();
    let mut command = stranger(PYWB.installed().join("bin/wayback"));
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]).current_dir(&archive);
    let _pywb = Process::run("wayback", &mut command);
    eventually("pywb listens", async || tokio::net::TcpStream::connect(address).await.is_ok()).await;

    for (name, versions) in &source.versions {
        let url = source.url(name);
        let map = get(address, &format!("/past/timemap/link/{url}")).await;
        let shown: BTreeSet<i64> = dates(&map.text()).collect();
        let known: BTreeSet<i64> = versions.iter().map(|version| version.moment).collect();
        assert_eq!(shown, known, "{url}");
        for (index, version) in versions.iter().enumerate() {
            // At its second, and soon after: pywb shows the nearest of those that the TimeGate names.
            let next = versions.get(index + 1).map_or(version.moment + DAY, |next| next.moment);
            let soon = version.moment + (next - version.moment) / 3;
            for asked in [version.moment, rng.i64(version.moment..=soon)] {
                let shown = get(address, &format!("/past/{}id_/{url}", digits(asked))).await;
                match &version.content {
                    Some(content) => {
                        assert_eq!((shown.status, &shown.text()), (200, content), "{url} at {asked}");
                    }
                    None => assert_eq!(shown.status, 410, "{url} at {asked}"),
                }
            }
        }
    }
}
