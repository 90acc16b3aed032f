//! `resync-hub token`: the publishers' tokens, by way of the running hub, or where one that is stopped keeps them.

use std::fs;
use std::sync::Arc;

use clap::Subcommand;
use resync_common::output::{Table, note};
use resync_hub::admin::{Audit, By};
use resync_hub::config::Config;
use resync_hub::store::{Keyring, Place, Registry};
use resync_hub::topics::{NewToken, TokenInfo, Tokens, TokensError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::form_urlencoded::byte_serialize;

use super::owner::{is_ours, refused};
use super::reach::{AdminAddress, RunningHub, order};
use super::tools::understand;
use super::{Failure, answer, say};

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
        hub: RunningHub,
    },
    /// List the tokens
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        hub: RunningHub,
    },
    /// Revoke a token at once
    Revoke {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        hub: RunningHub,
    },
}

pub(super) fn run(command: Token) -> Result<(), Failure> {
    match command {
        Token::Add { name, topic_prefixes, hub } => {
            let (token, place) = Whose::of(&hub)?.add(&name, topic_prefixes)?;
            answer(token);
            // Standard output has nothing but the token.
            note(format_args!("{name} is added {place}"));
        }
        Token::List { json, hub } => show(&Whose::of(&hub)?.list()?, json)?,
        Token::Revoke { name, hub } => {
            let place = Whose::of(&hub)?.revoke(&name)?;
            say(format_args!("{name} is revoked {place}"));
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

    /// The token, and where it was added.
    fn add(&self, name: &str, topic_prefixes: Vec<String>) -> Result<(String, String), Failure> {
        match self.of_running()? {
            Ok(_) => {
                let body = json!({ "name": name, "topic_prefixes": topic_prefixes }).to_string();
                let Made { token } = understand(&self.order("POST", TOKENS, &body)?)?;
                Ok((token, self.by_hub()))
            }
            Err(away) => {
                let what = format!("{name} for {}", topic_prefixes.join(" "));
                let add = |files: &dyn Registry| Tokens::add(files, name, topic_prefixes);
                let NewToken(token) = in_files(&self.config, away, "token add", &what, add)?;
                Ok((token, self.by_files()))
            }
        }
    }

    fn list(&self) -> Result<Vec<Line>, Failure> {
        self.of_running()?.or_else(|away| {
            let read = || -> Result<_, Failure> {
                let registry = registry(&self.config)?;
                let tokens = Tokens::open(&*registry).map_err(Failure::new)?;
                Ok((registry, tokens))
            };
            let (registry, tokens) = read().map_err(|error| away.and(&error))?;
            let mut used = tokens.last_used(&*registry);
            let line = |(name, info): (&str, &TokenInfo)| Line {
                name: name.to_owned(),
                topic_prefixes: info.topic_prefixes.clone(),
                created_at: info.created_at.clone(),
                last_used: used.remove(name),
            };
            Ok(tokens.list().map(line).collect())
        })
    }

    /// Where it was revoked.
    fn revoke(&self, name: &str) -> Result<String, Failure> {
        match self.of_running()? {
            Ok(_) => {
                let part = byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20");
                self.order("DELETE", &format!("{TOKENS}/{part}"), "").map(|_| self.by_hub())
            }
            Err(away) => {
                let revoke = |files: &dyn Registry| Tokens::revoke(files, name);
                in_files(&self.config, away, "token revoke", name, revoke)?;
                Ok(self.by_files())
            }
        }
    }

    fn by_hub(&self) -> String {
        self.at.map_or_else(
            || format!("in {}, by the hub that runs there", self.config.data_dir.display()),
            |at| format!("by the hub at {at}"),
        )
    }

    fn by_files(&self) -> String {
        let place = Place::of(&self.config);
        if place.is_folder() {
            format!("in the files of {place}, where no hub answers")
        } else {
            format!("in {place}, since no hub answers here")
        }
    }

    /// The tokens as the running hub lists them, or why no hub answers that knows the operator's token of these files.
    ///
    /// # Errors
    /// When a hub is named, and it does not answer: these files are not its.
    fn of_running(&self) -> Result<Result<Vec<Line>, Failure>, Failure> {
        let listed = self.order("GET", TOKENS, "").and_then(|body| understand(&body));
        if self.at.is_some() { listed.map(Ok) } else { Ok(listed) }
    }

    fn order(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        order(&self.config, self.at, method, path, body)
    }
}

/// Changes them where they are kept, since the hub is away, and writes that down where it would.
fn in_files<T>(
    config: &Config,
    away: Failure,
    command: &str,
    what: &str,
    change: impl FnOnce(&dyn Registry) -> Result<T, TokensError>,
) -> Result<T, Failure> {
    let is_in_folder = Place::of(config).is_folder();
    if is_in_folder {
        fs::create_dir_all(&config.data_dir).map_err(|error| refused(&config.data_dir, &error))?;
    }
    let ours = if is_in_folder { is_ours(config) } else { Ok(()) };
    let registry = ours.and_then(|()| registry(config)).map_err(|error| away.and(&error))?;
    let audit = Audit::open(Arc::clone(&registry)).map_err(Failure::new)?;
    let begun = audit.begin(By::Files, command, what).map_err(Failure::new)?;
    let changed = change(&*registry);
    audit.end(begun, &changed.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned()));
    changed.map_err(Failure::new)
}

fn registry(config: &Config) -> Result<Arc<dyn Registry>, Failure> {
    let keys = Keyring::of(&config.secrets).map_err(Failure::new)?;
    Place::of(config).registry(&keys).map_err(Failure::new)
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
        answer(serde_json::to_string(tokens).map_err(Failure::new)?);
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
