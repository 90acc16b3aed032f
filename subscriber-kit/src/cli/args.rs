//! The commands and flags. Every flag is also an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Args, CommandFactory as _, Parser, Subcommand};
use http::{HeaderName, HeaderValue};
use resync_common::completions::{Completions, Man};
use resync_common::habits::{GLOBAL, habitual, with_variables};
use resync_common::values::{address, duration, duration_or_zero, number, size};
use resync_common::words::counted;
use resync_core::datetime::{DateTime, DateTimeError};
use resync_subscriber_kit::fetch::{AddressPolicy, ClientOptions, Credentials};
use resync_subscriber_kit::receive::{CallbackOptions, Hook, ServiceOptions};
use resync_subscriber_kit::sync::{Authority, BaselineFrom, ChangesFrom, Filter, SyncOptions, overlapping};
use url::Url;

use super::help::HELP;
use super::limits::{LimitArgs, TimeoutArgs};

/// What is logged usually.
pub(crate) const LOG: &str = "info";

/// Keep a copy of a ResourceSync Source in step.
///
/// URL is a Source's base, its Source Description, a Capability List or a Resource List; for `subscribe` also any
/// WebSub topic.
/// Every flag but --since, --at, --versions-of, --adopt, --switch-source and --dry-run is also a key of the configuration file (see
/// `config print`), and an environment variable; the flag overrides the variable, and that the file.
#[derive(Debug, Parser)]
#[command(name = "resync-destination", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What to log on standard error, such as `debug` or `resync_subscriber_kit=debug`
    #[arg(long, global = true, default_value = LOG, value_name = "FILTER", help_heading = GLOBAL)]
    pub(crate) log: String,
    /// A TOML file with settings; flags and variables override it
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub(crate) config: Option<PathBuf>,
    /// Print failures only, and what --json asks for
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) quiet: bool,
}

/// The command line. Each switch also takes a value, so that it can be turned off where the file or the environment turns it on.
pub(crate) fn command() -> clap::Command {
    let with_value = |arg: Arg| match arg.get_action() {
        ArgAction::SetTrue => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_value("false")
            .default_missing_value("true")
            .value_name("true|false")
            .hide_default_value(true)
            .hide_possible_values(true),
        _ => arg,
    };
    let command = habitual(Cli::command(), &HELP).mut_args(with_value);
    let command = command.mut_subcommands(|sub| sub.mut_args(with_value));
    with_variables(command, "RESYNC_DESTINATION_", &ONE_RUN)
}

/// The flags of one run only: neither variables nor keys of the file. If `adopt` stayed there beside `delete`, a copy that loses
/// its state, or a wrong folder, would lose somebody's files without a question; beside `switch_source`, a wrong URL would do that.
/// With `dry_run` there, no run would do anything.
pub(crate) const ONE_RUN: [&str; 6] = ["since", "at", "versions_of", "adopt", "switch_source", "dry_run"];

