//! `resync-hub`: runs the hub and its small tools.

mod cli;

use std::process::ExitCode;

/// The system's allocator keeps what the threads of the store's compactions took once; this one gives it back.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::main()
}
