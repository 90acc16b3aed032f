//! `resync-destination`: reads the command line, calls the library, prints, exits.

mod cli;
mod config;
mod limits;
mod progress_line;
mod show;

use std::error::Error;
use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use resync_common::{logging, signals};
use resync_subscriber_kit::discover::{DiscoverError, Followed, discover};
use resync_subscriber_kit::fetch::{Client, ClientOptions};
use resync_subscriber_kit::listen::{Event, ListenError, ListenOptions, listen_all};
use resync_subscriber_kit::relay::{RelayError, RelayOptions, relay, unsubscribe};
use resync_subscriber_kit::service::ServiceOptions;
use resync_subscriber_kit::state::{STATE_FOLDER, Status, followed_by_sync, record_sync, status};
use resync_subscriber_kit::sync::{
    Depth, Offer, Progress, Report, SyncError, SyncOptions, Target, Verdict, audit, synchronise,
};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use url::{Host, Url};

use cli::{Cli, Command, ConfigCommand, Copy, Listen, Subscribe, address_policy};
use progress_line::ProgressLine;
use show::Sizes;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NO_VERDICT: u8 = 3;
const BAD_CONFIGURATION: u8 = 64;

/// An error on its way to the exit code.
struct Failure {
    code: u8,
    text: String,
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { code: FAILED, text: error.to_string() }
    }
}

impl Failure {
    fn configuration(error: impl Display) -> Self {
        Self { code: BAD_CONFIGURATION, text: error.to_string() }
    }

    /// Of an audit, which would tell a difference with the usual code.
    fn without_verdict(self) -> Self {
        let code = if self.code == FAILED { NO_VERDICT } else { self.code };
        Self { code, ..self }
    }
}

fn main() -> ExitCode {
    let begun = config::command_line().map_err(Failure::configuration).and_then(start);
    match begun {
        Ok(code) => code,
        Err(failure) => {
            // There is nowhere left to say that even this failed.
            let _ = writeln!(std::io::stderr(), "resync-destination: {}", failure.text);
            ExitCode::from(failure.code)
        }
    }
}

fn start(cli: Cli) -> Result<ExitCode, Failure> {
    logging::start(&cli.log).map_err(Failure::configuration)?;
    if let Some(path) = cli.config.as_deref().filter(|path| config::is_exposed(path)) {
        tracing::warn!(path = %path.display(), "other users may read this configuration, which contains a secret; restrict its permissions");
    }
    runtime(&cli.command)?.block_on(run(cli))
}

fn runtime(command: &Command) -> std::io::Result<Runtime> {
    let mut builder = match command {
        // Many at a time, and none may wait for another.
        Command::Subscribe(_) | Command::Listen(_) => Builder::new_multi_thread(),
        // What comes for a file is passed on more often than it is worked on, and to another thread that is dear; files have threads of their own.
        _ => Builder::new_current_thread(),
    };
    builder.enable_all().build()
}

