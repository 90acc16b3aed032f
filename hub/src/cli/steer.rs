//! `resync-hub drain` and `log-level`: whether a running hub accepts anything new, and what it logs.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use resync_common::output::answer;
use resync_common::values::duration;
use resync_hub::admin::counted;
use serde::Deserialize;

use super::tools::{AdminApi, understand};
use super::{Failure, complain, say};

/// The exit code of a wait that timed out.
const STILL_OWED: u8 = 3;
const UNCOUNTED: &str = "it does not say what is left to deliver";
/// How often a wait asks what is left to deliver.
const ASK_EVERY: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub(super) struct Drain {
    /// Accept everything again
    #[arg(long)]
    end: bool,
    /// Wait until everything is delivered; standard error shows what is left
    #[arg(long, conflicts_with = "end")]
    wait: bool,
    /// Wait no longer than this, for example 90s or 2h (exit code 3 if something is left then)
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    admin: AdminApi,
}

#[derive(Args, Debug)]
pub(super) struct LogLevel {
    /// A level for all, levels for parts, or both: warn, hub=debug, info,resync_hub::delivery=trace; without it, the current one is shown
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    #[command(flatten)]
    admin: AdminApi,
}

/// What the admin API says of a drain.
#[derive(Clone, Deserialize)]
struct DrainState {
    draining: bool,
    /// Absent from older hubs, and if the store does not answer.
    #[serde(flatten)]
    owed: Option<Counts>,
}

#[derive(Clone, Deserialize, PartialEq, Eq)]
struct Counts {
    under_way: usize,
    to_fetch: usize,
    to_verify: usize,
    to_notify: usize,
    in_turn: usize,
    laggards: usize,
    paused: usize,
    nothing_left: bool,
}

impl Counts {
    /// What is left to deliver, as a text.
    fn words(&self) -> String {
        let subscriptions = |count| counted(count, "subscription", "subscriptions");
        let parts = [
            (self.under_way, counted(self.under_way, "request", "requests") + " under way"),
            (self.to_fetch, counted(self.to_fetch, "topic", "topics") + " to fetch"),
            (self.to_verify, counted(self.to_verify, "callback", "callbacks") + " to verify"),
            (self.to_notify, counted(self.to_notify, "callback", "callbacks") + " to notify of a denial"),
            (self.in_turn, subscriptions(self.in_turn) + " whose turn comes"),
            (self.laggards, subscriptions(self.laggards) + " behind"),
        ];
        let mut owed: Vec<_> =
            parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, words)| words).collect();
        if self.paused > 0 {
            let paused = self.paused;
            owed.push(format!(
                "{paused} of them until their topic is resumed (`resync-hub deliveries paused`)"
            ));
        }
        if owed.is_empty() { "nothing is left to deliver".to_owned() } else { owed.join(", ") }
    }
}

/// What the admin API says of the log.
#[derive(Deserialize)]
struct Filter {
    filter: String,
}

pub(super) fn drain(command: Drain) -> Result<(), Failure> {
    let Drain { end, wait, timeout, admin } = command;
    let (json, admin) = (admin.json, admin.named()?);
    let mut body = admin.clone().ask(if end { "DELETE" } else { "POST" }, "/api/v1/drain", "")?;
    let mut state = understand::<DrainState>(&body)?;
    let mut over = false;
    if wait {
        (body, state, over) = until_nothing_is_owed(&admin, (body, state), timeout)?;
    }
    if json {
        answer(body);
    }
    let owed = state.owed.as_ref().map_or_else(|| UNCOUNTED.to_owned(), Counts::words);
    if over {
        return Err(Failure { code: STILL_OWED, message: format!("timed out: {owed}") });
    }
    if wait && !state.draining {
        return Err(Failure::new("the drain was ended before everything was delivered"));
    }
    if !json && state.draining {
        say(format_args!("draining: nothing new is accepted, deliveries go on; {owed}"));
    } else if !json {
        say("everything is accepted again");
    }
    Ok(())
}

/// Asks until nothing is owed, somebody ends the drain, or the time is over; reports each change of what is left. Returns the last answer,
/// and whether the time was over.
fn until_nothing_is_owed(
    admin: &AdminApi,
    (mut body, mut state): (String, DrainState),
    timeout: Option<Duration>,
) -> Result<(String, DrainState, bool), Failure> {
    let begun = Instant::now();
    let mut reported = None;
    while state.draining {
        let Some(owed) = state.owed else {
            return Err(Failure::new(format!(
                "the hub is drained, but there is nothing to wait for: {UNCOUNTED}"
            )));
        };
        if owed.nothing_left {
            state.owed = Some(owed);
            break;
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok((body, DrainState { owed: Some(owed), ..state }, true));
        }
        if reported.as_ref() != Some(&owed) {
            complain(format_args!("waiting: {}", owed.words()));
            reported = Some(owed);
        }
        thread::sleep(left.map_or(ASK_EVERY, |left| left.min(ASK_EVERY)));
        body = admin.clone().ask("GET", "/api/v1/drain", "")?;
        state = understand(&body)?;
    }
    Ok((body, state, false))
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
    answer(if json { body } else { filter });
    Ok(())
}
