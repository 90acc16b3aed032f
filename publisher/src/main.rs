//! `resync-source`: the Source's tool. All it does is in the library; here flags become calls and results become words.

mod cli;
mod json;
mod progress;
mod words;

use std::{
    io::{self, IsTerminal, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use cli::{
    BuildArgs, CheckArgs, Chosen, Cli, Command, Failure, InitArgs, NotifyArgs, ServeArgs, StatusArgs,
    TokenArgs,
};
use progress::Bar;
use resync_publisher::{
    BaseUrl, HubUrl, check, config, notify,
    notify::{NotifyError, Outcome, Token, Told},
    publish::{Built, Dump, build_telling, describe, dump_telling},
    serve,
    state::StateError,
    status, watch,
};
use serde_json::{Value, json};
use tracing_subscriber::EnvFilter;

/// The pauses between attempts to tell a hub double from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(300);

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::of_process();
    let done = match start_log(&cli.log) {
        Ok(()) => run(cli.command).await,
        Err(failure) => Err(failure),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Init(arguments) => run_init(arguments),
        Command::Build(arguments) => {
            let mut said = run_build(&arguments).await?;
            let outcome = said.outcome();
            said.say(arguments.out.json, &[]).and(outcome)
        }
        Command::Notify(arguments) => run_notify(&arguments).await,
        Command::Publish { build, token } => run_publish(&build, &token).await,
        Command::Dump { build, changes } => run_dump(&build, changes).await,
        Command::Watch { build, tokens, rescan } => run_watch(&build, tokens.token, rescan).await,
        Command::Serve(arguments) => run_serve(arguments).await,
        Command::Check(arguments) => run_check(&arguments).await,
        Command::Status(arguments) => run_status(&arguments),
    }
}

/// What a build of all sets did, for a person and for a script.
#[derive(Default)]
struct Said {
    lines: Vec<String>,
    sets: Vec<Value>,
    has_undone: bool,
    failed: Vec<Failure>,
    /// The sets that were built.
    built: Vec<(PathBuf, Chosen)>,
}

impl Said {
    fn take(&mut self, chosen: &Chosen, built: &Built) {
        for line in words::warnings(built) {
            eprintln!("warning: {line}");
        }
        let name = name_of(chosen);
        let prefix = name.map_or(String::new(), |name| format!("{name}: "));
        self.lines.push(format!("{prefix}{}", words::built(built, chosen)));
        self.sets.push(json::built(name, built));
        self.has_undone |= !built.undone.is_empty();
    }

    /// One set that cannot be built keeps no other from it. Where there is only one, its failure is what the command ends with.
    fn fail(&mut self, name: Option<&str>, failure: Failure) {
        blame(name, &failure);
        self.failed.push(failure);
    }

    /// What the command ends with when all else has been done: what fails keeps nobody from being told of the rest.
    fn outcome(&mut self) -> Result<(), Failure> {
        let (failed, all) = (self.failed.len(), self.sets.len());
        match self.failed.pop() {
            Some(failure) if all == 1 => Err(failure),
            Some(_) => Err(Failure::Sets { failed, all }),
            None if self.has_undone => Err(Failure::Undone),
            None => Ok(()),
        }
    }

    /// Says it, with what came after it.
    fn say(self, is_json: bool, more: &[(&str, Vec<Value>)]) -> Result<(), Failure> {
        if !is_json {
            return if self.lines.is_empty() { Ok(()) } else { say(&self.lines.join("\n")) };
        }
        let mut object = json!({ "sets": self.sets });
        for (key, values) in more {
            object[*key] = json!(values);
        }
        say_json(&object)
    }
}

fn name_of(chosen: &Chosen) -> Option<&str> {
    chosen.settings.root.as_ref().map(|root| root.name.as_str())
}

/// Says which set it is about, where there are several.
fn blame(name: Option<&str>, failure: &dyn std::fmt::Display) {
    if let Some(name) = name {
        eprintln!("error: {name}: {failure}");
    }
}

/// Hashing keeps all cores busy for as long as it takes, so it runs off the runtime, which stays free for signals.
async fn run_build(arguments: &BuildArgs) -> Result<Said, Failure> {
    let sets = arguments.chosen()?;
    let are_several = sets.len() > 1;
    let mut said = Said::default();
    for (out, chosen) in sets {
        let (settings, place) = (chosen.settings.clone(), out.clone());
        let built = unblocked(move || {
            let bar = Bar::new();
            build_telling(&settings, &place, &|step| bar.tell(step))
        });
        match built.await {
            Ok(built) => {
                said.take(&chosen, &built);
                said.built.push((out, chosen));
            }
            Err(error) => {
                let name = name_of(&chosen);
                said.sets.push(json!({ "set": name, "error": error.to_string() }));
                said.fail(name, error.into());
            }
        }
    }
    if are_several {
        for (out, chosen) in said.built.clone() {
            if let Err(error) = unblocked(move || describe(&out)).await {
                said.fail(name_of(&chosen), error.into());
            }
        }
    }
    Ok(said)
}

async fn unblocked<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}