/// Whether this flag needs no value.
pub(crate) fn is_switch(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|count| count.min_values() == 0)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a Source offers: its sets, lists and notification channels
    Discover {
        /// Any URL of the Source
        #[arg(value_name = "URL")]
        url: String,
        #[command(flatten)]
        access: AccessArgs,
        /// Show the versions of this resource instead: what its TimeMap lists, a line each
        #[arg(long, value_name = "URI", value_parser = http_url)]
        versions_of: Option<Url>,
        #[command(flatten)]
        origins: OriginArgs,
        /// Do not read the lists for their sizes and dates
        #[arg(long)]
        no_sizes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Bring a directory in step, once
    Sync {
        #[command(flatten)]
        copy: Copy,
        #[command(flatten)]
        kept: VersionArgs,
        /// Handle only the changes since the last run, if the Source has a Change List
        #[arg(long)]
        incremental: bool,
        /// Handle only the changes since this time, such as 2026-11-20; the copy must have been in step then
        #[arg(long = "since", value_name = "TIME")]
        from: Option<DateTime>,
        /// Copy what the Source had at this time, such as 2026-03-01, to a DIR that stays so; what cannot be had as it was is named
        #[arg(long, value_name = "TIME", value_parser = past)]
        at: Option<DateTime>,
        /// Go on with DIR although it is a copy of another Source or set, such as one that has moved; without it, nothing is done
        #[arg(long)]
        switch_source: bool,
        /// Only print what would be done, a line per resource; write nothing to the directory
        #[arg(short = 'n', long)]
        dry_run: bool,
        /// Print a line for each resource that is created, updated, deleted, kept or failed
        #[arg(long)]
        list: bool,
    },
    /// Check whether a directory is in step, without changing it (exit code 1 if not, or if unproven; 3 if it cannot be checked)
    Audit {
        #[command(flatten)]
        copy: Copy,
        /// Compare DIR with what the Source had at this time, as `sync --at` does
        #[arg(long, value_name = "TIME", value_parser = past)]
        at: Option<DateTime>,
    },
    /// Forward the notifications of topics or Sources, without a copy
    Subscribe(Box<Subscribe>),
    /// Keep a directory in step: subscribe, and synchronise on every notification
    Listen(Box<Listen>),
    /// End the subscriptions of a copy, or of another state, that no process uses; the callback must be as before
    Unsubscribe {
        #[command(flatten)]
        state: StateArgs,
        #[command(flatten)]
        callback: CallbackArgs,
        #[command(flatten)]
        addresses: AddressArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the subscriptions and the last synchronisation of a directory
    Status {
        #[command(flatten)]
        state: StateArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print completions for a shell
    Completions(Completions),
    /// Write man pages into a folder
    Man(Man),
    /// Check or print the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the file
    Check,
    /// Print every key with its meaning and value; defaults are commented out
    Print,
}

/// Which state.
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    /// The directory of the copy
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
    /// Folder of the state [default: DIR/.resync-destination]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// How hubs reach this program.
#[derive(Debug, Args)]
pub(crate) struct CallbackArgs {
    /// Where the callback server listens
    #[arg(long = "listen", default_value = "127.0.0.1:8092", value_name = "ADDR", value_parser = address)]
    pub(crate) address: SocketAddr,
    /// How hubs reach the callback server [default: its address]
    #[arg(long, value_name = "URL", value_parser = http_url)]
    pub(crate) callback_url: Option<Url>,
}

/// Which addresses get requests.
#[derive(Debug, Args)]
pub(crate) struct AddressArgs {
    /// Send requests only to public addresses, wherever lists and redirects lead
    #[arg(long)]
    public_only: bool,
    /// Also send requests to private addresses, even if URL has a public one
    #[arg(long)]
    any_address: bool,
}

impl AddressArgs {
    /// The policy, where private addresses are allowed in the networks of the `trusted` URLs.
    pub(crate) fn policy(&self, trusted: Vec<Url>) -> AddressPolicy {
        match (self.public_only, self.any_address) {
            (true, _) => AddressPolicy::PublicOnly,
            (false, true) => AddressPolicy::Everywhere,
            (false, false) => AddressPolicy::NetworkOf(trusted),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// Any URL of the Source
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// The directory of the copy
    #[arg(id = "into", value_name = "DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// Any URL of the Source; several for several copies behind one callback server
    #[arg(required = true, value_name = "URL", value_delimiter = ' ')]
    pub(crate) url: Vec<String>,
    /// The directory of the copy; one for each URL, in their order
    #[arg(long, required = true, value_name = "DIR")]
    pub(crate) into: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    #[command(flatten)]
    pub(crate) kept: VersionArgs,
    /// Go on with DIR although it is a copy of another Source or set, such as one that has moved; without it, nothing is done
    #[arg(long)]
    pub(crate) switch_source: bool,
    #[command(flatten)]
    pub(crate) service: Service,
    /// Interval of synchronisations without a notification, give or take ten percent; 0s for never
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration_or_zero)]
    pub(crate) poll: Duration,
    /// Print each event as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    /// Topics, or Sources with all their channels
    #[arg(required = true, value_name = "URL", value_delimiter = ' ')]
    pub(crate) topics: Vec<String>,
    /// Subscribe at this hub; for topics that name none
    #[arg(long, value_name = "URL", value_parser = http_url)]
    pub(crate) hub: Option<Url>,
    /// Folder of the state
    #[arg(long, value_name = "DIR")]
    pub(crate) state: PathBuf,
    #[command(flatten)]
    pub(crate) service: Service,
    /// Print each notification as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How hubs reach this program, and what it runs for a notification.
#[derive(Debug, Args)]
pub(crate) struct Service {
    #[command(flatten)]
    pub(crate) callback: CallbackArgs,
    /// The lease to ask for, such as 10d; the hub decides
    #[arg(long, default_value = "10d", value_name = "DURATION", value_parser = lease)]
    pub(crate) lease: Duration,
    /// How often to replace the secret of a subscription; 0s for never
    #[arg(long, default_value = "30d", value_name = "DURATION", value_parser = duration_or_zero)]
    pub(crate) rotate_secret: Duration,
    /// A shell command to run for each notification, which is on its standard input
    #[arg(long, value_name = "COMMAND")]
    pub(crate) exec: Option<String>,
    /// Time limit of that command for one notification; 0s for no limit
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = duration_or_zero)]
    pub(crate) exec_timeout: Duration,
    /// The largest accepted notification, up to 512 MiB
    #[arg(long, default_value = "1 MiB", value_name = "SIZE",
          value_parser = notification_size)]
    pub(crate) max_notification_size: ByteSize,
    /// Unsubscribe at exit; otherwise the hub retries until the lease ends
    #[arg(long)]
    pub(crate) unsubscribe_on_exit: bool,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

