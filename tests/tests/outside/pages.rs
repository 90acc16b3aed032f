//! The operator's pages: nobody else gets in, nobody else's words become markup, and everything works without a script.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use std::{env, fs};

use resync_harness::{
    Answer, BROWSER, HubProcess, OPERATOR_PAGES, Receiver, Reply, eventually, post, refusing, request,
};
use serde::Serialize;
use serde_json::Value;
use tempfile::tempdir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::form_urlencoded;

const TOPIC: &str = "http://example.com/set1/framework/";
/// The field of a form that proves that it is of the session.
const CSRF_FIELD: &str = "csrf_token";
/// What a page may weigh with all that belongs to it.
const HEAVIEST: u64 = 100_000;

/// A browser without scripts that knows one hub.
struct Browser {
    hub: SocketAddr,
    cookie: String,
}

impl Browser {
    /// In a session of the hub's operator.
    async fn log_in(hub: &HubProcess) -> Self {
        Self { hub: hub.admin_address(), cookie: hub.log_in().await }
    }

    async fn open(&self, path: &str) -> Answer {
        let bytes = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\nConnection: close\r\n\r\n",
            self.hub, self.cookie
        );
        request(self.hub, bytes.as_bytes()).await.unwrap()
    }

    /// The text of a page that is there.
    async fn read(&self, path: &str) -> String {
        let answer = self.open(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    /// What is fetched with a page: its style, its script, its icon.
    async fn parts(&self, page: &str) -> usize {
        let (head, _) = page.split_once("</head>").unwrap();
        let (mut bytes, mut count) = (0, 0);
        for part in ["src=\"", "href=\""].iter().flat_map(|mark| head.split(mark).skip(1)) {
            bytes += self.read(part.split('"').next().unwrap()).await.len();
            count += 1;
        }
        assert!(count >= 3, "{head}");
        bytes
    }

    async fn send(&self, path: &str, fields: &[(&str, &str)], headers: &str) -> Answer {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let bytes = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\nConnection: close\r\n{headers}\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            self.hub,
            self.cookie,
            body.len()
        );
        request(self.hub, bytes.as_bytes()).await.unwrap()
    }

    /// The CSRF token that forms of this session carry.
    async fn csrf_token(&self) -> String {
        value_of(&self.read("/publishers").await, CSRF_FIELD)
    }

    /// Sends a form as a browser does and reads the page that follows.
    async fn act(&self, fields: &[(&str, &str)]) -> String {
        let token = self.csrf_token().await;
        let all: Vec<_> = fields.iter().copied().chain([(CSRF_FIELD, token.as_str())]).collect();
        let headers = format!("Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", self.hub);
        let answer = self.send("/act", &all, &headers).await;
        assert_eq!(answer.status, 303, "{}", answer.text());
        self.read(answer.header("location").unwrap()).await
    }
}

fn value_of(page: &str, name: &str) -> String {
    let (_, rest) =
        page.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("{name}: {page}"));
    rest.split('"').next().unwrap().to_owned()
}

async fn first_subscription(hub: &HubProcess) -> Value {
    let page: Value = serde_json::from_slice(&hub.admin("/api/v1/subscriptions").await.body).unwrap();
    page["items"][0].clone()
}

#[tokio::test]
async fn nobody_gets_in_without_the_token_and_the_cookie_opens_no_api() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let stranger = Browser { hub: hub.admin_address(), cookie: String::new() };
    for cookie in ["", "resync-hub-0=guess"] {
        let stranger = Browser { cookie: cookie.to_owned(), ..stranger };
        let one = [
            "/topics/0000000000000007",
            "/topics/0000000000000007/notifications/1/content",
            "/subscriptions/7",
        ];
        for path in OPERATOR_PAGES.iter().chain(&one).chain(&["/events"]) {
            let answer = stranger.open(path).await;
            assert_eq!((answer.status, answer.header("location")), (303, Some("/login")), "{path}");
            assert!(answer.body.is_empty());
        }
        for path in ["/act", "/publishers", "/logout"] {
            assert_eq!(
                stranger.send(path, &[("act", "pause"), ("topic", TOPIC)], "").await.status,
                303,
                "{path}"
            );
        }
    }
    let wrong = stranger.send("/login", &[("token", "wrong")], "").await;
    assert!(wrong.status == 403 && wrong.header("set-cookie").is_none(), "{}", wrong.text());

    let browser = Browser::log_in(&hub).await;
    assert_eq!(browser.open("/api/v1/status").await.status, 401, "the API takes the token only");
    let token = browser.csrf_token().await;
    assert_eq!(browser.send("/logout", &[(CSRF_FIELD, &token)], "").await.status, 303);
    assert_eq!(browser.open("/").await.status, 303, "the session has ended");
}

