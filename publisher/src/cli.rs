//! The command line: flags, their environment variables, and the words in which a run reports.

use std::{fmt::Write as _, io, net::SocketAddr, path::PathBuf};

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand};
use resync_core::digest::Algorithm;
use resync_publisher::{
    BaseUrl, HubUrl, Settings, UrlError,
    notify::{NotifyError, Outcome, Token, Told},
    publish::{BuildError, Built},
    serve::ServeError,
    state::{State, StateError},
    status::{HubStatus, Status},
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
    /// Which digests the Resource List gives: md5, sha-1, sha-256 (repeatable) [default: sha-256]
    #[arg(long, env = "RESYNC_SOURCE_HASH", value_name = "ALGORITHM", value_delimiter = ',')]
    hash: Vec<Algorithm>,
    /// A hub of the framework channel (repeatable); with none there is no channel
    #[arg(long, env = "RESYNC_SOURCE_HUB", value_name = "URL", value_delimiter = ' ')]
    hub: Vec<String>,
}

impl BuildArgs {
    /// What the flags say; those of the last build where DIR and --base-url are left out.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = match (&self.directory, &self.base_url) {
            (Some(directory), Some(base)) => Settings::new(directory, BaseUrl::parse(base)?),
            _ => State::load(&self.out.out)?.settings,
        };
        if !self.hub.is_empty() {
            settings.hubs.clear();
        }
        let settings = settings.hashes(self.hash.iter().copied());
        self.hub.iter().try_fold(settings, |settings, hub| Ok(settings.hub(HubUrl::parse(hub)?)))
    }
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
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

/// Everything that ends a run without success.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Build(#[from] BuildError),
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
}

impl Failure {
    /// 64 where the configuration cannot work however often it is tried, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Url(_)
            | Self::Log(_)
            | Self::Build(BuildError::CollectionInSite { .. })
            | Self::Notify(
                NotifyError::NoHub { .. }
                | NotifyError::WhoseToken { .. }
                | NotifyError::UnknownHub { .. }
                | NotifyError::BadToken,
            ) => 64,
            _ => 1,
        }
    }
}

/// "12 resources, 48.2 kB → Resource List written".
pub(crate) fn built(built: &Built) -> String {
    let what = match built.written.as_slice() {
        [] => "nothing changed".to_owned(),
        written => {
            let kinds = written.iter().map(|document| name(document.capability.token()));
            format!("{} written", counted(kinds))
        }
    };
    format!("{}, {} → {what}", count(built.resources, "resource"), size(built.bytes))
}

/// What a build left out, a line each.
pub(crate) fn left_out(built: &Built) -> Vec<String> {
    let mut lines: Vec<_> = (built.skipped.iter())
        .map(|skipped| format!("left out `{}`: {}", skipped.path.display(), skipped.reason))
        .collect();
    if built.resources == 0 {
        lines
            .push("the collection is empty; a Destination that deletes would now drop its copies".to_owned());
    }
    lines
}

/// "1 notification, hub accepted (202)"; for several hubs a line each.
pub(crate) fn told(hubs: &[Told]) -> String {
    let lines = hubs.iter().map(|told| {
        let whose = if hubs.len() > 1 { format!("{}: ", told.hub) } else { String::new() };
        let what = match &told.outcome {
            Outcome::NothingChanged => "the hub knows everything, nothing to send".to_owned(),
            Outcome::Accepted { status } => {
                let kinds = told
                    .changes
                    .iter()
                    .map(|change| format!("{} {}", name(change.capability.token()), change.change.token()));
                format!("1 notification ({}), hub accepted ({status})", counted(kinds))
            }
            Outcome::Failed(error) => format!("not told: {error}"),
        };
        format!("{whose}{what}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The standing of a site for a person.
pub(crate) fn status(status: &Status) -> String {
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{arguments}");
    };
    line(format_args!("{} at {}", status.directory, status.base_url));
    line(format_args!("{}, {}", count(status.resources, "resource"), size(status.bytes)));
    for document in &status.documents {
        line(format_args!(
            "  {:<20} {}  changed {}",
            name(&document.capability),
            document.url,
            document.changed
        ));
    }
    if status.hubs.is_empty() {
        line(format_args!("no hub; build with --hub URL to have a channel"));
    }
    for hub in &status.hubs {
        line(format_args!("hub {}: {}", hub.url, hub_standing(hub)));
        for change in &hub.pending {
            line(format_args!("  waits: {} {}  {}", name(&change.capability), change.change, change.url));
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn hub_standing(hub: &HubStatus) -> String {
    let last = match (&hub.told_at, hub.answer) {
        (Some(at), Some(answer)) => format!("last told {at} ({answer})"),
        _ => "never told".to_owned(),
    };
    match hub.pending.len() {
        0 => format!("{last}, knows everything"),
        waiting => format!("{last}, {} waiting: run `resync-source notify`", count(waiting as u64, "change")),
    }
}

fn name(token: &str) -> &str {
    match token {
        "description" => "Source Description",
        "capabilitylist" => "Capability List",
        "resourcelist" => "Resource List",
        other => other,
    }
}

fn counted<T: AsRef<str>>(names: impl Iterator<Item = T>) -> String {
    let mut groups: Vec<(String, usize)> = Vec::new();
    for name in names {
        match groups.iter_mut().find(|(known, _)| known == name.as_ref()) {
            Some((_, number)) => *number += 1,
            None => groups.push((name.as_ref().to_owned(), 1)),
        }
    }
    let texts = groups.into_iter().map(|(name, number)| match number {
        1 => name,
        _ => format!("{name} ({number} documents)"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn count(number: u64, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}

fn size(bytes: u64) -> impl std::fmt::Display {
    ByteSize(bytes).display().si()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

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

    #[test]
    fn a_summary_counts_in_words() {
        assert_eq!(count(1, "resource"), "1 resource");
        assert_eq!(
            counted(["Resource List", "Resource List", "Capability List"].iter()),
            "Resource List (2 documents), Capability List"
        );
        assert_eq!(size(48_200).to_string(), "48.2 kB");
    }
}
