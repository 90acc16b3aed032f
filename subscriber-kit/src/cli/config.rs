//! The configuration file. Each flag is a key, and is described only once, by the command line: the values of the file become the
//! defaults of the flags.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command};
use resync_common::config::{self, ConfigError, Keys, Source, plain};
use resync_common::habits::{self, name};
use toml::Value;

use super::args::{self, Cli, ONE_RUN};

/// Flags that are not keys, besides [`ONE_RUN`].
const NO_KEYS: [&str; 3] = ["config", "help", "version"];

/// The command line, completed by the configuration file. Ends the program with a message if it is wrong, and after `--help`.
pub(crate) fn command_line() -> Result<Cli, ConfigError> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let mut command = args::command();
    if let Some(path) = named(&arguments) {
        command = with_file(command, &path)?;
    }
    let mut cli: Cli = habits::parse(command);
    if let args::Command::Sync { at: Some(_), copy, kept, incremental, .. } = &mut cli.command {
        // What the file or the environment says of these is for the runs that they make sense for.
        *incremental &= is_on_command_line(&arguments, "incremental");
        kept.versions = kept.versions.take().filter(|_| is_on_command_line(&arguments, "versions"));
        copy.selection.prefer.retain(|_| is_on_command_line(&arguments, "prefer"));
    }
    Ok(cli)
}

/// Whether a flag of the command is among the arguments.
fn is_on_command_line(arguments: &[OsString], flag: &str) -> bool {
    let matches = args::command().ignore_errors(true).try_get_matches_from(arguments).ok();
    let source = matches.as_ref().and_then(|all| all.subcommand()?.1.value_source(flag));
    source == Some(ValueSource::CommandLine)
}

/// The file that the command line or the environment names. Other mistakes in them are reported later.
fn named(arguments: &[OsString]) -> Option<PathBuf> {
    let matches = args::command().ignore_errors(true).try_get_matches_from(arguments).ok()?;
    matches.get_one::<PathBuf>("config").cloned()
}

/// A command with the values of the file as defaults.
fn with_file(command: Command, path: &Path) -> Result<Command, ConfigError> {
    let text = config::read(path)?;
    let source = Source::new(&text);
    let completed = source.parse().map(|table| {
        let file = Keys::new(&source, &table);
        let values = values(&file, &keys(&command));
        // Without the environment, whose mistakes are not the file's.
        let alone = |arg: Arg| arg.env(Resettable::Reset);
        let bare = command.clone().mut_args(alone).mut_subcommands(|sub| sub.mut_args(alone));
        check(&with_values(bare, &values), &file);
        file.finish_with("`resync-destination config print` shows all keys", of_one_run);
        with_values(command, &values)
    });
    source.settle(completed, path)
}

/// Whether other users may read a file that contains a secret.
#[cfg(unix)]
pub(crate) fn is_exposed(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let is_open = path.metadata().is_ok_and(|found| found.permissions().mode() & 0o077 != 0);
    let known = keys(&args::command());
    let is_secret = |key: &String| known.iter().any(|known| is_secret(&known.arg) && known.name() == *key);
    is_open && config::table(path).is_ok_and(|table| table.keys().any(is_secret))
}

/// Unknown on this system.
#[cfg(not(unix))]
pub(crate) fn is_exposed(_: &Path) -> bool {
    false
}

/// The values of each key, as text.
type Values = BTreeMap<String, Vec<String>>;

fn values(file: &Keys<'_, '_>, known: &[Key]) -> Values {
    let texts = |key: &Key| {
        let what = if key.takes_several { "a value or a list of values" } else { "one value" };
        file.read(&key.name(), what, |value| match value.as_array() {
            Some(all) if key.takes_several => all.iter().map(|one| plain(one.get_ref())).collect(),
            _ => Some(vec![plain(value)?]),
        })
    };
    known.iter().filter_map(|key| Some((key.name(), texts(key)?))).collect()
}

