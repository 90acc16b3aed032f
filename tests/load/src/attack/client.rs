//! Clients of the hub at addresses of their own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;
use url::form_urlencoded::Serializer;

use crate::wire::{connect, exchange};

/// A client whose request was refused comes again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A client that keeps its connection.
pub(super) struct Client {
    from: IpAddr,
    hub: SocketAddr,
    kept: Option<TcpStream>,
}

impl Client {
    pub(super) fn new(from: IpAddr, hub: SocketAddr) -> Self {
        Self { from, hub, kept: None }
    }

    /// The status of the answer, if there is one.
    pub(super) async fn send(&mut self, request: &[u8]) -> Option<u16> {
        let mut stream = match self.kept.take() {
            Some(stream) => stream,
            None => connect(self.from, self.hub).await.ok()?,
        };
        let answer = exchange(&mut stream, request).await.ok()?;
        self.kept = answer.again.then_some(stream);
        Some(answer.status)
    }

    /// The same for a form.
    pub(super) async fn form(&mut self, parameters: &[(&str, &str)]) -> Option<u16> {
        let body = Serializer::new(String::new()).extend_pairs(parameters).finish();
        self.send(&request(FORM, &body)).await
    }

    /// Asks for a subscription, once.
    pub(super) async fn ask(&mut self, topic: &str, callback: &str, secret: &str) -> Option<u16> {
        let mut parameters =
            vec![("hub.mode", "subscribe"), ("hub.topic", topic), ("hub.callback", callback)];
        parameters.extend((!secret.is_empty()).then_some(("hub.secret", secret)));
        self.form(&parameters).await
    }

    /// Asks for a subscription until the hub takes the request.
    pub(super) async fn subscribe(&mut self, topic: &str, callback: &str, secret: &str) {
        while self.ask(topic, callback, secret).await != Some(202) {
            sleep(AGAIN_AFTER).await;
        }
    }
}

/// The header of a form, as far as it does not depend on its content.
pub(super) const FORM: &str = "POST /websub/ HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded";

pub(super) fn request(head: &str, body: &str) -> Vec<u8> {
    format!("{head}\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A query of what is there: path and query.
pub(super) fn query_of(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes()
}

/// The n-th address of 127.`net`/16, close to those before it: one network (/24) has 250 of them.
pub(super) fn close(net: u8, number: usize) -> IpAddr {
    address(net, number / 250, number % 250)
}

/// The n-th address of 127.`net`/16, in another network (/24) than the 249 before it.
pub(super) fn apart(net: u8, number: usize) -> IpAddr {
    address(net, number % 250, number / 250)
}

fn address(net: u8, network: usize, host: usize) -> IpAddr {
    let part = |value: usize| u8::try_from(value % 250).unwrap_or(u8::MAX);
    IpAddr::V4(Ipv4Addr::new(127, net, part(network), 1 + part(host)))
}
