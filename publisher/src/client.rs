//! The web client of this crate: TLS with the Mozilla roots, and words for what went wrong.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use reqwest::redirect::Policy;

/// A client whose requests take no longer than `timeout`, redirects included.
pub(crate) fn client(
    redirects: Policy,
    connect_timeout: Duration,
    timeout: Duration,
) -> Result<reqwest::Client, String> {
    let failed = |error: &dyn fmt::Display| error.to_string();
    let roots: rustls::RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirects)
        .connect_timeout(connect_timeout)
        .timeout(timeout)
        .user_agent(concat!("resync-source/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| failed(&error))
}

/// Why a request failed: the last cause is the one that helps.
pub(crate) fn reason(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return "it takes too long".to_owned();
    }
    let error = error.without_url();
    let causes = std::iter::successors(Some(&error as &dyn Error), |&cause| cause.source());
    causes.last().unwrap_or(&error).to_string()
}
