//! The hub's doors: slow, many and hanging clients cost a bounded place for a bounded time, and nobody else notices.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use resync_harness::{Answer, HubProcess, PATIENCE, Receiver, Reply, Seen, eventually, form, post, request};
use tempfile::tempdir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

const TOPIC: &str = "http://example.com/framework/";
const GET: &[u8] = b"GET /websub/ HTTP/1.1\r\nHost: h\r\n\r\n";

/// A connection from another address of this machine, which makes it another client.
async fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0)).unwrap();
    socket.connect(to).await.unwrap()
}

/// Everything that comes until the other side closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset is closed too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the connection is closed");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Asks on a connection that stays open; the status line.
async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(GET).await.unwrap();
    let mut bytes = [0; 2_048];
    let read = timeout(PATIENCE, stream.read(&mut bytes)).await.unwrap().unwrap();
    String::from_utf8_lossy(&bytes[..read]).lines().next().unwrap_or_default().to_owned()
}

async fn get(address: SocketAddr) -> Answer {
    request(address, b"GET /websub/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap()
}

#[tokio::test]
async fn a_header_that_does_not_end_and_a_connection_without_requests_are_closed() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("INGRESS_HEADER_TIMEOUT", "500ms")]).await;
    let mut slow = TcpStream::connect(hub.address).await.unwrap();
    slow.write_all(b"POST /websub/ HTTP/1.1\r\nHost: h\r\nX-Slow:").await.unwrap();
    let mut silent = TcpStream::connect(hub.address).await.unwrap();
    let mut idle = TcpStream::connect(hub.address).await.unwrap();
    assert_eq!(ask(&mut idle).await, "HTTP/1.1 200 OK");
    for stream in [&mut slow, &mut silent, &mut idle] {
        assert_eq!(rest(stream).await, "");
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_is_refused_with_408() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("INGRESS_BODY_TIMEOUT", "500ms")]).await;
    let mut slow = TcpStream::connect(hub.address).await.unwrap();
    let head = "POST /websub/ HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nhub.mode=";
    slow.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("too slowly"), "{answer}");
}

#[tokio::test]
async fn nor_does_the_operators_listener_wait_for_a_body() {
    let folder = tempdir().unwrap();
    let keys = [("INGRESS_BODY_TIMEOUT", "500ms"), ("INGRESS_CONNECTIONS_PER_CLIENT", "2")];
    let hub = HubProcess::start_with(folder.path(), &keys).await;
    let token = fs::read_to_string(folder.path().join("admin-token")).unwrap();
    let by_token = format!("Authorization: Bearer {token}\r\n");
    for (path, header) in [
        ("/login", "Content-Type: application/x-www-form-urlencoded\r\n"),
        ("/api/v1/subscriptions/deny", by_token.as_str()),
        ("/api/v1/tokens", by_token.as_str()),
    ] {
        let mut parked = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(hub.admin_address()).await.unwrap();
            let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\n{header}Content-Length: 9\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            parked.push(stream);
        }
        for mut stream in parked {
            let answer = rest(&mut stream).await;
            assert!(answer.starts_with("HTTP/1.1 408 "), "{path}: {answer}");
        }
        eventually("there is room for the operator", || async { hub.admin("/livez").await.status == 200 })
            .await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_loses_its_connection() {
    let folder = tempdir().unwrap();
    let keys = [("INGRESS_ANSWER_TIMEOUT", "500ms"), ("INGRESS_CONNECTIONS", "1")];
    let hub = HubProcess::start_with(folder.path(), &keys).await;
    let news = "x".repeat(1_000_000);
    for _ in 0..4 {
        eventually("it is taken", || async { hub.publish(TOPIC, &news).await.unwrap().status == 202 }).await;
    }
    let target = "/websub/notifications?topic=http%3A%2F%2Fexample.com%2Fframework%2F";
    let mut first = [0; 15];
    // The place of the last post may take a moment to be free.
    let mut lazy = loop {
        let mut lazy = TcpStream::connect(hub.address).await.unwrap();
        // Whoever has no place may be reset before it has asked.
        let _ = lazy.write_all(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await;
        if lazy.read_exact(&mut first).await.is_ok() && &first == b"HTTP/1.1 200 OK" {
            break lazy;
        }
    };
    eventually("the only place is free again", || async { get(hub.address).await.status == 200 }).await;
    assert!(rest(&mut lazy).await.len() < 4_000_000, "it was cut off");
}

#[tokio::test]
async fn who_does_not_read_what_it_asked_for_leaves_room_for_the_pages_of_others() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let news = "x".repeat(1_000_000);
    for _ in 0..4 {
        assert_eq!(hub.publish(TOPIC, &news).await.unwrap().status, 202);
    }
    let target = "/websub/notifications?topic=http%3A%2F%2Fexample.com%2Fframework%2F";
    let page = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let begin = async |last: u8| {
        let mut stream = connect_from(last, hub.address).await;
        stream.write_all(page.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        timeout(PATIENCE, stream.read_exact(&mut first)).await.unwrap().unwrap();
        (String::from_utf8_lossy(&first).into_owned(), stream)
    };
    let lazy = [begin(2).await, begin(2).await];
    assert!(lazy.iter().all(|(status, _)| status == "HTTP/1.1 200"));
    let (status, mut third) = begin(2).await;
    assert_eq!(status, "HTTP/1.1 429");
    assert!(rest(&mut third).await.contains("retry-after: "), "it is told when to come back");
    assert_eq!(begin(3).await.0, "HTTP/1.1 200", "somebody else is served");
    drop(lazy);
    eventually("it may read again", || async { begin(2).await.0 == "HTTP/1.1 200" }).await;
}

#[tokio::test]
async fn one_client_cannot_take_all_connections() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[("INGRESS_CONNECTIONS_PER_CLIENT", "4")]).await;
    let mut greedy = Vec::new();
    for _ in 0..4 {
        let mut stream = connect_from(2, hub.address).await;
        assert_eq!(ask(&mut stream).await, "HTTP/1.1 200 OK");
        greedy.push(stream);
    }
    let mut fifth = connect_from(2, hub.address).await;
    let answer = rest(&mut fifth).await;
    assert!(answer.starts_with("HTTP/1.1 429 ") && answer.contains("Retry-After: "), "{answer}");
    assert_eq!(get(hub.address).await.status, 200, "somebody else is served");
    drop(greedy);
    eventually("places are free again", || async {
        let mut again = connect_from(2, hub.address).await;
        ask(&mut again).await == "HTTP/1.1 200 OK"
    })
    .await;
}