#[tokio::test]
async fn a_login_that_is_tried_too_often_refuses_what_is_wrong_and_opens_to_the_token() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let stranger = Browser { hub: hub.admin_address(), cookie: String::new() };
    let guess =
        b"GET /api/v1/status HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer guess\r\nConnection: close\r\n\r\n";
    let mut statuses = BTreeMap::<u16, u32>::new();
    for _ in 0..200 {
        *statuses.entry(stranger.send("/login", &[("token", "guess")], "").await.status).or_default() += 1;
        let by_api = request(hub.admin_address(), guess).await.unwrap();
        assert!(by_api.status == 401 || by_api.header("retry-after").is_some(), "{}", by_api.text());
        *statuses.entry(by_api.status + 1_000).or_default() += 1;
        assert_eq!(hub.admin("/api/v1/status").await.status, 200, "from the very address of the guesses");
    }
    assert!(statuses[&403] >= 30 && statuses[&429] >= 1, "{statuses:?}");
    assert!(statuses[&1_401] >= 30 && statuses[&1_429] >= 1, "one bound for login and API: {statuses:?}");
    assert_eq!(Browser::log_in(&hub).await.open("/").await.status, 200);
}

#[tokio::test]
async fn a_form_that_another_site_sends_does_nothing() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    hub.publish(TOPIC, "news").await.unwrap();
    let browser = Browser::log_in(&hub).await;
    let csrf_token = browser.csrf_token().await;
    let pause = |csrf_token| [("act", "pause"), ("topic", TOPIC), (CSRF_FIELD, csrf_token)];
    let other = "0".repeat(64);
    for (csrf_token, headers) in [
        ("", ""),
        (other.as_str(), ""),
        (csrf_token.as_str(), "Origin: http://evil.example\r\n"),
        (csrf_token.as_str(), "Origin: null\r\n"),
        (csrf_token.as_str(), "Sec-Fetch-Site: cross-site\r\n"),
        (csrf_token.as_str(), "Sec-Fetch-Site: same-site\r\n"),
    ] {
        assert_eq!(browser.send("/act", &pause(csrf_token), headers).await.status, 403, "{headers}");
    }
    let token = fs::read_to_string(folder.path().join("admin-token")).unwrap();
    let foreign = browser.send("/login", &[("token", token.trim())], "Origin: http://evil.example\r\n").await;
    assert!(foreign.status == 403 && foreign.header("set-cookie").is_none());
    assert_eq!(hub.admin("/api/v1/deliveries/paused").await.text().trim(), "[]");
    assert_eq!(browser.send("/act", &pause(&csrf_token), "").await.status, 303);
    assert!(hub.admin("/api/v1/deliveries/paused").await.text().contains(TOPIC));
}

#[tokio::test]
async fn every_page_keeps_everything_foreign_out() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let browser = Browser::log_in(&hub).await;
    let others = [
        "/login",
        "/elsewhere",
        "/topics/0",
        "/subscriptions/7",
        "/topics?sort=x",
        "/subscriptions?only=x",
        "/deliveries?limit=x",
        "/topics/0/notifications/x",
        "/api/v1/status",
    ];
    for path in OPERATOR_PAGES.iter().chain(&others) {
        let answer = browser.open(path).await;
        let policy = answer.header("content-security-policy").unwrap();
        for part in ["default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"]
        {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        let page = answer.text();
        for attribute in ["src=\"", "href=\"", "action=\""] {
            for target in page.split(attribute).skip(1) {
                assert!(
                    target.starts_with('/') || target.starts_with('#'),
                    "{path}: {attribute}{target:.40}"
                );
            }
        }
        assert!(!page.contains(" style=") && !page.contains(" onclick="), "{path}");
    }
}

