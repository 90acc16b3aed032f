//! The page of one subscription for its subscriber: it says why nothing arrives, and tells nobody anything about others.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::SocketAddr;

use resync_harness::{Answer, HubProcess, NameServer, Receiver, Reply, eventually, refusing, request};
use serde_json::Value;
use tempfile::tempdir;
use url::{Url, form_urlencoded};

const TOPIC: &str = "http://example.com/set1/framework/";
const SECRET: &str = "known to both";

async fn get(hub: SocketAddr, target: &str, cookie: &str) -> Answer {
    let bytes = format!(
        "GET {target} HTTP/1.1\r\nHost: {hub}\r\nCookie: theme=dark; {cookie}\r\nConnection: close\r\n\r\n"
    );
    request(hub, bytes.as_bytes()).await.unwrap()
}

/// Where a redirection leads, and the cookie that goes there.
fn visit(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 303, "{}", answer.text());
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap();
    (answer.header("location").unwrap().to_owned(), cookie.to_owned())
}

/// As a browser does, which is sent on with a cookie.
async fn open(hub: SocketAddr, target: &str) -> Answer {
    let answer = get(hub, target, "").await;
    if answer.status != 303 {
        return answer;
    }
    let (page, cookie) = visit(&answer);
    // What is before that is a proxy's.
    get(hub, &page[page.find("/websub/").unwrap()..], &cookie).await
}

/// Path and query of a URL.
fn target(url: &str) -> String {
    let url = Url::parse(url).unwrap();
    format!("{}?{}", url.path(), url.query().unwrap_or_default())
}

/// Tries to open a page by a secret.
async fn show(hub: SocketAddr, topic: &str, callback: &str, secret: &str) -> Answer {
    let fields = [("topic", topic), ("callback", callback), ("secret", secret)];
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let bytes = format!(
        "POST /websub/subscriptions HTTP/1.1\r\nHost: {hub}\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    request(hub, bytes.as_bytes()).await.unwrap()
}

/// What the operator sees of a subscription, found by the end of its callback's origin.
async fn details(hub: &HubProcess) -> Vec<Value> {
    let list: Value = serde_json::from_slice(&hub.admin("/api/v1/subscriptions").await.body).unwrap();
    let mut details = Vec::new();
    for one in list["items"].as_array().unwrap() {
        let path = format!("/api/v1/subscriptions/{}", one["id"]);
        details.push(serde_json::from_slice(&hub.admin(&path).await.body).unwrap());
    }
    details
}

/// The page of the first subscription.
async fn page_of_the_first(hub: &HubProcess) -> String {
    target(details(hub).await[0]["status_page"].as_str().unwrap())
}

#[tokio::test]
async fn whoever_has_the_url_sees_why_nothing_arrives_and_nothing_of_others() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (mine, others) = (Receiver::start().await, Receiver::start().await);
    hub.subscribe(TOPIC, &mine.url("/a-secret-path"), &[("hub.secret", SECRET)], 1).await;
    let page = page_of_the_first(&hub).await;
    let read = async || {
        let answer = open(hub.address, &page).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text()
    };
    assert!(read().await.contains("Nothing was published to this topic since the subscription began."));

    mine.behave(refusing(503));
    hub.subscribe(TOPIC, &others.url("/another-path"), &[("hub.secret", "of others")], 2).await;
    hub.subscribe("http://example.com/other/", &others.url("/third"), &[], 3).await;
    hub.publish(TOPIC, "news").await.unwrap();
    others.until_delivered(1).await;
    eventually("the page says why", async || {
        let page = read().await;
        page.contains("the callback answered 503 Service Unavailable")
            && page.contains("The callback's server fails.")
    })
    .await;
    let text = read().await;
    assert!(text.contains(TOPIC) && text.contains(&format!("http://{}", mine.address())));
    for foreign in
        ["a-secret-path", SECRET, "another-path", &others.address().to_string(), "/other/", "of others"]
    {
        assert!(!text.contains(foreign), "{foreign}: {text}");
    }

    mine.behave(|_| Reply::Agree);
    let id = details(&hub).await[0]["id"].clone();
    assert_eq!(hub.admin_post(&format!("/api/v1/deliveries/retry?subscription={id}"), "").await.status, 200);
    eventually("the page says that all is well", async || read().await.contains("Everything was delivered."))
        .await;
    assert!(read().await.contains("The callback answered 2xx to everything."));
}

