//! Getting a topic: a GET that follows redirects within bounds, and asks only for what is new.

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, USER_AGENT,
};
use http::{HeaderName, HeaderValue, Request, StatusCode, request};
use http_body_util::Full;
use ipnet::IpNet;
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use url::Url;

use crate::egress::{self, Answer, EgressClient, EgressError, ReadLimit, RedirectError, Room};
use crate::store::{Offset, Validators};

/// Redirects followed, each of which the address guard judges anew.
const REDIRECTS: usize = 5;

/// Gets topics.
#[derive(Clone, Debug)]
pub struct TopicClient {
    client: EgressClient,
    largest: usize,
    limit: ReadLimit,
}

/// A topic's content with the address where it finally was.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) url: Url,
    pub(super) answer: Answer,
}

/// Why a topic has no content now.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfetched {
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("the topic answered {0} instead of 200")]
    Status(StatusCode),
    #[error("more than {REDIRECTS} redirects")]
    Redirects,
    #[error(transparent)]
    Redirect(#[from] RedirectError),
    #[error("the topic cannot be asked for: {0}")]
    Request(#[from] http::Error),
}

impl TopicClient {
    /// `largest` bounds a topic's size in bytes.
    pub fn new(client: EgressClient, largest: usize) -> Self {
        Self { client, largest, limit: ReadLimit::Keep(largest) }
    }

    /// The same, but of a topic's content only so many bytes from the beginning are kept.
    #[must_use]
    pub(super) fn beginnings(self, bytes: usize) -> Self {
        let largest = self.largest.min(bytes);
        Self { largest, limit: ReadLimit::First(largest), ..self }
    }

    /// Where on the network this topic is, if its name can be resolved and may be contacted.
    pub(super) async fn network(&self, topic: &Url) -> Option<IpNet> {
        self.client.network(topic).await
    }

    /// The topic's content, kept in `room`; `None` when it says that this is what `known` is about. Only a 200 is content
    /// (D-11). All redirects together have the time of one request.
    pub(super) async fn get(
        &self,
        topic: &Url,
        known: Option<&Validators>,
        room: &mut impl Room,
    ) -> Result<Option<Fetched>, Unfetched> {
        let limit = self.client.total();
        let fetched = timeout(limit, self.follow(topic, known, room)).await;
        fetched.map_err(|_| EgressError::Timeout(limit))?
    }

    async fn follow(
        &self,
        topic: &Url,
        known: Option<&Validators>,
        room: &mut impl Room,
    ) -> Result<Option<Fetched>, Unfetched> {
        let mut url = topic.clone();
        for _ in 0..=REDIRECTS {
            let known = known.filter(|known| known.url == url.as_str());
            let request = asking(&url, known).body(Full::new(Bytes::new()))?;
            let answer = self.client.send_into(request, self.limit, room).await?;
            match answer.status {
                StatusCode::OK => return Ok(Some(Fetched { url, answer })),
                StatusCode::NOT_MODIFIED if known.is_some() => return Ok(None),
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT => url = egress::redirect(&url, &answer.headers)?,
                status => return Err(Unfetched::Status(status)),
            }
        }
        Err(Unfetched::Redirects)
    }
}

impl Fetched {
    /// What the topic says about this content, which the log has at this offset.
    pub(super) fn validators(&self, offset: Offset) -> Validators {
        let value = |name: HeaderName| {
            self.answer.headers.get(name).map(|value| Bytes::copy_from_slice(value.as_bytes()))
        };
        Validators {
            offset,
            url: self.url.to_string(),
            etag: value(ETAG),
            last_modified: value(LAST_MODIFIED),
            digest: Sha256::digest(&self.answer.body).into(),
        }
    }
}

/// No cache between here and the topic may answer with what it had before the change (w3c/websub#84).
fn asking(url: &Url, known: Option<&Validators>) -> request::Builder {
    let mut request = Request::get(url.as_str())
        .header(ACCEPT, "*/*")
        .header(CACHE_CONTROL, "no-cache")
        .header(USER_AGENT, egress::USER_AGENT);
    let validators = known
        .into_iter()
        .flat_map(|known| [(IF_NONE_MATCH, &known.etag), (IF_MODIFIED_SINCE, &known.last_modified)]);
    for (name, value) in validators {
        // What came as a header value can go as one.
        if let Some(value) = value.as_ref().and_then(|value| HeaderValue::from_bytes(value).ok()) {
            request = request.header(name, value);
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    use super::*;
    use crate::egress::{Guard, Unmeasured};

    #[tokio::test]
    async fn d11_all_redirects_together_have_the_time_of_one_request() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let topic: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                // A host that is in no hurry.
                sleep(Duration::from_millis(300)).await;
                let _ = stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
            }
        });
        let second = Duration::from_secs(1);
        let client = EgressClient::new(Guard::open_to(&["127.0.0.0/8"]), second, second, 1);
        let fetched = TopicClient::new(client, 1_024).get(&topic, None, &mut Unmeasured).await;
        assert!(matches!(fetched, Err(Unfetched::Egress(EgressError::Timeout(_)))), "{fetched:?}");
    }
}