async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Discover { url, access, no_sizes, json } => {
            let client = client(access.client_options([&url]))?;
            let source = discover(&client, &url).await.map_err(discover_failure)?;
            let sizes = if no_sizes { Sizes::default() } else { Sizes::of(&client, &source).await };
            let object = if json {
                pretty(&show::source_json(&source, &sizes))
            } else {
                show::source(&source, &sizes)
            };
            say(object)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Sync { copy, incremental, from, dry_run, list } => {
            let how = if incremental || from.is_some() { Depth::Changes } else { Depth::Full };
            let mut options = SyncOptions { dry_run, from, ..copy.selection.sync_options() };
            let is_listed = list || dry_run;
            let progress_line = if is_listed {
                options.progress = listing(copy.json);
                None
            } else {
                ProgressLine::of(&options.progress)
            };
            let report = synchronise_copy(&copy, &options, how).await;
            drop(progress_line);
            let report = report?;
            let would = if dry_run { "would be " } else { "" };
            say(match (copy.json, is_listed) {
                // The last of several lines.
                (true, true) => serde_json::to_string(&report)?,
                (true, false) => pretty(&serde_json::to_value(&report)?),
                (false, _) => format!("{would}{}", show::report(&report)),
            })?;
            Ok(verdict(report.in_step()))
        }
        Command::Audit(copy) if !copy.dir.is_dir() => Err(Failure::configuration(format!(
            "{} is no directory: nothing was copied there yet",
            copy.dir.display()
        ))),
        Command::Audit(copy) => compare(&copy).await.map_err(Failure::without_verdict),
        Command::Subscribe(flags) => hand_on(*flags).await,
        Command::Listen(flags) => Box::pin(keep_in_step(*flags)).await,
        Command::Unsubscribe { into, state, address, callback_url, public_only, any_address } => {
            let (folder, found) = state_of(into, state)?;
            let address_policy = address_policy(public_only, any_address, sure_hubs(&found));
            let client = ClientOptions { address_policy, ..ClientOptions::default() };
            end_all(
                &folder,
                ServiceOptions { listen: address, callback_url, client, ..ServiceOptions::default() },
            )
            .await
        }
        Command::Status { into, state, json } => {
            let (_, found) = state_of(into, state)?;
            say(if json { pretty(&show::status_json(&found)) } else { show::status(&found) })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Config(ConfigCommand::Print) => {
            say(config::print(cli.config.as_deref()).map_err(Failure::configuration)?.trim_end())?;
            Ok(ExitCode::SUCCESS)
        }
        // Every start checks it.
        Command::Config(ConfigCommand::Check) => match cli.config {
            Some(path) => {
                say(format!("{} can be used", path.display()))?;
                Ok(ExitCode::SUCCESS)
            }
            None => Err(Failure { code: USAGE, text: "which configuration? Give --config FILE".to_owned() }),
        },
        Command::Completions(wanted) => {
            say(wanted.script(cli::command()))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(wanted) => {
            wanted.write(cli::command())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What is to be copied where, and of which set that is, if the URL itself tells; a directory that is only looked at is not made.
async fn open(
    copy: &Copy,
    is_only_looked_at: bool,
) -> Result<(Client, Offer, Target, Option<Followed>), Failure> {
    let client = client(copy.access.client_options([&copy.url]))?;
    let source = discover(&client, &copy.url).await.map_err(discover_failure)?;
    let before = followed_by_sync(&state_folder(copy));
    let set = source.choose_again(&copy.url, copy.selection.set.as_deref(), before.as_ref())?;
    let followed = source.is_direct.then(|| Followed { url: copy.url.clone(), set: set.name() });
    let offer = Offer::of(set);
    if offer.base(copy.selection.sync_options().baseline).is_none() {
        return Err(ListenError::NothingOffered { set: set.name() }.into());
    }
    let base = copy.selection.base.clone().unwrap_or_else(|| source.base.clone());
    let directory = |error| Failure::configuration(format!("cannot use {}: {error}", copy.dir.display()));
    let target =
        if is_only_looked_at { Target::inspect(&copy.dir, base) } else { Target::open(&copy.dir, base) };
    let target = target.map_err(directory)?;
    let target = match &copy.selection.state {
        Some(folder) => target.with_state(folder),
        None => target,
    };
    Ok((client, offer, target, followed))
}

fn state_folder(copy: &Copy) -> PathBuf {
    copy.selection.state.clone().unwrap_or_else(|| copy.dir.join(STATE_FOLDER))
}

/// An audit.
async fn compare(copy: &Copy) -> Result<ExitCode, Failure> {
    let (client, offer, target, _) = open(copy, true).await?;
    let options = copy.selection.sync_options();
    let progress_line = ProgressLine::of(&options.progress);
    let report = audit(&client, &offer, &target, &options).await;
    drop(progress_line);
    let report = report?;
    say(if copy.json { pretty(&serde_json::to_value(&report)?) } else { show::audit(&report) })?;
    Ok(verdict(report.verdict == Verdict::InStep))
}

/// Names each resource that is not left as it is, in the moment in which that is known.
fn listing(json: bool) -> Progress {
    Progress::with_listener(move |event| {
        let line = if json { show::outcome_json(event) } else { show::outcome(event) };
        // A reader that went away is no reason to leave a copy half done.
        let _ = line.map_or(Ok(()), say);
    })
}

/// What it did, which `status` then tells too.
async fn synchronise_copy(copy: &Copy, options: &SyncOptions, how: Depth) -> Result<Report, Failure> {
    let (did, followed) = match open(copy, options.dry_run).await {
        Ok((client, offer, target, followed)) => {
            let did = synchronise(&client, &offer, &target, options, how).await;
            // What the other one does counts.
            if let Err(error @ SyncError::InUse { .. }) = did {
                return Err(error.into());
            }
            (did.map_err(Failure::from), followed)
        }
        Err(failure) => (Err(failure), None),
    };
    if !options.dry_run {
        remember(copy, did.as_ref().map_err(|failure| failure.text.as_str()), followed);
    }
    did
}

/// For `status`, and for the next run. A failure makes no state where there is none.
fn remember(copy: &Copy, did: Result<&Report, &str>, followed: Option<Followed>) {
    let folder = state_folder(copy);
    if did.is_err() && !folder.is_dir() {
        return;
    }
    let followed = followed.filter(|_| did.is_ok()).or_else(|| followed_by_sync(&folder));
    if let Err(error) = record_sync(&folder, did.cloned().map_err(str::to_owned), followed) {
        tracing::warn!(%error, "cannot record this run for `status`");
    }
}

/// Where that is, and what is in it.
fn state_of(into: Option<PathBuf>, state: Option<PathBuf>) -> Result<(PathBuf, Status), Failure> {
    let Some(folder) = state.or_else(|| into.map(|into| into.join(STATE_FOLDER))) else {
        return Err(Failure { code: USAGE, text: "whose state? Give --into DIR or --state DIR".to_owned() });
    };
    match status(&folder).map_err(Failure::configuration)? {
        Some(found) => Ok((folder, found)),
        None => Err(Failure { code: FAILED, text: format!("no state in {}", folder.display()) }),
    }
}

/// The hubs of a state that were asked before at the address where they are now. It was the Source that named them, so another
/// name may lead elsewhere since.
fn sure_hubs(found: &Status) -> Vec<Url> {
    let is_sure = |hub: &Url| match hub.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => true,
        None => false,
    };
    found.subscriptions.iter().filter_map(|one| Url::parse(&one.hub).ok()).filter(is_sure).collect()
}

/// Ends the subscriptions of a state.
async fn end_all(folder: &Path, service: ServiceOptions) -> Result<ExitCode, Failure> {
    let left = unsubscribe(folder, &service).await.map_err(relay_failure)?;
    for topic in &left {
        say(format!("still subscribed to {}, until the lease ends", topic.as_str()))?;
    }
    if left.is_empty() {
        say("unsubscribed")?;
    }
    Ok(verdict(left.is_empty()))
}

async fn keep_in_step(flags: Listen) -> Result<ExitCode, Failure> {
    let copies = flags.copies().map_err(|text| Failure { code: USAGE, text })?;
    let of = |(url, into): (String, PathBuf)| {
        let mut options = ListenOptions::new(url, into);
        options.sync = flags.selection.sync_options();
        options.set.clone_from(&flags.selection.set);
        options.base.clone_from(&flags.selection.base);
        options.state.clone_from(&flags.selection.state);
        options.poll = flags.poll;
        options
    };
    let is_one = copies.len() == 1;
    let copies = copies.into_iter().map(of).collect();
    let tell = move |directory: &Path, event: Event| {
        let line = match flags.json {
            true => Some(show::listen_event_json(directory, &event).to_string()),
            false if is_one => show::listen_event(&event),
            false => show::listen_event(&event).map(|line| format!("{}: {line}", directory.display())),
        };
        // A reader that went away is no reason to stop keeping the copy.
        let _ = line.map_or(Ok(()), say);
    };
    // Registered before anything is promised, so that no signal finds the default behaviour.
    let shutdown = signals::stop()?;
    listen_all(copies, &flags.service.options(&flags.url), tell, shutdown).await.map_err(|error| {
        if error.is_configuration() { Failure::configuration(error) } else { error.into() }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn hand_on(flags: Subscribe) -> Result<ExitCode, Failure> {
    let topics = flags.topics().map_err(|text| Failure { code: USAGE, text })?;
    let service = flags.service.options(&topics);
    let mut options = RelayOptions::new(topics, flags.state);
    options.service = service;
    let shutdown = signals::stop()?;
    let has_hook = options.service.hook.is_some();
    let tell = |event| {
        let said = say(if flags.json { show::relayed_json(event).to_string() } else { show::relayed(event) });
        // Without a command, what nobody reads is lost; with one, that is no reason to end a subscription.
        if has_hook { Ok(()) } else { said }
    };
    relay(options, tell, shutdown).await.map_err(relay_failure)?;
    Ok(ExitCode::SUCCESS)
}

fn relay_failure(error: RelayError) -> Failure {
    if error.is_configuration() { Failure::configuration(error) } else { error.into() }
}

fn client(options: ClientOptions) -> Result<Client, Failure> {
    Client::new(options).map_err(Failure::configuration)
}

fn discover_failure(error: DiscoverError) -> Failure {
    let error = ListenError::from(error);
    if error.is_configuration() { Failure::configuration(error) } else { error.into() }
}

fn verdict(in_step: bool) -> ExitCode {
    if in_step { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

fn say(text: impl AsRef<str>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.as_ref())?;
    out.flush()
}
