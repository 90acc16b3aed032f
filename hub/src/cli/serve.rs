//! `resync-hub serve`: start, say where and what to try, wait for a signal, stop; systemd is told of each.

use std::env;
use std::path::{self, Path};
use std::sync::Arc;

use resync_common::file_limit;
use resync_common::signals;
use resync_common::words::quoted;
use resync_hub::config::{Config, PublishPolicy};
use resync_hub::{Hub, Inherited, Sockets};
use tokio::runtime;
use tracing::{debug, info};

use super::systemd::{Done, Systemd};
use super::{Failure, Settings, say, start_logging};

/// The variable that says where the operator's token is.
const TOKEN_FILE: &str = "RESYNC_HUB_ADMIN_TOKEN_FILE";

pub(super) fn run(settings: &Settings) -> Result<(), Failure> {
    let config = settings.load()?;
    let log = start_logging(&config)?;
    let systemd = Arc::new(Systemd::of_process());
    let sockets = Sockets::of_process().map_err(|error| {
        Failure::new(format_args!("the inherited sockets (LISTEN_FDS) cannot be used: {error}"))
    })?;
    if settings.dev && sockets.addresses().any(|address| !address.ip().is_loopback()) {
        return Err(Failure::new(
            "--dev listens on loopback only, but the inherited sockets (LISTEN_FDS) are not",
        ));
    }
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::new)?;
    runtime.block_on(serve(settings, &config, Inherited { sockets, log: Some(log) }, &systemd))
}

async fn serve(
    settings: &Settings,
    config: &Config,
    inherited: Inherited,
    systemd: &Arc<Systemd>,
) -> Result<(), Failure> {
    // Every subscriber's host may hold a connection open.
    if let Err(error) = file_limit::raise() {
        debug!(%error, "limit of open files not raised");
    }
    // From the beginning: a signal that comes before the hub listens stops it as soon as it does.
    let stop = signals::stop().map_err(Failure::new)?;
    systemd.notify("STATUS=opening the store");
    // In a task of its own, since opening holds this thread up.
    let asking = Arc::clone(systemd);
    let asking = tokio::spawn(async move { asking.ask_for_time(Done::by_process).await });
    let mut hub = Hub::start_with(config, inherited).await?;
    asking.abort();
    // It has ended for certain: nothing is asked for behind what follows.
    let _ = asking.await;
    greet(&hub, settings, config);
    let status = format!("serving {}", hub.url());
    systemd.notify(&format!("READY=1\nSTATUS={status}"));
    let liveness = hub.liveness();
    tokio::select! {
        () = stop => {}
        () = hub.broken() => return Err(Failure::new("a part of the hub has panicked, see the log: restart the hub")),
        never = systemd.feed_watchdog(&liveness, &status) => match never {},
    }
    systemd.notify("STOPPING=1\nSTATUS=finishing requests under way");
    info!("stopping: finishing requests under way");
    hub.stop().await;
    info!("stopped");
    Ok(())
}

fn greet(hub: &Hub, settings: &Settings, config: &Config) {
    let url = hub.url();
    say(format_args!(
        "resync-hub {} listening on {}",
        env!("CARGO_PKG_VERSION"),
        config.tls.origin(hub.public_address())
    ));
    say(format_args!("  hub      {url}"));
    say(format_args!("  store    {} in {}", config.store.engine, config.data_dir.display()));
    say(format_args!(
        "  admin    {}  (pages, health at /readyz; token in {})",
        config.admin.tls.origin(hub.admin_address()),
        config.admin_token_file().display()
    ));
    if settings.dev {
        say("  dev      anybody on this machine may publish, callbacks on loopback are allowed");
        say(next_steps(url));
    } else if config.publish.policy == PublishPolicy::Token {
        say("\nA Source needs a token to post notifications:");
        say(format_args!("  {}", new_token(settings, config)));
    }
}

/// The command that makes a token at this hub, in another terminal, which has another folder and other variables.
fn new_token(settings: &Settings, config: &Config) -> String {
    let word =
        |path: &Path| quoted(&path::absolute(path).unwrap_or_else(|_| path.to_owned()).to_string_lossy());
    let token_file = env::var_os(TOKEN_FILE).filter(|file| !file.is_empty());
    let variable =
        token_file.map_or_else(String::new, |file| format!("{TOKEN_FILE}={} ", word(Path::new(&file))));
    let file =
        settings.config.as_deref().map_or_else(String::new, |file| format!(" --config {}", word(file)));
    format!(
        "{variable}resync-hub token add my-library --topic-prefix https://source.example/{file} --data-dir {}",
        word(&config.data_dir)
    )
}

/// Commands that can be pasted into other terminals.
fn next_steps(url: &str) -> String {
    format!(
        "
Try it, each in a terminal of its own:

  # 1. a Source: describe a folder, here docs, notify the hub, and serve the files
  resync-source init docs --base-url http://127.0.0.1:8090/ --hub {url}
  resync-source publish
  resync-source serve --listen 127.0.0.1:8090

  # 2. a Destination: subscribe and keep a copy in step
  resync-destination listen http://127.0.0.1:8090/ --into copy

  # 3. change something in docs, then notify the hub
  resync-source publish

Or by hand, as any WebSub publisher would:

  curl -i {url} -H 'Content-Type: text/plain' \\
       -H 'Link: <http://example.com/topic>; rel=\"self\", <{url}>; rel=\"hub\"' -d 'hello'

Stop with Ctrl-C; what was accepted is delivered at the next start."
    )
}
