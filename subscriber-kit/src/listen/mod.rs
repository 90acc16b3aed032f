//! Keeps a copy in step: discovers the Source, subscribes, and synchronises at the start and on every notification.
//!
//! [`Destination`] is for an application with a web server of its own, [`listen`] brings one along.

mod chain;
mod destination;
mod event;
mod keeper;
mod local_copy;
mod looks;
mod retry_schedule;
mod version_fetching;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_common::words::quoted;
use resync_core::durable::make_folder;
use tokio::sync::mpsc;
use url::Url;

use crate::discover::DiscoverError;
use crate::disk_error::is_of_the_path;
use crate::fetch::Client;
use crate::receive::{CallbackServer, Deliveries, ServiceOptions, StartError};
use crate::state::{STATE_FOLDER, Subscriptions};
use crate::subscribe::{SubscribeError, Subscriber};
use crate::sync::{
    Folder, SyncError, SyncOptions, is_copy, overlapping, refuse_foreign_folder, refuse_mixed_folders,
};
pub use destination::{Destination, DestinationBuilder};
pub use event::ListenEvent;
use keeper::Keeper;
use local_copy::LocalCopy;

/// Options of [`listen`].
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Any URL of the Source, see [`discover`](crate::discover::discover).
    pub source: String,
    /// Which set, if there are several.
    pub set: Option<String>,
    /// The directory that is kept in step.
    pub into: PathBuf,
    /// The URL that corresponds to the directory; [`Source::base`](crate::discover::Source::base) if not given.
    pub base: Option<Url>,
    /// The folder of the state; in the copy's directory if not given.
    pub state: Option<PathBuf>,
    /// The interval of synchronisations without a notification; zero for never.
    pub poll: Duration,
    /// How to synchronise. `dry_run`, `from` and `at` are for one run, and are refused.
    pub sync: SyncOptions,
    /// How hubs reach this Destination. Its hook is run for every notification, once the copy is in step with it.
    pub service: ServiceOptions,
}

impl ListenOptions {
    /// The default: a callback server on a free loopback port, a synchronisation every hour.
    #[must_use]
    pub fn new(source: impl Into<String>, into: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            set: None,
            into: into.into(),
            base: None,
            state: None,
            poll: Duration::from_secs(3600),
            sync: SyncOptions::default(),
            service: ServiceOptions::default(),
        }
    }

    fn state_folder(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| self.into.join(STATE_FOLDER))
    }

    /// A line for cron that keeps the copy in step without a hub.
    fn cron_line(&self) -> String {
        let absolute = |path: &PathBuf| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            quoted(&path.to_string_lossy())
        };
        let delete = if self.sync.delete { " --delete" } else { "" };
        let mut line = format!(
            "resync-destination sync {} {} --incremental{delete} --quiet",
            quoted(&self.source),
            absolute(&self.into)
        );
        let set = self.set.as_deref().map(quoted);
        let base = self.base.as_ref().map(|base| quoted(base.as_str()));
        let state = self.state.as_ref().map(absolute);
        for (flag, value) in [("--set", set), ("--base-url", base), ("--state", state)] {
            line.extend(value.map(|value| format!(" {flag} {value}")));
        }
        // Cron ends a command at the first percent sign.
        format!("*/10 * * * * {}", line.replace('%', r"\%"))
    }

    /// Adopts only what becomes a copy now: who listens again with the same options must not take over what an earlier run left
    /// alone.
    fn adopting_once(mut self) -> Self {
        self.sync.adopt &= !is_copy(&self.into);
        self
    }
}

/// Why listening could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The Source was not found.
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// The callback server cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The set has nothing to make a copy from.
    #[error("the set {set} has no usable Resource List or Resource Dump, so there is nothing to copy")]
    NothingOffered {
        /// The set.
        set: String,
    },
    /// The Source no longer names the set that the directory is a copy of.
    #[error(
        "{} is a copy of the set {set}, which the Source no longer lists; it lists:\n  {}\nuse another directory for another set, or --switch-source to go on with this one",
        directory.display(),
        sets.join("\n  ")
    )]
    OtherSet {
        /// The directory.
        directory: PathBuf,
        /// The set that it is a copy of.
        set: String,
        /// The sets that can be read.
        sets: Vec<String>,
        /// Whether it may be one of those that cannot be read now.
        retry_may_help: bool,
    },
    /// The set has no framework channel.
    #[error("the set {set} has no notification channel with a hub; follow it from cron instead:\n  {cron}")]
    NoChannel {
        /// The set.
        set: String,
        /// A line for cron that keeps the copy in step without a hub.
        cron: String,
    },
    /// The directory cannot be used.
    #[error("cannot use the directory {}: {source}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Two copies would be one, or one within the other.
    #[error("the copies in {} and {} overlap; give each a directory apart from the others", one.display(), other.display())]
    Overlapping {
        /// The directory of one.
        one: PathBuf,
        /// That of the other.
        other: PathBuf,
    },
    /// An option that makes sense for one run only.
    #[error("`{option}` is for one run, and a copy that is kept in step has many; give it to `synchronise`")]
    OneRun {
        /// Which of the [`SyncOptions`].
        option: &'static str,
    },
    /// The directory cannot become a copy.
    #[error(transparent)]
    Copy(#[from] SyncError),
    /// The subscription failed for good.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
}

impl ListenError {
    /// Whether the settings are wrong, so that a restart does not help.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Start(error) => error.is_configuration(),
            Self::Directory { source, .. } => is_of_the_path(source),
            Self::Subscribe(error) => matches!(error, SubscribeError::Callback { .. }),
            Self::Discover(error) => error.is_configuration(),
            Self::Copy(error) => error.is_configuration(),
            Self::OneRun { .. } | Self::Overlapping { .. } => true,
            _ => false,
        }
    }
}