/// Publishers and subscribers choose topics, types and names: whoever looks at them must not run what they wrote.
#[tokio::test]
async fn what_strangers_wrote_is_text_on_every_page() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let evil = "<script>alert(1)</script>";
    let topic = "http://example.com/?q='\"&<b>";
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let kind = format!("text/plain; x=\"{evil}\"");
    assert_eq!(
        post(hub.address, &[("Content-Type", &kind), ("Link", &link)], b"x").await.unwrap().status,
        202
    );
    let destination = Receiver::start().await;
    let parameters =
        [("hub.mode", "subscribe"), ("hub.topic", topic), ("hub.callback", &destination.url("/cb"))];
    let subscribed = resync_harness::form(hub.address, &parameters).await.unwrap().status == 202;
    let name = format!("a {evil} \"publisher\"");
    let wish = serde_json::json!({ "name": name, "topic_prefixes": ["http://example.com/"] }).to_string();
    assert_eq!(hub.admin_post("/api/v1/tokens", &wish).await.status, 200);

    let browser = Browser::log_in(&hub).await;
    let topics: Value = serde_json::from_slice(&hub.admin("/api/v1/topics").await.body).unwrap();
    let mut paths: Vec<String> = OPERATOR_PAGES.iter().map(ToString::to_string).collect();
    let items = topics["items"].as_array().unwrap();
    paths.extend(items.iter().map(|topic| format!("/topics/{}", topic["id"].as_str().unwrap())));
    let mut shown = 0;
    for path in paths {
        let page = browser.read(&path).await;
        shown += page.matches("&lt;script&gt;alert(1)").count();
        assert!(!page.contains(evil) && !page.contains("<b>"), "{path}: {page}");
        assert!(!page.contains("'\"&<"), "{path}");
    }
    assert!(shown >= 3, "it is shown as text: {shown}, {subscribed}");
}

#[tokio::test]
async fn whoever_gets_nothing_any_more_is_found_and_helped_without_a_script() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    destination.behave(refusing(503));
    hub.subscribe(TOPIC, &destination.url("/a-secret-path"), &[], 1).await;
    hub.publish(TOPIC, "one").await.unwrap();
    let id = first_subscription(&hub).await["id"].to_string();
    let browser = Browser::log_in(&hub).await;
    let place = format!("/subscriptions/{id}");
    eventually("the page says why", || async {
        browser.read(&place).await.contains("the callback answered 503 Service Unavailable")
    })
    .await;
    assert!(browser.read("/deliveries").await.contains(&format!("href=\"{place}\"")));
    let topic_id = value_of(&browser.read(&place).await, "topic_id");
    assert!(browser.read(&format!("/topics/{topic_id}")).await.contains(&format!("href=\"{place}\"")));
    assert!(browser.read("/topics").await.contains(&format!("/topics/{topic_id}")));

    destination.behave(|_| Reply::Agree);
    let page = browser.act(&[("act", "retry"), ("subscription", &id)]).await;
    assert!(page.contains("One subscription is tried again now."), "{page}");
    destination.until_delivered(2).await;
    eventually("nothing waits for it", || async {
        browser.read(&place).await.contains("Nothing waits for it.")
    })
    .await;
    let page = browser.act(&[("act", "replay"), ("subscription", &id), ("from", "1")]).await;
    assert!(page.contains("One subscription gets it once more."), "{page}");
    assert_eq!(destination.until_delivered(3).await[2].text(), "one");

    let address = |page: &str| page.split("?ticket=").nth(1).unwrap()[..64].to_owned();
    let before = address(&browser.read(&place).await);
    let page = browser.act(&[("act", "address"), ("subscription", &id)]).await;
    assert!(page.contains("The old one no longer works.") && address(&page) != before, "{page}");

    assert!(browser.read(&place).await.contains("Only whole topics can be paused"));
    let topic = [("topic", TOPIC), ("topic_id", topic_id.as_str())];
    assert!(browser.act(&[("act", "pause"), topic[0], topic[1]]).await.contains("Resume deliveries"));
    assert!(browser.act(&[("act", "resume"), topic[0], topic[1]]).await.contains("Pause deliveries"));
    let deny = [("act", "deny"), ("subscription", id.as_str()), ("reason", "moved"), topic[1]];
    let page = browser.act(&deny).await;
    assert!(page.contains("Nobody is subscribed.") && page.contains("One subscription has ended"), "{page}");
    let told = destination
        .until("it is told", |seen| seen.iter().any(|seen| seen.target.contains("hub.mode=denied")))
        .await;
    assert!(told.iter().any(|seen| seen.target.contains("hub.reason=moved")));
    assert_eq!(browser.open(&place).await.status, 404);

    let page = browser.read("/audit").await;
    for act in ["log in", "retry", "replay", "pause", "resume", "deny"] {
        assert!(
            page.contains(&format!("role=\"rowheader\" data-label=\"What\">{act}</th>")),
            "{act}: {page}"
        );
    }
    assert!(!page.contains("a-secret-path"));
}