impl Listen {
    /// Each URL with its directory.
    pub(crate) fn copies(&self) -> Result<Vec<(String, PathBuf)>, String> {
        let SelectionArgs { set, base, state, .. } = &self.selection;
        if self.url.len() != self.into.len() {
            return Err(format!(
                "{} and {}: give an --into for each URL",
                counted(self.url.len(), "URL", "URLs"),
                counted(self.into.len(), "directory", "directories")
            ));
        }
        if self.url.len() > 1 && (set.is_some() || base.is_some() || state.is_some()) {
            return Err("--set, --base-url and --state work with one copy only; for several, give Capability Lists as URLs and keep the state in each directory".to_owned());
        }
        if self.url.len() > 1 && self.kept.versions.is_some() {
            return Err("--versions works with one copy only: each needs a directory of its own".to_owned());
        }
        check_apart(&self.into)?;
        self.service.access.check_one_origin(&self.url)?;
        Ok(self.url.iter().cloned().zip(self.into.iter().cloned()).collect())
    }
}

/// Refuses copies of which one would be within another, or the same.
fn check_apart(directories: &[PathBuf]) -> Result<(), String> {
    let Some((one, other)) = overlapping(directories) else { return Ok(()) };
    Err(format!(
        "--into {} and --into {} overlap; give each copy a directory apart from the others",
        one.display(),
        other.display()
    ))
}

impl Subscribe {
    /// How hubs are reached. A hub that was given is trusted like a topic, but gets no credentials of it.
    pub(crate) fn service(&self, topics: &[String]) -> ServiceOptions {
        let mut options = self.service.options(topics);
        if let AddressPolicy::NetworkOf(trusted) = &mut options.client.address_policy {
            trusted.extend(self.hub.clone());
        }
        options
    }

    /// The topics and Sources.
    pub(crate) fn topics(&self) -> Result<Vec<String>, String> {
        self.service.access.check_one_origin(&self.topics)?;
        Ok(self.topics.clone())
    }
}

impl Service {
    /// For these Sources or topics.
    pub(crate) fn options(&self, sources: &[String]) -> ServiceOptions {
        let unless_zero = |time: Duration| Some(time).filter(|time| !time.is_zero());
        ServiceOptions {
            listen: self.callback.address,
            callback_url: self.callback.callback_url.clone(),
            lease: Some(self.lease),
            rotate_secret_after: unless_zero(self.rotate_secret),
            hook: self.exec.as_ref().map(|command| Hook::new(command).limit(unless_zero(self.exec_timeout))),
            unsubscribe_on_exit: self.unsubscribe_on_exit,
            callback: CallbackOptions::default()
                .with_max_body(usize::try_from(self.max_notification_size.as_u64()).unwrap_or(usize::MAX)),
            client: self.access.client_options(sources),
        }
    }
}

