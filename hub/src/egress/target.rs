//! Where a request goes: callbacks exactly as written, topics also by redirects.

use std::sync::Arc;

use http::header::LOCATION;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Uri};
use resync_core::websub::{CallbackUrl, MAX_URL};
use url::Url;

use super::guard::Forbidden;

/// The request target of a callback: exactly what the subscriber wrote (W-190), if HTTP allows that; else as the URL standard
/// writes it.
///
/// # Errors
/// When HTTP does not allow that either.
pub fn target(callback: &CallbackUrl) -> Result<Uri, http::Error> {
    let written: Result<Uri, _> = callback.as_str().parse();
    written.or_else(|_| callback.url().as_str().parse()).map_err(http::Error::from)
}

/// A URL parsed for requests: the origin, the `Host`, and the request target. It is made once for many requests.
#[derive(Clone, Debug)]
pub struct Target {
    pub(super) origin: Origin,
    /// The `Host` header field.
    pub(super) host: HeaderValue,
    /// The request target in origin form.
    pub(super) path: Uri,
}

/// The origin whose connections a request can use. It is looked up with every request, and `Authority` would be hashed and
/// compared letter by letter, since its case does not matter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    tls: bool,
    /// In lower case.
    authority: Arc<str>,
}

impl Target {
    /// Parses an absolute `http` or `https` URL.
    ///
    /// # Errors
    /// [`Forbidden`] for anything else.
    pub fn of(url: &Uri) -> Result<Self, Forbidden> {
        let tls = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(_) | None => return Err(Forbidden::Scheme),
        };
        let authority = url.authority().ok_or(Forbidden::Host)?;
        let usual = if tls { 443 } else { 80 };
        let host = match authority.port_u16() {
            Some(port) if port != usual => format!("{}:{port}", authority.host()),
            Some(_) | None => authority.host().to_owned(),
        };
        let path = url.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        Ok(Self {
            origin: Origin { tls, authority: authority.as_str().to_ascii_lowercase().into() },
            host: HeaderValue::try_from(host).map_err(|_| Forbidden::Host)?,
            path: Uri::from(path),
        })
    }
}

impl Origin {
    /// The URL for the connector.
    pub(super) fn uri(&self) -> Result<Uri, http::Error> {
        let scheme = if self.tls { Scheme::HTTPS } else { Scheme::HTTP };
        Uri::builder().scheme(scheme).authority(&*self.authority).path_and_query("/").build()
    }
}

/// Why a redirect is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// It has no `Location`.
    #[error("a redirect has no Location header")]
    Missing,
    /// Longer than a URL may be.
    #[error("a redirect leads to a URL of {length} bytes; redirect to one of at most {MAX_URL}")]
    TooLong {
        /// How long it is.
        length: usize,
    },
    /// Not a URL.
    #[error("a redirect's Location is not a URL")]
    Syntax,
    /// Neither `http` nor `https`.
    #[error("a redirect's Location is neither http nor https")]
    Scheme,
    /// A user name or password.
    #[error("a redirect's Location contains a user name or password")]
    Credentials,
}

/// Where an answer redirects a topic fetch; no other request follows redirects. The guard judges the new address when it is
/// connected to.
///
/// # Errors
/// [`RedirectError`].
pub fn redirect(from: &Url, headers: &HeaderMap) -> Result<Url, RedirectError> {
    let location = headers.get(LOCATION).ok_or(RedirectError::Missing)?;
    let location = location.to_str().map_err(|_| RedirectError::Syntax)?;
    // Checked before and after it is parsed: what is relative or not ASCII becomes longer.
    check_length(location)?;
    let target = from.join(location).map_err(|_| RedirectError::Syntax)?;
    check_length(target.as_str())?;
    if !matches!(target.scheme(), "http" | "https") {
        return Err(RedirectError::Scheme);
    }
    if !target.username().is_empty() || target.password().is_some() {
        return Err(RedirectError::Credentials);
    }
    Ok(target)
}

fn check_length(url: &str) -> Result<(), RedirectError> {
    if url.len() > MAX_URL { Err(RedirectError::TooLong { length: url.len() }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_to_no_url_that_is_longer_than_one_may_be_also_once_it_is_read() {
        let of_length = |length: usize| format!("https://source.example/{}", "x".repeat(length - 23));
        assert!(redirected(&of_length(MAX_URL)).is_ok());
        assert_eq!(redirected(&of_length(MAX_URL + 1)), Err(RedirectError::TooLong { length: MAX_URL + 1 }));
        let relative = "x".repeat(MAX_URL - 10);
        assert!(matches!(redirected(&relative), Err(RedirectError::TooLong { length }) if length > MAX_URL));
    }

    fn redirected(location: &str) -> Result<String, RedirectError> {
        let from = "https://source.example/a/feed?x=1".parse().unwrap();
        let headers = HeaderMap::from_iter([(LOCATION, location.parse().unwrap())]);
        redirect(&from, &headers).map(String::from)
    }

    #[test]
    fn w190_a_target_is_named_as_in_the_url_and_keeps_its_query() {
        let of = |url: &str| {
            let target = Target::of(&url.parse().unwrap()).unwrap();
            (target.host.to_str().unwrap().to_owned(), target.path.to_string())
        };
        let expected = |host: &str, path: &str| (host.to_owned(), path.to_owned());
        assert_eq!(of("http://d.example/cb?id=7&x=a%20b"), expected("d.example", "/cb?id=7&x=a%20b"));
        assert_eq!(of("http://d.example:80/"), expected("d.example", "/"));
        assert_eq!(of("https://d.example:80"), expected("d.example:80", "/"));
        assert_eq!(of("http://[::1]:8080?x=1"), expected("[::1]:8080", "/?x=1"));
    }

    #[test]
    fn names_in_either_case_share_their_connections() {
        let origin = |url: &str| Target::of(&url.parse().unwrap()).unwrap().origin;
        assert_eq!(origin("http://d.example:8080/a"), origin("http://D.Example:8080/b"));
        assert_ne!(origin("http://d.example/"), origin("https://d.example/"));
    }

    #[test]
    fn only_http_and_https_urls_are_targets() {
        for url in ["/cb", "ftp://d.example/cb", "d.example:80"] {
            assert!(Target::of(&url.parse().unwrap()).is_err(), "{url}");
        }
    }

    #[test]
    fn w034_a_relative_location_is_resolved() {
        assert_eq!(redirected("../b").unwrap(), "https://source.example/b");
        assert_eq!(redirected("//other.example/c").unwrap(), "https://other.example/c");
    }

    #[test]
    fn b32_a_redirect_leaves_neither_http_nor_carries_credentials() {
        assert_eq!(redirected("file:///etc/passwd"), Err(RedirectError::Scheme));
        assert_eq!(redirected("gopher://127.0.0.1:6379/_x"), Err(RedirectError::Scheme));
        assert_eq!(redirected("http://a:b@source.example/"), Err(RedirectError::Credentials));
        assert_eq!(redirected("http://a@source.example/"), Err(RedirectError::Credentials));
        assert_eq!(redirected("http://[::1"), Err(RedirectError::Syntax));
        let from = "https://source.example/".parse().unwrap();
        assert_eq!(redirect(&from, &HeaderMap::new()), Err(RedirectError::Missing));
    }
}