/// The numbers of the subscriptions in a page's table.
fn rows(page: &str) -> Vec<String> {
    let cells = page.split("data-label=\"Number\"><a href=\"/subscriptions/").skip(1);
    cells.map(|cell| cell.split('"').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn topics_are_found_by_their_newest_notification_their_subscribers_and_their_url() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let topic = |number: usize| format!("http://example.com/Set{number:02}/framework/");
    for number in [2, 0, 1] {
        hub.publish(&topic(number), "news").await.unwrap();
        // What came in within one millisecond came in at once.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    hub.subscribe(&topic(0), &destination.url("/1"), &[], 1).await;
    hub.subscribe(&topic(0), &destination.url("/2"), &[], 2).await;
    hub.subscribe(&topic(9), &destination.url("/3"), &[], 3).await;
    let browser = Browser::log_in(&hub).await;
    let order = async |path: &str| {
        let page = browser.read(path).await;
        let at = |number| page.find(&format!(">{}</a>", topic(number)));
        let mut found: Vec<_> =
            [0, 1, 2, 9].into_iter().filter_map(|number| Some((at(number)?, number))).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, number)| number).collect::<Vec<_>>()
    };
    assert_eq!(order("/topics").await, [1, 0, 2, 9], "the newest first, and last of all what never had one");
    assert_eq!(order("/topics?sort=subscribers").await, [0, 9, 1, 2]);
    assert_eq!(order("/topics?sort=url").await, [0, 1, 2, 9]);
    assert_eq!(order("/topics?q=set01").await, [1]);
    hub.publish(&topic(2), "more news").await.unwrap();
    assert_eq!(order("/topics").await, [2, 1, 0, 9]);
    assert!(browser.read("/topics?q=nowhere").await.contains("No topic has this in its URL."));

    for number in 10..65 {
        hub.publish(&topic(number), "news").await.unwrap();
    }
    for sort in ["", "&sort=subscribers", "&sort=url"] {
        let mut path = format!("/topics?q=SET{sort}");
        let mut found = Vec::new();
        loop {
            let page = browser.read(&path).await;
            found.extend(page.split("http://example.com/Set").skip(1).map(|rest| rest[..2].to_owned()));
            let Some((before, _)) = page.split_once("\">More</a>") else { break };
            path = before.rsplit("href=\"").next().unwrap().replace("&amp;", "&");
        }
        found.dedup();
        assert_eq!(found.len(), 59, "{sort}: {found:?}");
    }
}

