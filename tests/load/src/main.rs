//! `resync-load`: hubs and the kit measured.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use resync_common::completions::{Completions, Man};
use resync_common::habits::{self, FAILED, GLOBAL};
use resync_common::output::{Table, answer, be_quiet, complain, finish, is_quiet, say};
use resync_common::values::{duration, number};
use resync_harness::Scratch;
use resync_load::{
    Attack, By, Cluster, Copy, Failure, Fanout, Isolation, Limit, Live, Options, Pages, Publish, Recovery,
    Scale, Scenario, attack, cluster, copy, fanout, isolation, limit, pages, publish, recovery, scale,
};
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

mod help;
mod table;

use help::HELP;

/// The engines of a hub's store.
const ENGINES: [&str; 2] = ["fjall", "sled"];

/// Measure what the hub and its kit do.
#[derive(Debug, Parser)]
#[command(name = "resync-load", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print failures only, and results
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a scenario against our hub or any other, and judge what it measured
    Run(RunArguments),
    /// List the scenarios that come with this tool
    Scenarios {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one or two results as a page with everything in it, as SVG and as JSON
    Report {
        /// What `resync-load run --out` wrote; with two, both are shown side by side
        #[arg(num_args = 1..=2, required = true, value_name = "FILE")]
        results: Vec<PathBuf>,
        /// The page; the pictures and the JSON get the same name
        #[arg(short, long, default_value = "report.html", value_name = "FILE")]
        out: PathBuf,
    },
    /// Serve the receiver of runs by itself, or a bare hyper server, so that another tool can drive it (see tests/receiver)
    Receiver {
        /// Which of them
        #[arg(long, value_enum, default_value = "receiver", value_name = "KIND")]
        kind: ReceiverKind,
        /// Bytes of a body
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = number::<u32>)]
        payload: u32,
    },
    /// Measure what this machine could do at best: a bare client loop, and durable appends
    Limit {
        /// Requests of the client loop
        #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = number::<u64>)]
        requests: u64,
        /// Hosts on 127/8
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = number::<usize>)]
        hosts: usize,
        /// Bytes of a body
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = number::<usize>)]
        payload: usize,
        /// Requests under way at once, at most
        #[arg(long, value_name = "N", default_value_t = 512, value_parser = number::<usize>)]
        at_once: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure deliveries a second of a hub, store included, against the bare client loop
    Fanout {
        /// Subscriptions of the one topic
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = number::<usize>)]
        subscribers: usize,
        /// Hosts on 127/8 that they are on
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = number::<usize>)]
        hosts: usize,
        /// Notifications that are posted in a burst
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = number::<u32>)]
        notifications: u32,
        /// Bytes of each
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = number::<u32>)]
        payload: u32,
        /// Requests under way at once, at most
        #[arg(long, value_name = "N", default_value_t = 512, value_parser = number::<usize>)]
        at_once: usize,
        /// Measurements, of which the middle one counts
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<usize>)]
        rounds: usize,
        /// The engine of the hub's store
        #[arg(long, default_value = "fjall", value_name = "ENGINE", value_parser = ENGINES)]
        engine: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure what healthy subscribers notice of hosts that hang and hosts that refuse
    Isolation {
        /// Subscriptions of the one topic
        #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = number::<usize>)]
        subscribers: usize,
        /// Hosts on 127/8 that they are on
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = number::<usize>)]
        hosts: usize,
        /// One of so many hosts hangs, and another one of so many refuses
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(2..))]
        sick_one_in: u16,
        /// Notifications of a burst, for throughput
        #[arg(long, value_name = "N", default_value_t = 150, value_parser = number::<u32>)]
        burst: u32,
        /// Notifications a second after that, for delays
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<u32>)]
        rate: u32,
        /// Seconds of that
        #[arg(long, value_name = "N", default_value_t = 6, value_parser = number::<u32>)]
        seconds: u32,
        /// Pairs of measurements; the median of their ratios counts
        #[arg(long, value_name = "N", default_value_t = 9, value_parser = number::<usize>)]
        rounds: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure how a host with many subscriptions gets them after it was away
    Recovery {
        /// Subscriptions on the one host
        #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = number::<usize>)]
        subscriptions: usize,
        /// Notifications that it misses
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u32>)]
        missed: u32,
        /// Requests at once that it gets at most
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = number::<usize>)]
        per_host: usize,
        /// Seconds that it is away at least
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<u64>)]
        away: u64,
        /// The engine of the hub's store
        #[arg(long, default_value = "fjall", value_name = "ENGINE", value_parser = ENGINES)]
        engine: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure many subscriptions: memory, start and a full fan-out, against a small hub
    Scale {
        /// Topics
        #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
        topics: NonZeroUsize,
        /// Subscribers of each
        #[arg(long, value_name = "N", default_value = "1000000", value_parser = positive)]
        subscribers: NonZeroUsize,
        /// Subscriptions of the small hub
        #[arg(long, value_name = "N", default_value = "1000", value_parser = positive)]
        small: NonZeroUsize,
        /// How often it is measured; of each figure the median counts, by itself
        #[arg(long, value_name = "N", default_value = "3", value_parser = positive)]
        rounds: NonZeroUsize,
        /// Keep the hub's data in this folder as it is when all have subscribed, and use what is there; without it, in a temporary one
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
        /// The engine of the hub's store
        #[arg(long, default_value = "fjall", value_name = "ENGINE", value_parser = ENGINES)]
        engine: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure how long a hub with many topics takes for each of the operator's pages
    Pages {
        /// Topics, each with a URL of 200 bytes and one notification
        #[arg(long, value_name = "N", default_value = "10000", value_parser = positive)]
        topics: NonZeroUsize,
        /// How often each page is read, all of them in turns
        #[arg(long, value_name = "N", default_value = "200", value_parser = positive)]
        reads: NonZeroUsize,
        /// The engine of the hub's store
        #[arg(long, default_value = "fjall", value_name = "ENGINE", value_parser = ENGINES)]
        engine: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure durable notifications a second, against a bare HTTP server, and the time from a post to its first delivery
    Publish {
        /// Publishers at once, one measurement for each number
        #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16,256", value_parser = number::<usize>)]
        publishers: Vec<usize>,
        /// Seconds of each in a round, to the hub, to a bare HTTP server and to a file
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<u64>)]
        seconds: u64,
        /// Rounds; the middle one counts
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<usize>)]
        rounds: usize,
        /// Notifications whose way to a subscriber is timed
        #[arg(long, value_name = "N", default_value_t = 500, value_parser = number::<u32>)]
        timed: u32,
        /// Bytes of each
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = number::<u32>)]
        payload: u32,
        /// The engine of the hub's store
        #[arg(long, default_value = "fjall", value_name = "ENGINE", value_parser = ENGINES)]
        engine: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure how long a first copy of a Source behind nginx takes, against the Python client `resync`
    Copy {
        /// Files of the Source
        #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = number::<usize>)]
        files: usize,
        /// Bytes of each at most, half of that on average
        #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = number::<usize>)]
        bytes: usize,
        /// Copies that each client makes, in turns; the middle one counts
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<usize>)]
        rounds: usize,
        /// The program nginx
        #[arg(long, env = "RESYNC_NGINX", default_value = "nginx", value_name = "FILE")]
        nginx: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure what honest publishers and subscribers notice of all kinds of attackers at once
    Attack {
        #[command(flatten)]
        plan: Attack,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure several hubs over one PostgreSQL that this tool starts, each measurement in turns with its bound
    Cluster {
        #[command(flatten)]
        plan: Cluster,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure whatever is promised, each by its own command, and show it as one table
    Figures(table::Arguments),
    /// Print completions for a shell
    Completions(Completions),
    /// Write man pages into a folder
    Man(Man),
}

fn positive(text: &str) -> Result<NonZeroUsize, String> {
    NonZeroUsize::new(number(text)?).ok_or_else(|| "write a whole number above 0, for example 100".to_owned())
}

#[derive(Debug, Args)]
struct RunArguments {
    /// One that `resync-load scenarios` lists, or a file
    #[arg(value_name = "SCENARIO|FILE")]
    scenario: String,
    /// A WebSub hub that runs already; without it, our own is started
    #[arg(long, value_name = "URL")]
    hub: Option<String>,
    /// The process of that hub, so that its CPU and memory are measured
    #[arg(long, value_name = "PID", requires = "hub")]
    hub_pid: Option<i32>,
    /// Whether content is posted or the hub is pinged; without it, as the scenario says
    #[arg(long, value_enum, value_name = "HOW")]
    by: Option<PublishBy>,
    /// Another seed than the scenario's
    #[arg(long, value_name = "N", value_parser = number::<u64>)]
    seed: Option<u64>,
    /// Other numbers of subscribers than the scenario's
    #[arg(long, value_delimiter = ',', value_name = "N")]
    subscribers: Option<Vec<u32>>,
    /// Another duration than the scenario's, such as 10s
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    duration: Option<Duration>,
    /// Do not measure what the machine could do at best
    #[arg(long)]
    no_bound: bool,
    /// Write the result as JSON to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON
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
    let cli: Cli = habits::parse(command_line());
    be_quiet(cli.quiet);
    match run(cli.command).and_then(|()| Ok(finish()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(error);
            ExitCode::from(FAILED)
        }
    }
}

fn command_line() -> clap::Command {
    habits::habitual(Cli::command(), &HELP)
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(arguments) => run_scenario(arguments),
        Command::Scenarios { json } => list_scenarios(json),
        Command::Report { results, out } => {
            for path in resync_load::report(&results, &out)? {
                say(path.display());
            }
            Ok(())
        }
        Command::Receiver { kind, payload } => serve_alone(kind, payload),
        Command::Limit { requests, hosts, payload, at_once, json } => {
            let folder = Scratch::new_in(Path::new("."))?;
            let plan = Limit { requests, hosts, payload, at_once };
            let report = measure(limit(&plan, folder.path()))?;
            show(&report, json)
        }
        Command::Fanout { subscribers, hosts, notifications, payload, at_once, rounds, engine, json } => {
            let folder = Scratch::new_in(Path::new("."))?;
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
            let folder = Scratch::new_in(Path::new("."))?;
            let plan = Recovery { subscriptions, missed, per_host, away, engine };
            show(&measure(recovery(&plan, folder.path()))?, json)
        }
        Command::Scale { topics, subscribers, small, rounds, keep, engine, json } => {
            let temporary = Scratch::new_in(Path::new("."))?;
            let folder = keep.unwrap_or_else(|| temporary.path().to_owned());
            std::fs::create_dir_all(&folder)?;
            let plan = Scale { topics, subscribers, small, engine, rounds };
            show(&measure(scale(&plan, &folder))?, json)
        }
        Command::Pages { topics, reads, engine, json } => {
            let folder = Scratch::new_in(Path::new("."))?;
            let plan = Pages { topics, reads, engine };
            show(&measure(pages(&plan, folder.path()))?, json)
        }
        Command::Publish { publishers, seconds, rounds, timed, payload, engine, json } => {
            let folder = Scratch::new_in(Path::new("."))?;
            let time = Duration::from_secs(seconds);
            let plan = Publish { publishers, time, rounds, timed, payload, engine };
            show(&measure(publish(&plan, folder.path()))?, json)
        }
        Command::Copy { files, bytes, rounds, nginx, json } => {
            let folder = Scratch::new_in(Path::new("."))?;
            show(&copy(&Copy { files, bytes, rounds, nginx }, folder.path())?, json)
        }
        Command::Attack { plan, json } => {
            let folder = Scratch::new_in(Path::new("."))?;
            let report = measure(attack(&plan, folder.path()))?;
            show(&report, json)?;
            let complaints = report.complaints(&plan);
            if complaints.is_empty() { Ok(()) } else { Err(complaints.join("; ").into()) }
        }
        Command::Cluster { plan, json } => {
            let folder = Scratch::new_in(Path::new("."))?;
            show(&measure(cluster(&plan, folder.path()))?, json)
        }
        Command::Figures(arguments) => arguments.run(),
        Command::Completions(wanted) => {
            answer(wanted.script(command_line()));
            Ok(())
        }
        Command::Man(wanted) => Ok(wanted.write(command_line())?),
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
        live: if is_quiet() { Live::Silent } else { Live::fitting() },
    };
    let result = measure(resync_load::run(&scenario, &options, Path::new(".")))?;
    if let Some(out) = &arguments.out {
        fs::write(out, serde_json::to_string_pretty(&result)?)
            .map_err(|error| format!("{} cannot be written: {error}", out.display()))?;
    }
    if arguments.json {
        show(&result, true)?;
    } else {
        answer(&result);
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
        answer(format_args!("{}\n{line}\n{}", alone.url, rest.len()));
        std::future::pending().await
    })
}

fn list_scenarios(json: bool) -> Result<(), Failure> {
    let about = |name: &'static str| -> Result<_, Failure> { Ok((name, Scenario::load(name)?.about)) };
    let all = resync_load::scenarios().map(about).collect::<Result<Vec<_>, _>>()?;
    if json {
        let objects = all.iter().map(|(name, about)| serde_json::json!({ "name": name, "about": about }));
        return show(&objects.collect::<Vec<_>>(), true);
    }
    let mut table = Table::new(["NAME", "ABOUT"]);
    for (name, about) in all {
        table.row([name, &about]);
    }
    table.print();
    Ok(())
}

/// One line of JSON for programs, a line for each value for people.
fn show(report: &impl Serialize, json: bool) -> Result<(), Failure> {
    let text = if json { serde_json::to_string(report)? } else { serde_json::to_string_pretty(report)? };
    answer(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_is_complete_and_its_examples_are_command_lines() {
        command_line().debug_assert();
        assert_eq!(habits::wrong_help(&command_line(), &HELP), Vec::<String>::new());
    }
}
