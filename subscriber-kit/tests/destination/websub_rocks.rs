//! The subscriber steps of websub.rocks, replayed by a harness with its rules and its habits: the hub knows a topic only
//! once it was fetched, verifies before it answers, and says `text/html` of everything.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Message, PATIENCE, get, ok, on_this_machine, post, serve_slowly, signature, status};
use resync_subscriber_kit::forward::{ForwardError, ForwardEvent, ForwardOptions, forward};
use resync_subscriber_kit::subscribe::TopicError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use url::Url;

/// What the harness does.
#[derive(Clone, Copy, Default)]
struct Step {
    /// Of the topic's page, with `{}` for the harness's address.
    headers: &'static str,
    body: &'static str,
    /// Where `/moved` leads, and with which status.
    redirect: Option<(&'static str, &'static str)>,
    /// The verification is for a topic that nobody asked for.
    is_invalid: bool,
}

/// What the harness saw of a subscription request.
#[derive(Debug)]
struct Request {
    /// The path that was posted to.
    hub: String,
    topic: String,
    callback: Url,
    secret: String,
    /// What the callback answered to the verification.
    verified: u16,
}

struct Rocks {
    address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Request>,
}

impl Rocks {
    async fn start(step: Step) -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        let is_fetched = Arc::new(AtomicBool::new(false));
        let address = serve_slowly(move |request| {
            let (sender, is_fetched) = (sender.clone(), Arc::clone(&is_fetched));
            async move { answer(&request, step, &sender, &is_fetched).await }
        })
        .await;
        Self { address, requests }
    }

    async fn request(&mut self) -> Request {
        tokio::time::timeout(PATIENCE, self.requests.recv()).await.expect("a request in time").unwrap()
    }
}

async fn answer(
    request: &Message,
    step: Step,
    sender: &mpsc::UnboundedSender<Request>,
    is_fetched: &AtomicBool,
) -> Vec<u8> {
    let host = request.header("host").unwrap();
    let filled = |text: &str| text.replace("{}", &format!("http://{host}"));
    let target = request.target().to_owned();
    if request.start.starts_with("GET") {
        is_fetched.store(true, Ordering::SeqCst);
        return match (step.redirect, target.as_str()) {
            (Some((line, to)), "/moved") => status(line, &format!("Location: {}\r\n", filled(to))),
            _ => ok(&filled(step.headers), filled(step.body).as_bytes()),
        };
    }
    match (step.redirect, target.as_str()) {
        (Some((line, to)), "/hub?redirect=true") => status(line, &format!("Location: {}\r\n", filled(to))),
        (_, "/hub") if is_fetched.load(Ordering::SeqCst) => {
            let seen = verify(request, step.is_invalid).await;
            let line = if seen.verified == 200 { "202 Accepted" } else { "400 Bad Request" };
            sender.send(seen).unwrap();
            status(line, "")
        }
        _ => status("404 Not Found", ""),
    }
}

/// Verifies before answering, as that hub does.
async fn verify(request: &Message, is_invalid: bool) -> Request {
    let parameter = |name: &str| request.parameter(name).unwrap_or_default();
    let callback = Url::parse(&parameter("hub.callback")).unwrap();
    let topic = parameter("hub.topic");
    let asked = if is_invalid { format!("{topic}?invalid") } else { topic.clone() };
    let asked: String = url::form_urlencoded::byte_serialize(asked.as_bytes()).collect();
    let query = format!(
        "hub.mode={}&hub.topic={asked}&hub.challenge=01234567890123456789&hub.lease_seconds=86400",
        parameter("hub.mode")
    );
    let answer = get(at(&callback), &format!("{}?{query}", callback.path())).await;
    let is_echoed = answer.status() == 200 && answer.text() == "01234567890123456789";
    let verified = if answer.status() == 200 && !is_echoed { 0 } else { answer.status() };
    let hub = request.target().to_owned();
    Request { hub, topic, callback, secret: parameter("hub.secret"), verified }
}

fn at(callback: &Url) -> SocketAddr {
    SocketAddr::new(callback.host_str().unwrap().parse().unwrap(), callback.port().unwrap())
}

/// The subscriber under test.
struct Subscriber {
    events: mpsc::UnboundedReceiver<ForwardEvent>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ForwardError>>,
    _state: tempfile::TempDir,
}

impl Subscriber {
    fn start(topic: String) -> Self {
        let state = tempfile::tempdir().unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let mut options = ForwardOptions::new(vec![topic], state.path());
        options.service.client = on_this_machine();
        let tell = move |event| {
            // A test that has seen enough no longer listens.
            let _ = sender.send(event);
            Ok(())
        };
        let stopped = async move {
            let _ = stopped.await;
        };
        Self { events, stop, task: tokio::spawn(forward(options, tell, stopped)), _state: state }
    }

    async fn body(&mut self) -> String {
        let notification = async {
            loop {
                if let ForwardEvent::Notification { body, .. } = self.events.recv().await.expect("it runs") {
                    return String::from_utf8(body).unwrap();
                }
            }
        };
        tokio::time::timeout(PATIENCE, notification).await.expect("a notification in time")
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.task).await.expect("it ends in time").unwrap().unwrap();
    }
}