/// Which servers get requests, and how many.
#[derive(Debug, Args)]
pub(crate) struct AccessArgs {
    #[command(flatten)]
    pub(crate) addresses: AddressArgs,
    /// Maximum number of concurrent requests to one host
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = at_once)]
    pub(crate) per_host: u16,
    /// Pause between two requests to one host, such as 500ms
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration_or_zero)]
    pub(crate) delay: Duration,
    /// A bearer token for the Source; sent only to the origin of URL, also after a move to https
    #[arg(long, hide_env_values = true, value_name = "TOKEN",
          value_parser = Credentials::bearer)]
    pub(crate) token: Option<Header>,
    /// A request header for the Source; sent only to the origin of URL, also after a move to https (repeatable)
    #[arg(long, hide_env_values = true, value_name = "NAME: VALUE",
          value_delimiter = '\n', value_parser = header)]
    pub(crate) header: Vec<Header>,
    #[command(flatten)]
    pub(crate) timeouts: TimeoutArgs,
}

/// A request header.
pub(crate) type Header = (HeaderName, HeaderValue);

impl AccessArgs {
    /// Refuses to send the secrets of one Source to another.
    fn check_one_origin(&self, sources: &[String]) -> Result<(), String> {
        let has_secrets = self.token.is_some() || !self.header.is_empty();
        let mut origins = sources.iter().filter_map(|url| Url::parse(url).ok()).map(|url| url.origin());
        let first = origins.next();
        if has_secrets && origins.any(|origin| Some(origin) != first) {
            return Err(
                "--token and --header would be sent to several origins; run one process for each origin"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// For these Sources.
    pub(crate) fn client_options<'u>(&self, sources: impl IntoIterator<Item = &'u String>) -> ClientOptions {
        let sources: Vec<Url> = sources.into_iter().filter_map(|url| Url::parse(url).ok()).collect();
        ClientOptions {
            credentials: Credentials::new(self.header.iter().chain(&self.token).cloned(), sources.clone()),
            address_policy: self.addresses.policy(sources),
            per_host: self.per_host.into(),
            delay: self.delay,
            ..self.timeouts.client_options()
        }
    }
}

/// Which versions are kept beside a copy.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Also keep each version that the Source tells of, in this directory apart from DIR: as PATH/20240601120000, written once
    #[arg(long, value_name = "DIR")]
    pub(crate) versions: Option<PathBuf>,
    /// Maximum number of versions that one run fetches; the next run continues
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = number::<u64>)]
    max_versions: u64,
    /// For --versions, and --at of `sync`: also ask this archive for past states; the URI of a resource is added to its URL, of any origin
    #[arg(long, value_name = "URL", value_parser = http_url)]
    pub(crate) timegate: Option<Url>,
}

impl VersionArgs {
    /// These options, with versions.
    pub(crate) fn with(&self, options: SyncOptions) -> SyncOptions {
        let (versions, timegate) = (self.versions.clone(), self.timegate.clone());
        SyncOptions { versions, max_versions: self.max_versions, timegate, ..options }
    }
}

/// Which other origins are asked than that of the Source.
#[derive(Debug, Args)]
pub(crate) struct OriginArgs {
    /// Also fetch resources and their versions from the origin of this URL (repeatable)
    #[arg(long, value_name = "URL", value_delimiter = ' ', value_parser = http_url)]
    origin: Vec<Url>,
    /// Also fetch resources and their versions from any other origin
    #[arg(long)]
    any_origin: bool,
}

impl OriginArgs {
    /// These; `None` for any.
    pub(crate) fn others(&self) -> Option<&[Url]> {
        (!self.any_origin).then_some(self.origin.as_slice())
    }
}

