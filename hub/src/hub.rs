//! A whole hub in one value: builds all modules, starts them in order and stops them in order.

mod config_files;
mod own_files;

use std::net::SocketAddr;
use std::path::{self, PathBuf};
use std::sync::Arc;

use resync_common::pace::Pace;
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

pub use self::config_files::check_files;
use self::own_files::OwnFiles;
use crate::admin::{
    Addresses, AdminService, Audit, Drain, LastReceived, LogFilter, Running, Sources, TestDeliveries, Trends,
};
use crate::config::{Config, DeliveryConfig, EgressConfig, PublishPolicy, SubscribePolicy};
use crate::delivery::{self, BreakerPolicy, Delivery, NoThread, NotTaken, Orders, RetryPolicy, Totals};
use crate::egress::{
    ConfirmedAddresses, EgressClient, Guard, NetworkLimit, TlsRoots, TlsRootsError, Unresolved,
};
use crate::http::{
    self, AdminState, AdminToken, Authentication, Bodies, Certificates, EndpointState, FormTurns, Ingress,
    Limits, PingLimit, PublishMeters, PublishState, Readers, SelfService, Sessions, Statuses, Tls, TlsError,
    TrustedProxies, admin, public, serve,
};
use crate::live_hubs::LiveHubs;
use crate::liveness::Liveness;
use crate::meters::Meters;
use crate::metrics::{HubState, Metrics};
use crate::sockets::Sockets;
use crate::store::{self, Keyring, KeyringError, Place, Store, StoreError, WallClock};
use crate::subscriptions::{
    Bounds, CallbackClients, Denials, LeasePolicy, Requests, Verification, VerificationBreaker,
    VerificationMeters,
};
use crate::telemetry::{self, Exporting, TraceMeters, Tracer};
use crate::topics::{
    Authority, BodyBudget, Budgets, CatchUp, ClosedHub, EveryTopic, FanOutLimit, Fetcher, Intake, LogShares,
    Pings, RedirectLimit, Tickets, TokensError, TopicClient, TopicPolicy, keep_trimming,
};
use crate::waiting_work::{JobQueues, WaitingWork};

/// Connections kept for verification and topic fetches, per host.
const IDLE_PER_HOST: usize = 2;
/// The most connections of deliveries, however many files may be open: idle ones take memory on both sides.
const CONNECTIONS: usize = 32_768;
/// How the address of the operator's listener is chosen.
const ADMIN_LISTEN: &str = "[admin] listen, or the variable RESYNC_HUB_ADMIN_LISTEN";
/// Bytes of bodies that the operator's listener holds in memory at once.
const OPERATORS_BODIES: u64 = 8 * 1024 * 1024;

