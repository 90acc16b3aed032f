//! Reads certificates and keys from PEM files; every error names the file.

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why a file with certificates or a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// It cannot be read.
    #[error("{path} cannot be read: {reason}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// It can be read and is damaged, or something else altogether.
    #[error("{path} is no PEM file: {reason}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// Where it is wrong.
        reason: String,
    },
    /// There is no certificate in it.
    #[error("{0} holds no certificate: it needs a part that begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate(PathBuf),
    /// There is no key in it, or only one that is locked by a password.
    #[error(
        "{0} holds no private key that can be read without a password: it needs a part that begins with -----BEGIN PRIVATE KEY-----"
    )]
    NoKey(PathBuf),
}

/// All certificates of a file, at least one.
///
/// # Errors
/// [`PemError`].
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| name(path, error))?;
    if found.is_empty() { Err(PemError::NoCertificate(path.to_owned())) } else { Ok(found) }
}

/// The first private key of a file.
///
/// # Errors
/// [`PemError`].
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, PemError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        pem::Error::NoItemsFound => PemError::NoKey(path.to_owned()),
        other => name(path, other),
    })
}

fn name(path: &Path, error: pem::Error) -> PemError {
    let path = path.to_owned();
    match error {
        pem::Error::Io(error) if error.kind() != std::io::ErrorKind::InvalidData => {
            PemError::Unreadable { path, reason: error.to_string() }
        }
        other => PemError::Malformed { path, reason: other.to_string() },
    }
}
