//! The way of a Framework Notification over the wire, told by the facts of the specification's Examples 1-8 (with their typos
//! mended as FN-049 lists them): header names, form fields, answers, in raw HTTP against the real hub.

use resync_harness::{HubProcess, Receiver, Reply, Seen, form, post, request};
use tempfile::tempdir;

const TOPIC: &str = "http://example.com/dataset1/framework/";
const CAPABILITY_LIST: &str = "http://www.example.com/dataset1/capabilitylist.xml";

/// The shape of Example 1: a new Resource List.
const NEW_RESOURCE_LIST: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
    <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"\n        xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n  \
    <rs:ln rel=\"up\" href=\"http://example.com/dataset1/capabilitylist.xml\"/>\n  \
    <rs:md capability=\"framework-notification\"/>\n  \
    <url>\n    <loc>http://example.com/resourceset1/resourcelist.xml</loc>\n    \
    <rs:md change=\"created\" datetime=\"2013-01-03T00:07:22Z\" capability=\"resourcelist\"/>\n  </url>\n</urlset>\n";

/// The shape of Example 2: several changes in one notification, one of them under an index.
const SEVERAL_CHANGES: &str = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
    xmlns:rs='http://www.openarchives.org/rs/terms/'><rs:md capability='framework-notification'/>\
    <url><loc>http://example.com/dataset1/resourcelist.xml</loc><rs:md change='created' capability='resourcelist'/>\
    <rs:ln rel='index' href='http://example.com/dataset1/resourcelist-index.xml'/></url>\
    <url><loc>http://example.com/dataset1/resourcedump.xml</loc><rs:md change='created' capability='resourcedump'/></url>\
    <url><loc>http://example.com/dataset1/changelist.xml</loc><rs:md change='updated' capability='changelist'/></url></urlset>";

/// The `Link` of Example 3, with the white space before the semicolons and the folded list that it shows, in one line.
fn links(hub: &str) -> String {
    format!("<{TOPIC}> ; rel=\"self\", <{hub}> ; rel=\"hub\", <{CAPABILITY_LIST}> ; rel=\"resourcesync\"")
}

#[tokio::test]
async fn fn033_fn044_example_3_becomes_example_7() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/callback/"), &[], 1).await;

    let headers = [("Content-Type", "application/xml"), ("Link", &links(&hub.url()))];
    resync_judge::written("examples", [("1", NEW_RESOURCE_LIST), ("2", SEVERAL_CHANGES)]);
    let answer = post(hub.address, &headers, NEW_RESOURCE_LIST.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 202, "FN-036: {}", answer.text());

    let delivery = &destination.until_delivered(1).await[0];
    assert_eq!(delivery.target, "/callback/");
    assert_eq!(delivery.header("content-type"), "application/xml");
    assert_eq!(delivery.text(), NEW_RESOURCE_LIST, "the payload is passed on byte for byte");
    let expected = format!(
        "<{}>; rel=\"hub\", <{TOPIC}>; rel=\"self\", <{CAPABILITY_LIST}>; rel=\"resourcesync\"",
        hub.url()
    );
    assert_eq!(delivery.header("link"), expected, "FN-049: the lost hub link is there");
    assert_eq!(delivery.headers.get_all("link").iter().count(), 1, "W-146: one combined header");
    assert_eq!(delivery.header("host"), destination.address().to_string(), "FN-049: no scheme in Host");
}

#[tokio::test]
async fn fn025_example_2_with_several_changes_is_taken() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let headers = [("Content-Type", "application/xml"), ("Link", &links(&hub.url()))];
    let answer = post(hub.address, &headers, SEVERAL_CHANGES.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.text());
}

