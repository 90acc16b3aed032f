//! Which addresses may be asked: a Source, or whoever answers in its name, decides where its documents lead.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use resync_core::address::is_public;
use url::{Host, Url};

use super::FetchError;

/// Which addresses may be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// All: for Sources and hubs that are trusted, or that are on the own network.
    #[default]
    Everywhere,
    /// Only public ones, however they are written and wherever redirects lead: loopback, private and reserved
    /// addresses are refused, also behind a name. No proxy is used, since that would choose the address.
    PublicOnly,
}

impl Reach {
    /// Judges an address that stands in the URL; names are judged when they are resolved.
    pub(super) fn check(self, url: &Url) -> Result<(), FetchError> {
        let address = match url.host() {
            Some(Host::Ipv4(ip)) => IpAddr::V4(ip),
            Some(Host::Ipv6(ip)) => IpAddr::V6(ip),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        match self {
            Self::PublicOnly if !is_public(address) => {
                Err(FetchError::NotPublic { url: url.clone(), address: address.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// The client with this policy below its connections.
    pub(super) fn guard(self, builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
        match self {
            Self::Everywhere => builder,
            Self::PublicOnly => builder.no_proxy().dns_resolver(Arc::new(PublicResolver)),
        }
    }
}

/// Resolves names to public addresses or not at all, so that what was judged is what is connected to.
#[derive(Debug)]
struct PublicResolver;

#[derive(Debug, thiserror::Error)]
#[error("{name} is {address}, which is not a public address")]
struct NotPublic {
    name: String,
    address: IpAddr,
}

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            match found.iter().find(|address| !is_public(address.ip())) {
                Some(address) => Err(NotPublic { name, address: address.ip() }.into()),
                None => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b32_an_address_that_is_not_public_is_refused_however_it_is_written() {
        for url in
            ["http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://[::1]/", "http://10.0.0.7/"]
        {
            let url = Url::parse(url).unwrap();
            assert!(matches!(Reach::PublicOnly.check(&url), Err(FetchError::NotPublic { .. })), "{url}");
            assert!(Reach::Everywhere.check(&url).is_ok());
        }
        assert!(Reach::PublicOnly.check(&Url::parse("https://8.8.8.8/").unwrap()).is_ok());
    }

    #[tokio::test]
    async fn b32_a_name_of_loopback_resolves_to_nothing() {
        let resolved = PublicResolver.resolve("localhost".parse().unwrap()).await;
        assert!(resolved.is_err_and(|error| error.to_string().contains("not a public address")));
    }
}
