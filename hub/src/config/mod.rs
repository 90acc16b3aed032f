//! Configuration. The commented default file is compiled in as the default. All errors are reported, each with its remedy.

mod contradictions;
mod example;
mod exposed;
mod layers;
mod prefixes;
mod print;
mod signature;
mod store;
mod values;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;
use url::Url;

pub use example::ExampleUrl;
pub use exposed::Exposed;
pub use layers::{Overrides, load};
pub use prefixes::{NoPrefix, Prefixes};
pub use print::print;
pub use resync_common::config::ConfigError;
pub use signature::{HostMethod, HostMethodError, SignatureConfig};
#[cfg(feature = "postgres")]
pub use store::{DatabaseConfig, DatabaseLimits};
pub use store::{Durability, StoreConfig};
pub use values::{DEFAULT_TOML, Engine, Rate, RateError};

/// The effective configuration of a hub.
#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    /// Where the hub listens.
    pub listen: SocketAddr,
    /// How the world reaches it; `None` means the address it listens on, by `https` with a certificate in `[tls]`.
    #[serde(deserialize_with = "values::optional_url")]
    pub public_url: Option<Url>,
    /// The endpoint of another hub that accepts subscriptions instead (W-091).
    #[serde(deserialize_with = "values::optional_url")]
    pub moved_to: Option<Url>,
    /// Everything that the hub remembers is below this folder.
    pub data_dir: PathBuf,
    /// `[store]`
    pub store: StoreConfig,
    /// `[lease]`
    pub lease: LeaseConfig,
    /// `[delivery]`
    pub delivery: DeliveryConfig,
    /// `[retention]`
    pub retention: RetentionConfig,
    /// `[publish]`
    pub publish: PublishConfig,
    /// `[topics]`
    pub topics: TopicsConfig,
    /// `[egress]`
    pub egress: EgressConfig,
    /// `[ingress]`
    pub ingress: IngressConfig,
    /// `[tls]`
    pub tls: TlsConfig,
    /// `[limits]`
    pub limits: LimitsConfig,
    /// `[secrets]`
    pub secrets: SecretsConfig,
    /// `[signature]`
    pub signature: SignatureConfig,
    /// `[admin]`
    pub admin: AdminConfig,
    /// `[log]`
    pub log: LogConfig,
    /// `[telemetry]`
    pub telemetry: TelemetryConfig,
    /// The configuration file, if it contains a secret itself.
    #[serde(skip)]
    pub secrets_in: Option<PathBuf>,
}

/// `[lease]`
#[derive(Clone, Debug, Deserialize)]
pub struct LeaseConfig {
    /// The shortest lease.
    #[serde(deserialize_with = "values::duration")]
    pub min: Duration,
    /// The lease if none is requested.
    #[serde(deserialize_with = "values::duration")]
    pub default: Duration,
    /// The longest lease.
    #[serde(deserialize_with = "values::duration")]
    pub max: Duration,
    /// The share by which the default is shortened at most.
    pub spread: f64,
}

/// `[delivery]`
#[derive(Clone, Debug, Deserialize)]
pub struct DeliveryConfig {
    /// Pauses for hosts in trouble.
    #[serde(deserialize_with = "values::durations")]
    pub schedule: Vec<Duration>,
    /// Pauses after refusals.
    #[serde(deserialize_with = "values::durations")]
    pub schedule_4xx: Vec<Duration>,
    /// When a 410 is asked to be confirmed.
    #[serde(deserialize_with = "values::duration")]
    pub gone_confirm_after: Duration,
    /// For a connection.
    #[serde(deserialize_with = "values::duration")]
    pub connect_timeout: Duration,
    /// For a whole request.
    #[serde(deserialize_with = "values::duration")]
    pub timeout: Duration,
    /// Requests at once.
    pub max_in_flight: usize,
    /// Requests at once to one origin.
    pub per_host: usize,
    /// The circuit breaker of an origin opens after this many failures in a row; 0: never.
    pub breaker_failures: u32,
    /// For so long at first.
    #[serde(deserialize_with = "values::duration")]
    pub breaker_open: Duration,
    /// For so long at most.
    #[serde(deserialize_with = "values::duration")]
    pub breaker_open_max: Duration,
}

/// `[retention]`
#[derive(Clone, Debug, Deserialize)]
pub struct RetentionConfig {
    /// How long the log keeps notifications.
    #[serde(deserialize_with = "values::duration")]
    pub age: Duration,
    /// The most bytes of notifications in the log.
    #[serde(deserialize_with = "values::size")]
    pub size: u64,
}

