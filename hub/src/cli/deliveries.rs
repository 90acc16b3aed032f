//! `resync-hub deliveries`: what is late in a running hub, and what to do about it.

use clap::{ArgGroup, Args, Subcommand};
use resync_common::output::{Table, is_quiet};
use resync_common::values::number;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::tools::{AdminApi, understand};
use super::{Failure, answer};

#[derive(Debug, Args)]
pub(super) struct Deliveries {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    admin: AdminApi,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Subscriptions that are behind
    Laggards(Page),
    /// Notifications that were given up for a subscription
    Skips(Page),
    /// Notifications that were gone from the log before a subscription got them
    Lost(Page),
    /// Hosts in trouble that are left alone for a while
    Hosts,
    /// Topics of which nothing is delivered for now
    Paused,
    /// Try again now what waits for another attempt
    Retry(Which),
    /// Give up the next notification for a late subscription
    Skip {
        /// Its number
        #[arg(long, value_name = "ID", value_parser = number::<u64>)]
        subscription: u64,
    },
    /// Deliver once more what was posted from an offset or a moment on
    Replay(Replay),
    /// Deliver nothing of a topic until it is resumed; posts are still accepted
    Pause(Topic),
    /// Let deliveries of a topic go on
    Resume(Topic),
}

#[derive(Debug, Args)]
struct Page {
    /// Begin after this place: what the page before said in "next"
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = number::<usize>)]
    limit: usize,
}

#[derive(Debug, Args)]
struct Topic {
    /// Its URL
    #[arg(value_name = "URL")]
    topic: String,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true))]
struct Which {
    /// All late subscriptions of a topic
    #[arg(long, value_name = "URL", group = "which")]
    topic: Option<String>,
    /// One subscription
    #[arg(long, value_name = "ID", group = "which", value_parser = number::<u64>)]
    subscription: Option<u64>,
    /// All late subscriptions of a host, for example https://destination.example
    #[arg(long, value_name = "ORIGIN", group = "which")]
    host: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whose").required(true), group = ArgGroup::new("begin").required(true))]
struct Replay {
    /// To all subscriptions of a topic
    #[arg(long, value_name = "URL", group = "whose")]
    topic: Option<String>,
    /// To one subscription
    #[arg(long, value_name = "ID", group = "whose", value_parser = number::<u64>)]
    subscription: Option<u64>,
    /// From this offset on
    #[arg(long, value_name = "OFFSET", group = "begin", value_parser = number::<u64>)]
    from: Option<u64>,
    /// From this moment on, for example 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", group = "begin")]
    since: Option<String>,
}

pub(super) fn run(deliveries: Deliveries) -> Result<(), Failure> {
    let (method, path, parameters) = request(deliveries.command);
    let mut query = Serializer::new(String::new());
    for (name, value) in parameters {
        if let Some(value) = value {
            query.append_pair(name, &value);
        }
    }
    let json = deliveries.admin.json;
    let path = format!("/api/v1/deliveries/{path}?{}", query.finish());
    let body = deliveries.admin.ask(method, &path, "")?;
    if json {
        answer(body);
        return Ok(());
    }
    let told: Value = understand(&body)?;
    // A list is printed with --quiet too, what was done is not.
    if method == "GET" || !is_quiet() {
        show(&told);
    }
    Ok(())
}

type Parameters = Vec<(&'static str, Option<String>)>;

fn request(command: Command) -> (&'static str, &'static str, Parameters) {
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let page = |page: Page| vec![("after", page.after), ("limit", Some(page.limit.to_string()))];
    match command {
        Command::Laggards(turn) => ("GET", "laggards", page(turn)),
        Command::Skips(turn) => ("GET", "skips", page(turn)),
        Command::Lost(turn) => ("GET", "lost", page(turn)),
        Command::Hosts => ("GET", "hosts", Vec::new()),
        Command::Paused => ("GET", "paused", Vec::new()),
        Command::Retry(Which { topic, subscription, host }) => {
            ("POST", "retry", vec![("topic", topic), ("subscription", number(subscription)), ("host", host)])
        }
        Command::Skip { subscription } => {
            ("POST", "skip", vec![("subscription", number(Some(subscription)))])
        }
        Command::Replay(Replay { topic, subscription, from, since }) => {
            let parameters = vec![
                ("topic", topic),
                ("subscription", number(subscription)),
                ("from", number(from)),
                ("since", since),
            ];
            ("POST", "replay", parameters)
        }
        Command::Pause(Topic { topic }) => ("POST", "pause", vec![("topic", Some(topic))]),
        Command::Resume(Topic { topic }) => ("POST", "resume", vec![("topic", Some(topic))]),
    }
}

/// A row for each entry, its fields by name.
fn show(told: &Value) {
    match told {
        Value::Array(entries) if entries.iter().all(Value::is_object) => table(entries),
        Value::Array(names) => names.iter().for_each(show),
        Value::Object(fields) if fields.contains_key("items") => {
            show(&fields["items"]);
            if let Some(Value::String(next)) = fields.get("next") {
                answer(format_args!("more: --after {next}"));
            }
        }
        Value::Object(_) => table(std::slice::from_ref(told)),
        Value::Null => answer("done"),
        other => answer(plain(other)),
    }
}

fn table(entries: &[Value]) {
    let fields = |entry: &Value| entry.as_object().cloned().unwrap_or_default();
    let names = entries.first().map(fields).unwrap_or_default();
    let mut table = Table::new(names.keys().map(|name| name.to_uppercase().replace('_', " "))).named();
    for entry in entries.iter().map(fields) {
        table.row(names.keys().map(|name| entry.get(name).map(plain).unwrap_or_default()));
    }
    table.print();
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
