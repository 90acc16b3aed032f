//! A flood of requests that the hub must refuse.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use super::client::{Client, FORM, close, request};
use super::siege::Siege;

const NET: u8 = 2;
/// Addresses that the flood comes from.
const CLIENTS: u32 = 200;

/// So many a second.
pub(super) fn begin(siege: &Arc<Siege>, per_second: u32, attackers: &mut JoinSet<()>) {
    if per_second == 0 {
        return;
    }
    let pause = Duration::from_secs(1) * CLIENTS / per_second;
    for (number, _) in (0..).zip(0..CLIENTS) {
        let siege = Arc::clone(siege);
        attackers.spawn(async move { flood(&siege, number, pause).await });
    }
}

/// A client that sends one bad request after the other.
async fn flood(siege: &Siege, number: usize, pause: Duration) {
    let named = BAD.iter().map(|(head, body)| request(head, body));
    let requests: Vec<_> = named.chain([many_topics()]).collect();
    let (mut ticks, mut client) = (interval(pause), Client::new(close(NET, number), siege.hub));
    sleep(pause.mul_f64(fastrand::f64())).await;
    for request in requests.iter().cycle().skip(number) {
        ticks.tick().await;
        if let Some(status) = client.send(request).await {
            siege.answered(status);
        }
    }
}

/// Header and body, each refused by a later check than the one before.
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
