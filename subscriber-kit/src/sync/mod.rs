//! Bringing a directory in step with a Source: baseline synchronisation and audit (RS-190, RS-195).
//!
//! Whether a file needs fetching is decided from the list and the file alone, so nothing has to be remembered
//! between runs and a run that was cut off is simply run again.

mod audit;
mod delete;
mod download;
mod lists;
mod local;
mod path;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_core::xml::ReadError;
use serde::{Deserialize, Serialize};
use url::Url;

pub use audit::{AuditReport, audit};
pub use download::ResourceError;
pub use path::PathError;

use crate::fetch::{Client, FetchError};
use download::{Job, Written, blocking};
use lists::Listed;
use local::{Facts, Local};

/// How many failures a report spells out; all are counted.
const FAILURES_KEPT: usize = 100;

/// Whose resources a list may name (RS-200).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authority {
    /// Only those of its own scheme, host and port.
    #[default]
    SameOrigin,
    /// Anyone's: for a Source that is trusted to send this Destination anywhere.
    Any,
}

/// How a synchronisation goes about it.
#[derive(Clone, Debug)]
pub struct SyncOptions {
    /// Remove local files that the Source no longer lists (RS-201).
    pub delete: bool,
    /// Whose resources may be fetched.
    pub authority: Authority,
    /// How many resources are compared and fetched at the same time.
    pub parallel: usize,
    /// How often a request is repeated while the Source is away.
    pub retries: u32,
    /// The pause before the first repetition; doubled for each further one.
    pub retry_pause: Duration,
    /// The largest resource that is taken, in bytes.
    pub max_resource_bytes: u64,
}

impl Default for SyncOptions {
    fn default() -> Self {
        Self {
            delete: false,
            authority: Authority::default(),
            parallel: 4,
            retries: 2,
            retry_pause: Duration::from_millis(250),
            max_resource_bytes: 16 << 30,
        }
    }
}

/// A directory and the URL that it is the picture of.
#[derive(Clone, Debug)]
pub struct Target {
    directory: PathBuf,
    base: Url,
    /// Never touched: where the state is kept, if that is inside the directory.
    state: Option<PathBuf>,
}

impl Target {
    /// The copy in `directory`, made if it is missing, of what lies under `base` (up to its last `/`).
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(directory: &Path, base: Url) -> std::io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        Ok(Self { directory: directory.canonicalize()?, base, state: None })
    }

    /// Protects a state folder other than the usual one from deletion.
    #[must_use]
    pub fn with_state(mut self, folder: &Path) -> Self {
        self.state = folder.canonicalize().ok();
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
    #[error("the Resource List cannot be fetched: {0}")]
    Fetch(#[from] FetchError),
    /// A list could not be read to its end.
    #[error("the Resource List {url} cannot be read: {source}")]
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
    /// Reading a list broke off for a reason of this program's own.
    #[error("reading the Resource List {url} broke off")]
    Interrupted {
        /// The list or index.
        url: Url,
    },
    /// An index in an index (RS-044).
    #[error("{url} is an index listed in an index: an index may only list Resource Lists")]
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
    /// The directory cannot be read or changed.
    #[error("the directory cannot be worked on: {0}")]
    Directory(#[from] std::io::Error),
}

/// One resource that is not in step, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Its URI as the list writes it.
    pub loc: String,
    /// Why, in a sentence.
    pub cause: String,
}

/// What a synchronisation did: `created + updated + unchanged + failed` is `resources`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// How many resources the Source lists.
    pub resources: u64,
    /// Files that were not there.
    pub created: u64,
    /// Files that were replaced.
    pub updated: u64,
    /// Files that were removed.
    pub deleted: u64,
    /// Files that were right already.
    pub unchanged: u64,
    /// Resources that are not in step.
    pub failed: u64,
    /// How many bytes of resources were transferred, also in vain.
    pub bytes_fetched: u64,
    /// The failures, at most the first hundred.
    pub failures: Vec<Failure>,
}

impl Report {
    /// Whether the copy holds everything the Source lists.
    #[must_use]
    pub fn in_step(&self) -> bool {
        self.failed == 0
    }

    fn count(&mut self, loc: &str, outcome: Result<Outcome, ResourceError>) {
        match outcome {
            Ok(Outcome::Created) => self.created += 1,
            Ok(Outcome::Updated) => self.updated += 1,
            Ok(Outcome::Unchanged) => self.unchanged += 1,
            Err(error) => {
                tracing::warn!(%loc, %error, "a resource is not in step");
                self.failed += 1;
                note(&mut self.failures, loc, &error);
            }
        }
    }
}

fn note(failures: &mut Vec<Failure>, loc: &str, error: &ResourceError) {
    if failures.len() < FAILURES_KEPT {
        failures.push(Failure { loc: loc.to_owned(), cause: error.to_string() });
    }
}

