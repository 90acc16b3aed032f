//! Bringing a directory in step with a Source: baseline and incremental synchronisation, and audit (RS-190, RS-191, RS-195).
//!
//! The list and the file alone decide whether a file is fetched. What is saved between runs only spares work, so an
//! interrupted run is simply run again.
//!
//! ```
//! use resync_subscriber_kit::discover::discover;
//! use resync_subscriber_kit::fetch::{AddressPolicy, Client, ClientOptions};
//! use resync_subscriber_kit::sync::{Depth, Method, Offer, SyncOptions, Target, Verdict, audit, synchronise};
//! # use resync_publisher::{BaseUrl, Settings, build, serve::serve};
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let place = tempfile::tempdir()?;
//! # let (collection, out) = (place.path().join("collection"), place.path().join("site"));
//! # std::fs::create_dir(&collection)?;
//! # std::fs::write(collection.join("moss.txt"), "Moss")?;
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}/", listener.local_addr()?);
//! # let settings = Settings::new(&collection, BaseUrl::parse(&url)?);
//! # build(&settings, &out)?;
//! # tokio::spawn(serve(listener, out.clone(), std::future::pending()));
//! # let copy = place.path().join("copy");
//!
//! // Of a Source at `url` that has one file, to the folder `copy`:
//! let address_policy = AddressPolicy::NetworkOf(vec![url.parse()?]);
//! let client = Client::new(ClientOptions { address_policy, ..ClientOptions::default() })?;
//! let source = discover(&client, &url).await?;
//! let (offer, target) = (Offer::of(&source.sets[0]), Target::open(&copy, source.base)?);
//! let options = SyncOptions { delete: true, ..SyncOptions::default() };
//! let report = synchronise(&client, &offer, &target, &options, Depth::Changes).await?;
//! assert_eq!((report.method, report.created), (Method::Baseline, 1));
//! assert_eq!(audit(&client, &offer, &target, &options).await?.verdict, Verdict::InStep);
//!
//! // Later runs request only what changed.
//! # std::fs::write(collection.join("moss.txt"), "Moss and more")?;
//! # build(&settings, &out)?;
//! let report = synchronise(&client, &offer, &target, &options, Depth::Changes).await?;
//! assert_eq!((report.method, report.updated), (Method::Incremental, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod audit;
mod baseline;
mod choice;
mod files;
mod incremental;
mod progress;
mod reading;
mod report;
mod run;
mod saved;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::document::Capability;
use resync_core::package::PackageError;
use resync_core::xml::ReadError;
use url::{Origin, Url};

pub use audit::{AuditReport, Verdict, audit};
pub(crate) use choice::synchronise_with_notified;
pub use choice::{Depth, synchronise};
pub use files::download::ResourceError;
pub(crate) use files::download::blocking;
pub use progress::{Progress, ResourceEvent};
pub use reading::filter::Filter;
pub use reading::gaps::{Gap, GapHistory};
pub(crate) use reading::notified::is_beyond_clock_skew;
pub use reading::path::PathError;
pub use report::{FAILURES_KEPT, Failure, Method, Outcome, Report};
pub(crate) use saved::earlier_files::{is_copy, refuse_foreign_folder};

pub(crate) use self::files::delete::Folder;
use self::files::disk::{Disk, Real};
use crate::discover::Set;
use crate::fetch::{FetchError, is_moved};

/// The documents to synchronise from, each a plain one or an index (RS-014).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The Resource List.
    pub resource_list: Option<Url>,
    /// The Change List.
    pub change_list: Option<Url>,
    /// The Resource Dump.
    pub resource_dump: Option<Url>,
    /// The Change Dump.
    pub change_dump: Option<Url>,
}

impl Offer {
    /// A Resource List and nothing else.
    #[must_use]
    pub fn list(resource_list: Url) -> Self {
        Self { resource_list: Some(resource_list), ..Self::default() }
    }

    /// What a set offers.
    #[must_use]
    pub fn of(set: &Set) -> Self {
        Self {
            resource_list: set.resource_list.clone(),
            change_list: set.named(&Capability::ChangeList).cloned(),
            resource_dump: set.named(&Capability::ResourceDump).cloned(),
            change_dump: set.named(&Capability::ChangeDump).cloned(),
        }
    }

    /// What a copy is made from: the Resource List, or else the Resource Dump (RS-190).
    #[must_use]
    pub fn base(&self, how: BaselineFrom) -> Option<&Url> {
        let dump = self.resource_dump.as_ref().filter(|_| how != BaselineFrom::List);
        self.resource_list.as_ref().or(dump)
    }

    /// The document that lists changes.
    #[must_use]
    pub fn changes(&self, how: ChangesFrom) -> Option<&Url> {
        match how {
            ChangesFrom::List => self.change_list.as_ref().or(self.change_dump.as_ref()),
            ChangesFrom::Dump => self.change_dump.as_ref().or(self.change_list.as_ref()),
        }
    }
}

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

/// Where the baseline of an empty copy comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BaselineFrom {
    /// From a Resource Dump if it is cheaper than single requests, or if there is no list.
    #[default]
    Cheaper,
    /// From a Resource Dump if there is one.
    Dump,
    /// Resource by resource.
    List,
}