/// Refusals are given up after the shorter schedule; then nothing waits, which must not be taken for success.
#[tokio::test]
async fn what_was_given_up_is_never_called_delivered() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("DELIVERY_SCHEDULE_4XX", "[\"50ms\"]")]).await;
    let mine = Receiver::start().await;
    hub.subscribe(TOPIC, &mine.url("/1"), &[], 1).await;
    let page = page_of_the_first(&hub).await;
    let read = async || open(hub.address, &page).await.text();
    let claims = ["Everything was delivered.", "2xx to everything", "Nothing was published"];
    let remedy = "The callback's path no longer exists.";

    mine.behave(|seen| {
        if seen.method == http::Method::POST { Reply::Status(404, String::new()) } else { Reply::Agree }
    });
    hub.publish(TOPIC, "nobody takes this").await.unwrap();
    eventually("it is given up", async || {
        let text = read().await;
        text.contains("given up: the callback answered 404")
            && text.contains("Nothing waits, but the hub gave up")
    })
    .await;
    let text = read().await;
    assert!(text.contains(remedy) && text.contains("Something was missed"), "{text}");
    assert!(claims.iter().all(|claim| !text.contains(claim)), "{text}");

    mine.behave(|_| Reply::Agree);
    hub.publish(TOPIC, "this one arrives").await.unwrap();
    eventually("what was missed is all that is left to say", async || {
        read().await.contains("Nothing waits, but something was missed before.")
    })
    .await;
    let text = read().await;
    assert!(text.contains("Something was missed") && !text.contains(remedy), "{text}");
    assert!(claims.iter().all(|claim| !text.contains(claim)), "{text}");
}

