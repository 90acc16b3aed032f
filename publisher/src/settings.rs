//! What a build is told: the collection's folder, its base URL, the hubs and the hash algorithms. Checked once, here.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use resync_core::{build::url_path_of, digest::Algorithm};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{links::LinkTemplate, site::DOCUMENT_FOLDER, url_path};

/// Everything a build depends on besides the files. Kept in the state, so that later commands need only OUT.
///
/// ```
/// use resync_publisher::{BaseUrl, HubUrl, Settings};
///
/// let settings = Settings::new("/srv/collection", BaseUrl::parse("https://example.org/data")?)
///     .hub(HubUrl::parse("https://hub.example.net/websub/")?);
/// assert_eq!(settings.base_url.as_str(), "https://example.org/data/");
/// # Ok::<(), resync_publisher::UrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The folder whose files are the resources.
    pub directory: PathBuf,
    /// The URL of that folder.
    pub base_url: BaseUrl,
    /// The hubs of the framework channel; with none there is no channel.
    pub hubs: Vec<HubUrl>,
    /// The algorithms whose digests the Resource List gives.
    #[serde(with = "crate::stored::text_list")]
    pub hash: Vec<Algorithm>,
    /// When lists are closed or written anew.
    #[serde(default)]
    pub rules: Rules,
    /// Patterns of files that are no resources, as `.gitignore` has them.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// Whether a change of a JSON file comes with a patch.
    #[serde(default)]
    pub json_patch: bool,
    /// Links that the resources get.
    #[serde(default)]
    pub links: Vec<LinkTemplate>,
    /// A page that describes the set (RS-056).
    #[serde(default)]
    pub described_by: Option<PageUrl>,
    /// The site of several sets that this is one of; `None` for a site of one set.
    #[serde(default)]
    pub root: Option<Root>,
}

/// A site of several sets of resources, as one of them sees it. The documents of each lie in a folder of their own, named like the set; the Source
/// Description leads to all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The URL of the site.
    pub base_url: BaseUrl,
    /// The name of the set.
    pub name: SetName,
    /// A page that describes the Source.
    #[serde(default)]
    pub described_by: Option<PageUrl>,
}

impl Root {
    /// Whether these are the same set of the same site.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.base_url, &self.name) == (&other.base_url, &other.name)
    }
}

/// The name of a set of resources, which stands in the URLs of its documents: small letters, digits, `-` and `_`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SetName(String);

/// A text that cannot be the name of a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` cannot be the name of a set: write up to 64 small letters, digits, `-` and `_`, and not `resync`"
)]
pub struct SetNameError {
    name: String,
}

