//! Who the client is: the peer of the connection, or whom a trusted proxy names.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::FORWARDED;
use ipnet::IpNet;

/// The older name of what `Forwarded` says.
const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// The proxies whose word counts.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// The proxies in these networks.
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// Whether this address is one of theirs.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The client of a request that came from `peer`: `peer` itself unless it is trusted, else the rightmost address in its
    /// chain that is not. Only what trusted proxies have added to the chain is believed; a part that is no address ends it.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if !self.contains(client) {
            return client;
        }
        for named in chain(headers).into_iter().rev() {
            let Some(address) = named else { break };
            client = address;
            if !self.contains(address) {
                break;
            }
        }
        client
    }
}

/// The addresses that proxies have noted, the last one last; `None` for what is no address.
fn chain(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let parts = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(|part| part.trim().to_owned()).collect()
    };
    let forwarded = parts(FORWARDED.as_str());
    if forwarded.is_empty() {
        return parts(X_FORWARDED_FOR).iter().map(|part| address(part)).collect();
    }
    forwarded.iter().map(|element| forwarded_for(element).and_then(address)).collect()
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
        let proxies = TrustedProxies::new(vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]);
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
            assert_eq!(client("10.0.0.1", &[("forwarded", header)]), "192.0.2.1", "{header}");
        }
        assert_eq!(client("10.0.0.1", &[("forwarded", "for=\"[2001:db8::7]:4711\"")]), "2001:db8::7");
    }

    #[test]
    fn what_is_no_address_ends_the_chain() {
        assert_eq!(client("10.0.0.1", &[("forwarded", "for=192.0.2.1, for=unknown")]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &[("x-forwarded-for", "192.0.2.1, x, 10.0.0.2")]), "10.0.0.2");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
    }
}
