//! Credentials for a Source, which no other server gets.

use std::fmt;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use url::{Origin, Url};

/// Headers for every GET to some origins. For http at the usual port, they are also sent to https of the same host at the usual
/// port. They are never logged.
#[derive(Clone, Default)]
pub struct Credentials {
    headers: HeaderMap,
    origins: Vec<Origin>,
}

impl Credentials {
    /// For the origins of these URLs.
    #[must_use]
    pub fn new(
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        sources: impl IntoIterator<Item = Url>,
    ) -> Self {
        let origins = sources.into_iter().map(|url| url.origin()).collect();
        Self { headers: headers.into_iter().collect(), origins }
    }

    /// The header that carries a bearer token (RFC 6750).
    ///
    /// # Errors
    /// When the token has characters that are not allowed in a header.
    pub fn bearer(token: &str) -> Result<(HeaderName, HeaderValue), InvalidHeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
        value.set_sensitive(true);
        Ok((AUTHORIZATION, value))
    }

    pub(super) fn of(&self, url: &Url) -> HeaderMap {
        let requested = url.origin();
        let is_known = self.origins.iter().any(|known| requested == *known || is_moved(known, &requested));
        if is_known { self.headers.clone() } else { HeaderMap::new() }
    }
}

/// Whether a host moved from http to https, each at its usual port. Other ports may belong to somebody else, and http may be
/// intercepted.
pub(crate) fn is_moved(known: &Origin, requested: &Origin) -> bool {
    let usual = |origin: &Origin, scheme: &str, port: u16| match origin {
        Origin::Tuple(found, host, at) if found == scheme && *at == port => Some(host.clone()),
        _ => None,
    };
    let before = usual(known, "http", 80);
    before.is_some() && before == usual(requested, "https", 443)
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&HeaderName> = self.headers.keys().collect();
        f.debug_struct("Credentials").field("headers", &names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_source_s_own_origin_gets_them_and_nobody_sees_them() {
        let url = |text: &str| Url::parse(text).unwrap();
        let bearer = Credentials::bearer("t0ken").unwrap();
        let known = Credentials::new([bearer], [url("https://a.example/data/")]);
        assert_eq!(known.of(&url("https://a.example/x"))[AUTHORIZATION], "Bearer t0ken");
        for other in ["http://a.example/x", "https://a.example:444/x", "https://b.example/x"] {
            assert!(known.of(&url(other)).is_empty(), "{other}");
        }
        assert!(!format!("{known:?}").contains("t0ken"));
        assert!(Credentials::bearer("two\nlines").is_err());
    }

    #[test]
    fn a_host_that_moved_to_https_gets_them_there_and_no_other_host_or_port_does() {
        let url = |text: &str| Url::parse(text).unwrap();
        let bearer = || Credentials::bearer("t0ken").unwrap();
        let known = Credentials::new([bearer()], [url("http://a.example/")]);
        assert_eq!(known.of(&url("https://a.example/x"))[AUTHORIZATION], "Bearer t0ken");
        for other in ["https://b.example/x", "https://a.example:8443/x", "http://a.example:81/x"] {
            assert!(known.of(&url(other)).is_empty(), "{other}");
        }
        let elsewhere = Credentials::new([bearer()], [url("http://a.example:8080/")]);
        assert!(elsewhere.of(&url("https://a.example/x")).is_empty(), "that port may be somebody else's");
    }
}