fn of_one_run(key: &str) -> Option<String> {
    let flag = key.replace('_', "-");
    ONE_RUN.contains(&key).then(|| format!("it is for one run, so give the flag --{flag}"))
}

fn with_values(command: Command, values: &Values) -> Command {
    command.mut_args(|arg| settled(arg, values)).mut_subcommands(|sub| {
        // All arguments before a required one are required too.
        let places: Vec<&Arg> = sub.get_positionals().collect();
        let last = places.iter().rposition(|place| value(place, values).is_none()).unwrap_or(0);
        let given: Vec<String> = places[..last].iter().map(|place| name(place)).collect();
        sub.mut_args(|arg| if given.contains(&name(&arg)) { arg } else { settled(arg, values) })
    })
}

fn settled(arg: Arg, values: &Values) -> Arg {
    match value(&arg, values) {
        Some(value) => arg.required(false).default_values(value),
        None => arg,
    }
}

/// The value of a flag in the file. A list is for other commands if this one takes only one value.
fn value<'v>(arg: &Arg, values: &'v Values) -> Option<&'v Vec<String>> {
    values.get(&name(arg)).filter(|value| value.len() == 1 || takes_several(arg))
}

/// Tries the values with every command.
fn check(command: &Command, file: &Keys<'_, '_>) {
    for sub in command.get_subcommands() {
        let result = command.clone().try_get_matches_from(["resync-destination", sub.get_name()]);
        // What is missing may be on the command line.
        let is_wrong = |error: &clap::Error| {
            matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation)
        };
        let Some(error) = result.err().filter(is_wrong) else { continue };
        let flag = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
        let long = flag.trim_start_matches('-').split([' ', '=', '[']).next().unwrap_or_default();
        let key = long.replace('-', "_");
        let message = error.to_string();
        let said = message.lines().next().unwrap_or_default().trim_start_matches("error: ");
        if sub.get_arguments().any(|arg| is_secret(arg) && name(arg) == key) {
            file.wrong(&key, format!("{key} has an invalid value"));
        } else {
            file.wrong(&key, said);
        }
    }
}

/// A setting, as the first command that has it describes it.
struct Key {
    arg: Arg,
    /// For some command.
    takes_several: bool,
}

fn is_secret(arg: &Arg) -> bool {
    arg.is_hide_env_values_set()
}

fn takes_several(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// All settings, in the order of the help.
fn keys(command: &Command) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    let of_commands = command.get_subcommands().flat_map(Command::get_arguments);
    for arg in command.get_arguments().chain(of_commands) {
        let name = name(arg);
        if NO_KEYS.contains(&&*name) || ONE_RUN.contains(&&*name) {
            continue;
        }
        match keys.iter_mut().find(|key| key.name() == name) {
            Some(key) => key.takes_several |= takes_several(arg),
            None => keys.push(Key { arg: arg.clone(), takes_several: takes_several(arg) }),
        }
    }
    keys
}

/// Every key with its meaning and value, as a usable file.
pub(crate) fn print(path: Option<&Path>) -> Result<String, ConfigError> {
    let plain = keys(&args::command());
    let command = path.map_or(Ok(args::command()), |path| with_file(args::command(), path))?;
    let configured = keys(&command);
    let mut lines = Vec::new();
    for (plain, configured) in plain.iter().zip(&configured) {
        let in_environment = plain.arg.get_env().and_then(std::env::var_os);
        let in_environment = in_environment.map(|text| vec![text.to_string_lossy().into_owned()]);
        let is_set = in_environment.is_some() || configured.default() != plain.default();
        let value = plain.written(&in_environment.unwrap_or_else(|| configured.default()));
        let help = plain.arg.get_help().map(ToString::to_string).unwrap_or_default();
        lines.push(format!("# {}", help.replace('\n', " ")));
        let mark = if is_set && !is_secret(&plain.arg) { "" } else { "# " };
        lines.push(format!("{mark}{} = {value}\n", plain.name()));
    }
    Ok(lines.join("\n"))
}