#[tokio::test]
async fn fn038_fn039_fn040_examples_4_to_6_subscribe_verify_confirm() {
    let folder = tempdir().unwrap();
    let leases = [("LEASE_MIN", "1s"), ("LEASE_DEFAULT", "2400s"), ("LEASE_MAX", "2400s")];
    let hub = HubProcess::start_with(folder.path(), &leases).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/callback/?id=7");
    let answer = form(
        hub.address,
        &[
            ("hub.mode", "subscribe"),
            ("hub.topic", TOPIC),
            ("hub.callback", &callback),
            ("hub.lease_seconds", "3600"),
        ],
    )
    .await
    .unwrap();
    assert_eq!(answer.status, 202);
    assert!(answer.header("content-type").is_some_and(|value| value.starts_with("text/plain")));

    let verification = destination.until_verified(1).await;
    assert!(verification.target.starts_with("/callback/?id=7&hub."), "the callback's own query comes first");
    assert_eq!(verification.parameter("hub.mode").as_deref(), Some("subscribe"));
    assert_eq!(verification.parameter("hub.topic").as_deref(), Some(TOPIC));
    assert_eq!(
        verification.parameter("hub.lease_seconds").as_deref(),
        Some("2400"),
        "the hub decides the lease"
    );
    let challenge = verification.parameter("hub.challenge").unwrap();
    assert!(
        challenge.len() >= 16
            && challenge.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-./=_".contains(&b))
    );
    hub.until_subscribed(1).await;
}

#[tokio::test]
async fn fn047_unsubscribing_takes_the_same_two_steps() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (leaving, staying) = (Receiver::start().await, Receiver::start().await);
    hub.subscribe(TOPIC, &leaving.url("/callback/"), &[], 1).await;
    hub.subscribe(TOPIC, &staying.url("/callback/"), &[], 2).await;
    let parameters = [
        ("hub.mode", "unsubscribe"),
        ("hub.topic", TOPIC),
        ("hub.callback", &leaving.url("/callback/")),
        ("hub.lease_seconds", "abc"),
    ];
    assert_eq!(
        form(hub.address, &parameters).await.unwrap().status,
        202,
        "W-053: a lease is ignored here, even a bad one"
    );
    assert_eq!(leaving.until_verified(2).await.parameter("hub.mode").as_deref(), Some("unsubscribe"));
    hub.until_subscribed(1).await;

    hub.publish(TOPIC, "only for who stayed").await.unwrap();
    staying.until_delivered(1).await;
    hub.until_done().await;
    assert!(leaving.deliveries().is_empty());
}

#[tokio::test]
async fn w165_to_w168_d09_a_subscription_with_a_secret_is_signed_and_one_without_is_not() {
    let folder = tempdir().unwrap();
    for method in ["sha1", "sha256", "sha384", "sha512"] {
        let hub = HubProcess::start_with(&folder.path().join(method), &[("SIGNATURE_METHOD", method)]).await;
        let (signed, plain) = (Receiver::start().await, Receiver::start().await);
        hub.subscribe(TOPIC, &signed.url("/cb"), &[("hub.secret", "gr\u{fc}\u{df}e")], 1).await;
        hub.subscribe(TOPIC, &plain.url("/cb"), &[], 2).await;
        hub.publish(TOPIC, "what is signed").await.unwrap();

        let delivery = &signed.until_delivered(1).await[0];
        let header = delivery.header("x-hub-signature");
        assert!(header.starts_with(&format!("{method}=")), "{header}");
        assert_eq!(header, header.to_ascii_lowercase());
        assert!(delivery.is_signed_with("gr\u{fc}\u{df}e"));
        assert!(plain.until_delivered(1).await[0].headers.get("x-hub-signature").is_none());
    }
}

#[tokio::test]
async fn w141_w142_b19_type_and_bytes_arrive_as_they_were_posted() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    let link = format!("<{TOPIC}>; rel=self, <{}>; rel=hub", hub.url());
    let mut large: Vec<u8> = (0..900_000_u32).map(|n| n.to_le_bytes()[(n % 4) as usize]).collect();
    large.extend_from_slice(b"\xef\xbb\xbf\0\xff\r\n");
    let posts: [(&str, &[u8]); 3] = [
        ("text/plain;charset=UTF-8", b"\0\xff\xfe"),
        ("application/json; X=\"a b\"", b"{}"),
        ("image/png", &large),
    ];
    for (content_type, body) in posts {
        let answer =
            post(hub.address, &[("Content-Type", content_type), ("Link", &link)], body).await.unwrap();
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
    let deliveries = destination.until_delivered(3).await;
    for (delivery, (content_type, body)) in deliveries.iter().zip(posts) {
        assert_eq!(delivery.header("content-type"), content_type);
        assert!(delivery.body == body, "{content_type}: the body is not the same");
    }
}

