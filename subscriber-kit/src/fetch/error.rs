//! Why a request had no usable answer, and whether a retry may help.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use resync_common::client::root_cause;
use resync_common::words::Size;
use url::{Host, Origin, Url};

use super::refused::Refused;

/// Why a request had no usable answer.
#[derive(Clone, Debug)]
pub enum FetchError {
    /// The TLS settings or the client itself could not be set up.
    Setup(String),
    /// Only `http` and `https` are supported.
    Scheme {
        /// The requested URL.
        url: Url,
    },
    /// The address is not public, and such addresses are not allowed.
    NotPublic {
        /// The requested URL.
        url: Url,
        /// Its address.
        address: String,
    },
    /// The name has both public and other addresses, so it may lead into the user's network.
    MixedAddresses {
        /// The requested URL.
        url: Box<Url>,
        /// A public address.
        public: String,
        /// One that is not.
        private: String,
    },
    /// The name moved between the public network and the user's, as in DNS rebinding.
    DnsRebinding {
        /// The requested URL.
        url: Box<Url>,
        /// Where it is now.
        address: String,
        /// Where it was at first.
        before: &'static str,
    },
    /// There was no answer: name resolution, connection, TLS or a broken exchange.
    Network {
        /// The requested URL.
        url: Url,
        /// What the network said.
        reason: String,
    },
    /// The server was too slow.
    Timeout {
        /// The requested URL.
        url: Url,
    },
    /// The body arrived too slowly.
    TooSlow {
        /// The requested URL.
        url: Url,
        /// The limit.
        min: u64,
    },
    /// More redirects than allowed, a loop for instance.
    TooManyRedirects {
        /// The requested URL.
        url: Url,
        /// Where the last redirect led.
        last: Box<Url>,
        /// How many are followed.
        max: usize,
    },
    /// A redirect without a usable `Location`.
    BadRedirect {
        /// The redirecting URL.
        url: Url,
        /// The redirect's status.
        status: u16,
    },
    /// A resource redirects to another origin (RS-200).
    ForeignRedirect {
        /// The redirecting URL.
        url: Url,
        /// Where it points.
        target: Box<Url>,
    },
    /// An answer other than 200.
    Status {
        /// The requested URL.
        url: Url,
        /// The status it answered.
        status: u16,
        /// The pause that it asks for, at most an hour.
        retry_after: Option<Duration>,
    },
    /// The host asked for a pause, so no request was sent.
    HostPaused {
        /// The wanted URL.
        url: Url,
        /// How much of the pause remains.
        left: Duration,
    },
    /// The body is larger than allowed.
    TooLarge {
        /// The requested URL.
        url: Url,
        /// The limit.
        max: u64,
    },
    /// The body ended before it was complete.
    CutOff {
        /// The requested URL.
        url: Url,
        /// What the connection said.
        reason: String,
    },
    /// The disk has not enough space for a document.
    NoSpace {
        /// The requested URL.
        url: Url,
        /// How many bytes it has.
        needed: u64,
        /// How many bytes may be used.
        free: u64,
    },
    /// A document could not be written to a temporary file.
    Spool {
        /// The requested URL.
        url: Url,
        /// What the file system said.
        reason: String,
    },
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.say(f, Naming::InFull)
    }
}

impl Error for FetchError {}

/// How a sentence names the URLs of an error.
#[derive(Clone, Copy)]
enum Naming<'k> {
    /// Each in full.
    InFull,
    /// Not that of the request, which has just been read.
    Known,
    /// By their origins, and not the origin of this one, which has just been read.
    ByOrigin(Option<&'k Url>),
}

/// An error with another naming.
struct Named<'e>(&'e FetchError, Naming<'e>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.say(f, self.1)
    }
}

impl FetchError {
    /// The sentence for who has just read the URL `known`: if it is about that, without it.
    pub(crate) fn about(&self, known: &str) -> String {
        match Url::parse(known) {
            Ok(known) if self.url() == Some(&known) => Named(self, Naming::Known).to_string(),
            _ => self.to_string(),
        }
    }

    /// The sentence for who has just read the URI `loc` of a resource: the same for all resources of its origin that fail so,
    /// wherever their redirects lead.
    pub(crate) fn about_resource(&self, loc: &str) -> String {
        Named(self, Naming::ByOrigin(Url::parse(loc).ok().as_ref())).to_string()
    }

