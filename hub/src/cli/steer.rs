//! `resync-hub drain` and `log-level`: what a running hub takes, and what it tells.

use clap::Args;
use serde::Deserialize;

use super::tools::{AdminApi, understand};
use super::{Failure, say};

#[derive(Args, Debug)]
pub(super) struct Drain {
    /// Take everything again
    #[arg(long)]
    end: bool,
    #[command(flatten)]
    admin: AdminApi,
}

#[derive(Args, Debug)]
pub(super) struct LogLevel {
    /// A level for all, levels for parts, or both: warn, hub=debug, info,resync_hub::delivery=trace; without it, the present one is shown
    filter: Option<String>,
    #[command(flatten)]
    admin: AdminApi,
}

/// What the admin API says of a drain.
#[derive(Deserialize)]
struct Draining {
    draining: bool,
    late: usize,
}

/// And of the log.
#[derive(Deserialize)]
struct Filter {
    filter: String,
}

pub(super) fn drain(command: Drain) -> Result<(), Failure> {
    let Drain { end, admin } = command;
    let json = admin.json;
    let body = admin.ask(if end { "DELETE" } else { "POST" }, "/api/v1/drain", "")?;
    let Draining { draining, late } = understand(&body)?;
    if json {
        say(body);
    } else if draining {
        say(format_args!(
            "draining: nothing new is taken, deliveries go on; {late} subscriptions are behind"
        ));
    } else {
        say("everything is taken again");
    }
    Ok(())
}

pub(super) fn log_level(command: LogLevel) -> Result<(), Failure> {
    let LogLevel { filter, admin } = command;
    let json = admin.json;
    let body = match filter {
        None => admin.ask("GET", "/api/v1/log", "")?,
        Some(filter) => {
            admin.ask("PUT", "/api/v1/log", &serde_json::json!({ "filter": filter }).to_string())?
        }
    };
    let Filter { filter } = understand(&body)?;
    if json {
        say(body);
    } else {
        say(filter);
    }
    Ok(())
}
