//! Which addresses the hub may contact (D-20, B-32): global unicast only, unless the operator allows more.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use resync_core::address::is_public;
use url::{Host, Url};

use super::resolver::{Resolver, Unresolved};
use super::tls_roots::TlsRoots;

/// An address that the guard has let through. Connections are made to nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicAddress(SocketAddr);

impl PublicAddress {
    /// The socket address to connect to.
    pub fn socket(self) -> SocketAddr {
        self.0
    }

    pub(super) fn network(self) -> IpNet {
        network(self.0.ip())
    }
}

/// The /24 of an address, or the /48 of IPv6: its owner mostly has all of it. With NAT64 all of IPv4 is in one /48, so there the
/// embedded IPv4 address counts.
pub(crate) fn network(address: IpAddr) -> IpNet {
    let ip = match canonical(address) {
        IpAddr::V6(v6) if v6.segments().starts_with(&[0x64, 0xff9b, 0, 0, 0, 0]) => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::from([a, b, c, d])
        }
        ip => ip,
    };
    IpNet::new(ip, if ip.is_ipv4() { 24 } else { 48 }).map_or(IpNet::from(ip), |net| net.trunc())
}

/// Why an address may not be contacted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// The address is private, local, reserved or a translation of such a one.
    #[error("{0} is not a public address; the hub's operator can allow it with [egress] allow = [\"{1}\"]")]
    Address(IpAddr, IpNet),
    /// The port is not on the operator's list.
    #[error("this hub does not contact port {0}; its operator can add it to [egress] ports")]
    Port(u16),
    /// A user name or password, which no request of the hub carries.
    #[error("the URL contains a user name or password")]
    Credentials,
    /// A host that is neither an address nor a name.
    #[error("the URL's host is neither an address nor a name")]
    Host,
    /// Neither `http` nor `https`.
    #[error("the URL is neither http nor https")]
    Scheme,
}

/// The operator's rules, the resolver whose answers they judge, and the roots of trust. All requests that leave the hub share
/// them.
#[derive(Clone, Debug)]
pub struct Guard(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    allow: Vec<IpNet>,
    ports: Vec<u16>,
    resolver: Resolver,
    tls_roots: TlsRoots,
}

impl Guard {
    /// `allow` lists networks that may be contacted although they are not public; empty `ports` means any port but 0; with
    /// empty `nameservers` those of the system are asked.
    ///
    /// # Errors
    /// [`Unresolved`] when the resolver cannot be set up.
    pub fn new(
        allow: Vec<IpNet>,
        ports: Vec<u16>,
        nameservers: &[SocketAddr],
        tls_roots: TlsRoots,
    ) -> Result<Self, Unresolved> {
        Ok(Self(Arc::new(Rules { allow, ports, resolver: Resolver::new(nameservers)?, tls_roots })))
    }

    /// A guard with the same resolver and roots for a destination that the operator chose: any address, but this port only. No
    /// destination that anybody else chose may go through it.
    #[must_use]
    pub fn for_the_operator(&self, port: u16) -> Self {
        let allow = vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
        let Rules { resolver, tls_roots, .. } = self.0.as_ref();
        Self(Arc::new(Rules {
            allow,
            ports: vec![port],
            resolver: resolver.clone(),
            tls_roots: tls_roots.clone(),
        }))
    }

    pub(super) fn tls_roots(&self) -> &TlsRoots {
        &self.0.tls_roots
    }

    pub(super) fn resolver(&self) -> &Resolver {
        &self.0.resolver
    }

    pub(super) fn check_port(&self, port: u16) -> Result<(), Forbidden> {
        let listed = self.0.ports.is_empty() || self.0.ports.contains(&port);
        if port > 0 && listed { Ok(()) } else { Err(Forbidden::Port(port)) }
    }

    /// The proof that this address may be contacted.
    ///
    /// # Errors
    /// [`Forbidden`], naming the address or the port.
    pub fn check(&self, address: SocketAddr) -> Result<PublicAddress, Forbidden> {
        self.check_port(address.port())?;
        let ip = canonical(address.ip());
        let allowed = self.0.allow.iter().any(|net| net.contains(&ip) || net.contains(&address.ip()));
        if allowed || is_public(address.ip()) {
            Ok(PublicAddress(address))
        } else {
            Err(forbidden(address.ip()))
        }
    }

    /// Judges a URL without a lookup: its port, and its host if that is an address. Names are judged when they are resolved.
    ///
    /// # Errors
    /// [`Forbidden`] when it may not be contacted, whatever its name resolves to.
    pub fn check_literal(&self, url: &Url) -> Result<(), Forbidden> {
        let port = url.port_or_known_default().unwrap_or(0);
        let ip = match url.host().ok_or(Forbidden::Host)? {
            Host::Ipv4(ip) => IpAddr::V4(ip),
            Host::Ipv6(ip) => IpAddr::V6(ip),
            Host::Domain(_) => return self.check_port(port),
        };
        self.check(SocketAddr::new(ip, port)).map(|_| ())
    }
}

fn forbidden(ip: IpAddr) -> Forbidden {
    Forbidden::Address(ip, IpNet::from(ip))
}

