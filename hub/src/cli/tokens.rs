//! `resync-hub token`: the publishers' tokens, by way of the running hub, or in the files of one that is stopped.

use std::fs;
use std::path::Path;

use clap::Subcommand;
use resync_common::output::Table;
use resync_hub::admin::{Audit, By};
use resync_hub::config::Config;
use resync_hub::topics::{NewToken, TokenInfo, Tokens, TokensError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::form_urlencoded::byte_serialize;

use super::owner::{is_ours, refused};
use super::tools::{WhichHub, order, understand};
use super::{Failure, say};

/// Where the admin API has them.
const TOKENS: &str = "/api/v1/tokens";

#[derive(Debug, Subcommand)]
pub(super) enum Token {
    /// Make a token; it is shown once
    Add {
        /// A name for it, to list and revoke it by
        #[arg(value_name = "NAME")]
        name: String,
        /// Topics that begin like this (repeatable)
        #[arg(long = "topic-prefix", value_name = "URL", required = true)]
        topic_prefixes: Vec<String>,
        #[command(flatten)]
        hub: WhichHub,
    },
    /// List the tokens
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        hub: WhichHub,
    },
    /// Revoke a token at once
    Revoke {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        hub: WhichHub,
    },
}

pub(super) fn run(command: Token) -> Result<(), Failure> {
    match command {
        Token::Add { name, topic_prefixes, hub } => say(add(&hub.load()?, &name, topic_prefixes)?),
        Token::List { json, hub } => show(&list(&hub.load()?)?, json)?,
        Token::Revoke { name, hub } => {
            revoke(&hub.load()?, &name)?;
            say(format_args!("{name} is revoked"));
        }
    }
    Ok(())
}

fn add(config: &Config, name: &str, topic_prefixes: Vec<String>) -> Result<String, Failure> {
    match of_running(config) {
        Ok(_) => {
            let wish = json!({ "name": name, "topic_prefixes": topic_prefixes }).to_string();
            let Made { token } = understand(&order(config, None, "POST", TOKENS, &wish)?)?;
            Ok(token)
        }
        Err(away) => {
            let what = format!("{name} for {}", topic_prefixes.join(" "));
            let add = |file: &Path| Tokens::add(file, name, topic_prefixes);
            let NewToken(token) = in_files(config, away, "token add", &what, add)?;
            Ok(token)
        }
    }
}

fn list(config: &Config) -> Result<Vec<Line>, Failure> {
    of_running(config).or_else(|away| {
        let tokens = Tokens::open(&config.publisher_tokens_file());
        let tokens = tokens.map_err(|error| away.and(&Failure::new(error)))?;
        let mut used = tokens.last_used();
        let line = |(name, info): (&str, &TokenInfo)| Line {
            name: name.to_owned(),
            topic_prefixes: info.topic_prefixes.clone(),
            created_at: info.created_at.clone(),
            last_used: used.remove(name),
        };
        Ok(tokens.list().map(line).collect())
    })
}

fn revoke(config: &Config, name: &str) -> Result<(), Failure> {
    match of_running(config) {
        Ok(_) => {
            let part = byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20");
            order(config, None, "DELETE", &format!("{TOKENS}/{part}"), "").map(drop)
        }
        Err(away) => in_files(config, away, "token revoke", name, |file| Tokens::revoke(file, name)),
    }
}

/// The tokens as the running hub tells them; where none answers that knows the operator's token of these files, why not.
fn of_running(config: &Config) -> Result<Vec<Line>, Failure> {
    understand(&order(config, None, "GET", TOKENS, "")?)
}

/// Changes them in the files, since the hub is away, and writes that down where it would.
fn in_files<T>(
    config: &Config,
    away: Failure,
    act: &str,
    what: &str,
    change: impl FnOnce(&Path) -> Result<T, TokensError>,
) -> Result<T, Failure> {
    fs::create_dir_all(&config.data_dir).map_err(|error| refused(&config.data_dir, &error))?;
    is_ours(config).map_err(|not_ours| away.and(&not_ours))?;
    let audit = Audit::open(&config.audit_file()).map_err(Failure::new)?;
    let begun = audit.begin(By::Files, act, what).map_err(Failure::new)?;
    let changed = change(&config.publisher_tokens_file());
    audit.end(begun, &changed.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned()));
    changed.map_err(Failure::new)
}

/// What the admin API answers when a token was made.
#[derive(Deserialize)]
struct Made {
    token: String,
}

/// A token in a list.
#[derive(Deserialize, Serialize)]
struct Line {
    name: String,
    topic_prefixes: Vec<String>,
    created_at: String,
    last_used: Option<String>,
}

fn show(tokens: &[Line], json: bool) -> Result<(), Failure> {
    if json {
        say(serde_json::to_string(tokens).map_err(Failure::new)?);
        return Ok(());
    }
    let mut table = Table::new(["NAME", "MADE", "LAST USED", "TOPICS"]);
    for Line { name, topic_prefixes, created_at, last_used } in tokens {
        let used = last_used.as_deref().unwrap_or("never");
        table.row([name.as_str(), created_at, used, &topic_prefixes.join(" ")]);
    }
    table.print();
    Ok(())
}
