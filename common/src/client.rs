//! What HTTP clients trust, and words for what went wrong with a request.

use std::error::Error;
use std::iter::successors;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

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
    fn a_client_knows_the_authorities_of_the_web() {
        let roots = web_roots();
        assert!(roots.len() > 50);
        assert_eq!(tls(roots).alpn_protocols, Vec::<Vec<u8>>::new());
    }
}
