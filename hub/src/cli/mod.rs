//! The command line: settings are parsed before anything is opened; a bad one ends with exit code 64.

// Doc comments of arguments are the help text in a terminal, where Markdown would only disturb.
#![allow(clippy::doc_markdown)]

mod ask;
mod copies;
mod deliveries;
mod fsck;
mod help;
mod owner;
mod reach;
mod secrets;
mod serve;
mod steer;
mod systemd;
mod tokens;
mod tools;
mod which;

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use resync_common::completions::{Completions, Man};
use resync_common::habits::{self, BAD_CONFIGURATION, FAILED, GLOBAL};
use resync_common::output::{answer, be_quiet, complain, finish, say, takes_colour};
use resync_hub::StartError;
use resync_hub::admin::LogFilter;
use resync_hub::config::{self, Config, ConfigError, LogFormat, Overrides};
use tracing_subscriber::{EnvFilter, reload};

/// A WebSub hub for ResourceSync communities: it loses nothing that it acknowledged.
#[derive(Debug, Parser)]
#[command(name = "resync-hub", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Settings,
    /// Print failures only, and what was asked for
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the hub (also without a command)
    Serve(Settings),
    /// Make, list and revoke the tokens of publishers
    #[command(subcommand)]
    Token(tokens::Token),
    /// List the topics of a running hub, and where chains of Change Notifications were broken
    Topics(tools::Topics),
    /// Make and replace the keys that encrypt subscribers' secrets
    #[command(subcommand)]
    Secrets(secrets::Secrets),
    /// See what is late in a running hub; retry, skip, replay, pause and resume
    Deliveries(deliveries::Deliveries),
    /// Check the configuration, or print the one in force
    #[command(subcommand)]
    Config(tools::ConfigCommand),
    /// List the subscriptions of a running hub, export and deny them, and replace the addresses of their pages
    #[command(subcommand)]
    Subscriptions(tools::Subscriptions),
    /// Write everything that a hub remembers to a file, while it runs or while it is stopped
    Backup(copies::Backup),
    /// Fill an empty data folder from a backup, for either engine
    Restore(copies::Restore),
    /// Say that the hubs' database was restored to an earlier point, before they use it again
    Restored(copies::Restored),
    /// Look at every record of a stopped hub's store (exit code 1 if something is wrong)
    Fsck(fsck::Fsck),
    /// Let a running hub take nothing new while it delivers what it has, until `drain --end`
    Drain(steer::Drain),
    /// Show or change the log filter of a running hub, until it restarts
    LogLevel(steer::LogLevel),
    /// Ask a running hub whether it is ready (exit code 0 or 1)
    Healthcheck(tools::Healthcheck),
    /// Print completions for a shell
    Completions(Completions),
    /// Write man pages into a folder
    Man(Man),
}

impl Command {
    /// Whether all that it says is what was asked for. Others print that by [`answer`].
    fn is_a_question(&self) -> bool {
        !matches!(
            self,
            Self::Serve(_)
                | Self::Token(_)
                | Self::Secrets(_)
                | Self::Deliveries(_)
                | Self::Config(_)
                | Self::Subscriptions(_)
                | Self::Backup(_)
                | Self::Restore(_)
                | Self::Restored(_)
                | Self::Fsck(_)
                | Self::Drain(_)
                | Self::Healthcheck(_)
                | Self::Man(_)
        )
    }
}

/// Settings of the hub; every key of the configuration file has an environment variable too (RESYNC_HUB_…).
#[derive(Args, Clone, Debug, Default)]
struct Settings {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "RESYNC_HUB_CONFIG")]
    config: Option<PathBuf>,
    /// Address to listen on [env: RESYNC_HUB_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// URL by which the world reaches the hub, for example https://hub.example [env: RESYNC_HUB_PUBLIC_URL] [default: its address]
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Folder for everything the hub remembers [env: RESYNC_HUB_DATA_DIR] [default: ./data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Try it out: no tokens, no rate limits, callbacks on loopback allowed; listens on loopback only
    #[arg(long, env = "RESYNC_HUB_DEV")]
    dev: bool,
}