fn run_init(arguments: InitArgs) -> Result<(), Failure> {
    let InitArgs { config: path, directory, base_url, out, hub } = arguments;
    let directory = match directory {
        Some(directory) => directory,
        None => ask("The folder whose files are the resources", "the folder", "--directory DIR")?.into(),
    };
    let base_url = match base_url {
        Some(base_url) => base_url,
        None => ask("The URL under which that folder is published", "the base URL", "--base-url URL")?,
    };
    let hubs = hub.iter().map(|hub| HubUrl::parse(hub)).collect::<Result<Vec<_>, _>>()?;
    config::write_new(&path, &out, &directory, &BaseUrl::parse(&base_url)?, &hubs)?;
    say(&format!("{} written; look at it, then run `resync-source publish`", path.display()))
}

fn ask(question: &str, what: &'static str, flag: &'static str) -> Result<String, Failure> {
    let mut answer = String::new();
    if io::IsTerminal::is_terminal(&io::stdin()) {
        write!(io::stderr(), "{question}: ")?;
        io::stdin().read_line(&mut answer)?;
    }
    match answer.trim() {
        "" => Err(Failure::NotAsked(what, flag)),
        answer => Ok(answer.to_owned()),
    }
}

async fn run_notify(arguments: &NotifyArgs) -> Result<(), Failure> {
    let (hubs, outcome) = notify_all(&arguments.out.outs()?, &arguments.token).await;
    if arguments.out.json {
        say_json(&json!({ "hubs": values(&hubs) }))?;
    } else if !has_been_said(&hubs, &outcome) {
        say(&words::told(&hubs))?;
    }
    outcome
}

/// Hubs that could not be told have been named, and so have the others then.
fn has_been_said(hubs: &[Told], outcome: &Result<(), Failure>) -> bool {
    hubs.is_empty() || matches!(outcome, Err(Failure::Hubs { .. }))
}

fn values(hubs: &[Told]) -> Vec<Value> {
    hubs.iter().map(json::told).collect()
}

