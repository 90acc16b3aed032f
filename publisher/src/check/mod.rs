//! Checks a document, a folder or a whole site against the rules of core (IN-001 to IN-003).
//!
//! A URL is fetched, and everything that it links to. The folder of a site is checked from its Source Description on, as readers
//! find it: each URL stands for a file, and packages are unpacked. Other documents there are checked by themselves. A file is
//! checked alone.
//!
//! ```
//! use resync_publisher::check::{Options, Target, check};
//!
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let place = tempfile::tempdir()?;
//! let file = place.path().join("list.xml");
//! std::fs::write(&file, r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>"#)?;
//!
//! let findings = check(&[Target::Path(file)], &Options::default(), |_| {}).await?;
//! assert!(!findings.conforming);
//! assert_eq!(findings.documents[0].violations[0].code, "RS-010");
//! # Ok(()) })
//! # .map_err(|error: Box<dyn std::error::Error>| error)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod findings;
mod folder;
mod misplaced;
mod web;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    time::Duration,
};

use folder::Wanted;
use misplaced::Misplaced;
use resync_core::lint::{
    Check, Fetch, FetchFailure, Fetched, MAX_DOCUMENTS, MAX_REQUESTS, Method, PackageBytes, Report,
    TopicAnswer, VersionAnswer,
};
use tokio::runtime::Handle;
use url::Url;

use crate::{
    error::{Action, Error},
    helpers::files,
    publish,
    settings::{BaseUrl, UrlError, parse_http},
    site::SOURCE_DESCRIPTION_PATH,
    state::State,
    versions::Store,
};

pub use findings::{DocumentFindings, Finding, Findings, Page};

/// What is to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The document at a URL and everything that it links to.
    Url(Url),
    /// A file, or the documents of a folder.
    Path(PathBuf),
}

impl Target {
    /// A URL if it looks like one (`scheme://`), else a path.
    pub fn parse(text: &OsStr) -> Result<Self, UrlError> {
        match text.to_str() {
            Some(url) if url.contains("://") => parse_http(url).map(Self::Url),
            _ => Ok(Self::Path(text.into())),
        }
    }
}

/// How long a check of a URL may take, unless [`Options::deadline`] says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// How many bytes of packages a check of a URL fetches, unless [`Options::packages`] says otherwise.
pub const PACKAGE_BYTES: u64 = 1 << 30;

/// The options of a check.
#[derive(Clone, Debug)]
pub struct Options {
    /// The URL under which a folder is published; by default that of the state, or else of its documents.
    pub base_url: Option<BaseUrl>,
    /// How long the check of a URL may take. Then it ends early.
    pub deadline: Duration,
    /// How many requests a check may make. Then it ends early.
    pub requests: usize,
    /// Maximum number of documents of a check; links to more are not followed.
    pub documents: usize,
    /// How many bytes of packages the check of a URL may fetch; further packages are not examined. With 0 none is, and the check
    /// counts as complete all the same.
    pub packages: u64,
}

impl Default for Options {
    /// [`DEADLINE`], [`MAX_REQUESTS`], [`MAX_DOCUMENTS`] and [`PACKAGE_BYTES`].
    fn default() -> Self {
        Self {
            base_url: None,
            deadline: DEADLINE,
            requests: MAX_REQUESTS,
            documents: MAX_DOCUMENTS,
            packages: PACKAGE_BYTES,
        }
    }
}

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The URL or path of a document, package or topic.
    pub url: &'a str,
    /// How many documents have been requested, this one included,
    pub documents: usize,
    /// and how many are known. Documents link to more, so this can grow.
    pub known: usize,
}

