//! Bringing a directory in step with a Source: baseline synchronisation and audit (RS-190, RS-195).
//!
//! Whether a file needs fetching is decided from the list and the file alone. What is remembered between runs
//! only spares work, so a run that was cut off is simply run again.
//!
//! ```
//! use resync_subscriber_kit::discover::discover;
//! use resync_subscriber_kit::fetch::{Client, ClientOptions, Reach};
//! use resync_subscriber_kit::sync::{Look, Method, Offer, SyncOptions, Target, Verdict, audit, look};
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
//! let reach = Reach::AsNearAs(vec![url.parse()?]);
//! let client = Client::new(ClientOptions { reach, ..ClientOptions::default() })?;
//! let source = discover(&client, &url).await?;
//! let (offer, target) = (Offer::of(&source.sets[0]), Target::open(&copy, source.base)?);
//! let options = SyncOptions { delete: true, ..SyncOptions::default() };
//! let report = look(&client, &offer, &target, &options, Look::Changes).await?;
//! assert_eq!((report.method, report.created), (Method::Baseline, 1));
//! assert_eq!(audit(&client, &offer, &target, &options).await?.verdict, Verdict::InStep);
//!
//! // From then on only what changed is asked for.
//! # std::fs::write(collection.join("moss.txt"), "Moss and more")?;
//! # build(&settings, &out)?;
//! let report = look(&client, &offer, &target, &options, Look::Changes).await?;
//! assert_eq!((report.method, report.updated), (Method::Incremental, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod audit;
mod baseline;
mod batch;
mod changes;
mod choice;
mod collector;
mod content;
mod copy_state;
mod delete;
mod disk;
mod download;
mod dump;
mod feed;
mod file_map;
mod filter;
mod folder;
mod gaps;
mod incremental;
mod lists;
mod local;
mod memory;
mod notified;
mod packages;
mod patch;
mod path;
mod plan;
mod progress;
mod put;
mod report;
mod run;
mod unpack;
mod work;

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
pub use choice::{Depth, baseline, synchronise};
pub use download::ResourceError;
pub(crate) use download::blocking;
pub use filter::Filter;
pub use gaps::{Gap, GapHistory};
pub(crate) use notified::is_beyond_clock_skew;
pub use path::PathError;
pub use progress::{Event, Progress};
pub use report::{FAILURES_KEPT, Failure, Method, Outcome, Report};

use self::disk::{Disk, Real};
use crate::discover::Set;
use crate::fetch::FetchError;

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
}

impl Offer {
    /// What a copy is made from: the Resource List, or the Resource Dump where that is all there is (RS-190).
    #[must_use]
    pub fn base(&self, how: Baseline) -> Option<&Url> {
        let dump = self.resource_dump.as_ref().filter(|_| how != Baseline::List);
        self.resource_list.as_ref().or(dump)
    }

    /// What tells of changes.
    #[must_use]
    pub fn changes(&self, how: ChangesFrom) -> Option<&Url> {
        match how {
            ChangesFrom::List => self.change_list.as_ref().or(self.change_dump.as_ref()),
            ChangesFrom::Dump => self.change_dump.as_ref().or(self.change_list.as_ref()),
        }
    }
}

/// Whose resources a list may name (RS-200).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authority {
    /// Only those of its own scheme, host and port; `http` and `https` of one host are one where both have their usual ports,
    /// since Sources move from the one to the other.
    #[default]
    SameOrigin,
    /// Those, and those of the origins of these URLs.
    Origins(Vec<Url>),
    /// Anyone's: for a Source that is trusted to send this Destination anywhere.
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
        is_one_more || origin == *home || is_usual_host(&origin, home)
    }
}

fn is_usual_host(one: &Origin, other: &Origin) -> bool {
    let host = |origin: &Origin| match origin {
        Origin::Tuple(scheme, host, port) => {
            matches!((scheme.as_str(), port), ("http", 80) | ("https", 443)).then(|| host.clone())
        }
        Origin::Opaque(_) => None,
    };
    host(one).is_some_and(|one| host(other) == Some(one))
}

/// From what a copy that has no files yet is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Baseline {
    /// From a Resource Dump if it is cheaper than fetching every resource by itself, or all there is.
    #[default]
    Cheaper,
    /// From a Resource Dump if there is one.
    Dump,
    /// Resource by resource.
    List,
}