#[tokio::test]
async fn subscriptions_of_all_topics_are_listed_sought_and_told_from_those_that_fail() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (well, sick) = (Receiver::start().await, Receiver::start().await);
    sick.behave(refusing(503));
    for number in 0..60 {
        hub.subscribe(TOPIC, &well.url(&format!("/Well/{number}")), &[], number + 1).await;
    }
    hub.subscribe("http://example.com/other/", &sick.url("/sick"), &[], 61).await;
    hub.publish("http://example.com/other/", "news").await.unwrap();
    let browser = Browser::log_in(&hub).await;
    eventually("one fails", || async {
        browser.read("/subscriptions?only=late").await.contains("failing</span> since")
    })
    .await;
    assert_eq!(rows(&browser.read("/subscriptions?only=late").await).len(), 1);

    let (mut path, mut found) = ("/subscriptions".to_owned(), Vec::new());
    loop {
        let page = browser.read(&path).await;
        found.extend(rows(&page));
        let Some((before, _)) = page.split_once("\">More</a>") else { break };
        path = before.rsplit("href=\"").next().unwrap().replace("&amp;", "&");
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 61);
    let whole = well.url("/Well/7");
    for (text, count) in [
        (whole.as_str(), 1),
        ("/well/7", 0),
        ("OTHER", 1),
        ("%2Fset1%2F", 50),
        ("nobody", 0),
        ("127.0.0.1", 50),
    ] {
        let page = browser.read(&format!("/subscriptions?q={text}")).await;
        assert_eq!(rows(&page).len(), count, "{text}: {page}");
        assert_eq!(page.contains(">More</a>"), count == 50, "{text}");
        assert!(text == whole || !page.contains("/Well/"), "no page shows a whole callback");
    }
    assert!(browser.read("/subscriptions?q=nobody").await.contains("No topic and no callback"));
    assert!(browser.read("/subscriptions").await.contains("up to date"));
}

/// Publishers choose content and type: whoever looks at them must not run what they wrote.
#[tokio::test]
async fn what_was_posted_is_shown_as_text_or_downloaded_and_never_run() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let evil = "<script>alert(1)</script>";
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let long = format!("<p>{}", "x".repeat(100_000));
    for (kind, body) in
        [("text/html", evil.as_bytes()), ("text/html", long.as_bytes()), ("image/svg+xml", b"<svg\0/>")]
    {
        let posted = post(hub.address, &[("Content-Type", kind), ("Link", &link)], body).await.unwrap();
        assert_eq!(posted.status, 202, "{}", posted.text());
    }
    let browser = Browser::log_in(&hub).await;
    let topics: Value = serde_json::from_slice(&hub.admin("/api/v1/topics").await.body).unwrap();
    let place = format!("/topics/{}", topics["items"][0]["id"].as_str().unwrap());
    assert!(browser.read(&place).await.contains(&format!("href=\"{place}/notifications/1\"")));
    let page = browser.read(&format!("{place}/notifications/1")).await;
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !page.contains(evil), "{page}");
    let page = browser.read(&format!("{place}/notifications/2")).await;
    assert!(page.contains("This is only its beginning.") && page.len() < 50_000, "{}", page.len());
    let page = browser.read(&format!("{place}/notifications/3")).await;
    assert!(page.contains("This is not text.") && !page.contains("svg\0"));
    for (number, body) in [(1, evil.as_bytes()), (2, long.as_bytes()), (3, b"<svg\0/>")] {
        let answer = browser.open(&format!("{place}/notifications/{number}/content")).await;
        assert_eq!((answer.status, &answer.body[..]), (200, body));
        assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert!(
            answer.header("content-disposition").unwrap().starts_with("attachment; filename=\"notification-")
        );
        assert!(answer.header("content-security-policy").unwrap().contains("default-src 'none'"));
    }
    for nothing in ["4", "0", "x"] {
        assert_eq!(browser.open(&format!("{place}/notifications/{nothing}")).await.status, 404);
    }
}

#[tokio::test]
async fn a_token_is_shown_once_and_revoked() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let browser = Browser::log_in(&hub).await;
    let csrf_token = browser.csrf_token().await;
    let fields = [
        ("name", "library"),
        ("topic_prefixes", "http://a.example/\r\nhttp://b.example/"),
        (CSRF_FIELD, &csrf_token),
    ];
    let page = browser.send("/publishers", &fields, "").await;
    assert_eq!(page.status, 200, "{}", page.text());
    let token = page.text().split("rsh_").nth(1).unwrap()[..64].to_owned();
    let listed = browser.read("/publishers").await;
    assert!(listed.contains("http://b.example/") && !listed.contains(&token));
    assert!(
        browser.act(&[("act", "token revoke"), ("name", "library")]).await.contains("The token is revoked.")
    );
    assert_eq!(hub.admin("/api/v1/tokens").await.text().trim(), "[]");
}

