//! The URLs of a site: of its folder, of hubs, and of pages about it. Checked once, here.

use std::path::{Path, PathBuf};

use resync_core::{build::url_path_of, websub::is_same_hub};
use serde::{Deserialize, Serialize};
use url::Url;

use super::{set_name::SetName, text_form::text_form};
use crate::helpers::url_path;

/// The URL under which a collection is published: absolute, http or https, ending in `/`, with a path that stands for one folder.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BaseUrl {
    url: Url,
    folder: PathBuf,
}

impl BaseUrl {
    /// Checks a base URL and gives it the final `/` if it has none.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let mut url = parse_http(text)?;
        if url.query().is_some() {
            return Err(UrlError::Query { url: text.to_owned() });
        }
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        match url_path::decode(url.path()) {
            Some((folder, _)) => Ok(Self { url, folder }),
            None => Err(UrlError::Path { url: text.to_owned() }),
        }
    }

    /// The URL as text.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Its path, decoded and without the slashes around it: empty at the root of a host, or `some/path`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The URL of a set's folder below this one.
    #[must_use]
    pub fn below(&self, set: &SetName) -> Self {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{}/", self.url.path(), set.as_str()));
        Self { url, folder: self.folder.join(set.as_str()) }
    }

    /// The URL of a file, by its path below the folder.
    pub fn join(&self, relative: &Path) -> String {
        format!("{}{}", self.as_str(), url_path_of(relative))
    }
}

/// Makes a type of absolute http and https URLs.
macro_rules! http_url {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Url);

        impl $name {
            /// Checks a URL.
            pub fn parse(text: &str) -> Result<Self, UrlError> {
                parse_http(text).map(Self)
            }

            /// The URL as text.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }

            /// The URL itself.
            pub fn url(&self) -> &Url {
                &self.0
            }
        }

        text_form!($name: UrlError);
    };
}

http_url! {
    /// The URL of a hub: absolute, http or https, as the URL standard writes it.
    HubUrl
}

impl HubUrl {
    /// Whether both are one hub: their URLs differ in nothing but the final slash.
    pub fn is_same(&self, other: &Self) -> bool {
        is_same_hub(self.as_str(), other.as_str())
    }
}

http_url! {
    /// The URL of a page for people or programs: absolute, http or https.
    PageUrl
}

/// Why a text cannot be a base URL, the address of a hub, or that of a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// No absolute URL.
    #[error("`{url}` is not an absolute URL ({reason}); write it in full, as https://example.org/data/")]
    Syntax {
        /// The text.
        url: String,
        /// What the URL standard objects to.
        reason: url::ParseError,
    },
    /// A scheme that Destinations do not fetch.
    #[error("`{url}` uses `{scheme}`; ResourceSync needs http:// or https://")]
    Scheme {
        /// The text.
        url: String,
        /// Its scheme.
        scheme: String,
    },
    /// User name or password, which everybody could read in the documents.
    #[error(
        "the URL for `{host}` contains a user name or password, which the documents would publish; leave it out"
    )]
    Credentials {
        /// The host; never the text, which holds the secret.
        host: String,
    },
    /// A fragment, which is never sent to a server.
    #[error("`{url}` has a fragment (`#…`), which no server receives; leave it out")]
    Fragment {
        /// The text.
        url: String,
    },
    /// A query, after which no path can stand.
    #[error("`{url}` has a query (`?…`), but paths are appended to a base URL; leave it out")]
    Query {
        /// The text.
        url: String,
    },
    /// A path under which no server would find the folder again.
    #[error(
        "the path of `{url}` has an empty segment (`//`) or an encoded separator (`%2F`, `%00`); write it as https://example.org/some/path/"
    )]
    Path {
        /// The text.
        url: String,
    },
}

text_form!(BaseUrl: UrlError);

pub(crate) fn parse_http(text: &str) -> Result<Url, UrlError> {
    let url = Url::parse(text.trim()).map_err(|reason| UrlError::Syntax { url: text.to_owned(), reason })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UrlError::Scheme { url: text.to_owned(), scheme: url.scheme().to_owned() });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlError::Credentials { host: url.host_str().unwrap_or_default().to_owned() });
    }
    if url.fragment().is_some() {
        return Err(UrlError::Fragment { url: text.to_owned() });
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_without_final_slash_gets_one() {
        let base = BaseUrl::parse("http://example.org/data").unwrap();
        assert_eq!(base.join(Path::new("a/b.txt")), "http://example.org/data/a/b.txt");
    }

    #[test]
    fn a_hub_is_the_same_with_and_without_the_final_slash() {
        let [hub, bare, other] =
            ["http://hub.example/websub/", "http://hub.example/websub", "http://hub.example/other/"]
                .map(|url| HubUrl::parse(url).unwrap());
        assert!(hub.is_same(&bare) && bare.is_same(&hub) && !hub.is_same(&other));
    }

    #[test]
    fn a_joined_url_survives_a_url_parser_unchanged() {
        let base = BaseUrl::parse("http://example.org/x/").unwrap();
        for name in ["plain", "a b", "it's", "a&b=c;d", "\"<>\\^`{|}", "café", "100%", "[1]", "~x", "a:b@c"]
        {
            let url = base.join(Path::new(name));
            assert_eq!(Url::parse(&url).unwrap().as_str(), url);
        }
    }

    #[test]
    fn what_no_destination_could_use_is_refused_by_cause() {
        let refused = |text: &str| BaseUrl::parse(text).unwrap_err();
        assert!(matches!(refused("ftp://example.org/"), UrlError::Scheme { scheme, .. } if scheme == "ftp"));
        assert!(matches!(refused("example.org/data"), UrlError::Syntax { .. }));
        assert!(matches!(refused("http://example.org/?a=b"), UrlError::Query { .. }));
        assert!(matches!(refused("http://example.org/#top"), UrlError::Fragment { .. }));
        for path in ["/a//b/", "//", "/a/%2Fb/", "/a%2fb", "/%00/"] {
            let error = refused(&format!("http://example.org{path}"));
            assert!(matches!(error, UrlError::Path { .. }), "{path}: {error}");
        }
        let secret = refused("http://me:hunter2@example.org/");
        assert!(!secret.to_string().contains("hunter2"), "{secret}");
    }
}
