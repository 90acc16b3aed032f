//! Where a request goes: callbacks exactly as written, topics wherever a redirect may lead them.

use http::header::LOCATION;
use http::{HeaderMap, Uri};
use resync_core::websub::CallbackUrl;
use url::Url;

/// The request target of a callback: exactly what the subscriber wrote (W-190), as long as that can stand in a request; else
/// what the URL standard makes of it.
///
/// # Errors
/// When not even that is a request target.
pub fn target(callback: &CallbackUrl) -> Result<Uri, http::Error> {
    let written: Result<Uri, _> = callback.as_str().parse();
    written.or_else(|_| callback.url().as_str().parse()).map_err(http::Error::from)
}

/// Why a redirect is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// Without a place to go.
    #[error("a redirect names no place to go (Location)")]
    Missing,
    /// Not a URL.
    #[error("a redirect's Location is no URL")]
    Syntax,
    /// Neither `http` nor `https`.
    #[error("a redirect leads to something else than http or https")]
    Scheme,
    /// A user name or password.
    #[error("a redirect's Location contains a user name or password")]
    Credentials,
}

/// Where an answer sends a topic fetch; no other request is ever redirected. What is found there is judged anew when it is
/// connected to.
///
/// # Errors
/// [`RedirectError`].
pub fn redirect(from: &Url, headers: &HeaderMap) -> Result<Url, RedirectError> {
    let location = headers.get(LOCATION).ok_or(RedirectError::Missing)?;
    let location = location.to_str().map_err(|_| RedirectError::Syntax)?;
    let target = from.join(location).map_err(|_| RedirectError::Syntax)?;
    if !matches!(target.scheme(), "http" | "https") {
        return Err(RedirectError::Scheme);
    }
    if !target.username().is_empty() || target.password().is_some() {
        return Err(RedirectError::Credentials);
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(location: &str) -> Result<String, RedirectError> {
        let from = "https://source.example/a/feed?x=1".parse().unwrap();
        let headers = HeaderMap::from_iter([(LOCATION, location.parse().unwrap())]);
        redirect(&from, &headers).map(String::from)
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