#[tokio::test]
async fn an_open_overview_is_kept_fresh_and_does_not_keep_the_hub_from_stopping() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let browser = Browser::log_in(&hub).await;
    let mut stream = TcpStream::connect(browser.hub).await.unwrap();
    let asked =
        format!("GET /events HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n", browser.hub, browser.cookie);
    stream.write_all(asked.as_bytes()).await.unwrap();
    let (mut received, mut buffer) = (Vec::new(), [0; 4_096]);
    while !String::from_utf8_lossy(&received).contains("The last hour") {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&buffer[..read]);
    }
    let text = String::from_utf8_lossy(&received).into_owned();
    assert!(text.contains("text/event-stream") && text.contains("event: overview"), "{text}");
    let (status, said) = hub.stop().await;
    assert!(status.success() && !said.contains("cut off"), "{said}");
}

// --- in a browser ---

/// Runs a program that must succeed.
fn run(program: &str, arguments: &[&str], folder: &Path) -> Output {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program} is missing (tests/run installs it): {error}"));
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?} failed:\n{said}");
    output
}

/// `RESYNC_SCREENSHOTS=FOLDER` keeps the pictures, to be looked at.
fn pictures(folder: &Path) -> PathBuf {
    let pictures = env::var_os("RESYNC_SCREENSHOTS").map_or_else(|| folder.join("pictures"), PathBuf::from);
    fs::create_dir_all(&pictures).unwrap();
    pictures
}

/// A hub that has seen something of the world, and the pages that show it.
async fn lively(hub: &HubProcess) -> (Vec<Receiver>, Vec<Page>) {
    let (well, sick) = (Receiver::start().await, Receiver::start().await);
    sick.behave(refusing(503));
    for number in 0..12 {
        let (topic, receiver) = (
            format!("http://example.com/set{}/framework/", number % 3),
            [&well, &sick][usize::from(number % 4 == 3)],
        );
        hub.subscribe(&topic, &receiver.url(&format!("/{number}")), &[("hub.secret", "hush")], number + 1)
            .await;
        hub.publish(&topic, &format!("news {number}")).await.unwrap();
    }
    let wish = "{\"name\": \"City library\", \"topic_prefixes\": [\"http://example.com/set1/\", \"https://library.example/a/very/long/folder/of/collections/\"]}";
    assert_eq!(hub.admin_post("/api/v1/tokens", wish).await.status, 200);
    eventually("something has failed", || async {
        hub.admin("/api/v1/deliveries/laggards").await.text().contains("\"class\":\"trouble\"")
    })
    .await;
    let late: Value = serde_json::from_slice(&hub.admin("/api/v1/deliveries/laggards").await.body).unwrap();
    let late = late["items"][0].clone();
    let pause = format!(
        "/api/v1/deliveries/pause?topic={}",
        form_urlencoded::byte_serialize(b"http://example.com/set2/framework/").collect::<String>()
    );
    assert_eq!(hub.admin_post(&pause, "").await.status, 200);
    let mut paths: Vec<String> = OPERATOR_PAGES.iter().map(ToString::to_string).collect();
    paths.push(format!("/topics/{}", late["topic"].as_str().unwrap()));
    paths.push(format!("/subscriptions/{}", late["subscription"]));
    paths.push("/login".to_owned());
    // What subscribers see is on the public listener.
    let status = status_page(hub, &late["subscription"]).await;
    paths.push(status.clone());
    paths.push(format!("{}subscriptions", hub.url()));
    let mut pages: Vec<_> = paths.iter().map(|path| Page::well(path)).collect();
    let newest = format!("/topics/{}/notifications/4", late["topic"].as_str().unwrap());
    pages.extend([
        Page::well(&newest).called("operator-notification", 200),
        Page::well("/topics?sort=subscribers&q=set").called("operator-topics-sought", 200),
        Page::well("/subscriptions?q=set1").called("operator-subscriptions-sought", 200),
        Page::well("/subscriptions?only=late").called("operator-subscriptions-late", 200),
        Page::well("/subscriptions?q=nobody").called("operator-nothing-found", 200),
        Page { press: Some("Send a test delivery"), ..Page::well(&status).called("subscriber-tested", 200) },
    ]);
    (vec![well, sick], pages)
}

