//! Which hub a command asks: the one that runs in the data folder, or the one at `--admin`.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use resync_hub::admin::Running;
use resync_hub::config::Config;
use url::Url;

use super::Failure;
use super::ask::{Admin, Tls, Token};
use super::owner::refused;
use super::which::WhichHub;

/// How long a healthy hub may take to answer, and to do something, be it for all subscriptions of a large topic.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const ACT_TIMEOUT: Duration = Duration::from_secs(300);

/// A running hub that is asked.
#[derive(Args, Clone, Debug)]
pub(super) struct RunningHub {
    #[command(flatten)]
    pub(super) hub: WhichHub,
    /// Where the hub's admin listener is, if not where the running hub wrote it into its data folder
    #[arg(long, value_name = "ADDR|URL", global = true)]
    pub(super) admin: Option<AdminAddress>,
}

/// What `--admin` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdminAddress {
    /// Whether it speaks TLS; `None`: as the configuration or the running hub says.
    tls: Option<bool>,
    /// The name or address, with brackets around one of IPv6.
    host: String,
    port: u16,
}

impl FromStr for AdminAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXAMPLE: &str = "write an address or a URL without a path, for example 127.0.0.1:8081 or https://hub.example:8081";
        let tls = match text.split_once("://") {
            Some(("http", _)) => Some(false),
            Some(("https", _)) => Some(true),
            Some(_) => return Err(EXAMPLE),
            None => None,
        };
        // Of a scheme of its own, any port is said.
        let url = if tls.is_some() { Url::parse(text) } else { Url::parse(&format!("admin://{text}")) };
        let url = url.map_err(|_| EXAMPLE)?;
        let is_bare = url.username().is_empty()
            && url.password().is_none()
            && matches!(url.path(), "" | "/")
            && url.query().is_none()
            && url.fragment().is_none();
        match (url.host_str().filter(|host| !host.is_empty()), url.port_or_known_default()) {
            (Some(host), Some(port)) if is_bare => Ok(Self { tls, host: host.to_owned(), port }),
            _ => Err(EXAMPLE),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl RunningHub {
    /// What it answers.
    pub(super) fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        order(&self.hub.load()?, self.admin.as_ref(), method, path, body)
    }
}

/// What a running hub's admin API answers.
pub(super) fn order(
    config: &Config,
    at: Option<&AdminAddress>,
    method: &str,
    path: &str,
    body: &str,
) -> Result<String, Failure> {
    let patience = if method == "GET" { ANSWER_TIMEOUT } else { ACT_TIMEOUT };
    Admin { patience, ..operator(config, at)? }.ask(method, path, body)
}

/// A running hub, asked with the operator's token of the data folder.
pub(super) fn operator(config: &Config, at: Option<&AdminAddress>) -> Result<Admin, Failure> {
    let admin = anybody(config, at)?;
    let file = config.admin_token_file();
    let text = fs::read_to_string(&file).map_err(|error| refused(&file, &error))?;
    Ok(Admin { token: Some(Token { text: text.trim().to_owned(), file }), ..admin })
}

/// A running hub, asked for what it shows to everybody.
pub(super) fn anybody(config: &Config, at: Option<&AdminAddress>) -> Result<Admin, Failure> {
    let own = &config.admin.tls;
    let configured = own.is_on().then(|| own.certificate.clone());
    let pinned = |of_note: Option<PathBuf>| configured.or(of_note).map(Tls::Pinned);
    let (address, tls) = if let Some(at) = at {
        let of_note =
            || Running::find(&config.data_dir).ok().flatten().and_then(|running| running.certificate);
        let tls = match at.tls {
            Some(false) => Tls::Off,
            Some(true) => pinned(of_note()).unwrap_or_else(|| Tls::Named(at.host.clone())),
            None => pinned(of_note()).unwrap_or(Tls::Off),
        };
        (at.to_string(), tls)
    } else {
        let found = Running::find(&config.data_dir).map_err(|error| refused(&config.data_dir, &error))?;
        let Some(Running { admin, certificate }) = found else { return Err(away(config)) };
        (admin.to_string(), pinned(certificate).unwrap_or(Tls::Off))
    };
    Ok(Admin { address, tls, token: None, patience: ANSWER_TIMEOUT })
}

fn away(config: &Config) -> Failure {
    Failure::new(format_args!(
        "no hub runs in {}: start it, or name the one that you mean with --config, --data-dir or --admin",
        config.data_dir.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_a_url_without_a_path_is_understood() {
        let read = |text: &str| text.parse::<AdminAddress>().map(|at| (at.tls, at.to_string()));
        assert_eq!(read("127.0.0.1:8081"), Ok((None, "127.0.0.1:8081".to_owned())));
        assert_eq!(read("localhost:80"), Ok((None, "localhost:80".to_owned())));
        assert_eq!(read("[::1]:8081"), Ok((None, "[::1]:8081".to_owned())));
        assert_eq!(read("http://127.0.0.1:8081/"), Ok((Some(false), "127.0.0.1:8081".to_owned())));
        assert_eq!(read("https://hub.example"), Ok((Some(true), "hub.example:443".to_owned())));
        for other in [
            "",
            "8081",
            ":8081",
            "127.0.0.1",
            "ftp://x:1",
            "http://x/api",
            "http://u:p@x",
            "x:1?y",
            "x:99999",
        ] {
            assert!(read(other).is_err(), "{other}");
        }
    }
}
