//! Which topics this hub serves: any, or only its own (D-13).

use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use resync_core::websub::TopicUrl;
use tracing::debug;

use super::discover::discover_in;
use super::get::{Fetched, TopicClient, Unfetched};
use super::places::{Bounds, Lane, Places, Share};
use super::prefixes::Prefixes;
use crate::egress::{EgressError, Unmeasured};
use crate::subscriptions::{TopicPolicy, Verdict};

/// Topics looked at at once, and of one host.
const CHECKS: Bounds =
    Bounds { all: Share { most: 32, strangers: 32 }, here: Share { most: 2, strangers: 2 } };
/// How much of a topic is read: what it says of itself stands at its beginning (W-026). So few are read at once that this needs
/// no budget.
const LOOKED_THROUGH: usize = 512 * 1024;
/// All that is said of a topic that could not be looked at. It goes to a stranger's callback, which must not learn from it what
/// there is in this hub's network (D-20); the log says more.
const UNSEEN: &str = "this hub serves topics that name it, and whether this one does cannot be seen";

/// A hub for topics that name it, or that lie below allowed prefixes.
#[derive(Clone, Debug)]
pub struct ClosedHub {
    allowed: Prefixes,
    client: TopicClient,
    hub_url: Arc<str>,
    checks: Places,
}

impl ClosedHub {
    /// Topics below `allowed` are served unasked; others are asked whether they name `hub_url`.
    pub fn new(allowed: Prefixes, client: TopicClient, hub_url: Arc<str>) -> Self {
        let client = client.beginnings(LOOKED_THROUGH);
        Self { allowed, client, hub_url, checks: Places::new(CHECKS) }
    }

    /// The verdict on a topic that was looked at.
    async fn read(&self, topic: &TopicUrl, fetched: &Fetched) -> Verdict {
        let found = discover_in(fetched).await;
        let same = |named: &String| named.trim_end_matches('/') == self.hub_url.trim_end_matches('/');
        if !found.hubs.iter().any(same) {
            return Verdict::Refused(format!(
                "the topic does not name this hub: it has no link with rel=\"hub\" to {}",
                self.hub_url
            ));
        }
        let canonical = found.canonical.and_then(|url| TopicUrl::parse(&url).ok());
        canonical.filter(|canonical| canonical != topic).map_or(Verdict::Accepted, |canonical| {
            Verdict::Refused(format!(
                "the topic names another URL as its own (rel=\"self\"): subscribe to {}",
                canonical.as_str()
            ))
        })
    }
}

#[async_trait]
impl TopicPolicy for ClosedHub {
    async fn judge(&self, topic: &TopicUrl) -> Verdict {
        if self.allowed.cover(topic) {
            return Verdict::Accepted;
        }
        let host = topic.url().host_str().unwrap_or_default();
        let Some(_place) = self.checks.place(host, Lane::Stranger).await else {
            return Verdict::Unknown;
        };
        match self.client.get(topic.url(), None, &mut Unmeasured).await {
            Ok(Some(fetched)) => self.read(topic, &fetched).await,
            Ok(None) => Verdict::Refused(UNSEEN.to_owned()),
            Err(error) => {
                debug!(topic = topic.as_str(), %error, "whether the topic names this hub cannot be seen");
                if may_pass(&error) { Verdict::Unknown } else { Verdict::Refused(UNSEEN.to_owned()) }
            }
        }
    }
}

/// Whether it may be otherwise soon. Only an answer is final: whether there is none for want of a name, of a server or of a
/// permission to connect makes no difference to whoever asks.
fn may_pass(error: &Unfetched) -> bool {
    match error {
        Unfetched::Egress(error) => !matches!(error, EgressError::TooLarge(_) | EgressError::Compressed),
        Unfetched::Status(status) => {
            status.is_server_error()
                || matches!(
                    *status,
                    StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
                )
        }
        Unfetched::Redirects | Unfetched::Redirect(_) | Unfetched::Request(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::egress::{EgressClient, Guard};

    /// A topic that always gives this answer.
    async fn topic(answer: &'static str) -> TopicUrl {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        format!("http://{address}/").parse().unwrap()
    }

    fn hub(open_to: &[&str]) -> ClosedHub {
        let second = Duration::from_secs(1);
        let client = TopicClient::new(EgressClient::new(Guard::open_to(open_to), second, second, 1), 4_096);
        ClosedHub::new(Prefixes::default(), client, "http://hub.example/".into())
    }

    #[tokio::test]
    async fn w062_what_may_pass_refuses_nothing() {
        let hub = hub(&["127.0.0.0/8"]);
        for status in ["408 Timeout", "425 Early", "429 Many", "500 Error", "502 Gateway", "503 Busy"] {
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").leak();
            assert_eq!(hub.judge(&topic(answer).await).await, Verdict::Unknown, "{status}");
        }
        assert_eq!(hub.judge(&topic("").await).await, Verdict::Unknown, "a connection that breaks");
        assert_eq!(hub.judge(&topic("HTTP/1.1 200 OK\r\n").await).await, Verdict::Unknown, "no end");
        assert_eq!(
            hub.judge(&"http://127.0.0.1:1/".parse().unwrap()).await,
            Verdict::Unknown,
            "nobody there"
        );
    }

    #[tokio::test]
    async fn d20_of_a_topic_that_cannot_be_looked_at_nobody_learns_why() {
        let hub = hub(&["127.0.0.0/8"]);
        for answer in [
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 302 Found\r\nLocation: ftp://10.1.2.3/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        ] {
            assert_eq!(hub.judge(&topic(answer).await).await, Verdict::Refused(UNSEEN.into()), "{answer}");
        }
    }

    #[tokio::test]
    async fn d20_an_address_that_may_not_be_contacted_looks_like_one_where_nobody_is() {
        let hub = hub(&[]);
        assert_eq!(hub.judge(&"http://10.1.2.3/".parse().unwrap()).await, Verdict::Unknown);
    }

    #[tokio::test]
    async fn a_check_takes_no_more_of_the_memory_for_bodies_than_a_pages_beginning() {
        let second = Duration::from_secs(1);
        let client = EgressClient::new(Guard::open_to(&["127.0.0.0/8"]), second, second, 1);
        let client = TopicClient::new(client, 64 * LOOKED_THROUGH);
        let hub = ClosedHub::new(Prefixes::default(), client, "http://hub.example/".into());
        let endless = format!(
            "HTTP/1.1 200 OK\r\nLink: <http://hub.example/>; rel=hub\r\nContent-Length: {}\r\n\r\n{}",
            64 * LOOKED_THROUGH,
            "x".repeat(LOOKED_THROUGH)
        );
        assert_eq!(hub.judge(&topic(endless.leak()).await).await, Verdict::Accepted);
    }
}
