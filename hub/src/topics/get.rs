//! Getting a topic: a GET that follows redirects within bounds, and asks only for what is new.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, USER_AGENT,
};
use http::{HeaderName, HeaderValue, Request, StatusCode, request};
use http_body_util::Full;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::egress::{self, Answer, EgressClient, EgressError, ReadLimit, RedirectError, Room};
use crate::places::Place;
use crate::store::Validators;

/// Redirects followed, each of which the address guard judges anew.
const REDIRECTS: u32 = 5;
const REQUESTS: u32 = REDIRECTS + 1;

/// The longest `ETag` and `Last-Modified` that are kept: with one that is longer the topic is asked as if it had none.
const LONGEST_VALIDATOR: usize = 256;

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
    /// Who was asked first, and may have sent the hub elsewhere.
    pub(super) from: IpAddr,
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

    /// Where on the network this URL leads: names cost nothing, so that the address counts, if there is one to contact.
    pub(super) async fn whereabouts(&self, url: &Url) -> String {
        match self.client.network(url).await {
            Some(network) => network.to_string(),
            None => url.host_str().unwrap_or_default().to_owned(),
        }
    }

    /// The topic's content, kept in `room`; `None` when it says that this is what `known` is about. Only a 200 is content
    /// (D-11). All redirects together have the time of one request, in which they wait for a place where they lead.
    pub(super) async fn get(
        &self,
        topic: &Url,
        known: Option<&Validators>,
        room: &mut impl Room,
        place: &mut Place,
    ) -> Result<Option<Fetched>, Unfetched> {
        let limit = self.client.total();
        let (deadline, late) = (Instant::now() + limit, || EgressError::Timeout(limit));
        let (mut url, mut from) = (topic.clone(), None);
        for _ in 0..REQUESTS {
            let known = known.filter(|known| known.url == url.as_str());
            let request = asking(&url, known).body(Full::new(Bytes::new()))?;
            let asked_at = Instant::now();
            let answer = timeout_at(deadline, self.client.send_into(request, self.limit, room)).await;
            let answer = answer.unwrap_or_else(|_| Err(late()));
            note(&answer, asked_at.elapsed() >= limit / REQUESTS, place);
            let answer = answer?;
            let from = *from.get_or_insert(answer.peer);
            match answer.status {
                StatusCode::OK => return Ok(Some(Fetched { url, from, answer })),
                StatusCode::NOT_MODIFIED if known.is_some() => return Ok(None),
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT => url = egress::redirect(&url, &answer.headers)?,
                status => return Err(Unfetched::Status(status)),
            }
            let moved = async { place.move_to(&self.whereabouts(&url).await).await };
            timeout_at(deadline, moved).await.map_err(|_| late())?;
        }
        Err(Unfetched::Redirects)
    }
}

impl Fetched {
    /// What the topic says about this content.
    pub(super) fn validators(&self) -> Validators {
        let value = |name: HeaderName| {
            let value = self.answer.headers.get(name).map(HeaderValue::as_bytes);
            value.filter(|value| value.len() <= LONGEST_VALIDATOR).map(Bytes::copy_from_slice)
        };
        Validators {
            url: self.url.to_string(),
            etag: value(ETAG),
            last_modified: value(LAST_MODIFIED),
            digest: Sha256::digest(&self.answer.body).into(),
        }
    }
}

/// Remembers whether the hub waited here in vain: not where the time was used up before, but where the answer that leads on
/// took more of it than its part.
fn note(answer: &Result<Answer, EgressError>, long: bool, place: &Place) {
    match answer {
        Ok(answer) => place.note_slow(long && answer.status.is_redirection()),
        Err(EgressError::Timeout(_)) if long => place.note_slow(true),
        Err(_) => {}
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
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::egress::{Guard, Unmeasured};
    use crate::places::{Asker, Bounds, Lane, Places, Share, Slow};

    const SHORT: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(300);

    fn client(total: Duration) -> TopicClient {
        TopicClient::new(EgressClient::new(Guard::open_to(&["127.0.0.0/8"]), SHORT, total, 1), 1_024)
    }

    fn places() -> Places {
        let one = Share { most: 1, strangers: 1 };
        let slow = Slow { known: 9, strangers: 9 };
        Places::new(Bounds { all: Share { most: 9, strangers: 9 }, slow, here: one, client: None })
    }

    async fn place(places: &Places, topic: &Url) -> Place {
        let here = client(SHORT).whereabouts(topic).await;
        places.place(Asker { client: None, lane: Lane::Stranger }, &here).await
    }

    async fn get(places: &Places, topic: &Url, total: Duration) -> Result<Option<Fetched>, Unfetched> {
        client(total).get(topic, None, &mut Unmeasured, &mut place(places, topic).await).await
    }

    /// A host at this address that sends everybody to this URL.
    async fn sending(address: &str, to: &Url) -> Url {
        sending_after(Duration::ZERO, address, to).await
    }

    async fn sending_after(pause: Duration, address: &str, to: &Url) -> Url {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                sleep(pause).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        url
    }

    #[tokio::test]
    async fn b33_who_dawdles_before_it_sends_the_hub_elsewhere_is_slow_and_not_whoever_is_there() {
        let listener = TcpListener::bind("127.0.9.1:0").await.unwrap();
        let victim: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        // Wide enough that no delay of this machine looks like waiting for the victim.
        let total = 3 * SHORT;
        let detour = sending_after(total.mul_f32(0.95), "127.0.8.1", &victim).await;
        let places = places();
        let late = get(&places, &detour, total).await;
        assert!(matches!(late, Err(Unfetched::Egress(EgressError::Timeout(_)))), "{late:?}");
        assert!(!place(&places, &victim).await.is_slow());
        assert!(place(&places, &detour).await.is_slow());
    }

    #[tokio::test]
    async fn b33_a_redirect_waits_for_a_place_where_it_leads() {
        let listener = TcpListener::bind("127.0.9.1:0").await.unwrap();
        let victim: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let detour = sending("127.0.8.1", &victim).await;
        let places = places();
        let taken = place(&places, &victim).await;
        let late = get(&places, &detour, SHORT).await;
        assert!(matches!(late, Err(Unfetched::Egress(EgressError::Timeout(_)))), "{late:?}");
        let contacted = timeout(Duration::ZERO, listener.accept()).await;
        assert!(contacted.is_err(), "all places there were taken");
        drop(taken);
        let contacted = tokio::select! {
            contacted = listener.accept() => contacted,
            found = get(&places, &detour, LONG) => panic!("{found:?} without asking"),
        };
        assert!(contacted.is_ok());
    }

    #[tokio::test]
    async fn whoever_sends_the_hub_elsewhere_is_where_the_content_is_from() {
        let listener = TcpListener::bind("127.0.9.1:0").await.unwrap();
        let victim: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmuch").await.unwrap();
        });
        let detour = sending("127.0.8.1", &victim).await;
        let fetched = get(&places(), &detour, LONG).await.unwrap().unwrap();
        assert_eq!((fetched.url, fetched.from), (victim, IpAddr::from([127, 0, 8, 1])));
    }

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
        let fetched = get(&places(), &topic, SHORT).await;
        assert!(matches!(fetched, Err(Unfetched::Egress(EgressError::Timeout(_)))), "{fetched:?}");
    }
}
