//! The small tools: topics, subscriptions, the configuration, the health check.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use resync_common::output::{Table, note, warn};
use resync_common::values::number;
use resync_common::words::counted;
use resync_hub::config::{self, DEFAULT_TOML};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::reach::{RunningHub, anybody, operator};
use super::which::{file_in_force, unread};
use super::{Failure, answer, say, variables};

/// Entries of one page.
const PAGE: usize = 1_000;

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check the configuration (exit code 64 when it has mistakes)
    Check(CheckArgs),
    /// Print every key with its meaning and the value in force, secrets hidden
    Print {
        #[command(flatten)]
        of: CheckArgs,
        /// The defaults instead: the template of a configuration file
        #[arg(long)]
        default: bool,
    },
}

#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// Configuration file (TOML); /etc/resync-hub/hub.toml, as for the service, if it exists and neither this nor RESYNC_HUB_DATA_DIR is given
    #[arg(long, value_name = "FILE", env = "RESYNC_HUB_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(super) struct Topics {
    #[command(flatten)]
    admin: AdminApi,
}

#[derive(Debug, Subcommand)]
pub(super) enum Subscriptions {
    /// List the subscriptions in force
    List {
        #[command(flatten)]
        admin: AdminApi,
    },
    /// Print everything that is stored about a subscription or a callback, except secrets (JSON)
    Export {
        /// The id of a subscription, as `list` shows it, or the URL of a callback
        #[arg(value_name = "ID|URL")]
        whose: String,
        #[command(flatten)]
        admin: AdminApi,
    },
    /// Give the status page of a subscription another address; the old one stops working
    NewAddress {
        /// Its id, as `list` shows it
        #[arg(value_name = "ID", value_parser = number::<u64>)]
        id: u64,
        #[command(flatten)]
        admin: AdminApi,
    },
    /// End subscriptions now and tell their callbacks (hub.mode=denied)
    Deny {
        /// Their ids, as `list` shows them
        #[arg(value_name = "ID", required_unless_present = "topic", value_parser = number::<u64>)]
        ids: Vec<u64>,
        /// All subscriptions of this topic
        #[arg(long, value_name = "URL")]
        topic: Option<String>,
        /// The reason that the subscribers get
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
        #[command(flatten)]
        admin: AdminApi,
    },
}

/// How to reach the admin API of a running hub.
#[derive(Args, Clone, Debug)]
pub(super) struct AdminApi {
    /// The answer of the admin API as it is (JSON)
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(flatten)]
    hub: RunningHub,
}

#[derive(Args, Debug)]
pub(super) struct Healthcheck {
    /// Print JSON: whether it is ready, and what it says
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: RunningHub,
}

impl CheckArgs {
    /// Names the file in use. On standard error, since what is printed is itself a configuration.
    fn file(self) -> Option<PathBuf> {
        let is_named = self.config.is_some();
        let file = file_in_force(self.config);
        note(match &file {
            None => "no configuration file is used".to_owned(),
            Some(file) if is_named => format!("the configuration file is {}", file.display()),
            Some(file) => {
                format!(
                    "the configuration file is {}, which `serve` reads with --config only",
                    file.display()
                )
            }
        });
        file
    }
}

pub(super) fn config(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Print { default: true, .. } => answer(DEFAULT_TOML.trim_end()),
        ConfigCommand::Print { of, default: false } => {
            answer(config::print(of.file().as_deref(), variables()).map_err(unread)?.trim_end());
        }
        ConfigCommand::Check(args) => {
            let config = config::load(args.file().as_deref(), variables(), &Vec::new()).map_err(unread)?;
            resync_hub::check_files(&config)?;
            if config.secrets.credential().is_some() {
                note("the keys for secrets are passed to the service only, and were not checked");
            }
            config.exposed().iter().for_each(warn);
            config.example_url().iter().for_each(warn);
            say("the configuration is fine");
        }
    }
    Ok(())
}

/// Topics with the bounds of their logs, and where chains of Change Notifications were broken (CN-008).
pub(super) fn topics(command: Topics) -> Result<(), Failure> {
    let json = command.admin.json;
    let topics = command.admin.all("/api/v1/topics")?;
    if json {
        say(Value::from(topics));
        return Ok(());
    }
    let topics: Vec<TopicLine> = lines(topics)?;
    let mut table = Table::new(["TOPIC", "ID", "LOG"]);
    for TopicLine { url, id, first, head, .. } in &topics {
        table.row([url, id, &format!("{first}..{head}")]);
    }
    table.print();
    for topic in topics {
        let Some(chain) = topic.chain.filter(|chain| chain.broken > 0) else { continue };
        let broken = counted(chain.broken, "time", "times");
        say(format_args!("{}: chain of Change Notifications broken {broken}", topic.url));
        for one in chain.breaks {
            say(format_args!(
                "  {} before {}: the one before it ended {}, it starts {}",
                one.kind, one.notification, one.ended, one.started
            ));
        }
    }
    Ok(())
}

