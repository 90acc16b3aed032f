//! The small tools: tokens of publishers, the configuration, the health check.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use resync_hub::config::{self, DEFAULT_TOML};
use resync_hub::topics::{NewToken, Tokens};

use super::{Failure, Settings, say};

/// How long a healthy hub may take to say so.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

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
pub(super) struct Healthcheck {
    /// Where the hub's health listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081", env = "RESYNC_HUB_ADMIN_LISTEN")]
    admin: SocketAddr,
}

impl WhichHub {
    fn tokens(self) -> Result<Tokens, Failure> {
        let config =
            Settings { config: self.config, data_dir: self.data_dir, ..Settings::default() }.load()?;
        Tokens::open(&config.publisher_tokens_file()).map_err(Failure::new)
    }
}

pub(super) fn token(command: Token) -> Result<(), Failure> {
    match command {
        Token::Add { name, topic_prefixes, hub } => {
            let NewToken(token) = hub.tokens()?.add(&name, topic_prefixes).map_err(Failure::new)?;
            say(token);
        }
        Token::List { hub } => {
            for (name, info) in hub.tokens()?.list() {
                say(format_args!("{name}\t{}\t{}", info.created_at, info.topic_prefixes.join(" ")));
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

/// A plain request over a plain socket: a container's health check needs no more.
pub(super) fn healthcheck(check: &Healthcheck) -> Result<(), Failure> {
    let answer =
        ask(check.admin).map_err(|error| Failure::new(format_args!("no hub at {}: {error}", check.admin)))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    say(body.trim());
    if head.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(Failure::new("the hub is not ready")) }
}

fn ask(admin: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, HEALTH_TIMEOUT)?;
    stream.set_read_timeout(Some(HEALTH_TIMEOUT))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