/// Why a hub does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Delivery has no threads.
    #[error(transparent)]
    NoThread(#[from] NoThread),
    /// A shard cannot be taken over for delivery.
    #[error(transparent)]
    Delivery(#[from] NotTaken),
    /// The keys of the secrets cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyringError),
    /// The publishers' tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// Names cannot be resolved.
    #[error("the DNS resolver cannot be set up: {0}; set name servers with [egress] nameservers")]
    Resolver(#[from] Unresolved),
    /// The listeners' certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The operator's own roots of trust cannot be used.
    #[error(transparent)]
    TlsRoots(#[from] TlsRootsError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {reason}; choose another with {flag}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Why not.
        reason: String,
        /// How to choose another.
        flag: &'static str,
    },
    /// The audit log cannot be used.
    #[error("the audit log in {path} cannot be used: {reason}")]
    Audit {
        /// Which file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The file of replaced page addresses cannot be used.
    #[error(
        "the file of replaced page addresses {path} cannot be used: {reason}; without the file, all replaced addresses work again"
    )]
    Addresses {
        /// Which file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A secret of the hub's own cannot be used.
    #[error("the secret in {path} cannot be used: {reason}")]
    OwnSecret {
        /// Which file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// What a hub may be given by the process that it is a part of.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Sockets to listen on instead of the configured addresses.
    pub sockets: Sockets,
    /// The filter of the process's log, for the operator.
    pub log: Option<LogFilter>,
}

/// A running hub.
#[derive(Debug)]
pub struct Hub {
    url: Arc<str>,
    public_address: SocketAddr,
    admin_address: SocketAddr,
    store: Arc<dyn Store>,
    delivery: Delivery,
    liveness: Liveness,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    exporting: Option<Exporting>,
}

impl Hub {
    /// Opens the store, continues unfinished work, and listens.
    ///
    /// # Errors
    /// [`StartError`], each saying what to do.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        Self::start_with(config, Inherited::default()).await
    }

    /// [`Hub::start`] with sockets and a log filter of the process.
    ///
    /// # Errors
    /// As [`Hub::start`].
    pub async fn start_with(config: &Config, inherited: Inherited) -> Result<Self, StartError> {
        let (tls, admin_tls) = (Tls::load(&config.tls)?, Tls::load(&config.admin.tls)?);
        warn_of_settings(config);
        let store = open_store(config).await?;
        let OwnFiles { authority, token, audit, tickets, addresses } =
            OwnFiles::open(config, &store.registry())?;
        let Inherited { sockets: Sockets { public: socket, admin: admin_socket }, log } = inherited;
        let (listener, public_address) = listen(socket, config.listen, "--listen")?;
        let (admin_listener, admin_address) = listen(admin_socket, config.admin.listen, ADMIN_LISTEN)?;
        let url: Arc<str> = hub_url(config, public_address).into();

        let guard = guard(&config.egress)?;
        let (stop, stopped) = watch::channel(false);
        let (publishing, traces) = (PublishMeters::default(), TraceMeters::default());
        let (tracer, exporting) = telemetry::start(&config.telemetry, &guard, &traces, &url);
        let hubs = LiveHubs::default();
        let settings = delivery_settings(config, store.clock(), &tracer, &hubs);
        let delivery = Delivery::start(Arc::clone(&store), guard.clone(), settings).await?;
        let budgets = Budgets::new(config.publish.body_memory);
        let (mut tasks, mut waiting) = (JoinSet::new(), Vec::new());
        let ping_limit = PingLimit::new(&config.limits).divided_among(&hubs);
        let redirects = ping_limit.of_redirects();
        let parts =
            Parts { config, store: &store, guard: &guard, hub_url: &url, hubs: &hubs, stopped: &stopped };
        let (requests, denials, verifying) =
            parts.start_verification(&redirects, delivery.orders(), &mut tasks, &mut waiting);
        let fetching = FetchingParts::new(&authority, redirects, &budgets, &tracer);
        let pings = parts.start_fetching(fetching, &mut tasks, &mut waiting);
        let drain = drain(config, &store);
        let delivery = delivery.take_all(waiting).await?;
        tasks.spawn(authority.uses().keep(stopped.clone()));
        parts.start_trimming(&delivery, &mut tasks);

        let (storing, delivering) = (store.meters(), delivery.meters());
        let certificates = Certificates::of(&[("public", tls.as_ref()), ("admin", admin_tls.as_ref())]);
        let measured: [&dyn Meters; 6] =
            [&publishing, &verifying, &storing, &delivering, &certificates, &traces];
        let metrics = Metrics::new(hub_state(config, &store, &delivery, &drain), &measured);
        let trends = keep_trends(&publishing, &delivery, &stopped, &mut tasks);
        let service = ServiceParts {
            config,
            store: &store,
            delivery: &delivery,
            denials,
            trends,
            audit,
            tickets: tickets.clone(),
            addresses,
            hub_url: &url,
            drain: &drain,
            log,
        }
        .build();
        service.forget_addresses().await;
        let liveness = Liveness::start(&store, delivery.operator(), &stopped, &mut tasks);
        let sessions = sessions(config, &token, admin_tls.is_some(), &tickets, &*store);
        let admin_state = AdminState {
            service: service.clone(),
            auth: Authentication::new(token),
            sessions,
            metrics,
            pace: pace(config),
            bodies: BodyBudget::new(OPERATORS_BODIES),
            liveness: liveness.clone(),
            backup_timeout: config.admin.backup_timeout,
            stopped: stopped.clone(),
        };
        warn_of_overhearing(admin_address, admin_tls.as_ref());
        let endpoint = Arc::new(EndpointState {
            requests,
            publish: PublishState {
                intake: Intake::new(Arc::clone(&store), authority, config.publish.idempotency_ttl),
                pings,
                ping_limit,
                bodies: Bodies { pace: pace(config), posts: budgets.posts, forms: budgets.forms },
                statuses: Statuses::new(Arc::clone(&store), tickets, Arc::clone(&url)),
                max_body: largest_body(config),
                meters: publishing,
                tracer,
                hub_url: Arc::clone(&url),
            },
            catch_up: CatchUp::new(Arc::clone(&store), budgets.pages),
            readers: Readers::default(),
            open_log: config.publish.open_log,
            limits: Limits::new(&config.limits).divided_among(&hubs),
            proxies: TrustedProxies::new(&config.ingress),
            hub_url: Arc::clone(&url),
            moved_to: config.moved_to.clone(),
            drain,
            forms: FormTurns::default(),
        });
        let own = SelfService::new(service, &endpoint);
        keep_certificates([&tls, &admin_tls], &stopped, &mut tasks);
        let ingress = |tls| Ingress::new(&config.ingress, tls);
        let operators = ingress(admin_tls).with_leeway(config.admin.backup_timeout);
        tasks.spawn(serve(admin_listener, admin(admin_state), operators, stopped.clone()));
        note_down(config, admin_address, &stopped, &mut tasks);
        tasks.spawn(serve(listener, public(endpoint, own), ingress(tls), stopped));
        Ok(Self { url, public_address, admin_address, store, delivery, liveness, stop, tasks, exporting })
    }

    /// The hub's URL: what `Link rel="hub"` says.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the hub listens.
    pub fn public_address(&self) -> SocketAddr {
        self.public_address
    }

    /// Where health and the admin API listen.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// What has been delivered since the start.
    pub fn totals(&self) -> Totals {
        self.delivery.counters().totals()
    }

    /// Whether its parts still answer.
    pub fn liveness(&self) -> Liveness {
        self.liveness.clone()
    }

    /// Waits until a part of the hub has died, which it does only by a fault of ours: then the process should end, and be
    /// started again by whatever watches over it.
    pub async fn broken(&mut self) {
        tokio::select! {
            () = self.delivery.broken() => {}
            () = self.store.broken() => {}
            _ = self.tasks.join_next() => {}
        }
    }

    /// Accepts nothing any more, finishes requests under way, saves the progress and closes the store.
    pub async fn stop(mut self) {
        // If the receivers are gone, the tasks have ended.
        let _ = self.stop.send(true);
        // At the same time, so that both together take no longer than either may.
        let finish = async { while self.tasks.join_next().await.is_some() {} };
        tokio::join!(finish, self.delivery.stop());
        // Before the collector is waited for, which is none of the store's affair.
        drop(self.store);
        if let Some(exporting) = self.exporting {
            exporting.finish().await;
        }
    }
}

/// Those of the admin pages. Hubs that share a store share them too.
fn sessions(
    config: &Config,
    token: &AdminToken,
    secure: bool,
    tickets: &Tickets,
    store: &dyn Store,
) -> Sessions {
    if Place::of(config).is_folder() {
        Sessions::new(token, secure)
    } else {
        Sessions::shared(token, secure, tickets.clone(), store)
    }
}

/// Certificates are read anew when their files change.
fn keep_certificates(of: [&Option<Tls>; 2], stopped: &watch::Receiver<bool>, tasks: &mut JoinSet<()>) {
    for tls in of.into_iter().flatten() {
        tasks.spawn(tls.clone().keep(stopped.clone()));
    }
}

/// What a hub starts with all the same, though hardly anybody means it.
fn warn_of_settings(config: &Config) {
    for exposed in config.exposed() {
        warn!("{exposed}");
    }
    if let Some(example) = config.example_url() {
        warn!("{example}");
    }
}

/// Secrets that are not yet under today's key are rewritten before anything else happens.
async fn open_store(config: &Config) -> Result<Arc<dyn Store>, StartError> {
    let keys = Keyring::of(&config.secrets)?;
    let store = Place::of(config).open(keys.clone(), config.store.reserve).await?;
    if let Some(key) = keys.writes_with() {
        let secrets = store.rotate_secrets(keys).await?;
        info!(%key, rewritten = secrets, "secrets are encrypted");
    }
    Ok(store)
}

fn guard(config: &EgressConfig) -> Result<Guard, StartError> {
    let trust = TlsRoots::new(config.extra_ca())?;
    Ok(Guard::new(config.allow.clone(), config.ports.clone(), &config.nameservers, trust)?)
}

/// What the parts of a hub share.
struct Parts<'a> {
    config: &'a Config,
    store: &'a Arc<dyn Store>,
    guard: &'a Guard,
    hub_url: &'a Arc<str>,
    hubs: &'a LiveHubs,
    stopped: &'a watch::Receiver<bool>,
}

/// What fetching needs beside these.
struct FetchingParts {
    authority: Authority,
    redirects: RedirectLimit,
    budget: BodyBudget,
    tracer: Tracer,
}

impl FetchingParts {
    fn new(authority: &Authority, redirects: RedirectLimit, budgets: &Budgets, tracer: &Tracer) -> Self {
        let (authority, tracer) = (authority.clone(), tracer.clone());
        Self { authority, redirects, budget: budgets.fetches.clone(), tracer }
    }
}

impl Parts<'_> {
    fn start_verification(
        &self,
        redirects: &RedirectLimit,
        orders: Orders,
        tasks: &mut JoinSet<()>,
        waiting: &mut Vec<Arc<dyn WaitingWork>>,
    ) -> (Requests, Denials, VerificationMeters) {
        let Self { config, store, guard, hubs, stopped, .. } = *self;
        let client = EgressClient::new(
            guard.clone(),
            config.delivery.connect_timeout,
            config.delivery.timeout,
            IDLE_PER_HOST,
        );
        let limited = config.limits.enabled;
        let clients = CallbackClients {
            trusted: client.limiting_networks(NetworkLimit::for_trusted(limited).divided_among(hubs)),
            strangers: client.limiting_networks(NetworkLimit::for_strangers(limited).divided_among(hubs)),
        };
        let (leases, breaker) = (LeasePolicy::new(&config.lease), VerificationBreaker::new(limited));
        let (policy, bounds) = (self.topic_policy(redirects), Bounds::new(&config.limits));
        let verification =
            Verification::new(Arc::clone(store), clients, leases, breaker.clone(), policy, bounds, limited);
        let (denied, notifying) = JobQueues::new_pair();
        tasks.spawn(notifying.run(stopped.clone()));
        waiting.push(verification.denial_notifier().in_shards(denied.clone()));
        let denials = Denials::new(Arc::clone(store), Arc::new(orders), denied);
        let (accepted, verifying) = JobQueues::new_pair();
        tasks.spawn(verifying.run(stopped.clone()));
        let (meters, limit) = (verification.meters(), verification.waiting());
        waiting.push(verification.in_shards(denials.clone(), accepted.clone()));
        let requests = Requests::new(Arc::clone(store), guard.clone(), breaker, bounds, accepted, limit);
        (requests, denials, meters)
    }

    fn start_fetching(
        &self,
        parts: FetchingParts,
        tasks: &mut JoinSet<()>,
        waiting: &mut Vec<Arc<dyn WaitingWork>>,
    ) -> Pings {
        let Self { config, store, hub_url, hubs, stopped, .. } = *self;
        let FetchingParts { authority, redirects, budget, tracer } = parts;
        let client = self.topic_client(&redirects);
        let limited = config.limits.enabled;
        let log = LogShares::new(Arc::clone(store), authority, config.retention.size);
        let fan_out = FanOutLimit::new(limited, config.limits.ping_fan_out, Arc::clone(store));
        let fan_out = fan_out.divided_among(hubs);
        let fetching = Fetcher::new(log, client, budget, Arc::clone(hub_url), fan_out, limited, tracer);
        // The receivers always take at once: what waits is one task per topic with subscriptions.
        let (pinged, fetches) = JobQueues::new_pair();
        tasks.spawn(fetches.run(stopped.clone()));
        waiting.push(fetching.in_shards(pinged.clone()));
        Pings::new(Arc::clone(store), pinged)
    }

    fn start_trimming(&self, delivery: &Delivery, tasks: &mut JoinSet<()>) {
        let Self { config, store, stopped, .. } = *self;
        let counters = delivery.counters();
        let keeps_house = move || counters.keeps_house();
        let retention = config.retention.clone();
        tasks.spawn(keep_trimming(Arc::clone(store), retention, keeps_house, stopped.clone()));
    }

    fn topic_policy(&self, redirects: &RedirectLimit) -> Arc<dyn TopicPolicy> {
        let Self { config, hub_url, .. } = *self;
        match config.topics.policy {
            SubscribePolicy::Any => Arc::new(EveryTopic),
            SubscribePolicy::Advertised => {
                let (allowed, client) = (config.topics.allowed.clone(), self.topic_client(redirects));
                Arc::new(ClosedHub::new(allowed, client, Arc::clone(hub_url), config.limits.enabled))
            }
        }
    }

    fn topic_client(&self, redirects: &RedirectLimit) -> TopicClient {
        let Self { config, guard, .. } = *self;
        let (connect, total) = (config.delivery.connect_timeout, config.publish.fetch_timeout);
        let client = EgressClient::new(guard.clone(), connect, total, IDLE_PER_HOST);
        TopicClient::new(client, largest_body(config)).limiting_redirects(redirects.clone())
    }
}

