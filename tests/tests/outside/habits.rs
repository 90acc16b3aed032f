//! One habit for all programs: every command of every program is asked for its help, and held to the table of CONTRIBUTING.md.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use resync_harness::binary;
use tempfile::tempdir;

const PROGRAMS: [&str; 5] =
    ["resync-hub", "resync-source", "resync-destination", "resync-load", "resync-demo"];

/// Names of values, each for one kind of value.
const VALUES: [&str; 29] = [
    "ADDR",
    "ALGORITHM",
    "COMMAND",
    "DIR",
    "DURATION",
    "ENGINE",
    "FILE",
    "FILTER",
    "HOW",
    "ID",
    "KIND",
    "N",
    "NAME",
    "OFFSET",
    "ORIGIN",
    "PATTERN",
    "PID",
    "PLACE",
    "SCENARIO",
    "SET",
    "SHELL",
    "SIZE",
    "TEXT",
    "TIME",
    "TOKEN",
    "TYPE",
    "URI",
    "URL",
    "WHAT",
];

/// Commands that neither list nor report, or whose output has a form of its own already.
const WITHOUT_JSON: [&str; 22] = [
    "resync-hub",
    "resync-hub serve",
    "resync-hub token add",
    "resync-hub token revoke",
    "resync-hub secrets new-key",
    "resync-hub secrets rotate",
    "resync-hub config check",
    "resync-hub config print",
    "resync-hub backup",
    "resync-hub restore",
    "resync-hub restored",
    "resync-source init",
    "resync-source config check",
    "resync-source config print",
    "resync-destination config check",
    "resync-destination config print",
    "resync-load report",
    "resync-load receiver",
    "resync-load figures",
    "resync-demo",
    "completions",
    "man",
];

/// What a reader of the short help needs: anything below another heading is left to the long one.
const SHORT: [&str; 5] = ["Usage", "Commands", "Arguments", "Options", "Global options"];

/// The help of a command.
struct Page {
    /// The program, and the words after it.
    path: Vec<String>,
    long: String,
    short: String,
}

impl Page {
    fn name(&self) -> String {
        self.path.join(" ")
    }

    fn of(path: Vec<String>) -> Self {
        let ask = |flag: &str| {
            let output = run(Command::new(binary(&path[0])).args(&path[1..]).arg(flag));
            assert_eq!(
                (output.status.code(), said(&output.stderr)),
                (Some(0), String::new()),
                "{path:?} {flag}"
            );
            said(&output.stdout)
        };
        Self { long: ask("--help"), short: ask("-h"), path }
    }

    /// The commands below this one.
    fn commands(&self) -> Vec<String> {
        let lines = self.section("Commands").into_iter();
        let names = lines.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
        let names = names.filter_map(|line| line.split_whitespace().next());
        names.filter(|name| *name != "help").map(str::to_owned).collect()
    }

    /// The lines below a heading.
    fn section(&self, heading: &str) -> Vec<&str> {
        let lines = self.long.lines().skip_while(|line| *line != format!("{heading}:")).skip(1);
        lines.take_while(|line| line.is_empty() || line.starts_with(' ')).collect()
    }

    /// The lines that name a flag.
    fn flags(&self) -> Vec<&str> {
        // What is deeper is a description.
        let is_flag = |line: &&str| line.starts_with("  -") || line.starts_with("      --");
        self.long.lines().filter(is_flag).map(str::trim).collect()
    }
}

fn run(command: &mut Command) -> Output {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RESYNC_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).output().unwrap()
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The pages of all commands of all programs.
fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    let mut open: Vec<Vec<String>> = PROGRAMS.iter().map(|program| vec![(*program).to_owned()]).collect();
    while let Some(path) = open.pop() {
        let page = Page::of(path);
        open.extend(page.commands().into_iter().map(|name| [&page.path[..], &[name]].concat()));
        pages.push(page);
    }
    pages
}

/// Beginning with the name of the program, in lower case or with a value.
fn assert_message(program: &str, message: &str) {
    let rest =
        message.strip_prefix(&format!("{program}: ")).unwrap_or_else(|| panic!("{program}: {message}"));
    assert!(
        !rest.starts_with(char::is_uppercase) || rest.starts_with("URL") || rest.starts_with("DNS"),
        "{message}"
    );
}

