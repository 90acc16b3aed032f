//! `resync-load`: hubs and the kit measured.

use std::fs;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use resync_load::{
    Attack, By, Copy, Failure, Fanout, Figures, Isolation, Limit, Live, Options, Publish, Recovery, Scale,
    Scenario, attack, copy, fanout, isolation, limit, publish, recovery, scale,
};
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// Measures what the hub and its kit do.
#[derive(Debug, Parser)]
#[command(name = "resync-load", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A scenario against our hub or any other: what it measures, and what the oracle says
    Run(RunArguments),
    /// The scenarios that come with this tool
    Scenarios,
    /// One or two results as a page with everything in it, as SVG and as JSON
    Report {
        /// What `resync-load run --out` wrote; with two, both are shown side by side
        #[arg(num_args = 1..=2, required = true, value_name = "RESULT")]
        results: Vec<PathBuf>,
        /// The page; the pictures and the JSON get the same name
        #[arg(short, long, default_value = "report.html", value_name = "PAGE")]
        out: PathBuf,
    },
    /// The receiver of runs by itself, or a bare hyper server, so that another tool can drive it (see tests/receiver)
    Receiver {
        /// Which of them
        #[arg(long, value_enum, default_value = "receiver")]
        kind: ReceiverKind,
        /// Bytes of a body
        #[arg(long, default_value_t = 1_000)]
        payload: u32,
    },
    /// What this machine could do at best: a bare client loop, and durable appends
    Limit {
        /// Requests of the client loop
        #[arg(long, default_value_t = 100_000)]
        requests: u64,
        /// Hosts on 127/8
        #[arg(long, default_value_t = 1_000)]
        hosts: usize,
        /// Bytes of a body
        #[arg(long, default_value_t = 1_000)]
        payload: usize,
        /// Requests under way at once, at most
        #[arg(long, default_value_t = 512)]
        at_once: usize,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// Deliveries a second of a hub, store included, against the bare client loop
    Fanout {
        /// Subscriptions of the one topic
        #[arg(long, default_value_t = 1_000)]
        subscribers: usize,
        /// Hosts on 127/8 that they are on
        #[arg(long, default_value_t = 1_000)]
        hosts: usize,
        /// Notifications that are posted in a burst
        #[arg(long, default_value_t = 50)]
        notifications: u32,
        /// Bytes of each
        #[arg(long, default_value_t = 1_000)]
        payload: usize,
        /// Requests under way at once, at most
        #[arg(long, default_value_t = 512)]
        at_once: usize,
        /// Measurements, of which the middle one counts
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// The engine of the hub's store
        #[arg(long, default_value = "fjall")]
        engine: String,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// What healthy subscribers notice of hosts that hang and hosts that refuse
    Isolation {
        /// Subscriptions of the one topic
        #[arg(long, default_value_t = 2_000)]
        subscribers: usize,
        /// Hosts on 127/8 that they are on
        #[arg(long, default_value_t = 1_000)]
        hosts: usize,
        /// One of so many hosts hangs, and another one of so many refuses
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(2..))]
        sick_one_in: u16,
        /// Notifications of a burst, for throughput
        #[arg(long, default_value_t = 150)]
        burst: u32,
        /// Notifications a second after that, for delays
        #[arg(long, default_value_t = 5)]
        rate: u32,
        /// Seconds of that
        #[arg(long, default_value_t = 6)]
        seconds: u32,
        /// Pairs of measurements; the median of their ratios counts
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// A host with many subscriptions comes back after it was away
    Recovery {
        /// Subscriptions on the one host
        #[arg(long, default_value_t = 50_000)]
        subscriptions: usize,
        /// Notifications that it misses
        #[arg(long, default_value_t = 1)]
        missed: u32,
        /// Requests at once that it gets at most
        #[arg(long, default_value_t = 8)]
        per_host: usize,
        /// Seconds that it is away at least
        #[arg(long, default_value_t = 5)]
        away: u64,
        /// The engine of the hub's store
        #[arg(long, default_value = "fjall")]
        engine: String,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// Many subscriptions: memory, start and a full fan-out, against a small hub
    Scale {
        /// Topics
        #[arg(long, default_value = "1")]
        topics: NonZeroUsize,
        /// Subscribers of each
        #[arg(long, default_value = "1000000")]
        subscribers: NonZeroUsize,
        /// Subscriptions of the small hub
        #[arg(long, default_value = "1000")]
        small: NonZeroUsize,
        /// How often it is measured; of each figure the median counts, by itself
        #[arg(long, default_value = "3")]
        rounds: NonZeroUsize,
        /// Keep the hub's data in this folder as it is when all have subscribed, and use what is there; without it, in a temporary one
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
        /// The engine of the hub's store
        #[arg(long, default_value = "fjall")]
        engine: String,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// Durable notifications a second, and the time from a post to its first delivery
    Publish {
        /// Publishers at once, one measurement for each number
        #[arg(long, value_delimiter = ',', default_value = "1,16,256")]
        publishers: Vec<usize>,
        /// Seconds of each
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        /// Notifications whose way to a subscriber is timed
        #[arg(long, default_value_t = 500)]
        timed: u32,
        /// Bytes of each
        #[arg(long, default_value_t = 1_000)]
        payload: usize,
        /// The engine of the hub's store
        #[arg(long, default_value = "fjall")]
        engine: String,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// How long a first copy of a Source behind nginx takes, against the Python client `resync`
    Copy {
        /// Files of the Source
        #[arg(long, default_value_t = 5_000)]
        files: usize,
        /// Bytes of each at most, half of that on average
        #[arg(long, default_value_t = 16_384)]
        bytes: usize,
        /// Copies that each client makes, in turns; the middle one counts
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// The program nginx
        #[arg(long, env = "RESYNC_NGINX", default_value = "nginx", value_name = "PATH")]
        nginx: PathBuf,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// What honest publishers and subscribers notice of all kinds of attackers at once
    Attack {
        #[command(flatten)]
        plan: Attack,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// Whatever is promised, measured by its own command, as one table
    Figures(FiguresArguments),
}

#[derive(Debug, Args)]
struct FiguresArguments {
    /// What is measured, as `--list` names it; everything where nothing is named
    names: Vec<String>,
    /// Where what came of each is kept; the table is made of all that are there
    #[arg(long, default_value = "figures", value_name = "DIR")]
    into: PathBuf,
    /// Name the measurements and their figures, and do nothing
    #[arg(long)]
    list: bool,
    /// Measure nothing: only the table of what is there
    #[arg(long, conflicts_with = "names")]
    only_table: bool,
    /// Put the table into this document, too, between its lines `<!-- figures -->` and `<!-- /figures -->`, unless something could
    /// not be measured
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct RunArguments {
    /// One that `resync-load scenarios` lists, or a file
    scenario: String,
    /// A WebSub hub that runs already; without it, our own is started
    #[arg(long, value_name = "URL")]
    hub: Option<String>,
    /// The process of that hub, so that its CPU and memory are measured
    #[arg(long, value_name = "PID", requires = "hub")]
    hub_pid: Option<i32>,
    /// Whether content is posted or the hub is pinged; without it, as the scenario says
    #[arg(long, value_enum)]
    by: Option<PublishBy>,
    /// Another seed than the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Other numbers of subscribers than the scenario's
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    subscribers: Option<Vec<u32>>,
    /// Another duration than the scenario's, such as 10s
    #[arg(long, value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// Do not measure what the machine could do at best
    #[arg(long)]
    no_bound: bool,
    /// Write the result as JSON to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PublishBy {
    Content,
    Ping,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReceiverKind {
    Receiver,
    Hyper,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "resync-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(arguments) => run_scenario(arguments),
        Command::Scenarios => list_scenarios(),
        Command::Report { results, out } => {
            for path in resync_load::report(&results, &out)? {
                writeln!(io::stdout(), "{}", path.display())?;
            }
            Ok(())
        }
        Command::Receiver { kind, payload } => serve_alone(kind, payload),
        Command::Limit { requests, hosts, payload, at_once, json } => {
            let folder = tempfile::tempdir_in(".")?;
            let plan = Limit { requests, hosts, payload, at_once };
            let report = measure(limit(&plan, folder.path()))?;
            show(&report, json)
        }
        Command::Fanout { subscribers, hosts, notifications, payload, at_once, rounds, engine, json } => {
            let folder = tempfile::tempdir_in(".")?;
            let rounds = rounds.max(1);
            let plan = Fanout { subscribers, hosts, notifications, payload, at_once, rounds, engine };
            let report = measure(fanout(&plan, folder.path()))?;
            show(&report, json)
        }
        Command::Isolation { subscribers, hosts, sick_one_in, burst, rate, seconds, rounds, json } => {
            let (rate, rounds, sick_one_in) = (rate.max(1), rounds.max(1), sick_one_in.into());
            let plan = Isolation { subscribers, hosts, sick_one_in, burst, rate, seconds, rounds };
            show(&measure(isolation(&plan))?, json)
        }
        Command::Recovery { subscriptions, missed, per_host, away, engine, json } => {
            let folder = tempfile::tempdir_in(".")?;
            let plan = Recovery { subscriptions, missed, per_host, away, engine };
            show(&measure(recovery(&plan, folder.path()))?, json)
        }
        Command::Scale { topics, subscribers, small, rounds, keep, engine, json } => {
            let temporary = tempfile::tempdir_in(".")?;
            let folder = keep.unwrap_or_else(|| temporary.path().to_owned());
            std::fs::create_dir_all(&folder)?;
            let plan = Scale { topics, subscribers, small, engine, rounds };
            show(&measure(scale(&plan, &folder))?, json)
        }
        Command::Publish { publishers, seconds, timed, payload, engine, json } => {
            let folder = tempfile::tempdir_in(".")?;
            let time = Duration::from_secs(seconds);
            let plan = Publish { publishers, time, timed, payload, engine };
            show(&measure(publish(&plan, folder.path()))?, json)
        }
        Command::Copy { files, bytes, rounds, nginx, json } => {
            let folder = tempfile::tempdir_in(".")?;
            show(&copy(&Copy { files, bytes, rounds, nginx }, folder.path())?, json)
        }
        Command::Attack { plan, json } => {
            let folder = tempfile::tempdir_in(".")?;
            let report = measure(attack(&plan, folder.path()))?;
            show(&report, json)?;
            let complaints = report.complaints(&plan);
            if complaints.is_empty() { Ok(()) } else { Err(complaints.join("; ").into()) }
        }
        Command::Figures(arguments) if arguments.list => list_figures(),
        Command::Figures(arguments) => measure_figures(arguments),
    }
}

fn run_scenario(arguments: RunArguments) -> Result<(), Failure> {
    let mut scenario = Scenario::load(&arguments.scenario)?;
    if let Some(by) = arguments.by {
        scenario.publish.by = match by {
            PublishBy::Content => By::Content,
            PublishBy::Ping => By::Ping,
        };
    }
    scenario.seed = arguments.seed.unwrap_or(scenario.seed);
    scenario.audience.subscribers = arguments.subscribers.unwrap_or(scenario.audience.subscribers);
    scenario.duration = arguments.duration.unwrap_or(scenario.duration);
    let options = Options {
        hub: arguments.hub,
        hub_pid: arguments.hub_pid,
        bound: !arguments.no_bound,
        live: Live::fitting(),
    };
    let result = measure(resync_load::run(&scenario, &options, Path::new(".")))?;
    if let Some(out) = &arguments.out {
        fs::write(out, serde_json::to_string_pretty(&result)?)
            .map_err(|error| format!("{} cannot be written: {error}", out.display()))?;
    }
    if arguments.json {
        show(&result, true)?;
    } else {
        writeln!(io::stdout(), "{result}")?;
    }
    if result.passed { Ok(()) } else { Err("not everything came out as the scenario expects".into()) }
}

/// Runs to the end, or until this process is told to stop: then the processes and the data that were made for it end with it.
fn measure<T>(measurement: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    Runtime::new()?.block_on(async {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            report = measurement => report,
            _ = interrupted.recv() => Err("stopped".into()),
            _ = terminated.recv() => Err("stopped".into()),
        }
    })
}

/// Says where it is, how a body has to begin, and how many bytes follow; then it serves until it is ended.
fn serve_alone(kind: ReceiverKind, payload: u32) -> Result<(), Failure> {
    Runtime::new()?.block_on(async {
        let alone = match kind {
            ReceiverKind::Receiver => resync_load::receiver_alone(payload)?,
            ReceiverKind::Hyper => resync_load::hyper_alone(payload).await?,
        };
        let (line, rest) = alone.body.split_once('\n').unwrap_or((alone.body.as_str(), ""));
        writeln!(io::stdout(), "{}\n{line}\n{}", alone.url, rest.len())?;
        io::stdout().flush()?;
        std::future::pending().await
    })
}

fn list_scenarios() -> Result<(), Failure> {
    for name in resync_load::scenarios() {
        writeln!(io::stdout(), "{name:<16} {}", Scenario::load(name)?.about)?;
    }
    Ok(())
}

fn list_figures() -> Result<(), Failure> {
    for (name, figures) in resync_load::measurements() {
        writeln!(io::stdout(), "{name}")?;
        for figure in figures {
            writeln!(io::stdout(), "    {figure}")?;
        }
    }
    Ok(())
}

fn measure_figures(arguments: FiguresArguments) -> Result<(), Failure> {
    let plan = Figures { names: arguments.names, folder: arguments.into };
    let measured = if arguments.only_table { Ok(()) } else { measure(resync_load::figures(&plan)) };
    let table = resync_load::table(&resync_load::outcomes(&plan.folder)?);
    // A document does not lose a line because something could not be measured today.
    if let Some(path) = arguments.document.as_ref().filter(|_| measured.is_ok()) {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let document = fs::read_to_string(path).map_err(|error| told(&error))?;
        fs::write(path, resync_load::insert(&document, &table).map_err(|error| told(&error))?)
            .map_err(|error| told(&error))?;
    }
    write!(io::stdout(), "{table}")?;
    measured
}

/// One line of JSON for programs, a line for each value for people.
fn show(report: &impl Serialize, json: bool) -> Result<(), Failure> {
    let text = if json { serde_json::to_string(report)? } else { serde_json::to_string_pretty(report)? };
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}
