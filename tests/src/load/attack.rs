//! `resync-load attack`: what honest publishers notice of thousands of slow connections and a flood of bad requests.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

use super::Failure;
use super::wire::{connect, exchange};
use crate::harness::HubProcess;

const TOPIC: &str = "http://source.example/load/";
/// Between two bytes of a slow client: none of the hub's limits for bytes ends it, only those for time do.
const DRIP: Duration = Duration::from_secs(1);
/// Addresses that the flood comes from.
const FLOODERS: usize = 200;
/// Until the attack is at its height, and until it is forgotten.
const RISE: Duration = Duration::from_secs(5);
/// Between two looks at how many slow connections are open.
const LOOK: Duration = Duration::from_millis(500);
/// Of the slow connections, so many must be open at least: the hub closes each after a while, and it comes again.
const OPEN: f64 = 0.95;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Attack {
    /// Honest notifications a second, whatever becomes of those before.
    pub rate: u32,
    /// How long each of the two measurements of a round lasts, in seconds.
    pub seconds: u32,
    /// Rounds; the middle one counts.
    pub rounds: usize,
    /// Slow connections, each from an address of its own; half of them drip headers, half bodies.
    pub slow: usize,
    /// Bad requests a second.
    pub flood: u32,
    /// What the p99 of honest notifications may be by what it was before.
    pub ratio: f64,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct AttackReport {
    /// Without an attack, in the middle round.
    pub quiet: Latency,
    /// During the attack, in the same round.
    pub attacked: Latency,
    /// The one p99 by the other.
    pub p99_ratio: f64,
    /// Honest notifications of all rounds that were not acknowledged.
    pub failed: usize,
    /// Slow connections that were open during the attack, half of the time, in the round with the fewest.
    pub slow_open: usize,
    /// Times that a slow connection was closed by the hub, and made anew.
    pub slow_closed: usize,
    /// Answers to bad requests, by status.
    pub bad_answers: BTreeMap<u16, usize>,
}

/// From the moment that a notification was due to its 202, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// How many were acknowledged.
    pub acknowledged: usize,
    /// How many were not.
    pub failed: usize,
    /// Half of them were faster.
    pub p50: f64,
    /// One in a hundred was slower.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

/// Measures a hub with its usual limits whose data is in `folder`.
///
/// # Errors
/// When the hub takes no honest notification at all.
pub async fn attack(plan: &Attack, folder: &Path) -> Result<AttackReport, Failure> {
    let mut hub = HubProcess::start_public(folder, &[]).await;
    // The first ones make the connections and wake up the disk.
    Honest::new(&hub).measure(plan.rate, 2).await?;
    let siege = Arc::new(Siege {
        hub: hub.address,
        open: AtomicUsize::new(0),
        closed: AtomicUsize::new(0),
        answers: Mutex::default(),
    });
    let mut rounds = Vec::new();
    for number in 0..plan.rounds {
        if number > 0 {
            sleep(RISE).await;
        }
        rounds.push(siege.round(plan, &hub).await?);
    }
    let (slow_closed, bad_answers) = (siege.closed.load(Ordering::Relaxed), siege.answers().clone());
    hub.stop().await;
    let failed = rounds.iter().map(|round| round.quiet.failed + round.attacked.failed).sum();
    let slow_open = rounds.iter().map(|round| round.slow_open).min().unwrap_or_default();
    rounds.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    let middle = rounds.swap_remove(rounds.len() / 2);
    let p99_ratio = middle.ratio();
    let Round { quiet, attacked, .. } = middle;
    Ok(AttackReport { quiet, attacked, p99_ratio, failed, slow_open, slow_closed, bad_answers })
}

impl AttackReport {
    /// What is not as it must be: whoever refuses honest notifications quickly has a fine p99, and so has a hub that was not attacked.
    pub fn complaints(&self, plan: &Attack) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.p99_ratio > plan.ratio {
            complaints
                .push(format!("the p99 is {:.2} times what it was: at most {}", self.p99_ratio, plan.ratio));
        }
        if self.failed > 0 {
            complaints.push(format!("{} honest notifications were not acknowledged", self.failed));
        }
        // Connections are far fewer than 2^52.
        #[expect(clippy::cast_precision_loss)]
        let are_open = self.slow_open as f64 >= OPEN * plan.slow as f64;
        if !are_open {
            complaints.push(format!("only {} of {} slow connections were open", self.slow_open, plan.slow));
        }
        complaints
    }
}

/// Both measurements.
struct Round {
    quiet: Latency,
    attacked: Latency,
    slow_open: usize,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.attacked.p99 / self.quiet.p99
    }
}

