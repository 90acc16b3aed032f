//! A Destination within an application: the application mounts the callback in its own server, and runs the rest.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::{Kept, ListenError, ListenEvent, ListenOptions, keep_all, open_state};
use crate::fetch::{AddressPolicy, Client, ClientOptions};
use crate::receive::{Callback, CallbackOptions, Hook, StartError, end_subscriptions};
use crate::subscribe::Subscriber;
use crate::sync::SyncOptions;

/// A folder that is kept in step with a Source, as a part of an application with a web server of its own.
///
/// It has two halves. [`callback`](Self::callback) is a tower service for the hub's requests, which the application mounts.
/// [`run`](Self::run) is a future that does everything else: it finds the Source, subscribes, renews the leases, and synchronises at
/// the start, on every notification, and now and then.
///
/// The state is in the folder. It is locked until this and every callback of it are dropped. After a restart, or a crash, the same
/// subscriptions go on, and what was acknowledged and not yet handled is handled first.
#[derive(Debug)]
pub struct Destination {
    callback: Callback,
    kept: Kept,
}

impl Destination {
    /// Begins with any URL of a Source (see [`discover`](crate::discover::discover)), and the folder of the copy. What is not set is as
    /// for `resync-destination listen`.
    pub fn builder(source: impl Into<String>, folder: impl Into<PathBuf>) -> DestinationBuilder {
        let options = ListenOptions::new(source, folder);
        let network: Vec<Url> = Url::parse(&options.source).into_iter().collect();
        let client = ClientOptions {
            address_policy: AddressPolicy::NetworkOf(network),
            ..options.service.client.clone()
        };
        DestinationBuilder { options }.client(client)
    }

    /// The service to mount. Clones share everything. After [`run`](Self::run) has ended, it answers 503, so that the hub tries again.
    #[must_use]
    pub fn callback(&self) -> Callback {
        self.callback.clone()
    }

    /// Keeps the copy in step until `shutdown` ends, and calls `events` for everything that happens. The callback must be served
    /// meanwhile, and until this returns.
    ///
    /// A synchronisation in progress is cut off at the end; the next run does the rest. The subscriptions stay in force, and the hub
    /// tries again until the process is back, unless [`unsubscribe_on_exit`](DestinationBuilder::unsubscribe_on_exit) says otherwise.
    ///
    /// # Errors
    /// [`ListenError`], as for [`listen`](super::listen).
    pub async fn run(
        self,
        mut events: impl FnMut(ListenEvent) + Send,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ListenError> {
        let Self { callback: _, kept } = self;
        let (subscriber, unsubscribes) = (kept.subscriber.clone(), kept.options.service.unsubscribe_on_exit);
        tokio::select! {
            result = keep_all(vec![kept], |_, event| events(event)) => return result,
            () = shutdown => {}
        }
        if unsubscribes {
            let active = subscriber.subscriptions().active().into_iter();
            end_subscriptions(active.map(|id| (subscriber.clone(), id))).await;
        }
        Ok(())
    }
}

/// The options of a [`Destination`].
#[derive(Clone, Debug)]
#[must_use]
pub struct DestinationBuilder {
    options: ListenOptions,
}

impl DestinationBuilder {
    /// Which set, if the Source has several: the URL of its Capability List, or a part of that.
    pub fn set(mut self, name: impl Into<String>) -> Self {
        self.options.set = Some(name.into());
        self
    }

    /// The URL that corresponds to the folder; [`Source::base`](crate::discover::Source::base) if not given.
    pub fn base(mut self, url: Url) -> Self {
        self.options.base = Some(url);
        self
    }

    /// The folder of the state, if it shall not be in the copy.
    pub fn state(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.state = Some(folder.into());
        self
    }

    /// The interval of synchronisations without a notification, one hour by default; zero for never.
    pub fn poll(mut self, interval: Duration) -> Self {
        self.options.poll = interval;
        self
    }

    /// How to synchronise. Replaces all of these options, so it comes before [`delete`](Self::delete), [`adopt`](Self::adopt)
    /// and [`switch_source`](Self::switch_source). Those of one run are refused by [`open`](Self::open), see [`ListenOptions::sync`].
    pub fn sync(mut self, options: SyncOptions) -> Self {
        self.options.sync = options;
        self
    }

