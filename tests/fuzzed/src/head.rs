//! Any bytes as the query of a request for catching up, in the first line, and header fields, one a line: no panic; a proxy's
//! word about the client counts whatever the client wrote before; what goes on where a page ended asks for the same; a trace goes on
//! as it was read.

use std::net::IpAddr;
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue};
use resync_hub::config::{self, ClientHeader};
use resync_hub::http::{CatchUpQuery, TrustedProxies, wants_representation};
use resync_hub::store::Offset;
use resync_hub::telemetry::{TRACEPARENT, TraceContext};
use resync_hub::topics::PostHeader;

const PROXY: &str = "10.0.0.1";
const STRANGER: &str = "198.51.100.7";
const CLIENT: &str = "192.0.2.1";

/// Where proxies name the client, and how.
static PROXIES: LazyLock<[(TrustedProxies, &str, &str); 2]> = LazyLock::new(|| {
    [
        (ClientHeader::XForwardedFor, "x-forwarded-for", CLIENT),
        (ClientHeader::Forwarded, "forwarded", "for=192.0.2.1"),
    ]
    .map(|(header, name, word)| {
        let mut config = config::load(None, [], &Vec::new()).expect("the default is a configuration").ingress;
        config.trusted_proxies = vec!["10.0.0.0/8".parse().expect("it is a network")];
        config.client_header = header;
        (TrustedProxies::new(&config), name, word)
    })
});

/// Runs the target over one input.
pub fn run(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    catching_up(&String::from_utf8_lossy(lines.next().unwrap_or_default()));
    let headers = fields(lines);
    for (proxies, name, word) in PROXIES.iter() {
        client(proxies, name, word, &headers);
    }
    if let Ok(header) = PostHeader::read(&headers) {
        assert!(!header.hubs().is_empty());
    }
    traced(&headers);
    let mut asking = headers;
    let _ = wants_representation(&asking);
    asking.append("prefer", HeaderValue::from_static("return=representation"));
    assert!(wants_representation(&asking));
}

/// What goes out is valid, whatever came in.
fn traced(headers: &HeaderMap) {
    let Some(context) = TraceContext::of(headers) else { return };
    let (child, text) = (context.child(), context.to_string());
    assert_eq!(headers.get_all(TRACEPARENT).iter().count(), 1);
    assert_eq!(TraceContext::parse(text.as_bytes()), Some(context));
    assert_eq!(TraceContext::from_bytes(&context.to_bytes()), Some(context));
    assert_eq!((child.trace(), child.is_sampled()), (context.trace(), context.is_sampled()));
}

fn fields<'a>(lines: impl Iterator<Item = &'a [u8]>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let field = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        Some((HeaderName::from_bytes(&line[..colon]).ok()?, value))
    };
    for (name, value) in lines.filter_map(field) {
        // More than a map takes are more than a server reads.
        let _ = headers.try_append(name, value);
    }
    headers
}

fn catching_up(query: &str) {
    let Ok(query) = CatchUpQuery::parse(query) else { return };
    assert!((1..=1_000).contains(&query.limit));
    let after = Some(Offset(7));
    assert_eq!(CatchUpQuery::parse(&query.going_on(Offset(7))), Ok(CatchUpQuery { after, ..query }));
}

fn client(proxies: &TrustedProxies, name: &'static str, word: &str, headers: &HeaderMap) {
    let [proxy, stranger, named] =
        [PROXY, STRANGER, CLIENT].map(|text| text.parse::<IpAddr>().expect("it is an address"));
    assert_eq!(proxies.client(stranger, headers), stranger);
    if !headers.contains_key(name) {
        assert_eq!(proxies.client(proxy, headers), proxy);
    }
    let mut added = headers.clone();
    added.append(name, HeaderValue::try_from(word).expect("it is a value"));
    assert_eq!(proxies.client(proxy, &added), named, "a field of its own");
    let Some(last) = headers.get_all(name).iter().next_back() else { return };
    let joined = [last.as_bytes(), b", ", word.as_bytes()].concat();
    let mut joined_headers = headers.clone();
    joined_headers.insert(name, HeaderValue::from_bytes(&joined).expect("both were values"));
    assert_eq!(proxies.client(proxy, &joined_headers), named, "in the same field");
}
