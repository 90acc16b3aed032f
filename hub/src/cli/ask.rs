//! One request to a running hub's admin listener. Its token is shown to the hub that has it, and to no other.
//!
//! HTTP/1.0 is sent and read by hand, in some seventy lines. With hyper they would hardly be fewer: a runtime, a task for the connection, a
//! timeout around each read. The check of the certificate and what is said of failures would stay as they are.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use resync_common::client;
use resync_core::websub::Challenge;
use resync_hub::http::AdminToken;
use resync_hub::pem;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use serde::Deserialize;

use super::Failure;

/// A problem as the admin API reports it.
#[derive(Deserialize)]
struct Problem {
    detail: String,
}

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes that are read of a proof of identity.
const LONGEST_PROOF: u64 = 1_024;

/// Where and how to ask a hub.
#[derive(Debug)]
pub(super) struct Admin {
    /// Where it listens.
    pub(super) address: String,
    /// Whether it speaks TLS.
    pub(super) tls: Tls,
    /// The operator's token; health needs none.
    pub(super) token: Option<Token>,
    /// How long it may take to answer.
    pub(super) patience: Duration,
}

/// Whether a listener speaks TLS, and what its certificate is checked against.
#[derive(Debug)]
pub(super) enum Tls {
    /// It does not.
    Off,
    /// It has exactly the certificate of this file.
    Pinned(PathBuf),
    /// It has one of this name that the web's authorities vouch for.
    Named(String),
}

/// The operator's token, and where it is from.
pub(super) struct Token {
    pub(super) text: String,
    pub(super) file: PathBuf,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Admin {
    /// The body of a 200.
    pub(super) fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        let mut answer = self.exchange(method, path, body)?;
        let mut body = String::new();
        answer.read_to_string(&mut body).map_err(|error| self.silent(method, &error))?;
        Ok(body.trim().to_owned())
    }

