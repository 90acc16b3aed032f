//! `resync-hub token`: the publishers' tokens, by way of the running hub, or in the files of one that is stopped.

use std::fmt;
use std::fs;
use std::path::Path;

use clap::Subcommand;
use resync_hub::admin::{Audit, By};
use resync_hub::config::Config;
use resync_hub::topics::{NewToken, TokenInfo, Tokens, TokensError};
use serde::Deserialize;
use serde_json::json;
use url::form_urlencoded::byte_serialize;

use super::owner::{is_ours, refused};
use super::reach::{AdminAddress, RunningHub, order};
use super::tools::understand;
use super::{Failure, say};

/// Where the admin API has them.
const TOKENS: &str = "/api/v1/tokens";

#[derive(Debug, Subcommand)]
pub(super) enum Token {
    /// Make a token; it is shown once
    Add {
        /// A name for it, to list and revoke it by
        name: String,
        /// Topics that begin like this; may be repeated
        #[arg(long = "topic-prefix", value_name = "URL", required = true)]
        topic_prefixes: Vec<String>,
        #[command(flatten)]
        hub: RunningHub,
    },
    /// List the tokens
    List {
        #[command(flatten)]
        hub: RunningHub,
    },
    /// Revoke a token at once
    Revoke {
        /// Its name
        name: String,
        #[command(flatten)]
        hub: RunningHub,
    },
}

pub(super) fn run(command: Token) -> Result<(), Failure> {
    match command {
        Token::Add { name, topic_prefixes, hub } => say(Whose::of(&hub)?.add(&name, topic_prefixes)?),
        Token::List { hub } => Whose::of(&hub)?.list()?.iter().for_each(say),
        Token::Revoke { name, hub } => {
            Whose::of(&hub)?.revoke(&name)?;
            say(format_args!("{name} is revoked"));
        }
    }
    Ok(())
}

/// The hub whose tokens are meant.
struct Whose<'a> {
    config: Config,
    at: Option<&'a AdminAddress>,
}

impl<'a> Whose<'a> {
    fn of(hub: &'a RunningHub) -> Result<Self, Failure> {
        Ok(Self { config: hub.hub.load()?, at: hub.admin.as_ref() })
    }

    fn add(&self, name: &str, topic_prefixes: Vec<String>) -> Result<String, Failure> {
        match self.of_running()? {
            Ok(_) => {
                let wish = json!({ "name": name, "topic_prefixes": topic_prefixes }).to_string();
                let Made { token } = understand(&self.order("POST", TOKENS, &wish)?)?;
                Ok(token)
            }
            Err(away) => {
                let what = format!("{name} for {}", topic_prefixes.join(" "));
                let add = |file: &Path| Tokens::add(file, name, topic_prefixes);
                let NewToken(token) = in_files(&self.config, away, "token add", &what, add)?;
                Ok(token)
            }
        }
    }

    fn list(&self) -> Result<Vec<Line>, Failure> {
        self.of_running()?.or_else(|away| {
            let tokens = Tokens::open(&self.config.publisher_tokens_file());
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

    fn revoke(&self, name: &str) -> Result<(), Failure> {
        match self.of_running()? {
            Ok(_) => {
                let part = byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20");
                self.order("DELETE", &format!("{TOKENS}/{part}"), "").map(drop)
            }
            Err(away) => {
                in_files(&self.config, away, "token revoke", name, |file| Tokens::revoke(file, name))
            }
        }
    }

    /// The tokens as the running hub tells them; where none answers that knows the operator's token of these files, why not.
    ///
    /// # Errors
    /// When a hub is named, and it does not answer: these files are not its.
    fn of_running(&self) -> Result<Result<Vec<Line>, Failure>, Failure> {
        let told = self.order("GET", TOKENS, "").and_then(|told| understand(&told));
        if self.at.is_some() { told.map(Ok) } else { Ok(told) }
    }

    fn order(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        order(&self.config, self.at, method, path, body)
    }
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
#[derive(Deserialize)]
struct Line {
    name: String,
    topic_prefixes: Vec<String>,
    created_at: String,
    last_used: Option<String>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, topic_prefixes, created_at, last_used } = self;
        let used = last_used.as_deref().unwrap_or("never");
        write!(f, "{name}\tmade {created_at}\tused {used}\t{}", topic_prefixes.join(" "))
    }
}
