//! Which addresses may be asked: a Source, or whoever answers in its name, decides where its documents lead.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use resync_core::address::is_public;
use url::{Host, Url};

use super::FetchError;

/// Which addresses may be asked, however they are written and wherever lists, names and redirects lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// All: for Sources and hubs that are trusted.
    #[default]
    Everywhere,
    /// Public ones, and those of the own network that are as near as one of these URLs, which whoever runs this gave: from a
    /// Source out there nothing leads into the network, and from one on this machine nothing beyond that. Behind a proxy
    /// only addresses are judged, since it is the proxy that knows what names are.
    AsNearAs(Vec<Url>),
    /// Only public ones: loopback, private and reserved addresses are refused, also behind a name. No proxy is used, since
    /// that would choose the address.
    PublicOnly,
}

/// How near an address is that is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Near {
    ThisMachine,
    /// The link, where the keys of machines in the cloud are told.
    ThisLink,
    OwnNetwork,
}

impl Near {
    /// `None` for a public address.
    fn of(address: IpAddr) -> Option<Self> {
        if is_public(address) {
            return None;
        }
        Some(match address.to_canonical() {
            this if this.is_loopback() || this.is_unspecified() => Self::ThisMachine,
            IpAddr::V4(v4) if v4.is_link_local() => Self::ThisLink,
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Self::ThisLink,
            _ => Self::OwnNetwork,
        })
    }
}

impl Reach {
    /// Judges an address that stands in the URL; names are judged when they are resolved.
    pub(super) async fn check(&self, url: &Url) -> Result<(), FetchError> {
        match literal(url) {
            Some(address) if !self.allows(address).await => {
                Err(FetchError::NotPublic { url: url.clone(), address: address.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// The client with this policy below its connections.
    pub(super) fn guard(&self, builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
        match self {
            Self::Everywhere => builder,
            Self::AsNearAs(_) => builder.dns_resolver(Arc::new(JudgingResolver(self.clone()))),
            Self::PublicOnly => builder.no_proxy().dns_resolver(Arc::new(JudgingResolver(self.clone()))),
        }
    }

    async fn allows(&self, address: IpAddr) -> bool {
        match (self, Near::of(address)) {
            (Self::Everywhere, _) | (_, None) => true,
            (Self::PublicOnly, Some(_)) => false,
            (Self::AsNearAs(given), Some(near)) => is_near(given, near).await,
        }
    }

    /// Whether whoever runs this named that host himself.
    fn is_given(&self, name: &str) -> bool {
        let Self::AsNearAs(given) = self else { return false };
        let is_it = |url: &Url| url.host_str().is_some_and(|host| host.eq_ignore_ascii_case(name));
        given.iter().any(is_it) || proxies().any(|proxy| is_it(&proxy))
    }
}

/// Whether one of these URLs is as near as that.
async fn is_near(given: &[Url], near: Near) -> bool {
    for url in given {
        let found = match (literal(url), url.host_str()) {
            (Some(address), _) => vec![address],
            (None, Some(name)) => resolve(name).await.unwrap_or_default(),
            (None, None) => Vec::new(),
        };
        if found.into_iter().any(|address| Near::of(address) == Some(near)) {
            return true;
        }
    }
    false
}

fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(ip) => Some(ip.into()),
        Host::Ipv6(ip) => Some(ip.into()),
        Host::Domain(_) => None,
    }
}

/// Those that the environment names.
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

/// Resolves names to addresses that may be asked or not at all, so that what was judged is what is connected to.
#[derive(Debug)]
struct JudgingResolver(Reach);

#[derive(Debug, thiserror::Error)]
#[error("{name} is {address}, which is not a public address")]
struct NotPublic {
    name: String,
    address: IpAddr,
}

impl Resolve for JudgingResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0.clone();
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let found = resolve(&name).await?;
            if !reach.is_given(&name) {
                for address in &found {
                    if !reach.allows(*address).await {
                        return Err(NotPublic { name, address: *address }.into());
                    }
                }
            }
            Ok(Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_allowed(reach: &Reach, url: &str) -> bool {
        match reach.check(&Url::parse(url).unwrap()).await {
            Ok(()) => true,
            Err(FetchError::NotPublic { .. }) => false,
            Err(other) => panic!("{url}: {other}"),
        }
    }

    fn as_near_as(given: &[&str]) -> Reach {
        Reach::AsNearAs(given.iter().map(|url| Url::parse(url).unwrap()).collect())
    }

    #[tokio::test]
    async fn b32_an_address_that_is_not_public_is_refused_however_it_is_written() {
        for url in
            ["http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://[::1]/", "http://10.0.0.7/"]
        {
            assert!(!is_allowed(&Reach::PublicOnly, url).await, "{url}");
            assert!(!is_allowed(&as_near_as(&["http://8.8.8.8/"]), url).await, "{url}");
            assert!(is_allowed(&Reach::Everywhere, url).await);
        }
        assert!(is_allowed(&Reach::PublicOnly, "https://8.8.8.8/").await);
    }

    #[tokio::test]
    async fn b32_a_source_leads_no_nearer_than_it_is_itself() {
        let [machine, mapped, any] = ["http://127.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://0.0.0.0/"];
        let [link, network, public] = ["http://169.254.169.254/", "http://10.0.0.7/", "http://8.8.8.8/"];
        for (given, allowed) in [
            (machine, &[machine, mapped, any, public][..]),
            ("http://localhost/", &[machine, mapped, any, public][..]),
            (network, &[network, public][..]),
            (public, &[public][..]),
        ] {
            for url in [machine, mapped, any, link, network, public] {
                let is_right = is_allowed(&as_near_as(&[given]), url).await == allowed.contains(&url);
                assert!(is_right, "from {given} to {url}");
            }
        }
    }

    #[tokio::test]
    async fn b32_a_name_of_loopback_resolves_to_nothing_unless_it_was_given() {
        let resolved = async |reach| JudgingResolver(reach).resolve("localhost".parse().unwrap()).await;
        for reach in [Reach::PublicOnly, as_near_as(&["http://8.8.8.8/"])] {
            let refused = resolved(reach).await;
            assert!(refused.is_err_and(|error| error.to_string().contains("not a public address")));
        }
        assert!(resolved(as_near_as(&["http://localhost:8080/"])).await.is_ok());
        assert!(resolved(as_near_as(&["http://127.0.0.1/", "http://[::1]/"])).await.is_ok());
    }
}