/// What is copied, and how.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct SelectionArgs {
    /// Which set, if the Source has several: its Capability List's URL or a part of it
    #[arg(long, value_name = "SET")]
    pub(crate) set: Option<String>,
    /// The URL that corresponds to DIR [default: the directory of URL, or of its Source Description]
    #[arg(long = "base-url", value_name = "URL", value_parser = http_url)]
    pub(crate) base: Option<Url>,
    /// Folder of the state; never deleted [default: DIR/.resync-destination]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Remove files that the Source no longer lists, if its lists are complete
    #[arg(long)]
    pub(crate) delete: bool,
    /// Take over the files that were in DIR before it became a copy; without it they stay, and --delete refuses. Once is enough; `listen` does so only where there is no state yet
    #[arg(long)]
    pub(crate) adopt: bool,
    #[command(flatten)]
    pub(crate) origins: OriginArgs,
    /// Maximum number of resources that are compared and fetched concurrently
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = at_once)]
    pub(crate) parallel: u16,
    /// Source of a copy without files: a Resource Dump if that is cheaper, always a dump if there is one, or never
    #[arg(long, default_value = "cheaper", value_name = "WHAT", value_parser = baseline())]
    pub(crate) baseline: BaselineFrom,
    /// Where to read changes from, if the Source has both
    #[arg(long, default_value = "list", value_name = "WHAT", value_parser = changes())]
    pub(crate) changes: ChangesFrom,
    /// Also fetch from mirrors on other origins, and from the original (`via`), if the list has a hash
    #[arg(long)]
    pub(crate) mirrors: bool,
    /// Copy the alternate representation of this media type if a resource has one, or ask for it if the list describes none (repeatable)
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    pub(crate) prefer: Vec<String>,
    /// Only resources of this media type, such as text/html or image/* (repeatable)
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub(crate) types: Vec<String>,
    /// Only resources whose URI matches this pattern of * and ?
    #[arg(long, value_name = "PATTERN", value_delimiter = ' ')]
    pub(crate) include: Vec<String>,
    /// No resources whose URI matches this pattern; their files stay as they are
    #[arg(long, value_name = "PATTERN", value_delimiter = ' ')]
    pub(crate) exclude: Vec<String>,
    /// Only resources that were modified at this time or later, such as 2026-11-20
    #[arg(long, value_name = "TIME")]
    pub(crate) modified_since: Option<DateTime>,
    /// Only resources of this collection
    #[arg(long, value_name = "URI", value_delimiter = ' ')]
    pub(crate) collection: Vec<String>,
    /// Only resources that describe others
    #[arg(long)]
    pub(crate) only_metadata: bool,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

impl SelectionArgs {
    pub(crate) fn sync_options(&self) -> SyncOptions {
        SyncOptions {
            delete: self.delete,
            adopt: self.adopt,
            authority: match self.origins.others() {
                None => Authority::Any,
                Some([]) => Authority::SameOrigin,
                Some(others) => Authority::Origins(others.to_vec()),
            },
            parallel: self.parallel.into(),
            foreign_mirrors: self.mirrors,
            baseline: self.baseline,
            changes: self.changes,
            prefer: self.prefer.clone(),
            filter: Filter {
                types: self.types.clone(),
                include: self.include.clone(),
                exclude: self.exclude.clone(),
                modified_since: self.modified_since,
                collections: self.collection.clone(),
                only_metadata: self.only_metadata,
            },
            ..self.limits.sync_options()
        }
    }
}

fn baseline() -> impl TypedValueParser<Value = BaselineFrom> {
    PossibleValuesParser::new(["cheaper", "dump", "list"]).map(|text| match text.as_str() {
        "dump" => BaselineFrom::Dump,
        "list" => BaselineFrom::List,
        _ => BaselineFrom::Cheaper,
    })
}

fn changes() -> impl TypedValueParser<Value = ChangesFrom> {
    PossibleValuesParser::new(["list", "dump"]).map(|text| match text.as_str() {
        "dump" => ChangesFrom::Dump,
        _ => ChangesFrom::List,
    })
}

fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text)
        .map_err(|error| format!("not a URL ({error}): give one such as http://host:port/"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(format!("the scheme {other} is not supported: give an http or https URL")),
    }
}

