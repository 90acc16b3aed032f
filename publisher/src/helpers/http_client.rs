//! The HTTP client of this crate, with the Mozilla roots, and the reasons of its failures.

use std::time::Duration;

use reqwest::redirect::Policy;
use resync_common::client::{root_cause, tls, web_roots};

/// A client whose requests take no longer than `timeout`, redirects included.
pub(crate) fn client(
    redirects: Policy,
    connect_timeout: Duration,
    timeout: Duration,
) -> Result<reqwest::Client, String> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls(web_roots()))
        .redirect(redirects)
        .connect_timeout(connect_timeout)
        .timeout(timeout)
        .user_agent(concat!("resync-source/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| error.to_string())
}

/// Why a request failed: the last cause, which says most.
pub(crate) fn reason(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return "it takes too long".to_owned();
    }
    root_cause(&error.without_url())
}
