//! Sends spans to the collector: OTLP over HTTP, in batches, from a queue that nobody waits for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{error, info, warn};
use url::Url;

use super::meters::{SpanResult, TraceMeters};
use super::otlp;
use super::span::{Span, Tracer};
use crate::config::TelemetryConfig;
use crate::egress::{self, EgressClient, Guard, ReadLimit};

/// Spans that wait, each with a URL or two and the cause of a failure: a few kilobytes at most. More are dropped.
const QUEUE: usize = 4_096;
/// Spans that are sent with one request.
const BATCH: usize = 512;
/// How long a span waits for company.
const COMPANY: Duration = Duration::from_secs(1);
/// How long the collector may take for a batch.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pauses before a failed batch is sent again; then it is given up.
const AGAIN_AFTER: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// The usual port of OTLP over gRPC, which is another protocol.
const GRPC: u16 = 4_317;
/// Below the collector's address.
const TRACES: &str = "/v1/traces";
/// How long sending the rest may take at shutdown, after deliveries have finished.
const LAST: Duration = Duration::from_secs(1);
/// More of an answer is not read: only its status counts.
const ANSWER: ReadLimit = ReadLimit::Discard(16 * 1024);

/// Starts recording, if a collector is configured. The operator chose its address, so it may be anywhere; a guard of its own opens
/// nothing to strangers. `hub_url` identifies this hub there.
pub fn start(
    config: &TelemetryConfig,
    guard: &Guard,
    meters: &TraceMeters,
    hub_url: &Arc<str>,
) -> (Tracer, Option<Exporting>) {
    let Some(endpoint) = &config.otlp else { return (Tracer::default(), None) };
    if endpoint.port() == Some(GRPC) {
        warn!(
            port = GRPC,
            "telemetry.otlp: this is the usual port of OTLP over gRPC; the hub uses OTLP over HTTP, usually on port 4318"
        );
    }
    let guard = guard.for_the_operator(endpoint.port_or_known_default().unwrap_or(0));
    let client = EgressClient::new(guard, PATIENCE, PATIENCE, 1);
    let collector = Collector { client, traces: traces(endpoint), hub_url: Arc::clone(hub_url) };
    let (queue, waiting) = mpsc::channel(QUEUE);
    let (close, closed) = watch::channel(false);
    let tracer = Tracer::recording(config.ratio, queue, meters.clone());
    let exporter = Exporter { collector, waiting, closed, meters: meters.clone(), away: false };
    (tracer, Some(Exporting { close, task: tokio::spawn(exporter.run()) }))
}

/// The collector's URL for traces, with or without the path in the configuration.
fn traces(endpoint: &Url) -> Url {
    let mut url = endpoint.clone();
    let path = endpoint.path().trim_end_matches('/');
    url.set_path(&format!("{}{TRACES}", path.strip_suffix(TRACES).unwrap_or(path)));
    url
}

/// Where spans go.
#[derive(Debug)]
struct Collector {
    client: EgressClient,
    traces: Url,
    hub_url: Arc<str>,
}

/// Why the collector did not accept a batch.
#[derive(Debug)]
struct SendFailure {
    why: String,
    /// It may accept it later.
    passes: bool,
}

impl Collector {
    async fn send(&self, spans: &[Span]) -> Result<(), SendFailure> {
        let request = Request::post(self.traces.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, egress::USER_AGENT)
            .body(Full::new(Bytes::from(otlp::encode(spans, &self.hub_url))))
            .map_err(|error| SendFailure { why: error.to_string(), passes: false })?;
        match self.client.send(request, ANSWER).await {
            Ok(answer) if answer.status.is_success() => Ok(()),
            Ok(answer) => Err(SendFailure {
                why: format!("it answered {}", answer.status),
                passes: passes(answer.status),
            }),
            Err(error) => Err(SendFailure { why: error.to_string(), passes: true }),
        }
    }
}