#[tokio::test]
async fn w142_b19_an_empty_and_a_large_body_arrive_as_they_are() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("PUBLISH_MAX_BODY", "8 MiB")]).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let topic = publisher.url("/emptied");
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    hub.subscribe(&topic, &destination.url("/cb"), &[], 2).await;
    let link = format!("<{TOPIC}>; rel=self, <{}>; rel=hub", hub.url());
    let large: Vec<u8> = (0..6_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let headers = [("Content-Type", "video/mp4"), ("Link", link.as_str())];
    assert_eq!(post(hub.address, &headers, &large).await.unwrap().status, 202);
    assert!(destination.until_delivered(1).await[0].body == large, "it is not the same");

    publisher.behave(|_| Reply::Page(200, vec![("content-type", "text/csv".to_owned())], String::new()));
    form(hub.address, &[("hub.mode", "publish"), ("hub.url", &topic)]).await.unwrap();
    let emptied = destination.until_delivered(2).await.swap_remove(1);
    assert_eq!((emptied.body.len(), emptied.header("content-type")), (0, "text/csv"));
}

#[tokio::test]
async fn c04_c05_b31_a_ping_may_name_several_topics_by_both_names() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    publisher.behave(|seen| Reply::Status(200, seen.path().to_owned()));
    let topics = ["/a", "/b", "/c"].map(|path| publisher.url(path));
    for (number, topic) in topics.iter().enumerate() {
        hub.subscribe(topic, &destination.url("/cb"), &[], number + 1).await;
    }
    let [a, b, c] = topics.each_ref().map(String::as_str);
    let ping = [
        ("hub.mode", "publish"),
        ("hub.url", a),
        ("hub.url", b),
        ("hub.topic", c),
        ("hub.topic", a),
        ("hub.url", "http://127.0.0.1:9/nobody-subscribed"),
    ];
    assert_eq!(form(hub.address, &ping).await.unwrap().status, 204);
    let mut got: Vec<_> = destination.until_delivered(3).await.iter().map(Seen::text).collect();
    got.sort();
    assert_eq!(got, ["/a", "/b", "/c"]);
}

#[tokio::test]
async fn w131_w132_c04_c05_d12_b31_a_ping_makes_the_hub_fetch_the_topic_and_send_only_what_is_new() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let topic = publisher.url("/feed");
    publisher.behave(|_| Reply::Status(200, "first version".to_owned()));
    hub.subscribe(&topic, &destination.url("/cb"), &[], 1).await;

    for name in ["hub.url", "hub.topic"] {
        let answer = form(hub.address, &[("hub.mode", "publish"), (name, &topic)]).await.unwrap();
        assert_eq!(answer.status, 204, "C-04");
    }
    let delivery = &destination.until_delivered(1).await[0];
    assert_eq!(delivery.text(), "first version");
    let link = delivery.header("link");
    assert!(link.contains(&format!("<{}>; rel=\"hub\"", hub.url())), "D-12: {link}");
    assert!(link.contains(&format!("<{topic}>; rel=\"self\"")), "D-12: {link}");
    assert_eq!(publisher.until_verified(1).await.header("cache-control"), "no-cache");

    publisher.behave(|_| Reply::Status(200, "second version".to_owned()));
    form(hub.address, &[("hub.mode", "publish"), ("hub.url", &topic)]).await.unwrap();
    let deliveries = destination.until_delivered(2).await;
    assert_eq!(deliveries[1].text(), "second version", "unchanged content was not sent again in between");
    let unknown = [("hub.mode", "publish"), ("hub.url", "http://127.0.0.1:9/nobody-subscribed")];
    assert_eq!(form(hub.address, &unknown).await.unwrap().status, 204, "C-04: also without subscribers");
}

#[tokio::test]
async fn d18_a_browser_that_opens_the_hub_gets_an_explanation() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let bytes = format!("GET /websub/ HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", hub.address);
    let answer = request(hub.address, bytes.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("hub.mode=subscribe") && answer.text().contains(&hub.url()));
}