    /// Writes the body of a 200, which may be long.
    pub(super) fn download(&self, method: &str, path: &str, out: &mut impl Write) -> Result<(), Failure> {
        let mut answer = self.exchange(method, path, "")?;
        loop {
            let part = match answer.fill_buf() {
                Ok([]) => return Ok(()),
                Ok(part) => part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.silent(method, &error)),
            };
            out.write_all(part)
                .map_err(|error| Failure::new(format_args!("the answer cannot be written: {error}")))?;
            let length = part.len();
            answer.consume(length);
        }
    }

    /// The body of a 200, to be read.
    fn exchange(&self, method: &str, path: &str, body: &str) -> Result<Box<dyn BufRead>, Failure> {
        if let Some(token) = &self.token {
            self.check_identity(token)?;
        }
        let (status, mut answer) = self.request(method, path, body, self.token.as_ref())?;
        if status == "200" {
            return Ok(answer);
        }
        let mut body = String::new();
        answer.read_to_string(&mut body).map_err(|error| self.silent(method, &error))?;
        let said = match serde_json::from_str(&body) {
            Ok(Problem { detail }) => detail,
            Err(_) if body.trim().is_empty() => {
                format!("the server at {} answers {status} without a message: is it a hub?", self.address)
            }
            Err(_) => body.trim().to_owned(),
        };
        Err(Failure::new(said))
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        body: &str,
        token: Option<&Token>,
    ) -> Result<(String, Box<dyn BufRead>), Failure> {
        let sent = self.send(method, path, body, token);
        let answered = sent.and_then(|mut answer| Ok((status(&mut answer)?, answer)));
        answered.map_err(|error| self.silent(method, &error))
    }

    /// Whoever listens there proves that it has the token, before it is sent.
    fn check_identity(&self, token: &Token) -> Result<(), Failure> {
        let challenge = Challenge::random();
        let path = format!("/identity?challenge={}", challenge.as_str());
        let (status, mut answer) = self.request("GET", &path, "", None)?;
        let mut proof = String::new();
        let read = answer.by_ref().take(LONGEST_PROOF).read_to_string(&mut proof);
        read.map_err(|error| self.silent("GET", &error))?;
        if status == "200" && proof.trim() == AdminToken::new(&token.text).proof(challenge.as_str()) {
            return Ok(());
        }
        if status == "404" && !AdminToken::new(&token.text).is_long() {
            return Err(Failure::new(format_args!(
                "the token in {} is so short that the hub does not prove to know it: give the hub a longer one, such as `openssl rand -hex 32` makes",
                token.file.display()
            )));
        }
        Err(self.stranger(&token.file))
    }

    fn stranger(&self, token: &Path) -> Failure {
        Failure::new(format_args!(
            "who listens at {} is not the hub of the token in {}, which was not sent: name the hub that you mean with --config, \
             --data-dir or --admin",
            self.address,
            token.display()
        ))
    }

    fn silent(&self, method: &str, error: &io::Error) -> Failure {
        let Self { address, patience, tls, .. } = self;
        let is_read = method == "GET";
        match error.kind() {
            // So a connection reads whose time is over; one that cannot be made is timed out by another name.
            io::ErrorKind::WouldBlock => {
                let rest = if is_read {
                    ""
                } else {
                    ": the command goes on, and the audit log will show its outcome"
                };
                Failure::new(format_args!("the hub at {address} did not answer within {patience:?}{rest}"))
            }
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                let scheme = if matches!(tls, Tls::Off) { "http" } else { "https" };
                let rest =
                    if is_read { "ask again" } else { "see the audit log for what was done, and try again" };
                Failure::new(format_args!(
                    "who listens at {address} hung up in the middle: the hub has stopped, or that is none that speaks {scheme}. When it \
                     runs (`resync-hub healthcheck`), {rest}"
                ))
            }
            _ => {
                let cause = resync_common::client::in_plain_words(error.to_string());
                Failure::new(format_args!("no hub at {address}: {cause}"))
            }
        }
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        body: &str,
        token: Option<&Token>,
    ) -> io::Result<Box<dyn BufRead>> {
        let stream = self.connect()?;
        stream.set_read_timeout(Some(self.patience))?;
        let token =
            token.map_or_else(String::new, |token| format!("Authorization: Bearer {}\r\n", token.text));
        // HTTP/1.0, so that the body comes in one piece.
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\n{token}Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let (config, name) = match &self.tls {
            Tls::Off => return sent(stream, &request),
            Tls::Pinned(certificate) => {
                (trusting_only(certificate)?, ServerName::IpAddress(stream.peer_addr()?.ip().into()))
            }
            Tls::Named(name) => {
                let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned());
                (client::tls(client::web_roots()).into(), name.map_err(io::Error::other)?)
            }
        };
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        sent(StreamOwned::new(connection, stream), &request)
    }

    /// A name may have several addresses.
    fn connect(&self) -> io::Result<TcpStream> {
        let mut failed = io::Error::other("this name has no address");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

fn sent(mut stream: impl Read + Write + 'static, request: &str) -> io::Result<Box<dyn BufRead>> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    Ok(Box::new(BufReader::new(stream)))
}

/// Reads the head of an answer.
fn status(answer: &mut dyn BufRead) -> io::Result<String> {
    let mut line = line(answer)?;
    let status = line.split(' ').nth(1).unwrap_or_default().to_owned();
    while !line.trim().is_empty() {
        line = self::line(answer)?;
    }
    Ok(status)
}

/// A line that is not the last one.
fn line(answer: &mut dyn BufRead) -> io::Result<String> {
    let mut line = String::new();
    answer.read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn trusting_only(certificate: &Path) -> io::Result<Arc<ClientConfig>> {
    let chain = pem::certificates(certificate).map_err(io::Error::other)?;
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(OneCertificate { expected: chain[0].clone(), provider: Arc::clone(&provider) });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Accepts exactly the configured certificate, whatever its names and dates: the hub is on the operator's own machine, and its
/// certificate names its public address, not this one.
#[derive(Debug)]
struct OneCertificate {
    expected: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OneCertificate {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *presented == self.expected {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::General("its certificate is not the configured one".to_owned()))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use super::*;

    fn admin(address: SocketAddr, patience: Duration) -> Admin {
        Admin { address: address.to_string(), tls: Tls::Off, token: None, patience }
    }

    #[test]
    fn a_hub_that_does_not_answer_in_time_is_not_said_to_be_away() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let admin = admin(address, Duration::from_millis(50));
        let said = |method| admin.ask(method, "/", "").unwrap_err().message;
        assert_eq!(said("GET"), format!("the hub at {address} did not answer within 50ms"));
        assert!(said("POST").contains("within 50ms: the command goes on"), "{}", said("POST"));
        drop(listener);
        assert!(said("GET").starts_with(&format!("no hub at {address}: ")), "{}", said("GET"));
    }

    #[test]
    fn a_hub_that_goes_away_in_the_middle_is_said_to_have_and_what_is_to_be_done() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let admin = admin(address, Duration::from_secs(60));
        let asked = |method, answer: &'static str| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let (stream, _) = listener.accept().unwrap();
                    let mut head = BufReader::new(&stream).lines();
                    while !head.next().unwrap().unwrap().is_empty() {}
                    (&stream).write_all(answer.as_bytes()).unwrap();
                });
                admin.ask(method, "/", "").unwrap_err().message
            })
        };
        for cut in ["", "HTTP/1.0 20", "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n"] {
            let said = asked("GET", cut);
            assert!(said.contains("hung up in the middle") && said.ends_with("ask again"), "{said}");
        }
        assert!(asked("POST", "").contains("see the audit log"));
        assert!(asked("GET", "HTTP/1.0 502 Bad Gateway\r\n\r\n").contains("answers 502 without a message"));
    }
}
