//! Documents from the web, as much of each and for as long as a check can bear.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use http::header::CONTENT_TYPE;
use resync_core::{
    lint::{Fetch, FetchFailure, Fetched},
    xml::MAX_BYTES,
};
use tokio::runtime::Handle;

use super::{CheckError, file::too_long};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For one document, redirects included.
const TIMEOUT: Duration = Duration::from_secs(60);
const REDIRECTS: usize = 5;

/// A web client for code that is not async. Packages are not looked into, since all of one would have to be fetched.
#[derive(Debug)]
pub(super) struct Web {
    client: reqwest::Client,
    runtime: Handle,
}

impl Web {
    /// A client whose requests run on `runtime`; to be used on threads outside of it.
    pub(super) fn new(runtime: Handle) -> Result<Self, CheckError> {
        let failed = |error: &dyn fmt::Display| CheckError::Client(error.to_string());
        let roots: rustls::RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::limited(REDIRECTS))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .user_agent(concat!("resync-source/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| failed(&error))?;
        Ok(Self { client, runtime })
    }

    async fn load(&self, url: &str) -> Result<Fetched, FetchFailure> {
        let mut response = self.client.get(url).send().await.map_err(reason)?;
        let status = response.status();
        if !status.is_success() {
            return Err(FetchFailure::new(status.to_string()));
        }
        let last_url = response.url().to_string();
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(reason)? {
            if (bytes.len() + chunk.len()) as u64 > MAX_BYTES {
                return Err(too_long());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Fetched { bytes, content_type, last_url })
    }
}

impl Fetch for Web {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        tracing::debug!(url, "fetching a document");
        self.runtime.block_on(self.load(url))
    }
}

/// An error with its causes, down to the one that helps; the URL is told anyway.
fn reason(error: reqwest::Error) -> FetchFailure {
    let error = error.without_url();
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let causes = causes.map(|cause| format!(": {cause}"));
    FetchFailure::new(std::iter::once(error.to_string()).chain(causes).collect::<String>())
}
