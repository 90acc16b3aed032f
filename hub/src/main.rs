//! `resync-hub`: runs the hub and its small tools.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use tikv_jemallocator::Jemalloc;

/// The system's allocator keeps what the threads of the store's compactions took once; this one gives it back.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    cli::run(cli::Cli::parse())
}
