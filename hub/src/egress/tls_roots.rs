//! The roots of trust for TLS: those of the web, bundled, and the operator's own.

use std::path::{Path, PathBuf};

use resync_common::client::{tls, web_roots};
use rustls::ClientConfig;

use crate::pem::{self, PemError};

/// What a server's certificate is checked against.
#[derive(Clone, Debug)]
pub struct TlsRoots(ClientConfig);

/// Why the operator's own roots cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsRootsError {
    /// The file.
    #[error("[egress] extra_ca: {0}")]
    File(#[from] PemError),
    /// A part of it.
    #[error("[egress] extra_ca: certificate {number} in {path} cannot be used: {reason}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Which of its certificates, from 1.
        number: usize,
        /// Why not.
        reason: String,
    },
}

impl TlsRoots {
    /// The web's roots, and the certificates in a file if there is one.
    ///
    /// # Errors
    /// [`TlsRootsError`].
    pub fn new(extra: Option<&Path>) -> Result<Self, TlsRootsError> {
        let mut roots = web_roots();
        if let Some(path) = extra {
            for (at, certificate) in pem::certificates(path)?.into_iter().enumerate() {
                roots.add(certificate).map_err(|error| TlsRootsError::Certificate {
                    path: path.to_owned(),
                    number: at + 1,
                    reason: error.to_string(),
                })?;
            }
        }
        Ok(Self(tls(roots)))
    }

    /// Copies share roots and sessions.
    pub(super) fn client_config(&self) -> ClientConfig {
        self.0.clone()
    }
}
