//! All three roles on one screen: a Source, a hub and a Destination in one process, and the way of one notification.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use resync_common::words::{Size, counted};
use resync_harness::tree;
use resync_hub::{Hub, config};
use resync_publisher::notify::{HubReport, Outcome};
use resync_publisher::serve::serve;
use resync_publisher::{BaseUrl, HubUrl, Settings, build, notify};
use resync_subscriber_kit::fetch::AddressPolicy;
use resync_subscriber_kit::listen::{ListenEvent, ListenOptions, listen};
use resync_subscriber_kit::sync::Report;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use url::Url;

/// The demo's errors are for a person to read, whatever they are.
type Anything = Box<dyn Error + Send + Sync>;

/// How long any step may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The sample collection: this repository's own documentation.
const COLLECTION: [(&str, &str); 8] = [
    ("README.md", include_str!("../../README.md")),
    ("ARCHITECTURE.md", include_str!("../../ARCHITECTURE.md")),
    ("guide/getting-started.md", include_str!("../../docs/getting-started.md")),
    ("guide/source.md", include_str!("../../docs/source.md")),
    ("guide/destination.md", include_str!("../../docs/destination.md")),
    ("guide/hub.md", include_str!("../../docs/hub.md")),
    ("reference/protocol.md", include_str!("../../docs/protocol.md")),
    ("reference/storage.md", include_str!("../../docs/storage.md")),
];

/// What happened, with its time.
type Happened = (Instant, ListenEvent);

/// Runs the demo in a folder of its own and tells the story on `out`.
///
/// # Errors
/// Whatever keeps a role from doing its part; also when the copy is not the same in the end.
pub async fn run(folder: &Path, out: &mut (dyn Write + Send)) -> Result<(), Anything> {
    let (collection, site, copy) = (folder.join("collection"), folder.join("site"), folder.join("copy"));
    let started = Instant::now();
    write_collection(&collection)?;
    writeln!(out, "ResourceSync with push, all three roles on one screen\n")?;

    let hub = start_hub(&folder.join("hub")).await?;
    writeln!(out, "  Hub          {}", hub.url())?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let base = BaseUrl::parse(&format!("http://{}/", listener.local_addr()?))?;
    let settings = Settings::new(&collection, base.clone()).hub(HubUrl::parse(hub.url())?);
    let built = built(&settings, &site).await?;
    let resources = counted(built.resources, "resource", "resources");
    writeln!(out, "  Source       {}  {resources}, {}", base.as_str(), Size(built.bytes))?;
    let (stop_source, source_stopped) = oneshot::channel::<()>();
    let source = tokio::spawn(serve(listener, site.clone(), async { drop(source_stopped.await) }));

    let mut destination = Destination::start(base.as_str(), &copy);
    let (_, report) = destination.until_in_step().await?;
    writeln!(out, "  Destination  {}  {}", copy.display(), summary(&report))?;
    same(&collection, &copy)?;
    // The first notification makes all documents known to the hub; what follows is about the change alone.
    accepted(notify(&site, &[]).await?)?;
    destination.until_in_step().await?;
    writeln!(out, "  all set after {:.1?}\n", started.elapsed())?;

    writeln!(out, "The Source changes one file, adds one and removes one:")?;
    change(&collection)?;
    let changed = Instant::now();
    let mut step =
        |what: &str, at: Instant| writeln!(out, "  {:>8.1} ms  {what}", millis(at.duration_since(changed)));
    self::built(&settings, &site).await?;
    step("documents rewritten: the Change List tells of three changes", Instant::now())?;
    let status = accepted(notify(&site, &[]).await?)?;
    let told = Instant::now();
    let (heard, report) = destination.until_in_step().await?;
    let in_step = Instant::now();
    let mut steps = [
        (told, format!("Source: the hub has stored the notification and answered {status}")),
        (heard, "Destination: the hub has delivered it; signature checked".to_owned()),
        (in_step, format!("Destination: in step again, {}", summary(&report))),
    ];
    steps.sort_by_key(|(at, _)| *at);
    for (at, what) in &steps {
        step(what, *at)?;
    }
    same(&collection, &copy)?;
    let files = tree::contents(&copy)?;
    writeln!(out, "\nBoth folders hold the same {} files, byte for byte:", files.len())?;
    for (path, bytes) in files {
        writeln!(out, "  {:>8}  {}", bytes.len(), path.display())?;
    }

    destination.stop().await?;
    drop(stop_source);
    source.await??;
    hub.stop().await;
    Ok(())
}