impl Settings {
    fn load(&self) -> Result<Config, ConfigError> {
        let given =
            [("listen", &self.listen), ("public_url", &self.public_url), ("data_dir", &self.data_dir)];
        let flags: Overrides =
            given.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect();
        let config = config::load(self.config.as_deref(), variables(), &flags)?;
        if self.dev { config.into_dev() } else { Ok(config) }
    }
}

/// The environment variables of the process. One whose value is not UTF-8 is not ignored.
fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    };
    env::vars_os().filter_map(text)
}

/// The command line with its help.
fn command_line() -> clap::Command {
    habits::habitual(Cli::command(), &help::HELP)
}

/// Runs what the command line asks for.
pub(crate) fn main() -> ExitCode {
    let cli: Cli = habits::parse(command_line());
    let command = cli.command.unwrap_or(Command::Serve(cli.serve));
    be_quiet(cli.quiet && !command.is_a_question());
    let result = run(command);
    match result.and_then(|()| finish().map_err(Failure::new)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(settings) => serve::run(&settings),
        Command::Token(command) => tokens::run(command),
        Command::Topics(command) => tools::topics(command),
        Command::Secrets(command) => secrets::run(command),
        Command::Config(command) => tools::config(command),
        Command::Subscriptions(command) => tools::subscriptions(command),
        Command::Deliveries(command) => deliveries::run(command),
        Command::Backup(command) => copies::back_up(command),
        Command::Restore(command) => copies::restore(command),
        Command::Restored(command) => copies::restored(&command),
        Command::Fsck(command) => fsck::run(&command),
        Command::Drain(command) => steer::drain(command),
        Command::LogLevel(command) => steer::log_level(command),
        Command::Healthcheck(check) => tools::healthcheck(check),
        Command::Completions(wanted) => {
            answer(wanted.script(command_line()));
            Ok(())
        }
        Command::Man(wanted) => wanted.write(command_line()).map_err(Failure::new),
    }
}

/// Why a command ends with another exit code than 0.
#[derive(Debug)]
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn new(message: impl std::fmt::Display) -> Self {
        Self { code: FAILED, message: message.to_string() }
    }

    /// Neither one way nor the other.
    fn and(self, other: &Self) -> Self {
        Self { message: format!("{}; and {}", self.message, other.message), ..self }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self { code: BAD_CONFIGURATION, message: error.to_string() }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let configured = matches!(error, StartError::Tls(_) | StartError::TlsRoots(_) | StartError::Keys(_));
        Self { code: if configured { BAD_CONFIGURATION } else { FAILED }, message: error.to_string() }
    }
}

/// Starts logging as configured; the returned filter changes it.
fn start_logging(config: &Config) -> Result<LogFilter, Failure> {
    let filter = understood(&config.log.filter)
        .map_err(|error| Failure { code: BAD_CONFIGURATION, message: format!("log.{error}") })?;
    let colour = takes_colour(&io::stderr());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // Where standard error is closed, a word about that would end the process.
    let builder = builder.log_internal_errors(false);
    let set: Set = match config.log.format {
        LogFormat::Pretty => {
            let builder = builder.with_ansi(colour).with_target(false).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| handle.reload(filter))
        }
        LogFormat::Json => {
            let builder = builder.json().with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| handle.reload(filter))
        }
    };
    Ok(LogFilter::new(&config.log.filter, move |text| {
        set(understood(text)?).map_err(|error| error.to_string())
    }))
}

/// Puts another filter in the place of the present one.
type Set = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>;

fn understood(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(filter).map_err(|error| {
        format!(
            "filter is not a log filter ({error}): write for example \"info\" or \"info,resync_hub=debug\""
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_is_complete_and_its_examples_are_command_lines() {
        command_line().debug_assert();
        assert_eq!(habits::wrong_help(&command_line(), &help::HELP), Vec::<String>::new());
    }
}