fn pace(config: &Config) -> Pace {
    Pace { patience: config.ingress.body_timeout, bytes_per_second: config.ingress.body_rate }
}

fn delivery_settings(
    config: &Config,
    clock: &WallClock,
    tracer: &Tracer,
    hubs: &LiveHubs,
) -> delivery::Settings {
    let (limited, unconfirmed) = (config.limits.enabled, config.limits.unconfirmed);
    delivery::Settings {
        retry: retry_policy(&config.delivery),
        breaker: breaker_policy(&config.delivery),
        connect_timeout: config.delivery.connect_timeout,
        timeout: config.delivery.timeout,
        max_in_flight: config.delivery.max_in_flight,
        per_host: config.delivery.per_host,
        max_connections: connections(),
        confirmed: ConfirmedAddresses::new(limited, unconfirmed, clock.clone()).divided_among(hubs),
        signature: Arc::new(config.signature.clone()),
        entry_diff: config.publish.entry_diff.clone(),
        hubs: hubs.clone(),
        tracer: tracer.clone(),
    }
}

fn retry_policy(delivery: &DeliveryConfig) -> RetryPolicy {
    RetryPolicy {
        trouble: delivery.schedule.clone(),
        refused: delivery.schedule_4xx.clone(),
        gone_confirm_after: delivery.gone_confirm_after,
    }
}

