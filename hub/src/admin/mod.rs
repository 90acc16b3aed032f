//! The admin service: what the operator may see of a running hub and do about it, by the admin API or by the pages.
//!
//! Whatever is done is written down durably before it is done ([`Audit`]). Callbacks are shown by their origin only, since they are
//! capabilities (W-195); whole ones are in the export of one subscriber's data.

mod addresses;
mod audit;
mod backups;
mod cluster;
mod commands;
mod drain;
mod export;
mod log_filter;
mod lookup;
mod notification;
mod page_request;
mod queries;
mod readiness;
mod responses;
mod running;
mod self_service;
mod subscription_list;
mod test_delivery;
mod text;
mod topic_list;
mod trends;

use std::path::PathBuf;
use std::sync::Arc;

pub use addresses::Addresses;
pub use audit::{Audit, AuditError, By, Entry};
pub use commands::{Target, ToAdd, ToDeny};
pub use drain::{Admission, Drain};
pub use export::{Export, ExportedDenial, ExportedLaggard, ExportedRequest, ExportedSubscription};
pub use log_filter::LogFilter;
pub use notification::NotificationView;
pub use page_request::PageRequest;
pub use readiness::unready;
pub use responses::{
    Break, Chain, Cluster, Database, Denied, Done, Draining, Host, Laggard, LogEntry, LogLevel, Lost,
    NewPublisher, Outcome, Overview, Owner, Owners, Page, Paused, Publisher, Remaining, Rotated, Skipped,
    Status, StatusPage, Subscription, SubscriptionDetail, Topic, TopicDetail, Trouble,
};
pub use running::{Running, RunningNote};
pub use self_service::{Grade, OwnAttempt, OwnView, PageId};
pub use subscription_list::{Standing, SubscriptionPage, SubscriptionRow, SubscriptionsRequest};
pub use test_delivery::{TestDeliveries, TestResult, Tested};
pub use text::{Lasting, Size, counted};
pub use topic_list::{LastReceived, TopicOrder, TopicPage, TopicRow, TopicsRequest};
pub use trends::{Sample, Sources, Trends};

use tokio::sync::Mutex;

use crate::config::SecretsConfig;
use crate::delivery::{AttemptLog, Counters, Elsewhere, NoAnswer, NotExecuted, Operator, Orders, Stopped};
use crate::store::{BackupError, KeyringError, Registry, Store, StoreError};
use crate::subscriptions::{Denials, NotOwned};
use crate::topics::{Tickets, TokensError};

