//! Pings from outside: what the hub asks a topic for, what it makes of the answer, and what subscribers get.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use resync_harness::{HubProcess, Receiver, Reply, Seen, form, post};
use tempfile::tempdir;

async fn ping(hub: &HubProcess, topic: &str) {
    let parameters = [("hub.mode", "publish"), ("hub.url", topic)];
    let answer = form(hub.address, &parameters).await.expect("a running hub answers");
    assert_eq!(answer.status, 204, "{}", answer.text());
}

fn page(headers: &[(&'static str, &str)], body: &str) -> Reply {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Reply::Page(200, headers, body.to_owned())
}

/// A hub, a topic at `/topic` that a Receiver serves, and a subscriber of it.
async fn scene(data: &Path, keys: &[(&str, &str)]) -> (HubProcess, Receiver, String, Receiver) {
    let hub = HubProcess::start_with(data, keys).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let topic = publisher.url("/topic");
    hub.subscribe(&topic, &destination.url("/cb"), &[("hub.secret", "s3cret")], 1).await;
    (hub, publisher, topic, destination)
}

#[tokio::test]
async fn c11_a_topic_is_asked_whether_it_changed_also_after_a_restart() {
    let folder = tempdir().unwrap();
    let (mut hub, publisher, topic, destination) = scene(folder.path(), &[]).await;
    let serve = |tag: &'static str, text: &'static str| {
        move |seen: &Seen| match seen.header("if-none-match") {
            known if known == tag => Reply::Status(304, String::new()),
            _ => page(&[("etag", tag), ("last-modified", "Sat, 03 Jan 2026 09:00:00 GMT")], text),
        }
    };
    publisher.behave(serve("W/\"v1\"", "first"));
    ping(&hub, &topic).await;
    destination.until_delivered(1).await;
    hub.stop().await;
    hub.restart().await;
    ping(&hub, &topic).await;
    let asked = publisher.until_verified(2).await;
    assert_eq!(asked.header("if-none-match"), "W/\"v1\"");
    assert_eq!(asked.header("if-modified-since"), "Sat, 03 Jan 2026 09:00:00 GMT");
    publisher.behave(serve("\"v2\"", "second"));
    ping(&hub, &topic).await;
    let got = destination.until_delivered(2).await;
    assert_eq!(got.iter().map(Seen::text).collect::<Vec<_>>(), ["first", "second"], "a 304 is not sent");
    let asked = publisher.until_verified(3).await;
    assert_eq!((asked.header("accept"), asked.header("cache-control")), ("*/*", "no-cache"), "D-11");
}

#[tokio::test]
async fn d11_redirects_are_followed_to_a_bound_and_error_pages_are_nobodys_news() {
    let folder = tempdir().unwrap();
    let (hub, publisher, topic, destination) = scene(folder.path(), &[]).await;
    let elsewhere = publisher.url("/moved/here");
    let to = elsewhere.clone();
    publisher.behave(move |seen| match seen.path() {
        "/topic" => Reply::With(302, "location", to.clone()),
        _ => page(&[("content-type", "text/x-news; Charset=\"UTF-8\"")], "moved"),
    });
    ping(&hub, &topic).await;
    let delivery = destination.until_delivered(1).await.swap_remove(0);
    assert_eq!(
        (delivery.text().as_str(), delivery.header("content-type")),
        ("moved", "text/x-news; Charset=\"UTF-8\"")
    );
    assert!(delivery.header("link").contains(&format!("<{elsewhere}>; rel=\"self\"")), "D-12");

    publisher.behave(|_| Reply::With(302, "location", "/topic".to_owned()));
    let before = publisher.seen().len();
    ping(&hub, &topic).await;
    publisher.until("six requests", |seen| seen.len() >= before + 6).await;
    publisher.behave(|_| Reply::Status(500, "error page".to_owned()));
    // A new ping ends the pause after the failure.
    ping(&hub, &topic).await;
    publisher.until("the error page is read", |seen| seen.len() > before + 6).await;
    assert_eq!(publisher.seen().len(), before + 7, "five redirects and no more");
    publisher.behave(|_| page(&[], "well again"));
    ping(&hub, &topic).await;
    assert_eq!(destination.until_delivered(2).await[1].text(), "well again");
}

#[tokio::test]
async fn b20_d12_w034_w144_w145_w146_w147_links_in_the_content_count_where_headers_lack_them() {
    let folder = tempdir().unwrap();
    let (hub, publisher, topic, destination) = scene(folder.path(), &[]).await;
    let base = publisher.url("");
    let atom = "<feed xmlns='http://www.w3.org/2005/Atom'><link rel='hub' href='/hub-a'/><link rel='hub' href='http://hub.example/b'/>\
                <link rel='self' href='/canonical'/><entry><link rel='self' href='/entry'/></entry></feed>";
    let html = "<!doctype html><title>t</title><LINK REL=hub HREF=/hub-h><link rel=self href=/page><body><link rel=hub href=/no>";
    let cases: [(&str, Option<&str>, &str, String); 3] = [
        (
            "application/atom+xml",
            None,
            atom,
            format!(
                "<{base}/hub-a>; rel=\"hub\", <http://hub.example/b>; rel=\"hub\", <{base}/canonical>; rel=\"self\""
            ),
        ),
        ("text/html", None, html, format!("<{base}/hub-h>; rel=\"hub\", <{base}/page>; rel=\"self\"")),
        (
            "text/html",
            Some("</h2>; rel=hub, </h1>; rel=hub, <other>; rel=self"),
            html,
            format!("<{base}/h2>; rel=\"hub\", <{base}/h1>; rel=\"hub\", <{base}/other>; rel=\"self\""),
        ),
    ];
    for (number, (content_type, link, body, expected)) in cases.into_iter().enumerate() {
        let mut headers = vec![("content-type", content_type)];
        headers.extend(link.map(|link| ("link", link)));
        let reply = page(&headers, &format!("{body}<!-- {number} -->"));
        publisher.behave(move |_| reply.clone());
        ping(&hub, &topic).await;
        let delivery = destination.until_delivered(number + 1).await.swap_remove(number);
        assert_eq!(delivery.header("link"), expected);
        assert_eq!(delivery.headers.get_all("link").iter().count(), 1, "W-146");
    }
}

#[tokio::test]
async fn pings_during_a_fetch_are_one_more_fetch() {
    let folder = tempdir().unwrap();
    let (hub, publisher, topic, destination) = scene(folder.path(), &[]).await;
    let (release, count) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (hold, asked) = (Arc::clone(&release), Arc::clone(&count));
    publisher.behave(move |_| {
        let number = asked.fetch_add(1, Ordering::SeqCst);
        let reply = page(&[], &format!("version {number}"));
        if number == 0 { Reply::After(Arc::clone(&hold), Box::new(reply)) } else { reply }
    });
    ping(&hub, &topic).await;
    publisher.until_verified(1).await;
    for _ in 0..10 {
        ping(&hub, &topic).await;
    }
    release.notify_one();
    let got = destination.until_delivered(2).await;
    assert_eq!(got.iter().map(Seen::text).collect::<Vec<_>>(), ["version 0", "version 1"]);
    assert_eq!(count.load(Ordering::SeqCst), 2, "ten pings, one more fetch");
}

/// A Framework Notification that says that the Resource List changed.
fn notification(list: &str) -> String {
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
         <rs:md capability=\"framework-notification\"/>\
         <url><loc>http://source.example/{list}</loc><rs:md change=\"updated\" capability=\"resourcelist\"/></url></urlset>"
    )
}

async fn post_notification(hub: &HubProcess, topic: &str, body: &str) {
    resync_judge::written("posted", [("notification", body)]);
    let links = format!(
        "<{topic}>; rel=\"self\", <{}>; rel=\"hub\", <http://source.example/capabilitylist.xml>; rel=\"resourcesync\"",
        hub.url()
    );
    let headers = [("Content-Type", "application/xml"), ("Link", links.as_str())];
    let answer = post(hub.address, &headers, body.as_bytes()).await.expect("a running hub answers");
    assert_eq!(answer.status, 202, "{}", answer.text());
}

#[tokio::test]
async fn b31_fn032_a_ping_sends_nobody_what_was_posted_or_the_nothing_before_it() {
    let folder = tempdir().unwrap();
    let (hub, publisher, topic, destination) = scene(folder.path(), &[]).await;
    let xml = [("content-type", "application/xml")];
    let asked = async |number: usize, topic: &str| {
        ping(&hub, topic).await;
        publisher.until("it is asked", |seen| seen.len() >= number).await;
    };
    publisher.behave(move |_| page(&xml, ""));
    asked(1, &topic).await;
    post_notification(&hub, &topic, &notification("one.xml")).await;
    destination.until_delivered(1).await;
    publisher.behave(move |_| page(&xml, &notification("one.xml")));
    asked(2, &topic).await;
    publisher.behave(|_| page(&[("content-type", "text/html")], "<p>Under construction</p>"));
    asked(3, &topic).await;
    publisher.behave(move |_| page(&xml, "<p>Under construction</p>"));
    asked(4, &topic).await;
    post_notification(&hub, &topic, &notification("two.xml")).await;
    destination.until_delivered(2).await;
    publisher.behave(move |_| page(&xml, &notification("three.xml")));
    ping(&hub, &topic).await;
    let got = destination.until_delivered(3).await;
    let expected = ["one.xml", "two.xml", "three.xml"].map(notification);
    assert_eq!(got.iter().map(Seen::text).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn w142_a_topic_that_is_compressed_unasked_is_not_sent_as_if_it_were_not() {
    let folder = tempdir().unwrap();
    let (hub, publisher, topic, destination) = scene(folder.path(), &[]).await;
    publisher.behave(|_| page(&[("content-encoding", "gzip")], "as if it were gzip"));
    ping(&hub, &topic).await;
    publisher.until_verified(1).await;
    publisher.behave(|_| page(&[("content-encoding", "identity")], "plain"));
    ping(&hub, &topic).await;
    assert_eq!(destination.until_delivered(1).await[0].text(), "plain");
    assert_eq!(publisher.until_verified(2).await.header("accept-encoding"), "identity");
}

#[tokio::test]
async fn w142_posts_that_are_compressed_are_refused_since_no_delivery_would_say_so() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let links = format!("<http://source.example/t>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let send = async |coding: &str| {
        let headers = [("Content-Type", "application/json"), ("Link", &links), ("Content-Encoding", coding)];
        post(hub.address, &headers, b"\x1f\x8b").await.expect("a running hub answers")
    };
    let refused = send("gzip").await;
    assert_eq!(
        (refused.status, refused.header("accept-encoding")),
        (415, Some("identity")),
        "{}",
        refused.text()
    );
    assert_eq!(send("identity").await.status, 202);
}

#[tokio::test]
async fn b33_pings_without_a_token_are_limited_by_topic_whatever_the_policy_and_by_what_is_fetched() {
    let folder = tempdir().unwrap();
    let keys = [("LIMITS_PING_TOPIC", "1/h, burst 2"), ("LIMITS_PING_CLIENT", "1/h, burst 52")];
    let hub = HubProcess::start_public(folder.path(), &keys).await;
    let publisher = Receiver::start().await;
    let topic = publisher.url("/topic");
    assert_eq!(hub.publish(&topic, "known to the hub").await.unwrap().status, 202);
    let send = async |topics: Vec<String>, token: &str| {
        let body =
            topics.iter().fold("hub.mode=publish".to_owned(), |form, topic| form + "&hub.url=" + topic);
        let mut headers = vec![("Content-Type", "application/x-www-form-urlencoded")];
        headers.extend((!token.is_empty()).then_some(("Authorization", token)));
        post(hub.address, &headers, body.as_bytes()).await.expect("a running hub answers")
    };
    for _ in 0..2 {
        assert_eq!(send(vec![topic.clone()], "").await.status, 204);
    }
    let refused = send(vec![topic.clone()], "").await;
    let wait: u64 = refused.header("retry-after").expect("it says when").parse().expect("in seconds");
    assert_eq!((refused.status, wait > 3_000 && wait <= 3_601), (429, true), "{}", refused.text());
    assert!(refused.text().contains("token"), "{}", refused.text());
    for _ in 0..3 {
        let unknown = send(vec![publisher.url("/unknown")], "").await;
        assert_eq!(unknown.status, 204, "what is not fetched costs no fetch: {}", unknown.text());
    }
    let many = |count| (0..count).map(|number| publisher.url(&format!("/{number}"))).collect::<Vec<_>>();
    for _ in 0..4 {
        let unknown = send(many(200), "").await;
        assert_eq!(unknown.status, 204, "like all feeds of a weblog: {}", unknown.text());
    }
    let refused = send(many(501), "").await;
    assert_eq!(refused.status, 413, "{}", refused.text());
    assert!(refused.text().contains("at most 500"), "{}", refused.text());
    for topic in many(53) {
        assert_eq!(hub.publish(&topic, "known to the hub").await.unwrap().status, 202);
    }
    let refused = send(many(53), "").await;
    assert_eq!(refused.status, 413, "{}", refused.text());
    assert!(refused.text().contains("at most 52"), "{}", refused.text());
    assert_eq!(
        send(many(50), "").await.status,
        204,
        "those that nobody knew, and the refused ones, cost nothing"
    );

    let token = hub.add_token("publisher", &publisher.url("/")).await;
    let with_token = send(vec![topic], &format!("Bearer {token}")).await;
    assert_eq!(with_token.status, 204, "{}", with_token.text());
}

#[tokio::test]
async fn b33_a_stranger_pings_what_nobody_knows_as_often_as_it_may_send_requests_and_the_more_it_names_the_less()
 {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[("LIMITS_CLIENT", "1/h, burst 40")]).await;
    let ping = async |count: usize| {
        let name = |number| format!("&hub.url=http://nobody.example/{number}");
        let body: String = ["hub.mode=publish".to_owned()].into_iter().chain((0..count).map(name)).collect();
        let headers = [("Content-Type", "application/x-www-form-urlencoded")];
        post(hub.address, &headers, body.as_bytes()).await.expect("a running hub answers")
    };
    // These count as 5 + 5 + 11 + 11, and as more than what is left.
    for count in [200, 200, 500, 500, 500] {
        assert_eq!(ping(count).await.status, 204);
    }
    let refused = ping(1).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    let wait: u64 = refused.header("retry-after").expect("it says when").parse().expect("in seconds");
    assert!(wait > 3 * 3_600, "{wait}");
}

#[tokio::test]
async fn b33_slow_hosts_hold_up_no_other_topic_and_strangers_nobody_with_a_token() {
    let folder = tempdir().unwrap();
    let (hub, publisher, topic, destination) = scene(folder.path(), &[("PUBLISH_FETCH_TIMEOUT", "5m")]).await;
    let mut slow = Vec::new();
    for network in 2..6 {
        let host = Receiver::start_at(Ipv4Addr::new(127, 0, network, 1).into()).await;
        host.behave(|_| Reply::Hang);
        for number in 0..8 {
            hub.publish(&host.url(&format!("/{number}")), "known to the hub").await.unwrap();
        }
        slow.push(host);
    }
    let hold = async |host: &Receiver| {
        for number in 0..8 {
            ping(&hub, &host.url(&format!("/{number}"))).await;
        }
        host.until("six are asked for", |seen| seen.len() >= 6).await;
    };
    publisher.behave(|_| page(&[], "one"));
    hold(&slow[0]).await;
    ping(&hub, &topic).await;
    destination.until_delivered(1).await;
    assert_eq!(slow[0].seen().len(), 6, "of one network six at once");

    for host in &slow[1..] {
        hold(host).await;
    }
    publisher.behave(|_| page(&[], "two"));
    ping(&hub, &topic).await;
    let token = hub.add_token("publisher", &publisher.url("/")).await;
    assert_eq!(publisher.seen().len(), 1, "strangers have to wait now");
    let headers = [
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Authorization", &format!("Bearer {token}")),
    ];
    let body = format!("hub.mode=publish&hub.url={topic}");
    assert_eq!(post(hub.address, &headers, body.as_bytes()).await.unwrap().status, 204);
    assert_eq!(destination.until_delivered(2).await[1].text(), "two");
}

fn atom(entries: &[u8]) -> String {
    let entries =
        entries.iter().fold(String::new(), |text, id| text + &format!("<entry><id>urn:{id}</id></entry>"));
    format!("<feed xmlns='http://www.w3.org/2005/Atom'><id>urn:feed</id>{entries}</feed>")
}

#[tokio::test]
async fn b30_w016_w143_where_it_is_asked_for_known_entries_are_left_out_for_whom_has_them() {
    let folder = tempdir().unwrap();
    let publisher = Receiver::start().await;
    let prefix = format!("[\"{}\"]", publisher.url("/diff"));
    let hub = HubProcess::start_with(folder.path(), &[("PUBLISH_ENTRY_DIFF", &prefix)]).await;
    let (old, new, whole) = (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    let (topic, other) = (publisher.url("/diff/feed"), publisher.url("/other/feed"));
    let serve = |entries: &'static [u8]| {
        publisher.behave(move |_| page(&[("content-type", "application/atom+xml")], &atom(entries)));
    };
    hub.subscribe(&topic, &old.url("/cb"), &[("hub.secret", "s3cret")], 1).await;
    hub.subscribe(&other, &whole.url("/cb"), &[], 2).await;
    serve(&[1]);
    ping(&hub, &topic).await;
    ping(&hub, &other).await;
    old.until_delivered(1).await;
    whole.until_delivered(1).await;
    hub.subscribe(&topic, &new.url("/cb"), &[], 3).await;
    serve(&[2, 1]);
    ping(&hub, &topic).await;
    ping(&hub, &other).await;
    let shortened = old.until_delivered(2).await.swap_remove(1);
    assert_eq!(shortened.text(), atom(&[2]));
    assert!(shortened.is_signed_with("s3cret"), "what is sent is what is signed");
    assert_eq!(new.until_delivered(1).await[0].text(), atom(&[2, 1]), "a new subscriber gets the whole");
    assert_eq!(whole.until_delivered(2).await[1].text(), atom(&[2, 1]), "W-142: whole content by default");
}

#[tokio::test]
async fn w016_w142_w143_of_other_formats_nothing_is_left_out() {
    let folder = tempdir().unwrap();
    let publisher = Receiver::start().await;
    let prefix = format!("[\"{}\"]", publisher.url("/diff"));
    let hub = HubProcess::start_with(folder.path(), &[("PUBLISH_ENTRY_DIFF", &prefix)]).await;
    let destination = Receiver::start().await;
    let topic = publisher.url("/diff/topic");
    hub.subscribe(&topic, &destination.url("/cb"), &[], 1).await;
    let mut sent = 0;
    for content_type in ["application/json", "text/html", "text/plain; charset=xml"] {
        for entries in [&[1][..], &[2, 1]] {
            let whole = atom(entries) + content_type;
            let reply = page(&[("content-type", content_type)], &whole);
            publisher.behave(move |_| reply.clone());
            ping(&hub, &topic).await;
            sent += 1;
            assert_eq!(destination.until_delivered(sent).await[sent - 1].text(), whole);
        }
    }
}

#[tokio::test]
async fn d13_w001_w072_w095_w096_w098_w101_a_closed_hub_serves_topics_that_name_it_or_that_are_allowed_and_denies_others_with_a_reason()
 {
    let folder = tempdir().unwrap();
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let allowed = format!("[\"{}\"]", publisher.url("/allowed"));
    let hub = HubProcess::start_with(
        folder.path(),
        &[("TOPICS_POLICY", "advertised"), ("TOPICS_ALLOWED", &allowed)],
    )
    .await;
    let (url, other) = (hub.url(), publisher.url("/canonical"));
    publisher.behave(move |seen| match seen.path() {
        "/ours" => page(&[("link", &format!("<{url}>; rel=hub"))], "names this hub"),
        "/alias" => {
            page(&[("link", &format!("<{url}>; rel=hub, <{other}>; rel=self"))], "under another name")
        }
        "/theirs" => page(&[("link", "<http://other.example/hub>; rel=hub")], "names another hub"),
        _ => Reply::Status(404, String::new()),
    });
    hub.subscribe(&publisher.url("/ours"), &destination.url("/ours"), &[], 1).await;
    hub.subscribe(&publisher.url("/allowed/any"), &destination.url("/allowed"), &[], 2).await;
    for (path, word) in [
        ("/theirs", "does not name this hub"),
        ("/alias", "/canonical"),
        ("/missing", "it cannot fetch this one"),
    ] {
        let (topic, callback) = (publisher.url(path), destination.url(path));
        let parameters =
            [("hub.mode", "subscribe"), ("hub.topic", topic.as_str()), ("hub.callback", &callback)];
        assert_eq!(form(hub.address, &parameters).await.unwrap().status, 202, "W-090");
        let told = destination.until("it is told", |seen| seen.iter().any(|seen| seen.path() == path)).await;
        let told = told.iter().find(|seen| seen.path() == path).unwrap();
        assert_eq!(told.parameter("hub.mode").as_deref(), Some("denied"));
        assert_eq!(told.parameter("hub.topic"), Some(topic));
        let reason = told.parameter("hub.reason").unwrap_or_default();
        assert!(reason.contains(word), "{reason}");
    }
    hub.until_subscribed(2).await;
}

#[tokio::test]
async fn w062_w098_a_closed_hub_ends_a_subscription_by_a_request_only_if_its_callback_confirms() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_with(folder.path(), &[("TOPICS_POLICY", "advertised")]).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let (topic, callback, own) = (publisher.url("/topic"), destination.url("/cb"), hub.url());
    publisher.behave(move |_| page(&[("link", &format!("<{own}>; rel=hub"))], "names this hub"));
    hub.subscribe(&topic, &callback, &[], 1).await;
    let address = hub.address;
    let subscribe = async |callback: &str| {
        let parameters =
            [("hub.mode", "subscribe"), ("hub.topic", topic.as_str()), ("hub.callback", callback)];
        assert_eq!(form(address, &parameters).await.unwrap().status, 202);
    };

    let asks = |seen: &Seen| seen.parameter("hub.mode").as_deref() == Some("subscribe");
    let refuse = move |seen: &Seen| if asks(seen) { Reply::Status(404, String::new()) } else { Reply::Agree };
    publisher.behave(|_| Reply::Status(503, String::new()));
    subscribe(&callback).await;
    // What was accepted once is renewed while the Source is away (W-097).
    hub.process().line_number("subscription in force", 2).await;
    assert_eq!(publisher.seen().len(), 2);
    destination.behave(refuse);
    publisher.behave(|_| page(&[("link", "<http://other.example/hub>; rel=hub")], "names another hub"));
    subscribe(&callback).await;
    destination.until("it is asked", |log| log.iter().filter(|seen| asks(seen)).count() == 3).await;
    hub.process().line_number("request not verified", 1).await;
    assert_eq!(publisher.seen().len(), 2, "the topic is looked at for its subscriber only");
    let other = destination.url("/other");
    subscribe(&other).await;
    destination.until("another is refused", |log| log.iter().any(|seen| seen.path() == "/other")).await;

    hub.publish(&topic, "news").await.unwrap();
    assert_eq!(destination.until_delivered(1).await[0].path(), "/cb");
    let told = |seen: &Seen| seen.path() == "/cb" && seen.parameter("hub.mode").as_deref() == Some("denied");
    assert!(!destination.seen().iter().any(told), "it is not told what is not so");
    hub.until_subscribed(1).await;

    destination.behave(|_| Reply::Agree);
    subscribe(&callback).await;
    let log = destination.until("it is told", |log| log.iter().any(told)).await;
    let reason = log.iter().find(|seen| told(seen)).unwrap().parameter("hub.reason").unwrap_or_default();
    assert!(reason.contains("does not name this hub"), "{reason}");
    hub.until_subscribed(0).await;
}

#[tokio::test]
async fn b33_denials_of_a_closed_hub_count_as_failures() {
    let folder = tempdir().unwrap();
    let keys = [("TOPICS_POLICY", "advertised"), ("LIMITS_CALLBACK_HOST", "100/s, burst 100")];
    let hub = HubProcess::start_public(folder.path(), &keys).await;
    let (publisher, victim) = (Receiver::start().await, Receiver::start().await);
    publisher.behave(|_| page(&[], "names no hub"));
    let ask = async |number: usize| {
        let (topic, callback) = (publisher.url("/topic"), victim.url(&format!("/{number}")));
        let parameters =
            [("hub.mode", "subscribe"), ("hub.topic", topic.as_str()), ("hub.callback", &callback)];
        form(hub.address, &parameters).await.unwrap()
    };
    for number in 0..20 {
        assert_eq!(ask(number).await.status, 202);
        victim.until("it is told", |log| log.len() > number).await;
    }
    let refused = ask(20).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
}
