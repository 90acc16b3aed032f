//! A hub in a process of its own with many subscriptions: how these are made, what is posted, and what the process takes.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::future::try_join_all;
use tokio::net::TcpStream;
use url::form_urlencoded::Serializer;

use super::Failure;
use super::audience::Audience;
use super::check::KIND;
use super::receiver::{Receiver, secret};
use super::wire::{connect, exchange};
use resync_harness::HubProcess;

/// Connections over which subscriptions are made.
const SUBSCRIBING: usize = 16;
/// How many of them may wait to be verified.
const AHEAD: u64 = 4_096;

/// Bytes of a notification.
const BYTES: u32 = 1_000;

impl Audience {
    /// Subscribes all of them over HTTP, each with a secret of its own and verified by the hub, which receivers expect from now on.
    pub(super) async fn subscribe(&self, hub: &HubProcess, receiver: &Receiver) -> Result<(), Failure> {
        receiver.link_to(&hub.url());
        let (next, before) = (AtomicUsize::new(0), receiver.verified());
        let one = || async {
            let mut stream = connect(IpAddr::V4(Ipv4Addr::LOCALHOST), hub.address).await?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.subscriptions() {
                    return Ok::<_, Failure>(());
                }
                receiver.until_verified((before + number as u64).saturating_sub(AHEAD)).await?;
                let body = Serializer::new(String::new())
                    .append_pair("hub.mode", "subscribe")
                    .append_pair("hub.topic", &Self::topic(self.topic_of(number)))
                    .append_pair("hub.callback", &receiver.url(number))
                    .append_pair("hub.secret", &secret(number))
                    .finish();
                let head =
                    "POST /websub/ HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded";
                let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                let answer = exchange(&mut stream, request.as_bytes()).await?;
                if answer.status != 202 {
                    return Err(format!("a request to subscribe got {}", answer.status).into());
                }
            }
        };
        try_join_all((0..SUBSCRIBING).map(|_| one())).await?;
        receiver.until_verified(before + self.subscriptions() as u64).await?;
        hub.until_subscribed(self.subscriptions()).await;
        Ok(())
    }
}

/// A publisher with one connection.
pub(super) struct Publisher {
    hub: String,
    stream: TcpStream,
}

impl Publisher {
    pub(super) async fn to(hub: &HubProcess) -> Result<Self, Failure> {
        Ok(Self { hub: hub.url(), stream: connect(IpAddr::V4(Ipv4Addr::LOCALHOST), hub.address).await? })
    }

    /// A notification to this topic that is due at this moment; returns once the hub has acknowledged it.
    pub(super) async fn post(
        &mut self,
        receiver: &Receiver,
        topic: usize,
        due: Instant,
    ) -> Result<(), Failure> {
        let (number, body) = receiver.notification(topic, due, BYTES);
        let links = format!("Link: <{}>; rel=\"self\", <{}>; rel=\"hub\"", Audience::topic(topic), self.hub);
        let head = format!("POST /websub/ HTTP/1.1\r\nHost: h\r\n{links}\r\nContent-Type: {KIND}");
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