/// Subscribes, and sees to which hub and for which topic.
async fn passes(name: &str, asked: &str, step: Step, wanted_topic: &str) {
    let mut rocks = Rocks::start(step).await;
    let own = format!("http://{}", rocks.address);
    let mut subscriber = Subscriber::start(format!("{own}{asked}"));
    let request = rocks.request().await;
    assert_eq!((request.hub.as_str(), request.verified), ("/hub", 200), "{name}: {request:?}");
    assert_eq!(request.topic, format!("{own}{wanted_topic}"), "{name}");
    let body = format!("<p>news of step {name}</p>");
    let signature = signature(&request.secret, body.as_bytes());
    let headers = [("Content-Type", "text/html"), ("X-Hub-Signature", signature.as_str())];
    let answer = post(at(&request.callback), request.callback.path(), &headers, body.as_bytes()).await;
    assert_eq!(answer.status() / 100, 2, "{name}: step 300");
    assert_eq!(subscriber.body().await, body, "{name}");
    subscriber.stop().await;
}

const LINKS: &str = "Link: <{}/hub>; rel=\"hub\", <{}/blog>; rel=\"self\"\r\n";

#[tokio::test]
async fn w004_w028_w029_w030_s100_to_s104_hub_and_topic_are_found_in_headers_html_atom_and_rss_and_headers_come_first()
 {
    let in_headers = Step { headers: LINKS, body: "<p>nothing here</p>", ..Step::default() };
    passes("100", "/blog", in_headers, "/blog").await;
    let in_html = Step {
        headers: "Content-Type: text/html\r\n",
        body: "<html><head><link rel=\"hub\" href=\"{}/hub\"><link rel=\"self\" href=\"{}/blog\"></head></html>",
        ..Step::default()
    };
    passes("101", "/blog", in_html, "/blog").await;
    let in_atom = Step {
        headers: "Content-Type: text/xml\r\n",
        body: "<feed xmlns=\"http://www.w3.org/2005/Atom\"><link rel=\"hub\" href=\"{}/hub\"/><link rel=\"self\" href=\"{}/blog\"/></feed>",
        ..Step::default()
    };
    passes("102", "/blog", in_atom, "/blog").await;
    let in_rss = Step {
        headers: "Content-Type: text/xml\r\n",
        body: "<rss xmlns:atom=\"http://www.w3.org/2005/Atom\"><channel><link>{}/</link><atom:link rel=\"hub\" href=\"{}/hub\"/>\
               <atom:link rel=\"self\" href=\"{}/blog\"/></channel></rss>",
        ..Step::default()
    };
    passes("103", "/blog", in_rss, "/blog").await;
    let both = Step {
        headers: "Content-Type: text/xml\r\nLink: <{}/hub>; rel=\"hub\", <{}/blog>; rel=\"self\"\r\n",
        body: "<feed xmlns=\"http://www.w3.org/2005/Atom\"><link rel=\"hub\" href=\"{}/hub?error=wrongtag\"/>\
               <link rel=\"self\" href=\"{}/wrong\"/></feed>",
        ..Step::default()
    };
    passes("104", "/blog", both, "/blog").await;
}

#[tokio::test]
async fn w048_w071_s200_to_s204_the_topic_is_the_one_it_says_to_be_and_redirects_of_topic_and_hub_are_followed()
 {
    let other = Step {
        headers: "Link: <{}/hub>; rel=\"hub\", <{}/blog?self=other>; rel=\"self\"\r\n",
        ..Step::default()
    };
    passes("200", "/blog", other, "/blog?self=other").await;
    for (name, line) in [("201", "302 Found"), ("202", "301 Moved Permanently")] {
        let moved = Step {
            headers: "Link: <{}/hub>; rel=\"hub\", <{}/blog?redirect=complete>; rel=\"self\"\r\n",
            redirect: Some((line, "{}/blog?redirect=complete")),
            ..Step::default()
        };
        passes(name, "/moved", moved, "/blog?redirect=complete").await;
    }
    for (name, line) in [("203", "307 Temporary Redirect"), ("204", "308 Permanent Redirect")] {
        let moved_hub = Step {
            headers: "Link: <{}/hub?redirect=true>; rel=\"hub\", <{}/blog>; rel=\"self\"\r\n",
            redirect: Some((line, "{}/hub")),
            ..Step::default()
        };
        passes(name, "/blog", moved_hub, "/blog").await;
    }
}

#[tokio::test]
async fn w115_w117_s205_the_verification_of_a_topic_that_nobody_asked_for_is_404() {
    let mut rocks = Rocks::start(Step { headers: LINKS, is_invalid: true, ..Step::default() }).await;
    let subscriber = Subscriber::start(format!("http://{}/blog", rocks.address));
    assert_eq!(rocks.request().await.verified, 404);
    // The hub refuses for good after that, and so does the subscriber.
    let ended = tokio::time::timeout(PATIENCE, subscriber.task).await.unwrap().unwrap();
    assert!(matches!(ended, Err(ForwardError::Topic(TopicError::Subscribe { .. }))), "{ended:?}");
}

#[tokio::test]
async fn w007_w020_w171_w193_s301_s302_a_wrong_or_missing_signature_is_refused_and_its_content_ignored() {
    let mut rocks = Rocks::start(Step { headers: LINKS, ..Step::default() }).await;
    let mut subscriber = Subscriber::start(format!("http://{}/blog", rocks.address));
    let request = rocks.request().await;
    let deliver = async |signature: Option<String>, body: &str| {
        let mut headers = vec![("Content-Type", "text/html")];
        headers.extend(signature.as_deref().map(|signature| ("X-Hub-Signature", signature)));
        post(at(&request.callback), request.callback.path(), &headers, body.as_bytes()).await.status()
    };
    let right = signature(&request.secret, b"forged");
    assert_eq!(deliver(Some(format!("{right}1234")), "forged").await / 100, 4, "301");
    assert_eq!(deliver(None, "forged").await / 100, 4, "302");
    assert_eq!(deliver(Some(signature(&request.secret, b"genuine")), "genuine").await / 100, 2);
    assert_eq!(subscriber.body().await, "genuine", "the others were ignored");
    subscriber.stop().await;
}