/// A subscriber whose name turns to an address inside the hub's network learns no more there than that nobody answered.
#[tokio::test]
async fn d20_a_page_tells_nothing_about_an_address_that_may_not_be_contacted() {
    let folder = tempdir().unwrap();
    let names = NameServer::start().await;
    let hub = HubProcess::start_public(
        folder.path(),
        &[("EGRESS_NAMESERVERS", &names.configured()), ("EGRESS_ALLOW", "[\"127.0.0.2/32\"]")],
    )
    .await;
    let destination = Receiver::start_at("127.0.0.2".parse().unwrap()).await;
    names.set("destination.test", &["127.0.0.2"]);
    let callback = format!("http://destination.test:{}/cb", destination.address().port());
    hub.subscribe(TOPIC, &callback, &[], 1).await;
    names.set("destination.test", &["127.0.0.1"]);
    assert_eq!(hub.publish(TOPIC, "news").await.unwrap().status, 202);
    let page = page_of_the_first(&hub).await;
    let read = async || open(hub.address, &page).await.text();
    eventually("the page says that there was no answer", async || {
        read().await.contains("no connection, or it broke before an answer came")
    })
    .await;
    let (own, cookie) = visit(&get(hub.address, &page, "").await);
    let form = csrf_token(&get(hub.address, &own, &cookie).await);
    let tested = press(hub.address, &own, &cookie, &form, AS_A_BROWSER).await.text();
    assert!(tested.contains("The test failed: </strong>no connection, or it broke before an answer came."));
    for text in [read().await.to_lowercase(), tested.to_lowercase()] {
        for word in ["127.0.0", "loopback", "forbidden", "not public", "resolve"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
}

#[tokio::test]
async fn without_its_ticket_a_page_does_not_even_exist() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/1"), &[], 1).await;
    hub.subscribe(TOPIC, &destination.url("/2"), &[], 2).await;
    let pages: Vec<_> =
        details(&hub).await.iter().map(|one| target(one["status_page"].as_str().unwrap())).collect();
    let (path, ticket) = pages[0].split_once("?ticket=").unwrap();
    assert_eq!(ticket.len(), 64);
    let of_the_other = pages[1].split_once('=').unwrap().1;
    let zeros = "0".repeat(64);
    let (id, since) = path.rsplit_once('/').unwrap().1.split_once('.').unwrap();
    let never = open(hub.address, "/websub/subscriptions/999.1763800000000?ticket=0").await;
    assert_eq!(never.status, 404);
    for guess in [
        path.to_owned(),
        format!("{path}?ticket="),
        format!("{path}?ticket={zeros}"),
        format!("{path}?ticket={of_the_other}"),
        format!("{path}?ticket={}", &ticket[1..]),
        format!("{path}?ticket=sha256={ticket}"),
        format!("/websub/subscriptions/{id}.{}?ticket={ticket}", since.parse::<u64>().unwrap() + 1),
        format!("/websub/subscriptions/0{id}.{since}?ticket={ticket}"),
        format!("/websub/subscriptions/{id}?ticket={ticket}"),
    ] {
        let answer = open(hub.address, &guess).await;
        assert_eq!((answer.status, answer.body), (404, never.body.clone()), "{guess}");
    }
    // What opens a notification's status opens no page, and the other way round.
    let published = hub.publish(TOPIC, "news").await.unwrap();
    let location = target(published.header("location").unwrap());
    let (status, of_a_notification) = location.split_once("?ticket=").unwrap();
    assert_eq!(open(hub.address, &format!("{path}?ticket={of_a_notification}")).await.status, 404);
    assert_eq!(open(hub.address, &format!("{status}?ticket={ticket}")).await.status, 404);
}

/// The bar of a browser, its history and what a proxy writes down show where it went last.
#[tokio::test]
async fn the_ticket_of_a_page_is_exchanged_for_a_visit_and_stands_in_no_address_after_that() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_with(folder.path(), &[("LOG_FILTER", "trace")]).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/1"), &[], 1).await;
    hub.subscribe(TOPIC, &destination.url("/2"), &[], 2).await;
    let all = details(&hub).await;
    let [one, other] = [0, 1].map(|number| target(all[number]["status_page"].as_str().unwrap()));
    let ticket = one.split_once('=').unwrap().1;

    let begun = get(hub.address, &one, "").await;
    let (page, cookie) = visit(&begun);
    assert_eq!(page, one.split_once('?').unwrap().0);
    assert!(!cookie.contains(ticket), "what is kept in the browser ends with the visit");
    let set = begun.header("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Lax", "Max-Age=3600", &format!("Path={page};")] {
        assert!(set.contains(part), "{set}");
    }
    assert_eq!(
        (begun.header("referrer-policy"), begun.header("cache-control")),
        (Some("no-referrer"), Some("no-store"))
    );
    let shown = get(hub.address, &page, &cookie).await;
    assert!(shown.status == 200 && !shown.text().contains(ticket));
    assert_eq!(get(hub.address, &page, "").await.status, 404, "without a cookie nobody visits");
    let (page_of_other, cookie_of_other) = visit(&get(hub.address, &other, "").await);
    assert_eq!(get(hub.address, &page, &cookie_of_other).await.status, 404);
    assert_eq!(get(hub.address, &page_of_other, &cookie).await.status, 404);
    let wrong = format!("{page}?ticket={}", "0".repeat(64));
    assert_eq!(get(hub.address, &wrong, &cookie).await.status, 404, "a wrong ticket is not passed over");
    assert!(!hub.process().said().contains(ticket), "it is in no log");
}

#[tokio::test]
async fn the_address_of_one_page_is_replaced_alone_and_whoever_looked_at_it_is_out() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/1"), &[("hub.secret", SECRET)], 1).await;
    hub.subscribe(TOPIC, &destination.url("/2"), &[], 2).await;
    let all = details(&hub).await;
    let address = |one: &Value| target(one["status_page"].as_str().unwrap());
    let (one, other) = (address(&all[0]), address(&all[1]));
    let (page, cookie) = visit(&get(hub.address, &one, "").await);

    let replace = format!("/api/v1/subscriptions/{}/address", all[0]["id"]);
    let answer = hub.admin_post(&replace, "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let new = address(&serde_json::from_slice(&answer.body).unwrap());
    assert_ne!(new, one);
    hub.kill().await;
    hub.restart().await;
    hub.until_subscribed(2).await;
    assert_eq!(address(&details(&hub).await[0]), new);
    assert_eq!(open(hub.address, &one).await.status, 404);
    assert_eq!(get(hub.address, &page, &cookie).await.status, 404);
    for still in [&new, &other] {
        assert_eq!(open(hub.address, still).await.status, 200, "{still}");
    }
    let callback = destination.url("/1");
    let (page, cookie) = visit(&show(hub.address, TOPIC, &callback, SECRET).await);
    assert_eq!(get(hub.address, &page, &cookie).await.status, 200, "the secret opens it as before");
    assert_eq!(hub.admin_post("/api/v1/subscriptions/999/address", "").await.status, 404);
    assert!(hub.admin("/api/v1/audit").await.text().contains("\"act\":\"replace address\""));

    let exported = hub.admin(&format!("/api/v1/subscriptions/{}/export", all[0]["id"])).await.text();
    assert!(exported.contains("\"address_replaced\":true"), "{exported}");
    let deny = format!("{{\"ids\": [{}], \"reason\": \"over\"}}", all[0]["id"]);
    assert_eq!(hub.admin_post("/api/v1/subscriptions/deny", &deny).await.status, 200);
    hub.stop().await;
    hub.restart().await;
    let kept = std::fs::read_to_string(folder.path().join("status-pages.json")).unwrap();
    assert_eq!(kept, "{}", "it is forgotten when the subscription is over");
}

