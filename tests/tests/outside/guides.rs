//! The guides tell no lies: every command that they show is run as it stands there, in their order, and says what they say.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use resync_harness::{HubProcess, Process, Receiver, binary, eventually, free_address, refusing};
use tempfile::tempdir;
use tokio::process::Command;

use super::ours::{files, root};

/// Lines that change what all later ones meet.
const LASTING: [&str; 2] = ["export ", "cd "];
/// What goes on running once it has said what it says; everything else has to end, and well.
const SERVERS: [&str; 5] = [
    "resync-hub --dev",
    "resync-hub --config",
    "resync-hub serve",
    "resync-source serve",
    "resync-destination listen",
];
/// The pages of docs/ that have `$` lines, each of which is followed by a test here.
const FOLLOWED: [&str; 5] = ["getting-started.md", "hub.md", "operations.md", "privacy.md", "storage.md"];
/// The commands of the hub, which its guide for operators calls by their own names in its text.
const OF_THE_HUB: [&str; 12] = [
    "token",
    "topics",
    "subscriptions",
    "deliveries",
    "config",
    "secrets",
    "backup",
    "restore",
    "restored",
    "fsck",
    "drain",
    "log-level",
];

/// A `$` line of a guide, and what it is to say.
struct Step {
    command: String,
    says: Vec<String>,
}

/// The steps of a guide: what stands in its blocks of `console`.
fn steps(guide: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in guide.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step { command: without_comment(command).to_owned(), says: Vec::new() });
            } else {
                assert_ne!(line, "…", "a guide says something of what is said");
                steps.last_mut().expect("a block begins with a command").says.push(line.to_owned());
            }
        }
    }
    steps
}

/// A command without what a guide says of it behind it.
fn without_comment(line: &str) -> &str {
    line.split("  #").next().unwrap().trim_end()
}

