//! The way to the collector: OTLP over HTTP, in batches, from a queue that holds nobody up.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http_body_util::Full;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};
use url::Url;

use super::meters::{Fate, TraceMeters};
use super::otlp;
use super::span::{Span, Tracer};
use crate::config::TelemetryConfig;
use crate::egress::{self, EgressClient, Guard, ReadLimit};

/// Spans that wait; more are dropped.
const QUEUE: usize = 4_096;
/// Spans that are sent with one request.
const BATCH: usize = 512;
/// How long a span waits for company.
const COMPANY: Duration = Duration::from_secs(1);
/// How long the collector may take for one.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause after the collector did not take a batch.
const PAUSE: Duration = Duration::from_secs(5);
/// What is left may take so long when the hub stops: deliveries have had their time before.
const LAST: Duration = Duration::from_secs(1);
/// More of an answer is not read: only its status counts.
const ANSWER: ReadLimit = ReadLimit::Discard(16 * 1024);

/// Begins to record, where a collector is configured. Its address is the operator's own word and may be anywhere: a guard of its own
/// opens nothing to strangers.
pub fn start(config: &TelemetryConfig, guard: &Guard, meters: &TraceMeters) -> (Tracer, Option<Exporting>) {
    let Some(endpoint) = &config.otlp else { return (Tracer::default(), None) };
    let guard = guard.for_the_operator(endpoint.port_or_known_default().unwrap_or(0));
    let client = EgressClient::new(guard, PATIENCE, PATIENCE, 1);
    let collector = Collector { client, traces: traces(endpoint) };
    let (queue, waiting) = mpsc::channel(QUEUE);
    let (close, closed) = watch::channel(false);
    let tracer = Tracer::recording(config.ratio, queue, meters.clone());
    let exporter = Exporter { collector, waiting, closed, meters: meters.clone(), away: false };
    (tracer, Some(Exporting { close, task: tokio::spawn(exporter.run()) }))
}

/// Where the collector of this address takes traces.
fn traces(endpoint: &Url) -> Url {
    let mut url = endpoint.clone();
    url.set_path(&format!("{}/v1/traces", endpoint.path().trim_end_matches('/')));
    url
}

/// Where spans go.
#[derive(Debug)]
struct Collector {
    client: EgressClient,
    traces: Url,
}

impl Collector {
    async fn take(&self, spans: &[Span]) -> Result<(), String> {
        let request = Request::post(self.traces.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, egress::USER_AGENT)
            .body(Full::new(Bytes::from(otlp::encode(spans))))
            .map_err(|error| error.to_string())?;
        match self.client.send(request, ANSWER).await {
            Ok(answer) if answer.status.is_success() => Ok(()),
            Ok(answer) => Err(format!("it answered {}", answer.status)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The task that sends spans.
#[derive(Debug)]
pub struct Exporting {
    close: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Exporting {
    /// Sends what waits, for a second at most; to be called when nothing is recorded any more.
    pub async fn finish(mut self) {
        // A task that is gone already needs no telling.
        let _ = self.close.send(true);
        if timeout(LAST, &mut self.task).await.is_err() {
            self.task.abort();
            warn!("the collector is too slow: the last spans of traces are lost");
        }
    }
}

struct Exporter {
    collector: Collector,
    waiting: mpsc::Receiver<Span>,
    closed: watch::Receiver<bool>,
    meters: TraceMeters,
    /// The collector did not take the last batch.
    away: bool,
}

impl Exporter {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            self.gather(&mut batch).await;
            if batch.is_empty() {
                return;
            }
            self.send(&batch).await;
            batch.clear();
            if self.away && !self.waiting.is_closed() {
                tokio::select! {
                    () = sleep(PAUSE) => {}
                    _ = self.closed.wait_for(|closed| *closed) => {}
                }
            }
        }
    }

    /// As many spans as fit, or as come within the time; none when there will be none any more.
    async fn gather(&mut self, batch: &mut Vec<Span>) {
        let mut alone_until = None;
        while batch.len() < BATCH {
            let company = async move {
                match alone_until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                came = self.waiting.recv_many(batch, BATCH - batch.len()) => {
                    if came == 0 {
                        return;
                    }
                    alone_until.get_or_insert_with(|| Instant::now() + COMPANY);
                }
                () = company => return,
                _ = self.closed.wait_for(|closed| *closed), if !self.waiting.is_closed() => self.waiting.close(),
            }
        }
    }

    async fn send(&mut self, batch: &[Span]) {
        match self.collector.take(batch).await {
            Ok(()) => {
                self.meters.count(Fate::Exported, batch.len());
                if self.away {
                    info!("the collector takes traces again");
                }
                self.away = false;
            }
            Err(error) => {
                self.meters.count(Fate::Failed, batch.len());
                if !self.away {
                    warn!(%error, "the collector does not take traces: they are dropped until it does");
                }
                self.away = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_go_below_the_address_that_is_configured() {
        for (endpoint, below) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://collector.example/", "https://collector.example/v1/traces"),
            ("https://collector.example/otlp/", "https://collector.example/otlp/v1/traces"),
        ] {
            assert_eq!(traces(&endpoint.parse().unwrap()).as_str(), below);
        }
    }
}