/// An IPv4-mapped address is the IPv4 address: what the operator allows as IPv4 is allowed in this spelling too.
pub(super) fn canonical(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

#[cfg(test)]
impl Guard {
    /// Public addresses and these networks, any port.
    pub(crate) fn open_to(networks: &[&str]) -> Self {
        let allow = networks.iter().map(|network| network.parse().unwrap()).collect();
        Self::new(allow, vec![], &[], TlsRoots::new(None).unwrap()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn verdict(guard: &Guard, ip: &str) -> bool {
        guard.check(SocketAddr::new(ip.parse().unwrap(), 443)).is_ok()
    }

    #[test]
    fn b32_private_and_translated_addresses_are_refused_in_every_spelling() {
        let guard = Guard::open_to(&[]);
        for ip in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "168.63.129.16",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:0:7f00:1",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::808:808",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "2001:0:7f00:1::",
            "2002:7f00:1::",
            "2606:4700::5efe:7f00:1",
            "64:ff9b::ac10:1",
            "64:ff9b:0:1::808:808",
            "2001:2::1",
            "2001:10::1",
            "3fff::1",
            "5f00::1",
            "100::1",
            "198.18.0.1",
            "192.0.0.8",
            "192.88.99.1",
            "203.0.113.9",
        ] {
            assert!(!verdict(&guard, ip), "{ip} must not be contacted");
        }
    }

    #[test]
    fn b32_public_addresses_pass_also_through_nat64() {
        let guard = Guard::open_to(&[]);
        for ip in [
            "8.8.8.8",
            "93.184.216.34",
            "2606:4700::1111",
            "64:ff9b::808:808",
            "2001:4:112::1",
            "2001:200::1",
        ] {
            assert!(verdict(&guard, ip), "{ip} may be contacted");
        }
    }

    #[test]
    fn a_translated_address_is_of_the_network_of_the_one_that_stands_in_it() {
        let of = |ip: &str| network(ip.parse().unwrap()).to_string();
        assert_eq!(of("64:ff9b::808:808"), "8.8.8.0/24");
        assert_eq!(of("::ffff:8.8.8.8"), "8.8.8.0/24");
        assert_eq!(of("2606:4700:0:1::1"), "2606:4700::/48");
    }

    #[test]
    fn b32_address_literals_are_judged_as_the_url_standard_reads_them() {
        let guard = Guard::open_to(&[]);
        for url in ["http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "http://[::ffff:7f00:1]/"] {
            assert!(guard.check_literal(&url.parse().unwrap()).is_err(), "{url} is loopback");
        }
        assert!(guard.check_literal(&"http://destination.example/".parse().unwrap()).is_ok());
    }

    #[test]
    fn an_operator_allows_a_network_and_its_mapped_spelling() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        assert!(verdict(&guard, "127.4.5.6"));
        assert!(verdict(&guard, "::ffff:127.0.0.1"));
        assert!(!verdict(&guard, "10.0.0.1"));
        assert!(!verdict(&guard, "::1"));
    }

    #[test]
    fn a_port_list_closes_all_other_ports() {
        let guard = Guard::new(vec![], vec![443], &[], TlsRoots::new(None).unwrap()).unwrap();
        assert!(guard.check("8.8.8.8:443".parse().unwrap()).is_ok());
        assert_eq!(guard.check("8.8.8.8:25".parse().unwrap()), Err(Forbidden::Port(25)));
        let name: Url = "https://destination.example:25/".parse().unwrap();
        assert_eq!(guard.check_literal(&name), Err(Forbidden::Port(25)));
    }

    #[test]
    fn what_the_operator_names_may_be_anywhere_and_opens_nothing_else() {
        let guard = Guard::open_to(&[]);
        let own = guard.for_the_operator(4318);
        for ip in ["127.0.0.1", "10.1.2.3", "fd00::1", "::1", "8.8.8.8"] {
            let ip: IpAddr = ip.parse().unwrap();
            assert!(own.check(SocketAddr::new(ip, 4318)).is_ok(), "{ip}");
            assert_eq!(own.check(SocketAddr::new(ip, 443)), Err(Forbidden::Port(443)));
        }
        assert!(guard.check("127.0.0.1:4318".parse().unwrap()).is_err(), "everybody else's stays as it is");
    }

    #[test]
    fn port_0_is_nobody() {
        assert_eq!(Guard::open_to(&[]).check("8.8.8.8:0".parse().unwrap()), Err(Forbidden::Port(0)));
    }

    proptest! {
        #[test]
        fn b32_whatever_lies_in_the_first_block_is_judged_by_the_address_that_it_embeds(tail in any::<[u16; 7]>(), low in 0..0x100_u16) {
            let [b, c, d, e, f, g, h] = tail;
            let guard = Guard::open_to(&[]);
            prop_assert!(guard.check((Ipv6Addr::new(low, b, c, d, e, f, g, h), 443).into()).is_err() || low == 0x64);
            let [one, two] = g.to_be_bytes();
            let [three, four] = h.to_be_bytes();
            let embedded = guard.check((Ipv4Addr::new(one, two, three, four), 443).into()).is_ok();
            let translated = guard.check((Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, g, h), 443).into()).is_ok();
            prop_assert_eq!(embedded, translated);
        }

        #[test]
        fn b32_no_public_ipv4_address_opens_its_mapped_or_6to4_spelling(ip in any::<u32>()) {
            let [high, low] = [(ip >> 16) as u16, (ip & 0xffff) as u16];
            let guard = Guard::open_to(&[]);
            for spelled in [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, !high, !low),
            ] {
                prop_assert!(guard.check((spelled, 443).into()).is_err(), "{}", spelled);
            }
        }
    }
}