/// Whether a line is as a guide shows it, with `…` for whatever comes there.
fn is_as_shown(line: &str, shown: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<_> = parts.collect();
    for (index, part) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        match rest.find(part) {
            Some(_) if is_last => return rest.ends_with(part),
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

/// Somebody who types what a guide says.
struct Reader {
    folder: PathBuf,
    lasting: Vec<String>,
    environment: BTreeMap<String, String>,
    running: Vec<Process>,
}

impl Reader {
    /// In a folder with the documentation, as in a clone of the repository, and with the built programs.
    fn new(folder: &Path) -> Self {
        for name in pages() {
            let page = folder.join("docs").join(&name);
            fs::create_dir_all(page.parent().unwrap()).unwrap();
            fs::copy(root().join("docs").join(&name), page).unwrap();
        }
        let programs = binary("resync-hub").parent().unwrap().display().to_string();
        let path = format!("{programs}:{}", env::var("PATH").unwrap());
        let environment = BTreeMap::from([("PATH".to_owned(), path)]);
        Self { folder: folder.to_owned(), lasting: Vec::new(), environment, running: Vec::new() }
    }

    /// The same, for whom commands are about this hub, whose data lies in `data` in that folder.
    fn of(folder: &Path, hub: &mut HubProcess) -> Self {
        let mut reader = Self::new(folder);
        reader.environment.extend(hub.environment().clone());
        reader.environment.insert("RESYNC_HUB_DATA_DIR".to_owned(), "data".to_owned());
        reader
    }

    async fn follow(&mut self, guide: &str) {
        for step in steps(guide) {
            if LASTING.iter().any(|word| step.command.starts_with(word)) {
                self.lasting.push(step.command);
            } else {
                self.take(&step).await;
            }
        }
    }

    /// Servers are waited for until they have said what they say, and everything else until it has ended.
    async fn take(&mut self, step: &Step) {
        // Only what is said on standard output counts as said.
        let apart = format!("exec 2>>'{}'", self.complaints().display());
        let lines = [&apart].into_iter().chain(&self.lasting).chain([&step.command]);
        let script = lines.map(String::as_str).collect::<Vec<_>>().join("\n");
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(&self.folder).envs(&self.environment);
        for (name, _) in env::vars().filter(|(name, _)| name.starts_with("RESYNC_")) {
            if !self.environment.contains_key(&name) {
                command.env_remove(name);
            }
        }
        let mut process = Process::run(&step.command, &mut command);
        let is_server = SERVERS.iter().any(|server| step.command.starts_with(server));
        let ended_well = is_server || process.wait().await.success();
        let said = process
            .says(|lines| {
                let mut lines = lines.iter();
                step.says.iter().all(|shown| lines.any(|line| is_as_shown(line, shown)))
            })
            .await;
        assert!(
            ended_well && said,
            "$ {}\nsaid:\n{}\nand the guide has:\n{}\ncomplaints of all commands:\n{}",
            step.command,
            process.said(),
            step.says.join("\n"),
            fs::read_to_string(self.complaints()).unwrap_or_default()
        );
        if is_server {
            self.running.push(process);
        }
    }

    fn complaints(&self) -> PathBuf {
        self.folder.join("complaints")
    }
}

/// The pages below `docs/`, by their paths in that folder.
fn pages() -> Vec<String> {
    let pages = files("docs", "md").into_iter();
    pages.map(|page| page.strip_prefix("docs").unwrap().to_str().unwrap().to_owned()).collect()
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The guide with other words for some of its own.
fn with(guide: &str, others: &[(&str, &str)]) -> String {
    others.iter().fold(guide.to_owned(), |guide, (words, other)| {
        assert!(guide.contains(words), "the guide says {words} no more");
        guide.replace(words, other)
    })
}

/// The guide with addresses of which nobody else makes use.
fn at_free_addresses(guide: &str, addresses: &[&str]) -> String {
    addresses
        .iter()
        .fold(guide.to_owned(), |guide, address| with(&guide, &[(*address, &free_address().to_string())]))
}

#[tokio::test]
async fn every_command_of_the_ten_minute_starts_does_what_they_say() {
    let folder = tempdir().unwrap();
    let guide = page("getting-started.md");
    assert_eq!(
        guide.matches("```").count(),
        2 * (guide.matches("```console\n").count() + 1),
        "only the build is not run"
    );
    let used = ["8070", "8071", "8080", "8090", "8091"].map(|port| format!("127.0.0.1:{port}"));
    let mut guide = at_free_addresses(&guide, &used.each_ref().map(String::as_str));
    let mut reader = Reader::new(folder.path());
    let set = |reader: &mut Reader, name: &str| {
        let address = free_address().to_string();
        reader.environment.insert(name.to_owned(), address.clone());
        address
    };
    // What the guide leaves at its default.
    let hub = guide.split("listening on http://").nth(1).unwrap().split('\n').next().unwrap().to_owned();
    reader.environment.insert("RESYNC_HUB_LISTEN".to_owned(), hub);
    set(&mut reader, "RESYNC_HUB_ADMIN_LISTEN");
    let callback = set(&mut reader, "RESYNC_DESTINATION_LISTEN");
    guide = guide.replace("127.0.0.1:8092", &callback);
    assert!(steps(&guide).len() > 30);
    for section in guide.split("\n## ") {
        let began = Instant::now();
        reader.follow(section).await;
        let heading = section.lines().next().unwrap_or_default();
        eprintln!("the commands of \"{heading}\": {:.1} s", began.elapsed().as_secs_f64());
    }
}

/// The programs are built already, so nothing is installed.
#[tokio::test]
async fn every_command_of_the_first_page_does_what_it_says_for_each_role() {
    let folder = tempdir().unwrap();
    let first = fs::read_to_string(root().join("README.md")).unwrap();
    let installed = ["hub", "publisher --features cli", "subscriber-kit --features cli"]
        .map(|member| format!("$ cargo install --locked --path {member}\n"));
    let guide = with(&first, &installed.each_ref().map(|line| (line.as_str(), "")));
    let used = ["8080", "8090"].map(|port| format!("127.0.0.1:{port}"));
    let guide = at_free_addresses(&guide, &used.each_ref().map(String::as_str));
    let mut reader = Reader::new(folder.path());
    // What the page leaves at its default.
    let hub = guide.split("listening on http://").nth(1).unwrap().split('\n').next().unwrap().to_owned();
    reader.environment.insert("RESYNC_HUB_LISTEN".to_owned(), hub.clone());
    for name in ["RESYNC_HUB_ADMIN_LISTEN", "RESYNC_DESTINATION_LISTEN"] {
        reader.environment.insert(name.to_owned(), free_address().to_string());
    }
    assert_eq!(steps(&guide).len(), 8);
    assert_eq!(guide.lines().filter(|line| line.starts_with("$ ")).count(), 8, "every one is followed");
    reader.follow(&guide).await;
    let said = reader.running[0].said();
    let commands = said.lines().filter_map(|line| line.strip_prefix("  resync-"));
    let commands: Vec<_> = commands.map(|rest| rest.replace(&hub, "127.0.0.1:8080")).collect();
    assert_eq!(commands.len(), 5, "a hub to try out says how to go on: {said}");
    let shown: Vec<_> = first.lines().map(without_comment).collect();
    for rest in commands {
        assert!(shown.contains(&format!("$ resync-{rest}").as_str()), "the page has no resync-{rest}");
    }
}

#[tokio::test]
async fn every_command_of_the_operations_guide_can_be_typed_beside_a_running_hub() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_public(&folder.path().join("data"), &[]).await;
    let guide = with(&page("operations.md"), &[("127.0.0.1:8081", &hub.admin_address().to_string())]);
    let mut reader = Reader::of(folder.path(), &mut hub);
    let destination = Receiver::start().await;
    hub.subscribe("https://library.example/framework/", &destination.url("/cb"), &[], 1).await;
    assert!(steps(&guide).len() > 22);
    reader.follow(&guide).await;
}

/// The page starts the hub itself, which then gets the subscriptions of which the page speaks.
#[tokio::test]
async fn every_command_of_the_page_about_operating_a_hub_can_be_typed_in_its_order() {
    const FIRST: &str = "https://library.example/set1/framework/";
    const SECOND: &str = "https://library.example/set2/framework/";
    let folder = tempdir().unwrap();
    fs::copy(root().join("deploy/hub.toml"), folder.path().join("hub.toml")).unwrap();
    let mut hub = HubProcess::prepare_public(&folder.path().join("data"), &[("LIMITS_ENABLED", "false")]);
    let mut reader = Reader::of(folder.path(), &mut hub);
    reader.environment.insert("RESYNC_HUB_LISTEN".to_owned(), hub.address.to_string());
    reader.environment.insert("RESYNC_HUB_PUBLIC_URL".to_owned(), format!("http://{}", hub.address));
    let (well, sick) = (Receiver::start().await, Receiver::start().await);
    let guide = with(
        &page("hub.md"),
        &[
            ("/etc/resync-hub/hub.toml", "hub.toml"),
            ("127.0.0.1:8080", &hub.address.to_string()),
            ("127.0.0.1:8081", &hub.admin_address().to_string()),
            ("https://destination.example", &well.url("")),
            ("/backup/hub-monday", "hub-monday"),
            ("/var/lib/new-hub", "new-hub"),
            ("/usr/share/bash-completion/completions/", ""),
            ("/usr/local/share/man/man1", "man1"),
        ],
    );
    assert!(steps(&guide).len() > 22);
    let (beginning, rest) = guide.split_once("## Denying a subscription").unwrap();
    let (middle, end) = rest.split_once("## Controlling deliveries").unwrap();

    reader.follow(beginning).await;
    for number in 1..=16 {
        hub.subscribe(FIRST, &well.url(&format!("/{number}")), &[], number).await;
    }
    hub.subscribe(SECOND, &sick.url("/17"), &[], 17).await;
    reader.follow(middle).await;
    hub.subscribe(FIRST, &well.url("/again"), &[], 2).await;
    sick.behave(refusing(503));
    assert_eq!(hub.publish(SECOND, "news").await.unwrap().status, 202);
    eventually("somebody is late", async || {
        hub.admin("/api/v1/deliveries/laggards").await.text().contains("\"class\":\"trouble\"")
    })
    .await;
    reader.follow(end).await;
}

#[tokio::test]
async fn every_command_of_the_pages_about_privacy_and_storage_can_be_typed_beside_a_running_hub() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_public(&folder.path().join("data"), &[]).await;
    let mut reader = Reader::of(folder.path(), &mut hub);
    let destination = Receiver::start().await;
    for number in 1..=7 {
        let callback = destination.url(&format!("/{number}"));
        hub.subscribe("https://library.example/framework/", &callback, &[], number).await;
    }
    let callback = ("https://destination.example/callback/5f2c", destination.url("/7"));
    reader.follow(&with(&page("privacy.md"), &[(callback.0, &callback.1)])).await;
    hub.until_subscribed(6).await;
    reader.follow(&page("storage.md")).await;
    let keys = fs::read_to_string(folder.path().join("secrets.keys")).unwrap();
    assert_eq!(keys.lines().count(), 1, "a key");
}

#[test]
fn every_page_with_commands_to_type_is_followed() {
    for name in pages() {
        let shows = page(&name).lines().any(|line| line.trim_start().starts_with("$ "));
        assert_eq!(shows, FOLLOWED.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn the_first_page_leads_to_every_other_one() {
    let first = fs::read_to_string(root().join("README.md")).unwrap();
    let of_docs = fs::read_to_string(root().join("docs/README.md")).unwrap();
    for name in pages() {
        assert!(first.contains(&format!("(docs/{name})")), "README.md does not lead to {name}");
        let is_itself = name == "README.md";
        assert!(
            is_itself || of_docs.contains(&format!("({name})")),
            "docs/README.md does not lead to {name}"
        );
    }
}

/// The command lines that a page shows, without what stands for their output.
fn shown(page: &str) -> Vec<String> {
    let blocks: String = page.split("```").skip(1).step_by(2).collect();
    // What is typed as root, or runs as the service, is no other command for that.
    let lines = blocks.replace("\\\n", " ").replace("\"$(command -v resync-hub)\"", "\nresync-hub");
    let lines = lines.replace("sudo resync-hub", "resync-hub");
    let lines = lines.lines().map(|line| line.trim_start().trim_start_matches("$ "));
    let is_command = |line: &&str| {
        let (program, rest) = line.split_once(' ').unwrap_or_default();
        ["resync-hub", "resync-source", "resync-destination"].contains(&program) && !rest.starts_with('…')
    };
    lines.filter(is_command).map(str::to_owned).collect()
}

/// The command lines in the text of a page: those that begin with a program, and where it is all about the hub, with one of its commands.
fn mentioned(page: &str, of_the_hub: bool) -> Vec<String> {
    let text: String = page.split("```").step_by(2).collect();
    let spans = text.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " "));
    spans
        .filter_map(|span| {
            let (first, rest) = span.split_once(' ')?;
            if ["resync-hub", "resync-source", "resync-destination"].contains(&first) {
                (!rest.starts_with('…')).then_some(span)
            } else {
                (of_the_hub && OF_THE_HUB.contains(&first)).then(|| format!("resync-hub {span}"))
            }
        })
        .collect()
}

/// What a program says of a command about its options: those of a command line that begins so.
fn help(command: &str) -> Option<String> {
    let words: Vec<_> = command
        .split_whitespace()
        .take_while(|word| !word.starts_with(['-', '[', '#', '<', '>', '|', '&']))
        .collect();
    let output =
        std::process::Command::new(binary(words[0])).args(&words[1..]).arg("--help").output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// Everything that looks like an option, up to a comment or to what the shell does with the command.
fn options(command: &str) -> Vec<&str> {
    let ends = [" #", " | ", " || ", " > "].iter().filter_map(|mark| command.find(mark)).min();
    let words = command[..ends.unwrap_or(command.len())]
        .split(|c: char| c.is_whitespace() || "[]|()…'\"=".contains(c));
    words.filter(|word| word.starts_with("--")).collect()
}

#[test]
fn every_command_and_option_that_any_page_shows_is_known_to_its_program() {
    let pages = pages().into_iter().map(|name| root().join("docs").join(name));
    let others =
        ["README.md", "deploy/README.md", "hub/README.md", "publisher/README.md", "subscriber-kit/README.md"];
    let pages = pages.chain(others.map(|name| root().join(name)));
    let mut seen = 0;
    for page in pages.filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(&page).unwrap();
        let in_text = mentioned(&text, page.ends_with("docs/operations.md"));
        for command in shown(&text).into_iter().chain(in_text) {
            let help =
                help(&command).unwrap_or_else(|| panic!("{}: {command}: no such command", page.display()));
            for option in options(&command) {
                assert!(help.contains(option), "{}: {command}: {option} is not known", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 90, "only {seen} commands were seen");
    assert!(!help("resync-hub deliveries laggards").unwrap().contains("--to-nobody"));
}

#[test]
fn what_a_guide_leaves_open_may_be_anything_and_the_rest_may_not() {
    assert!(is_as_shown("in step: 7 resources (1 created)", "in step: …"));
    assert!(is_as_shown("a 1 b 2 c", "a … b … c"));
    assert!(!is_as_shown("a 1 b 2 d", "a … b … c"));
    assert!(!is_as_shown("ready, nearly", "ready"));
    let found = steps(
        "```console\n$ one  # of them\nsays …\n$ two\n```\n```sh\nnot this\n```\n```console\n$ three\n```\n",
    );
    let told: Vec<_> = found.iter().map(|step| (step.command.as_str(), step.says.len())).collect();
    assert_eq!(told, [("one", 1), ("two", 0), ("three", 0)]);
    let page = "Then `resync-hub token\nlist` or `token list --x`, `resync-hub …` and `other x`.\n```\nno `code`\n```\n`deliveries hosts`";
    assert_eq!(mentioned(page, false), ["resync-hub token list"]);
    assert_eq!(
        mentioned(page, true),
        ["resync-hub token list", "resync-hub token list --x", "resync-hub deliveries hosts"]
    );
}