fn breaker_policy(delivery: &DeliveryConfig) -> BreakerPolicy {
    BreakerPolicy {
        failures: delivery.breaker_failures,
        open: delivery.breaker_open,
        open_max: delivery.breaker_open_max,
    }
}

/// Connections that deliveries may keep: half of the files that the process may have open; the others are for those who come
/// in, and for the store.
fn connections() -> usize {
    let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
    files.map_or(CONNECTIONS, |files| (files / 2).min(CONNECTIONS))
}

fn hub_url(config: &Config, listening: SocketAddr) -> String {
    let base = config.public_url.as_ref().map_or_else(|| config.tls.origin(listening), ToString::to_string);
    format!("{}/websub/", base.trim_end_matches('/'))
}

/// Listens at this address, and returns it with the actual port.
fn listen(
    socket: Option<std::net::TcpListener>,
    address: SocketAddr,
    flag: &'static str,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let listening = match socket {
        None => http::listen(address),
        Some(socket) => socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket)),
    };
    let listener =
        listening.map_err(|error| StartError::Listen { address, reason: error.to_string(), flag })?;
    let taken = listener.local_addr().unwrap_or(address);
    Ok((listener, taken))
}

/// Lets commands that are given the data folder find this hub until it stops. One that cannot write it down, as on a full disk, still
/// delivers.
fn note_down(config: &Config, admin: SocketAddr, stopped: &watch::Receiver<bool>, tasks: &mut JoinSet<()>) {
    let tls = &config.admin.tls;
    let certificate = tls.is_on().then(|| path::absolute(&tls.certificate)).transpose();
    let note =
        certificate.and_then(|certificate| Running { admin, certificate }.write_down(&config.data_dir));
    match note {
        Ok(note) => drop(tasks.spawn(note.keep(stopped.clone()))),
        Err(error) => {
            warn!(%error, "the admin address cannot be written into the data folder: commands need --admin");
        }
    }
}