/// Where changes are read from, if a Source has both (RS-191).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangesFrom {
    /// From the Change List: of several changes of a resource, only the last is fetched.
    #[default]
    List,
    /// From the Change Dump: fewer requests, but every packed version.
    Dump,
}

/// Options of a synchronisation.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct SyncOptions {
    /// Remove local files that the Source no longer lists (RS-201).
    pub delete: bool,
    /// Take over files that were in the directory before it became a copy: without this, those that differ from the list stay,
    /// and nothing is done at all where `delete` could remove them.
    pub adopt: bool,
    /// Report what would be done: no resource is fetched, and nothing is written to the directory.
    pub dry_run: bool,
    /// Handle the changes since this time (RS-191), when the copy was in step except for known failures. It must not be in
    /// the future. Counts for [`Depth::Changes`].
    pub from: Option<DateTime>,
    /// Progress of the run.
    pub progress: Progress,
    /// Whose resources may be fetched.
    pub authority: Authority,
    /// Where the baseline of an empty copy comes from.
    pub baseline: BaselineFrom,
    /// Where changes are read from.
    pub changes: ChangesFrom,
    /// Media types, such as `application/pdf` or `image/*`: of a resource that has an alternate representation of one of
    /// them, that one is copied, the first type first (RS-172).
    pub prefer: Vec<String>,
    /// Which resources are wanted.
    pub filter: Filter,
    /// Whether resources with a listed hash may be fetched from mirrors at other origins (RS-171), or else from the original
    /// (RS-180). Mirrors at the list's own origin are always used.
    pub foreign_mirrors: bool,
    /// How many resources are compared and fetched at the same time: at most 160 (48 except on Linux), and 64 of unknown length.
    pub parallel: usize,
    /// How often a request is retried.
    pub retries: u32,
    /// The pause before the first retry; doubled for each further one.
    pub retry_pause: Duration,
    /// The largest accepted resource, in bytes.
    pub max_resource_bytes: u64,
    /// How many resources one list may have, with its index; each takes up to half a KiB of memory.
    pub max_resources: u64,
    /// How many bytes the documents of one run may have together: its lists, and the manifests beside packages.
    pub max_list_bytes: u64,
    /// How many lists and packages these documents may name.
    pub max_parts: u64,
    /// How many bytes of resources one run may transfer; the next run continues.
    pub max_run_bytes: u64,
    /// How long one run may take; the next run continues.
    pub max_run_time: Duration,
}

impl Default for SyncOptions {
    fn default() -> Self {
        Self {
            delete: false,
            adopt: false,
            dry_run: false,
            from: None,
            progress: Progress::default(),
            authority: Authority::default(),
            baseline: BaselineFrom::default(),
            changes: ChangesFrom::default(),
            prefer: Vec::new(),
            filter: Filter::default(),
            foreign_mirrors: false,
            parallel: 8,
            retries: 2,
            retry_pause: Duration::from_millis(250),
            max_resource_bytes: 16 << 30,
            max_resources: 3_000_000,
            max_list_bytes: 16 << 30,
            max_parts: 100_000,
            max_run_bytes: 16 << 40,
            max_run_time: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// A directory, and the URL that corresponds to it.
#[derive(Clone, Debug)]
pub struct Target {
    directory: PathBuf,
    base: Url,
    /// The state folder, if it is in the directory; never changed. Other states are recognised by their mark.
    state: Option<PathBuf>,
    disk: Arc<dyn Disk>,
}

impl Target {
    /// The copy in `directory`, created if it is missing, of everything below `base` (up to its last `/`).
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(directory: &Path, base: Url) -> std::io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        Self::inspect(directory, base)
    }

    /// As [`Target::open`], but without creating the directory, for commands that only read.
    ///
    /// # Errors
    /// What the file system says.
    pub fn inspect(directory: &Path, base: Url) -> std::io::Result<Self> {
        let directory = match directory.canonicalize() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => std::path::absolute(directory)?,
            found => found?,
        };
        Ok(Self { directory, base, state: None, disk: Arc::new(Real) })
    }

    /// Protects a state folder other than the usual one from deletion.
    #[must_use]
    pub fn with_state(mut self, folder: &Path) -> Self {
        self.state = folder.canonicalize().ok();
        self
    }

    pub(crate) fn folder(&self) -> Folder<'_> {
        Folder { directory: &self.directory, state: self.state.as_deref() }
    }

    /// Another disk.
    #[cfg(all(test, unix))]
    pub(crate) fn on(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// The directory, absolute and without symbolic links.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
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
    #[error("cannot fetch the package {url}: {source}")]
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
    #[error("the list {url} has another origin than its index; if you trust it, allow it with --origin")]
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
    /// The lists name too many resources.
    #[error("the list has more than {max} resources; increase --max-resources if you trust this Source")]
    TooManyResources {
        /// The limit.
        max: u64,
    },
    /// The documents of a run are too large.
    #[error(
        "{url} with its lists and manifests is larger than {max} bytes; increase --max-list-size if you trust this Source"
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

impl SyncError {
    /// Says which directory cannot be used.
    fn within(self, directory: &Path) -> Self {
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
        matches!(self, Self::EarlierFiles { .. })
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
    fn is_about_a_document(&self) -> bool {
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
            | Self::LostChanges { .. } => true,
            _ => false,
        }
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
