//! Cookies that a browser sends.

use http::HeaderMap;
use http::header::COOKIE;

/// The value of the first cookie of this name.
pub(super) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=1; wanted=2=3"));
        headers.append(COOKIE, HeaderValue::from_static("wanted=4"));
        assert_eq!(cookie(&headers, "wanted"), Some("2=3"));
        assert_eq!(cookie(&headers, "want"), None);
    }
}