#[tokio::test]
async fn beyond_all_connections_the_answer_is_503() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[("INGRESS_CONNECTIONS", "8")]).await;
    let mut taken = Vec::new();
    for last in 2..10 {
        let mut stream = connect_from(last, hub.address).await;
        assert_eq!(ask(&mut stream).await, "HTTP/1.1 200 OK");
        taken.push(stream);
    }
    let refused = get(hub.address).await;
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    drop(taken);
    eventually("places are free again", || async { get(hub.address).await.status == 200 }).await;
}

#[tokio::test]
async fn a_hub_that_runs_out_of_file_descriptors_goes_on_when_there_are_some_again() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_with_files(folder.path(), 120).await;
    let mut taken = Vec::new();
    for _ in 0..200 {
        taken.push(TcpStream::connect(hub.address).await.unwrap());
    }
    hub.process().line("connection not accepted").await;
    drop(taken);
    assert_eq!(get(hub.address).await.status, 200);
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
}

#[tokio::test]
async fn requests_of_one_client_are_counted_and_the_refusal_says_when_to_come_back() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[("LIMITS_CLIENT", "1/h, burst 3")]).await;
    let mut statuses = Vec::new();
    for _ in 0..5 {
        let answer = hub.publish(TOPIC, "news").await.unwrap();
        let waits = answer.header("retry-after").map_or(0, |seconds| seconds.parse::<u32>().unwrap());
        assert_eq!(answer.status == 429, (3_500..=3_600).contains(&waits), "{answer:?}");
        statuses.push(answer.status);
    }
    assert_eq!(statuses, [202, 202, 202, 429, 429]);
    assert_eq!(get(hub.address).await.status, 200, "reading is free");
}

#[tokio::test]
async fn behind_a_trusted_proxy_the_client_is_whom_the_proxy_names() {
    let folder = tempdir().unwrap();
    let keys = [("LIMITS_CLIENT", "1/h, burst 1"), ("INGRESS_TRUSTED_PROXIES", "[\"127.0.0.1/32\"]")];
    let hub = HubProcess::start_public(folder.path(), &keys).await;
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let send = async |name: &str, value: &str| {
        let headers = [("Content-Type", "text/plain"), ("Link", link.as_str()), (name, value)];
        post(hub.address, &headers, b"news").await.unwrap().status
    };
    assert_eq!(send("X-Forwarded-For", "192.0.2.1").await, 202);
    assert_eq!(send("X-Forwarded-For", "192.0.2.1").await, 429);
    assert_eq!(send("X-Forwarded-For", "203.0.113.5, 192.0.2.1").await, 429, "only the proxy's word counts");
    assert_eq!(send("X-Forwarded-For", "192.0.2.2").await, 202);

    let mut stranger = connect_from(2, hub.address).await;
    let forged = format!(
        "POST /websub/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: text/plain\r\nLink: {link}\r\n\
         X-Forwarded-For: 192.0.2.1\r\nContent-Length: 4\r\n\r\nnews"
    );
    stranger.write_all(forged.as_bytes()).await.unwrap();
    assert!(rest(&mut stranger).await.starts_with("HTTP/1.1 202 "), "nobody else is believed");
}

