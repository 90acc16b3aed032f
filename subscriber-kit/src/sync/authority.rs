//! For which origins the lists of a Source speak.

use url::{Origin, Url};

use crate::fetch::{Follow, is_moved};

/// Which origins a list may name (RS-200).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authority {
    /// Its own. `http` and `https` of one host, each at its usual port, are the same, since Sources move to https.
    #[default]
    SameOrigin,
    /// Its own, and those of these URLs.
    Origins(Vec<Url>),
    /// Any; for trusted Sources.
    Any,
}

impl Authority {
    /// Where redirects of a resource may lead that this list names.
    pub(crate) fn follow<'f>(&'f self, list: &'f Url) -> Follow<'f> {
        match self {
            Self::SameOrigin => Follow::Home,
            Self::Origins(others) => Follow::Among(others, list),
            Self::Any => Follow::Anywhere,
        }
    }

    /// Whether a list of the origin `home` may lead to `url`.
    pub(crate) fn allows(&self, url: &Url, home: &Origin) -> bool {
        let origin = url.origin();
        let is_one_more = match self {
            Self::SameOrigin => false,
            Self::Origins(others) => others.iter().any(|other| other.origin() == origin),
            Self::Any => true,
        };
        is_one_more || origin == *home || is_moved(home, &origin) || is_moved(&origin, home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rs200_a_source_that_moved_to_https_is_the_same_and_other_hosts_and_ports_are_not() {
        let is_allowed = |url: &str, home: &str| {
            let [url, home] = [url, home].map(|text| Url::parse(text).unwrap());
            Authority::SameOrigin.allows(&url, &home.origin())
        };
        assert!(is_allowed("http://a.example/x", "https://a.example/list.xml"));
        assert!(is_allowed("https://a.example/x", "http://a.example:80/list.xml"));
        for other in
            ["https://b.example/x", "http://a.example:8080/x", "https://a.example:80/x", "ftp://a.example/x"]
        {
            assert!(!is_allowed(other, "https://a.example/list.xml"), "{other}");
            assert!(!is_allowed("https://a.example/list.xml", other), "{other}");
        }
    }
}
