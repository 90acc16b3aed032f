//! `resync-source`: the Source's tool. All it does is in the library; here flags become calls and results become words.

mod cli;
mod progress;
mod words;

use std::{
    io::{self, IsTerminal, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use cli::{
    BuildArgs, CheckArgs, Cli, Command, Failure, InitArgs, NotifyArgs, ServeArgs, StatusArgs, TokenArgs,
};
use progress::Progress;
use resync_publisher::{
    BaseUrl, HubUrl, build, check, config, notify,
    notify::{NotifyError, Outcome, Token, Told},
    publish::{Dump, describe, dump},
    serve, status, watch,
};
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
        Command::Build(arguments) => say(&run_build(&arguments).await?),
        Command::Notify(arguments) => say(&run_notify(&arguments).await?),
        Command::Publish { build, token } => run_publish(build, token).await,
        Command::Dump { build, changes } => run_dump(&build, changes).await,
        Command::Watch { build, tokens, rescan } => run_watch(&build, tokens.token, rescan).await,
        Command::Serve(arguments) => run_serve(arguments).await,
        Command::Check(arguments) => run_check(&arguments).await,
        Command::Status(arguments) => run_status(&arguments),
    }
}

/// Hashing keeps all cores busy for as long as it takes, so it runs off the runtime, which stays free for signals.
async fn run_build(arguments: &BuildArgs) -> Result<String, Failure> {
    let sets = arguments.chosen()?;
    let mut said = Vec::new();
    for (out, chosen) in &sets {
        let (settings, out) = (chosen.settings.clone(), out.clone());
        let built = unblocked(move || build(&settings, &out)).await?;
        for line in words::warnings(&built) {
            eprintln!("warning: {line}");
        }
        let name = chosen.settings.root.as_ref().map_or(String::new(), |root| format!("{}: ", root.name));
        said.push(format!("{name}{}", words::built(&built, chosen)));
    }
    if sets.len() > 1 {
        for (out, _) in sets {
            unblocked(move || describe(&out)).await?;
        }
    }
    Ok(said.join("\n"))
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

async fn run_notify(arguments: &NotifyArgs) -> Result<String, Failure> {
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    let outs = arguments.out.outs()?;
    let (hubs, failed) = loop {
        let hubs = tell(&outs, &arguments.token.tokens.token).await?;
        let failed = hubs.iter().filter(|told| matches!(told.outcome, Outcome::Failed(_))).count();
        if failed == 0 || begun.elapsed() + pause > arguments.token.retry {
            break (hubs, failed);
        }
        eprintln!("{}\ntrying again in {} s", words::told(&hubs), pause.as_secs());
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    };
    if failed > 0 {
        eprintln!("{}", words::told(&hubs));
        return Err(Failure::Hubs { failed, all: hubs.len() });
    }
    Ok(words::told(&hubs))
}

/// Tells the hubs of each set that has any.
async fn tell(outs: &[PathBuf], tokens: &[Token]) -> Result<Vec<Told>, Failure> {
    let mut told = Vec::new();
    let mut without = None;
    for out in outs {
        match notify(out, tokens).await {
            Err(error @ NotifyError::NoHub { .. }) => without = Some(error),
            one => told.extend(one?),
        }
    }
    match without {
        Some(error) if told.is_empty() => Err(error.into()),
        _ => Ok(told),
    }
}

async fn run_publish(arguments: BuildArgs, token: TokenArgs) -> Result<(), Failure> {
    let built = run_build(&arguments).await?;
    let standing = arguments.out.outs()?.iter().map(|out| status(out)).collect::<Result<Vec<_>, _>>()?;
    if standing.iter().all(|status| status.hubs.is_empty()) {
        return say(&format!("{built} · no hub to notify; name one with --hub URL"));
    }
    match run_notify(&NotifyArgs { out: arguments.out, token }).await {
        Ok(told) => say(&format!("{built} · {told}")),
        Err(failure) => {
            say(&built)?;
            Err(failure)
        }
    }
}

async fn run_dump(arguments: &BuildArgs, changes: bool) -> Result<(), Failure> {
    say(&run_build(arguments).await?)?;
    let what = if changes { Dump::Changes } else { Dump::Resources };
    for (out, _) in arguments.chosen()? {
        let dumped = unblocked(move || dump(&out, what)).await?;
        say(&words::dumped(&dumped))?;
    }
    Ok(())
}

async fn run_watch(arguments: &BuildArgs, token: Vec<Token>, rescan: Duration) -> Result<(), Failure> {
    let sets = arguments.chosen()?;
    let stop = stop_signal()?;
    // The first build shows at once what cannot work; its words are those of `build`.
    say(&run_build(arguments).await?)?;
    let sets = sets.into_iter().map(|(out, chosen)| (out, chosen.settings)).collect();
    let patience = watch::Patience { rescan, ..watch::Patience::default() };
    watch::watch(sets, token, patience, stop, |report| words::watched(&report)).await;
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
    let sets: Vec<_> = standing.iter().map(|set| format!("{} as {}", set.directory, set.base_url)).collect();
    say(&format!("listening on http://{address}, serving {}", sets.join(", ")))?;
    let mut documents = standing.iter().flat_map(|set| &set.documents);
    if let Some(start) = documents.find(|document| document.capability == "description") {
        say(&format!("Source Description: {}", start.url))?;
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
    let mut progress = Progress::new();
    let checking = check::check(&targets, &options, move |url| progress.tell(url)).await;
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
    if arguments.json {
        let json = match standing.as_slice() {
            [only] => serde_json::to_string_pretty(only),
            sets => serde_json::to_string_pretty(sets),
        };
        return say(&json.map_err(io::Error::from)?);
    }
    let said: Vec<_> = standing.iter().map(words::status).collect();
    say(&said.join("\n\n"))
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