fn write_collection(folder: &Path) -> Result<(), Anything> {
    for (name, text) in COLLECTION {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)?;
    }
    Ok(())
}

fn change(collection: &Path) -> Result<(), Anything> {
    fs::write(collection.join("guide/hub.md"), "# Operating a hub\n\nThis page was changed by the demo.\n")?;
    fs::write(collection.join("guide/new.md"), "# New\n\nThis page was added by the demo.\n")?;
    fs::remove_file(collection.join("reference/storage.md"))?;
    Ok(())
}

async fn start_hub(data: &Path) -> Result<Hub, Anything> {
    let any = || "127.0.0.1:0".to_owned();
    let flags = vec![("listen", any()), ("admin.listen", any()), ("data_dir", data.display().to_string())];
    let config = config::load(None, [], &flags)?.into_dev()?;
    Ok(Hub::start(&config).await?)
}

/// Building reads and hashes files, so it has a thread of its own.
async fn built(settings: &Settings, site: &Path) -> Result<resync_publisher::publish::Built, Anything> {
    let (settings, site) = (settings.clone(), site.to_owned());
    Ok(tokio::task::spawn_blocking(move || build(&settings, &site)).await??)
}

fn accepted(reports: Vec<HubReport>) -> Result<u16, Anything> {
    match reports.into_iter().map(|reports| reports.outcome).next() {
        Some(Outcome::Accepted { status }) => Ok(status),
        Some(Outcome::Failed(error)) => Err(error.into()),
        Some(Outcome::NothingChanged) | None => Err("the Source saw nothing to tell".into()),
    }
}

fn same(collection: &Path, copy: &Path) -> Result<(), Anything> {
    let different = tree::differences(collection, copy)?;
    if different.is_empty() { Ok(()) } else { Err(format!("the copy differs in {different:?}").into()) }
}

fn summary(report: &Report) -> String {
    let Report { created, updated, deleted, bytes_fetched, .. } = report;
    let fetched = Size(*bytes_fetched);
    format!("{created} created, {updated} updated, {deleted} deleted ({fetched} fetched)")
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// A listening Destination and what it tells.
struct Destination {
    events: mpsc::UnboundedReceiver<Happened>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Result<(), resync_subscriber_kit::listen::ListenError>>,
}

impl Destination {
    fn start(source: &str, copy: &Path) -> Self {
        let mut options = ListenOptions::new(source, copy);
        options.sync.delete = true;
        // It is on this machine.
        options.service.client.address_policy =
            AddressPolicy::NetworkOf(Url::parse(source).into_iter().collect());
        let (sender, events) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let hear = move |event| drop(sender.send((Instant::now(), event)));
        let task = tokio::spawn(listen(options, hear, async { drop(stopped.await) }));
        Self { events, stop, task }
    }

    /// Waits for the end of the next synchronisation; tells when it was asked for.
    async fn until_in_step(&mut self) -> Result<(Instant, Report), Anything> {
        let waiting = async {
            let mut heard = Instant::now();
            while let Some((at, event)) = self.events.recv().await {
                match event {
                    ListenEvent::Notified => heard = at,
                    ListenEvent::Synchronised(report) => return Ok((heard, *report)),
                    ListenEvent::SyncFailed { cause, .. } => return Err(cause.into()),
                    _ => {}
                }
            }
            Err("the Destination has ended".into())
        };
        timeout(PATIENCE, waiting).await.map_err(|_| "the Destination was not in step within a minute")?
    }

    async fn stop(self) -> Result<(), Anything> {
        drop(self.stop);
        Ok(self.task.await??)
    }
}