/// The address of the page that the subscriber sees.
async fn status_page(hub: &HubProcess, subscription: &Value) -> String {
    let path = format!("/api/v1/subscriptions/{subscription}");
    let detail: Value = serde_json::from_slice(&hub.admin(&path).await.body).unwrap();
    detail["status_page"].as_str().unwrap().to_owned()
}

/// A page to look at.
#[derive(Serialize)]
struct Page {
    path: String,
    status: u16,
    /// In the names of its pictures, if not its path.
    called: Option<&'static str>,
    /// What is typed into its form, which is sent then.
    fields: BTreeMap<&'static str, String>,
    /// The button that is pressed first.
    press: Option<&'static str>,
}

impl Page {
    fn well(path: &str) -> Self {
        Self { path: path.to_owned(), status: 200, called: None, fields: BTreeMap::new(), press: None }
    }

    fn called(self, called: &'static str, status: u16) -> Self {
        Self { called: Some(called), status, ..self }
    }

    fn filled(self, fields: &[(&'static str, &str)]) -> Self {
        Self { fields: fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), ..self }
    }
}

/// What people see when something is over or not to be had. The poor hub shows more than one page in an hour to nobody, and cannot write.
async fn not_to_be_had(hub: &HubProcess, poor: &mut HubProcess, token: &str) -> Vec<Page> {
    let list: Value = serde_json::from_slice(&hub.admin("/api/v1/subscriptions").await.body).unwrap();
    let ids: Vec<_> = list["items"].as_array().unwrap().iter().rev().map(|one| one["id"].clone()).collect();
    let (over, replaced) = (status_page(hub, &ids[0]).await, status_page(hub, &ids[1]).await);
    let deny = format!("{{\"ids\": [{}], \"reason\": \"moved\"}}", ids[0]);
    assert_eq!(hub.admin_post("/api/v1/subscriptions/deny", &deny).await.status, 200);
    let replace = format!("/api/v1/subscriptions/{}/address", ids[1]);
    assert_eq!(hub.admin_post(&replace, "").await.status, 200);
    let of_poor = format!("{}subscriptions/1.1", poor.url());
    let asked = format!(
        "GET /websub/subscriptions/1.1 HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        poor.address
    );
    assert_eq!(request(poor.address, asked.as_bytes()).await.unwrap().status, 404);
    poor.process().limit_files(Some(0));
    let login_of_poor = format!("http://{}/login", poor.admin_address());
    let secret = [("topic", TOPIC), ("callback", "http://127.0.0.1/callback"), ("secret", "a guess")];
    vec![
        Page::well("/elsewhere").called("operator-not-found", 404),
        Page::well("/subscriptions/999").called("operator-no-subscription", 404),
        Page::well("/login").called("operator-wrong-token", 403).filled(&[("token", "a guess")]),
        Page::well(&login_of_poor).called("operator-cannot-write", 503).filled(&[("token", token)]),
        Page::well(&over).called("subscriber-over", 200),
        Page::well(&replaced).called("subscriber-replaced", 404),
        Page::well(&format!("{}subscriptions", hub.url())).called("subscriber-no-match", 403).filled(&secret),
        Page::well(&of_poor).called("subscriber-too-many", 429),
    ]
}

/// `resync-load pages` times them.
#[tokio::test]
async fn with_ten_thousand_topics_the_pages_stay_light() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (address, url) = (hub.address, hub.url());
    let publish = |publisher: usize| {
        let url = url.clone();
        tokio::spawn(async move {
            for number in 0..1_000 {
                // 200 bytes.
                let topic = format!("http://example.com/{publisher}/{number:0>168}/framework/");
                let link = format!("<{topic}>; rel=\"self\", <{url}>; rel=\"hub\"");
                let headers = [("Content-Type", "text/plain"), ("Link", link.as_str())];
                assert_eq!(post(address, &headers, b"news").await.unwrap().status, 202);
            }
        })
    };
    for publisher in (0..10).map(publish).collect::<Vec<_>>() {
        publisher.await.unwrap();
    }
    let status: Value = serde_json::from_slice(&hub.admin("/api/v1/status").await.body).unwrap();
    assert_eq!(status["topics"], 10_000);
    let browser = Browser::log_in(&hub).await;
    let first: Value = serde_json::from_slice(&hub.admin("/api/v1/topics?limit=1").await.body).unwrap();
    assert_eq!(first["items"][0]["url"].as_str().unwrap().len(), 200);
    let of_first = format!("/topics/{}", first["items"][0]["id"].as_str().unwrap());
    for path in OPERATOR_PAGES.into_iter().chain([of_first.as_str()]) {
        let page = browser.read(path).await;
        let weight = page.len() + browser.parts(&page).await;
        assert!(u64::try_from(weight).unwrap() < HEAVIEST, "{path}: {weight}");
    }
}

