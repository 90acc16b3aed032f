//! TLS in and out over real sockets, judged by reqwest, curl and openssl: handshakes, files, their replacement, trust.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use resync_harness::{HubProcess, PATIENCE, Receiver, Reply, binary, eventually, form, post};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::{TempDir, tempdir};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const TOPIC: &str = "http://example.com/framework/";

// --- in ---

#[tokio::test]
async fn clients_that_nobody_here_wrote_speak_tls_with_the_hub_and_find_its_urls_by_https() {
    let scene = Scene::new();
    let hub = scene.hub(&[]).await;
    let url = format!("https://{}/websub/", hub.address);
    let link = format!("<{TOPIC}>; rel=\"self\", <{url}>; rel=\"hub\"");
    let request = scene.reqwest().post(&url).header("Link", link).header("Content-Type", "text/plain");
    let answer = request.body("news").send().await.unwrap();
    assert_eq!(answer.status(), 202);
    let location = answer.headers()["location"].to_str().unwrap();
    assert!(location.starts_with(&url), "{location}");
    let status = scene.reqwest().get(location).send().await.unwrap();
    assert_eq!(status.status(), 200, "the URL that the hub gave out works");

    let write_out = "%{http_code} %{ssl_verify_result} %{http_version}";
    let curl = ["-sS", "--cacert", &scene.ca(), "-o", "/dev/null", "-w", write_out, &url];
    assert_eq!(said(&run("curl", &curl).await), "200 0 1.1");

    let address = hub.address.to_string();
    let ca = scene.ca();
    let mut openssl = vec!["s_client", "-connect", &address, "-CAfile", &ca, "-verify_ip", "127.0.0.1"];
    openssl.extend(["-verify_return_error", "-alpn", "h2,http/1.1", "-tls1_2"]);
    let shaken = said(&run("openssl", &openssl).await);
    assert!(shaken.contains("ALPN protocol: http/1.1") && shaken.contains("(ok)"), "{shaken}");
    *openssl.last_mut().unwrap() = "-tls1_1";
    assert!(!run("openssl", &openssl).await.status.success(), "TLS 1.1 is not spoken");
}

#[tokio::test]
async fn handshakes_that_do_not_end_are_cut_off() {
    let scene = Scene::new();
    let hub = scene.hub(&[("INGRESS_HEADER_TIMEOUT", "500ms")]).await;
    let silent = TcpStream::connect(hub.address).await.unwrap();
    let mut half = TcpStream::connect(hub.address).await.unwrap();
    half.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
    for mut stream in [silent, half] {
        assert_eq!(rest(&mut stream).await, "");
    }
    assert_eq!(scene.get(&hub).await, 200);
}

