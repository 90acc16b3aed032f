//! Many clients of one hub, which it knows by what a proxy says.

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};

use url::form_urlencoded::Serializer;

use super::process::HubProcess;
use super::raw::{Answer, post};

/// Has a hub stand behind a proxy, as an operator runs it.
pub const PROXY: (&str, &str) = ("INGRESS_TRUSTED_PROXIES", "[\"127.0.0.1/32\"]");

/// The address of a client by its number.
pub fn client(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(192, 0, 2, 0).to_bits() + number)
}

/// Posts a form to `/websub/` as this client.
///
/// # Panics
/// When there is no answer.
pub async fn ask_as(hub: SocketAddr, client: impl Display, parameters: &[(&str, &str)]) -> Answer {
    let client = client.to_string();
    let headers =
        [("Content-Type", "application/x-www-form-urlencoded"), ("X-Forwarded-For", client.as_str())];
    let body = Serializer::new(String::new()).extend_pairs(parameters).finish();
    post(hub, &headers, body.as_bytes()).await.expect("the hub answers")
}

/// Asks for a subscription as this client.
///
/// # Panics
/// When there is no answer.
pub async fn subscribe_as(hub: &HubProcess, client: impl Display, topic: &str, callback: &str) -> Answer {
    let parameters = [("hub.mode", "subscribe"), ("hub.topic", topic), ("hub.callback", callback)];
    ask_as(hub.address, client, &parameters).await
}

/// Pings the hub about a topic as this client.
///
/// # Panics
/// When it is not accepted.
pub async fn ping_as(hub: &HubProcess, client: impl Display, topic: &str) {
    let answer = ask_as(hub.address, client, &[("hub.mode", "publish"), ("hub.url", topic)]).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
}