/// Baseline synchronisation (RS-190): brings the directory in step with the Resource List or index at `list`.
///
/// Only what differs is fetched. Each file is replaced in one step, once its length and hash are right; on
/// any failure the old file stays. With [`SyncOptions::delete`], files that are not listed are removed after
/// the whole list was read.
///
/// # Errors
/// [`SyncError`] when there is no complete list; single resources that fail are in the [`Report`].
pub async fn baseline(
    client: &Client,
    list: &Url,
    target: &Target,
    options: &SyncOptions,
) -> Result<Report, SyncError> {
    let run = Run { client, target, options, bytes: AtomicU64::new(0) };
    let mut report = Report::default();
    let mut places = Places::default();
    let mut changed_folders = HashSet::new();
    let mut entries = lists::entries(client, list, options);
    let mut work = FuturesUnordered::new();
    let mut listing = true;
    while listing || !work.is_empty() {
        tokio::select! {
            entry = entries.next(), if listing && work.len() < options.parallel.max(1) => match entry? {
                Some(entry) => {
                    match places.place(&entry, target, options) {
                        Ok(Some(relative)) => { report.resources += 1; work.push(run.resource(entry, relative)); }
                        Ok(None) => tracing::debug!(loc = %entry.entry.loc, "a resource is listed twice"),
                        Err(error) => { report.resources += 1; report.count(&entry.entry.loc, Err(error)); }
                    }
                }
                None => listing = false,
            },
            Some(done) = work.next(), if !work.is_empty() => {
                let Done { loc, relative, outcome } = done;
                if matches!(outcome, Ok(Outcome::Created | Outcome::Updated)) {
                    let folders = Path::new(&relative).ancestors().skip(1).map(|folder| target.directory.join(folder));
                    changed_folders.extend(folders);
                }
                report.count(&loc, outcome);
            }
        }
    }
    if options.delete {
        let (target, keep) = (target.clone(), places.into_paths());
        if keep.is_empty() {
            return Err(SyncError::Empty { url: list.clone() });
        }
        report.deleted = blocking(move || delete::unlisted(&target, &keep)).await?;
    }
    report.bytes_fetched = run.bytes.load(Ordering::Relaxed);
    blocking(move || sync_folders(&changed_folders)).await?;
    Ok(report)
}

/// What became of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Created,
    Updated,
    Unchanged,
}

struct Done {
    loc: String,
    relative: String,
    outcome: Result<Outcome, ResourceError>,
}

/// What the work on every resource of one run shares.
struct Run<'s> {
    client: &'s Client,
    target: &'s Target,
    options: &'s SyncOptions,
    bytes: AtomicU64,
}

impl Run<'_> {
    async fn resource(&self, listed: Listed, relative: String) -> Done {
        let outcome = self.bring_in_step(&listed, &relative).await;
        Done { loc: listed.entry.loc, relative, outcome }
    }

    async fn bring_in_step(&self, listed: &Listed, relative: &str) -> Result<Outcome, ResourceError> {
        let url = listed.url.as_ref().map_err(|error| PathError::Uri(*error))?;
        let facts = Facts::of(&listed.entry);
        let local = compare(&self.target.directory, relative, &facts).await?;
        if local == Local::Same {
            return Ok(Outcome::Unchanged);
        }
        let job = Job {
            client: self.client,
            options: self.options,
            directory: &self.target.directory,
            relative,
            url,
            facts: &facts,
            bytes: &self.bytes,
        };
        Ok(match (job.run().await?, local) {
            (Written::Identical, _) => Outcome::Unchanged,
            (Written::Replaced, Local::Missing) => Outcome::Created,
            (Written::Replaced, _) => Outcome::Updated,
        })
    }
}

/// Compares the file of a resource with the facts, unless the way to it is not safe.
async fn compare(directory: &Path, relative: &str, facts: &Facts) -> Result<Local, ResourceError> {
    let (directory, relative, facts) = (directory.to_owned(), relative.to_owned(), facts.clone());
    blocking(move || {
        if let Some(error) = path::blocked(&directory, &relative)? {
            return Err(error.into());
        }
        Ok(local::compare(&directory.join(relative), &facts)?)
    })
    .await
}

/// Which file belongs to which resource, so that no two share one.
#[derive(Default)]
struct Places {
    /// By relative path a hash of the URI: lists may be long.
    owners: HashMap<Box<str>, u64>,
}

impl Places {
    /// The file of a resource; `None` for one that was placed already.
    fn place(
        &mut self,
        listed: &Listed,
        target: &Target,
        options: &SyncOptions,
    ) -> Result<Option<String>, ResourceError> {
        let url = listed.url.as_ref().map_err(|error| PathError::Uri(*error))?;
        if options.authority == Authority::SameOrigin && url.origin() != listed.home {
            return Err(ResourceError::OtherOrigin { list: listed.home.ascii_serialization() });
        }
        let relative = path::relative_path(&listed.entry.loc, url, &target.base)?;
        let mut hasher = DefaultHasher::new();
        url.hash(&mut hasher);
        let owner = hasher.finish();
        match self.owners.get(relative.as_str()) {
            Some(known) if *known == owner => Ok(None),
            Some(_) => Err(PathError::Collision(relative).into()),
            None => {
                self.owners.insert(relative.as_str().into(), owner);
                Ok(Some(relative))
            }
        }
    }

    fn into_paths(self) -> HashSet<Box<str>> {
        self.owners.into_keys().collect()
    }
}

/// Makes the renames durable; once per folder is enough.
fn sync_folders(folders: &HashSet<PathBuf>) -> std::io::Result<()> {
    for folder in folders {
        match std::fs::File::open(folder) {
            Ok(folder) => folder.sync_all()?,
            // Gone since then.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