#[tokio::test]
async fn b33_a_stranger_who_is_refused_locks_out_nobody_but_itself() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_public(folder.path(), &[("LIMITS_CALLBACK_HOST", "1/h, burst 20")]).await;
    let host = Receiver::start().await;
    host.behave(|_| Reply::Status(404, String::new()));
    let ask = async |address, client: u8, number: u32| {
        let body = query(&[
            ("hub.mode", "subscribe"),
            ("hub.topic", TOPIC),
            ("hub.callback", &host.url(&format!("/{number}"))),
        ]);
        let mut stream = connect_from(client, address).await;
        let request = format!(
            "POST /websub/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        rest(&mut stream).await
    };
    for number in 0..20 {
        assert!(ask(hub.address, 2, number).await.starts_with("HTTP/1.1 202 "));
    }
    assert!(ask(hub.address, 2, 20).await.starts_with("HTTP/1.1 429 "));
    hub.process().line_number("request not verified", 20).await;
    assert!(
        ask(hub.address, 3, 21).await.starts_with("HTTP/1.1 202 "),
        "neither its budget nor its rest is another's"
    );
}

fn query(pairs: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// A proxy that writes one of the two headers passes on the other as the client wrote it.
#[tokio::test]
async fn a_client_behind_a_proxy_cannot_name_itself_in_the_header_that_the_proxy_does_not_write() {
    const XFF: &str = "X-Forwarded-For: 192.0.2.1";
    const FORWARDED: &str = "Forwarded: for=\"192.0.2.1:4711\"; proto=https";
    for (chosen, written, forged) in [
        ("x-forwarded-for", XFF, ["Forwarded: for=198.51.100.1", "Forwarded: for=198.51.100.2"]),
        ("forwarded", FORWARDED, ["X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 198.51.100.2"]),
    ] {
        let folder = tempdir().unwrap();
        let keys = [
            ("LIMITS_CLIENT", "1/h, burst 1"),
            ("INGRESS_TRUSTED_PROXIES", "[\"127.0.0.1/32\"]"),
            ("INGRESS_CLIENT_HEADER", chosen),
        ];
        let hub = HubProcess::start_public(folder.path(), &keys).await;
        let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
        let mut statuses = Vec::new();
        for forged in forged {
            let headers = [forged, written].map(|line| line.split_once(": ").unwrap());
            let headers = [("Content-Type", "text/plain"), ("Link", &link), headers[0], headers[1]];
            statuses.push(post(hub.address, &headers, b"news").await.unwrap().status);
        }
        assert_eq!(statuses, [202, 429], "{chosen}: one client, whatever it calls itself");
    }
}

#[tokio::test]
async fn at_shutdown_what_is_under_way_is_finished_within_ten_seconds() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let (hanging, quick) = (Receiver::start().await, Receiver::start().await);
    hub.subscribe(TOPIC, &hanging.url("/cb"), &[], 1).await;
    hub.subscribe(TOPIC, &quick.url("/cb"), &[], 2).await;
    hanging.behave(|_| Reply::Hang);
    hub.publish(TOPIC, "first").await.unwrap();
    hanging.until_delivered(1).await;
    quick.until_delivered(1).await;

    let mut under_way = TcpStream::connect(hub.address).await.unwrap();
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let head = format!(
        "POST /websub/ HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Type: text/plain\r\nLink: {link}\r\nContent-Length: 6\r\n\r\n"
    );
    under_way.write_all(head.as_bytes()).await.unwrap();
    let mut bytes = [0; 25];
    under_way.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"HTTP/1.1 100 Continue\r\n\r\n", "the request is under way");
    let asked = Instant::now();
    hub.ask_to_stop();
    eventually("new connections are refused", || async { TcpStream::connect(hub.address).await.is_err() })
        .await;
    under_way.write_all(b"second").await.unwrap();
    let answer = rest(&mut under_way).await;
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    assert!(hub.process().wait().await.success());
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());

    hanging.behave(|_| Reply::Agree);
    hub.restart().await;
    let bodies: Vec<_> = quick.until_delivered(2).await.iter().map(Seen::text).collect();
    assert_eq!(
        bodies,
        ["first", "second"],
        "what was delivered is not repeated, what was accepted is delivered"
    );
    let parameters = [("hub.mode", "publish"), ("hub.url", "http://127.0.0.1:9/")];
    assert_eq!(form(hub.address, &parameters).await.unwrap().status, 204);
}
