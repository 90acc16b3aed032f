//! The client of a request: the peer of the connection, or the address that a trusted proxy names.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::FORWARDED;
use ipnet::IpNet;

use crate::config::{ClientHeader, IngressConfig};

/// The older name of what `Forwarded` says.
const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// The trusted proxies, and the header in which they name the client.
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    header: ClientHeader,
}

impl TrustedProxies {
    /// The proxies of a configuration.
    pub fn new(config: &IngressConfig) -> Self {
        Self { networks: config.trusted_proxies.clone(), header: config.client_header }
    }

    /// Whether this address is one of theirs.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The client of a request from `peer`: `peer` itself unless it is trusted, else the rightmost address in its chain that is not.
    /// Only what trusted proxies added to the chain counts; a part that is not an address ends it.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if !self.contains(client) {
            return client;
        }
        for named in self.chain(headers).into_iter().rev() {
            let Some(address) = named else { break };
            client = address;
            if !self.contains(address) {
                break;
            }
        }
        client
    }

    /// The addresses that proxies added, the last one last; `None` for a part that is not an address. The other header is ignored: a
    /// proxy that does not set it passes on what the client wrote.
    fn chain(&self, headers: &HeaderMap) -> Vec<Option<IpAddr>> {
        let (name, read): (_, fn(&str) -> Option<IpAddr>) = match self.header {
            ClientHeader::XForwardedFor => (X_FORWARDED_FOR, address),
            ClientHeader::Forwarded => (FORWARDED.as_str(), |part| forwarded_for(part).and_then(address)),
        };
        // Invalid bytes invalidate their own part only: the client wrote them, and what the proxy adds follows.
        let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let parts = values.map(|value| value.split(',').map(|part| read(part.trim())).collect::<Vec<_>>());
        parts.flatten().collect()
    }
}

/// The `for` of an element of `Forwarded` (RFC 7239 section 5.2).
fn forwarded_for(element: &str) -> Option<&str> {
    element.split(';').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then(|| value.trim().trim_matches('"'))
    })
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None if text.matches(':').count() == 1 => text.split(':').next().unwrap_or_default(),
        None => text,
    };
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, headers: &[(&'static str, &str)]) -> String {
        client_by(ClientHeader::XForwardedFor, peer, headers)
    }

    fn client_by(header: ClientHeader, peer: &str, headers: &[(&'static str, &str)]) -> String {
        let networks = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let proxies = TrustedProxies { networks, header };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        proxies.client(peer.parse().unwrap(), &map).to_string()
    }

    #[test]
    fn a_stranger_cannot_pretend_to_be_somebody_else() {
        assert_eq!(client("192.0.2.1", &[("x-forwarded-for", "198.51.100.7")]), "192.0.2.1");
        assert_eq!(client("192.0.2.1", &[("forwarded", "for=198.51.100.7")]), "192.0.2.1");
    }

    #[test]
    fn behind_trusted_proxies_the_rightmost_address_that_is_not_theirs_counts() {
        for header in ["203.0.113.9, 192.0.2.1", "203.0.113.9, 192.0.2.1, 10.1.1.1", "192.0.2.1:4711"] {
            assert_eq!(client("10.0.0.1", &[("x-forwarded-for", header)]), "192.0.2.1", "{header}");
        }
        let several = [("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "192.0.2.1")];
        assert_eq!(client("::ffff:10.0.0.1", &several), "192.0.2.1");
        assert_eq!(client("fd00::1", &[("x-forwarded-for", "2001:db8::7")]), "2001:db8::7");
    }

    #[test]
    fn the_forwarded_header_is_read_in_all_its_spellings() {
        for header in [
            "for=192.0.2.1",
            "proto=https;For=\"192.0.2.1:80\"",
            "for=203.0.113.9, by=10.0.0.1; for=192.0.2.1",
        ] {
            assert_eq!(forwarded("10.0.0.1", header), "192.0.2.1", "{header}");
        }
        assert_eq!(forwarded("10.0.0.1", "for=\"[2001:db8::7]:4711\""), "2001:db8::7");
    }

    fn forwarded(peer: &str, value: &str) -> String {
        client_by(ClientHeader::Forwarded, peer, &[("forwarded", value)])
    }

    #[test]
    fn a_header_that_the_proxy_does_not_write_is_the_clients_own_word_and_not_read() {
        let both = [("forwarded", "for=198.51.100.7"), ("x-forwarded-for", "192.0.2.1")];
        assert_eq!(client("10.0.0.1", &both), "192.0.2.1");
        assert_eq!(client_by(ClientHeader::Forwarded, "10.0.0.1", &both), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &both[..1]), "10.0.0.1");
        assert_eq!(client_by(ClientHeader::Forwarded, "10.0.0.1", &both[1..]), "10.0.0.1");
    }

    #[test]
    fn bytes_that_are_no_text_end_the_chain() {
        let mut headers = HeaderMap::new();
        headers.append("x-forwarded-for", "192.0.2.1".parse().unwrap());
        headers.append("x-forwarded-for", http::HeaderValue::from_bytes(b"\xff").unwrap());
        let proxies = TrustedProxies {
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            header: ClientHeader::XForwardedFor,
        };
        assert_eq!(proxies.client("10.0.0.1".parse().unwrap(), &headers).to_string(), "10.0.0.1");
        let added = http::HeaderValue::from_bytes(b"\xff, 192.0.2.1").unwrap();
        headers.insert("x-forwarded-for", added);
        assert_eq!(proxies.client("10.0.0.1".parse().unwrap(), &headers).to_string(), "192.0.2.1");
    }

    #[test]
    fn what_is_no_address_ends_the_chain() {
        assert_eq!(forwarded("10.0.0.1", "for=192.0.2.1, for=unknown"), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &[("x-forwarded-for", "192.0.2.1, x, 10.0.0.2")]), "10.0.0.2");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
    }
}
