//! The reverse proxies: nginx and Caddy with the files of `deploy/`, real TLS in front and a real hub behind.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use reqwest::{Client, Response, redirect::Policy};
use resync_harness::{HubProcess, Process, Receiver, eventually, free_address};
use rustls::crypto::ring;
use tempfile::{TempDir, tempdir};
use tokio::process::Command;

use super::{read, replaced};

const TOPIC: &str = "https://source.example/framework/";
const NAME: &str = "hub.example.org";

/// A hub behind a proxy, as a public one is: it is reached by the proxy's name only.
struct Scene {
    folder: TempDir,
    hub: HubProcess,
    /// Where the proxy listens for https.
    front: SocketAddr,
    certificate: String,
}

impl Scene {
    async fn new() -> Self {
        let (folder, front) = (tempdir().unwrap(), free_address());
        let pair = KeyPair::generate().unwrap();
        let names = CertificateParams::new([NAME.to_owned()]).unwrap();
        let certificate = names.self_signed(&pair).unwrap().pem();
        fs::write(folder.path().join("front.pem"), &certificate).unwrap();
        fs::write(folder.path().join("front.key"), pair.serialize_pem()).unwrap();
        let url = format!("https://{NAME}:{}", front.port());
        let keys = [
            ("PUBLIC_URL", url.as_str()),
            // That of the proxy; the clients of this test are other loopback addresses.
            ("INGRESS_TRUSTED_PROXIES", "[\"127.0.0.1/32\"]"),
            ("LIMITS_CLIENT", "1/h, burst 3"),
        ];
        let hub = HubProcess::start_public(&folder.path().join("data"), &keys).await;
        Self { folder, hub, front, certificate }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}", self.front.port())
    }

    /// A client at a loopback address of its own.
    fn client(&self, last: u8) -> Client {
        Client::builder()
            .tls_backend_preconfigured(self.trust())
            .resolve(NAME, self.front)
            .redirect(Policy::none())
            .local_address(IpAddr::from([127, 0, 0, last]))
            .build()
            .unwrap()
    }

    fn trust(&self) -> rustls::ClientConfig {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()).unwrap();
        rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    async fn post(&self, last: u8, body: String, more: &[(&str, &str)]) -> Response {
        let mut request = self.client(last).post(self.url("/websub/")).body(body);
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    async fn publish(&self, last: u8, body: String) -> Response {
        let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", self.url("/websub/"));
        self.post(last, body, &[("Content-Type", "text/plain"), ("Link", &link)]).await
    }
}

/// What holds behind any proxy.
async fn real_traffic_passes(scene: &Scene) {
    eventually("the proxy is there", || async {
        scene.client(9).get(scene.url("/nothing")).send().await.is_ok_and(|answer| answer.status() == 404)
    })
    .await;
    for path in ["/", "/metrics", "/api/v1/status", "/readyz"] {
        let answer = scene.client(9).get(scene.url(path)).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{path} is not for the public");
    }
    assert_eq!(scene.client(9).get(scene.url("/websub")).send().await.unwrap().status(), 200);

    let destination = Receiver::start().await;
    let form = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &destination.url("/cb"))];
    let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let kind = [("Content-Type", "application/x-www-form-urlencoded")];
    assert_eq!(scene.post(2, form, &kind).await.status(), 202);
    scene.hub.until_subscribed(1).await;
    let large = "x".repeat(900_000);
    let answer = scene.publish(3, large.clone()).await;
    assert_eq!(answer.status(), 202);
    let status = answer.headers()["location"].to_str().unwrap().to_owned();
    assert!(status.starts_with(&scene.url("/websub/notifications/")), "{status}");
    assert_eq!(scene.client(3).get(&status).send().await.unwrap().status(), 200, "the hub's own URLs work");
    let delivered = destination.until_delivered(1).await;
    assert_eq!(delivered[0].text(), large);
    assert!(delivered[0].header("link").contains(&scene.url("/websub/")));

    // Caddy says 502 where it breaks off what it passes on, and 413 from 2.7 on.
    let too_large = scene.publish(4, "x".repeat(2_000_000)).await.status().as_u16();
    assert!([413, 502].contains(&too_large), "{too_large}");
    assert_eq!(destination.deliveries().len(), 1);

    // Clients are told apart by what the proxy writes, and by nothing that they write themselves.
    let forged = [("X-Forwarded-For", "203.0.113.7"), ("Content-Type", "text/plain")];
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(scene.post(5, "no links".to_owned(), &forged).await.status().as_u16());
    }
    assert_eq!(statuses, [400, 400, 400, 429]);
    assert_eq!(
        scene.post(6, "no links".to_owned(), &forged).await.status(),
        400,
        "another client is not held up"
    );
}

/// What opens a page is in no log, be the hub there or not; what an operator looks for is.
async fn the_logs_tell_who_was_refused_and_no_ticket(scene: &mut Scene, logs: &[&str], proxy: &Process) {
    let ticket = "7".repeat(64);
    let page = scene.url(&format!("/websub/subscriptions/1.1?ticket={ticket}"));
    assert_eq!(scene.client(7).get(&page).send().await.unwrap().status(), 404);
    scene.hub.kill().await;
    assert_eq!(scene.client(8).get(&page).send().await.unwrap().status(), 502);
    let read = || {
        let files = logs.iter().map(|log| fs::read_to_string(scene.file(log)).unwrap_or_default());
        files.chain([proxy.said()]).collect::<Vec<_>>().concat()
    };
    let has = |client: &str, status: &str| {
        read().lines().any(|line| line.contains(client) && line.contains(status) && line.contains("/websub"))
    };
    eventually("the log has both", || async { has("127.0.0.5", "429") && has("127.0.0.8", "502") }).await;
    let told = read();
    assert!(!told.contains(&ticket) && !told.contains("ticket=7"), "{told}");
}

