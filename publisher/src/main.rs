//! `resync-source`: the tool of a Source. The work is done by the library; `cli` turns flags into calls and results into text.

mod cli;

use std::{process::ExitCode, time::Duration};

use cli::{Cli, Failure, LOG};
use resync_common::{logging, output};

/// How long a build may go on after a watch was stopped. The next run makes what was interrupted, such as a dump.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    match run(Cli::of_process()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    output::be_quiet(cli.quiet);
    logging::start(&cli.log, LOG).map_err(|_| Failure::Log(cli.log))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(cli::run(cli.command));
    runtime.shutdown_timeout(GRACE);
    done.and(output::finish().map_err(Failure::from))
}
