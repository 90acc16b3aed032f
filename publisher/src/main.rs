//! `resync-source`: the Source's tool. All it does is in the library; here flags become calls and results become words.

mod cli;
mod progress;
mod words;

use std::{
    io::{self, IsTerminal, Write as _},
    process::ExitCode,
    time::{Duration, Instant},
};

use cli::{BuildArgs, CheckArgs, Cli, Command, Failure, NotifyArgs, ServeArgs, StatusArgs, TokenArgs};
use progress::Progress;
use resync_publisher::{BaseUrl, build, check, notify, notify::Outcome, serve, status};
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
        Command::Build(arguments) => say(&run_build(&arguments).await?),
        Command::Notify(arguments) => say(&run_notify(&arguments).await?),
        Command::Publish { build, token } => run_publish(build, token).await,
        Command::Serve(arguments) => run_serve(arguments).await,
        Command::Check(arguments) => run_check(&arguments).await,
        Command::Status(arguments) => run_status(&arguments),
    }
}

/// Hashing keeps all cores busy for as long as it takes, so it runs off the runtime, which stays free for signals.
async fn run_build(arguments: &BuildArgs) -> Result<String, Failure> {
    let chosen = arguments.settings()?;
    let (settings, out) = (chosen.settings.clone(), arguments.out.out.clone());
    let building = tokio::task::spawn_blocking(move || build(&settings, &out)).await;
    let built = building.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))?;
    for line in words::warnings(&built) {
        eprintln!("warning: {line}");
    }
    Ok(words::built(&built, &chosen))
}

async fn run_notify(arguments: &NotifyArgs) -> Result<String, Failure> {
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    let (hubs, failed) = loop {
        let hubs = notify(&arguments.out.out, &arguments.token.token).await?;
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

async fn run_publish(arguments: BuildArgs, token: TokenArgs) -> Result<(), Failure> {
    let built = run_build(&arguments).await?;
    if status(&arguments.out.out)?.hubs.is_empty() {
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

async fn run_serve(arguments: ServeArgs) -> Result<(), Failure> {
    let out = arguments.out.out;
    let standing = status(&out)?;
    let stop = stop_signal()?;
    let listener = tokio::net::TcpListener::bind(arguments.listen)
        .await
        .map_err(|error| Failure::Listen(arguments.listen, error))?;
    let address = listener.local_addr()?;
    say(&format!("listening on http://{address}, serving {} as {}", standing.directory, standing.base_url))?;
    if let Some(start) = standing.documents.iter().find(|document| document.capability == "description") {
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
    let standing = status(&arguments.out.out)?;
    if arguments.json {
        return say(&serde_json::to_string_pretty(&standing).map_err(io::Error::from)?);
    }
    say(&words::status(&standing))
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