#[test]
fn every_command_of_every_program_keeps_the_habits() {
    // By program and flag, with the command where it was met first.
    let mut value_names: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut faults = Vec::new();
    let pages = pages();
    assert!(pages.len() > 60, "{}", pages.len());
    for page in &pages {
        let name = page.name();
        let mut hold = |holds: bool, fault: String| {
            if !holds {
                faults.push(format!("{name}: {fault}"));
            }
        };
        let flags = page.flags();
        let is_leaf = page.commands().is_empty();
        // Examples, and headings.
        let examples = page.section("Examples");
        let has_examples = examples.iter().any(|line| line.trim().starts_with(&name));
        hold(has_examples || !is_leaf, "the long help has no example".to_owned());
        let has_codes = page.section("Exit codes").iter().any(|line| line.trim().starts_with("64  "));
        hold(has_codes || page.path.len() > 1, "the long help has no exit codes".to_owned());
        for line in page.short.lines().filter(|line| !line.starts_with(' ') && line.ends_with(':')) {
            hold(SHORT.contains(&line.trim_end_matches(':')), format!("the short help has {line}"));
        }
        hold(page.short.len() <= page.long.len(), "the short help is longer than the long one".to_owned());
        // Flags that mean the same are called the same.
        let globals = page.section("Global options");
        let is_quiet = name == "resync-demo" || globals.iter().any(|line| line.contains("-q, --quiet"));
        hold(is_quiet, "no -q, --quiet below the global options".to_owned());
        for flag in &flags {
            hold(!flag.contains("--dry-run") || flag.contains("-n, --dry-run"), format!("{flag} has no -n"));
        }
        let is_told = page.path.len() > 1 || is_leaf;
        let last = page.path.last().unwrap().as_str();
        let needs_json =
            is_told && is_leaf && !WITHOUT_JSON.contains(&name.as_str()) && !WITHOUT_JSON.contains(&last);
        let has_json = flags.iter().any(|flag| flag.starts_with("--json"));
        hold(!needs_json || has_json, "it lists or reports, and has no --json".to_owned());
        // Values.
        let arguments = page.section("Arguments");
        let arguments = arguments
            .into_iter()
            .filter(|line| line.starts_with("  <") || line.starts_with("  ["))
            .map(str::trim);
        for line in flags.iter().copied().chain(arguments) {
            let Some(value) = value_name(line) else { continue };
            let known = value.split('|').all(|one| VALUES.contains(&one))
                || ["true|false", "NAME: VALUE", "HUB_URL=TOKEN"].contains(&value);
            hold(known, format!("{line}: {value} is the name of no value"));
            if let Some(flag) = line.split([' ', '[']).find(|word| word.starts_with("--")) {
                let before = value_names
                    .entry(format!("{} {flag}", page.path[0]))
                    .or_insert_with(|| (value.to_owned(), name.clone()));
                let is_same = before.0 == value;
                hold(is_same, format!("{flag} takes {value}, and {} in `{}`", before.0, before.1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What stands between the signs of a value: `--log <FILTER>`.
fn value_name(line: &str) -> Option<&str> {
    let begin = line.find('<').or_else(|| line.starts_with('[').then_some(0))? + 1;
    let rest = &line[begin..];
    Some(&rest[..rest.find(['>', ']'])?])
}

#[test]
fn a_command_line_that_cannot_be_understood_ends_with_2_and_says_why_in_the_name_of_the_program() {
    for page in pages() {
        let mut command = Command::new(binary(&page.path[0]));
        let output = run(command.args(&page.path[1..]).arg("--no-such-flag"));
        let message = said(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{}: {message}", page.name());
        assert_message(&page.path[0], &message);
        assert!(message.contains("'--no-such-flag'") && message.contains("--help"), "{message}");
    }
}

#[test]
fn a_value_that_makes_no_sense_is_answered_with_one_that_does() {
    for (line, told) in [
        ("resync-hub deliveries laggards --limit many", "write a whole number, for example 100"),
        ("resync-hub drain --wait --timeout soon", "for example 90s"),
        ("resync-hub --listen localhost", "for example \"127.0.0.1:8080\""),
        ("resync-source serve --listen localhost:8090", "for example 127.0.0.1:8090"),
        ("resync-source check --packages much", "for example 500KB"),
        ("resync-source watch --rescan 10", "for example 90s"),
        ("resync-source build --hash crc", "sha-256"),
        ("resync-destination listen http://a.example/ --into x --listen 8092", "for example 127.0.0.1:8092"),
        ("resync-destination sync http://a.example/ x --max-resource-size big", "for example 500KB"),
        ("resync-destination sync http://a.example/ x --delay 5", "for example 90s"),
        ("resync-destination sync http://a.example/ x --per-host many", "from 1 to 256"),
        ("resync-destination listen http://a.example/ --into x --lease 0s", "for example 10d"),
        ("resync-load fanout --rounds few", "write a whole number"),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let output = run(Command::new(binary(words[0])).args(&words[1..]));
        let message = said(&output.stderr);
        assert!(matches!(output.status.code(), Some(2 | 64)), "{line}: {output:?}");
        assert!(message.contains(told), "{line}: {message}");
        assert_message(words[0], &message);
    }
}

#[test]
fn a_configuration_that_cannot_be_read_or_makes_no_sense_ends_with_64() {
    let folder = tempdir().unwrap();
    let (missing, wrong) = (folder.path().join("missing.toml"), folder.path().join("wrong.toml"));
    fs::write(&wrong, "zzz = 1\n").unwrap();
    for line in [
        "resync-hub serve",
        "resync-hub token list",
        "resync-hub topics",
        "resync-hub deliveries laggards",
        "resync-hub fsck",
        "resync-hub healthcheck",
        "resync-hub config check --quiet",
        "resync-hub config print --quiet",
        "resync-source build",
        "resync-source publish",
        "resync-source status",
        "resync-source forget a.txt",
        "resync-source serve",
        "resync-destination sync http://a.example/ x",
        "resync-source config check",
        "resync-source config print",
        "resync-destination config check",
        "resync-destination config print",
    ] {
        for file in [&missing, &wrong] {
            let words: Vec<_> = line.split(' ').collect();
            let output = run(Command::new(binary(words[0])).args(&words[1..]).arg("--config").arg(file));
            let message = said(&output.stderr);
            assert_eq!(output.status.code(), Some(64), "{line} --config {}: {message}", file.display());
            assert_message(words[0], &message);
            assert!(message.contains(file.to_str().unwrap()), "{line}: {message}");
            let is_named = message.contains(", line 1, column 1: zzz is not a key: ");
            assert!(is_named || file == &missing, "{line}: {message}");
        }
    }
}

#[test]
fn a_configuration_is_named_by_config_and_by_no_bare_word() {
    for program in ["resync-hub", "resync-source", "resync-destination"] {
        for command in ["check", "print"] {
            let output = run(Command::new(binary(program)).args(["config", command, "here.toml"]));
            let message = said(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{program} config {command}: {message}");
            assert_message(program, &message);
            assert!(message.contains("'here.toml'"), "{message}");
        }
    }
}

/// Runs it with a reader who has seen enough before the first line, of both outputs.
fn cut(words: &[&str], folder: &Path) -> Option<i32> {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(binary(words[0]));
    command.args(&words[1..]).current_dir(folder).stdin(Stdio::null());
    command.stdout(writer.try_clone().unwrap()).stderr(writer).status().unwrap().code()
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let folder = tempdir().unwrap();
    fs::create_dir(folder.path().join("papers")).unwrap();
    fs::write(folder.path().join("papers/one.txt"), "one").unwrap();
    for page in pages() {
        for flag in ["--help", "-h"] {
            let words: Vec<_> = page.path.iter().map(String::as_str).chain([flag]).collect();
            assert_eq!(cut(&words, folder.path()), Some(0), "{words:?}");
        }
    }
    for (line, code) in [
        ("resync-source init papers --base-url http://source.example/", 0),
        ("resync-source publish", 0),
        ("resync-source build --json", 0),
        ("resync-source dump", 0),
        ("resync-source status", 0),
        ("resync-source status --json", 0),
        ("resync-source check", 0),
        ("resync-source config check", 0),
        ("resync-source config print", 0),
        ("resync-source completions bash", 0),
        ("resync-source build --config none.toml", 64),
        ("resync-hub config print", 0),
        ("resync-hub config print --default", 0),
        ("resync-hub config check", 0),
        ("resync-hub secrets new-key", 0),
        ("resync-hub token add one --topic-prefix http://a.example/ --data-dir data", 0),
        ("resync-hub token list --data-dir data", 0),
        ("resync-hub completions zsh", 0),
        ("resync-hub topics --data-dir none", 1),
        ("resync-destination config print", 0),
        ("resync-destination completions fish", 0),
        ("resync-destination status --into none", 1),
        ("resync-destination sync ftp://a.example/ x", 64),
        ("resync-load scenarios", 0),
        ("resync-load figures --list", 0),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(cut(&words, folder.path()), Some(code), "{line}");
    }
}

#[test]
fn a_quiet_command_prints_failures_only() {
    for is_first in [true, false] {
        let folder = tempdir().unwrap();
        fs::create_dir(folder.path().join("papers")).unwrap();
        let quiet = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            let mut command = Command::new(binary(words[0]));
            let (before, after) = if is_first { (&["-q"][..], &[][..]) } else { (&[][..], &["-q"][..]) };
            let output = run(command.args(before).args(&words[1..]).args(after).current_dir(folder.path()));
            (output.status.code(), said(&output.stdout), said(&output.stderr))
        };
        for line in [
            "resync-source init papers --base-url http://source.example/",
            "resync-source publish",
            "resync-source build",
            "resync-source check",
            "resync-destination man pages",
            "resync-hub man pages",
            "resync-source config check",
            "resync-hub config check",
        ] {
            let (code, out, err) = quiet(line);
            assert_eq!((code, out + &err), (Some(0), String::new()), "{line}");
        }
        let (code, out, err) = quiet("resync-source build --config none.toml");
        assert!(code == Some(64) && out.is_empty() && err.starts_with("resync-source: "), "{err}");
        let (code, out, _) = quiet("resync-source status --json");
        assert!(code == Some(0) && out.starts_with('{'), "what was asked for is printed: {out}");
        let (code, out, err) = quiet("resync-hub config print");
        assert!(code == Some(0) && out.contains("\ndata_dir = ") && err.is_empty(), "{out}{err}");
        let (code, out, err) = quiet("resync-hub healthcheck --json --data-dir papers");
        assert!(code == Some(1) && out.starts_with('{') && out.contains("\"ready\":false"), "{out}{err}");
    }
}

#[test]
fn a_flag_that_only_the_program_itself_has_is_refused_before_a_command() {
    for line in ["resync-hub --listen 127.0.0.1:1 token list", "resync-hub --dev config check"] {
        let words: Vec<_> = line.split(' ').collect();
        let output = run(Command::new(binary(words[0])).args(&words[1..]));
        let message = said(&output.stderr);
        assert_eq!(
            (output.status.code(), said(&output.stdout)),
            (Some(2), String::new()),
            "{line}: {message}"
        );
        assert_message(words[0], &message);
        assert!(message.contains(words[1]) && message.contains("cannot be used with"), "{line}: {message}");
    }
}

/// What a program says on a terminal.
fn on_a_terminal(line: &str, folder: &Path) -> String {
    let mut command = Command::new("python3");
    command.args(["-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"]);
    let words: Vec<_> = line.split(' ').collect();
    let output = run(command.arg(binary(words[0])).args(&words[1..]).current_dir(folder));
    assert!(output.status.success(), "{line}: {output:?}");
    said(&output.stdout)
}

#[test]
fn a_list_has_headings_on_a_terminal_and_tabs_in_a_pipe() {
    let folder = tempdir().unwrap();
    let token = |words: &[&str]| {
        let mut command = Command::new(binary("resync-hub"));
        let output =
            run(command.arg("token").args(words).args(["--data-dir", "data"]).current_dir(folder.path()));
        assert!(output.status.success(), "{output:?}");
        said(&output.stdout)
    };
    fs::create_dir(folder.path().join("data")).unwrap();
    let list = "resync-hub token list --data-dir data";
    assert_eq!(on_a_terminal(list, folder.path()).trim(), "none");
    assert_eq!(token(&["list"]), "");
    token(&["add", "city library", "--topic-prefix", "http://a.example/"]);
    let shown = on_a_terminal(list, folder.path());
    assert!(shown.starts_with("NAME ") && shown.contains("\r\ncity library  20"), "{shown}");
    let cells = token(&["list"]);
    let cells: Vec<_> = cells.trim().split('\t').collect();
    assert_eq!((cells[0], cells[2], cells[3]), ("city library", "never", "http://a.example/"));
    let json = token(&["list", "--json"]);
    assert!(json.starts_with("[{\"name\":\"city library\""), "{json}");
}

#[test]
fn progress_has_no_bar_before_its_end_is_known() {
    let folder = tempdir().unwrap();
    fs::create_dir(folder.path().join("papers")).unwrap();
    for number in 0..300 {
        fs::write(folder.path().join(format!("papers/{number}.txt")), "x".repeat(4_096)).unwrap();
    }
    let build = "resync-source build papers --base-url http://source.example/ --out site";
    let shown = on_a_terminal(build, folder.path());
    assert!(shown.contains("300 resources, 1.2 MiB") && !shown.contains("0/0"), "{shown}");
    let shown = on_a_terminal("resync-source check site", folder.path());
    let is_early = ["0/1", " 0/s", "[]"].iter().any(|early| shown.contains(early));
    assert!(shown.contains("checking documents, ") && !is_early, "{shown}");
}

#[test]
fn a_server_without_tls_is_said_to_have_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1_024]);
            let _ = stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    for words in [["resync-destination", "discover"], ["resync-source", "check"]] {
        let output = run(Command::new(binary(words[0])).arg(words[1]).arg(&url));
        let told = said(&output.stdout) + &said(&output.stderr);
        assert!(
            output.status.code() == Some(1) && told.contains("write http:// instead of https://"),
            "{told}"
        );
    }
}
