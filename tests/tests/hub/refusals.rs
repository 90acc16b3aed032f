//! Bad input gets a 4xx in plain text that says what is wrong and what would be right; nothing of it stays behind.

use resync_harness::{Answer, HubProcess, Receiver, form, post, request};
use tempfile::tempdir;

const TOPIC: &str = "http://example.com/dataset1/framework/";
const CALLBACK: &str = "http://127.0.0.1:9/callback";

/// Parameters, and words of the refusal.
type BadForm<'a> = (Vec<(&'a str, String)>, &'a [&'a str]);
/// Content type, links, body; status and words of the refusal.
type BadPost<'a> = (Option<&'a str>, Option<&'a str>, &'a str, u16, &'a [&'a str]);

/// Asserts a refusal that explains itself with these words.
fn assert_refused(answer: &Answer, status: u16, words: &[&str]) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert!(answer.header("content-type").is_some_and(|value| value.starts_with("text/plain")), "W-088");
    let text = answer.text();
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[tokio::test]
async fn b02_b03_d04_d05_w057_w087_w088_malformed_subscription_requests_are_refused_with_the_reason() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let long = "x".repeat(200);
    let two_bytes_each = "\u{fc}".repeat(100);
    let whole = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", CALLBACK)];
    let with = |change: &[(&'static str, &str)]| {
        let mut all: Vec<(&str, String)> =
            whole.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        for (name, value) in change {
            match all.iter_mut().find(|(known, _)| known == name) {
                Some(pair) => pair.1 = (*value).to_owned(),
                None => all.push((*name, (*value).to_owned())),
            }
        }
        all
    };
    let cases: Vec<BadForm> = vec![
        (
            vec![("hub.topic", TOPIC.to_owned()), ("hub.callback", CALLBACK.to_owned())],
            &["hub.mode", "subscribe"],
        ),
        (vec![("hub.mode", "subscribe".to_owned()), ("hub.callback", CALLBACK.to_owned())], &["hub.topic"]),
        (vec![("hub.mode", "subscribe".to_owned()), ("hub.topic", TOPIC.to_owned())], &["hub.callback"]),
        (with(&[("hub.mode", "subscripe")]), &["hub.mode", "subscribe"]),
        (with(&[("hub.callback", "ftp://example.com/")]), &["hub.callback", "http"]),
        (with(&[("hub.callback", "not a url")]), &["hub.callback"]),
        (with(&[("hub.topic", "/relative")]), &["hub.topic"]),
        (with(&[("hub.secret", &long)]), &["hub.secret", "199"]),
        (with(&[("hub.secret", &two_bytes_each)]), &["hub.secret", "199"]),
        (with(&[("hub.lease_seconds", "0")]), &["hub.lease_seconds"]),
        (with(&[("hub.lease_seconds", "-1")]), &["hub.lease_seconds"]),
        (with(&[("hub.lease_seconds", "1.5")]), &["hub.lease_seconds"]),
        (with(&[("hub.lease_seconds", "soon")]), &["hub.lease_seconds"]),
        (vec![("hub.mode", "publish".to_owned())], &["hub.url"]),
    ];
    for (parameters, words) in cases {
        let pairs: Vec<(&str, &str)> =
            parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_refused(&form(hub.address, &pairs).await.unwrap(), 400, words);
    }
    let mut twice = whole.to_vec();
    twice.push(("hub.topic", "http://example.com/other"));
    assert_refused(&form(hub.address, &twice).await.unwrap(), 400, &["hub.topic", "once"]);

    let body =
        b"hub.mode=subscribe&hub.topic=http%3A%2F%2Fa.example%2F%FF&hub.callback=http%3A%2F%2Fb.example%2F";
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    assert_refused(&post(hub.address, &headers, body).await.unwrap(), 400, &["UTF-8"]);
}

#[tokio::test]
async fn b03_w011_w057_the_longest_legal_secret_is_accepted() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[("hub.secret", &"x".repeat(199))], 1).await;
}

#[tokio::test]
async fn d20_callbacks_at_forbidden_addresses_are_refused_at_once() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    for callback in
        ["http://10.0.0.1/", "http://169.254.169.254/latest", "http://[fd00::1]/", "http://192.168.1.1:8080/"]
    {
        let parameters = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", callback)];
        assert_refused(
            &form(hub.address, &parameters).await.unwrap(),
            400,
            &["hub.callback", "not a public address"],
        );
    }
}