fn header(text: &str) -> Result<Header, String> {
    let (name, value) = text.split_once(':').ok_or("give a header as 'Name: value'")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is not the name of a header"))?;
    let mut value: HeaderValue = value
        .trim()
        .parse()
        .map_err(|_| "its value has characters that are not allowed in a header".to_owned())?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// A time that is not in the future.
fn past(text: &str) -> Result<DateTime, String> {
    let time: DateTime = text.parse().map_err(|error: DateTimeError| error.to_string())?;
    if time > DateTime::now() {
        return Err(
            "it is in the future: give a time that has passed, such as 2026-03-01T00:00:00Z".to_owned()
        );
    }
    Ok(time)
}

/// How many at the same time.
fn at_once(text: &str) -> Result<u16, String> {
    let number = text.parse::<u16>().ok().filter(|number| (1..=256).contains(number));
    number.ok_or_else(|| "write a whole number from 1 to 256, for example 8".to_owned())
}

/// Hubs are asked for whole seconds.
fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    if lease.as_secs() == 0 {
        Err("it would end at once: write for example 10d".to_owned())
    } else {
        Ok(lease)
    }
}

/// Each is held in memory, and the inbox limits the size of its records.
fn notification_size(text: &str) -> Result<ByteSize, String> {
    let size = size(text)?;
    if size == ByteSize::b(0) {
        return Err("no notification would be accepted: give at least 1 B".to_owned());
    }
    if size > ByteSize::mib(512) { Err("give at most 512 MiB".to_owned()) } else { Ok(size) }
}

#[cfg(test)]
mod tests {
    use resync_common::habits::{name, wrong_help};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_help_is_complete_and_its_examples_are_command_lines() {
        assert_eq!(wrong_help(&command(), &HELP), Vec::<String>::new());
    }

    #[test]
    fn every_flag_has_an_environment_variable_unless_it_is_of_one_run() {
        // Only packagers write papers.
        let written = |command: &clap::Command| ["completions", "man"].contains(&command.get_name());
        for command in command().get_subcommands().filter(|command| !written(command)) {
            for argument in command.get_arguments().filter(|one| one.get_id() != "help") {
                let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
                let named = variable.is_some_and(|name| name.starts_with("RESYNC_DESTINATION_"));
                let of_one_run = ["since", "at", "versions_of", "adopt", "switch_source", "dry_run"];
                let lasts = !of_one_run.contains(&&*name(argument));
                assert_eq!(named, lasts, "{} {}", command.get_name(), argument.get_id());
            }
        }
    }

    #[test]
    fn what_no_flag_says_is_as_in_the_library() {
        let Command::Sync { copy, kept, .. } =
            Cli::parse_from(["resync-destination", "sync", "u", "d"]).command
        else {
            panic!("it is no other command")
        };
        let (ours, theirs) = (kept.with(copy.selection.sync_options()), SyncOptions::default());
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        let theirs = ClientOptions {
            address_policy: AddressPolicy::NetworkOf(Vec::new()),
            ..ClientOptions::default()
        };
        let ours = copy.access.client_options([]);
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    #[test]
    fn mem050_an_archive_can_be_named_wherever_versions_are_kept() {
        let line = "x listen http://a.example/ --into d --versions v --timegate http://b.example/web/";
        let Command::Listen(listen) = Cli::parse_from(line.split(' ')).command else {
            panic!("it is no other command")
        };
        let options = listen.kept.with(listen.selection.sync_options());
        assert_eq!(options.timegate, Url::parse("http://b.example/web/").ok());
        assert!(options.versions.is_some());
    }

    #[test]
    fn rs200_origins_that_are_named_may_be_asked_too() {
        let line = "x sync u d --origin http://a.example/ --origin https://b.example:8443/x";
        let Command::Sync { copy, .. } = Cli::parse_from(line.split(' ')).command else {
            panic!("it is no other command")
        };
        let Authority::Origins(origins) = copy.selection.sync_options().authority else {
            panic!("only those are meant")
        };
        let hosts: Vec<_> = origins.iter().filter_map(Url::host_str).collect();
        assert_eq!(hosts, ["a.example", "b.example"]);
    }

    #[test]
    fn the_secret_of_one_source_is_told_to_no_other() {
        let parse = |arguments: &str| Cli::parse_from(arguments.split(' ')).command;
        let copies = |second: &str, secret: &str| {
            let line = format!("x listen http://a.example/1 {second} --into 1 --into 2 {secret}");
            let Command::Listen(listen) = parse(&line) else { panic!("it is no other command") };
            listen.copies()
        };
        for secret in ["--token=t0ken", "--header=X-Key:t0ken"] {
            assert!(copies("http://b.example/", secret).is_err_and(|text| !text.contains("t0ken")));
            assert!(copies("http://a.example/2", secret).is_ok());
            let line = format!("x subscribe http://a.example/ http://b.example/ --state s {secret}");
            let Command::Subscribe(subscribe) = parse(&line) else { panic!("it is no other command") };
            assert!(subscribe.topics().is_err());
        }
        assert!(copies("http://b.example/", "--poll=1h").is_ok());
    }

    #[test]
    fn each_of_several_copies_has_a_directory_apart_from_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let copies = |directories: [&str; 3]| {
            let into = directories.into_iter().flat_map(|name| ["--into".into(), folder.path().join(name)]);
            let line = ["x", "listen", "http://a.example/", "http://b.example/", "http://c.example/"];
            let line = line.map(PathBuf::from).into_iter().chain(into);
            let Command::Listen(listen) = Cli::parse_from(line).command else {
                panic!("it is no other command")
            };
            listen.copies()
        };
        for overlapping in [["1", "2", "1"], ["1", "2", "./2"], ["1", "2/3", "2"], ["1", "2", "2/3"]] {
            let said = copies(overlapping).unwrap_err();
            assert!(said.contains("overlap"), "{said}");
        }
        assert_eq!(copies(["1", "2", "12"]).unwrap().len(), 3);
    }