#[tokio::test]
async fn the_secret_of_a_subscription_opens_its_page_and_whatever_else_is_refused_alike() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let (callback, mute) = (destination.url("/1"), destination.url("/2"));
    hub.subscribe(TOPIC, &callback, &[("hub.secret", SECRET)], 1).await;
    hub.subscribe(TOPIC, &mute, &[], 2).await;

    let answer = show(hub.address, TOPIC, &callback, SECRET).await;
    let (page, cookie) = visit(&answer);
    let address = format!("{page}?ticket=");
    assert!(details(&hub).await.iter().any(|one| one["status_page"].as_str().unwrap().contains(&address)));
    assert_eq!(get(hub.address, &page, &cookie).await.status, 200);

    let asked = destination.seen().len();
    let refused = show(hub.address, TOPIC, &callback, "wrong").await;
    assert_eq!(refused.status, 403);
    for (topic, callback, secret) in [
        (TOPIC, callback.as_str(), ""),
        (TOPIC, &mute, ""),
        (TOPIC, &mute, SECRET),
        ("http://example.com/never/", &callback, SECRET),
        (TOPIC, &destination.url("/never"), SECRET),
        (TOPIC, "http://10.0.0.1/", SECRET),
    ] {
        let answer = show(hub.address, topic, callback, secret).await;
        assert_eq!((answer.status, answer.body), (403, refused.body.clone()), "{topic} {callback} {secret}");
    }
    assert_eq!(show(hub.address, "no URL", &callback, SECRET).await.status, 400);
    hub.until_done().await;
    assert_eq!(destination.seen().len(), asked, "nobody is contacted for it");
}

#[tokio::test]
async fn a_page_says_when_its_subscription_is_over_and_shows_no_later_one() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/1");
    hub.subscribe(TOPIC, &callback, &[("hub.secret", SECRET)], 1).await;
    let page = page_of_the_first(&hub).await;
    let verified_at = details(&hub).await[0]["verified_at"].clone();
    hub.subscribe(TOPIC, &callback, &[("hub.secret", "a new one")], 1).await;
    eventually("it is renewed", async || details(&hub).await[0]["verified_at"] != verified_at).await;
    assert_eq!(show(hub.address, TOPIC, &callback, "a new one").await.status, 303);
    assert_eq!(page_of_the_first(&hub).await, page, "a renewal changes no address");
    hub.kill().await;
    hub.restart().await;
    hub.until_subscribed(1).await;
    assert_eq!(open(hub.address, &page).await.status, 200, "nor does a restart");

    let wish = format!("{{\"topic\": {TOPIC:?}, \"reason\": \"moved\"}}");
    assert_eq!(hub.admin_post("/api/v1/subscriptions/deny", &wish).await.status, 200);
    let over = open(hub.address, &page).await;
    assert!(over.status == 200 && over.text().contains("This subscription has ended"), "{}", over.text());
    assert_eq!(show(hub.address, TOPIC, &callback, "a new one").await.status, 403);
    hub.subscribe(TOPIC, &callback, &[], 1).await;
    assert!(open(hub.address, &page).await.text().contains("This subscription has ended"));
    assert_ne!(page_of_the_first(&hub).await, page);
}

#[tokio::test]
async fn secrets_are_not_tried_at_will_even_where_other_limits_are_off() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[("LIMITS_ENABLED", "false")]).await;
    let mut statuses = Vec::new();
    for number in 0..15 {
        statuses.push(show(hub.address, TOPIC, "http://127.0.0.1:8080/", &number.to_string()).await.status);
    }
    assert_eq!(statuses[..10], [403; 10]);
    assert!(statuses[11..].iter().all(|status| *status == 429), "{statuses:?}");
    let waiting = show(hub.address, TOPIC, "http://127.0.0.1:8080/", "again").await;
    assert!(waiting.header("retry-after").is_some());
    let another = show(hub.address, TOPIC, "http://127.0.0.1:8080/another", "guess").await;
    assert_eq!(another.status, 403, "others are not held up");
}

