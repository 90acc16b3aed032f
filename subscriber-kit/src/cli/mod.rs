//! The command line: reads the arguments, calls the library, prints, exits.

mod args;
mod config;
mod help;
mod limits;
mod output;
mod progress_bar;

use std::error::Error;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use resync_common::habits::{BAD_CONFIGURATION, FAILED, USAGE};
use resync_common::output::{answer, be_quiet, complain, finish, is_quiet, say, speak_as, write_line};
use resync_common::{logging, signals};
use resync_core::datetime::DateTime;
use resync_core::websub::key::TopicUrl;
use resync_subscriber_kit::discover::{DiscoverError, Source, discover, versions_of};
use resync_subscriber_kit::fetch::{AddressPolicy, Client, ClientOptions};
use resync_subscriber_kit::forward::{ForwardError, ForwardOptions, forward, unsubscribe};
use resync_subscriber_kit::listen::{ListenError, ListenEvent, ListenOptions, listen_all};
use resync_subscriber_kit::receive::{ServiceOptions, StartError};
use resync_subscriber_kit::state::{STATE_FOLDER, Status, record_sync, status};
use resync_subscriber_kit::sync::{
    Depth, Offer, Progress, Report, SyncError, SyncOptions, Target, Verdict, VersionsReport, audit,
    synchronise,
};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use url::{Host, Url};

use args::{Cli, Command, ConfigCommand, Copy, LOG, Listen, StateArgs, Subscribe};
use output::Sizes;
use progress_bar::SyncProgress;

/// The exit code of an audit that could not be made.
const NO_VERDICT: u8 = 3;

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

    /// For an audit, whose usual failure code means a difference.
    fn without_verdict(self) -> Self {
        let code = if self.code == FAILED { NO_VERDICT } else { self.code };
        Self { code, ..self }
    }
}

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    speak_as("resync-destination");
    let result = config::command_line().map_err(Failure::configuration).and_then(start);
    match result.and_then(|code| Ok(finish().map(|()| code)?)) {
        Ok(code) => code,
        Err(failure) => {
            complain(failure.text);
            ExitCode::from(failure.code)
        }
    }
}

fn start(cli: Cli) -> Result<ExitCode, Failure> {
    be_quiet(cli.quiet);
    logging::start(&cli.log, LOG).map_err(|error| {
        let filter = &cli.log;
        Failure::configuration(format_args!("--log: {filter:?} is not a log filter ({error}): write for example info or warn,resync_subscriber_kit=debug"))
    })?;
    if let Some(path) = cli.config.as_deref().filter(|path| config::is_exposed(path)) {
        tracing::warn!(path = %path.display(), "other users may read this configuration, which contains a secret; restrict its permissions");
    }
    runtime(&cli.command)?.block_on(run(cli))
}

fn runtime(command: &Command) -> std::io::Result<Runtime> {
    let mut builder = match command {
        // Many at the same time, and none may wait for another.
        Command::Subscribe(_) | Command::Listen(_) => Builder::new_multi_thread(),
        // Passing data between threads costs more than the work on it; files have their own threads.
        _ => Builder::new_current_thread(),
    };
    builder.enable_all().build()
}

