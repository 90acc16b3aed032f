//! Which addresses are public: global unicast, and nothing that is private, local, reserved or a translation of such.
//!
//! Whoever follows what others wrote, a callback, a redirect, a list, asks this before connecting (D-20, B-32).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// Whether anybody may be expected to have this address, so that asking it reaches into nobody's own network.
///
/// ```
/// use resync_core::address::is_public;
///
/// assert!(is_public("93.184.216.34".parse()?));
/// assert!(!is_public("::ffff:127.0.0.1".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Who counts as one client where clients share what there is: of IPv6 what a customer is given at most, a /48, since its 65,536
/// networks would be as many clients; of IPv4 the address.
///
/// ```
/// use resync_core::address::customer;
///
/// assert_eq!(customer("2001:db8::7".parse()?), customer("2001:db8:0:1::8".parse()?));
/// assert_eq!(customer("::ffff:192.0.2.1".parse()?), customer("192.0.2.1".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn customer(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !(u128::MAX >> 48))),
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

/// Private, shared, loopback, link-local, documentation, benchmark, multicast and reserved IPv4 networks.
const CLOSED_V4: &[Ipv4Net] = &[
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 88, 99, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
    // Public by its registry, but the platform itself to machines in Azure.
    v4(168, 63, 129, 16, 32),
];

/// The same for IPv6. `::/8` as a block covers unspecified, loopback, IPv4-compatible, IPv4-mapped, SIIT and whatever
/// else embeds an IPv4 address there: listing encodings one by one has let some through elsewhere.
const CLOSED_V6: &[Ipv6Net] = &[
    v6(0, 0, 0, 8),
    v6(0x64, 0xff9b, 0, 32),
    v6(0x100, 0, 0, 64),
    v6(0x2001, 0, 0, 23),
    v6(0x2001, 0xdb8, 0, 32),
    v6(0x2002, 0, 0, 16),
    v6(0x3fff, 0, 0, 20),
    v6(0x5f00, 0, 0, 16),
    v6(0xfc00, 0, 0, 7),
    v6(0xfe80, 0, 0, 10),
    v6(0xfec0, 0, 0, 10),
    v6(0xff00, 0, 0, 8),
];

/// Parts of `2001::/23` that are reachable from everywhere: anycast relays, AS112 and identifiers with routes of their own.
const OPEN_V6: &[Ipv6Net] = &[
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 1), 128),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 2), 128),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 3), 128),
    v6(0x2001, 3, 0, 32),
    v6(0x2001, 4, 0x112, 48),
    v6(0x2001, 0x20, 0, 28),
    v6(0x2001, 0x30, 0, 28),
];

/// DNS64 networks reach the IPv4 world through this prefix, so its verdict is that of the embedded address.
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !CLOSED_V4.iter().any(|net| net.contains(&ip))
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    if NAT64.contains(&ip) {
        let [.., a, b, c, d] = ip.octets();
        return is_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    // An ISATAP interface identifier embeds an IPv4 address under any prefix.
    let isatap = matches!(ip.segments(), [_, _, _, _, 0 | 0x200, 0x5efe, _, _]);
    let within = |nets: &[Ipv6Net]| nets.iter().any(|net| net.contains(&ip));
    !isatap && (within(OPEN_V6) || !within(CLOSED_V6))
}
