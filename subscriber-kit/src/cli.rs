//! The command line: every flag also as an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use resync_subscriber_kit::sync::{Authority, SyncOptions};
use url::Url;

/// Keeps a copy of a ResourceSync Source in step.
///
/// URL is a Source's base, its Source Description, a Capability List or a Resource List.
/// Exit codes: 0 done, 1 failed or not in step, 2 usage, 64 bad configuration.
#[derive(Debug, Parser)]
#[command(name = "resync-destination", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What is logged on standard error, such as `debug` or `resync_subscriber_kit=debug`
    #[arg(
        long,
        global = true,
        env = "RESYNC_DESTINATION_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub(crate) log: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows what a Source offers: its sets, lists and notification channels
    Discover {
        /// Any URL of the Source
        #[arg(env = "RESYNC_DESTINATION_URL")]
        url: String,
        /// Write JSON
        #[arg(long, env = "RESYNC_DESTINATION_JSON")]
        json: bool,
    },
    /// Brings a directory in step, once
    Sync(Copy),
    /// Tells whether a directory is in step, without changing it (exit code 1 when it is not)
    Audit(Copy),
    /// Keeps a directory in step: subscribes and synchronises on every notification
    Listen(Box<Listen>),
    /// Shows the subscriptions and the last synchronisation of a directory
    Status {
        /// The directory that is kept in step
        #[arg(long, env = "RESYNC_DESTINATION_INTO", value_name = "DIR")]
        into: PathBuf,
        /// Where the state is kept [default: DIR/.resync-destination]
        #[arg(long, env = "RESYNC_DESTINATION_STATE", value_name = "DIR")]
        state: Option<PathBuf>,
        /// Write JSON
        #[arg(long, env = "RESYNC_DESTINATION_JSON")]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// Any URL of the Source
    #[arg(env = "RESYNC_DESTINATION_URL")]
    pub(crate) url: String,
    /// The directory of the copy
    #[arg(env = "RESYNC_DESTINATION_DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Write JSON
    #[arg(long, env = "RESYNC_DESTINATION_JSON")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// Any URL of the Source
    #[arg(env = "RESYNC_DESTINATION_URL")]
    pub(crate) url: String,
    /// The directory of the copy
    #[arg(long, env = "RESYNC_DESTINATION_INTO", value_name = "DIR")]
    pub(crate) into: PathBuf,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Where the callback server listens
    #[arg(
        long = "listen",
        env = "RESYNC_DESTINATION_LISTEN",
        default_value = "127.0.0.1:8092",
        value_name = "ADDR"
    )]
    pub(crate) address: SocketAddr,
    /// How the hub reaches the callback server [default: its address]
    #[arg(long, env = "RESYNC_DESTINATION_CALLBACK_URL", value_name = "URL", value_parser = http_url)]
    pub(crate) callback_url: Option<Url>,
    /// The lease to ask for, such as 10d; the hub decides
    #[arg(long, env = "RESYNC_DESTINATION_LEASE", default_value = "10d", value_parser = humantime::parse_duration)]
    pub(crate) lease: Duration,
    /// About how often to synchronise without being told; 0s for never
    #[arg(long, env = "RESYNC_DESTINATION_POLL", default_value = "1h", value_parser = duration_or_zero)]
    pub(crate) poll: Duration,
    /// Unsubscribe at the end; otherwise the hub keeps trying until the lease ends
    #[arg(long, env = "RESYNC_DESTINATION_UNSUBSCRIBE_ON_EXIT")]
    pub(crate) unsubscribe_on_exit: bool,
}

/// What is copied, and how.
#[derive(Debug, Args)]
pub(crate) struct Choice {
    /// Which set, if the Source has several: its Capability List's URL or a part of it
    #[arg(long, env = "RESYNC_DESTINATION_SET", value_name = "SET")]
    pub(crate) set: Option<String>,
    /// The URL that DIR stands for [default: the directory of URL, or of its Source Description]
    #[arg(long, env = "RESYNC_DESTINATION_BASE", value_name = "URL", value_parser = http_url)]
    pub(crate) base: Option<Url>,
    /// Where the state is kept, which is never deleted [default: DIR/.resync-destination]
    #[arg(long, env = "RESYNC_DESTINATION_STATE", value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Remove files that the Source no longer lists, once that is certain
    #[arg(long, env = "RESYNC_DESTINATION_DELETE")]
    pub(crate) delete: bool,
    /// Also fetch resources of other origins than the list's own
    #[arg(long, env = "RESYNC_DESTINATION_ANY_ORIGIN")]
    pub(crate) any_origin: bool,
    /// How many resources are compared and fetched at the same time
    #[arg(long, env = "RESYNC_DESTINATION_PARALLEL", default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) parallel: u16,
}

impl Choice {
    pub(crate) fn sync_options(&self) -> SyncOptions {
        SyncOptions {
            delete: self.delete,
            authority: if self.any_origin { Authority::Any } else { Authority::SameOrigin },
            parallel: self.parallel.into(),
            ..SyncOptions::default()
        }
    }
}

fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text)
        .map_err(|error| format!("not a URL ({error}): give one such as http://host:port/"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(format!("{other} is not spoken here: give an http or https URL")),
    }
}

fn duration_or_zero(text: &str) -> Result<Duration, humantime::DurationError> {
    if text == "0" { Ok(Duration::ZERO) } else { humantime::parse_duration(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_an_environment_variable() {
        for command in Cli::command().get_subcommands() {
            for argument in command.get_arguments().filter(|one| one.get_id() != "help") {
                let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
                let named = variable.is_some_and(|name| name.starts_with("RESYNC_DESTINATION_"));
                assert!(named, "{} {}", command.get_name(), argument.get_id());
            }
        }
    }

    #[test]
    fn a_poll_of_zero_means_never() {
        assert_eq!(duration_or_zero("0").unwrap(), Duration::ZERO);
        assert_eq!(duration_or_zero("0s").unwrap(), Duration::ZERO);
    }
}
