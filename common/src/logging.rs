//! The log of a program: events on standard error.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::output::{is_quiet, takes_colour};

/// Writes the events that pass `filter` to standard error, from now on; with `--quiet` errors only, unless another filter than `usual`
/// was asked for. An error if it is not a filter.
pub fn start(filter: &str, usual: &str) -> Result<(), ParseError> {
    let filter = EnvFilter::try_new(if is_quiet() && filter == usual { "error" } else { filter })?;
    let colour = takes_colour(&io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(io::stderr);
    // Where standard error is closed, a word about that would end the process.
    log.log_internal_errors(false).init();
    Ok(())
}