#[tokio::test]
async fn the_pages_are_kept_by_nobody_and_load_nothing_foreign() {
    let folder = tempdir().unwrap();
    let hub =
        HubProcess::start_with(folder.path(), &[("PUBLIC_URL", "https://hub.example.org/below/")]).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/1"), &[], 1).await;
    let told = details(&hub).await[0]["status_page"].as_str().unwrap().to_owned();
    assert!(told.starts_with("https://hub.example.org/below/websub/subscriptions/"), "{told}");
    let page = target(&told).replace("/below/", "/");
    for path in [page.as_str(), "/websub/subscriptions", "/websub/subscriptions/1.1"] {
        let answer = open(hub.address, path).await;
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("x-robots-tag"), Some("noindex, nofollow"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("script-src"), "{policy}");
        let text = answer.text();
        assert!(!text.contains("<script") && !text.contains(" style="), "{text}");
        for attribute in ["src=\"", "href=\"", "action=\""] {
            for to in text.split(attribute).skip(1) {
                assert!(
                    to.starts_with("/below/websub/") || to.starts_with('#'),
                    "{path}: {attribute}{to:.40}"
                );
            }
        }
    }
    let style = open(hub.address, concat!("/websub/assets/style-", env!("CARGO_PKG_VERSION"), ".css")).await;
    assert!(style.status == 200 && style.header("content-type").unwrap().starts_with("text/css"));
    assert!(
        open(hub.address, "/websub")
            .await
            .text()
            .contains("https://hub.example.org/below/websub/subscriptions")
    );
}

#[tokio::test]
async fn what_a_subscriber_wrote_is_text_on_its_page() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let topic = "http://example.com/?a='1'&b=2";
    hub.subscribe(topic, &destination.url("/1"), &[], 1).await;
    let text = open(hub.address, &page_of_the_first(&hub).await).await.text();
    assert!(text.contains("&amp;b=2") && !text.contains("&b=2"), "{text}");
}

/// Presses the button of a visited page.
async fn press(hub: SocketAddr, page: &str, cookie: &str, csrf_token: &str, headers: &str) -> Answer {
    let body = format!("csrf_token={csrf_token}");
    let bytes = format!(
        "POST {page} HTTP/1.1\r\nHost: {hub}\r\nCookie: {cookie}\r\nConnection: close\r\n{headers}\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    request(hub, bytes.as_bytes()).await.unwrap()
}

/// The CSRF token of a page's form.
fn csrf_token(page: &Answer) -> String {
    let text = page.text();
    let (_, rest) = text.split_once("name=\"csrf_token\" value=\"").unwrap_or_else(|| panic!("{text}"));
    rest.split('"').next().unwrap().to_owned()
}

/// As a browser sends a form of a page that passes on no referrer.
const AS_A_BROWSER: &str = "Origin: null\r\nSec-Fetch-Site: same-origin\r\n";

#[tokio::test]
async fn a_test_delivery_comes_signed_and_marked_to_this_callback_alone_and_moves_nothing() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (mine, others) = (Receiver::start().await, Receiver::start().await);
    hub.subscribe(TOPIC, &mine.url("/mine"), &[("hub.secret", SECRET)], 1).await;
    // The order of a list is that of shards, which the callbacks' ports decide.
    let (page, id) = (page_of_the_first(&hub).await, details(&hub).await[0]["id"].clone());
    let own = async || details(&hub).await.into_iter().find(|one| one["id"] == id).unwrap();
    hub.subscribe(TOPIC, &others.url("/another"), &[], 2).await;
    hub.publish(TOPIC, "news").await.unwrap();
    mine.until_delivered(1).await;
    let (page, cookie) = visit(&get(hub.address, &page, "").await);
    let before = own().await;
    let token = csrf_token(&get(hub.address, &page, &cookie).await);

    let shown = press(hub.address, &page, &cookie, &token, AS_A_BROWSER).await;
    assert_eq!(shown.status, 200, "{}", shown.text());
    let text = shown.text();
    assert!(
        text.contains("The test was delivered: ")
            && text.contains("the callback answered 204 No Content after")
    );
    let test = mine.until_delivered(2).await[1].clone();
    assert!(test.is_signed_with(SECRET) && test.text().contains("It is no notification"), "{}", test.text());
    assert!(test.header("webhook-id").starts_with("test-") && test.header("webhook-test") == "true");
    let link = test.header("link");
    assert!(link.contains(&format!("<{TOPIC}>; rel=\"self\"")) && link.contains(&hub.url()), "{link}");

    mine.behave(refusing(503));
    let shown = press(hub.address, &page, &cookie, &token, AS_A_BROWSER).await.text();
    assert!(
        shown.contains("The test failed: ")
            && shown.contains("the callback answered 503 Service Unavailable after")
    );
    assert!(
        shown.contains("The callback&#39;s server fails.") || shown.contains("The callback's server fails."),
        "{shown}"
    );
    assert_eq!(own().await, before, "nothing has changed for the subscription");
    others.until_delivered(1).await;
    hub.until_done().await;
    assert_eq!(others.deliveries().len(), 1, "nobody else got anything");
}