/// Who is subscribed, and ending that (W-102).
pub(super) fn subscriptions(command: Subscriptions) -> Result<(), Failure> {
    match command {
        Subscriptions::List { admin } => {
            let json = admin.json;
            let all = admin.all("/api/v1/subscriptions")?;
            if json {
                answer(Value::from(all));
                return Ok(());
            }
            let mut table = Table::new(["ID", "TOPIC", "CALLBACK", "UNTIL"]);
            for SubscriptionLine { id, topic, callback_origin, lease_end } in lines(all)? {
                table.row([id.to_string(), topic, callback_origin, lease_end]);
            }
            table.print();
        }
        Subscriptions::Export { whose, admin } => {
            let path = if let Ok(id) = whose.parse::<u64>() {
                format!("/api/v1/subscriptions/{id}/export")
            } else {
                let query = Serializer::new(String::new()).append_pair("callback", &whose).finish();
                format!("/api/v1/export?{query}")
            };
            let all: Value = understand(&admin.ask("GET", &path, "")?)?;
            answer(format_args!("{all:#}"));
        }
        Subscriptions::NewAddress { id, admin } => {
            let json = admin.json;
            let body = admin.ask("POST", &format!("/api/v1/subscriptions/{id}/address"), "")?;
            let AddressLine { status_page } = understand(&body)?;
            answer(if json { body } else { status_page });
        }
        Subscriptions::Deny { ids, topic, reason, admin } => {
            let json = admin.json;
            let body = serde_json::json!({ "ids": ids, "topic": topic, "reason": reason }).to_string();
            let body = admin.ask("POST", "/api/v1/subscriptions/deny", &body)?;
            let DeniedLine { denied, unreadable } = understand(&body)?;
            if json {
                answer(body);
            } else {
                say(format_args!("{denied} denied"));
                for id in unreadable {
                    say(format_args!(
                        "subscription {id} could not be read: it is removed, and its callback is not notified"
                    ));
                }
            }
            if denied == 0 {
                return Err(Failure::new(
                    "there is no such subscription: `resync-hub subscriptions list` shows all",
                ));
            }
        }
    }
    Ok(())
}

impl AdminApi {
    /// Fixes which hub is asked, so that it stays the same when hubs stop or start meanwhile.
    pub(super) fn named(self) -> Result<Self, Failure> {
        let Self { json, hub: RunningHub { hub, admin } } = self;
        Ok(Self { json, hub: RunningHub { hub: hub.named()?, admin } })
    }

    /// Every entry of a list, page by page.
    fn all(self, path: &str) -> Result<Vec<Value>, Failure> {
        let admin = operator(&self.hub.hub.load()?, self.hub.admin.as_ref())?;
        let (mut all, mut next) = (Vec::new(), None::<String>);
        loop {
            let after = next.map_or_else(String::new, |next| format!("&after={next}"));
            let page: Page = understand(&admin.ask("GET", &format!("{path}?limit={PAGE}{after}"), "")?)?;
            all.extend(page.items);
            next = page.next;
            if next.is_none() {
                return Ok(all);
            }
        }
    }

    pub(super) fn ask(self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        self.hub.ask(method, path, body)
    }
}

pub(super) fn understand<T: DeserializeOwned>(body: &str) -> Result<T, Failure> {
    serde_json::from_str(body).map_err(|error| no_hub(&error))
}

fn lines<T: DeserializeOwned>(entries: Vec<Value>) -> Result<Vec<T>, Failure> {
    serde_json::from_value(Value::from(entries)).map_err(|error| no_hub(&error))
}

fn no_hub(error: &serde_json::Error) -> Failure {
    if error.is_eof() {
        return Failure::new(
            "the answer is incomplete: the hub, or a proxy in front of it, stopped meanwhile; try again",
        );
    }
    Failure::new(format_args!("the answer is not from a hub of this version: {error}"))
}

/// A page of a list of the admin API.
#[derive(Debug, Deserialize)]
struct Page {
    items: Vec<Value>,
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct SubscriptionLine {
    id: u64,
    topic: String,
    callback_origin: String,
    lease_end: String,
}

#[derive(Debug, Deserialize)]
struct AddressLine {
    status_page: String,
}

#[derive(Debug, Deserialize)]
struct DeniedLine {
    denied: usize,
    #[serde(default)]
    unreadable: Vec<u64>,
}

/// What is shown of a topic of the admin API.
#[derive(Debug, Deserialize)]
struct TopicLine {
    id: String,
    url: String,
    first: u64,
    head: u64,
    chain: Option<ChainLine>,
}

#[derive(Debug, Deserialize)]
struct ChainLine {
    broken: u64,
    breaks: Vec<BreakLine>,
}

#[derive(Debug, Deserialize)]
struct BreakLine {
    notification: String,
    kind: String,
    ended: String,
    started: String,
}

/// A container's health check needs no more.
pub(super) fn healthcheck(check: Healthcheck) -> Result<(), Failure> {
    let Healthcheck { json, hub: RunningHub { hub, admin } } = check;
    let config = hub.load()?;
    let said = anybody(&config, admin.as_ref()).and_then(|hub| hub.ask("GET", "/readyz", ""));
    if json {
        let detail = said.as_ref().unwrap_or_else(|failure| &failure.message);
        answer(serde_json::json!({ "ready": said.is_ok(), "detail": detail }));
        return said.map(drop);
    }
    say(said?);
    Ok(())
}
