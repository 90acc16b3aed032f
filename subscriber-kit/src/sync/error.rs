//! Why a synchronisation or audit could not be done at all.

use std::path::{Path, PathBuf};
use std::time::Duration;

use resync_common::words::Size;
use resync_core::package::PackageError;
use resync_core::xml::ReadError;
use url::Url;

use super::ResourceError;
use super::failure::Failure;
use crate::fetch::FetchError;

/// How a chain of alpha Change Sets ends before it leads to a known change (MEM-005).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainEnd {
    /// No set is named before its oldest one.
    #[error("begins too late")]
    Begin,
    /// A set leads to one that was read already.
    #[error("leads in a circle")]
    Circle,
    /// A set cannot be read.
    #[error("has a set that cannot be read")]
    Hole,
    /// It has more sets than are read.
    #[error("has more than 1000 sets")]
    TooLong,
}

/// Why a synchronisation or audit could not be done at all; the local copy keeps all it has.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// A list could not be fetched.
    #[error("cannot fetch a list: {0}")]
    Fetch(#[from] FetchError),
    /// A list could not be read to its end.
    #[error("cannot read the list {url}: {source}")]
    List {
        /// The list.
        url: Url,
        /// Why.
        source: Box<ReadError>,
    },
    /// The document has another kind.
    #[error("{url} is a {found}, not a {expected}")]
    WrongKind {
        /// The document.
        url: Box<Url>,
        /// The capability it states.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A package is of another kind than its dump.
    #[error("the package {url} has a manifest of the wrong kind: {found}")]
    OtherManifest {
        /// The package.
        url: Url,
        /// The capability that its manifest states.
        found: String,
    },
    /// A package is of a format that cannot be read, and has no manifest beside it (RS-101).
    #[error("the package {url} has the type {media_type}; only ZIP packages are supported")]
    PackageFormat {
        /// The package.
        url: Url,
        /// What the dump says that it is.
        media_type: String,
    },
    /// A package that the run cannot do without cannot be fetched.
    #[error("cannot fetch the package {url}: {}", Failure::of(url.as_str(), source).cause)]
    PackageFetch {
        /// The package.
        url: Url,
        /// Why.
        source: Box<ResourceError>,
    },
    /// A package that the run cannot do without cannot be read.
    #[error("{url}: {source}")]
    Package {
        /// The package.
        url: Url,
        /// Why.
        source: Box<PackageError>,
    },
    /// The copy cannot have been in step at a time in the future.
    #[error("--since {from} is in the future; give a time when the copy was in step")]
    InFuture {
        /// The given time.
        from: String,
    },
    /// There is no copy of the future.
    #[error("--at {moment} is in the future; give a time that has passed")]
    MomentInFuture {
        /// The given time.
        moment: String,
    },
    /// The Source's lists do not show what it had at a past moment (MEM-061).
    #[error(
        "the lists of the Source do not show what it had at {moment}, so nothing was written; {}",
        next_to_it(before.as_deref(), after.as_deref())
    )]
    OutOfReach {
        /// The given time.
        moment: String,
        /// The next time before it that the lists show.
        before: Option<String>,
        /// The next time after it that the lists show.
        after: Option<String>,
    },
    /// The directory is a copy of another moment, or of the present (MEM-063).
    #[error(
        "{} is a copy of the Source as {}, not as {}, so nothing was done; give another directory",
        directory.display(),
        as_of(known.as_ref()),
        as_of(wanted.as_ref())
    )]
    OtherMoment {
        /// The directory.
        directory: PathBuf,
        /// The moment that it is a copy of; `None` for the present.
        known: Option<String>,
        /// The moment that was given.
        wanted: Option<String>,
    },
    /// The Source no longer lists changes that this copy has not seen (RS-197).
    #[error(
        "{url} lists changes since {from}, but this copy needs those since {since}; run `sync` without --incremental"
    )]
    LostChanges {
        /// The Change List or its index.
        url: Box<Url>,
        /// When its changes begin.
        from: String,
        /// Up to where the copy is in step.
        since: String,
    },
    /// The Source's chain of Change Sets does not lead back to what this copy has seen (MEM-005).
    #[error(
        "the chain of Change Sets from {url} {end}, so changes since {since} may be missing; run `sync` without --incremental"
    )]
    BrokenChain {
        /// The current set.
        url: Box<Url>,
        /// How the chain ends.
        end: ChainEnd,
        /// Up to where the copy is in step.
        since: String,
    },
    /// There is nothing to copy.
    #[error("the Source offers no usable Resource List or Resource Dump, so there is nothing to copy")]
    NothingOffered,
    /// An index in an index (RS-044).
    #[error("the index {url} is listed in another index; an index may list only plain lists")]
    NestedIndex {
        /// The inner index.
        url: Url,
    },
    /// A list under an index is of another origin (RS-200).
    #[error(
        "the list {url} has another origin than the list that names it; if you trust it, allow it with --origin"
    )]
    ForeignComponent {
        /// The list, after redirects.
        url: Url,
    },
    /// An index names something that is not a URL.
    #[error("the index {index} lists {loc:?}, which is not a URL")]
    Component {
        /// The index.
        index: Url,
        /// What it names.
        loc: String,
    },
    /// With `--delete`, an empty list would empty the directory (RS-201).
    #[error(
        "the Resource List {url} lists no resource for this directory, so nothing is deleted; check the Source, or empty the directory yourself"
    )]
    Empty {
        /// The list.
        url: Url,
    },
    /// The lists name too many resources, with the folders that these need.
    #[error(
        "the list has more than {max} resources and folders; increase --max-resources if you trust this Source"
    )]
    TooManyResources {
        /// The limit.
        max: u64,
    },
    /// The documents of a run are too large.
    #[error(
        "{url} with its lists and manifests is larger than {}; increase --max-list-size if you trust this Source",
        Size(*max)
    )]
    ListsTooLarge {
        /// The Resource List, or else the Resource Dump.
        url: Url,
        /// The limit.
        max: u64,
    },
    /// The documents of a run name too many lists and packages.
    #[error(
        "{url} with its lists names more than {max} lists and packages; increase --max-parts if you trust this Source"
    )]
    TooManyParts {
        /// The Resource List, or else the Resource Dump.
        url: Url,
        /// The limit.
        max: u64,
    },
    /// The run took too long; what it did stays.
    #[error("the run took longer than {max:?}; the next run continues")]
    TooLong {
        /// The limit.
        max: Duration,
    },
    /// With `delete`, files that were in the directory before it became a copy could be removed.
    #[error(
        "{} has {} from before it was a copy ({}{}), and --delete could remove {}, so nothing was done; --dry-run shows what would go, and `sync --adopt` takes the folder over, which is right for a copy that lost its state",
        directory.display(),
        if *count == 1 { "1 file".to_owned() } else { format!("{count} files") },
        first.join(", "),
        if *count > first.len() as u64 { ", …" } else { "" },
        if *count == 1 { "it" } else { "them" },
    )]
    EarlierFiles {
        /// The directory.
        directory: PathBuf,
        /// How many there are.
        count: u64,
        /// The first of them, by name.
        first: Vec<String>,
    },
    /// The directory is a copy of another Source, or of another set.
    #[error(
        "{} is a copy of {known}, not of {found}, so nothing was done; check the URL, or give another directory. If the Source has moved there, `sync --switch-source` goes on with the files of the copy; with --delete, it removes those that {found} does not list",
        directory.display()
    )]
    OtherSource {
        /// The directory.
        directory: PathBuf,
        /// The set that it is a copy of: the URL of its Capability List, or else of another document.
        known: String,
        /// The set that was given.
        found: String,
    },
    /// Versions cannot be kept within the copy, nor a copy within its versions: each would be taken for the other.
    #[error(
        "versions cannot be kept in {}, since it is within the copy {} or has it within; give another directory",
        versions.display(),
        directory.display()
    )]
    MixedFolders {
        /// The copy.
        directory: PathBuf,
        /// Where its versions should be.
        versions: PathBuf,
    },
    /// Another run works on the same copy.
    #[error("another resync-destination is using {}; wait until it is done", directory.display())]
    InUse {
        /// The copy.
        directory: PathBuf,
    },
    /// The directory cannot be read or changed.
    #[error("cannot use the directory: {0}")]
    Directory(#[from] std::io::Error),
}