fn warn_of_overhearing(admin_address: SocketAddr, tls: Option<&Tls>) {
    if !admin_address.ip().is_loopback() && tls.is_none() {
        warn!(%admin_address, "the admin listener can be reached from other machines without TLS: others may read the token on its way");
    }
}

fn largest_body(config: &Config) -> usize {
    usize::try_from(config.publish.max_body).unwrap_or(usize::MAX)
}

/// What the admin service is made of.
struct ServiceParts<'a> {
    config: &'a Config,
    store: &'a Arc<dyn Store>,
    delivery: &'a Delivery,
    denials: Denials,
    trends: Trends,
    audit: Audit,
    tickets: Tickets,
    addresses: Addresses,
    hub_url: &'a Arc<str>,
    drain: &'a Drain,
    log: Option<LogFilter>,
}

impl ServiceParts<'_> {
    fn build(self) -> AdminService {
        let Self { config, store, delivery, .. } = self;
        AdminService {
            store: Arc::clone(store),
            counters: delivery.counters(),
            notes: delivery.attempt_log(),
            operator: delivery.operator(),
            orders: delivery.orders(),
            denials: self.denials,
            trends: self.trends,
            audit: self.audit,
            registry: store.registry(),
            open: config.publish.policy == PublishPolicy::Open,
            data_dir: config.data_dir.clone(),
            secrets: config.secrets.clone(),
            tickets: self.tickets,
            addresses: self.addresses,
            hub_url: Arc::clone(self.hub_url),
            tests: TestDeliveries::new(delivery.test_sender()),
            last_received: LastReceived::default(),
            beside: store::beside(&config.data_dir),
            backing_up: Arc::default(),
            drain: self.drain.clone(),
            log: self.log,
        }
    }
}