fn nginx(scene: &Scene, plain: SocketAddr) -> Process {
    let site = read("deploy/nginx.conf");
    let site = replaced(&site, "listen 80;", &format!("listen {plain};"));
    let site = replaced(&site, "listen 443 ssl;", &format!("listen {} ssl;", scene.front));
    let site = replaced(&site, "127.0.0.1:8080", &scene.hub.address.to_string());
    let folder = scene.folder.path().display().to_string();
    let site = replaced(&site, "/var/log/nginx/", &format!("{folder}/"));
    let site = replaced(
        &site,
        "/etc/letsencrypt/live/hub.example.org/fullchain.pem",
        &format!("{folder}/front.pem"),
    );
    let site =
        replaced(&site, "/etc/letsencrypt/live/hub.example.org/privkey.pem", &format!("{folder}/front.key"));
    fs::write(scene.file("site.conf"), site).unwrap();
    // Where root runs this, the workers must reach the test's folder too.
    let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
    let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};"))
        .concat();
    let whole = format!(
        "daemon off; {user} pid {folder}/nginx.pid; error_log stderr; events {{}}\n\
         http {{ access_log off; {places} include {folder}/site.conf; }}\n"
    );
    fs::write(scene.file("nginx.conf"), whole).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&folder).arg("-c").arg(scene.file("nginx.conf")).args(["-e", "stderr"]);
    Process::run("nginx", &mut command)
}

#[tokio::test]
async fn nginx_passes_real_traffic_on_and_tells_clients_apart() {
    let mut scene = Scene::new().await;
    let plain = free_address();
    let nginx = nginx(&scene, plain);
    real_traffic_passes(&scene).await;
    plain_requests_are_sent_to_https(&scene, plain, 301).await;
    let logs = ["resync-hub.log", "resync-hub.error.log"];
    the_logs_tell_who_was_refused_and_no_ticket(&mut scene, &logs, &nginx).await;
    assert!(nginx.terminate().await.success());
}

/// Caddy with what the environment may say, as in `deploy/compose.yaml`; only the certificate is one of this test.
fn caddy(scene: &Scene, plain: SocketAddr) -> Process {
    let folder = scene.folder.path().display().to_string();
    let named = "\n{$HUB_NAME:hub.example.org} {\n";
    let here = format!("{named}\tbind 127.0.0.1\n\ttls {folder}/front.pem {folder}/front.key\n");
    let site = replaced(&read("deploy/Caddyfile"), named, &here);
    let site = replaced(&site, "\n{\n", "\n{\n\tadmin off\n");
    fs::write(scene.file("Caddyfile"), site).unwrap();
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(scene.file("Caddyfile"));
    command
        .env("HUB_NAME", NAME)
        .env("HUB_ADDRESS", scene.hub.address.to_string())
        .env("HUB_LOG", format!("file {folder}/resync-hub.log"))
        .env("HUB_HTTP_PORT", plain.port().to_string())
        .env("HUB_HTTPS_PORT", scene.front.port().to_string());
    for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(name, scene.folder.path());
    }
    Process::run("caddy", &mut command)
}

/// A request without TLS is sent to the same path with TLS, at the port that the public sees.
async fn plain_requests_are_sent_to_https(scene: &Scene, plain: SocketAddr, status: u16) {
    let client = Client::builder()
        .tls_backend_preconfigured(scene.trust())
        .resolve(NAME, plain)
        .redirect(Policy::none())
        .build()
        .unwrap();
    let query = format!("ticket={}", "7".repeat(64));
    let sent_away =
        client.get(format!("http://{NAME}:{}/websub/?{query}", plain.port())).send().await.unwrap();
    assert_eq!(sent_away.status(), status);
    assert_eq!(sent_away.headers()["location"], format!("https://{NAME}/websub/?{query}"));
}

#[tokio::test]
async fn caddy_passes_real_traffic_on_and_tells_clients_apart() {
    let mut scene = Scene::new().await;
    let plain = free_address();
    let caddy = caddy(&scene, plain);
    real_traffic_passes(&scene).await;
    plain_requests_are_sent_to_https(&scene, plain, 308).await;
    the_logs_tell_who_was_refused_and_no_ticket(&mut scene, &["resync-hub.log"], &caddy).await;
    assert!(caddy.terminate().await.success());
}

#[tokio::test]
async fn caddy_understands_its_file_but_for_the_folder_of_its_log_as_it_is() {
    let folder = tempdir().unwrap();
    let log = format!("{}/", folder.path().display());
    let (site, misspelt) = (folder.path().join("site"), folder.path().join("misspelt"));
    let text = replaced(&read("deploy/Caddyfile"), "/var/log/caddy/", &log);
    fs::write(&site, &text).unwrap();
    let verdict = validated(&site, folder.path()).await;
    assert!(verdict.status.success(), "{}", super::text(&verdict));
    fs::write(&misspelt, replaced(&text, "reverse_proxy", "reverse_prxy")).unwrap();
    assert!(!validated(&misspelt, folder.path()).await.status.success());
}

async fn validated(file: &Path, home: &Path) -> std::process::Output {
    let mut command = Command::new("caddy");
    command.args(["validate", "--adapter", "caddyfile", "--config"]).arg(file);
    for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(name, home);
    }
    command.output().await.unwrap()
}
