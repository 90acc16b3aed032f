//! Several hubs over one database of three servers, each hub behind a proxy of its own.

use std::time::Duration;

use resync_harness::{HubProcess, Proxy, Replicated};
use tempfile::{TempDir, tempdir};
use tokio::sync::Mutex;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use crate::endpoint::Endpoint;
use crate::trial::HEALED_WITHIN;

/// What fails is tried again soon and often, and no host is left alone. All hubs read each other's secrets.
const SETTINGS: [(&str, &str); 4] = [
    ("STORE_ENGINE", "postgres"),
    ("SECRETS_KEY", "5d0f6a39c1e84b7296f03ad8e57bc41e8f2196a07bd35cc4e1902f6d48ab7350"),
    ("DELIVERY_SCHEDULE", QUICK),
    ("DELIVERY_BREAKER_FAILURES", "0"),
];
/// Twenty seconds in all: longer than any host of a trial fails.
const QUICK: &str = r#"["200ms", "200ms", "200ms", "200ms", "200ms", "1s", "1s", "1s", "1s", "1s", "2s", "2s", "2s", "2s", "5s"]"#;
/// Lines of a hub's log that are worth a look.
const LAST_LINES: usize = 60;

/// A hub with its folder.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) hub: HubProcess,
    _folder: TempDir,
}

impl Node {
    /// Starts it again, as its supervisor does: while the database is away a hub ends as soon as it is started.
    pub(crate) async fn start_again(&mut self) {
        let until = Instant::now() + HEALED_WITHIN;
        while let Err(said) = self.hub.try_restart().await {
            assert!(Instant::now() < until, "a hub does not come up; it said:\n{said}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// All of them. Faults lock what they are about.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) servers: Mutex<Replicated>,
    pub(crate) nodes: Vec<Mutex<Node>>,
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl Cluster {
    /// Starts so many hubs; `None` where there is no PostgreSQL, which is said.
    pub(crate) async fn start(hubs: usize) -> Option<Self> {
        let servers = block_in_place(Replicated::start)?;
        let (mut nodes, mut proxies, mut endpoints) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..hubs {
            let (proxy, folder) = (Proxy::start(&servers.addresses()).await, tempdir().unwrap());
            let url = Replicated::url(proxy.addresses());
            let settings = [&SETTINGS[..], &[("STORE_URL", url.as_str())]].concat();
            let hub = HubProcess::start_with(folder.path(), &settings).await;
            endpoints.push(Endpoint::of(&hub, folder.path()));
            proxies.push(proxy);
            nodes.push(Mutex::new(Node { hub, _folder: folder }));
        }
        Some(Self { servers: Mutex::new(servers), nodes, proxies, endpoints })
    }

    /// What the hubs have said last, for who looks for the reason of a failure.
    pub(crate) async fn last_words(&self) -> String {
        let mut words = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let said = node.lock().await.hub.process().said();
            let lines: Vec<_> = said.lines().collect();
            let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
            words.push(format!("hub {number} said:\n{}", last.join("\n")));
        }
        words.join("\n\n")
    }
}