/// Every page in Chromium, light and dark, on a desk and on a phone: something is to be seen, nothing sticks out, nothing is
/// fetched from elsewhere, axe finds nothing to complain about, Tab reaches everything that can be chosen, and shows where it is.
#[tokio::test]
async fn every_page_can_be_read_by_everybody_in_a_real_browser() {
    let folder = tempdir().unwrap();
    let data = folder.path().join("data");
    let hub = HubProcess::start(&data).await;
    let (_receivers, mut pages) = lively(&hub).await;
    let late = pages.iter().find(|page| page.path.starts_with("/subscriptions/")).unwrap().path.clone();
    let of_poor = folder.path().join("poor");
    let mut poor = HubProcess::start_public(&of_poor, &[("LIMITS_CLIENT", "1/h, burst 1")]).await;
    let token = fs::read_to_string(of_poor.join("admin-token")).unwrap();
    pages.extend(not_to_be_had(&hub, &mut poor, token.trim()).await);
    // The script finds them beside itself.
    std::os::unix::fs::symlink(BROWSER.installed().join("node_modules"), folder.path().join("node_modules"))
        .unwrap();
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("browser/look.mjs"), folder.path().join("look.mjs"))
        .unwrap();
    let asked = serde_json::json!({
        "origin": format!("http://{}", hub.admin_address()),
        "token": fs::read_to_string(data.join("admin-token")).unwrap().trim(),
        "pages": pages,
        "late": late,
        "pictures": pictures(folder.path()),
    });
    fs::write(folder.path().join("asked.json"), asked.to_string()).unwrap();
    let here = folder.path().to_owned();
    let output = tokio::task::spawn_blocking(move || run("node", &["look.mjs"], &here)).await.unwrap();
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(seen["live"], 6, "the plots are there after they were renewed");
    // Its topic may be the one that is paused: then the answer is that there are none.
    let retried = seen["retried"].as_str().unwrap();
    assert!(retried.contains("tried again now."), "{retried}");
    let looks = seen["looks"].as_array().unwrap();
    assert_eq!(looks.len(), pages.len() * 4);
    for look in looks {
        let name = look["name"].as_str().unwrap();
        assert_eq!(
            (&look["sticks_out"], &look["scrolls"]),
            (&Value::from(0), &Value::from(0)),
            "{name}: {look}"
        );
        assert!(look["colours"].as_u64().unwrap() > 20, "{name} is blank: {look}");
        assert_eq!(look["complaints"], Value::Array(Vec::new()), "{name}");
        assert_eq!(look["errors"], Value::Array(Vec::new()), "{name}");
        assert_eq!(look["foreign"], Value::Array(Vec::new()), "{name}");
        assert!(look["weight"].as_u64().unwrap() < HEAVIEST, "{name}: {look}");
        assert_eq!(look["keyboard"], Value::Array(Vec::new()), "{name}");
    }
}
