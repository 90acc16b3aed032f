//! The command line: flags, their environment variables, and what ends a run without success.

use std::{ffi::OsString, io, net::SocketAddr, path::PathBuf, time::Duration};

use bytesize::ByteSize;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use resync_core::{
    digest::Algorithm,
    lint::{MAX_DOCUMENTS, MAX_REQUESTS},
};
use resync_publisher::{
    BaseUrl, HubUrl, Settings, UrlError,
    check::{CheckError, PACKAGE_BYTES},
    notify::{NotifyError, Token},
    publish::BuildError,
    serve::ServeError,
    state::{State, StateError},
};

/// Turns a folder of files into a ResourceSync Source and tells its hubs what changed.
#[derive(Debug, Parser)]
#[command(name = "resync-source", version, arg_required_else_help = true, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Which log lines go to stderr: off, error, warn, info, debug, trace, or a filter such as `resync_publisher=debug`
    #[arg(long, global = true, env = "RESYNC_SOURCE_LOG", default_value = "warn", value_name = "FILTER")]
    pub(crate) log: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write the documents for the files of a folder
    Build(BuildArgs),
    /// Tell the hubs which documents changed since they were last told
    Notify(NotifyArgs),
    /// Build, then notify
    Publish {
        #[command(flatten)]
        build: BuildArgs,
        #[command(flatten)]
        token: TokenArgs,
    },
    /// Serve the files, the documents and the topic URI over HTTP
    Serve(ServeArgs),
    /// Check a document, a folder or a whole site against the rules; exit code 1 where one is broken
    Check(CheckArgs),
    /// Say what was built and what each hub does not know yet
    Status(StatusArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OutArgs {
    /// The folder of the site: documents, and the state in `.resync-source`
    #[arg(long, env = "RESYNC_SOURCE_OUT", value_name = "FOLDER")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The folder whose files are the resources; without it and --base-url, everything is as in the last build of this site
    #[arg(env = "RESYNC_SOURCE_DIR", value_name = "DIR", requires = "base_url")]
    directory: Option<PathBuf>,
    /// The URL under which that folder is published
    #[arg(long, env = "RESYNC_SOURCE_BASE_URL", value_name = "URL", requires = "directory")]
    base_url: Option<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
    /// Which digests the Resource List gives: md5, sha-1, sha-256 (repeatable) [default: those of the last build, at first sha-256]
    #[arg(long, env = "RESYNC_SOURCE_HASH", value_name = "ALGORITHM", value_delimiter = ',')]
    hash: Vec<Algorithm>,
    /// A hub of the framework channel (repeatable) [default: those of the last build, at first none and so no channel]
    #[arg(long, env = "RESYNC_SOURCE_HUB", value_name = "URL", value_delimiter = ' ')]
    hub: Vec<String>,
    /// Have no hub and no channel any more
    #[arg(long, env = "RESYNC_SOURCE_NO_HUB", conflicts_with = "hub")]
    no_hub: bool,
}

/// What a build is told, and what of it nobody has said this time.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) settings: Settings,
    /// The hubs are those of the last build.
    pub(crate) kept_hubs: bool,
    /// The hash algorithms are those of the last build.
    pub(crate) kept_hash: bool,
}

impl BuildArgs {
    /// What the flags say; what they leave out stays as in the last build of the site.
    pub(crate) fn settings(&self) -> Result<Chosen, Failure> {
        let stored = State::load_if_built(&self.out.out)?.map(|state| state.settings);
        let known = stored.is_some();
        let mut settings = match (stored, &self.directory, &self.base_url) {
            (Some(stored), Some(directory), Some(base)) => {
                Settings { directory: directory.clone(), base_url: BaseUrl::parse(base)?, ..stored }
            }
            (None, Some(directory), Some(base)) => Settings::new(directory, BaseUrl::parse(base)?),
            (Some(stored), ..) => stored,
            (None, ..) => return Err(StateError::NotBuilt { out: self.out.out.clone() }.into()),
        };
        let keeps_hubs = self.hub.is_empty() && !self.no_hub;
        if !keeps_hubs {
            settings.hubs.clear();
        }
        let settings = settings.hashes(self.hash.iter().copied());
        let settings = self
            .hub
            .iter()
            .try_fold(settings, |settings, hub| HubUrl::parse(hub).map(|hub| settings.hub(hub)))?;
        Ok(Chosen { settings, kept_hubs: known && keeps_hubs, kept_hash: known && self.hash.is_empty() })
    }
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Try again for so long while a hub cannot be told, after 1 s, 2 s, 4 s and so on up to 5 min
    #[arg(long, env = "RESYNC_SOURCE_RETRY", value_name = "DURATION", default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) retry: Duration,
    /// Bearer token for the hub; with several hubs `HUB_URL=TOKEN` (repeatable)
    #[arg(
        long,
        env = "RESYNC_SOURCE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        value_delimiter = ' '
    )]
    pub(crate) token: Vec<Token>,
}