/// A publisher that posts at a fixed rate over connections that it keeps.
#[derive(Clone)]
struct Honest {
    hub: SocketAddr,
    request: Arc<[u8]>,
    idle: Arc<Mutex<Vec<TcpStream>>>,
}

impl Honest {
    fn new(hub: &HubProcess) -> Self {
        let link = format!("Link: <{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
        let body = "x".repeat(1_000);
        let head = format!("POST /websub/ HTTP/1.1\r\nHost: h\r\n{link}\r\nContent-Type: text/plain");
        let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        Self { hub: hub.address, request: request.into_bytes().into(), idle: Arc::default() }
    }

    async fn measure(&self, rate: u32, seconds: u32) -> Result<Latency, Failure> {
        let (began, pause) = (Instant::now(), Duration::from_secs(1) / rate);
        let mut posts = JoinSet::new();
        for number in 0..rate * seconds {
            let due = began + pause * number;
            sleep_until(due).await;
            let honest = self.clone();
            posts.spawn(async move { honest.post().await.then(|| due.elapsed()) });
        }
        Latency::of(&posts.join_all().await)
    }

    async fn post(&self) -> bool {
        let kept = self.idle().pop();
        if let Some(stream) = kept
            && let Some(status) = self.post_over(stream).await
        {
            return status == 202;
        }
        // There is none, or the hub has closed it, since it was idle for long.
        let Ok(stream) = connect(IpAddr::V4(Ipv4Addr::LOCALHOST), self.hub).await else { return false };
        self.post_over(stream).await == Some(202)
    }

    async fn post_over(&self, mut stream: TcpStream) -> Option<u16> {
        let answer = exchange(&mut stream, &self.request).await.ok()?;
        if answer.again {
            self.idle().push(stream);
        }
        Some(answer.status)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Latency {
    fn of(posts: &[Option<Duration>]) -> Result<Self, Failure> {
        let mut times: Vec<f64> = posts.iter().flatten().map(|time| time.as_secs_f64() * 1_000.0).collect();
        times.sort_by(f64::total_cmp);
        let at = |hundredths: usize| times.get(times.len() * hundredths / 100).copied();
        let (Some(p50), Some(p99), Some(max)) = (at(50), at(99), times.last().copied()) else {
            return Err("the hub took no notification".into());
        };
        Ok(Self { acknowledged: times.len(), failed: posts.len() - times.len(), p50, p99, max })
    }
}

/// All attackers together.
struct Siege {
    hub: SocketAddr,
    open: AtomicUsize,
    closed: AtomicUsize,
    answers: Mutex<BTreeMap<u16, usize>>,
}

impl Siege {
    async fn round(self: &Arc<Self>, plan: &Attack, hub: &HubProcess) -> Result<Round, Failure> {
        let quiet = Honest::new(hub).measure(plan.rate, plan.seconds).await?;
        let mut attackers = self.begin(plan);
        sleep(RISE).await;
        let honest = Honest::new(hub);
        let (attacked, slow_open) = self.watched(honest.measure(plan.rate, plan.seconds)).await;
        attackers.shutdown().await;
        self.open.store(0, Ordering::Relaxed);
        Ok(Round { quiet, attacked: attacked?, slow_open })
    }

    /// With the number of slow connections that are open meanwhile, half of the time.
    async fn watched<T>(&self, work: impl Future<Output = T>) -> (T, usize) {
        let (mut looks, mut open) = (interval(LOOK), Vec::new());
        tokio::pin!(work);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                _ = looks.tick() => open.push(self.open.load(Ordering::Relaxed)),
            }
        };
        open.sort_unstable();
        (done, open.get(open.len() / 2).copied().unwrap_or_default())
    }

    /// The attack lasts as long as what this returns.
    fn begin(self: &Arc<Self>, plan: &Attack) -> JoinSet<()> {
        let mut attackers = JoinSet::new();
        for number in 0..plan.slow {
            let siege = Arc::clone(self);
            attackers.spawn(async move { siege.drip(number).await });
        }
        let pause = Duration::from_secs(1) * u32::try_from(FLOODERS).unwrap_or(u32::MAX) / plan.flood.max(1);
        for number in 0..if plan.flood > 0 { FLOODERS } else { 0 } {
            let siege = Arc::clone(self);
            attackers.spawn(async move { siege.flood(number, pause).await });
        }
        attackers
    }

    /// A client that sends a byte a second, and comes again when it is thrown out.
    async fn drip(&self, number: usize) {
        let head: &[u8] = if number.is_multiple_of(2) {
            b"POST /websub/ HTTP/1.1\r\nHost: h\r\nX-Slow: "
        } else {
            b"POST /websub/ HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 60000\r\n\r\n"
        };
        sleep(DRIP.mul_f64(fastrand::f64())).await;
        loop {
            if let Ok(mut stream) = connect(address(1, number), self.hub).await {
                self.open.fetch_add(1, Ordering::Relaxed);
                let _ = drip(&mut stream, head).await;
                self.open.fetch_sub(1, Ordering::Relaxed);
                self.closed.fetch_add(1, Ordering::Relaxed);
            }
            sleep(DRIP.mul_f64(fastrand::f64() / 10.0)).await;
        }
    }

    /// A client that sends one bad request after the other.
    async fn flood(&self, number: usize, pause: Duration) {
        let named = BAD.iter().map(|(head, body)| request(head, body));
        let requests: Vec<_> = named.chain([many_topics()]).collect();
        let (mut ticks, mut kept) = (interval(pause), None);
        sleep(pause.mul_f64(fastrand::f64())).await;
        for request in requests.iter().cycle().skip(number) {
            ticks.tick().await;
            let stream = match kept.take() {
                Some(stream) => Ok(stream),
                None => connect(address(2, number), self.hub).await,
            };
            let Ok(mut stream) = stream else { continue };
            if let Ok(answer) = exchange(&mut stream, request).await {
                *self.answers().entry(answer.status).or_default() += 1;
                kept = answer.again.then_some(stream);
            }
        }
    }

    fn answers(&self) -> MutexGuard<'_, BTreeMap<u16, usize>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn drip(stream: &mut TcpStream, head: &[u8]) -> io::Result<()> {
    stream.write_all(head).await?;
    let mut answer = [0; 512];
    // An answer, or the end: in both cases the hub has had enough.
    while timeout(DRIP, stream.read(&mut answer)).await.is_err() {
        stream.write_all(b"x").await?;
    }
    Ok(())
}

const FORM: &str = "POST /websub/ HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded";

/// Header and body of requests that the hub must refuse, each in a room further in than the one before.
const BAD: &[(&str, &str)] = &[
    ("G€T /websub/ HTTP/1.1", ""),
    ("POST /nothing-here HTTP/1.1", ""),
    ("POST /websub/ HTTP/1.1\r\nContent-Type: text/plain", "content without a Link"),
    (
        "POST /websub/ HTTP/1.1\r\nContent-Type: text/plain\r\nLink: <<<>>>;;;rel=self,,",
        "content with a bad one",
    ),
    (FORM, "hub.mode=conquer&hub.topic=http://source.example/&hub.callback=http://d.example/"),
    (FORM, "hub.mode=subscribe&hub.topic=http://source.example/&hub.callback=javascript:alert(1)"),
    (FORM, "hub.mode=subscribe&hub.topic=http://source.example/&hub.callback=http://10.0.0.1/cb"),
    (
        FORM,
        "hub.mode=subscribe&hub.topic=http://source.example/&hub.callback=http://d.example/&hub.secret=%FF%00",
    ),
    (FORM, "hub.mode=publish&hub.url=ftp://source.example/"),
    (
        "GET /websub/notifications?topic=http://source.example/&subscription=00&expires=1&signature=sha256=00 HTTP/1.1",
        "",
    ),
];

/// A ping with a guessed token, of as many topics that nobody knows as a form has room for.
fn many_topics() -> Vec<u8> {
    let topic = |number| format!("&hub.url=http://source.example/{number}");
    let body = (0..900).map(topic).fold("hub.mode=publish".to_owned(), |form, topic| form + &topic);
    request(&format!("{FORM}\r\nAuthorization: Bearer rsh_guessed"), &body)
}

fn request(head: &str, body: &str) -> Vec<u8> {
    format!("{head}\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The n-th address of 127.`net`/16 that a host can have.
fn address(net: u8, number: usize) -> IpAddr {
    let part = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
    IpAddr::V4(Ipv4Addr::new(127, net, part(number / 250 % 250), part(1 + number % 250)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_that_was_noticed_or_was_none_is_complained_about() {
        let plan = Attack { rate: 40, seconds: 30, rounds: 3, slow: 2_000, flood: 2_000, ratio: 3.0 };
        let latency = || Latency { acknowledged: 1, failed: 0, p50: 1.0, p99: 1.0, max: 1.0 };
        let report = |p99_ratio, failed, slow_open| AttackReport {
            quiet: latency(),
            attacked: latency(),
            p99_ratio,
            failed,
            slow_open,
            slow_closed: 0,
            bad_answers: BTreeMap::new(),
        };
        assert!(report(3.0, 0, 1_900).complaints(&plan).is_empty());
        assert_eq!(
            report(3.5, 2, 1_899).complaints(&plan),
            [
                "the p99 is 3.50 times what it was: at most 3",
                "2 honest notifications were not acknowledged",
                "only 1899 of 2000 slow connections were open"
            ]
        );
    }
}
