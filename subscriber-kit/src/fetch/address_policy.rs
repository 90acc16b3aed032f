//! Which addresses may get requests. The documents of a Source, and DNS, may lead anywhere.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use resync_core::address::is_public;
use url::{Host, Url};

use super::FetchError;
use super::refused::Refused;

/// Which addresses may get requests, wherever lists, names and redirects lead. A name with both public and other addresses is
/// refused, except by [`AddressPolicy::Everywhere`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AddressPolicy {
    /// Only public ones, not loopback, private or reserved ones. No proxy is used, since it would choose the address.
    #[default]
    PublicOnly,
    /// Public ones, and those in the same network as one of these URLs, which the user gave: loopback, link-local or private. So a
    /// public Source cannot lead into the user's network, and a local one not beyond this machine.
    ///
    /// The network of a name is determined once per [`Client`](super::Client), when it is first resolved: only a name without
    /// public addresses opens a network. If DNS later returns an address of another network, the name is refused.
    ///
    /// Behind a proxy, only literal addresses are checked, and names open no network, since the proxy resolves them.
    NetworkOf(Vec<Url>),
    /// All: for Sources and hubs that are trusted.
    Everywhere,
}

/// The network of an address that is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Loopback,
    /// Where cloud machines get their keys.
    LinkLocal,
    Private,
}

impl Network {
    /// `None` for a public address.
    fn of(address: IpAddr) -> Option<Self> {
        if is_public(address) {
            return None;
        }
        Some(match address.to_canonical() {
            this if this.is_loopback() || this.is_unspecified() => Self::Loopback,
            IpAddr::V4(v4) if v4.is_link_local() => Self::LinkLocal,
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Self::LinkLocal,
            _ => Self::Private,
        })
    }
}

/// A policy, and the networks of the given hosts.
#[derive(Debug)]
pub(super) struct AddressGuard {
    address_policy: AddressPolicy,
    trusted: Vec<TrustedHost>,
}

/// A host that the user gave.
#[derive(Debug)]
struct TrustedHost {
    host: String,
    /// The networks that it opens; none if it is public.
    networks: OnceLock<Vec<Network>>,
}

impl TrustedHost {
    fn of(url: &Url) -> Option<Self> {
        let networks =
            literal(url).map(|address| OnceLock::from(Network::of(address).into_iter().collect::<Vec<_>>()));
        Some(Self { host: url.host_str()?.to_owned(), networks: networks.unwrap_or_default() })
    }

    fn is(&self, name: &str) -> bool {
        self.host.eq_ignore_ascii_case(name)
    }
}

impl AddressGuard {
    pub(super) fn new(address_policy: AddressPolicy) -> Arc<Self> {
        let mut trusted: Vec<TrustedHost> = Vec::new();
        if let AddressPolicy::NetworkOf(urls) = &address_policy {
            for one in urls.iter().filter_map(TrustedHost::of) {
                // One decision per name.
                if !trusted.iter().any(|known| known.is(&one.host)) {
                    trusted.push(one);
                }
            }
        }
        Arc::new(Self { address_policy, trusted })
    }