#[derive(Debug, Args)]
pub(crate) struct NotifyArgs {
    #[command(flatten)]
    pub(crate) out: OutArgs,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) out: OutArgs,
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, env = "RESYNC_SOURCE_LISTEN", default_value = "127.0.0.1:8090", value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) out: OutArgs,
    /// Print JSON
    #[arg(long, env = "RESYNC_SOURCE_JSON")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Files, the folder of a site, or the URL of a document, best of a Source Description; Change Notifications in the order they were sent
    #[arg(env = "RESYNC_SOURCE_CHECK", value_name = "FILE|DIR|URL", required = true)]
    pub(crate) targets: Vec<OsString>,
    /// The URL under which the folder is published [default: that of the last build, or what its Source Description tells]
    #[arg(long, env = "RESYNC_SOURCE_BASE_URL", value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// How long the check of a URL may take, such as 90s or 1h
    #[arg(long, env = "RESYNC_SOURCE_DEADLINE", value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    pub(crate) deadline: Duration,
    /// How many documents, packages and topics a check may ask for
    #[arg(long, env = "RESYNC_SOURCE_MAX_REQUESTS", value_name = "NUMBER", default_value_t = MAX_REQUESTS)]
    pub(crate) max_requests: usize,
    /// How many documents a check may look at
    #[arg(long, env = "RESYNC_SOURCE_MAX_DOCUMENTS", value_name = "NUMBER", default_value_t = MAX_DOCUMENTS)]
    pub(crate) max_documents: usize,
    /// How many bytes of packages the check of a URL may fetch, such as 500MB; 0 for none
    #[arg(long, env = "RESYNC_SOURCE_PACKAGES", value_name = "BYTES", default_value_t = ByteSize(PACKAGE_BYTES))]
    pub(crate) packages: ByteSize,
    /// Print JSON
    #[arg(long, env = "RESYNC_SOURCE_JSON")]
    pub(crate) json: bool,
}

/// Everything that ends a run without success.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error(transparent)]
    Notify(#[from] NotifyError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    #[error("--log `{0}` is no filter: write off, error, warn, info, debug, trace, or target=level")]
    Log(String),
    #[error("cannot write to stdout: {0}")]
    Output(#[from] io::Error),
    /// Each hub's answer has been reported already.
    #[error("{failed} of {all} hubs could not be told")]
    Hubs { failed: usize, all: usize },
    /// Each has been told already.
    #[error("rules are broken")]
    Rules,
    #[error("the check could not be completed: {0}")]
    EndedEarly(String),
}

impl Failure {
    /// 64 where the configuration cannot work however often it is tried, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Url(_)
            | Self::Log(_)
            | Self::Build(BuildError::CollectionInSite { .. })
            | Self::Check(CheckError::NoBaseUrl { .. })
            | Self::Notify(
                NotifyError::NoHub { .. } | NotifyError::WhoseToken { .. } | NotifyError::BadToken,
            ) => 64,
            _ => 1,
        }
    }
}

impl Cli {
    /// The command line of this process. An environment variable that is empty counts as absent.
    pub(crate) fn of_process() -> Self {
        let mut command = without_empty_variables(Self::command());
        let matches = command.get_matches_mut();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
    }
}

fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &std::ffi::OsStr| {
        std::env::var_os(name).is_some_and(|value| value.to_str().is_some_and(|text| text.trim().is_empty()))
    };
    command
        .mut_args(
            |argument| {
                if argument.get_env().is_some_and(is_empty) { argument.env(None) } else { argument }
            },
        )
        .mut_subcommands(without_empty_variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_an_environment_variable() {
        for command in Cli::command().get_subcommands() {
            for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
                let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
                assert!(
                    variable.is_some_and(|name| name.starts_with("RESYNC_SOURCE_")),
                    "{}",
                    argument.get_id()
                );
            }
        }
    }
}