/// A hub that is drained leaves the shards to others from the start.
fn drain(config: &Config, store: &Arc<dyn Store>) -> Drain {
    let drain = Drain::of(&config.data_dir);
    store.set_drained(drain.is_on());
    drain
}

fn hub_state(config: &Config, store: &Arc<dyn Store>, delivery: &Delivery, drain: &Drain) -> HubState {
    HubState {
        store: store.clone(),
        counters: delivery.counters(),
        drain: drain.clone(),
        data_dir: config.data_dir.clone(),
    }
}

fn keep_trends(
    publishing: &PublishMeters,
    delivery: &Delivery,
    stopped: &watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> Trends {
    let trends = Trends::new(Sources {
        published: publishing.accepted().collect(),
        delivering: delivery.meters(),
        counters: delivery.counters(),
    });
    tasks.spawn(trends.clone().keep(stopped.clone()));
    trends
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    const FREE: &str = "127.0.0.1:0";

    fn config(folder: &Path, admin: &str) -> Config {
        let data_dir = folder.display().to_string();
        let flags =
            vec![("listen", FREE.to_owned()), ("admin.listen", admin.to_owned()), ("data_dir", data_dir)];
        config::load(None, [], &flags).unwrap().into_dev().unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn where_the_operators_address_is_taken_both_ways_to_choose_another_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let taken = std::net::TcpListener::bind(FREE).unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let said = Hub::start(&config(folder.path(), &address)).await.unwrap_err().to_string();
        assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
        assert!(said.contains("[admin] listen") && said.contains("RESYNC_HUB_ADMIN_LISTEN"), "{said}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_parts_of_a_hub_answer_until_it_stops() {
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::start(&config(folder.path(), FREE)).await.unwrap();
        hub.store.answers().await.unwrap();
        let delivery = hub.delivery.operator();
        delivery.answers().await.unwrap();
        assert_eq!(hub.liveness().silent(), None);
        hub.stop().await;
        assert!(delivery.answers().await.is_err());
    }
}
