//! `resync-demo`: a change travels from a Source over a hub to a Destination, all three roles on one screen.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use resync_common::habits::{self, Help};
use resync_common::output::complain;
use resync_tests::demo;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

const HELP: Help = Help { headings: &[], examples: &[("", &["resync-demo", "resync-demo --keep demo"])] };

/// All three roles on one screen: a change travels from a Source over a hub to a Destination.
#[derive(Debug, Parser)]
#[command(name = "resync-demo", version)]
struct Cli {
    /// Work in this folder and keep it; without it, in a temporary one
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

fn main() -> ExitCode {
    let command = habits::habitual(Cli::command(), &HELP);
    match run(habits::parse(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(error);
            ExitCode::from(habits::FAILED)
        }
    }
}

/// Runs to the end, or until this process is told to stop: then the temporary folder goes, too.
fn run(cli: Cli) -> Result<(), Box<dyn Error + Send + Sync>> {
    let temporary = tempfile::tempdir()?;
    let folder = cli.keep.unwrap_or_else(|| temporary.path().to_owned());
    let mut out = io::stdout();
    Runtime::new()?.block_on(async {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            told = demo::run(&folder, &mut out) => told,
            _ = interrupted.recv() => Err("stopped".into()),
            _ = terminated.recv() => Err("stopped".into()),
        }
    })
}