    /// Checks a literal address in the URL; names are checked when they are resolved.
    pub(super) fn check(&self, url: &Url) -> Result<(), FetchError> {
        match literal(url) {
            Some(address) if !self.allows(address) => {
                Err(FetchError::NotPublic { url: url.clone(), address: address.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Builds a client whose connections obey this policy.
    pub(super) fn guard(self: &Arc<Self>, builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
        let resolver = || Arc::new(GuardedResolver(Arc::clone(self)));
        match self.address_policy {
            AddressPolicy::Everywhere => builder,
            AddressPolicy::NetworkOf(_) => builder.dns_resolver(resolver()),
            AddressPolicy::PublicOnly => builder.no_proxy().dns_resolver(resolver()),
        }
    }

    fn allows(&self, address: IpAddr) -> bool {
        let Some(near) = Network::of(address) else { return true };
        let networks =
            |trusted: &TrustedHost| trusted.networks.get().is_some_and(|networks| networks.contains(&near));
        self.address_policy == AddressPolicy::Everywhere || self.trusted.iter().any(networks)
    }

    /// Checks the addresses of a name. The first answer for a given host determines the networks that it opens.
    fn check_answer(&self, name: &str, found: &[IpAddr]) -> Result<(), Refused> {
        // The user chose the proxy too.
        let is_proxy = |proxy: Url| proxy.host_str().is_some_and(|host| host.eq_ignore_ascii_case(name));
        if found.is_empty() || (self.address_policy != AddressPolicy::PublicOnly && proxies().any(is_proxy)) {
            return Ok(());
        }
        let public = found.iter().copied().find(|address| is_public(*address));
        let private = found.iter().copied().find(|address| !is_public(*address));
        let trusted = self.trusted.iter().find(|trusted| trusted.is(name));
        let networks = trusted.map(|trusted| {
            let near = || found.iter().copied().filter_map(Network::of).collect();
            trusted.networks.get_or_init(|| if public.is_some() { Vec::new() } else { near() })
        });
        if let (Some(public), Some(private)) = (public, private) {
            return Err(Refused::Mixed { name: name.to_owned(), public, private });
        }
        let Some(networks) = networks else {
            let refused = found.iter().copied().find(|address| !self.allows(*address));
            return refused
                .map_or(Ok(()), |address| Err(Refused::NotPublic { name: name.to_owned(), address }));
        };
        let stays = |address: IpAddr| {
            Network::of(address).map_or(networks.is_empty(), |near| networks.contains(&near))
        };
        let other = found.iter().copied().find(|address| !stays(*address));
        let before = if networks.is_empty() { "public" } else { "in your own network" };
        other.map_or(Ok(()), |address| Err(Refused::Rebound { name: name.to_owned(), address, before }))
    }
}

fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(ip) => Some(ip.into()),
        Host::Ipv6(ip) => Some(ip.into()),
        Host::Domain(_) => None,
    }
}

/// The proxies in the environment.
fn proxies() -> impl Iterator<Item = Url> {
    let names = ["http_proxy", "https_proxy", "all_proxy"];
    let of_proxies = move |name: &str| names.iter().any(|one| one.eq_ignore_ascii_case(name));
    let named = std::env::vars_os().filter(move |(name, _)| name.to_str().is_some_and(of_proxies));
    named.filter_map(|(_, url)| {
        let url = url.into_string().ok()?;
        Url::parse(&if url.contains("://") { url } else { format!("http://{url}") }).ok()
    })
}

async fn resolve(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
}

/// Resolves names to allowed addresses only, so that connections go to the checked addresses.
#[derive(Debug)]
struct GuardedResolver(Arc<AddressGuard>);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let address_guard = Arc::clone(&self.0);
        Box::pin(async move {
            let found = resolve(name.as_str()).await?;
            address_guard.check_answer(name.as_str(), &found)?;
            Ok(Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT_THERE: &str = "8.8.8.8";

    fn is_allowed(address_guard: &AddressGuard, url: &str) -> bool {
        match address_guard.check(&Url::parse(url).unwrap()) {
            Ok(()) => true,
            Err(FetchError::NotPublic { .. }) => false,
            Err(other) => panic!("{url}: {other}"),
        }
    }

    fn network_of(trusted: &[&str]) -> Arc<AddressGuard> {
        AddressGuard::new(AddressPolicy::NetworkOf(
            trusted.iter().map(|url| Url::parse(url).unwrap()).collect(),
        ))
    }

    /// What becomes of a name of which DNS says this.
    fn judged(address_guard: &AddressGuard, name: &str, answer: &[&str]) -> Result<(), Refused> {
        let found: Vec<IpAddr> = answer.iter().map(|address| address.parse().unwrap()).collect();
        address_guard.check_answer(name, &found)
    }

    #[test]
    fn b32_an_address_that_is_not_public_is_refused_however_it_is_written() {
        let public_only = AddressGuard::new(AddressPolicy::default());
        for url in
            ["http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://[::1]/", "http://10.0.0.7/"]
        {
            assert!(!is_allowed(&public_only, url), "{url}");
            assert!(!is_allowed(&network_of(&["http://8.8.8.8/"]), url), "{url}");
            assert!(is_allowed(&AddressGuard::new(AddressPolicy::Everywhere), url));
        }
        assert!(is_allowed(&public_only, "https://8.8.8.8/"));
    }

    #[test]
    fn b32_a_source_leads_no_nearer_than_it_is_itself() {
        let [machine, mapped, any] = ["http://127.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://0.0.0.0/"];
        let [link, network, public] = ["http://169.254.169.254/", "http://10.0.0.7/", "http://8.8.8.8/"];
        let this_machine = &[machine, mapped, any, public][..];
        for (trusted, answer, allowed) in [
            (machine, None, this_machine),
            ("http://localhost/", Some("127.0.0.1"), this_machine),
            (network, None, &[network, public][..]),
            ("http://a.example/", Some("10.0.0.9"), &[network, public][..]),
            (public, None, &[public][..]),
        ] {
            let address_guard = network_of(&[trusted]);
            let host = Url::parse(trusted).unwrap().host_str().unwrap().to_owned();
            if let Some(address) = answer {
                judged(&address_guard, &host, &[address]).unwrap();
            }
            for url in [machine, mapped, any, link, network, public] {
                assert_eq!(
                    is_allowed(&address_guard, url),
                    allowed.contains(&url),
                    "from {trusted} to {url}"
                );
            }
        }
    }

    #[test]
    fn b32_how_near_a_name_is_was_decided_by_its_first_answer_and_no_later_one_opens_anything() {
        let loopback = "http://127.0.0.1/";
        let address_guard = network_of(&["http://a.example/"]);
        assert!(!is_allowed(&address_guard, loopback), "nothing is known yet");
        judged(&address_guard, "a.example", &[OUT_THERE]).unwrap();
        judged(&address_guard, "A.example", &["9.9.9.9"]).unwrap();
        assert!(matches!(judged(&address_guard, "a.example", &["127.0.0.1"]), Err(Refused::Rebound { .. })));
        assert!(matches!(
            judged(&address_guard, "a.example", &[OUT_THERE, "127.0.0.1"]),
            Err(Refused::Mixed { .. })
        ));
        assert!(!is_allowed(&address_guard, loopback));

        let address_guard = network_of(&["http://a.example/"]);
        judged(&address_guard, "a.example", &["127.0.0.1", "::1"]).unwrap();
        assert!(is_allowed(&address_guard, loopback));
        let turned = judged(&address_guard, "a.example", &[OUT_THERE]);
        assert!(
            matches!(turned, Err(Refused::Rebound { .. })),
            "who opened the way in does not come from outside"
        );
        assert!(matches!(judged(&address_guard, "a.example", &["10.0.0.7"]), Err(Refused::Rebound { .. })));
        judged(&address_guard, "a.example", &["127.0.0.1"]).unwrap();
        judged(&address_guard, "b.example", &[OUT_THERE]).unwrap();
    }

    #[test]
    fn b32_a_name_that_is_both_out_there_and_in_the_own_network_is_refused_and_opens_nothing() {
        let both = [OUT_THERE, "10.0.0.7"];
        for trusted in ["http://a.example/", "http://10.0.0.1/"] {
            let address_guard = network_of(&[trusted]);
            assert!(
                matches!(judged(&address_guard, "a.example", &both), Err(Refused::Mixed { .. })),
                "{trusted}"
            );
        }
        let address_guard = network_of(&["http://a.example/"]);
        judged(&address_guard, "a.example", &both).unwrap_err();
        assert!(!is_allowed(&address_guard, "http://10.0.0.7/"));
        let later = judged(&address_guard, "a.example", &["10.0.0.7"]);
        assert!(matches!(later, Err(Refused::Rebound { .. })), "it stays condemned");
        assert!(judged(&AddressGuard::new(AddressPolicy::PublicOnly), "a.example", &both).is_err());
    }

    #[tokio::test]
    async fn b32_a_name_of_loopback_resolves_to_nothing_unless_it_was_given() {
        let resolved =
            async |address_guard| GuardedResolver(address_guard).resolve("localhost".parse().unwrap()).await;
        for address_guard in [AddressGuard::new(AddressPolicy::PublicOnly), network_of(&["http://8.8.8.8/"])]
        {
            let refused = resolved(address_guard).await;
            assert!(refused.is_err_and(|error| error.to_string().contains("not a public address")));
        }
        assert!(resolved(network_of(&["http://localhost:8080/"])).await.is_ok());
        assert!(resolved(network_of(&["http://127.0.0.1/", "http://[::1]/"])).await.is_ok());
    }
}