#[tokio::test]
async fn fn033_malformed_posts_are_refused_with_the_reason() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let both = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let source = format!("{both}, <http://example.com/capabilitylist.xml>; rel=\"resourcesync\"");
    let only_self = format!("<{TOPIC}>; rel=\"self\"");
    let only_hub = format!("<{}>; rel=\"hub\"", hub.url());
    let two_topics = format!("{both}, <http://example.com/other>; rel=\"self\"");
    let no_url = both.replace(TOPIC, "somewhere");
    let xml = "application/xml";
    let head = "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">";
    let md = "<rs:md capability=\"framework-notification\"/>";
    let entry = "<url><loc>http://example.com/resourcelist.xml</loc><rs:md change=\"updated\" capability=\"resourcelist\"/></url>";
    let good = format!("{head}{md}{entry}</urlset>");
    resync_judge::written("posted", [("good", &good)]);
    assert_eq!(
        post(hub.address, &[("Content-Type", xml), ("Link", &source)], good.as_bytes()).await.unwrap().status,
        202,
        "the document that the cases below spoil is right"
    );

    let no_change = good.replace("change=\"updated\" ", "");
    let bad_change = good.replace("updated", "renamed");
    let no_capability = good.replace(" capability=\"resourcelist\"", "");
    let no_loc = good.replace("<loc>http://example.com/resourcelist.xml</loc>", "");
    let index = good.replace("urlset", "sitemapindex").replace("url>", "sitemap>");
    let two_mds = format!("{head}{md}{md}{entry}</urlset>");
    let list = good.replace("framework-notification", "resourcelist");
    let dtd = format!("<!DOCTYPE urlset [<!ENTITY a \"b\">]>{good}");
    let cut = &good[..good.len() - 12];
    let change_without_interval = format!(
        "{head}<rs:md capability=\"change-notification\"/><url><loc>http://example.com/a</loc><rs:md change=\"updated\"/></url></urlset>"
    );
    let cases: &[BadPost] = &[
        (None, Some(&source), &good, 415, &["Content-Type", "application/xml"]),
        (Some("text/plain"), Some(&source), &good, 415, &["application/xml", "text/plain"]),
        (Some(xml), None, &good, 400, &["rel=\"self\""]),
        (Some(xml), Some(&only_hub), &good, 400, &["rel=\"self\""]),
        (Some(xml), Some(&only_self), &good, 400, &["rel=\"hub\""]),
        (Some(xml), Some(&two_topics), &good, 400, &["several topics"]),
        (Some(xml), Some(&no_url), &good, 400, &["rel=\"self\""]),
        (Some(xml), Some(&source), "", 400, &["body"]),
        (Some(xml), Some(&source), "hello", 400, &["line 1"]),
        (Some(xml), Some(&source), cut, 400, &["cannot be read"]),
        (Some(xml), Some(&source), &dtd, 400, &["DOCTYPE"]),
        (Some(xml), Some(&source), &no_change, 400, &["FN-023", "change", "entry 1"]),
        (Some(xml), Some(&source), &bad_change, 400, &["RS-033", "renamed"]),
        (Some(xml), Some(&source), &no_capability, 400, &["FN-023", "capability"]),
        (Some(xml), Some(&source), &no_loc, 400, &["loc"]),
        (Some(xml), Some(&source), &index, 400, &["FN-020"]),
        (Some(xml), Some(&source), &two_mds, 400, &["rs:md"]),
        (Some(xml), Some(&source), &list, 400, &["resourcelist", "framework-notification"]),
        (Some(xml), Some(&both), &change_without_interval, 400, &["CN-007", "from"]),
    ];
    for (content_type, link, body, status, words) in cases {
        let mut headers = Vec::new();
        headers.extend(content_type.map(|value| ("Content-Type", value)));
        headers.extend(link.map(|value| ("Link", value)));
        let answer = post(hub.address, &headers, body.as_bytes()).await.unwrap();
        assert_refused(&answer, *status, words);
    }
    assert!(
        hub.admin("/api/v1/topics").await.text().contains("\"head\":1"),
        "only the good one is in the log"
    );

    for content_type in ["application/json", "multipart/form-data; boundary=x"] {
        let answer = post(hub.address, &[("Content-Type", content_type)], b"{\"hub.mode\":\"subscribe\"}")
            .await
            .unwrap();
        assert_refused(&answer, 415, &["application/x-www-form-urlencoded"]);
    }
    let keyed = [("Content-Type", "text/plain"), ("Link", both.as_str()), ("Idempotency-Key", "k")];
    assert_eq!(post(hub.address, &keyed, b"one").await.unwrap().status, 202);
    assert_refused(&post(hub.address, &keyed, b"another").await.unwrap(), 422, &["Idempotency-Key"]);
}

