//! `[signature]`: by which method deliveries are signed, for each host of callbacks.

use std::str::FromStr;

use resync_core::websub::SignatureMethod;
use serde::Deserialize;
use url::Host;

use super::values;

/// `[signature]`
#[derive(Clone, Debug, Deserialize)]
pub struct SignatureConfig {
    /// The method of `X-Hub-Signature`.
    #[serde(deserialize_with = "values::parsed")]
    pub method: SignatureMethod,
    /// Hosts of callbacks that know another one only.
    #[serde(deserialize_with = "values::all_parsed")]
    pub by_host: Vec<HostMethod>,
}

/// A host of callbacks, those below it included, with its method: `feedbin.example=sha1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMethod {
    host: String,
    method: SignatureMethod,
}

/// A text that is no [`HostMethod`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a host and its method: write for example \"feedbin.example=sha1\", without scheme and port"
)]
pub struct HostMethodError(String);

impl FromStr for HostMethod {
    type Err = HostMethodError;

    fn from_str(text: &str) -> Result<Self, HostMethodError> {
        let parse = || {
            let (host, method) = text.split_once('=')?;
            // As others write it for the hosts below it too.
            let host = host.trim().trim_end_matches('.');
            let host = host.strip_prefix("*.").or_else(|| host.strip_prefix('.')).unwrap_or(host);
            // As it stands in a URL that is read.
            let host = Host::parse(host).ok().filter(|_| !host.contains('*'))?.to_string();
            Some(Self { host, method: method.trim().parse().ok()? })
        };
        parse().ok_or_else(|| HostMethodError(text.to_owned()))
    }
}

impl HostMethod {
    fn covers(&self, host: &str) -> bool {
        let Some(at) = host.len().checked_sub(self.host.len()) else { return false };
        host.is_char_boundary(at)
            && host[at..].eq_ignore_ascii_case(&self.host)
            && (at == 0 || host[..at].ends_with('.'))
    }
}

impl SignatureConfig {
    /// The method for callbacks on this host, as a URL names it. Of two entries the longer host counts.
    pub fn method_for(&self, host: &str) -> SignatureMethod {
        let host = host.trim_end_matches('.');
        let covering = self.by_host.iter().filter(|entry| entry.covers(host));
        covering.max_by_key(|entry| entry.host.len()).map_or(self.method, |entry| entry.method)
    }

    /// This method for every host.
    #[cfg(test)]
    pub(crate) fn always(method: SignatureMethod) -> Self {
        Self { method, by_host: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_those_below_it_have_their_method_and_all_others_the_usual_one() {
        let entry = |text: &str| text.parse::<HostMethod>().unwrap();
        let by_host =
            ["Feedbin.example=sha1", "*.new.feedbin.example = sha512", ".dot.example.=sha1", "[::1]=sha384"];
        let config =
            SignatureConfig { method: SignatureMethod::Sha256, by_host: by_host.map(entry).to_vec() };
        for (host, method) in [
            ("feedbin.example", SignatureMethod::Sha1),
            ("FEEDBIN.example.", SignatureMethod::Sha1),
            ("push.feedbin.example", SignatureMethod::Sha1),
            ("a.new.feedbin.example", SignatureMethod::Sha512),
            ("feeds.dot.example", SignatureMethod::Sha1),
            ("[::1]", SignatureMethod::Sha384),
            ("notfeedbin.example", SignatureMethod::Sha256),
            ("feedbin.example.evil.example", SignatureMethod::Sha256),
            ("example", SignatureMethod::Sha256),
            ("", SignatureMethod::Sha256),
        ] {
            assert_eq!(config.method_for(host), method, "{host}");
        }
    }

    #[test]
    fn what_is_no_host_with_a_method_is_refused() {
        for text in [
            "",
            "=sha1",
            "feedbin.example",
            "feedbin.example=md5",
            "https://feedbin.example=sha1",
            "a:1=sha1",
            "feeds.*.example=sha1",
            "*.=sha1",
        ] {
            assert!(text.parse::<HostMethod>().is_err(), "{text}");
        }
    }
}
