//! A receiver that is not what limits a measurement: one listener for all of 127/8, a parser of a few lines, answers from memory.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::Failure;

const DONE: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
/// How long nothing may come before a measurement is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether all has come.
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// The running receiver.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    port: u16,
    tally: Arc<Tally>,
}

/// Deliveries by subscriber, which is the number at the end of the path.
#[derive(Debug)]
struct Tally {
    total: AtomicU64,
    of: Vec<AtomicU32>,
}

impl Receiver {
    pub(super) async fn start(subscribers: usize) -> Result<Self, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        let port = listener.local_addr()?.port();
        let of = (0..subscribers).map(|_| AtomicU32::new(0)).collect();
        let tally = Arc::new(Tally { total: AtomicU64::new(0), of });
        let receiver = Self { port, tally: Arc::clone(&tally) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tally = Arc::clone(&tally);
                // A peer that goes away ends its connection, nothing else.
                tokio::spawn(async move { drop(serve(stream, &tally).await) });
            }
        });
        Ok(receiver)
    }

    /// The callback of a subscriber, on one of `hosts` hosts.
    pub(super) fn url(&self, subscriber: usize, hosts: usize) -> String {
        let [_, _, high, low] = u32::try_from(subscriber % hosts).unwrap_or(u32::MAX).to_be_bytes();
        let host = SocketAddr::from((Ipv4Addr::new(127, 1, high, low), self.port));
        format!("http://{host}/{subscriber}")
    }

    /// Deliveries so far.
    pub(super) fn total(&self) -> u64 {
        self.tally.total.load(Ordering::Relaxed)
    }

    /// Waits until so many have come in all.
    pub(super) async fn until(&self, total: u64) -> Result<(), Failure> {
        let mut seen = self.total();
        while seen < total {
            let progress = timeout(PATIENCE, async {
                while self.total() == seen {
                    sleep(LOOK_EVERY).await;
                }
            });
            progress
                .await
                .map_err(|_| format!("{seen} of {total} deliveries came, then nothing for {PATIENCE:?}"))?;
            seen = self.total();
        }
        Ok(())
    }

    /// How many subscribers did not get exactly so many.
    pub(super) fn uneven(&self, each: u32) -> usize {
        self.tally.of.iter().filter(|count| count.load(Ordering::Relaxed) != each).count()
    }
}

async fn serve(mut stream: TcpStream, tally: &Tally) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 64 * 1024];
    let mut filled = 0;
    loop {
        while let Some(request) = Request::find(&buffer[..filled]) {
            let (length, answer) = (request.length, request.answer(tally));
            match answer {
                Some(challenge) => stream.write_all(challenge.as_bytes()).await?,
                None => stream.write_all(DONE).await?,
            }
            buffer.copy_within(length..filled, 0);
            filled -= length;
        }
        match stream.read(&mut buffer[filled..]).await? {
            0 => return Ok(()),
            read => filled += read,
        }
    }
}

/// A complete request at the beginning of what was read.
struct Request<'a> {
    line: &'a str,
    length: usize,
}

impl<'a> Request<'a> {
    fn find(bytes: &'a [u8]) -> Option<Self> {
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let text = std::str::from_utf8(&bytes[..head]).ok()?;
        let (line, fields) = text.split_once("\r\n")?;
        let body = fields.lines().find_map(|field| {
            let (name, value) = field.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let length = head + body.unwrap_or(0);
        (bytes.len() >= length).then_some(Self { line, length })
    }

    /// A delivery is counted; a verification of intent is answered with its challenge.
    fn answer(&self, tally: &Tally) -> Option<String> {
        let target = self.line.split(' ').nth(1).unwrap_or_default();
        if self.line.starts_with("GET") {
            let challenge = target.split_once("hub.challenge=").map_or("", |(_, rest)| rest);
            let challenge = challenge.split('&').next().unwrap_or_default();
            return Some(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{challenge}",
                challenge.len()
            ));
        }
        if let Some(count) = target[1..].parse::<usize>().ok().and_then(|number| tally.of.get(number)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        tally.total.fetch_add(1, Ordering::Relaxed);
        None
    }
}