    /// What the server answered, if not a success.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// What was requested.
    fn url(&self) -> Option<&Url> {
        match self {
            Self::Setup(_) => None,
            Self::MixedAddresses { url, .. } | Self::DnsRebinding { url, .. } => Some(url),
            Self::Scheme { url }
            | Self::NotPublic { url, .. }
            | Self::Network { url, .. }
            | Self::Timeout { url }
            | Self::TooSlow { url, .. }
            | Self::TooManyRedirects { url, .. }
            | Self::BadRedirect { url, .. }
            | Self::ForeignRedirect { url, .. }
            | Self::Status { url, .. }
            | Self::HostPaused { url, .. }
            | Self::TooLarge { url, .. }
            | Self::CutOff { url, .. }
            | Self::NoSpace { url, .. }
            | Self::Spool { url, .. } => Some(url),
        }
    }

    fn say(&self, f: &mut fmt::Formatter<'_>, naming: Naming<'_>) -> fmt::Result {
        let named = match (self.url(), naming) {
            (None, _) | (_, Naming::Known) => None,
            (Some(url), Naming::InFull) => Some(url.to_string()),
            (Some(url), Naming::ByOrigin(known)) => {
                let is_known = known.is_some_and(|known| known.origin() == url.origin());
                (!is_known).then(|| origin_of(url))
            }
        };
        // At the begin of a sentence, and within one.
        let begin = named.as_ref().map_or_else(String::new, |url| format!("{url} "));
        let it = named.as_deref().unwrap_or("it");
        match self {
            Self::Setup(reason) => write!(f, "cannot set up the HTTP client: {reason}"),
            Self::Scheme { .. } => write!(f, "{begin}is not an http or https URL"),
            Self::NotPublic { address, .. } => write!(
                f,
                "{begin}has the address {address}, which is not a public address; if you trust this Source, allow \
                 it with --any-address"
            ),
            Self::MixedAddresses { public, private, .. } => write!(
                f,
                "{begin}is refused: DNS gives the public address {public} and also {private}, which may lead into \
                 your own network. Remove one from DNS, or, if you trust this Source, allow it with --any-address"
            ),
            Self::DnsRebinding { address, before, .. } => write!(
                f,
                "{begin}is refused: DNS now gives {address}, but it was {before} at first (DNS rebinding?); restart \
                 this process if the move is intended"
            ),
            Self::Network { reason, .. } => {
                write!(f, "cannot reach {it} ({reason}); check the URL and the server")
            }
            Self::Timeout { .. } => {
                write!(f, "{begin}did not answer in time; try again later or increase the timeout")
            }
            Self::TooSlow { min, .. } => write!(
                f,
                "{begin}sends less than {} per second; try again later or lower --min-rate",
                Size(*min)
            ),
            Self::TooManyRedirects { last, max, .. } => write!(
                f,
                "{begin}redirects more than {max} times, at last to {last}; the redirects form a loop or a chain \
                 that is too long"
            ),
            Self::BadRedirect { status, .. } => {
                write!(f, "{begin}redirects with {status} but its Location is missing or unusable")
            }
            Self::ForeignRedirect { target, .. } => {
                let target = match naming {
                    Naming::ByOrigin(_) => origin_of(target),
                    Naming::InFull | Naming::Known => target.to_string(),
                };
                write!(
                    f,
                    "{begin}redirects to another origin, {target}; if you trust it, allow it with --origin"
                )
            }
            Self::Status { status, .. } => write!(f, "{begin}answers {status}"),
            Self::HostPaused { left, .. } => write!(
                f,
                "{begin}was not requested: its host asked for a pause (Retry-After), {} s remain",
                left.as_secs() + 1
            ),
            Self::TooLarge { max, .. } => write!(f, "{begin}is larger than {}", Size(*max)),
            Self::CutOff { reason, .. } => {
                write!(f, "the transfer of {it} was cut off ({reason}); try again later")
            }
            Self::NoSpace { needed, free, .. } => write!(
                f,
                "{begin}has {}, but the disk has only {} left; free some space",
                Size(*needed),
                Size(*free)
            ),
            Self::Spool { reason, .. } => write!(f, "cannot write a temporary file for {it}: {reason}"),
        }
    }

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