/// `[publish]`
#[derive(Clone, Debug, Deserialize)]
pub struct PublishConfig {
    /// Who may post content.
    pub policy: PublishPolicy,
    /// Reading logs again needs no proof. No key sets this: only `--dev` does, which listens on loopback.
    #[serde(skip)]
    pub open_log: bool,
    /// The largest accepted body in bytes.
    #[serde(deserialize_with = "values::size")]
    pub max_body: u64,
    /// The bytes of memory for bodies of one kind: posts, fetched topics, logs read again; forms have half of it.
    #[serde(deserialize_with = "values::size")]
    pub body_memory: u64,
    /// How long an idempotency key is remembered.
    #[serde(deserialize_with = "values::duration")]
    pub idempotency_ttl: Duration,
    /// For fetching a topic.
    #[serde(deserialize_with = "values::duration")]
    pub fetch_timeout: Duration,
    /// Topics whose Atom and RSS is sent without the entries that a subscriber has.
    #[serde(deserialize_with = "values::prefixes")]
    pub entry_diff: Prefixes,
}

/// Who may post content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublishPolicy {
    /// Whoever has a token for the topic.
    Token,
    /// Anybody.
    Open,
}

/// `[topics]`
#[derive(Clone, Debug, Deserialize)]
pub struct TopicsConfig {
    /// Which topics may be subscribed to.
    pub policy: SubscribePolicy,
    /// Topics that need not name this hub.
    #[serde(deserialize_with = "values::prefixes")]
    pub allowed: Prefixes,
}

/// Which topics may be subscribed to (D-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubscribePolicy {
    /// Any.
    Any,
    /// Those that name this hub, and those that are allowed by name.
    Advertised,
}

/// `[egress]`
#[derive(Clone, Debug, Deserialize)]
pub struct EgressConfig {
    /// Networks that may be contacted although they are not public.
    pub allow: Vec<IpNet>,
    /// The only ports that may be contacted; empty: any.
    pub ports: Vec<u16>,
    /// The name servers to ask; empty: those of the system.
    pub nameservers: Vec<SocketAddr>,
    extra_ca: PathBuf,
}

impl EgressConfig {
    /// The file with roots of trust beyond those of the web.
    pub fn extra_ca(&self) -> Option<&Path> {
        Some(self.extra_ca.as_path()).filter(|path| !path.as_os_str().is_empty())
    }
}

/// `[ingress]`
#[derive(Clone, Debug, Deserialize)]
pub struct IngressConfig {
    /// Connections at once.
    pub connections: usize,
    /// Connections at once of one client.
    pub connections_per_client: usize,
    /// For a request's header, and for the next request on a connection that is kept open.
    #[serde(deserialize_with = "values::duration")]
    pub header_timeout: Duration,
    /// How long a body may pause in all; received bytes add time by `body_rate`.
    #[serde(deserialize_with = "values::duration")]
    pub body_timeout: Duration,
    /// The slowest body, and the slowest reader, in bytes per second.
    #[serde(deserialize_with = "values::size")]
    pub body_rate: u64,
    /// How long reading an answer may pause in all; bytes that were read add time by `body_rate`.
    #[serde(deserialize_with = "values::duration")]
    pub answer_timeout: Duration,
    /// Networks of proxies that may name the client.
    pub trusted_proxies: Vec<IpNet>,
    /// The header in which they name it.
    pub client_header: ClientHeader,
}

/// The header in which proxies name the client. It is one, since a client can write the other by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientHeader {
    /// `X-Forwarded-For`, which most proxies write.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// `[tls]`, and the same keys in `[admin]`
#[derive(Clone, Debug, Deserialize)]
pub struct TlsConfig {
    /// The file of the certificate, followed by those of its issuers; empty: the listener speaks plain HTTP.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

impl TlsConfig {
    /// Whether the listener speaks TLS.
    pub fn is_on(&self) -> bool {
        !self.certificate.as_os_str().is_empty()
    }