/// Why a query or command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The question makes no sense.
    #[error("{0}")]
    Asked(String),
    /// There is no such thing.
    #[error("no such {0}")]
    Unknown(&'static str),
    /// It cannot be done as things are.
    #[error("{0}")]
    Conflict(String),
    /// The store does not work.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store failed at some of it, or what it is about is damaged there.
    #[error("{done}; not all: {error}")]
    Partly {
        /// For how many, and how.
        done: String,
        /// Why not for the others.
        error: StoreError,
    },
    /// Delivery has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// Others deliver for a part of what this is about.
    #[error(transparent)]
    Elsewhere(#[from] Elsewhere),
    /// Another hub delivers for the shard of what this is about.
    #[error("{0}: ask again, or ask the hub that does")]
    NotOwned(NotOwned),
    /// It was done for some, and others deliver for the rest.
    #[error("{done} here; {elsewhere}")]
    DoneHere {
        /// For how many.
        done: String,
        /// What is not done.
        elsewhere: Elsewhere,
    },
    /// There is no backup.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// It cannot be written down, so it is not done.
    #[error(transparent)]
    Audit(#[from] AuditError),
}

impl Failed {
    fn asked(why: impl std::fmt::Display) -> Self {
        Self::Asked(why.to_string())
    }

    /// A file of the hub's own could not be written.
    fn unnoted(error: &std::io::Error) -> Self {
        Self::Conflict(format!("it cannot be saved in the data folder: {error}"))
    }
}

impl From<NoAnswer> for Failed {
    fn from(error: NoAnswer) -> Self {
        match error {
            NoAnswer::Stopped(stopped) => Self::Stopped(stopped),
            NoAnswer::NotOwned(not_owned) => Self::NotOwned(not_owned),
        }
    }
}

impl From<NotExecuted> for Failed {
    fn from(error: NotExecuted) -> Self {
        match error {
            NotExecuted::NoAnswer(no_answer) => no_answer.into(),
            NotExecuted::Store(error) => Self::Store(error),
        }
    }
}

impl From<TokensError> for Failed {
    fn from(error: TokensError) -> Self {
        match error {
            TokensError::Unknown(_) => Self::Unknown("token"),
            TokensError::Prefix(_) => Self::asked(error),
            TokensError::Taken(_) | TokensError::Document { .. } => Self::Conflict(error.to_string()),
        }
    }
}

impl From<KeyringError> for Failed {
    fn from(error: KeyringError) -> Self {
        Self::Conflict(error.to_string())
    }
}

/// What the service looks at and works with.
#[derive(Clone, Debug)]
pub struct AdminService {
    /// The records.
    pub store: Arc<dyn Store>,
    /// What delivery counts.
    pub counters: Arc<Counters>,
    /// What failed lately.
    pub notes: AttemptLog,
    /// Queries to the shards of this hub.
    pub operator: Operator,
    /// Commands to all shards.
    pub orders: Orders,
    /// What denies subscriptions.
    pub denials: Denials,
    /// How things went in the last hour.
    pub trends: Trends,
    /// What was done.
    pub audit: Audit,
    /// Where the publishers' tokens are.
    pub registry: Arc<dyn Registry>,
    /// Posting needs no token.
    pub open: bool,
    /// The disk that the store is on.
    pub data_dir: PathBuf,
    /// Where the keys of the secrets are.
    pub secrets: SecretsConfig,
    /// What belongs into a backup beside the store.
    pub beside: Vec<PathBuf>,
    /// Held while a backup runs.
    pub backing_up: Arc<Mutex<()>>,
    /// Whether the hub is drained.
    pub drain: Drain,
    /// The filter of the process's log, if the hub controls it.
    pub log: Option<LogFilter>,
    /// What opens the pages that subscribers see.
    pub tickets: Tickets,
    /// Which of these pages have another address than their first.
    pub addresses: Addresses,
    /// What the URLs of these pages begin with.
    pub hub_url: Arc<str>,
    /// What sends test deliveries from these pages.
    pub tests: TestDeliveries,
    /// When the topics' newest notifications came in.
    pub last_received: LastReceived,
}

#[cfg(test)]
impl AdminService {
    fn where_nothing_is_delivered(store: Arc<dyn Store>, folder: &std::path::Path) -> Self {
        let counters = Arc::new(Counters::new(store.shards()));
        let (telling, _) = crate::waiting_work::JobQueues::new_pair();
        let delivering = crate::delivery::Meters::default();
        let sources = Sources { published: Vec::new(), delivering, counters: Arc::clone(&counters) };
        let registry: Arc<dyn Registry> = Arc::new(crate::store::Files::in_folder(folder));
        let no_keys = serde_json::json!({ "key": "", "key_file": "" });
        Self {
            counters,
            notes: AttemptLog::default(),
            operator: Operator::of_nobody(),
            orders: Orders::of_nobody(Arc::clone(&store)),
            denials: Denials::new(Arc::clone(&store), Arc::new(Operator::of_nobody()), telling),
            store,
            trends: Trends::new(sources),
            audit: Audit::open(Arc::clone(&registry)).unwrap(),
            open: true,
            data_dir: folder.to_owned(),
            secrets: serde_json::from_value(no_keys).unwrap(),
            beside: Vec::new(),
            backing_up: Arc::default(),
            drain: Drain::of(folder),
            log: None,
            tickets: Tickets::new(resync_core::websub::Secret::random()),
            addresses: Addresses::open(Arc::clone(&registry)).unwrap(),
            hub_url: "https://hub.example/".into(),
            tests: TestDeliveries::new(crate::delivery::TestSender::of_nobody()),
            last_received: LastReceived::default(),
            registry,
        }
    }
}
