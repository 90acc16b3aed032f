//! Why the publisher could not do what it was asked to do.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use resync_common::words::{counted, quoted};
use resync_core::{build, datetime::DateTime, rules::Violations};

/// What was tried with a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Read it.
    Read,
    /// Write it, or into it.
    Write,
    /// Remove it.
    Remove,
    /// Lock it.
    Lock,
    /// Make the folder in which it lies.
    MakeFolder,
    /// Open the folder of the resources.
    OpenCollection,
    /// Link it for a dry run.
    PrepareDryRun,
}

impl Action {
    /// Whether it changes what is on the disk.
    #[must_use]
    pub const fn is_writing(self) -> bool {
        matches!(self, Self::Write | Self::Remove | Self::Lock | Self::MakeFolder)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Remove => "remove",
            Self::Lock => "lock",
            Self::MakeFolder => "make the folder of",
            Self::OpenCollection => "open the collection",
            Self::PrepareDryRun => "prepare a dry run of",
        })
    }
}

/// Why a site could not be built, served or checked, or its hubs not be notified. The site stays as it was, or the next build completes it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// What was tried.
        action: Action,
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A resource cannot be read, or a list cannot be written.
    #[error(transparent)]
    Lists(#[from] build::BuildError),
    /// A document would break a rule of its specification.
    #[error("a document would break a rule: {0}")]
    Document(#[from] Violations),

    /// The folder holds no site.
    #[error(
        "there is no site in `{}` yet; run `resync-source build` first, with a source.toml, or with DIR --base-url URL --out {}",
        out.display(),
        quoted(&out.to_string_lossy())
    )]
    NotBuilt {
        /// The folder.
        out: PathBuf,
    },
    /// A newer program wrote the state.
    #[error("`{}` has format {found}, but this program supports {supported}; use the newer resync-source that wrote it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format that this program knows.
        supported: u32,
    },
    /// The state cannot be understood. Nothing of the site is touched while it lies there.
    #[error(
        "`{}` is damaged ({reason}); move it away and build again, with DIR and all flags if there is no source.toml. The Change Lists then start anew, waiting Change Notifications are lost, dumps must be made again, and every hub is notified of every document",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The plan of an interrupted run cannot be understood.
    #[error(
        "`{}` is damaged ({reason}); move it away and build again. The interrupted run is then repeated. If it had begun a Change List, the Change Lists start anew",
        path.display()
    )]
    DamagedPlan {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The record of the configuration that the site is built from cannot be understood.
    #[error(
        "`{}` is damaged ({reason}); move it away and build from the configuration that lists all sets of the site, since others are removed",
        path.display()
    )]
    DamagedClaim {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// The collection lies among the documents that the build would write.
    #[error("the collection `{}` is inside the documents of the site in `{}`; choose another --out", path.display(), out.display())]
    CollectionInSite {
        /// The collection.
        path: PathBuf,
        /// The site.
        out: PathBuf,
    },
    /// The resources are not files.
    #[error(
        "the resources in `{}` are records of a program, not files: only that program can build them, and there are no dumps of them",
        out.display()
    )]
    NotOfFiles {
        /// The folder of the set.
        out: PathBuf,
    },
    /// No file of the collection is a resource, but some were at the last build. Nothing is published, since Destinations would delete their copies.
    #[error(
        "no file in `{}` is a resource, but {} at the last build, so nothing is published; is its disk mounted? If all are deleted, publish that with --allow-empty",
        path.display(), counted(*before, "was", "were")
    )]
    EmptyCollection {
        /// The collection.
        path: PathBuf,
        /// How many resources the last build had.
        before: u64,
    },
    /// A program lists no resource, but listed some before. Nothing is published, since Destinations would delete their copies.
    #[error(
        "no resource is listed for `{}`, but {} at the last build, so nothing is published; is it the right database? If all are deleted, report each, or allow an empty list",
        out.display(), counted(*before, "was", "were")
    )]
    EmptyList {
        /// The folder of the set.
        out: PathBuf,
        /// How many resources the last build had.
        before: u64,
    },
    /// A pattern of files to ignore is not valid.
    #[error("`ignore` of the collection: {reason}")]
    Ignore {
        /// What is wrong with it.
        reason: String,
    },
    /// The site is built from another configuration file.
    #[error(
        "the site in `{}` belongs to `{}`, and would lose sets that `{}` does not list; list all sets in one file, use another `out`, or take the site over with --take-over",
        out.display(), owner.display(), configuration.display()
    )]
    OfAnother {
        /// The site.
        out: PathBuf,
        /// The file that it was built from last.
        owner: PathBuf,
        /// The file that it was to be built from.
        configuration: PathBuf,
    },
    /// Another configuration file has taken over the site since.
    #[error(
        "the site in `{}` now belongs to `{}`; it is no longer built from `{}`",
        out.display(), owner.display(), configuration.display()
    )]
    TakenOver {
        /// The site.
        out: PathBuf,
        /// The file that it is built from.
        owner: PathBuf,
        /// The file that it was built from before.
        configuration: PathBuf,
    },
    /// Other dumps, or another site, came while a dump was packed.
    #[error("the site in `{}` changed while a dump was packed; make the dump again", out.display())]
    Overtaken {
        /// The site.
        out: PathBuf,
    },
    /// Changes cannot be published without the Change Lists that they continue.
    #[error("cannot continue the Change Lists in `{}`, since somebody changed them; list all resources again", out.display())]
    NotListed {
        /// The folder of the set.
        out: PathBuf,
    },

    /// What is to be forgotten may be one of several resources.
    #[error("nothing is removed, since `{name}` may be {}; name one by its URI", either(uris))]
    SeveralKept {
        /// What it was called.
        name: String,
        /// Their URIs.
        uris: Vec<String>,
    },
    /// Versions that are to be forgotten have the same bytes as others.
    #[error(
        "nothing is removed, since in this set {} the same bytes, the first of `{uri}` from {moment} on; to forget these, too, add --with-others",
        counted(*others, "other version has", "other versions have")
    )]
    SharedBytes {
        /// How many others.
        others: u64,
        /// The resource of the first of them.
        uri: String,
        /// When that version began.
        moment: DateTime,
    },

    /// The site has no hub.
    #[error("the site in `{}` has no hub; add one to `hubs` in its configuration, or build it with --hub URL", out.display())]
    NoHub {
        /// The site.
        out: PathBuf,
    },
    /// A hub to drop is still one of the settings.
    #[error("{hub} is still a hub of the site in `{}`; remove it from `hubs` of the configuration, build, and drop it then", out.display())]
    StillNamed {
        /// The hub.
        hub: String,
        /// The site.
        out: PathBuf,
    },
    /// A document is not what the last build wrote.
    #[error("`{}` changed since the last build, so no hub is notified; run `resync-source build` again", path.display())]
    NotInPlace {
        /// The document.
        path: PathBuf,
    },
    /// One token, several hubs.
    #[error("there are {hubs} hubs, and each token must reach only its own; write --token HUB_URL=TOKEN")]
    WhoseToken {
        /// The number of hubs.
        hubs: usize,
    },
    /// A token that no header can carry.
    #[error("a --token contains characters that HTTP headers cannot contain")]
    BadToken,
    /// The HTTP client cannot be made.
    #[error("cannot set up the HTTP client: {0}")]
    Client(String),
    /// A URL of the site that no header can carry.
    #[error("`{0}` cannot be written in a Link header")]
    Link(String),

    /// The file to check cannot be a document.
    #[error("cannot check `{}`: {reason}", path.display())]
    NoDocument {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The folder to check holds no document.
    #[error("there is no ResourceSync document in `{}`; give the folder of a site, or a file", folder.display())]
    NothingToCheck {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder to check does not say which URL it has.
    #[error(
        "cannot find the URL of `{}`, since no entry of its Source Description is a file there; give it with --base-url",
        folder.display()
    )]
    NoBaseUrl {
        /// The folder.
        folder: PathBuf,
    },
}

impl Error {
    /// Makes an error of what the operating system says of a file.
    pub(crate) fn cannot(action: Action, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::File { action, path: path.to_owned(), source }
    }

    /// Whether a build was refused since all resources seem to be gone.
    #[must_use]
    pub fn is_of_emptiness(&self) -> bool {
        matches!(self, Self::EmptyCollection { .. } | Self::EmptyList { .. })
    }
}

/// "`a` or `b`".
fn either(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_hint_can_be_typed_also_for_a_path_with_a_space() {
        let said = Error::NotBuilt { out: PathBuf::from("/srv/a site") }.to_string();
        assert!(said.starts_with("there is no site in `/srv/a site` yet;"), "{said}");
        assert!(said.ends_with(" --out '/srv/a site'"), "{said}");
    }
}