    #[test]
    fn a_header_is_a_name_and_a_value() {
        let (name, value) = header("X-Api-Key: a:b ").unwrap();
        assert_eq!((name.as_str(), value.as_bytes()), ("x-api-key", &b"a:b"[..]));
        assert!(value.is_sensitive() && header("no colon").is_err() && header("not a name: x").is_err());
    }

    #[test]
    fn a_notification_is_allowed_some_size_and_no_more_than_fits() {
        for (text, is_allowed) in
            [("0", false), ("0 MiB", false), ("1 B", true), ("512 MiB", true), ("513 MiB", false)]
        {
            assert_eq!(notification_size(text).is_ok(), is_allowed, "{text}");
        }
    }

    #[test]
    fn a_number_that_cannot_be_at_once_is_answered_with_those_that_can() {
        for text in ["many", "0", "257", "70000", "-1", "2.5"] {
            assert!(at_once(text).is_err_and(|said| said.contains("from 1 to 256")), "{text}");
        }
        assert_eq!((at_once("1"), at_once("256")), (Ok(1), Ok(256)));
    }

    #[test]
    fn a_lease_of_less_than_a_second_is_answered_with_one_that_makes_sense() {
        for text in ["0s", "0d", "999ms"] {
            assert!(lease(text).is_err_and(|said| said.contains("for example 10d")), "{text}");
        }
        assert!(lease("soon").is_err_and(|said| said.contains("for example 90s")));
        assert_eq!(lease("1s"), Ok(Duration::from_secs(1)));
    }

    #[test]
    fn mem064_a_moment_of_the_past_has_a_zone_and_a_day_means_its_first_instant() {
        assert_eq!(past("2026-03-01"), "2026-03-01T00:00:00Z".parse().map_err(|_| String::new()));
        assert_eq!(past("2026-03-01T01:00+01:00"), past("2026-03-01"));
        assert!(past("2026-03-01T00:00:00").is_err_and(|said| said.contains("no zone")));
        assert!(past("9999-01-01").is_err_and(|said| said.contains("in the future")));
        let parse = |line: &str| command().try_get_matches_from(line.split(' '));
        for wrong in ["9999-01-01", "2026-03-01T00:00:00", "yesterday"] {
            for line in ["resync-destination sync u d --at", "resync-destination audit u d --at"] {
                let error = parse(&format!("{line} {wrong}")).unwrap_err();
                assert_eq!(error.exit_code(), 2, "{error}");
            }
        }
    }

    #[test]
    fn a_poll_of_zero_means_never() {
        assert_eq!(duration_or_zero("0").unwrap(), Duration::ZERO);
        assert_eq!(duration_or_zero("0s").unwrap(), Duration::ZERO);
    }
}
