//! The small tools: tokens of publishers, topics, the configuration, the health check.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use resync_hub::config::{self, Config, DEFAULT_TOML};
use resync_hub::topics::{NewToken, Tokens};
use serde::Deserialize;

use super::{Failure, Settings, say};

/// How long a healthy hub may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

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
        hub: WhichHub,
    },
    /// List the tokens
    List {
        #[command(flatten)]
        hub: WhichHub,
    },
    /// Make a token worthless, at once
    Revoke {
        /// Its name
        name: String,
        #[command(flatten)]
        hub: WhichHub,
    },
}

/// Which hub's files are meant.
#[derive(Args, Debug)]
pub(super) struct WhichHub {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "RESYNC_HUB_CONFIG")]
    config: Option<PathBuf>,
    /// The hub's data folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check the configuration (exit code 64 when it has mistakes)
    Check(CheckArgs),
    /// Print the commented default configuration
    Print,
}

#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// Configuration file (TOML)
    #[arg(value_name = "FILE", env = "RESYNC_HUB_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(super) struct Topics {
    /// The answer of the admin API as it is (JSON)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: WhichHub,
    /// Where the hub's admin API listens, if not where the configuration says
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
}

#[derive(Args, Debug)]
pub(super) struct Healthcheck {
    /// Where the hub's health listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081", env = "RESYNC_HUB_ADMIN_LISTEN")]
    admin: SocketAddr,
}

impl WhichHub {
    fn load(self) -> Result<Config, Failure> {
        Ok(Settings { config: self.config, data_dir: self.data_dir, ..Settings::default() }.load()?)
    }

    fn tokens(self) -> Result<Tokens, Failure> {
        Tokens::open(&self.load()?.publisher_tokens_file()).map_err(Failure::new)
    }
}

pub(super) fn token(command: Token) -> Result<(), Failure> {
    match command {
        Token::Add { name, topic_prefixes, hub } => {
            let NewToken(token) = hub.tokens()?.add(&name, topic_prefixes).map_err(Failure::new)?;
            say(token);
        }
        Token::List { hub } => {
            let tokens = hub.tokens()?;
            let used = tokens.last_used();
            for (name, info) in tokens.list() {
                let used = used.get(name).map_or("never", String::as_str);
                say(format_args!(
                    "{name}\tmade {}\tused {used}\t{}",
                    info.created_at,
                    info.topic_prefixes.join(" ")
                ));
            }
        }
        Token::Revoke { name, hub } => {
            hub.tokens()?.revoke(&name).map_err(Failure::new)?;
            say(format_args!("{name} is revoked"));
        }
    }
    Ok(())
}

pub(super) fn config(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Print => say(DEFAULT_TOML),
        ConfigCommand::Check(args) => {
            config::load(args.config.as_deref(), |name| std::env::var(name).ok(), &Vec::new())?;
            say("the configuration is fine");
        }
    }
    Ok(())
}

/// Topics with the bounds of their logs, and where chains of Change Notifications were broken (CN-008).
pub(super) fn topics(command: Topics) -> Result<(), Failure> {
    let config = command.hub.load()?;
    let token_file = config.admin_token_file();
    let token = fs::read_to_string(&token_file).map_err(|error| {
        Failure::new(format_args!("the admin token in {} cannot be read: {error}", token_file.display()))
    })?;
    let admin = command.admin.unwrap_or(config.admin.listen);
    let body = get(admin, "/api/v1/topics", Some(token.trim()))?;
    if command.json {
        say(body);
        return Ok(());
    }
    let topics: Vec<TopicLine> = serde_json::from_str(&body)
        .map_err(|error| Failure::new(format_args!("{admin} is no hub of this version: {error}")))?;
    for topic in topics {
        say(format_args!("{}\t{}\t{}..{}", topic.url, topic.id, topic.first, topic.head));
        let Some(chain) = topic.chain.filter(|chain| chain.broken > 0) else { continue };
        say(format_args!("  chain of Change Notifications broken {} times", chain.broken));
        for one in chain.breaks {
            say(format_args!(
                "  {} before {}: the one before it ended {}, it starts {}",
                one.kind, one.notification, one.ended, one.started
            ));
        }
    }
    Ok(())
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
pub(super) fn healthcheck(check: &Healthcheck) -> Result<(), Failure> {
    say(get(check.admin, "/readyz", None)?);
    Ok(())
}

/// A plain request over a plain socket; the body of a 200.
fn get(admin: SocketAddr, path: &str, token: Option<&str>) -> Result<String, Failure> {
    let answer =
        ask(admin, path, token).map_err(|error| Failure::new(format_args!("no hub at {admin}: {error}")))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let body = body.trim().to_owned();
    if head.split(' ').nth(1) == Some("200") { Ok(body) } else { Err(Failure::new(body)) }
}

fn ask(admin: SocketAddr, path: &str, token: Option<&str>) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    // HTTP/1.0, so that the body comes in one piece.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {admin}\r\n{token}\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