    /// The pause that the host asks for, if a retry may help.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } if self.is_transient() => *retry_after,
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
            | Self::Scheme { .. } => true,
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

/// A URL without its path, as sentences name a server.
pub(crate) fn origin_of(url: &Url) -> String {
    match url.origin() {
        origin @ Origin::Tuple(..) => origin.ascii_serialization(),
        Origin::Opaque(_) => format!("{}:", url.scheme()),
    }
}

/// The error for a request to this URL whose name was refused.
fn refused(url: &Url, error: &reqwest::Error) -> Option<FetchError> {
    let mut causes = std::iter::successors(error.source(), |cause| (**cause).source());
    let refused = causes.find_map(|cause| cause.downcast_ref::<Refused>())?;
    let url = url.clone();
    Some(match refused {
        Refused::NotPublic { address, .. } => FetchError::NotPublic { url, address: address.to_string() },
        Refused::Mixed { public, private, .. } => FetchError::MixedAddresses {
            url: url.into(),
            public: public.to_string(),
            private: private.to_string(),
        },
        Refused::Rebound { address, before, .. } => {
            FetchError::DnsRebinding { url: url.into(), address: address.to_string(), before }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_counts_where_a_retry_may_help() {
        let asks = |status| {
            let url = Url::parse("http://a.example/").unwrap();
            FetchError::Status { url, status, retry_after: Some(Duration::from_secs(60)) }.retry_after()
        };
        assert_eq!([asks(503), asks(404)], [Some(Duration::from_secs(60)), None]);
    }

    #[test]
    fn an_error_names_its_url_once_and_not_to_who_has_just_read_it() {
        let url = || Url::parse("http://a.example/x").unwrap();
        let (text, address) = (|| "refused".to_owned(), || "10.0.0.1".to_owned());
        let target = || Box::new(Url::parse("http://b.example/").unwrap());
        let left = Duration::from_secs(9);
        for error in [
            FetchError::Scheme { url: url() },
            FetchError::NotPublic { url: url(), address: address() },
            FetchError::MixedAddresses {
                url: url().into(),
                public: "1.1.1.1".to_owned(),
                private: address(),
            },
            FetchError::DnsRebinding { url: url().into(), address: address(), before: "public" },
            FetchError::Network { url: url(), reason: text() },
            FetchError::Timeout { url: url() },
            FetchError::TooSlow { url: url(), min: 1 },
            FetchError::TooManyRedirects { url: url(), last: target(), max: 5 },
            FetchError::BadRedirect { url: url(), status: 302 },
            FetchError::ForeignRedirect { url: url(), target: target() },
            FetchError::of_status(&url(), 404),
            FetchError::HostPaused { url: url(), left },
            FetchError::TooLarge { url: url(), max: 1 },
            FetchError::CutOff { url: url(), reason: text() },
            FetchError::NoSpace { url: url(), needed: 2, free: 1 },
            FetchError::Spool { url: url(), reason: text() },
        ] {
            let (whole, known) = (error.to_string(), error.about("HTTP://a.example/x"));
            assert_eq!(whole.matches(url().as_str()).count(), 1, "{whole}");
            assert!(!known.contains(url().as_str()) && !known.starts_with(' '), "{known}");
            assert!(known.len() > 8, "{known}");
            assert_eq!(error.about("http://b.example/x"), whole, "that is another one");
        }
        let of_resource = |error: FetchError| error.about_resource("http://a.example/other");
        let redirect = FetchError::ForeignRedirect { url: url(), target: target() };
        assert_eq!(
            of_resource(redirect),
            "redirects to another origin, http://b.example; if you trust it, allow it with --origin"
        );
        let elsewhere = FetchError::Timeout { url: Url::parse("http://b.example:81/y").unwrap() };
        let late = "http://b.example:81 did not answer in time; try again later or increase the timeout";
        assert_eq!(of_resource(elsewhere), late);
        let file = Url::parse("file:///etc/passwd").unwrap();
        let to_file = of_resource(FetchError::ForeignRedirect { url: url(), target: file.into() });
        assert!(to_file.starts_with("redirects to another origin, file:; "), "{to_file}");
        let known = |error: FetchError| error.about(url().as_str());
        assert_eq!(known(FetchError::of_status(&url(), 404)), "answers 404");
        let away = known(FetchError::Network { url: url(), reason: text() });
        assert_eq!(away, "cannot reach it (refused); check the URL and the server");
    }
}
