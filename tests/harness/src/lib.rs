//! What the tests and `resync-load` stand on: real processes, raw HTTP, disks that fail, and subscribers whose temper can change.

#![deny(missing_docs)]

mod backup;
mod clients;
mod clock;
mod disk;
mod left_out;
mod locks;
mod machine;
mod names;
mod ports;
mod postgres;
mod preload;
mod process;
mod proxy;
mod randomness;
mod raw;
mod receiver;
mod scratch;
mod seed;
mod strangers;
mod system_names;
mod trap;
pub mod tree;
mod unsynced;

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

pub use backup::Backup;
pub use clients::{PROXY, ask_as, client, ping_as, subscribe_as};
pub use clock::Clock;
pub use disk::{Disk, Event, Faults, Kind, Loss, Step, Taken, drawn, failures};
pub use left_out::left_out;
pub use locks::lock;
pub use machine::Machine;
pub use names::{NameServer, Trouble};
pub use ports::free_address;
pub use postgres::{Database, Postgres, Primary, Replicated, Rows, SERVERS};
pub use process::{HubProcess, OPERATOR_PAGES, Process, binary};
pub use proxy::{Proxy, Traffic};
pub use randomness::Randomness;
pub use raw::{Answer, form, post, request};
pub use receiver::{Receiver, Reply, Seen, Temper, refusing};
pub use scratch::Scratch;
pub use seed::{deaths_wanted, seed};
pub use strangers::{
    BROWSER, DJANGO_PUSH, FLASK_HUB, FLASK_SUBSCRIBER, JUDGES, MEMENTO_CLIENT, MEMENTO_SERVER, NODE_HUB,
    NODE_SUBSCRIBER, NodePeer, PYWB, PythonPeer, RESYNC,
};
pub use system_names::{OUT_THERE, SystemNames};
pub use trap::Trap;
pub use unsynced::unsynced;

/// How long a test waits for something that must happen. Generous, since machines are shared; a test that waits so long
/// has failed.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The engines of the store that the hub is built with.
pub const ENGINES: &[&str] = &[
    "fjall",
    #[cfg(feature = "sled")]
    "sled",
];

/// Waits until the condition holds; the description is what a failed test says.
///
/// # Panics
/// When it does not hold within [`PATIENCE`].
pub async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl FnMut() -> F) {
    assert!(happens_within(PATIENCE, condition).await, "it never happened: {what}");
}

/// Waits until the condition holds, and tells whether that came to pass in time.
pub async fn happens_within<F: Future<Output = bool>>(
    patience: Duration,
    mut condition: impl FnMut() -> F,
) -> bool {
    let deadline = Instant::now() + patience;
    while !condition().await {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(Duration::from_millis(10)).await;
    }
    true
}
