//! Several hubs over one database of three servers, each hub behind a proxy of its own, and with a clock of its own.

use std::fs;
use std::time::Duration;

use resync_harness::{Clock, HubProcess, Proxy, Replicated};
use tempfile::{TempDir, tempdir};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
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
/// What a program says when a part of it panics.
const PANICKED: &str = "panicked at";
/// Three servers and their hubs at once are enough for a machine.
static TURN: Semaphore = Semaphore::const_new(1);

/// A hub with its folder.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) hub: HubProcess,
    _folder: TempDir,
}

impl Node {
    /// Starts it again, as its supervisor does: while the database is away a hub ends as soon as it is started. Why it does not come up is the
    /// error.
    pub(crate) async fn start_again(&mut self) -> Result<(), String> {
        let until = Instant::now() + HEALED_WITHIN;
        while let Err(said) = self.hub.try_restart().await {
            if Instant::now() >= until || panic_in(&said).is_some() {
                return Err(format!("it does not come up; it said:\n{said}"));
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

/// The line that says that a part of a hub has panicked.
pub(crate) fn panic_in(said: &str) -> Option<&str> {
    said.lines().find(|line| line.contains(PANICKED))
}

/// All of them. Faults lock what they are about.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) servers: Mutex<Replicated>,
    pub(crate) nodes: Vec<Mutex<Node>>,
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) clocks: Vec<Clock>,
    pub(crate) endpoints: Vec<Endpoint>,
    _turn: SemaphorePermit<'static>,
}

impl Cluster {
    /// Starts so many hubs when no others of this program run; `None` where there is no PostgreSQL, which is said.
    pub(crate) async fn start(hubs: usize) -> Option<Self> {
        let turn = TURN.acquire().await.expect("nobody closes it");
        let servers = block_in_place(Replicated::start)?;
        let (mut nodes, mut proxies, mut clocks, mut endpoints) = (vec![], vec![], vec![], vec![]);
        for _ in 0..hubs {
            let (proxy, folder) = (Proxy::start(&servers.addresses()).await, tempdir().unwrap());
            let (url, data) = (Replicated::url(proxy.addresses()), folder.path().join("data"));
            let settings = [&SETTINGS[..], &[("STORE_URL", url.as_str())]].concat();
            let clock = block_in_place(|| Clock::new(folder.path()));
            fs::create_dir(&data).unwrap();
            let mut hub = HubProcess::prepare(&data, &settings);
            hub.environment().extend(clock.environment());
            hub.restart().await;
            endpoints.push(Endpoint::of(&hub, &data));
            proxies.push(proxy);
            clocks.push(clock);
            nodes.push(Mutex::new(Node { hub, _folder: folder }));
        }
        Some(Self { servers: Mutex::new(servers), nodes, proxies, clocks, endpoints, _turn: turn })
    }

    /// The hubs that run and say that a part of them has panicked.
    pub(crate) async fn panics(&self) -> Vec<String> {
        let mut panics = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let said = node.lock().await.hub.said();
            panics.extend(panic_in(&said).map(|line| format!("hub {number} says: {line}")));
        }
        panics
    }

    /// What the hubs have said last, for who looks for the reason of a failure.
    pub(crate) async fn last_words(&self) -> String {
        let mut words = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let said = node.lock().await.hub.said();
            let lines: Vec<_> = said.lines().collect();
            let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
            words.push(format!("hub {number} said:\n{}", last.join("\n")));
        }
        words.join("\n\n")
    }
}
