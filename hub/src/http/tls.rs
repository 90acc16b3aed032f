//! TLS on a listener: a certificate and its key, checked before they are used and replaced while the hub runs.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use resync_common::locks;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, interval};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

use crate::config::TlsConfig;
use crate::pem::{self, PemError};

/// How often the files are checked for changes.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often a certificate that expires soon is logged, and what soon means.
const REMIND_EVERY: Duration = Duration::from_secs(12 * 3_600);
const SOON: Duration = Duration::from_secs(2 * 24 * 3_600);
/// No certificate holds as long as this: its notation of time has four digits for the year.
const END_OF_TIME: Duration = Duration::from_secs(253_402_300_800);
/// The only protocol within TLS.
const ALPN: &[u8] = b"http/1.1";

/// Why a certificate and its key are not used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One of the files.
    #[error(transparent)]
    File(#[from] PemError),
    /// The key does not match the certificate.
    #[error(
        "the key in {key} does not belong to the first certificate in {certificate}: the server's own certificate comes first, those of its issuers follow"
    )]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The certificate has expired, or is not valid yet.
    #[error(
        "the certificate in {certificate} {reason}: have it renewed (and check the clock of this machine)"
    )]
    OutOfDate {
        /// The file of the certificate.
        certificate: PathBuf,
        /// Since when or until when.
        reason: String,
    },
    /// They cannot be used for TLS.
    #[error("{certificate} and {key} cannot be used for TLS: {reason}")]
    Unusable {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// The TLS side of a listener. Clones share the pair in use.
#[derive(Clone, Debug)]
pub struct Tls {
    files: TlsConfig,
    in_force: Arc<RwLock<Pair>>,
}

#[derive(Clone, Debug)]
struct Pair {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
    stamp: Stamp,
}

/// How a replaced file is noticed.
type Stamp = [Option<(SystemTime, u64, u64)>; 2];

impl Tls {
    /// TLS with the configured files, if any. An expired certificate is used and logged: deliveries need none, and must not wait for it.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(files: &TlsConfig) -> Result<Option<Self>, TlsError> {
        if !files.is_on() {
            return Ok(None);
        }
        let pair = Pair::read(files)?;
        let tls = Self { files: files.clone(), in_force: Arc::new(RwLock::new(pair)) };
        tls.remind();
        Ok(Some(tls))
    }

    /// The handshake.
    ///
    /// # Errors
    /// When the client breaks off or does not speak TLS.
    pub(super) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = Arc::clone(&locks::read(&self.in_force).config);
        TlsAcceptor::from(config).accept(stream).await
    }

    /// Checks the files until `stop` turns true, and loads a new pair as soon as it is complete. If it cannot be used, the old one stays.
    pub async fn keep(self, mut stop: watch::Receiver<bool>) {
        let mut look = interval(LOOK_EVERY);
        let mut judged = self.pair().stamp;
        let mut last = judged;
        let mut reminded = Instant::now();
        loop {
            tokio::select! {
                _ = look.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let now = stamp(&self.files);
            // Certificate and key are written one after the other: only files that did not change since the last check are read.
            if now != judged && now == last {
                judged = now;
                self.replace();
            }
            last = now;
            if reminded.elapsed() > REMIND_EVERY {
                reminded = Instant::now();
                self.remind();
            }
        }
    }

    fn replace(&self) {
        let certificate = self.files.certificate.display();
        match Pair::read(&self.files)
            .and_then(|pair| pair.check_date(&self.files, SystemTime::now()).map(|()| pair))
        {
            Ok(pair) => {
                *locks::write(&self.in_force) = pair;
                info!(%certificate, "new certificate in use");
                self.remind();
            }
            Err(error) => warn!(
                %error,
                "new certificate not used, the old one stays: correct the files, they are read again when they change"
            ),
        }
    }

    fn remind(&self) {
        let (pair, now) = (self.pair(), SystemTime::now());
        if let Err(error) = pair.check_date(&self.files, now) {
            warn!(%error, "clients will refuse the hub's certificate");
        } else if pair.check_date(&self.files, now + SOON).is_err() {
            let certificate = self.files.certificate.display();
            warn!(%certificate, "the certificate expires within two days: renew it, the hub loads a new one by itself");
        }
    }

    /// When the certificate in use expires, if that can be read from it.
    pub(super) fn ends(&self) -> Option<UnixTime> {
        match self.pair().judge(END_OF_TIME) {
            Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
                not_after, ..
            })) => Some(not_after),
            Ok(()) | Err(_) => None,
        }
    }

    fn pair(&self) -> Pair {
        locks::read(&self.in_force).clone()
    }
}

/// Whether the files could be used now.
///
/// # Errors
/// [`TlsError`], also for a certificate that is out of date.
pub fn check(files: &TlsConfig) -> Result<(), TlsError> {
    if files.is_on() { Pair::read(files)?.check_date(files, SystemTime::now()) } else { Ok(()) }
}

impl Pair {
    fn read(files: &TlsConfig) -> Result<Self, TlsError> {
        let stamp = stamp(files);
        let chain = pem::certificates(&files.certificate)?;
        let key = pem::private_key(&files.key)?;
        let certificate = chain[0].clone();
        let name = |error| name(files, &error);
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(name)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(name)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { config: Arc::new(config), certificate, stamp })
    }

    /// Checks the certificate as clients do, at this time since 1970. The date is checked first, so no issuer has to be known.
    fn judge(&self, since_1970: Duration) -> Result<(), rustls::Error> {
        let parsed = ParsedCertificate::try_from(&self.certificate)?;
        let algorithms = provider().signature_verification_algorithms.all;
        let now = UnixTime::since_unix_epoch(since_1970);
        verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], now, algorithms)
    }

    fn check_date(&self, files: &TlsConfig, at: SystemTime) -> Result<(), TlsError> {
        let judged = self.judge(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        let date = |time: UnixTime| {
            httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()))
        };
        let reason = match judged {
            Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
                not_after, ..
            })) => {
                format!("has expired on {}", date(not_after))
            }
            Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext {
                not_before,
                ..
            })) => {
                format!("is not valid before {}", date(not_before))
            }
            // Other checks of clients depend on whom they trust.
            Ok(()) | Err(_) => return Ok(()),
        };
        Err(TlsError::OutOfDate { certificate: files.certificate.clone(), reason })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn name(files: &TlsConfig, error: &rustls::Error) -> TlsError {
    let (certificate, key) = (files.certificate.clone(), files.key.clone());
    match error {
        rustls::Error::InconsistentKeys(_) => TlsError::Mismatch { certificate, key },
        other => TlsError::Unusable { certificate, key, reason: other.to_string() },
    }
}

fn stamp(files: &TlsConfig) -> Stamp {
    let of =
        |path: &Path| fs::metadata(path).and_then(|data| Ok((data.modified()?, data.len(), data.ino()))).ok();
    [of(&files.certificate), of(&files.key)]
}