/// Keeps a directory in step with a Source until `shutdown` ends. `events` is called for everything that happens.
///
/// The first synchronisation waits a few seconds for the subscription. Notifications that arrive during a synchronisation are
/// handled by one further synchronisation, and count as handled once it ended.
///
/// # Errors
/// [`ListenError`]: what prevents the start, or hubs that all refuse for good. What may be temporary is tried again with growing
/// pauses: an unreachable Source, also at the start; an unreachable hub; a state that cannot be written.
pub async fn listen(
    options: ListenOptions,
    mut events: impl FnMut(ListenEvent) + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ListenError> {
    let service = options.service.clone();
    listen_all(vec![options], &service, move |_, event| events(event), shutdown).await
}

/// Keeps several directories in step, each with its Source, behind one callback server. `service` replaces the one in the
/// options. `events` also gets the directory of each event.
///
/// # Errors
/// As for [`listen`]. A copy that fails does not end the others; the first error is returned when all have ended.
pub async fn listen_all(
    copies: Vec<ListenOptions>,
    service: &ServiceOptions,
    mut events: impl FnMut(&Path, ListenEvent) + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ListenError> {
    let directories: Vec<_> = copies.iter().map(|copy| copy.into.clone()).collect();
    if let Some((one, other)) = overlapping(&directories) {
        return Err(ListenError::Overlapping { one: one.to_owned(), other: other.to_owned() });
    }
    let client = Client::new(service.client.clone()).map_err(StartError::Client)?;
    let copies: Vec<_> = copies.into_iter().map(ListenOptions::adopting_once).collect();
    let sources: Vec<String> = copies.iter().map(|copy| copy.source.clone()).collect();
    let clients = client.for_each(&sources).map_err(StartError::Client)?;
    let states = copies.iter().map(open_state).collect::<Result<Vec<_>, _>>()?;
    let (server, receivers) = CallbackServer::bind(service, states.into_iter().zip(clients)).await?;
    if let Some(first) = copies.first() {
        events(&first.into, ListenEvent::Listening { address: server.address });
    }
    let copies = copies.into_iter().zip(receivers).map(|(options, (subscriber, deliveries))| {
        let options = ListenOptions { service: service.clone(), ..options };
        Kept { options, subscriber, deliveries }
    });
    server.run(pin!(keep_all(copies.collect(), events)), shutdown, service.unsubscribe_on_exit).await
}

/// Opens and locks the state of a copy, unless the directory is somebody's own.
fn open_state(copy: &ListenOptions) -> Result<Subscriptions, ListenError> {
    let state = copy.state_folder();
    refuse_options_of_one_run(&copy.sync)?;
    refuse_mixed_folders(&copy.into, copy.sync.versions.as_deref())?;
    refuse_foreign_folder(&Folder { directory: &copy.into, state: Some(&state) }, &copy.sync)?;
    let no_directory = |source| ListenError::Directory { directory: copy.into.clone(), source };
    make_folder(&copy.into).map_err(no_directory)?;
    Ok(Subscriptions::open(&state).map_err(StartError::State)?)
}

/// By a dry run, notifications would be done with although nothing was written; `from` would repeat the changes since then in every run;
/// and a copy of the past does not change.
fn refuse_options_of_one_run(options: &SyncOptions) -> Result<(), ListenError> {
    let SyncOptions { dry_run, from, at, .. } = options;
    let given = [("dry_run", *dry_run), ("from", from.is_some()), ("at", at.is_some())];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(ListenError::OneRun { option }),
        None => Ok(()),
    }
}

/// A copy to keep, and where its notifications arrive.
#[derive(Debug)]
struct Kept {
    options: ListenOptions,
    subscriber: Subscriber,
    deliveries: Deliveries,
}

/// Keeps all copies until the last one fails; returns the first error.
async fn keep_all(
    copies: Vec<Kept>,
    mut events: impl FnMut(&Path, ListenEvent) + Send,
) -> Result<(), ListenError> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let mut keeping: FuturesUnordered<_> = copies
        .into_iter()
        .map(|kept| {
            let events = Events { directory: kept.options.into.clone(), sender: sender.clone() };
            async move {
                let result = Box::pin(kept.keep(&events)).await;
                if let Err(error) = &result {
                    events.send(ListenEvent::Stopped { cause: error.to_string() });
                }
                result
            }
        })
        .collect();
    let mut first = Ok(());
    loop {
        tokio::select! {
            Some((directory, event)) = receiver.recv() => events(&directory, event),
            ended = keeping.next() => match ended {
                Some(result) => first = first.and(result),
                None => break,
            },
        }
    }
    while let Ok((directory, event)) = receiver.try_recv() {
        events(&directory, event);
    }
    first
}

/// The events of one copy.
#[derive(Clone, Debug)]
struct Events {
    directory: PathBuf,
    sender: mpsc::UnboundedSender<(PathBuf, ListenEvent)>,
}

impl Events {
    fn send(&self, event: ListenEvent) {
        // The receiver lives as long as the copies.
        let _ = self.sender.send((self.directory.clone(), event));
    }
}

impl Kept {
    async fn keep(self, events: &Events) -> Result<(), ListenError> {
        let Self { options, subscriber, deliveries } = self;
        let copy = LocalCopy::find_with_retries(&options, &subscriber, events).await?;
        Box::pin(Keeper::new(copy, &options, &subscriber, events)?.run(deliveries)).await
    }
}
