//! `resync-load`: the hub and its kit, shown.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use resync_tests::demo;
use tokio::runtime::Runtime;

/// Shows what the hub and its kit do.
#[derive(Debug, Parser)]
#[command(name = "resync-load", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// All three roles on one screen: a change travels from a Source over a hub to a Destination
    Demo {
        /// Work in this folder and keep it; without it, in a temporary one
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let Command::Demo { keep } = Cli::parse().command;
    match run_demo(keep) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "resync-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_demo(keep: Option<PathBuf>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let temporary = tempfile::tempdir()?;
    let folder = keep.unwrap_or_else(|| temporary.path().to_owned());
    Runtime::new()?.block_on(demo::run(&folder, &mut io::stdout()))
}
