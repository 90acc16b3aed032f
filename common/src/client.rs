//! What HTTP clients trust, the dates and pauses in answers, and words for what went wrong with a request.

use std::error::Error;
use std::iter::successors;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::{ClientConfig, RootCertStore};

/// The longest pause that a server can ask for.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// The certificate authorities of the web, as Mozilla has them.
pub fn web_roots() -> RootCertStore {
    webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()
}

/// TLS 1.2 and 1.3 by ring, with servers that one of these `roots` vouches for.
pub fn tls(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring speaks both versions of TLS that are compiled in")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// The moment that a date in one of the three forms of HTTP means, from 1970 on (RFC 9110, section 5.6.7). `None` for anything else.
pub fn http_date(value: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(value).ok()
}

/// The pause that a `Retry-After` asks for, at most [`LONGEST_PAUSE`]: seconds, or an [`http_date`] (RFC 9110, section 10.2.3). `None` for
/// anything else, and for a date that is over.
pub fn retry_after(value: &str) -> Option<Duration> {
    let value = value.trim_ascii();
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let pause = if is_number {
        // What is beyond the range is far beyond the longest pause.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        http_date(value)?.duration_since(SystemTime::now()).ok()?
    };
    Some(pause.min(LONGEST_PAUSE))
}

/// The innermost cause of an error: of a failed request, the one that helps.
pub fn root_cause(error: &(dyn Error + 'static)) -> String {
    let innermost = successors(Some(error), |&cause| cause.source()).last();
    in_plain_words(innermost.unwrap_or(error).to_string())
}

/// What a library says of a connection whose ends speak differently, for people; all else as it is.
pub fn in_plain_words(cause: String) -> String {
    if cause.contains("corrupt message of type InvalidContentType") {
        "the server there speaks no TLS: write http:// instead of https://, or another port".to_owned()
    } else if cause.contains("invalid HTTP version parsed") {
        "the server there does not answer in HTTP: if it speaks TLS, write https:// instead of http://"
            .to_owned()
    } else {
        cause
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no connection")]
    struct Outer(#[source] io::Error);

    #[test]
    fn the_innermost_cause_is_told_and_an_error_without_one_itself() {
        let refused = || io::Error::other("the server refused it");
        assert_eq!(root_cause(&Outer(refused())), "the server refused it");
        assert_eq!(root_cause(&refused()), "the server refused it");
    }

    #[test]
    fn a_server_that_speaks_otherwise_is_said_to_with_what_to_write() {
        let said = |cause: &str| root_cause(&Outer(io::Error::other(cause.to_owned())));
        assert!(said("received corrupt message of type InvalidContentType").contains("write http://"));
        assert!(said("invalid HTTP version parsed").contains("write https://"));
    }

    #[test]
    fn a_date_has_one_of_three_forms_and_is_in_gmt() {
        let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for value in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(http_date(value), Some(moment), "{value}");
        }
        for value in ["", "yesterday", "1994-11-06T08:49:37Z", "Sun, 06 Nov 1994 08:49:37 +0100"] {
            assert_eq!(http_date(value), None, "{value}");
        }
    }

    #[test]
    fn a_server_asks_for_a_pause_in_seconds_or_until_a_date_and_gets_an_hour_at_most() {
        assert_eq!(retry_after("0"), Some(Duration::ZERO));
        assert_eq!(retry_after(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("0120"), Some(Duration::from_secs(120)));
        let of_an_hour = [
            "3600",
            "1000000",
            "18446744073709551615",
            "18446744073709551616",
            "100000000000000000000000000000000000000000",
            "Tue, 31 Dec 2199 23:59:59 GMT",
            "Tue Dec 31 23:59:59 2199",
        ];
        for value in of_an_hour {
            assert_eq!(retry_after(value), Some(LONGEST_PAUSE), "{value}");
        }
        let soon = retry_after(&httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(1_800)));
        assert!(soon.is_some_and(|pause| pause > Duration::ZERO && pause <= Duration::from_secs(1_800)));
        for value in
            ["", "soon", "-5", "+5", "1.5", "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT"]
        {
            assert_eq!(retry_after(value), None, "{value}");
        }
    }

    #[test]
    fn a_client_knows_the_authorities_of_the_web() {
        let roots = web_roots();
        assert!(roots.len() > 50);
        assert_eq!(tls(roots).alpn_protocols, Vec::<Vec<u8>>::new());
    }
}