    /// Whether to remove files that the Source no longer lists.
    pub fn delete(mut self, delete: bool) -> Self {
        self.options.sync.delete = delete;
        self
    }

    /// Whether files that were in the folder before belong to the copy, see [`SyncOptions::adopt`]. Counts only where there is no
    /// state yet.
    pub fn adopt(mut self, adopt: bool) -> Self {
        self.options.sync.adopt = adopt;
        self
    }

    /// Whether to go on with the copy of another Source, see [`SyncOptions::switch_source`]. It is for one start: later ones follow the
    /// new Source anyway.
    pub fn switch_source(mut self, switch: bool) -> Self {
        self.options.sync.switch_source = switch;
        self
    }

    /// The lease to ask for; the hub decides.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.service.lease = Some(lease);
        self
    }

    /// Runs for every notification, once the copy is in step with it.
    pub fn hook(mut self, hook: Hook) -> Self {
        self.options.service.hook = Some(hook);
        self
    }

    /// The limits of the callback.
    pub fn receive(mut self, options: CallbackOptions) -> Self {
        self.options.service.callback = options;
        self
    }

    /// The HTTP client: limits, credentials, and which addresses get requests. By default these are public addresses and those in the
    /// network of the Source's URL. If strangers choose that URL, take [`AddressPolicy::PublicOnly`].
    pub fn client(mut self, options: ClientOptions) -> Self {
        self.options.service.client = options;
        self
    }

    /// Whether to end the subscriptions when [`Destination::run`] ends.
    pub fn unsubscribe_on_exit(mut self, unsubscribe: bool) -> Self {
        self.options.service.unsubscribe_on_exit = unsubscribe;
        self
    }

    /// Opens and locks the state, and makes the folder if it is missing.
    ///
    /// `callback_url` is how hubs reach the place where the callback is mounted: for a service below `/resync` behind
    /// `https://me.example`, it is `https://me.example/resync/`. Each subscription appends a segment that nobody can guess.
    ///
    /// # Errors
    /// [`ListenError`]: the folder is somebody's own or cannot be used, another process has the state, or the client's or the
    /// synchronisation's options are wrong.
    pub fn open(self, callback_url: Url) -> Result<Destination, ListenError> {
        let mut options = self.options.adopting_once();
        let client = Client::new(options.service.client.clone()).map_err(StartError::Client)?;
        let subscriptions = open_state(&options)?;
        let (callback, deliveries) = Callback::new(&subscriptions, options.service.callback.clone());
        options.service.callback_url = Some(callback_url.clone());
        let subscriber = Subscriber::new(client, subscriptions, options.service.subscriber(callback_url));
        Ok(Destination { callback, kept: Kept { options, subscriber, deliveries } })
    }
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;

    use super::*;
    use crate::listen::listen_all;

    #[tokio::test]
    async fn options_of_one_run_keep_no_copy_in_step() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        let callback_url = Url::parse("http://me.example/").unwrap();
        let open = |sync| {
            let builder = Destination::builder("http://source.example/", &copy).sync(sync);
            builder.open(callback_url.clone())
        };
        let now = Some(DateTime::now());
        for (expected, sync) in [
            ("dry_run", SyncOptions { dry_run: true, ..SyncOptions::default() }),
            ("from", SyncOptions { from: now, ..SyncOptions::default() }),
            ("at", SyncOptions { at: now, ..SyncOptions::default() }),
        ] {
            let refused = open(sync).unwrap_err();
            assert!(matches!(refused, ListenError::OneRun { option } if option == expected), "{refused}");
            assert!(refused.is_configuration() && !copy.exists());
        }
        assert!(open(SyncOptions::default()).is_ok());
    }

    #[tokio::test]
    async fn copies_of_which_one_is_within_another_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let copies = ["a", "b", "a/inner"]
            .map(|name| ListenOptions::new("http://source.example/", folder.path().join(name)));
        let service = copies[0].service.clone();
        let refused =
            listen_all(copies.into(), &service, |_, _| (), std::future::ready(())).await.unwrap_err();
        assert!(
            refused.is_configuration() && matches!(refused, ListenError::Overlapping { .. }),
            "{refused}"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