/// Which refusals pass, as OTLP has it.
fn passes(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// The task that sends spans.
#[derive(Debug)]
pub struct Exporting {
    close: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Exporting {
    /// Sends what waits, for a second at most; to be called when nothing is recorded any more.
    pub async fn finish(self) {
        // If the receiver is gone, the task has ended.
        let _ = self.close.send(true);
        if let Err(fault) = self.task.await {
            error!(%fault, "traces not sent: the task panicked");
        }
    }
}

struct Exporter {
    collector: Collector,
    waiting: mpsc::Receiver<Span>,
    closed: watch::Receiver<bool>,
    meters: TraceMeters,
    /// The collector did not accept the last batch.
    away: bool,
}

impl Exporter {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut closed = self.closed.clone();
        let over = async {
            // If the sender is gone, it is closed.
            let _ = closed.wait_for(|closed| *closed).await;
            sleep(LAST).await;
        };
        tokio::select! {
            () = self.send_all(&mut batch) => return,
            () = over => {}
        }
        self.waiting.close();
        let mut lost = batch.len();
        while self.waiting.try_recv().is_ok() {
            lost += 1;
        }
        self.meters.count(SpanResult::Failed, lost);
        warn!(lost, "collector too slow at shutdown: the last spans are lost");
    }

    async fn send_all(&mut self, batch: &mut Vec<Span>) {
        loop {
            self.gather(batch).await;
            if batch.is_empty() {
                return;
            }
            let fate = self.send(batch).await;
            self.meters.count(fate, batch.len());
            batch.clear();
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

    async fn send(&mut self, batch: &[Span]) -> SpanResult {
        let mut pauses = AGAIN_AFTER.into_iter();
        loop {
            let SendFailure { why, passes } = match self.collector.send(batch).await {
                Ok(()) => {
                    if self.away {
                        info!("the collector accepts traces again");
                    }
                    self.away = false;
                    return SpanResult::Exported;
                }
                Err(untaken) => untaken,
            };
            if !self.away {
                warn!(
                    error = why,
                    "the collector does not accept traces: spans beyond the buffer are dropped"
                );
            }
            self.away = true;
            let Some(pause) = pauses.next().filter(|_| passes) else { return SpanResult::Failed };
            // A hub that stops tries once more at once.
            let stopping = *self.closed.borrow();
            tokio::select! {
                () = sleep(pause) => {}
                _ = self.closed.wait_for(|closed| *closed), if !stopping => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use axum::{Router, routing};
    use tokio::net::TcpListener;

    use super::*;
    use crate::telemetry::SpanKind;

    #[test]
    fn traces_go_below_the_address_that_is_configured() {
        for (endpoint, below) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://collector.example/", "https://collector.example/v1/traces"),
            ("https://collector.example/otlp/", "https://collector.example/otlp/v1/traces"),
            ("http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:4318/v1/traces"),
            ("https://collector.example/otlp/v1/traces/", "https://collector.example/otlp/v1/traces"),
        ] {
            assert_eq!(traces(&endpoint.parse().unwrap()).as_str(), below);
        }
    }

    /// A collector that answers so, one after the other, and then 200 to all; and what it has answered to how many spans.
    async fn scripted(answers: &[u16]) -> (Url, mpsc::UnboundedReceiver<(u16, usize)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (told, seen) = mpsc::unbounded_channel();
        let script = Arc::new(Mutex::new(VecDeque::from(answers.to_vec())));
        let answer = move |body: Bytes| {
            let status = script.lock().unwrap().pop_front().unwrap_or(200);
            let request: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len();
            told.send((status, spans)).unwrap();
            async move { StatusCode::from_u16(status).unwrap() }
        };
        let collector = Router::new().route(TRACES, routing::post(answer));
        tokio::spawn(async move { axum::serve(listener, collector).await });
        (endpoint, seen)
    }

    /// What becomes of so many spans with this collector, by the time that it has answered so often; and what it has answered.
    async fn exported(answers: &[u16], spans: usize, until: usize) -> (TraceMeters, Vec<(u16, usize)>) {
        let (endpoint, mut seen) = scripted(answers).await;
        let (config, meters) = (TelemetryConfig { otlp: Some(endpoint), ratio: 1.0 }, TraceMeters::default());
        let (tracer, exporting) =
            start(&config, &Guard::open_to(&[]), &meters, &"http://hub.example/websub/".into());
        for _ in 0..spans {
            tracer.begin(None, "publish", SpanKind::Server).end();
        }
        let mut told = Vec::new();
        while told.len() < until {
            told.push(seen.recv().await.unwrap());
        }
        exporting.unwrap().finish().await;
        (meters, told)
    }

    fn fates(meters: &TraceMeters) -> [u64; 3] {
        [SpanResult::Exported, SpanResult::Failed, SpanResult::Dropped].map(|fate| meters.read(fate))
    }

    #[tokio::test]
    async fn what_the_collector_cannot_take_now_it_gets_again_and_what_it_will_not_it_does_not() {
        let (meters, told) = exported(&[503, 200, 400], 1_100, 4).await;
        assert_eq!(told, [(503, 512), (200, 512), (400, 512), (200, 76)]);
        assert_eq!(fates(&meters), [588, 512, 0]);
    }

    #[tokio::test]
    async fn what_is_left_when_the_hub_stops_counts_as_failed() {
        let (meters, told) = exported(&[503; 9], 1_100, 1).await;
        assert_eq!(told, [(503, 512)]);
        assert_eq!(fates(&meters), [0, 1_100, 0]);
    }
}
