//! Settings of a set of resources: folder, base URL, hubs, hashes, rules, links and versions. Checked once, here.

mod link_template;
mod rules;
mod set_name;
mod text_form;
mod urls;
mod versions;

use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use resync_core::digest::Algorithm;
use serde::{Deserialize, Serialize};

use crate::helpers::serde_text::text_list;

pub(crate) use self::{link_template::is_target, urls::parse_http};
pub use self::{
    link_template::{LinkError, LinkTemplate},
    rules::Rules,
    set_name::{DOCUMENT_FOLDER, SetName, SetNameError},
    urls::{BaseUrl, HubUrl, PageUrl, UrlError},
    versions::{Keep, VersionRules},
};

/// Everything a build depends on besides the files. Stored in the state, so that later commands need only OUT.
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
    /// The hubs of both channels; without a hub there is no channel.
    pub hubs: Vec<HubUrl>,
    /// The algorithms whose digests the Resource List gives.
    #[serde(with = "text_list")]
    pub hash: Vec<Algorithm>,
    /// When lists are closed or written anew.
    pub rules: Rules,
    /// Patterns of files that are no resources, as `.gitignore` has them.
    pub ignore: Vec<String>,
    /// Whether a change of a JSON file comes with a patch.
    pub json_patch: bool,
    /// Links that the resources get.
    pub links: Vec<LinkTemplate>,
    /// Which versions of the resources are kept.
    #[serde(default)]
    pub versions: VersionRules,
    /// A page that describes the set (RS-056).
    pub described_by: Option<PageUrl>,
    /// The site of several sets that this is one of; `None` for a site of one set.
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
    pub described_by: Option<PageUrl>,
}

impl Root {
    /// Whether these are the same set of the same site.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.base_url, &self.name) == (&other.base_url, &other.name)
    }
}

impl Settings {
    /// Settings with SHA-256 hashes and no hub.
    pub fn new(directory: impl Into<PathBuf>, base_url: BaseUrl) -> Self {
        let (hash, rules) = (vec![Algorithm::Sha256], Rules::default());
        let (directory, hubs, ignore, links) = (directory.into(), Vec::new(), Vec::new(), Vec::new());
        let (json_patch, versions, described_by, root) = (false, VersionRules::default(), None, None);
        Self {
            directory,
            base_url,
            hubs,
            hash,
            rules,
            ignore,
            json_patch,
            links,
            versions,
            described_by,
            root,
        }
    }

    /// Adds a hub; one named twice counts once.
    #[must_use]
    pub fn hub(mut self, hub: HubUrl) -> Self {
        if !self.hubs.contains(&hub) {
            self.hubs.push(hub);
        }
        self
    }

    /// Whether the resources are the files of a folder, and not the records of a program.
    pub(crate) fn has_files(&self) -> bool {
        !self.directory.as_os_str().is_empty()
    }

    /// Whether resources get the same links as with other settings.
    pub(crate) fn has_links_of(&self, other: &Self) -> bool {
        let versions = |settings: &Self| settings.versions.are_kept().then(|| settings.versions.only.clone());
        self.links == other.links && versions(self) == versions(other)
    }

    /// The page that describes the Source: that of the set, where it has only one.
    pub(crate) fn source_described_by(&self) -> Option<&PageUrl> {
        self.root.as_ref().map_or(&self.described_by, |root| &root.described_by).as_ref()
    }

    /// Which paths below the directory are ignored.
    pub(crate) fn ignored(&self) -> Result<Gitignore, ignore::Error> {
        matcher(&self.directory, &self.ignore)
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

/// What matches patterns as `.gitignore` has them, for paths below a folder.
pub(crate) fn matcher(folder: &Path, patterns: &[String]) -> Result<Gitignore, ignore::Error> {
    let mut builder = GitignoreBuilder::new(folder);
    for pattern in patterns {
        builder.add_line(None, pattern)?;
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_named_twice_counts_once() {
        let base = BaseUrl::parse("http://example.org/").unwrap();
        let hub = HubUrl::parse("http://hub.example.org/websub/").unwrap();
        assert_eq!(Settings::new("x", base).hub(hub.clone()).hub(hub).hubs.len(), 1);
    }
}