fn next_to_it(before: Option<&str>, after: Option<&str>) -> String {
    match (before, after) {
        (None, None) => "they show it of no moment".to_owned(),
        (None, Some(after)) => format!("the oldest moment that can be copied is {after}"),
        (Some(before), None) => format!("the next moment before it that can be copied is {before}"),
        (Some(before), Some(after)) => {
            format!("the next moments that can be copied are {before} and {after}")
        }
    }
}

fn as_of(moment: Option<&String>) -> String {
    moment.map_or_else(|| "it is".to_owned(), |moment| format!("it was at {moment}"))
}

impl SyncError {
    /// Says which directory cannot be used.
    pub(super) fn within(self, directory: &Path) -> Self {
        match self {
            Self::Directory(source) => {
                let text = format!("{}: {source}", directory.display());
                Self::Directory(std::io::Error::new(source.kind(), text))
            }
            other => other,
        }
    }

    /// Whether the settings are wrong, so that the same fails again.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::EarlierFiles { .. }
                | Self::OtherSource { .. }
                | Self::OtherMoment { .. }
                | Self::MixedFolders { .. }
        )
    }

    /// The pause that the Source asks for.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Fetch(error) => error.retry_after(),
            Self::PackageFetch { source, .. } => match &**source {
                ResourceError::Fetch(error) => error.retry_after(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether a document of the Source is wrong; not if the Source is unreachable, or a limit was reached.
    pub(super) fn is_about_a_document(&self) -> bool {
        match self {
            Self::Fetch(error) => error.is_about_the_answer(),
            Self::PackageFetch { source, .. } => match &**source {
                ResourceError::Fetch(error) => error.is_about_the_answer(),
                error => error.is_mismatch() || matches!(error, ResourceError::TooLarge { .. }),
            },
            Self::List { .. }
            | Self::WrongKind { .. }
            | Self::NestedIndex { .. }
            | Self::ForeignComponent { .. }
            | Self::Component { .. }
            | Self::OtherManifest { .. }
            | Self::Package { .. }
            | Self::PackageFormat { .. }
            | Self::LostChanges { .. }
            | Self::BrokenChain { .. } => true,
            _ => false,
        }
    }
}
