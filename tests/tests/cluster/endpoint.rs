//! A hub as its clients and its operator see it, whether it is up or not.

use std::fs;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use resync_harness::{Answer, HubProcess, form, post, request};
use tokio::time::timeout;

/// So long a client waits for an answer.
const CLIENT: Duration = Duration::from_secs(4);
/// So long an operator does, and who reads much: a denial waits for the owner of the shard, or the end of its lease.
const PATIENT: Duration = Duration::from_secs(20);

/// Where a hub is.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    public: SocketAddr,
    admin: SocketAddr,
    token: PathBuf,
}

impl Endpoint {
    /// Of a hub with its folder.
    pub(crate) fn of(hub: &HubProcess, folder: &Path) -> Self {
        Self { public: hub.address, admin: hub.admin_address(), token: folder.join("admin-token") }
    }

    /// Posts plain content; `None` where there is no answer, so nobody knows whether it was taken.
    pub(crate) async fn post(&self, topic: &str, body: &str, key: Option<&str>) -> Option<Answer> {
        let link = format!("<{topic}>; rel=\"self\", <http://{}/websub/>; rel=\"hub\"", self.public);
        let mut headers = vec![("Content-Type", "text/plain"), ("Link", link.as_str())];
        headers.extend(key.map(|key| ("Idempotency-Key", key)));
        in_time(CLIENT, post(self.public, &headers, body.as_bytes())).await
    }

    /// Asks to subscribe a callback, or to unsubscribe it.
    pub(crate) async fn ask(
        &self,
        mode: &str,
        topic: &str,
        callback: &str,
        secret: Option<&str>,
    ) -> Option<Answer> {
        let mut parameters = vec![("hub.mode", mode), ("hub.topic", topic), ("hub.callback", callback)];
        parameters.extend(secret.map(|secret| ("hub.secret", secret)));
        in_time(CLIENT, form(self.public, &parameters)).await
    }

    /// Reads something that anybody may.
    pub(crate) async fn get(&self, target: &str) -> Option<Answer> {
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.public);
        in_time(PATIENT, request(self.public, bytes.as_bytes())).await
    }

    /// Has the operator do something.
    pub(crate) async fn operate(&self, method: &str, path: &str, body: &str) -> Option<Answer> {
        let token = fs::read_to_string(&self.token).ok()?;
        let bytes = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.admin,
            body.len()
        );
        in_time(PATIENT, request(self.admin, bytes.as_bytes())).await
    }
}

async fn in_time(patience: Duration, asked: impl Future<Output = io::Result<Answer>>) -> Option<Answer> {
    timeout(patience, asked).await.ok()?.ok()
}
