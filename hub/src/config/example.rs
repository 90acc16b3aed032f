//! Names that are reserved for examples (RFC 2606), which a copied configuration may still have.

use std::fmt;

use url::Url;

use super::Config;

const RESERVED: [&str; 4] = ["example", "example.com", "example.net", "example.org"];

/// A public URL that is still that of an example: nobody reaches a hub by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExampleUrl(Url);

impl fmt::Display for ExampleUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = &self.0;
        write!(
            f,
            "public_url is still {url}, a name for examples: write the URL by which the world reaches the hub"
        )
    }
}

impl Config {
    /// The public URL, if it is one of an example.
    pub fn example_url(&self) -> Option<ExampleUrl> {
        let url = self.public_url.as_ref().filter(|url| url.domain().is_some_and(is_reserved));
        url.cloned().map(ExampleUrl)
    }
}

fn is_reserved(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    let is_within =
        |domain: &str| name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    RESERVED.into_iter().any(is_within)
}

#[cfg(test)]
mod tests {
    use crate::config::load;

    #[test]
    fn a_public_url_that_nobody_can_reach_is_known() {
        let is_example = |url: &str| {
            let flags = vec![("public_url", url.to_owned())];
            load(None, [], &flags).unwrap().example_url().is_some()
        };
        for url in [
            "https://hub.example.org",
            "https://EXAMPLE.com/hub",
            "http://a.b.example.",
            "https://hub.example",
        ] {
            assert!(is_example(url), "{url}");
        }
        for url in
            ["https://hub.myexample.org", "https://example.org.uk", "http://127.0.0.1:8080", "http://[::1]/"]
        {
            assert!(!is_example(url), "{url}");
        }
    }
}