    /// The URL of a listener without a path.
    pub fn origin(&self, listening: SocketAddr) -> String {
        format!("{}://{listening}", if self.is_on() { "https" } else { "http" })
    }
}

/// `[limits]`
#[derive(Clone, Debug, Deserialize)]
pub struct LimitsConfig {
    /// Whether requests are rate-limited.
    pub enabled: bool,
    /// Requests of one client.
    #[serde(deserialize_with = "values::parsed")]
    pub client: Rate,
    /// Requests to subscribe and unsubscribe of one client; as many again about subscriptions in force.
    #[serde(deserialize_with = "values::parsed")]
    pub subscriptions_per_client: Rate,
    /// These for callbacks on one host; of all clients five times as many.
    #[serde(deserialize_with = "values::parsed")]
    pub callback_host: Rate,
    /// Requests to subscribe and unsubscribe for one topic; of all clients five times as many.
    #[serde(deserialize_with = "values::parsed")]
    pub topic: Rate,
    /// Pings without a token of one client.
    #[serde(deserialize_with = "values::parsed")]
    pub ping_client: Rate,
    /// Pings without a token for one topic.
    #[serde(deserialize_with = "values::parsed")]
    pub ping_topic: Rate,
    /// These for topics on one host, and redirects of pinged topics from other hosts to it.
    #[serde(deserialize_with = "values::parsed")]
    pub ping_host: Rate,
    /// What pings without a token of one client may have sent of one topic in a minute, in bytes.
    #[serde(deserialize_with = "values::size")]
    pub ping_fan_out: u64,
    /// Requests to the unconfirmed addresses of one network.
    #[serde(deserialize_with = "values::parsed")]
    pub unconfirmed: Rate,
    /// Subscriptions that one client has in force.
    pub most_subscriptions_of_client: u64,
    /// Topics with subscriptions that one client was the first to name.
    pub most_topics_of_client: u64,
    /// Callback origins that one client was the first to name.
    pub most_callback_hosts_of_client: u64,
    /// Subscriptions in force, in all.
    pub most_subscriptions: u64,
    /// Topics with subscriptions, in all.
    pub most_topics: u64,
    /// Callback origins, in all.
    pub most_callback_hosts: u64,
}

/// `[secrets]`
#[derive(Clone, Debug, Deserialize)]
pub struct SecretsConfig {
    /// The keys themselves.
    pub key: Hidden,
    /// A file with them.
    pub key_file: PathBuf,
}

/// How the name of a file begins that systemd hands over.
const CREDENTIAL: &str = "${CREDENTIALS_DIRECTORY}/";

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Hidden(String);

impl Hidden {
    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Hidden {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { "[hidden]" })
    }
}

impl SecretsConfig {
    /// The name of a systemd credential with the keys that this process did not get.
    pub fn credential(&self) -> Option<&str> {
        self.key_file.to_str()?.strip_prefix(CREDENTIAL)
    }

    /// The file is in this folder if it is one that is handed over.
    fn find_in(&mut self, credentials: &Path) {
        if let Some(name) = self.credential() {
            self.key_file = credentials.join(name);
        }
    }

    /// The keys themselves, if they are in the configuration or the environment.
    pub fn key(&self) -> Option<&str> {
        Some(self.key.0.as_str()).filter(|key| !key.is_empty())
    }

    /// The file with the keys.
    pub fn key_file(&self) -> Option<&Path> {
        Some(self.key_file.as_path()).filter(|path| !path.as_os_str().is_empty())
    }
}

/// `[admin]`
#[derive(Clone, Debug, Deserialize)]
pub struct AdminConfig {
    /// Where health and the admin API listen.
    pub listen: SocketAddr,
    /// Where the token is; empty means `data_dir/admin-token`.
    pub token_file: PathBuf,
    /// How long a reader of a backup may pause each time.
    #[serde(deserialize_with = "values::duration")]
    pub backup_timeout: Duration,
    /// `certificate` and `key`
    #[serde(flatten)]
    pub tls: TlsConfig,
}

/// `[log]`
#[derive(Clone, Debug, Deserialize)]
pub struct LogConfig {
    /// How lines look.
    pub format: LogFormat,
    /// What is logged, in the syntax of `tracing` filters.
    pub filter: String,
}

/// `[telemetry]`
#[derive(Clone, Debug, Deserialize)]
pub struct TelemetryConfig {
    /// Where a collector takes OTLP over HTTP; `None`: no traces are recorded.
    #[serde(deserialize_with = "values::optional_url")]
    pub otlp: Option<Url>,
    /// The share of posts and pings that are recorded.
    pub ratio: f64,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// For machines.
    Json,
}

impl Config {
    /// Everything open, on loopback only: for trying things out.
    ///
    /// # Errors
    /// When the hub would listen on anything but loopback.
    pub fn into_dev(mut self) -> Result<Self, ConfigError> {
        if !self.listen.ip().is_loopback() || !self.admin.listen.ip().is_loopback() {
            let problem = format!(
                "--dev opens everything and therefore listens on loopback only, not on {}: use --listen 127.0.0.1:8080, or leave out --dev",
                if self.listen.ip().is_loopback() { self.admin.listen } else { self.listen }
            );
            return Err(ConfigError::Problems(vec![problem]));
        }
        self.publish.policy = PublishPolicy::Open;
        self.publish.open_log = true;
        self.limits.enabled = false;
        self.ingress.connections_per_client = self.ingress.connections;
        self.lease.min = self.lease.min.min(Duration::from_secs(1));
        self.egress.ports.clear();
        self.egress
            .allow
            .extend(LOOPBACK.iter().map(|net| net.parse::<IpNet>().expect("the networks are valid")));
        Ok(self)
    }

    /// Where the admin token is.
    pub fn admin_token_file(&self) -> PathBuf {
        if self.admin.token_file.as_os_str().is_empty() {
            self.data_dir.join("admin-token")
        } else {
            self.admin.token_file.clone()
        }
    }
}

const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];