#[tokio::test]
async fn a_test_delivery_needs_the_visit_and_a_form_of_its_page() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let mine = Receiver::start().await;
    hub.subscribe(TOPIC, &mine.url("/1"), &[], 1).await;
    hub.subscribe(TOPIC, &mine.url("/2"), &[], 2).await;
    let all = details(&hub).await;
    let [one, other] = [0, 1].map(|number| target(all[number]["status_page"].as_str().unwrap()));
    let (page, cookie) = visit(&get(hub.address, &one, "").await);
    let (page_of_other, cookie_of_other) = visit(&get(hub.address, &other, "").await);
    let of_one = csrf_token(&get(hub.address, &page, &cookie).await);
    let of_other = csrf_token(&get(hub.address, &page_of_other, &cookie_of_other).await);
    let zeros = "0".repeat(64);
    for (cookie, csrf_token, headers, status) in [
        ("", &of_one, "", 404),
        (cookie_of_other.as_str(), &of_other, "", 404),
        (&cookie, &of_other, "", 403),
        (&cookie, &zeros, "", 403),
        (&cookie, &of_one, "Origin: http://evil.example\r\n", 403),
        (&cookie, &of_one, "Origin: null\r\nSec-Fetch-Site: cross-site\r\n", 403),
        (&cookie, &of_one, "Sec-Fetch-Site: same-site\r\n", 403),
    ] {
        assert_eq!(press(hub.address, &page, cookie, csrf_token, headers).await.status, status, "{headers}");
    }
    assert!(mine.seen().iter().all(|seen| seen.method == http::Method::GET), "nothing was sent");
    assert_eq!(press(hub.address, &page, &cookie, &of_one, AS_A_BROWSER).await.status, 200);
    let wish = format!("{{\"topic\": {TOPIC:?}, \"reason\": \"moved\"}}");
    assert_eq!(hub.admin_post("/api/v1/subscriptions/deny", &wish).await.status, 200);
    let over = press(hub.address, &page, &cookie, &of_one, AS_A_BROWSER).await.text();
    assert!(over.contains("This subscription has ended"), "{over}");
}

#[tokio::test]
async fn b33_test_deliveries_are_limited_even_where_other_limits_are_off() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("LIMITS_ENABLED", "false")]).await;
    let mine = Receiver::start().await;
    for number in 1..=5 {
        hub.subscribe(TOPIC, &mine.url(&format!("/{number}")), &[], number).await;
    }
    let mut sent = 0;
    for (number, one) in details(&hub).await.iter().enumerate() {
        let (page, cookie) =
            visit(&get(hub.address, &target(one["status_page"].as_str().unwrap()), "").await);
        let token = csrf_token(&get(hub.address, &page, &cookie).await);
        for attempt in 0..5 {
            let answer = press(hub.address, &page, &cookie, &token, AS_A_BROWSER).await;
            let text = answer.text();
            assert!(answer.status == 200 || answer.header("retry-after").is_some(), "{text}");
            sent += usize::from(answer.status == 200);
            assert!(attempt < 3 || answer.status == 429, "of one subscription {number}: {text}");
        }
    }
    // Ten at once for one origin, and one more every two seconds.
    assert!((9..=14).contains(&sent), "{sent} tests of one origin");
    let posts = mine.seen().iter().filter(|seen| seen.method == http::Method::POST).count();
    assert_eq!(posts, sent);
}
