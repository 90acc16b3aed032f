//! A document, a folder or a whole site checked against the rules of core (IN-001 to IN-003).
//!
//! A URL is fetched, and everything that it leads to. A folder that holds a site is checked as readers would find it: from its
//! Source Description on, each URL mapped onto the file that answers for it. A file is looked at alone.
//!
//! ```
//! use resync_publisher::check::{Target, check};
//!
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let place = tempfile::tempdir()?;
//! let file = place.path().join("list.xml");
//! std::fs::write(&file, r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>"#)?;
//!
//! let findings = check(&Target::Path(file), None).await?;
//! assert!(!findings.conforming);
//! assert_eq!(findings.documents[0].violations[0].code, "RS-010");
//! # Ok(()) })
//! # .map_err(|error: Box<dyn std::error::Error>| error)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod findings;
mod folder;
mod web;

use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};

use resync_core::lint::{self, Check, Report};
use url::Url;

use crate::{
    BaseUrl, UrlError,
    settings::parse_http,
    state::{State, StateError},
};

pub use findings::{DocumentFindings, Finding, Findings};

/// What is to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The document at a URL and everything that it leads to.
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

/// Why nothing was checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The operating system refused.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file cannot be a document.
    #[error("cannot check `{}`: {reason}", path.display())]
    NoDocument {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// No document in a folder.
    #[error("`{}` holds no ResourceSync document: name the folder of a site, or a file", folder.display())]
    Empty {
        /// The folder.
        folder: PathBuf,
    },
    /// Documents that nobody can say the URLs of.
    #[error(
        "cannot tell under which URL `{}` is published, since no entry of its Source Description is a file there: say it with --base-url",
        folder.display()
    )]
    NoBaseUrl {
        /// The folder.
        folder: PathBuf,
    },
    /// The state of the site cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The web client could not be made.
    #[error("cannot start a web client: {0}")]
    Client(String),
}

/// Checks a target. `base_url` says under which URL a folder is published; without it the state of the site tells, or else its
/// documents do. Within a tokio runtime only.
pub async fn check(target: &Target, base_url: Option<&BaseUrl>) -> Result<Findings, CheckError> {
    let report = match target {
        Target::Url(url) => from_web(url.clone()).await?,
        Target::Path(path) => {
            let (path, base_url) = (path.clone(), base_url.cloned());
            aside(move || on_disk(&path, base_url)).await?
        }
    };
    Ok(Findings::new(report))
}

async fn from_web(url: Url) -> Result<Report, CheckError> {
    let mut web = web::Web::new(tokio::runtime::Handle::current())?;
    Ok(aside(move || lint::check(&mut web, url.as_str())).await)
}

/// Reading and checking keep a core busy, so they run off the runtime, which stays free for signals.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let working = tokio::task::spawn_blocking(work).await;
    working.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}

fn on_disk(path: &Path, base_url: Option<BaseUrl>) -> Result<Report, CheckError> {
    let metadata =
        std::fs::metadata(path).map_err(|source| CheckError::Io { path: path.to_owned(), source })?;
    if !metadata.is_dir() {
        return alone(path);
    }
    let source_description = path.join(crate::site::SOURCE_DESCRIPTION_PATH);
    let stored = || State::load_if_built(path).map(|state| state.map(|state| state.settings.base_url));
    let base_url = match base_url {
        Some(base_url) => Some(base_url),
        None => stored()?,
    };
    if source_description.is_file() {
        let base_url = match base_url {
            Some(base_url) => base_url,
            None => folder::base_url(path, &source_description)?,
        };
        let start = base_url.join(Path::new(crate::site::SOURCE_DESCRIPTION_PATH));
        return Ok(lint::check(&mut folder::Folder::new(path, base_url), &start));
    }
    let files = folder::documents(path)?;
    match base_url {
        Some(base_url) => {
            let starts = files.iter().filter_map(|file| file.strip_prefix(path).ok());
            let starts: Vec<_> = starts.map(|file| base_url.join(file)).collect();
            let starts = starts.iter().map(String::as_str);
            Ok(Check::default().run_all(&mut folder::Folder::new(path, base_url), starts))
        }
        None => files.iter().try_fold(Report::default(), |mut all, file| {
            all.documents.extend(alone(file)?.documents);
            Ok(all)
        }),
    }
}

/// A document whose URL nobody knows: what it links to is not looked at.
fn alone(path: &Path) -> Result<Report, CheckError> {
    let mut only = file::Only::read(path)?;
    let report = Check::default().documents(1).run(&mut only, &path.display().to_string());
    Ok(Report { omitted: 0, ..report })
}
