//! `resync-load publish`: how many notifications a hub makes durable, against a bare HTTP server and bare appends, and how soon a quiet
//! one delivers.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, LINK};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;

use super::audience::Audience;
use super::check::{Copies, KIND};
use super::delays::until_due;
use super::limit::{durable_appends, payload};
use super::measure::Spread;
use super::receiver::{Receiver, secret};
use super::{Failure, Rate, median};
use resync_harness::{HubProcess, binary};

/// Between the moments at which two notifications of a quiet hub are due.
const QUIET: Duration = Duration::from_millis(20);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Publish {
    /// Numbers of publishers, each with a topic and a connection of its own.
    pub publishers: Vec<usize>,
    /// How long each number of them posts in a round, to the hub and to the bare server, and how long is appended to a file.
    pub time: Duration,
    /// Rounds; the middle one counts.
    pub rounds: usize,
    /// Notifications whose way to a subscriber is timed.
    pub timed: u32,
    /// Bytes of each.
    pub payload: u32,
    /// The engine of the store.
    pub engine: String,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct PublishReport {
    /// By number of publishers.
    pub publishers: Vec<Publishers>,
    /// Of a quiet hub, from the moment that a post was due to the answer.
    pub acknowledged: Spread,
    /// Of a quiet hub, from the moment that a post was due to the delivery's arrival.
    pub first_delivery: Spread,
    /// Whether what was delivered by then is what was posted.
    pub copies: Copies,
}

/// So many publishers at once.
#[derive(Clone, Debug, Serialize)]
pub struct Publishers {
    /// How many.
    pub publishers: usize,
    /// What the hub acknowledged, in the middle round.
    pub appends: Rate,
    /// What a bare HTTP server answered that reads the same posts and keeps nothing, in its middle round.
    pub bare_server: Rate,
    /// The one by the other, in the middle one of all rounds.
    pub of_bare_server: f64,
    /// Appends to a file without a store, each synced before the next, in their middle round.
    pub bare_appends: Rate,
    /// In that round, how long each of them took.
    pub bare_append: Spread,
    /// Acknowledged ones by those appends, in the middle one of all rounds.
    pub of_bare_appends: f64,
    /// In the middle round, from the beginning of a post to its answer; each publisher waits for it before the next.
    pub acknowledged: Spread,
}

/// Measures a hub whose data is in `folder`.
///
/// # Errors
/// When the hub does not accept a notification, or does not deliver it.
pub async fn publish(plan: &Publish, folder: &Path) -> Result<PublishReport, Failure> {
    let mut hub = HubProcess::start_with(folder, &[("STORE_ENGINE", &plan.engine)]).await;
    let mut publishers = Vec::new();
    for &count in &plan.publishers {
        publishers.push(in_turns(plan, &hub, count, folder).await?);
    }
    let (acknowledged, first_delivery, copies) = quietly(plan, &hub).await?;
    hub.stop().await;
    Ok(PublishReport { publishers, acknowledged, first_delivery, copies })
}

/// To the hub, to a bare server and to a file, so that whatever else the machine does is shared.
async fn in_turns(
    plan: &Publish,
    hub: &HubProcess,
    count: usize,
    folder: &Path,
) -> Result<Publishers, Failure> {
    let (mut rounds, mut servers, mut files) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds.max(1) {
        rounds.push(together(&[hub.url()], count, plan.time, plan.payload).await?);
        servers.push(to_a_bare_server(plan, count).await?);
        files.push(durable_appends(folder, payload(plan.payload as usize), plan.time).await?);
    }
    let (of_bare_server, of_bare_appends) = (ratio(&rounds, &servers), ratio(&rounds, &files));
    let (appends, times) = middle(rounds);
    let (bare_server, _) = middle(servers);
    let (bare_appends, bare_append) = middle(files);
    Ok(Publishers {
        publishers: count,
        appends,
        bare_server,
        of_bare_server,
        bare_appends,
        bare_append,
        of_bare_appends,
        acknowledged: Spread::of(times)?,
    })
}

/// Rounds of the hub by those of a bound that followed them: the ratio in the middle.
pub(super) fn ratio<H, B>(hub: &[(Rate, H)], bound: &[(Rate, B)]) -> f64 {
    median(hub.iter().zip(bound).map(|((hub, _), (bound, _))| hub.per_second / bound.per_second))
}

/// The one in the middle; there is at least one.
pub(super) fn middle<T>(mut rounds: Vec<(Rate, T)>) -> (Rate, T) {
    rounds.sort_by(|(one, _), (other, _)| one.per_second.total_cmp(&other.per_second));
    rounds.swap_remove(rounds.len() / 2)
}

/// It ends with its turn: while something else is measured it does not run.
async fn to_a_bare_server(plan: &Publish, count: usize) -> Result<(Rate, Vec<Duration>), Failure> {
    let server = BareServer::start().await?;
    together(std::slice::from_ref(&server.url), count, plan.time, plan.payload).await
}

/// So many publishers at once, who share these endpoints, with bodies of so many bytes: what was answered, and how long each answer took.
pub(super) async fn together(
    endpoints: &[String],
    count: usize,
    time: Duration,
    bytes: u32,
) -> Result<(Rate, Vec<Duration>), Failure> {
    let began = Instant::now();
    let mut running = JoinSet::new();
    for (number, endpoint) in endpoints.iter().cycle().take(count).enumerate() {
        let publisher = Publisher::new(endpoint, number);
        let body = payload(bytes as usize);
        running.spawn(async move {
            let mut times = Vec::new();
            while began.elapsed() < time {
                times.push(publisher.post(body.clone()).await?);
            }
            Ok::<_, Failure>(times)
        });
    }
    let mut times = Vec::new();
    for finished in running.join_all().await {
        times.extend(finished?);
    }
    Ok((Rate::new(times.len() as u64, began.elapsed()), times))
}

/// A server out of hyper in a process of its own, as the hub is. It ends with this value.
struct BareServer {
    url: String,
    _process: Child,
    /// It says more than its first line.
    _output: BufReader<ChildStdout>,
}

impl BareServer {
    async fn start() -> Result<Self, Failure> {
        let mut command = Command::new(binary("resync-load"));
        command.args(["receiver", "--kind", "hyper"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn()?;
        let mut output = BufReader::new(process.stdout.take().ok_or("its output cannot be read")?);
        let mut url = String::new();
        output.read_line(&mut url).await?;
        Ok(Self { url: url.trim().to_owned(), _process: process, _output: output })
    }
}

/// One notification after the other to one subscriber, each at its moment or as soon as those before have arrived: from
/// that moment until the answer, and until the delivery.
async fn quietly(plan: &Publish, hub: &HubProcess) -> Result<(Spread, Spread, Copies), Failure> {
    let receiver = Receiver::start(Audience { topics: 1, subscribers: 1, hosts: 1 }).await?;
    receiver.link_to(&hub.url());
    let publisher = Publisher::new(&hub.url(), 0);
    hub.subscribe(&publisher.topic, &receiver.url(0), &[("hub.secret", &secret(0))], 1).await;
    let (mut acknowledged, mut delivered) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    // The first one makes the connections.
    for number in 0..=plan.timed {
        let due = until_due(begin + QUIET * number).await;
        let (post, body) = receiver.notification(0, due, plan.payload);
        let answer = async {
            publisher.post(body).await?;
            receiver.acknowledged(post);
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
    let copies = receiver.check(|_| true);
    Ok((Spread::of(acknowledged)?, Spread::of(delivered)?, copies))
}

struct Publisher {
    client: Client<HttpConnector, Full<Bytes>>,
    endpoint: String,
    topic: String,
}

impl Publisher {
    fn new(endpoint: &str, number: usize) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            endpoint: endpoint.to_owned(),
            topic: Audience::topic(number),
        }
    }

    /// Returns how long the answer took.
    async fn post(&self, body: Bytes) -> Result<Duration, Failure> {
        let began = Instant::now();
        let links = format!("<{}>; rel=\"self\", <{}>; rel=\"hub\"", self.topic, self.endpoint);
        let request = Request::post(&self.endpoint)
            .header(CONTENT_TYPE, KIND)
            .header(LINK, links)
            .body(Full::new(body))?;
        let answer = self.client.request(request).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        if status.is_success() {
            Ok(began.elapsed())
        } else {
            Err(format!("a notification was answered {status}").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_compared_with_that_of_the_bound_beside_it_and_each_counts_by_its_own_middle() {
        let rounds = |rates: [u64; 3]| {
            let round = |rate| (Rate::new(rate, Duration::from_secs(1)), rate);
            rates.map(round).to_vec()
        };
        // A machine that was slow in the second round was so for both.
        let (hub, bound) = (rounds([60, 10, 40]), rounds([100, 20, 90]));
        assert!((ratio(&hub, &bound) - 0.5).abs() < 1e-9, "{}", ratio(&hub, &bound));
        assert_eq!((middle(hub).1, middle(bound).1), (40, 90));
    }
}
