//! Bringing a directory in step with a Source: baseline and incremental synchronisation, and audit (RS-190, RS-191, RS-195).
//!
//! The list and the file alone decide whether a file is fetched. What is saved between runs only spares work, so an
//! interrupted run is simply run again.
//!
//! ```
//! use resync_core::datetime::DateTime;
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
//!
//! // A copy of one moment, in a directory of its own, that no later change reaches.
//! # let past = place.path().join("past");
//! let (moment, past) = (DateTime::now(), Target::open(&past, url.parse()?)?);
//! let options = SyncOptions { at: Some(moment), ..SyncOptions::default() };
//! let report = synchronise(&client, &offer, &past, &options, Depth::Full).await?;
//! assert_eq!((report.at, report.created), (Some(moment), 1));
//! assert_eq!(audit(&client, &offer, &past, &options).await?.verdict, Verdict::InStep);
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod at;
mod audit;
mod authority;
mod baseline;
mod choice;
mod error;
mod failure;
mod files;
mod incremental;
mod mixed_folders;
mod offer;
mod progress;
mod reading;
mod report;
mod run;
mod saved;
mod versions;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::durable::make_folder;
use url::Url;

pub use audit::{AuditReport, Verdict, audit};
pub use authority::Authority;
pub(crate) use choice::synchronise_with_notified;
pub use choice::{Depth, synchronise};
pub use error::{ChainEnd, SyncError};
pub use failure::{Cause, FAILURES_KEPT, Failure, FailureKind};
pub use files::resource_error::ResourceError;
pub use mixed_folders::overlapping;
pub(crate) use mixed_folders::refuse_mixed_folders;
pub use offer::Offer;
pub use progress::{Outcome, Progress, ResourceEvent};
pub use reading::filter::Filter;
pub use reading::gaps::{Gap, GapHistory};
pub(crate) use reading::notified::is_beyond_clock_skew;
pub use reading::path::PathError;
pub use report::{Method, Report, VersionsReport};
pub(crate) use saved::copied_source::CopiedSource;
pub(crate) use saved::earlier_files::{is_copy, refuse_foreign_folder};
pub use versions::fetch_versions;

pub(crate) use self::files::delete::Folder;
use self::files::disk::{Disk, Real};

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
    /// Go on with the copy of another Source: without this, nothing is done where the directory is one.
    pub switch_source: bool,
    /// Report what would be done: no resource is fetched, and nothing is written to the directory.
    pub dry_run: bool,
    /// Handle the changes since this time (RS-191), when the copy was in step except for known failures. It must not be in
    /// the future. Counts for [`Depth::Changes`].
    pub from: Option<DateTime>,
    /// Copy the state that the Source was in at this moment, which must not be in the future. The directory belongs to that moment: runs
    /// for another one, or for the present, refuse it. Any [`Depth`] does the same, and [`SyncOptions::prefer`] counts for nothing. What
    /// cannot be had as it was is a failure.
    pub at: Option<DateTime>,
    /// For [`SyncOptions::at`] and [`SyncOptions::versions`]: an archive that is asked for past states that neither the lists nor the
    /// Source lead to (RFC 7089). It is the URL to which the URI of a resource is added, and may be of any origin.
    pub timegate: Option<Url>,
    /// Progress of the run.
    pub progress: Progress,
    /// Whose resources may be fetched.
    pub authority: Authority,
    /// Where the baseline of an empty copy comes from.
    pub baseline: BaselineFrom,
    /// Where changes are read from.
    pub changes: ChangesFrom,
    /// Media types, such as `application/pdf` or `image/*`: of a resource that has an alternate representation of one of
    /// them, that one is copied, the first type first (RS-172). Where the list describes no representation, the server is asked for one of
    /// them.
    pub prefer: Vec<String>,
    /// Which resources are wanted.
    pub filter: Filter,
    /// Whether resources with a listed hash may be fetched from mirrors at other origins (RS-171), or else from the original
    /// (RS-180). Mirrors at the list's own origin are always used.
    pub foreign_mirrors: bool,
    /// Keep each version that the Source's changes tell of, beside the copy in this directory: as `PATH/20240601120000`, and a deletion as
    /// an empty `PATH/20240601120000.deleted` (MEM-070). Each is written once, and never changed or removed.
    pub versions: Option<PathBuf>,
    /// How many versions one run fetches; the next run continues (MEM-071).
    pub max_versions: u64,
    /// How many resources are compared and fetched at the same time: at most 160 (48 except on Linux), and 64 of unknown length.
    pub parallel: usize,
    /// How often a request is retried.
    pub retries: u32,
    /// The pause before the first retry; doubled for each further one.
    pub retry_pause: Duration,
    /// The largest accepted resource, in bytes.
    pub max_resource_bytes: u64,
    /// How many resources, and folders for them, one list may have, with its index; each takes up to half a KiB of memory.
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
            switch_source: false,
            dry_run: false,
            from: None,
            at: None,
            timegate: None,
            progress: Progress::default(),
            authority: Authority::default(),
            baseline: BaselineFrom::default(),
            changes: ChangesFrom::default(),
            prefer: Vec::new(),
            filter: Filter::default(),
            foreign_mirrors: false,
            versions: None,
            max_versions: 100_000,
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
        make_folder(directory)?;
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
    #[cfg(unix)]
    #[cfg(test)]
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