#[tokio::test]
async fn beyond_the_cap_no_handshake_is_made() {
    let scene = Scene::new();
    let hub = scene.hub(&[("INGRESS_CONNECTIONS", "1")]).await;
    let first = scene.connect(hub.address).await;
    let second = TcpStream::connect(hub.address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(scene.client_config()));
    assert!(connector.connect(ServerName::from(hub.address.ip()), second).await.is_err());
    drop(first);
    eventually("the place is free", || async {
        scene.reqwest().get(format!("https://{}/websub/", hub.address)).send().await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn headers_and_bodies_that_drip_through_tls_are_cut_off_too() {
    let scene = Scene::new();
    let keys = [("INGRESS_HEADER_TIMEOUT", "500ms"), ("INGRESS_BODY_TIMEOUT", "500ms")];
    let hub = scene.hub(&keys).await;
    let mut header = scene.connect(hub.address).await;
    header.write_all(b"POST /websub/ HTTP/1.1\r\nHost: h\r\nX-Slow:").await.unwrap();
    let mut body = scene.connect(hub.address).await;
    let head = "POST /websub/ HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nhub.mode=";
    body.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(rest(&mut header).await, "");
    let answer = rest(&mut body).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[tokio::test]
async fn plain_http_at_the_tls_port_is_told_to_use_https() {
    let scene = Scene::new();
    let hub = scene.hub(&[]).await;
    let answer = post(hub.address, &[("Content-Type", "text/plain")], b"news").await.unwrap();
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("https://"), "{}", answer.text());
}

#[tokio::test]
async fn at_shutdown_a_request_under_way_over_tls_is_finished_and_a_handshake_is_not_waited_for() {
    let scene = Scene::new();
    let mut hub = scene.hub(&[]).await;
    let mut silent = TcpStream::connect(hub.address).await.unwrap();
    let mut under_way = scene.connect(hub.address).await;
    let link = format!("<{TOPIC}>; rel=\"self\", <https://{}/websub/>; rel=\"hub\"", hub.address);
    let head = format!(
        "POST /websub/ HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Type: text/plain\r\nLink: {link}\r\nContent-Length: 4\r\n\r\n"
    );
    under_way.write_all(head.as_bytes()).await.unwrap();
    let mut bytes = [0; 25];
    under_way.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"HTTP/1.1 100 Continue\r\n\r\n", "the request is under way");
    hub.ask_to_stop();
    assert_eq!(rest(&mut silent).await, "");
    under_way.write_all(b"news").await.unwrap();
    let answer = rest(&mut under_way).await;
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    assert!(hub.process().wait().await.success());
    assert!(!hub.process().said().contains("cut off"), "{}", hub.process().said());
}

// --- the files ---

#[tokio::test]
async fn a_running_hub_takes_up_a_new_certificate_and_keeps_the_old_one_where_the_new_cannot_be_used() {
    let scene = Scene::new();
    let mut hub = scene.hub(&[]).await;
    let first = scene.presented(hub.address).await;

    scene.install(&scene.authority.issue());
    hub.process().line("new certificate in use").await;
    let second = scene.presented(hub.address).await;
    assert_ne!(first, second);

    for (number, (pair, words)) in [
        (Pair { key: scene.authority.issue().key, ..scene.authority.issue() }, "does not belong to"),
        (scene.authority.issue_until(2021), "has expired"),
        (Pair { certificate: String::new(), ..scene.authority.issue() }, "holds no certificate"),
    ]
    .into_iter()
    .enumerate()
    {
        scene.install(&pair);
        let told = hub.process().line_number("the old one stays", number + 1).await;
        assert!(told.contains(words), "{told}");
        assert_eq!(scene.presented(hub.address).await, second);
    }

    scene.install(&scene.authority.issue());
    hub.process().line_number("new certificate in use", 2).await;
    assert_ne!(scene.presented(hub.address).await, second);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_at_the_start_and_by_config_check() {
    let scene = Scene::new();
    let other = scene.authority.issue();
    let write = |name: &str, text: &str| {
        let path = scene.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (other_key, empty) = (write("other.key", &other.key), write("empty.pem", ""));
    let damaged = write("damaged.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    let nowhere = scene.folder.path().join("nowhere.pem").display().to_string();
    let (certificate, key) = (scene.certificate(), scene.key());
    for (certificate, key, words) in [
        (&certificate, &other_key, vec!["does not belong to", "other.key", "hub.pem"]),
        (&nowhere, &key, vec!["nowhere.pem cannot be read"]),
        (&certificate, &nowhere, vec!["nowhere.pem cannot be read"]),
        (&empty, &key, vec!["empty.pem holds no certificate"]),
        (&certificate, &empty, vec!["empty.pem holds no private key"]),
        (&certificate, &certificate, vec!["hub.pem holds no private key"]),
        (&damaged, &key, vec!["damaged.pem is no PEM file"]),
        (&certificate, &String::new(), vec!["[tls] certificate and key belong together"]),
    ] {
        for section in ["TLS", "ADMIN"] {
            let environment = [
                (format!("RESYNC_HUB_{section}_CERTIFICATE"), certificate),
                (format!("RESYNC_HUB_{section}_KEY"), key),
            ];
            let data = scene.folder.path().join("unused").display().to_string();
            let serve = ["--dev", "--listen", "127.0.0.1:0", "--data-dir", &data];
            for arguments in [&["config", "check"][..], &serve] {
                let mut command = Command::new(binary("resync-hub"));
                let output = command.args(arguments).envs(environment.clone()).output().await.unwrap();
                assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", said(&output));
                for word in &words {
                    let word = word.replace("[tls]", &format!("[{}]", section.to_lowercase()));
                    assert!(said(&output).contains(&word), "{word}: {}", said(&output));
                }
            }
        }
    }
}

#[tokio::test]
async fn an_expired_certificate_is_refused_by_config_check_and_told_about_by_a_hub_that_has_work_to_do() {
    let scene = Scene::new();
    scene.install(&scene.authority.issue_until(2021));
    let mut hub = scene.hub(&[]).await;
    let told = hub.process().line("clients will refuse the hub's certificate").await;
    assert!(told.contains("has expired on Fri, 01 Jan 2021") && told.contains("hub.pem"), "{told}");
    let mut command = Command::new(binary("resync-hub"));
    let output = command.args(["config", "check"]).envs(hub.environment().clone()).output().await.unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(said(&output).contains("has expired on"), "{}", said(&output));
}

// --- the operator's listener ---

#[tokio::test]
async fn the_admin_api_speaks_tls_and_the_commands_believe_the_configured_certificate_only() {
    let scene = Scene::new();
    let data = scene.folder.path().join("data");
    let (certificate, key) = (scene.certificate(), scene.key());
    let keys = [("ADMIN_CERTIFICATE", certificate.as_str()), ("ADMIN_KEY", key.as_str())];
    let mut hub = HubProcess::start_with(&data, &keys).await;
    let ready = format!("https://{}/readyz", hub.admin_address());
    assert_eq!(scene.reqwest().get(ready).send().await.unwrap().status(), 200);

    let data = data.display().to_string();
    let environment = hub.environment().clone();
    let ask = async |arguments: &[&str], certificate: &str| {
        let mut command = Command::new(binary("resync-hub"));
        command.args(arguments).args(["--data-dir", &data]).envs(&environment);
        command.env("RESYNC_HUB_ADMIN_CERTIFICATE", certificate).output().await.unwrap()
    };
    for arguments in [&["subscriptions", "list"][..], &["topics"], &["healthcheck"]] {
        let output = ask(arguments, &certificate).await;
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    }
    let another = scene.folder.path().join("another.pem");
    fs::write(&another, scene.authority.issue().certificate).unwrap();
    let output = ask(&["healthcheck"], another.to_str().unwrap()).await;
    assert_eq!(output.status.code(), Some(1), "one of the same issuer is not it: {}", said(&output));
    assert!(said(&output).contains("no hub at"), "{}", said(&output));
}

// --- out ---

#[tokio::test]
async fn w070_w190_callbacks_and_topics_with_certificates_of_ones_own_authority_need_extra_ca() {
    let scene = Scene::new();
    let receiver = Receiver::start().await;
    let front = scene.front_of(receiver.address()).await;
    let (topic, callback) = (format!("https://{front}/topic"), format!("https://{front}/cb"));

    let folder = tempdir().unwrap();
    let mut stranger = HubProcess::start(folder.path()).await;
    let parameters = [("hub.mode", "subscribe"), ("hub.topic", &topic), ("hub.callback", &callback)];
    assert_eq!(form(stranger.address, &parameters).await.unwrap().status, 202);
    stranger.process().line("request not verified").await;
    stranger.until_done().await;
    assert!(receiver.seen().is_empty(), "nothing is said to a server that is not who it should be");

    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("EGRESS_EXTRA_CA", &scene.ca())]).await;
    hub.subscribe(&topic, &callback, &[], 1).await;
    receiver.behave(|seen| match seen.path() {
        "/topic" => Reply::Status(200, "fetched".to_owned()),
        _ => Reply::Agree,
    });
    let ping = [("hub.mode", "publish"), ("hub.url", topic.as_str())];
    assert_eq!(form(hub.address, &ping).await.unwrap().status, 204);
    assert_eq!(receiver.until_delivered(1).await[0].text(), "fetched");
}

#[tokio::test]
async fn roots_that_cannot_be_used_are_named() {
    let folder = tempdir().unwrap();
    let no_root = folder.path().join("roots.pem");
    for (text, words) in [
        (String::new(), "roots.pem holds no certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(), "certificate 1 in"),
    ] {
        fs::write(&no_root, text).unwrap();
        let data = folder.path().join("data").display().to_string();
        let serve = ["--dev", "--listen", "127.0.0.1:0", "--data-dir", &data];
        for arguments in [&["config", "check"][..], &serve] {
            let mut command = Command::new(binary("resync-hub"));
            command.args(arguments).env("RESYNC_HUB_EGRESS_EXTRA_CA", &no_root);
            command.env("RESYNC_HUB_ADMIN_LISTEN", "127.0.0.1:0");
            let output = command.output().await.unwrap();
            assert_eq!(output.status.code(), Some(64), "{}", said(&output));
            assert!(
                said(&output).contains("[egress] extra_ca") && said(&output).contains(words),
                "{}",
                said(&output)
            );
        }
    }
}

// --- helpers ---

/// An authority, and the files of a certificate that it issued for this machine.
pub(super) struct Scene {
    folder: TempDir,
    authority: Authority,
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

struct Pair {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Authority of a test");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self) -> Pair {
        self.issue_until(2999)
    }

    /// For this machine, up to the first day of this year.
    fn issue_until(&self, year: i32) -> Pair {
        let mut params =
            CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Scene {
    pub(super) fn new() -> Self {
        let scene = Self { folder: tempdir().unwrap(), authority: Authority::new() };
        fs::write(scene.ca(), scene.authority.0.pem()).unwrap();
        scene.install(&scene.authority.issue());
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn ca(&self) -> String {
        self.path("ca.pem").display().to_string()
    }

    fn certificate(&self) -> String {
        self.path("hub.pem").display().to_string()
    }

    fn key(&self) -> String {
        self.path("hub.key").display().to_string()
    }

    /// Puts new files in the place of the old ones, one after the other.
    fn install(&self, pair: &Pair) {
        replace(&self.path("hub.pem"), &pair.certificate);
        replace(&self.path("hub.key"), &pair.key);
    }

    /// A hub in `--dev` whose public listener speaks TLS.
    async fn hub(&self, keys: &[(&str, &str)]) -> HubProcess {
        let (certificate, key) = (self.certificate(), self.key());
        let mut all = vec![("TLS_CERTIFICATE", certificate.as_str()), ("TLS_KEY", key.as_str())];
        all.extend_from_slice(keys);
        HubProcess::start_with(&self.path("data"), &all).await
    }

    fn client_config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.0.der().clone()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    fn reqwest(&self) -> reqwest::Client {
        reqwest::Client::builder().tls_backend_preconfigured(self.client_config()).build().unwrap()
    }

    async fn get(&self, hub: &HubProcess) -> u16 {
        let url = format!("https://{}/websub/", hub.address);
        self.reqwest().get(url).send().await.unwrap().status().as_u16()
    }

    async fn connect(&self, to: SocketAddr) -> TlsStream<TcpStream> {
        let connector = TlsConnector::from(Arc::new(self.client_config()));
        let stream = TcpStream::connect(to).await.unwrap();
        connector.connect(ServerName::from(to.ip()), stream).await.unwrap()
    }

    /// The certificate that a server shows.
    async fn presented(&self, address: SocketAddr) -> CertificateDer<'static> {
        let stream = self.connect(address).await;
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    }

    /// For a server with a certificate of the authority.
    pub(super) fn server_config(&self) -> ServerConfig {
        let pair = self.authority.issue();
        let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap()
    }

    /// A server that speaks TLS with a certificate of the authority and passes on what it hears.
    async fn front_of(&self, behind: SocketAddr) -> SocketAddr {
        let acceptor = TlsAcceptor::from(Arc::new(self.server_config()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that does not believe the certificate goes away.
                    if let Ok(mut stream) = acceptor.accept(stream).await {
                        let mut behind = TcpStream::connect(behind).await.unwrap();
                        let _ = copy_bidirectional(&mut stream, &mut behind).await;
                    }
                });
            }
        });
        address
    }
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Everything that comes until the other side closes.
async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset is closed too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the connection is closed");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(std::process::Stdio::null());
    let output = command.output().await;
    output.unwrap_or_else(|error| {
        panic!("{program} cannot be run ({error}): tests/run installs what is missing")
    })
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream)).concat()
}