impl SetName {
    /// Checks a name.
    pub fn parse(text: &str) -> Result<Self, SetNameError> {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
        let is_name = (1..=64).contains(&text.len()) && text.bytes().all(is_plain) && text != DOCUMENT_FOLDER;
        if is_name { Ok(Self(text.to_owned())) } else { Err(SetNameError { name: text.to_owned() }) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// When a Change List is closed, and when the Resource List is written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// A Change List is closed at so many entries. Each run reads and writes the open one.
    pub change_list_entries: usize,
    /// It is closed by the first change so many seconds after its first; `None` leaves it to the entries.
    pub change_list_seconds: Option<u64>,
    /// The Resource List of at most so many resources is written at every change.
    pub resource_list_small: u64,
    /// That of more is written when the changes since the last one are so many per cent of the resources,
    pub resource_list_percent: u8,
    /// or at the first run so many seconds after the last one that finds a change since.
    pub resource_list_seconds: Option<u64>,
    /// A run makes a Resource Dump if there is none, or so many seconds after the last one if something has changed since; `None` leaves it
    /// to [`dump`](crate::publish::dump).
    pub resource_dump_seconds: Option<u64>,
    /// So many Resource Dumps stay, all but the newest in an archive.
    pub resource_dumps_kept: usize,
    /// The same as for Resource Dumps, for Change Dumps.
    pub change_dump_seconds: Option<u64>,
    /// Change Lists and Change Dumps whose last change is so many seconds old move from their index to an archive; `None` leaves them.
    pub archive_seconds: Option<u64>,
}

impl Default for Rules {
    /// 5,000 entries; at every change up to 50,000 resources, which one list holds, then at 10 per cent or after 30 days. No dumps, of
    /// those that are asked for the newest, no archives.
    fn default() -> Self {
        Self {
            change_list_entries: 5_000,
            change_list_seconds: None,
            resource_list_small: 50_000,
            resource_list_percent: 10,
            resource_list_seconds: Some(30 * 24 * 60 * 60),
            resource_dump_seconds: None,
            resource_dumps_kept: 1,
            change_dump_seconds: None,
            archive_seconds: None,
        }
    }
}

impl Rules {
    /// How old a Change List gets.
    pub fn change_list_age(self) -> Option<Duration> {
        self.change_list_seconds.map(Duration::from_secs)
    }

    /// How old a Resource List gets.
    pub fn resource_list_age(self) -> Option<Duration> {
        self.resource_list_seconds.map(Duration::from_secs)
    }

    /// How old a closed change document gets before it is archived.
    pub fn archive_age(self) -> Option<Duration> {
        self.archive_seconds.map(Duration::from_secs)
    }
}

impl Settings {
    /// Settings with SHA-256 hashes and no hub.
    pub fn new(directory: impl Into<PathBuf>, base_url: BaseUrl) -> Self {
        let (hash, rules) = (vec![Algorithm::Sha256], Rules::default());
        let (directory, hubs, ignore, links) = (directory.into(), Vec::new(), Vec::new(), Vec::new());
        let (json_patch, described_by, root) = (false, None, None);
        Self { directory, base_url, hubs, hash, rules, ignore, json_patch, links, described_by, root }
    }

    /// Adds a hub; one named twice counts once.
    #[must_use]
    pub fn hub(mut self, hub: HubUrl) -> Self {
        if !self.hubs.contains(&hub) {
            self.hubs.push(hub);
        }
        self
    }

    /// The page that describes the Source: that of the set, where it has only one.
    pub(crate) fn source_described_by(&self) -> Option<&PageUrl> {
        self.root.as_ref().map_or(&self.described_by, |root| &root.described_by).as_ref()
    }

    /// What the patterns make of a path below the directory.
    pub(crate) fn ignored(&self) -> Result<Gitignore, ignore::Error> {
        let mut patterns = GitignoreBuilder::new(&self.directory);
        for pattern in &self.ignore {
            patterns.add_line(None, pattern)?;
        }
        patterns.build()
    }

    /// Replaces the hash algorithms; an empty choice leaves the default, one named twice counts once.
    #[must_use]
    pub fn hashes(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        let mut chosen: Vec<Algorithm> = algorithms.into_iter().collect();
        chosen.sort_unstable();
        chosen.dedup();
        if !chosen.is_empty() {
            self.hash = chosen;
        }
        self
    }
}

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

/// The address of a hub: absolute, http or https, kept as the URL standard writes it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HubUrl(Url);

impl HubUrl {
    /// Checks a hub's address.
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

/// The address of a page for people or programs: absolute, http or https.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PageUrl(Url);

impl PageUrl {
    /// Checks an address.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        parse_http(text).map(Self)
    }

    /// The URL as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// Why a text cannot be a base URL, the address of a hub, or that of a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// No absolute URL.
    #[error("`{url}` is no absolute URL ({reason}): write it in full, as https://example.org/data/")]
    Syntax {
        /// The text.
        url: String,
        /// What the URL standard objects to.
        reason: url::ParseError,
    },
    /// A scheme that Destinations do not fetch.
    #[error("`{url}` uses `{scheme}`: ResourceSync works over http:// or https://")]
    Scheme {
        /// The text.
        url: String,
        /// Its scheme.
        scheme: String,
    },
    /// User name or password, which everybody could read in the documents.
    #[error(
        "the URL for `{host}` holds a user name or password, which the documents would show to everybody: leave it out"
    )]
    Credentials {
        /// The host; never the text, which holds the secret.
        host: String,
    },
    /// A fragment, which is never sent to a server.
    #[error("`{url}` has a fragment (`#…`), which no server sees: leave it out")]
    Fragment {
        /// The text.
        url: String,
    },
    /// A query, after which no path can stand.
    #[error("`{url}` has a query (`?…`), but paths are added to a base URL: leave it out")]
    Query {
        /// The text.
        url: String,
    },
    /// A path under which no server would find the folder again.
    #[error(
        "a part of the path of `{url}` is empty (`//`) or hides a separator (`%2F`, `%00`): write single slashes between plain names, as https://example.org/some/path/"
    )]
    Path {
        /// The text.
        url: String,
    },
}

macro_rules! text_form {
    ($type:ty: $error:ty) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($type), self.as_str())
            }
        }
        impl std::str::FromStr for $type {
            type Err = $error;
            fn from_str(text: &str) -> Result<Self, $error> {
                Self::parse(text)
            }
        }
        impl TryFrom<String> for $type {
            type Error = $error;
            fn try_from(text: String) -> Result<Self, $error> {
                Self::parse(&text)
            }
        }
        impl From<$type> for String {
            fn from(url: $type) -> Self {
                url.as_str().to_owned()
            }
        }
    };
}
text_form!(BaseUrl: UrlError);
text_form!(HubUrl: UrlError);
text_form!(PageUrl: UrlError);
text_form!(SetName: SetNameError);

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

    #[test]
    fn a_hub_named_twice_counts_once() {
        let base = BaseUrl::parse("http://example.org/").unwrap();
        let hub = HubUrl::parse("http://hub.example.org/websub/").unwrap();
        assert_eq!(Settings::new("x", base).hub(hub.clone()).hub(hub).hubs.len(), 1);
    }
}