/// Tells the hubs for as long as that is to be tried; those that could not be told have been named by then.
async fn notify_all(outs: &[PathBuf], token: &TokenArgs) -> (Vec<Told>, Result<(), Failure>) {
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let (hubs, outcome) = tell(outs, &token.tokens.token).await;
        let failed = hubs.iter().filter(|told| matches!(told.outcome, Outcome::Failed(_))).count();
        if failed == 0 {
            return (hubs, outcome);
        }
        if begun.elapsed() + pause > token.retry {
            eprintln!("{}", words::told(&hubs));
            let failure = Failure::Hubs { failed, all: hubs.len() };
            return (hubs, outcome.and(Err(failure)));
        }
        eprintln!("{}\ntrying again in {} s", words::told(&hubs), pause.as_secs());
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Tells the hubs of each set that has any. A set whose hubs cannot be told keeps no other from it: the first such failure comes with what the
/// others said.
async fn tell(outs: &[PathBuf], tokens: &[Token]) -> (Vec<Told>, Result<(), Failure>) {
    let (mut told, mut outcome, mut without) = (Vec::new(), Ok(()), None);
    for out in outs {
        match notify(out, tokens).await {
            Ok(one) => told.extend(one),
            Err(error @ NotifyError::NoHub { .. }) => without = Some(error),
            Err(error) => outcome = outcome.and(Err(error.into())),
        }
    }
    match without {
        Some(error) if told.is_empty() => (told, outcome.and(Err(error.into()))),
        _ => (told, outcome),
    }
}

async fn run_publish(arguments: &BuildArgs, token: &TokenArgs) -> Result<(), Failure> {
    let mut built = run_build(arguments).await?;
    let undone = built.outcome();
    let is_json = arguments.out.json;
    let outs = arguments.out.outs()?;
    let mut has_hubs = false;
    let mut are_built = Vec::new();
    for out in outs {
        match status(&out) {
            // Why it was not is known.
            Err(StateError::NotBuilt { .. }) if undone.is_err() => {}
            standing => {
                has_hubs |= !standing?.hubs.is_empty();
                are_built.push(out);
            }
        }
    }
    if !has_hubs {
        if let Some(last) = built.lines.last_mut() {
            last.push_str(" · no hub to notify; name one with --hub URL");
        }
        return built.say(is_json, &[("hubs", Vec::new())]).and(undone);
    }
    let (hubs, outcome) = notify_all(&are_built, token).await;
    match built.lines.last_mut() {
        _ if has_been_said(&hubs, &outcome) => {}
        Some(last) => {
            last.push_str(" · ");
            last.push_str(&words::told(&hubs));
        }
        None => built.lines.push(words::told(&hubs)),
    }
    built.say(is_json, &[("hubs", values(&hubs))])?;
    undone.and(outcome)
}

async fn run_dump(arguments: &BuildArgs, changes: bool) -> Result<(), Failure> {
    let mut said = run_build(arguments).await?;
    let undone = said.outcome();
    let what = if changes { Dump::Changes } else { Dump::Resources };
    let (mut dumps, mut outcome) = (Vec::new(), Ok(()));
    for (out, chosen) in std::mem::take(&mut said.built) {
        let dumped = unblocked(move || {
            let bar = Bar::new();
            dump_telling(&out, what, &|step| bar.tell(step))
        });
        match dumped.await {
            Ok(dumped) => {
                said.lines.push(words::dumped(&dumped));
                dumps.push(json::dumped(name_of(&chosen), &dumped));
            }
            Err(error) => {
                blame(name_of(&chosen), &error);
                outcome = outcome.and(Err(error.into()));
            }
        }
    }
    said.say(arguments.out.json, &[("dumps", dumps)])?;
    undone.and(outcome)
}

async fn run_watch(arguments: &BuildArgs, token: Vec<Token>, rescan: Duration) -> Result<(), Failure> {
    let sets = arguments.chosen()?;
    let is_json = arguments.out.json;
    let stop = stop_signal()?;
    // The first build shows at once what cannot work; its words are those of `build`. What works for one set only is tried again.
    let mut first = run_build(arguments).await?;
    if first.built.is_empty() {
        return first.outcome();
    }
    first.say(is_json, &[])?;
    let sets = sets.into_iter().map(|(out, chosen)| (out, chosen.settings)).collect();
    let patience = watch::Patience { rescan, ..watch::Patience::default() };
    let tell = |report| {
        if is_json {
            // A watch goes on when nobody reads any more.
            drop(json::watched(&report).map(|line| writeln!(io::stdout(), "{line}")));
        } else {
            words::watched(&report);
        }
    };
    watch::watch(sets, token, patience, stop, tell).await;
    Ok(())
}

async fn run_serve(arguments: ServeArgs) -> Result<(), Failure> {
    let out = arguments.out.out()?;
    let outs = arguments.out.outs()?;
    let standing = outs.iter().map(|out| status(out)).collect::<Result<Vec<_>, _>>()?;
    let stop = stop_signal()?;
    let listener = tokio::net::TcpListener::bind(arguments.listen)
        .await
        .map_err(|error| Failure::Listen(arguments.listen, error))?;
    let address = listener.local_addr()?;
    let mut documents = standing.iter().flat_map(|set| &set.documents);
    let start = documents.find(|document| document.capability == "description").map(|start| &start.url);
    if arguments.out.json {
        let sets: Vec<_> = standing
            .iter()
            .map(|set| json!({"directory": set.directory, "base_url": set.base_url}))
            .collect();
        let listening = format!("http://{address}");
        say_json(&json!({"listening": listening, "serving": sets, "source_description": start}))?;
    } else {
        let sets: Vec<_> =
            standing.iter().map(|set| format!("{} as {}", set.directory, set.base_url)).collect();
        say(&format!("listening on http://{address}, serving {}", sets.join(", ")))?;
        start.map_or(Ok(()), |start| say(&format!("Source Description: {start}")))?;
    }
    Ok(serve::serve(listener, out, stop).await?)
}

async fn run_check(arguments: &CheckArgs) -> Result<(), Failure> {
    let targets = arguments.targets.iter().map(|target| check::Target::parse(target));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    let options = check::Options {
        base_url: arguments.base_url.as_deref().map(BaseUrl::parse).transpose()?,
        deadline: arguments.deadline,
        requests: arguments.max_requests,
        documents: arguments.max_documents,
        packages: arguments.packages.as_u64(),
    };
    let bar = Bar::new();
    let checking = check::check(&targets, &options, move |asked| bar.ask(asked)).await;
    let findings = checking?;
    if arguments.json {
        say(&serde_json::to_string_pretty(&findings).map_err(io::Error::from)?)?;
    } else {
        say(&findings.text(takes_colour(&io::stdout())).to_string())?;
    }
    match findings.ended_early {
        Some(reason) => Err(Failure::EndedEarly(reason)),
        None if findings.conforming => Ok(()),
        None => Err(Failure::Rules),
    }
}

fn run_status(arguments: &StatusArgs) -> Result<(), Failure> {
    let outs = arguments.out.outs()?;
    let standing = outs.iter().map(|out| status(out)).collect::<Result<Vec<_>, _>>()?;
    if arguments.out.json {
        let json = match standing.as_slice() {
            [only] => serde_json::to_string_pretty(only),
            sets => serde_json::to_string_pretty(sets),
        };
        return say(&json.map_err(io::Error::from)?);
    }
    let said: Vec<_> = standing.iter().map(words::status).collect();
    say(&said.join("\n\n"))
}

fn say_json(object: &Value) -> Result<(), Failure> {
    say(&serde_json::to_string_pretty(object).map_err(io::Error::from)?)
}

/// A reader that has seen enough (`| head`) is no failure.
fn say(line: &str) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn start_log(filter: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).map_err(|_| Failure::Log(filter.to_owned()))?;
    let colour = takes_colour(&io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(io::stderr).init();
    Ok(())
}

fn takes_colour(stream: &impl IsTerminal) -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && stream.is_terminal()
}

/// Ready once SIGINT or SIGTERM comes; both are caught from this call on.
#[cfg(unix)]
fn stop_signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    })
}

#[cfg(not(unix))]
fn stop_signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