/// From what changes are known, where a Source tells of them in both ways (RS-191).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangesFrom {
    /// From the Change List: of several changes of a resource only the last is fetched.
    #[default]
    List,
    /// From the Change Dump: fewer requests, and only what was packed as it was.
    Dump,
}

/// How a synchronisation goes about it.
#[derive(Clone, Debug)]
pub struct SyncOptions {
    /// Remove local files that the Source no longer lists (RS-201).
    pub delete: bool,
    /// Only tell what would be done: no resource is fetched, and nothing is written to the directory.
    pub dry_run: bool,
    /// Deal with the changes since this time, which must not be to come (RS-191): the copy was in step then, but for what an
    /// earlier run could not do. Counts for [`Depth::Changes`].
    pub from: Option<DateTime>,
    /// Shows how far it has come.
    pub progress: Progress,
    /// Whose resources may be fetched.
    pub authority: Authority,
    /// From what a copy that has no files yet is made.
    pub baseline: Baseline,
    /// From what changes are known.
    pub changes: ChangesFrom,
    /// Media types, such as `application/pdf` or `image/*`: of a resource that has an alternate representation of one of
    /// them, that one is copied, the first type first (RS-172).
    pub prefer: Vec<String>,
    /// Which resources are wanted.
    pub filter: Filter,
    /// Whether bytes may come from other origins: from mirrors (RS-171), or, where nobody else has them, from where the
    /// Source has them (RS-180). Only the hash in the list proves them. Mirrors of the list's own origin are always used.
    pub mirrors: bool,
    /// How many resources are compared and fetched at the same time: 160 at most (48 other than on Linux), and 64 of those whose
    /// lengths are not told.
    pub parallel: usize,
    /// How often a request is repeated while the Source is away.
    pub retries: u32,
    /// The pause before the first repetition; doubled for each further one.
    pub retry_pause: Duration,
    /// The largest resource that is taken, in bytes.
    pub max_resource_bytes: u64,
    /// How many resources one list may lead to, through its index; each takes up to half a KiB of memory meanwhile.
    pub max_resources: u64,
    /// How many bytes the documents of one run may have together: its lists, and the manifests beside packages.
    pub max_list_bytes: u64,
    /// How many lists and packages these documents may name.
    pub max_parts: u64,
    /// How many bytes of resources one run may transfer; the next run goes on from there.
    pub max_run_bytes: u64,
    /// How long one run may take; the next run goes on from there.
    pub max_run_time: Duration,
}

