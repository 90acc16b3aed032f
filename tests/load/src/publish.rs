//! `resync-load publish`: how many notifications a hub makes durable, and how soon a quiet one delivers.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LINK};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use tokio::task::JoinSet;

use super::delays::until_due;
use super::limit::{durable_appends, payload};
use super::receiver::Receiver;
use super::{Failure, Rate};
use resync_harness::HubProcess;

/// Between the moments at which two notifications of a quiet hub are due.
const QUIET: Duration = Duration::from_millis(20);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Publish {
    /// Numbers of publishers, each with a topic and a connection of its own.
    pub publishers: Vec<usize>,
    /// How long each number of them posts.
    pub time: Duration,
    /// Notifications whose way to a subscriber is timed.
    pub timed: u32,
    /// Bytes of each.
    pub payload: usize,
    /// The engine of the store.
    pub engine: String,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct PublishReport {
    /// Appends to a file without a store, each synced before the next.
    pub bare_appends: Rate,
    /// How long each of them took.
    pub bare_append: Spread,
    /// By number of publishers.
    pub publishers: Vec<Publishers>,
    /// Of a quiet hub, from the moment that a post was due to the answer.
    pub acknowledged: Spread,
    /// Of a quiet hub, from the moment that a post was due to the delivery's arrival.
    pub first_delivery: Spread,
}

/// So many publishers at once.
#[derive(Clone, Debug, Serialize)]
pub struct Publishers {
    /// How many.
    pub publishers: usize,
    /// What they had acknowledged.
    pub appends: Rate,
    /// That by appends to a file without a store.
    pub of_bare_appends: f64,
    /// From the beginning of a post to its answer; each publisher waits for it before the next.
    pub acknowledged: Spread,
}

/// Times in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// Half of them were shorter.
    pub p50: f64,
    /// One in a hundred was longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Spread {
    pub(super) fn of(times: &[Duration]) -> Result<Self, Failure> {
        let mut times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1_000.0).collect();
        times.sort_by(f64::total_cmp);
        let at = |hundredths: usize| times.get(times.len() * hundredths / 100).copied();
        match (at(50), at(99), times.last().copied()) {
            (Some(p50), Some(p99), Some(max)) => Ok(Self { p50, p99, max }),
            _ => Err("nothing was acknowledged".into()),
        }
    }
}

/// Measures a hub whose data is in `folder`.
///
/// # Errors
/// When the hub does not accept a notification, or does not deliver it.
pub async fn publish(plan: &Publish, folder: &Path) -> Result<PublishReport, Failure> {
    let (bare_appends, bare_append) = durable_appends(folder, payload(plan.payload)).await?;
    let mut hub = HubProcess::start_with(folder, &[("STORE_ENGINE", &plan.engine)]).await;
    let mut publishers = Vec::new();
    for &count in &plan.publishers {
        publishers.push(together(plan, &hub, count, bare_appends).await?);
    }
    let (acknowledged, first_delivery) = quietly(plan, &hub).await?;
    hub.stop().await;
    Ok(PublishReport { bare_appends, bare_append, publishers, acknowledged, first_delivery })
}

async fn together(plan: &Publish, hub: &HubProcess, count: usize, bare: Rate) -> Result<Publishers, Failure> {
    let began = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..count {
        let (publisher, time) = (Publisher::new(hub, number, plan.payload), plan.time);
        running.spawn(async move {
            let mut times = Vec::new();
            while began.elapsed() < time {
                times.push(publisher.post().await?);
            }
            Ok::<_, Failure>(times)
        });
    }
    let mut times = Vec::new();
    for finished in running.join_all().await {
        times.extend(finished?);
    }
    let appends = Rate::new(times.len() as u64, began.elapsed());
    let of_bare_appends = appends.per_second / bare.per_second;
    Ok(Publishers { publishers: count, appends, of_bare_appends, acknowledged: Spread::of(&times)? })
}

/// One notification after the other to one subscriber, each at its moment or as soon as those before have arrived: from
/// that moment until the answer, and until the delivery.
async fn quietly(plan: &Publish, hub: &HubProcess) -> Result<(Spread, Spread), Failure> {
    let receiver = Receiver::start(1).await?;
    let publisher = Publisher::new(hub, 0, plan.payload);
    hub.subscribe(&publisher.topic, &receiver.url(0, 1), &[("hub.secret", "of the only subscriber")], 1)
        .await;
    let (mut acknowledged, mut delivered) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    // The first one makes the connections.
    for number in 0..=plan.timed {
        let due = until_due(begin + QUIET * number).await;
        let answer = async {
            publisher.post().await?;
            Ok::<_, Failure>(due.elapsed())
        };
        let arrival = async {
            receiver.next_after(number.into()).await?;
            Ok::<_, Failure>(due.elapsed())
        };
        let (answered, arrived) = tokio::try_join!(answer, arrival)?;
        if number > 0 {
            acknowledged.push(answered);
            delivered.push(arrived);
        }
    }
    Ok((Spread::of(&acknowledged)?, Spread::of(&delivered)?))
}

struct Publisher {
    client: Client<HttpConnector, Full<Bytes>>,
    endpoint: String,
    topic: String,
    body: Bytes,
}

impl Publisher {
    fn new(hub: &HubProcess, number: usize, bytes: usize) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            endpoint: hub.url(),
            topic: format!("http://source.example/load/{number}"),
            body: payload(bytes),
        }
    }

    /// Returns how long the answer took.
    async fn post(&self) -> Result<Duration, Failure> {
        let began = Instant::now();
        let links = format!("<{}>; rel=\"self\", <{}>; rel=\"hub\"", self.topic, self.endpoint);
        let request = Request::post(&self.endpoint)
            .header(CONTENT_TYPE, "text/plain")
            .header(LINK, links)
            .body(Full::new(self.body.clone()))?;
        let answer = self.client.request(request).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        if status == StatusCode::ACCEPTED {
            Ok(began.elapsed())
        } else {
            Err(format!("a notification was answered {status}").into())
        }
    }
}