#[tokio::test]
async fn limits_of_method_size_and_path_have_their_own_status() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("PUBLISH_MAX_BODY", "64 KiB")]).await;
    let send = async |text: String| request(hub.address, text.as_bytes()).await.unwrap();
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS"] {
        let answer = send(format!(
            "{method} /websub/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        ))
        .await;
        assert_refused(&answer, 405, &["POST"]);
        assert!(answer.header("allow").is_some_and(|allow| allow.contains("POST")));
    }
    for method in ["DELETE", "POST"] {
        let root =
            format!("{method} / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        assert_refused(&send(root).await, 405, &["GET", "the hub's endpoint is /websub/"]);
    }
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let headers = [("Content-Type", "text/plain"), ("Link", link.as_str())];
    assert_refused(&post(hub.address, &headers, &vec![b'x'; 65_537]).await.unwrap(), 413, &["64.0 KiB"]);
    assert_eq!(post(hub.address, &headers, &vec![b'x'; 65_536]).await.unwrap().status, 202);

    let chunked = format!(
        "POST /websub/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: text/plain\r\nLink: {link}\r\n\
         Transfer-Encoding: chunked\r\n\r\n10001\r\n{}\r\n0\r\n\r\n",
        "x".repeat(65_537)
    );
    assert_refused(&send(chunked).await, 413, &["64.0 KiB"]);
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    assert_refused(&post(hub.address, &form, &vec![b'x'; 70_000]).await.unwrap(), 413, &["64.0 KiB"]);
    assert_refused(
        &send("GET /nowhere HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned()).await,
        404,
        &["/websub/"],
    );
    let header =
        format!("GET /websub/ HTTP/1.1\r\nHost: h\r\nX: {}\r\nConnection: close\r\n\r\n", "x".repeat(20_000));
    assert_eq!(send(header).await.status, 431);
}

#[tokio::test]
async fn publishing_needs_a_token_that_covers_the_topic() {
    let folder = tempdir().unwrap();
    let data = folder.path().display().to_string();
    // --dev opens everything, so this hub is started without it.
    let listen = "127.0.0.1:0".to_owned();
    let environment =
        std::collections::HashMap::from([("RESYNC_HUB_ADMIN_LISTEN".to_owned(), "127.0.0.1:0".to_owned())]);
    let mut hub = resync_harness::Process::start(
        "resync-hub",
        &["--listen", &listen, "--data-dir", &data],
        &environment,
    );
    let line = hub.line("listening on http://").await;
    let address = line.rsplit("http://").next().unwrap().parse().unwrap();
    let none = std::collections::HashMap::new();
    let add =
        ["token", "add", "library", "--topic-prefix", "http://example.com/dataset1/", "--data-dir", &data];
    let mut adding = resync_harness::Process::start("resync-hub", &add, &none);
    let token = adding.line("rsh_").await;

    let send = async |topic: &str, authorization: Option<String>| {
        let link = format!("<{topic}>; rel=\"self\", <http://hub.example/websub/>; rel=\"hub\"");
        let mut headers = vec![("Content-Type", "text/plain"), ("Link", link.as_str())];
        headers.extend(authorization.as_deref().map(|value| ("Authorization", value)));
        post(address, &headers, b"news").await.unwrap()
    };
    let refused = send(TOPIC, None).await;
    assert_refused(&refused, 401, &["Authorization: Bearer", "token add"]);
    assert!(refused.header("www-authenticate").is_some());
    let link = format!("<{TOPIC}>; rel=\"self\", <http://hub.example/websub/>; rel=\"hub\"");
    let stranger = [("Content-Type", "application/xml"), ("Link", link.as_str())];
    let unread = post(address, &stranger, b"<feed").await.unwrap();
    assert_refused(&unread, 401, &["token"]);
    assert_refused(&send(TOPIC, Some("Bearer rsh_wrong".to_owned())).await, 401, &["token"]);
    assert_refused(
        &send("http://other.example/", Some(format!("Bearer {token}"))).await,
        403,
        &["--topic-prefix"],
    );
    assert_eq!(send(TOPIC, Some(format!("Bearer {token}"))).await.status, 202);
}