async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Discover { url, access, versions_of, origins, no_sizes, json } => {
            let client = Client::new(access.client_options([&url])).map_err(Failure::configuration)?;
            let source = discover(&client, &url).await.map_err(discover_failure)?;
            match versions_of {
                Some(original) => show_versions(&client, &source, &original, origins.others(), json).await,
                None => show_source(&client, &source, no_sizes, json).await,
            }
        }
        Command::Sync { copy, kept, incremental, from, at, switch_source, dry_run, list } => {
            let has_other =
                [incremental, from.is_some(), kept.versions.is_some(), !copy.selection.prefer.is_empty()];
            if at.is_some() && has_other.contains(&true) {
                let text =
                    "--at copies one moment: leave --incremental, --since, --versions and --prefer out";
                return Err(Failure { code: USAGE, text: text.to_owned() });
            }
            let depth = if incremental || from.is_some() { Depth::Changes } else { Depth::Full };
            let chosen = kept.with(copy.selection.sync_options());
            let mut options = SyncOptions { dry_run, from, at, switch_source, ..chosen };
            let is_listed = list || dry_run;
            let progress_bar = if is_listed {
                options.progress = listing(copy.json);
                None
            } else {
                SyncProgress::of(&options.progress)
            };
            let report = synchronise_copy(&copy, &options, depth).await;
            drop(progress_bar);
            let mut report = report?;
            let would = if dry_run { "would be " } else { "" };
            if is_listed && !copy.json {
                // Each has its line already.
                report.failures.clear();
                report.causes.clear();
            }
            let is_refused = dry_run && options.delete && report.earlier_files > 0;
            let are_versions_complete = report.versions.as_deref().is_none_or(VersionsReport::is_complete);
            let is_good = report.in_step() && !is_refused && are_versions_complete;
            match (copy.json, is_listed) {
                // One of several lines.
                (true, true) => answer(serde_json::to_string(&report)?),
                (true, false) => answer(pretty(&serde_json::to_value(&report)?)),
                (false, _) => {
                    let mut told = format!("{would}{}", output::report(&report));
                    if is_refused {
                        told += &output::needs_adoption(report.earlier_files);
                    }
                    say_outcome(told, is_good);
                }
            }
            Ok(verdict(is_good))
        }
        Command::Audit { copy, .. } if !copy.dir.is_dir() => Err(Failure::configuration(format!(
            "{} is not a directory; nothing was copied there yet",
            copy.dir.display()
        ))),
        Command::Audit { copy, at } => audit_copy(&copy, at).await.map_err(Failure::without_verdict),
        Command::Subscribe(flags) => forward_topics(*flags).await,
        Command::Listen(flags) => Box::pin(listen(*flags)).await,
        Command::Unsubscribe { state, callback, addresses, json } => {
            let (folder, status) = find_state(state)?;
            let address_policy = addresses.policy(sure_hubs(&status));
            let client = ClientOptions { address_policy, ..ClientOptions::default() };
            let (listen, callback_url) = (callback.address, callback.callback_url);
            let service = ServiceOptions { listen, callback_url, client, ..ServiceOptions::default() };
            end_subscriptions(&folder, &service, json).await
        }
        Command::Status { state, json } => {
            let (_, status) = find_state(state)?;
            answer(if json { pretty(&output::status_json(&status)) } else { output::status(&status) });
            Ok(ExitCode::SUCCESS)
        }
        Command::Config(ConfigCommand::Print) => {
            answer(config::print(cli.config.as_deref()).map_err(Failure::configuration)?.trim_end());
            Ok(ExitCode::SUCCESS)
        }
        // Every start checks it.
        Command::Config(ConfigCommand::Check) => match cli.config {
            Some(path) => {
                say(format_args!("{} can be used", path.display()));
                Ok(ExitCode::SUCCESS)
            }
            None => Err(Failure { code: USAGE, text: "which configuration? Give --config FILE".to_owned() }),
        },
        Command::Completions(completions) => {
            answer(completions.script(args::command()));
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(man) => {
            man.write(args::command())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn show_source(
    client: &Client,
    source: &Source,
    no_sizes: bool,
    json: bool,
) -> Result<ExitCode, Failure> {
    let sizes = if no_sizes { Sizes::default() } else { Sizes::of(client, source).await };
    answer(if json { pretty(&output::source_json(source, &sizes)) } else { output::source(source, &sizes) });
    Ok(ExitCode::SUCCESS)
}

async fn show_versions(
    client: &Client,
    source: &Source,
    original: &Url,
    others: Option<&[Url]>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let found = versions_of(client, source, original, others).await.map_err(discover_failure)?;
    if json {
        answer(pretty(&serde_json::to_value(&found)?));
    } else {
        found.versions.iter().map(output::version).for_each(answer);
        for missing in output::missing_versions(&found) {
            tracing::warn!("{missing}");
        }
    }
    Ok(verdict(found.unreadable.is_empty()))
}

/// A copy and what it is made from.
struct Opened {
    client: Client,
    offer: Offer,
    target: Target,
}

/// An archive that was given is trusted like the Source, but gets no credentials of it.
fn trust(options: &mut ClientOptions, archive: Option<&Url>) {
    if let AddressPolicy::NetworkOf(trusted) = &mut options.address_policy {
        trusted.extend(archive.cloned());
    }
}

/// Discovers the set of a copy. A directory that is only read is not made.
async fn open(copy: &Copy, archive: Option<&Url>, is_read_only: bool) -> Result<Opened, Failure> {
    let mut options = copy.access.client_options([&copy.url]);
    trust(&mut options, archive);
    let client = Client::new(options).map_err(Failure::configuration)?;
    let source = discover(&client, &copy.url).await.map_err(discover_failure)?;
    let set = source.choose(copy.selection.set.as_deref())?;
    let offer = Offer::of(set);
    if offer.base(copy.selection.sync_options().baseline).is_none() {
        return Err(ListenError::NothingOffered { set: set.name() }.into());
    }
    let base = copy.selection.base.clone().unwrap_or_else(|| source.base.clone());
    let open = if is_read_only { Target::inspect } else { Target::open };
    let directory = |source| ListenError::Directory { directory: copy.dir.clone(), source };
    let mut target = open(&copy.dir, base).map_err(|error| listen_failure(directory(error)))?;
    if let Some(folder) = &copy.selection.state {
        target = target.with_state(folder);
    }
    Ok(Opened { client, offer, target })
}

fn state_folder(copy: &Copy) -> PathBuf {
    copy.selection.state.clone().unwrap_or_else(|| copy.dir.join(STATE_FOLDER))
}

async fn audit_copy(copy: &Copy, at: Option<DateTime>) -> Result<ExitCode, Failure> {
    let Opened { client, offer, target } = open(copy, None, true).await?;
    let options = SyncOptions { at, ..copy.selection.sync_options() };
    let progress_bar = SyncProgress::of(&options.progress);
    let report = audit(&client, &offer, &target, &options).await;
    drop(progress_bar);
    let report = report.map_err(|error| told_failure(copy, error))?;
    if copy.json {
        answer(pretty(&serde_json::to_value(&report)?));
    } else {
        say_outcome(output::audit(&report), report.verdict == Verdict::InStep);
    }
    Ok(verdict(report.verdict == Verdict::InStep))
}

/// Prints each resource that does not stay as it is, as soon as that is known.
fn listing(json: bool) -> Progress {
    Progress::with_listener(move |event| {
        if json {
            output::outcome_json(event).into_iter().for_each(answer);
        } else {
            output::outcome(event).into_iter().for_each(answer);
        }
    })
}

/// Synchronises a copy, and records the result for `status`.
async fn synchronise_copy(copy: &Copy, options: &SyncOptions, depth: Depth) -> Result<Report, Failure> {
    let result = match open(copy, options.timegate.as_ref(), options.dry_run).await {
        Ok(Opened { client, offer, target }) => {
            let result = synchronise(&client, &offer, &target, options, depth).await;
            match result {
                Err(error) if is_of_another_run(&error) => return Err(told_failure(copy, error)),
                result => result.map_err(sync_failure),
            }
        }
        Err(failure) => Err(failure),
    };
    if !options.dry_run {
        record(copy, result.as_ref().map_err(|failure| failure.text.as_str()));
    }
    result
}

/// Whether it is no result of this copy: that is of another Source or moment, or the other process records its own.
fn is_of_another_run(error: &SyncError) -> bool {
    matches!(
        error,
        SyncError::OtherSource { .. }
            | SyncError::OtherMoment { .. }
            | SyncError::OutOfReach { .. }
            | SyncError::InUse { .. }
    )
}

/// Records the result for `status`. A failure makes no state where there is none.
fn record(copy: &Copy, result: Result<&Report, &str>) {
    let folder = state_folder(copy);
    if result.is_err() && !folder.is_dir() {
        return;
    }
    if let Err(error) = record_sync(&folder, result.cloned().map_err(str::to_owned)) {
        tracing::warn!(%error, "cannot record this run for `status`");
    }
}

/// The folder of a state, and its content.
fn find_state(StateArgs { into, state }: StateArgs) -> Result<(PathBuf, Status), Failure> {
    let Some(folder) = state.or_else(|| into.map(|into| into.join(STATE_FOLDER))) else {
        return Err(Failure { code: USAGE, text: "which state? Give --into DIR or --state DIR".to_owned() });
    };
    if let Some(status) = status(&folder).map_err(|error| start_failure(error.into()))? {
        return Ok((folder, status));
    }
    let text = format!(
        "there is no state in {}; name the folder of a copy with --into, or that of `subscribe` with --state",
        folder.display()
    );
    Err(Failure { code: FAILED, text })
}

/// The hubs of a state whose addresses are certain. A Source has named them, so another name may have been changed to an address
/// in this network.
fn sure_hubs(status: &Status) -> Vec<Url> {
    let is_sure = |hub: &Url| match hub.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => true,
        None => false,
    };
    status.subscriptions.iter().filter_map(|one| Url::parse(&one.hub).ok()).filter(is_sure).collect()
}

async fn end_subscriptions(folder: &Path, service: &ServiceOptions, json: bool) -> Result<ExitCode, Failure> {
    let remaining = unsubscribe(folder, service).await.map_err(start_failure)?;
    if json {
        let topics: Vec<_> = remaining.iter().map(TopicUrl::as_str).collect();
        answer(pretty(&serde_json::json!({ "unsubscribed": topics.is_empty(), "still_subscribed": topics })));
        return Ok(verdict(remaining.is_empty()));
    }
    for topic in &remaining {
        say_outcome(format_args!("still subscribed to {}, until the lease ends", topic.as_str()), false);
    }
    if remaining.is_empty() {
        say("unsubscribed");
    }
    Ok(verdict(remaining.is_empty()))
}

async fn listen(flags: Listen) -> Result<ExitCode, Failure> {
    let copies = flags.copies().map_err(|text| Failure { code: USAGE, text })?;
    let options_of = |(url, into): (String, PathBuf)| ListenOptions {
        sync: SyncOptions {
            switch_source: flags.switch_source,
            ..flags.kept.with(flags.selection.sync_options())
        },
        set: flags.selection.set.clone(),
        base: flags.selection.base.clone(),
        state: flags.selection.state.clone(),
        poll: flags.poll,
        ..ListenOptions::new(url, into)
    };
    let is_one = copies.len() == 1;
    let copies = copies.into_iter().map(options_of).collect();
    let has_stopped = AtomicBool::new(false);
    let on_event = |directory: &Path, event: ListenEvent| {
        let is_end = matches!(event, ListenEvent::Stopped { .. });
        has_stopped.fetch_or(is_end, Ordering::Relaxed);
        if flags.json {
            answer(output::listen_event_json(directory, &event));
        } else if is_one && is_end {
            // The program ends with the same message.
        } else if let Some(line) = output::listen_event(&event) {
            let whose = if is_one { String::new() } else { format!("{}: ", directory.display()) };
            say_outcome(format_args!("{whose}{line}"), !output::is_failure(&event));
        }
    };
    // Before anything else, so that no signal has its default effect.
    let shutdown = signals::stop()?;
    let mut service = flags.service.options(&flags.url);
    trust(&mut service.client, flags.kept.timegate.as_ref());
    let result = listen_all(copies, &service, on_event, shutdown).await;
    result.map(|()| ExitCode::SUCCESS).map_err(|error| {
        let failure = listen_failure(error);
        let is_said = !is_one && has_stopped.load(Ordering::Relaxed);
        let text = if is_said { "all copies have stopped".to_owned() } else { failure.text };
        Failure { text, ..failure }
    })
}

async fn forward_topics(flags: Subscribe) -> Result<ExitCode, Failure> {
    let topics = flags.topics().map_err(|text| Failure { code: USAGE, text })?;
    let service = flags.service(&topics);
    let has_hook = service.hook.is_some();
    let options = ForwardOptions { service, hub: flags.hub, ..ForwardOptions::new(topics, flags.state) };
    let shutdown = signals::stop()?;
    let on_event = |event| {
        let line = if flags.json {
            output::forward_event_json(event).to_string()
        } else {
            output::forward_event(event)
        };
        let result = write_line(line);
        // With a command, no reader is needed; without one, unread notifications would be lost.
        if has_hook { Ok(()) } else { result }
    };
    let result = forward(options, on_event, shutdown).await;
    result.map(|()| ExitCode::SUCCESS).map_err(forward_failure)
}

fn forward_failure(error: ForwardError) -> Failure {
    if error.is_configuration() { Failure::configuration(error) } else { error.into() }
}

fn start_failure(error: StartError) -> Failure {
    if error.is_configuration() { Failure::configuration(error) } else { error.into() }
}

fn listen_failure(error: ListenError) -> Failure {
    if error.is_configuration() { Failure::configuration(error) } else { error.into() }
}

fn sync_failure(error: SyncError) -> Failure {
    if error.is_configuration() { Failure::configuration(error) } else { error.into() }
}

/// Also prints what programs need of it, if they are to read the outcome.
fn told_failure(copy: &Copy, error: SyncError) -> Failure {
    if copy.json {
        output::out_of_reach_json(&error).into_iter().for_each(answer);
    }
    sync_failure(error)
}

fn discover_failure(error: DiscoverError) -> Failure {
    listen_failure(error.into())
}

/// Prints what was done. With `--quiet`, only a failure, as a message.
fn say_outcome(text: impl Display, is_good: bool) {
    if is_quiet() && !is_good { complain(text) } else { say(text) }
}

fn verdict(in_step: bool) -> ExitCode {
    if in_step { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}