/// Checks targets. Several files are checked in the given order, in which Change Notifications must follow each other (CN-008).
/// `progress` is called at each request. Within a tokio runtime only.
pub async fn check(
    targets: &[Target],
    options: &Options,
    progress: impl FnMut(Progress<'_>) + Send + 'static,
) -> Result<Findings, Error> {
    let (targets, options, limits) = (targets.to_owned(), options.clone(), options.clone());
    let runtime = tokio::runtime::Handle::current();
    let run = Run { options, runtime, progress, documents: 0, pages: Vec::new(), damaged: Vec::new() };
    let working = tokio::task::spawn_blocking(move || run.all(&targets)).await;
    working
        .unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
        .map(|(report, pages, damaged)| Findings::new(report, pages, damaged, &limits))
}

struct Run<P> {
    options: Options,
    runtime: Handle,
    progress: P,
    /// How many have been requested.
    documents: usize,
    pages: Vec<Page>,
    /// The files of damaged versions.
    damaged: Vec<String>,
}

impl<P: FnMut(Progress<'_>)> Run<P> {
    fn all(mut self, targets: &[Target]) -> Result<(Report, Vec<Page>, Vec<String>), Error> {
        let mut whole = Report::default();
        let mut files = Vec::new();
        for target in targets {
            let report = match target {
                Target::Url(url) => self.web(url)?,
                Target::Path(path) if path.is_dir() => {
                    self.damaged.extend(damaged_versions(path)?);
                    self.folder(path)?
                }
                Target::Path(path) => {
                    file::probe(path)?;
                    files.push(path.clone());
                    continue;
                }
            };
            join(&mut whole, report);
        }
        let alone = self.alone(&files, self.check().in_order());
        join(&mut whole, alone);
        Ok((whole, self.pages, self.damaged))
    }

    fn check(&self) -> Check {
        Check::default().requests(self.options.requests).documents(self.options.documents)
    }

    fn web(&mut self, url: &Url) -> Result<Report, Error> {
        let mut web = web::Web::new(self.runtime.clone(), self.options.deadline, self.options.packages)?;
        let mut site = Misplaced::new(&mut web);
        let start = match site.description_instead_of(url) {
            Some(description) => {
                let (url, source_description) = (url.to_string(), description.to_string());
                self.pages.push(Page { url, source_description });
                description
            }
            None => url.clone(),
        };
        Ok(self.check().run(&mut self.reporting(&mut site), start.as_str()))
    }

    fn folder(&mut self, path: &Path) -> Result<Report, Error> {
        let source_description = path.join(SOURCE_DESCRIPTION_PATH);
        let base_url = match self.options.base_url.clone() {
            Some(base_url) => Some(base_url),
            None => match State::load_if_built(path) {
                // The documents can be checked all the same.
                Err(Error::Damaged { .. }) if source_description.is_file() => None,
                state => state?.map(|state| state.settings.base_url),
            },
        };
        if source_description.is_file() {
            let base_url = base_url.map_or_else(|| folder::base_url(path, &source_description), Ok)?;
            let start = base_url.join(Path::new(SOURCE_DESCRIPTION_PATH));
            let others = urls(path, &base_url, &folder::documents(path, Wanted::Own)?);
            let others = others.iter().map(String::as_str);
            let mut folder = folder::Folder::new(path, base_url);
            let check = self.check();
            let check = if publish::is_under_way(path) { check.under_way() } else { check };
            let mut folder = Misplaced::new(&mut folder);
            return Ok(check.run_all(&mut self.reporting(&mut folder), [start.as_str()], others));
        }
        let files = folder::documents(path, Wanted::All)?;
        if files.is_empty() {
            return Err(Error::NothingToCheck { folder: path.to_owned() });
        }
        let Some(base_url) = base_url else { return Ok(self.alone(&files, self.check())) };
        let starts = urls(path, &base_url, &files);
        let mut folder = folder::Folder::new(path, base_url);
        Ok(self.check().run_all(&mut self.reporting(&mut folder), starts.iter().map(String::as_str), []))
    }

    /// Documents whose URLs are unknown: their links are not followed.
    fn alone(&mut self, files: &[PathBuf], check: Check) -> Report {
        let paths: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
        check.run_all(&mut self.reporting(&mut file::Paths), [], paths.iter().map(AsRef::as_ref))
    }

    fn reporting<'a, F>(&'a mut self, fetch: &'a mut F) -> Reporting<'a, F, P> {
        Reporting { fetch, progress: &mut self.progress, documents: &mut self.documents, ahead: 0 }
    }
}

/// The files of damaged versions of the site in a folder, and of its sets.
fn damaged_versions(folder: &Path) -> Result<Vec<String>, Error> {
    let sets = files::folders_in(folder).unwrap_or_default();
    let mut damaged = Vec::new();
    let stores = std::iter::once(folder.to_owned()).chain(sets).map(|out| Store::of(&out));
    for store in stores.filter(|store| store.folder().is_dir()) {
        let found = store.damaged().map_err(Error::cannot(Action::Read, store.folder()))?;
        damaged.extend(found.iter().map(|path| path.display().to_string()));
    }
    Ok(damaged)
}

fn urls(root: &Path, base_url: &BaseUrl, files: &[PathBuf]) -> Vec<String> {
    files.iter().filter_map(|file| file.strip_prefix(root).ok()).map(|file| base_url.join(file)).collect()
}

fn join(whole: &mut Report, part: Report) {
    whole.documents.extend(part.documents);
    whole.omitted += part.omitted;
    whole.packages_skipped += part.packages_skipped;
    whole.topics_skipped += part.topics_skipped;
    whole.versions_skipped += part.versions_skipped;
    whole.links_unfollowed += part.links_unfollowed;
    whole.indexes_late += part.indexes_late;
    whole.stopped = whole.stopped.take().or(part.stopped);
}

/// Reports each request.
struct Reporting<'a, F, P> {
    fetch: &'a mut F,
    progress: &'a mut P,
    documents: &'a mut usize,
    /// Documents that are known and have not been requested.
    ahead: usize,
}

impl<F, P: FnMut(Progress<'_>)> Reporting<'_, F, P> {
    fn report(&mut self, url: &str) {
        let documents = *self.documents;
        (self.progress)(Progress { url, documents, known: documents + self.ahead });
    }
}

impl<F: Fetch, P: FnMut(Progress<'_>)> Fetch for Reporting<'_, F, P> {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        *self.documents += 1;
        self.report(url);
        self.fetch.get(url)
    }

    fn package(&mut self, url: &str) -> Result<Option<Box<dyn PackageBytes>>, FetchFailure> {
        self.report(url);
        self.fetch.package(url)
    }

    fn ahead(&mut self, documents: usize) {
        self.ahead = documents.saturating_sub(1);
    }

    fn end(&mut self) -> Option<FetchFailure> {
        self.fetch.end()
    }

    fn topic(&mut self, url: &str, method: Method) -> Result<Option<TopicAnswer>, FetchFailure> {
        self.report(url);
        self.fetch.topic(url, method)
    }

    fn version(&mut self, url: &str, method: Method) -> Result<Option<VersionAnswer>, FetchFailure> {
        self.report(url);
        self.fetch.version(url, method)
    }
}
