//! Why a request had no usable answer, and whether a retry may help.

use std::time::Duration;

use resync_common::client::root_cause;
use url::{Host, Url};

use super::address_policy::refused;

/// The longest pause that a server can ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Why a request had no usable answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// The TLS settings or the client itself could not be set up.
    #[error("cannot set up the HTTP client: {0}")]
    Setup(String),
    /// Only `http` and `https` are supported.
    #[error("{0} is not an http or https URL")]
    Scheme(String),
    /// The address is not public, and such addresses are not allowed.
    #[error(
        "{url} has the address {address}, which is not a public address; if you trust this Source, allow it with --any-address"
    )]
    NotPublic {
        /// The requested URL.
        url: Url,
        /// Its address.
        address: String,
    },
    /// The name has both public and other addresses, so it may lead into the user's network.
    #[error(
        "{url} is refused: DNS gives the public address {public} and also {private}, which may lead into your own network. Remove one from DNS, or, if you trust this Source, allow it with --any-address"
    )]
    MixedAddresses {
        /// The requested URL.
        url: Box<Url>,
        /// A public address.
        public: String,
        /// One that is not.
        private: String,
    },
    /// The name moved between the public network and the user's, as in DNS rebinding.
    #[error(
        "{url} is refused: DNS now gives {address}, but it was {before} at first (DNS rebinding?); restart this process if the move is intended"
    )]
    DnsRebinding {
        /// The requested URL.
        url: Box<Url>,
        /// Where it is now.
        address: String,
        /// Where it was at first.
        before: &'static str,
    },
    /// There was no answer: name resolution, connection, TLS or a broken exchange.
    #[error("cannot reach {url} ({reason}); check the URL and the server")]
    Network {
        /// The requested URL.
        url: Url,
        /// What the network said.
        reason: String,
    },
    /// The server was too slow.
    #[error("{url} did not answer in time; try again later or increase the timeout")]
    Timeout {
        /// The requested URL.
        url: Url,
    },
    /// The body arrived too slowly.
    #[error("{url} sends less than {min} bytes per second; try again later or lower --min-rate")]
    TooSlow {
        /// The requested URL.
        url: Url,
        /// The limit.
        min: u64,
    },
    /// More redirects than allowed, a loop for instance.
    #[error(
        "{url} redirects more than {max} times, at last to {last}; the redirects form a loop or a chain that is too long"
    )]
    TooManyRedirects {
        /// The requested URL.
        url: Url,
        /// Where the last redirect led.
        last: Box<Url>,
        /// How many are followed.
        max: usize,
    },
    /// A redirect without a usable `Location`.
    #[error("{url} redirects with {status} but its Location is missing or unusable")]
    BadRedirect {
        /// The redirecting URL.
        url: Url,
        /// The redirect's status.
        status: u16,
    },
    /// A resource redirects to another origin (RS-200).
    #[error("{url} redirects to another origin, {target}; if you trust it, allow it with --origin")]
    ForeignRedirect {
        /// The redirecting URL.
        url: Url,
        /// Where it points.
        target: Box<Url>,
    },
    /// An answer other than 200.
    #[error("{url} answers {status}")]
    Status {
        /// The requested URL.
        url: Url,
        /// The status it answered.
        status: u16,
        /// The pause that it asks for.
        retry_after: Option<Duration>,
    },
    /// The host asked for a pause, so no request was sent.
    #[error("{url} was not requested: its host asked for a pause (Retry-After), {} s remain", left.as_secs() + 1)]
    HostPaused {
        /// The wanted URL.
        url: Url,
        /// How much of the pause remains.
        left: Duration,
    },
    /// The body is larger than allowed.
    #[error("{url} is larger than {max} bytes")]
    TooLarge {
        /// The requested URL.
        url: Url,
        /// The limit.
        max: u64,
    },
    /// The body ended before it was complete.
    #[error("the transfer of {url} was cut off ({reason})")]
    CutOff {
        /// The requested URL.
        url: Url,
        /// What the connection said.
        reason: String,
    },
    /// The disk has not enough space for a document.
    #[error("{url} has {needed} bytes, but the disk has only {free} bytes left; free some space")]
    NoSpace {
        /// The requested URL.
        url: Url,
        /// How many bytes it has.
        needed: u64,
        /// How many bytes may be used.
        free: u64,
    },
    /// A document could not be written to a temporary file.
    #[error("cannot write a temporary file for {url}: {reason}")]
    Spool {
        /// The requested URL.
        url: Url,
        /// What the file system said.
        reason: String,
    },
}

impl FetchError {
    /// Whether the same request may succeed a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Network { .. }
            | Self::Timeout { .. }
            | Self::TooSlow { .. }
            | Self::HostPaused { .. }
            | Self::CutOff { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            // DNS may say something else soon.
            _ => self.is_about_a_name(),
        }
    }

    /// Whether an address was refused that DNS returned.
    fn is_about_a_name(&self) -> bool {
        match self {
            Self::NotPublic { url, .. } => matches!(url.host(), Some(Host::Domain(_))),
            Self::MixedAddresses { .. } | Self::DnsRebinding { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn of_status(url: &Url, status: u16) -> Self {
        Self::Status { url: url.clone(), status, retry_after: None }
    }

    /// The pause that the host asks for, up to a limit.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after: Some(requested), .. } if self.is_transient() => {
                Some((*requested).min(LONGEST_WAIT))
            }
            Self::HostPaused { left, .. } => Some(*left),
            _ => None,
        }
    }

    /// Whether the server answered, and a retry would get the same answer.
    pub(crate) fn is_about_the_answer(&self) -> bool {
        match self {
            Self::Status { .. } => !self.is_transient(),
            Self::TooLarge { .. }
            | Self::TooManyRedirects { .. }
            | Self::BadRedirect { .. }
            | Self::ForeignRedirect { .. }
            | Self::Scheme(_) => true,
            Self::NotPublic { .. } => !self.is_about_a_name(),
            _ => false,
        }
    }

    pub(super) fn from_send(url: &Url, error: &reqwest::Error) -> Self {
        if let Some(refused) = refused(url, error) {
            return refused;
        }
        if error.is_timeout() {
            return Self::Timeout { url: url.clone() };
        }
        Self::Network { url: url.clone(), reason: root_cause(error) }
    }

    pub(super) fn from_body(url: &Url, error: &reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::Timeout { url: url.clone() };
        }
        Self::CutOff { url: url.clone(), reason: root_cause(error) }
    }
}
