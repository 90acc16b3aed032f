//! The log of a program: events on standard error.

use std::env;
use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Writes the events that pass `filter` to standard error, from now on. An error if it is no filter.
pub fn start(filter: &str) -> Result<(), ParseError> {
    let filter = EnvFilter::try_new(filter)?;
    let colour = takes_colour(&io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(io::stderr).init();
    Ok(())
}

/// Whether text for `stream` may have colours: it is a terminal, and `NO_COLOR` is not set.
pub fn takes_colour(stream: &impl IsTerminal) -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && stream.is_terminal()
}
