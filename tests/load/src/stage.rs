//! Hubs with many subscriptions: how these are made, what is posted, and what a hub's process takes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::future::try_join_all;
use tokio::net::TcpStream;
use url::form_urlencoded::Serializer;
use url::{Position, Url};

use super::Failure;
use super::audience::Audience;
use super::check::KIND;
use super::receiver::{Receiver, secret};
use super::wire::{connect, exchange};
use resync_harness::HubProcess;

/// Connections over which subscriptions are made: so many that a hub can put some in force together.
const SUBSCRIBING: usize = 192;
/// How many of them may wait to be verified.
const AHEAD: u64 = 4_096;

/// Bytes of a notification.
const BYTES: u32 = 1_000;

/// Where a hub takes requests.
#[derive(Clone, Debug)]
pub(super) struct Entrance {
    /// The URL of its endpoint.
    pub(super) url: String,
    /// What a request to it begins with.
    head: String,
    address: SocketAddr,
}

impl Entrance {
    /// That of a hub in a process of its own.
    pub(super) fn of(hub: &HubProcess) -> Self {
        Self { url: hub.url(), head: head("/websub/", &hub.address.to_string()), address: hub.address }
    }

    /// That of any hub whose port speaks plain HTTP.
    pub(super) fn at(url: &str) -> Result<Self, Failure> {
        let parsed = Url::parse(url).map_err(|error| format!("{url} is no URL: {error}"))?;
        if parsed.scheme() != "http" {
            return Err(format!("{url}: this tool speaks http only; put the hub's own port here").into());
        }
        let name = parsed.host_str().ok_or_else(|| format!("{url} names no host"))?;
        let port = parsed.port_or_known_default().unwrap_or(80);
        let address = (name, port).to_socket_addrs()?.find(SocketAddr::is_ipv4);
        let address = address.ok_or_else(|| format!("{name} has no IPv4 address"))?;
        let head = head(&parsed[Position::BeforePath..], parsed.authority());
        Ok(Self { url: url.to_owned(), head, address })
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let is_here = self.address.ip().is_loopback();
        let from = if is_here { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        connect(IpAddr::V4(from), self.address).await
    }
}

fn head(path: &str, authority: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: {authority}\r\n")
}

impl Audience {
    /// Subscribes all of them over HTTP, each with a secret of its own and verified by the hub, which receivers expect from now on.
    pub(super) async fn subscribe(&self, hub: &HubProcess, receiver: &Receiver) -> Result<(), Failure> {
        receiver.link_to(&hub.url());
        self.ask(&[Entrance::of(hub)], receiver).await?;
        hub.until_subscribed(self.subscriptions()).await;
        Ok(())
    }

    /// Asks these hubs in turn to subscribe all of them, each with a secret of its own, until each callback was asked by a hub.
    pub(super) async fn ask(&self, hubs: &[Entrance], receiver: &Receiver) -> Result<(), Failure> {
        let (next, before) = (AtomicUsize::new(0), receiver.verified());
        let asking = hubs.iter().cycle().take(SUBSCRIBING);
        try_join_all(asking.map(|hub| self.ask_some(hub, receiver, &next, before))).await?;
        receiver.until_verified(before + self.subscriptions() as u64).await
    }

    /// Takes those that are left until there are none.
    async fn ask_some(
        &self,
        hub: &Entrance,
        receiver: &Receiver,
        next: &AtomicUsize,
        before: u64,
    ) -> Result<(), Failure> {
        let mut stream = hub.connect().await?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= self.subscriptions() {
                return Ok(());
            }
            receiver.until_verified((before + number as u64).saturating_sub(AHEAD)).await?;
            let body = Serializer::new(String::new())
                .append_pair("hub.mode", "subscribe")
                .append_pair("hub.topic", &Self::topic(self.topic_of(number)))
                .append_pair("hub.callback", &receiver.url(number))
                .append_pair("hub.secret", &secret(number))
                .finish();
            let head = format!("{}Content-Type: application/x-www-form-urlencoded", hub.head);
            let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let answer = exchange(&mut stream, request.as_bytes()).await?;
            if answer.status != 202 {
                return Err(format!("a request to subscribe got {}", answer.status).into());
            }
        }
    }
}

/// A publisher with one connection.
pub(super) struct Publisher {
    hub: Entrance,
    stream: TcpStream,
}

impl Publisher {
    pub(super) async fn to(hub: &HubProcess) -> Result<Self, Failure> {
        Self::at(&Entrance::of(hub)).await
    }

    pub(super) async fn at(hub: &Entrance) -> Result<Self, Failure> {
        Ok(Self { hub: hub.clone(), stream: hub.connect().await? })
    }

    /// A notification to this topic that is due at this moment; returns once the hub has acknowledged it.
    pub(super) async fn post(
        &mut self,
        receiver: &Receiver,
        topic: usize,
        due: Instant,
    ) -> Result<(), Failure> {
        let (number, body) = receiver.notification(topic, due, BYTES);
        let (topic, Entrance { url, head, .. }) = (Audience::topic(topic), &self.hub);
        let links = format!("Link: <{topic}>; rel=\"self\", <{url}>; rel=\"hub\"");
        let head = format!("{head}{links}\r\nContent-Type: {KIND}");
        let mut request = format!("{head}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        request.extend_from_slice(&body);
        let answer = exchange(&mut self.stream, &request).await?;
        if answer.status != 202 {
            return Err(format!("a post got {}", answer.status).into());
        }
        receiver.acknowledged(number);
        Ok(())
    }
}

/// Resident bytes and CPU seconds of a process until now.
pub(super) fn usage(hub: &mut HubProcess) -> Result<(u64, f64), Failure> {
    let folder = Path::new("/proc").join(hub.process().pid().to_string());
    let status = std::fs::read_to_string(folder.join("status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse()?;
    let stat = std::fs::read_to_string(folder.join("stat"))?;
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = |field: usize| after_name.split(' ').nth(field).and_then(|ticks| ticks.parse::<f64>().ok());
    // Fields 14 and 15 of the whole line; a tick is a hundredth of a second on Linux.
    let cpu = (ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) / 100.0;
    Ok((kilobytes * 1024, cpu))
}