impl Default for SyncOptions {
    fn default() -> Self {
        Self {
            delete: false,
            dry_run: false,
            from: None,
            progress: Progress::default(),
            authority: Authority::default(),
            baseline: Baseline::default(),
            changes: ChangesFrom::default(),
            prefer: Vec::new(),
            filter: Filter::default(),
            mirrors: false,
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

/// A directory and the URL that it is the picture of.
#[derive(Clone, Debug)]
pub struct Target {
    directory: PathBuf,
    base: Url,
    /// Never touched: where the state is kept, if that is inside the directory. Other states are known by
    /// their mark.
    state: Option<PathBuf>,
    disk: Arc<dyn Disk>,
}

impl Target {
    /// The copy in `directory`, made if it is missing, of what lies under `base` (up to its last `/`).
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(directory: &Path, base: Url) -> std::io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        Ok(Self { directory: directory.canonicalize()?, base, state: None, disk: Arc::new(Real) })
    }

    /// The same without making it, for who only looks.
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
    #[error("a list cannot be fetched: {0}")]
    Fetch(#[from] FetchError),
    /// A list could not be read to its end.
    #[error("the list {url} cannot be read: {source}")]
    List {
        /// The list.
        url: Url,
        /// Why.
        source: Box<ReadError>,
    },
    /// The document is of another kind.
    #[error("{url} is a {found}, not a Resource List")]
    NotAResourceList {
        /// The document.
        url: Url,
        /// The capability it states.
        found: String,
    },
    /// A package is of another kind than its dump.
    #[error("the package {url} has a {found}, which is not the manifest that its dump should have")]
    OtherManifest {
        /// The package.
        url: Url,
        /// The capability that its manifest states.
        found: String,
    },
    /// A package is of a format that cannot be read, and has no manifest beside it (RS-101).
    #[error("the package {url} is a file of type {media_type}: only ZIP packages can be read")]
    PackageFormat {
        /// The package.
        url: Url,
        /// What the dump says that it is.
        media_type: String,
    },
    /// A package that the run cannot do without cannot be fetched.
    #[error("the package {url} cannot be fetched: {source}")]
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
    /// The document is of another kind.
    #[error("{url} is a {found}, neither a Change List nor a Change Dump")]
    NotAChangeList {
        /// The document.
        url: Url,
        /// The capability it states.
        found: String,
    },
    /// The document is of another kind.
    #[error("{url} is a {found}, not a Resource Dump")]
    NotAResourceDump {
        /// The document.
        url: Url,
        /// The capability it states.
        found: String,
    },
    /// The copy cannot have been in step at a time to come.
    #[error("{from} is to come: give a time at which the copy was in step")]
    InFuture {
        /// The time that was told.
        from: String,
    },
    /// The Source no longer tells of changes that this copy has not seen (RS-197).
    #[error(
        "{url} tells of changes since {from}, but this copy needs those since {since}: synchronise it as a whole"
    )]
    LostChanges {
        /// The Change List or its index.
        url: Box<Url>,
        /// Since when it tells of changes.
        from: String,
        /// Up to where the copy is in step.
        since: String,
    },
    /// There is nothing to make a copy from.
    #[error(
        "the Source offers neither a Resource List nor a Resource Dump that may be used, so there is nothing to make a copy from"
    )]
    NothingOffered,
    /// An index in an index (RS-044).
    #[error("{url} is an index listed in an index: an index may only list plain lists")]
    NestedIndex {
        /// The inner index.
        url: Url,
    },
    /// A list under an index is of another origin (RS-200).
    #[error(
        "the list {url} is of another origin than its index: allow other origins if you trust this Source"
    )]
    ForeignComponent {
        /// The list, after redirects.
        url: Url,
    },
    /// An index names something that is no URL.
    #[error("the index {index} lists {loc:?}, which is not a URL")]
    Component {
        /// The index.
        index: Url,
        /// What it names.
        loc: String,
    },
    /// With `--delete`, an empty list would empty the directory (RS-201).
    #[error(
        "the Resource List {url} lists nothing that has a place here, so nothing is deleted: check the Source, or empty the directory by hand"
    )]
    Empty {
        /// The list.
        url: Url,
    },
    /// The lists lead to more resources than are taken.
    #[error("the list leads to more than {max} resources, which is all that one copy takes")]
    TooManyResources {
        /// The bound.
        max: u64,
    },
    /// The documents of a run are larger than is taken.
    #[error("{url} and the lists and manifests that belong to it have more than {max} bytes together")]
    ListsTooLarge {
        /// The Resource List, or else the Resource Dump.
        url: Url,
        /// The bound.
        max: u64,
    },
    /// The documents of a run name more lists and packages than are taken.
    #[error("{url} and the lists that belong to it name more than {max} lists and packages together")]
    TooManyParts {
        /// The Resource List, or else the Resource Dump.
        url: Url,
        /// The bound.
        max: u64,
    },
    /// The run took too long; what it has done is done.
    #[error("the run took longer than {max:?}: the next one goes on from there")]
    TooLong {
        /// The bound.
        max: Duration,
    },
    /// Another run works on the same copy.
    #[error("another resync-destination works on {} at this moment: wait until it is done", directory.display())]
    InUse {
        /// The copy.
        directory: PathBuf,
    },
    /// The directory cannot be read or changed.
    #[error("the directory cannot be worked on: {0}")]
    Directory(#[from] std::io::Error),
}

impl SyncError {
    /// How long the Source asks to be left alone, if it does.
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

    /// Whether a document of the Source is at fault, and not that it is away, or that a bound was reached.
    fn is_about_a_document(&self) -> bool {
        match self {
            Self::Fetch(error) => error.is_about_the_answer(),
            Self::PackageFetch { source, .. } => match &**source {
                ResourceError::Fetch(error) => error.is_about_the_answer(),
                error => error.is_mismatch() || matches!(error, ResourceError::TooLarge { .. }),
            },
            Self::List { .. }
            | Self::NotAChangeList { .. }
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
