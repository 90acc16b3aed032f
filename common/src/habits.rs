//! What the command lines of all programs have in common, see CONTRIBUTING.md.

use std::env;
use std::ffi::OsString;
use std::process;

use clap::builder::{Resettable, ValueHint};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error, Parser};

use crate::output::{complain_of_usage, speak_as};

/// The exit code of a command that failed, or found something wrong.
pub const FAILED: u8 = 1;
/// The exit code of a command line that cannot be understood.
pub const USAGE: u8 = 2;
/// The exit code of a configuration that cannot work.
pub const BAD_CONFIGURATION: u8 = 64;

/// The exit codes in words. What else there is stands in the help of its command.
const EXIT_CODES: &str = "

Exit codes:
  0   done
  1   failed, or found something wrong
  2   wrong usage
  64  wrong configuration";

/// The heading of the flags that every command has.
pub const GLOBAL: &str = "Global options";

/// Wide enough for a sentence, narrow enough to be read.
const WIDTH: usize = 110;
/// Names of values, and what a shell completes there.
const HINTS: [(&str, ValueHint); 3] =
    [("DIR", ValueHint::DirPath), ("FILE", ValueHint::FilePath), ("URL", ValueHint::Url)];

/// What is special in the help of a program.
#[derive(Clone, Copy, Debug)]
pub struct Help {
    /// Headings of flags that are seldom needed, which the short help leaves out, with the ids of these flags.
    pub headings: &'static [(&'static str, &'static [&'static str])],
    /// Examples of each command, by its name without that of the program ("token add"; "" for the program).
    pub examples: &'static [(&'static str, &'static [&'static str])],
}

/// A command line with its help.
pub fn habitual(command: Command, help: &Help) -> Command {
    with_help(command.max_term_width(WIDTH), "", help)
}

/// With an environment variable for each flag: `prefix` and the [`name`] of the flag, unless it has one of another name. The flags of
/// `one_run` have none. A variable that is empty counts as absent.
pub fn with_variables(command: Command, prefix: &str, one_run: &[&str]) -> Command {
    let with = |arg: Arg| with_variable(arg, prefix, one_run);
    command.mut_args(with).mut_subcommands(|sub| match sub.get_name() {
        // These are for packagers.
        "completions" | "man" => sub,
        _ => with_variables(sub, prefix, one_run),
    })
}

fn with_variable(arg: Arg, prefix: &str, one_run: &[&str]) -> Arg {
    let name = name(&arg);
    let variable = match arg.get_env() {
        Some(own) => own.to_owned(),
        None if one_run.contains(&&*name) => return arg,
        None => format!("{prefix}{}", name.to_uppercase()).into(),
    };
    let is_empty = |value: OsString| value.to_str().is_some_and(|text| text.trim().is_empty());
    if env::var_os(&variable).is_some_and(is_empty) { arg.env(Resettable::Reset) } else { arg.env(variable) }
}

/// What a flag or argument is called where it is no flag: in a configuration file, and in its variable.
pub fn name(arg: &Arg) -> String {
    arg.get_long().unwrap_or(arg.get_id().as_str()).replace('-', "_")
}

fn with_help(command: Command, path: &str, help: &Help) -> Command {
    let exit_codes = if path.is_empty() { EXIT_CODES } else { "" };
    let command = match help.examples.iter().find(|(name, _)| *name == path) {
        Some((_, lines)) => {
            command.after_long_help(format!("Examples:\n  {}{exit_codes}", lines.join("\n  ")))
        }
        None => command,
    };
    command.mut_args(|arg| with_hints(arg, help)).mut_subcommands(|sub| {
        let path = format!("{path} {}", sub.get_name());
        with_help(sub, path.trim_start(), help)
    })
}

fn with_hints(arg: Arg, help: &Help) -> Arg {
    let id = arg.get_id().clone();
    let heading =
        help.headings.iter().find(|(_, ids)| ids.contains(&id.as_str())).map(|(heading, _)| *heading);
    let name = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let hint = HINTS.iter().find(|(known, _)| name.as_deref() == Some(*known)).map(|(_, hint)| *hint);
    let arg = heading.map_or(arg.clone(), |heading| arg.help_heading(heading).hide_short_help(true));
    hint.map_or(arg.clone(), |hint| arg.value_hint(hint))
}

/// The command line of this process, by `command`, which [`habitual`] made. Ends the process after `--help`, and with a message if
/// something is wrong.
pub fn parse<P: Parser>(mut command: Command) -> P {
    speak_as(command.get_name());
    let arguments = with_quiet_behind(&command, env::args_os().collect());
    let matches = command.try_get_matches_from_mut(arguments).unwrap_or_else(|error| end(&error));
    P::from_arg_matches(&matches).unwrap_or_else(|error| end(&error.format(&mut command)))
}

/// `-q` may stand before a command, where a program has flags of its own that may not.
fn with_quiet_behind(command: &Command, mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_quiet = |argument: &&OsString| *argument == "-q" || *argument == "--quiet";
    let name = 1 + arguments.iter().skip(1).take_while(is_quiet).count();
    if arguments.get(name).is_some_and(|name| command.find_subcommand(name).is_some()) {
        arguments[1..=name].rotate_right(1);
    }
    arguments
}

/// Ends the process by what the reader of the command line says: the help, or what is wrong.
fn end(error: &Error) -> ! {
    let is_help = !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help {
        error.exit();
    }
    complain_of_usage(&error.render());
    process::exit(USAGE.into());
}

/// What is wrong with the help: examples that are no command lines, or of no command, commands without one, and flags that no command
/// has. For tests.
pub fn wrong_help(command: &Command, help: &Help) -> Vec<String> {
    let mut wrong = Vec::new();
    let examples =
        help.examples.iter().flat_map(|(path, lines)| lines.iter().map(move |line| (*path, *line)));
    for (path, line) in examples {
        let command_line = line.split(['|', '>', '#']).next().unwrap_or_default();
        let words: Vec<_> = command_line.split_whitespace().map(|word| word.trim_matches('\'')).collect();
        let expected = format!("{} {path}", command.get_name());
        if !words.join(" ").starts_with(expected.trim_end()) {
            wrong.push(format!("{line}: this is not `{expected}`"));
        }
        // What is missing may be in the file.
        let is_complete =
            |error: &Error| error.kind() != ErrorKind::MissingRequiredArgument || !line.contains("--config");
        let understood = command.clone().try_get_matches_from(words);
        wrong.extend(understood.err().filter(is_complete).map(|error| format!("{line}: {error}")));
    }
    let (mut paths, mut ids) = (Vec::new(), Vec::new());
    walk(command, "", &mut paths, &mut ids);
    let has_example = |path: &String| help.examples.iter().any(|(known, _)| known == path);
    wrong.extend(
        paths.into_iter().filter(|path| !has_example(path)).map(|path| format!("{path}: no example")),
    );
    let named = help.headings.iter().flat_map(|(_, ids)| ids.iter());
    wrong.extend(
        named.filter(|id| !ids.iter().any(|known| known == *id)).map(|id| format!("{id}: no such flag")),
    );
    wrong
}

/// The names of the commands without subcommands, and the ids of all flags.
fn walk(command: &Command, path: &str, paths: &mut Vec<String>, ids: &mut Vec<String>) {
    ids.extend(command.get_arguments().map(|arg| arg.get_id().to_string()));
    if !command.has_subcommands() {
        paths.push(path.to_owned());
    }
    for sub in command.get_subcommands() {
        walk(sub, format!("{path} {}", sub.get_name()).trim_start(), paths, ids);
    }
}