impl Key {
    fn name(&self) -> String {
        name(&self.arg)
    }

    fn default(&self) -> Vec<String> {
        self.arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect()
    }

    fn written(&self, values: &[String]) -> String {
        let text = |value: &String| Value::from(value.as_str()).to_string();
        match values {
            _ if is_secret(&self.arg) => r#""…""#.to_owned(),
            [] => r#""""#.to_owned(),
            [one] if args::is_switch(&self.arg) => (one == "true").to_string(),
            [one] => text(one),
            several => format!("[{}]", several.iter().map(text).collect::<Vec<_>>().join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    fn parsed(file: &str, arguments: &[&str]) -> Result<Result<Cli, clap::Error>, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mirror.toml");
        std::fs::write(&path, file).unwrap();
        let command = with_file(args::command(), &path)?;
        let all = [&["resync-destination"], arguments].concat();
        Ok(command.try_get_matches_from(all).and_then(|matches| Cli::from_arg_matches(&matches)))
    }

    fn told(file: &str, arguments: &[&str]) -> String {
        format!("{:?}", parsed(file, arguments).unwrap().unwrap().command)
    }

    fn refused(file: &str) -> String {
        parsed(file, &["discover", "http://a.example/"]).unwrap_err().to_string()
    }

    #[test]
    fn a_file_says_what_the_command_line_does_not_and_one_file_serves_every_command() {
        let file = r#"
            url = "http://a.example/"
            into = "/srv/a"
            delete = true
            per_host = 3
            delay = "20ms"
            max_resource_size = "1 MiB"
            modified_since = 2026-11-20T10:00:00Z
            type = ["text/html", "image/*"]
            callback_url = "http://b.example/"
            log = "debug"
        "#;
        let sync = told(file, &["sync"]);
        for part in [
            r#"url: "http://a.example/""#,
            r#"dir: "/srv/a""#,
            "delete: true",
            "per_host: 3",
            "delay: 20ms",
            r#"types: ["text/html", "image/*"]"#,
        ] {
            assert!(sync.contains(part), "{part}: {sync}");
        }
        let same = told("", &["sync", "http://a.example/", "/srv/a", "--delete", "--per-host", "3"]);
        assert_eq!(told("per_host = 3\ndelete = true", &["sync", "http://a.example/", "/srv/a"]), same);
        let over =
            told(file, &["sync", "http://c.example/", "/srv/c", "--per-host", "5", "--type", "text/css"]);
        for part in [r#"url: "http://c.example/""#, "per_host: 5", r#"types: ["text/css"]"#] {
            assert!(over.contains(part), "{part}: {over}");
        }
        assert!(told(file, &["listen"]).contains(r#"url: ["http://a.example/"], into: ["/srv/a"]"#));
        assert!(told(file, &["status"]).contains(r#"into: Some("/srv/a")"#));
        assert_eq!(parsed(file, &["audit"]).unwrap().unwrap().log, "debug");
    }

    #[test]
    fn several_copies_are_lists_which_only_the_command_for_several_takes() {
        let file = r#"url = ["http://a.example/", "http://b.example/"]
            into = ["/srv/a", "/srv/b"]"#;
        assert!(told(file, &["listen"]).contains(r#"into: ["/srv/a", "/srv/b"]"#));
        assert!(parsed(file, &["sync"]).unwrap().is_err(), "which of them?");
        let alone = r#"url = "http://a.example/""#;
        assert!(parsed(alone, &["sync", "/srv/a"]).unwrap().is_err(), "the first argument is the URL");
        assert!(parsed(r#"into = "/srv/a""#, &["sync", "http://a.example/"]).unwrap().is_ok());
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named_with_a_hint() {
        for (file, said) in [
            ("per_hosts = 3", "line 1, column 1: per_hosts is not a key: did you mean per_host?"),
            ("zzz = 3", "zzz is not a key: `resync-destination config print`"),
            ("config = \"x\"", "config is not a key"),
            ("since = \"2026-11-20\"", "since is not a key: it is for one run, so give the flag --since"),
            ("at = \"2026-03-01\"", "at is not a key: it is for one run, so give the flag --at"),
            ("adopt = true", "adopt is not a key: it is for one run, so give the flag --adopt"),
            ("switch_source = true", "it is for one run, so give the flag --switch-source"),
            ("dry_run = true", "it is for one run, so give the flag --dry-run"),
            ("per_host = 3000", "invalid value '3000' for '--per-host <N>'"),
            ("delay = \"soon\"", "invalid value 'soon' for '--delay <DURATION>'"),
            ("delete = \"perhaps\"", "invalid value 'perhaps' for '--delete[=<true|false>]'"),
            ("per_host = [1, 2]", "line 1, column 12: per_host must be one value"),
            ("[per_host]\nx = 1", "per_host must be one value"),
            ("delay = \"1s\"\nper_host = ", "mirror.toml, line 2, column 12: not valid TOML: "),
        ] {
            let refused = refused(file);
            assert!(refused.contains(said), "{file}: {refused}");
        }
    }

    #[test]
    fn a_secret_is_not_told_where_its_line_is_wrong() {
        for file in [
            "token = \"s3cret",
            "token = s3cret",
            "token = \"s3cret\\u0007\"",
            "header = \"s3cret\"",
            "header = [\"A: b\", \"C: s3cret\\u0007\"]",
        ] {
            let refused = refused(file);
            assert!(!refused.contains("s3cret"), "{file}: {refused}");
        }
        assert!(refused("token = \"s3cret\\u0007\"").contains("token has an invalid value"));
    }

    #[cfg(unix)]
    #[test]
    fn only_a_secret_that_others_may_read_is_exposed() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, mode, expected) in [
            ("token = \"s3cret\"", 0o640, true),
            ("token = \"s3cret\"", 0o600, false),
            ("delay = \"1s\"", 0o644, false),
        ] {
            std::fs::write(file.path(), text).unwrap();
            file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_exposed(file.path()), expected, "{text} {mode:o}");
        }
    }

    #[test]
    fn the_command_line_takes_back_what_the_file_switches_on() {
        let (file, copy) = ("delete = true", ["sync", "http://a.example/", "/srv/a"]);
        let with = |more: &[&str]| told(file, &[&copy[..], more].concat());
        assert!(with(&[]).contains("delete: true") && with(&["--delete"]).contains("delete: true"));
        assert!(with(&["--delete=false"]).contains("delete: false"));
        let before = told("", &["sync", "--delete", "http://a.example/", "/srv/a"]);
        assert_eq!(before, with(&[]), "a value needs its sign");
    }

    #[test]
    fn what_is_printed_can_be_read_and_tells_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mirror.toml");
        std::fs::write(&path, "token = \"s3cret\"\nretries = 7\ntype = [\"a/b\", \"c/d\"]\ndelete = true")
            .unwrap();
        let printed = print(Some(&path)).unwrap();
        assert!(!printed.contains("s3cret"), "{printed}");
        for line in ["retries = \"7\"", "type = [\"a/b\", \"c/d\"]", "delete = true", "# per_host = \"8\""] {
            assert!(printed.lines().any(|one| one == line), "{line}: {printed}");
        }
        // Also with every default.
        let all: Vec<_> = printed.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        let settings = all.into_iter().filter(|line| line.contains(" = ") && !line.ends_with("= \"\""));
        let settings = settings.filter(|line| !line.ends_with("\"…\"")).collect::<Vec<_>>().join("\n");
        std::fs::write(&path, settings).unwrap();
        assert!(with_file(args::command(), &path).is_ok());
        assert_eq!(print(Some(&path)).unwrap().matches("retries = \"7\"").count(), 1);
    }
}
