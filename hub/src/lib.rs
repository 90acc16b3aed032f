//! A WebSub hub for ResourceSync communities: it loses nothing that it acknowledged.
//!
//! A notification passes these modules:
//!
//! 1. [`http`] reads the request and tells posted content, pings and subscription requests apart;
//! 2. [`topics`] checks and authorises the notification and appends it to its topic's log;
//! 3. [`store`] makes it durable, after which the Source gets its 2xx, and wakes
//! 4. [`delivery`], which sweeps over the topic's subscriptions and tracks laggards;
//! 5. [`egress`] sends it to the subscriber's callback; all requests leave through it.
//!
//! [`subscriptions`] handles subscribers' requests: verification of intent and lease. [`admin`] is the service for the operator, and
//! [`telemetry`] traces notifications through all modules. [`concurrency`] limits how much may happen at once.
//!
//! # Example
//!
//! A hub inside another program (the `resync-hub` binary is little more than this):
//!
//! ```
//! use resync_hub::{Hub, config};
//!
//! # let folder = tempfile::tempdir()?;
//! # let data_dir = folder.path().display().to_string();
//! let flags = vec![("listen", "127.0.0.1:0".into()), ("admin.listen", "127.0.0.1:0".into()), ("data_dir", data_dir)];
//! let config = config::load(None, [], &flags)?.into_dev()?;
//! tokio::runtime::Runtime::new()?.block_on(async {
//!     let hub = Hub::start(&config).await?;
//!     assert!(hub.url().ends_with("/websub/"));
//!     hub.stop().await;
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]

pub mod admin;
mod clock_jump;
mod completion;
pub mod concurrency;
pub mod config;
mod content_coding;
pub mod delivery;
pub mod egress;
pub mod http;
mod hub;
pub mod live_hubs;
mod liveness;
pub mod meters;
pub mod metrics;
pub mod pem;
mod rate_limiter;
mod sockets;
pub mod store;
pub mod subscriptions;
pub mod telemetry;
pub mod topics;
mod trace_context;
pub mod waiting_work;
mod weighted_cache;

pub use hub::{Hub, Inherited, StartError, check_files};
pub use liveness::{Liveness, LivenessMonitor};
pub use sockets::Sockets;
