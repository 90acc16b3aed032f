//! Serves a site: the collection's files, the documents, the topic URIs with their `Link` headers (FN-031, FN-032), and
//! the versions that are kept (MEM-020).
//!
//! The state is read again whenever it changes, so builds and notifications show at once.

mod conditions;
mod file;
mod gzip;
mod memento;
mod opened;
mod range;
mod time_map;
mod view;

use std::{
    fs,
    io::{self, ErrorKind, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State as Shared},
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, LINK},
    uri::PathAndQuery,
};
use resync_common::locks::lock;
use resync_common::pace::Pace;
use resync_common::server::{self, Limits};
use resync_core::{build::Stamp, websub::XML_CONTENT_TYPE};

use self::{
    file::{file, unreadable},
    opened::Opened,
    view::{Target, Topic, View},
};
use crate::{error::Error, helpers::url_path, inventory::PATCH_TYPE, state};

/// How long open requests may take after the server was asked to stop.
pub const DRAIN: Duration = Duration::from_secs(10);

/// Connections at once. One more closes another: of the client that has most, first one without a request. Each takes a file descriptor,
/// and another one while it is sent a file.
pub const CONNECTIONS: usize = 1_024;

/// How long the header of a request may take to arrive. A connection without a request is closed after the same time.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may read nothing of its answer, in all, before its connection is closed; what it reads earns the time back at
/// [`WRITE_RATE`].
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// The least rate at which a client reads its answer for as long as it likes, in bytes a second, as far as
/// [`Paced`](resync_common::pace::Paced) sees it.
pub const WRITE_RATE: u64 = 4 * 1024;

/// The largest header of a request, in bytes.
pub const HEADER_LIMIT: usize = 16 * 1024;

/// A router for the site in `out`, each of the sets that it has now, to be served at the host of its base URL or mounted in a larger server at its root.
///
/// If a set cannot be served, the others are: what may belong to it gets a 500 until it can be. An error if none can be.
pub fn router(out: impl Into<PathBuf>) -> Result<Router, Error> {
    let out = out.into();
    let mut outs = state::set_folders(&out)?;
    if outs.is_empty() {
        outs.push(out);
    }
    let (mut sets, mut failed) = (Vec::new(), None);
    for out in outs {
        let (set, error) = Server::open(out);
        sets.push(set);
        failed = failed.or(error);
    }
    match failed {
        Some(error) if !sets.iter().any(|set| matches!(set.known(), Known::View(_))) => Err(error),
        _ => Ok(Router::new().fallback(answer).with_state(sets.into())),
    }
}

/// Serves the site in `out` until `shutdown` is ready and open requests are answered, at most [`DRAIN`] longer.
///
/// ```
/// use resync_publisher::{BaseUrl, Settings, build, serve::serve};
/// use tokio::net::TcpListener;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let place = tempfile::tempdir()?;
/// let (collection, out) = (place.path().join("collection"), place.path().join("site"));
/// std::fs::create_dir(&collection)?;
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let base = BaseUrl::parse(&format!("http://{}/", listener.local_addr()?))?;
/// build(&Settings::new(collection, base), &out)?;
///
/// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
/// let serving = tokio::spawn(serve(listener, out, async { drop(stopped.await) }));
/// stop.send(()).ok();
/// serving.await??;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn serve(
    listener: tokio::net::TcpListener,
    out: impl Into<PathBuf>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let limits = Limits {
        connections: CONNECTIONS,
        header_time: HEADER_TIMEOUT,
        idle_time: HEADER_TIMEOUT,
        header_size: HEADER_LIMIT,
        reading: Pace { patience: WRITE_TIMEOUT, bytes_per_second: WRITE_RATE },
        drain: DRAIN,
    };
    server::Server::new(listener, limits).run_until(router(out)?, shutdown).await;
    Ok(())
}

struct Server {
    out: PathBuf,
    current: Mutex<Current>,
}

/// What is served now.
struct Current {
    /// The state file as it was read.
    state: StateFile,
    known: Known,
}

/// What is on disk of the state of a set.
#[derive(PartialEq)]
enum StateFile {
    There(Stamp),
    /// It may be there. Somebody may also have moved it away until the next build.
    Unknown,
    /// The set was removed, or never built.
    Removed,
}

/// What is known of a set.
#[derive(Clone)]
enum Known {
    View(Arc<View>),
    /// There is no such set any more.
    Nothing,
    /// Its state could not be read yet.
    Unread,
}

impl Server {
    fn open(out: PathBuf) -> (Self, Option<Error>) {
        let state = StateFile::find(&out);
        let (known, error) = match View::of(&out) {
            Ok(view) => (Known::View(Arc::new(view)), None),
            Err(error) => (Known::Unread, Some(error)),
        };
        (Self { current: Mutex::new(Current { state, known }), out }, error)
    }

    /// The newest view; while the state cannot be read, the last one that could.
    fn known(&self) -> Known {
        let mut current = lock(&self.current);
        let state = StateFile::find(&self.out);
        if state != current.state {
            match View::of(&self.out) {
                Ok(view) => current.known = Known::View(Arc::new(view)),
                Err(_) if state == StateFile::Removed => current.known = Known::Nothing,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the changed state of the site; serving with the previous one");
                }
            }
            current.state = state;
        }
        current.known.clone()
    }
}

impl StateFile {
    fn find(out: &Path) -> Self {
        let stamp = fs::metadata(state::path(out)).and_then(|metadata| Stamp::of(&metadata));
        match stamp {
            Ok(stamp) => Self::There(stamp),
            Err(_) if matches!(out.join(state::FOLDER).try_exists(), Ok(false)) => Self::Removed,
            Err(_) => Self::Unknown,
        }
    }
}

/// Looks the path of a request, with its query, up in each set, on disk if necessary; also returns the URL of the Source Description.
fn resolve(sets: &[Server], wanted: &str) -> (Target, String) {
    let (mut target, mut start) = (Target::Nothing, String::new());
    let path = url_path::decode(wanted.split('?').next().unwrap_or_default());
    let mut unread = false;
    for set in sets {
        let view = match set.known() {
            Known::View(view) => view,
            Known::Nothing => continue,
            Known::Unread => {
                unread = true;
                continue;
            }
        };
        // What was in one set may be in another one now.
        if matches!(target, Target::Nothing | Target::Former(_)) {
            let found = view.version(wanted).or_else(|| {
                let (path, is_folder) = path.as_ref()?;
                Some(view.find(&set.out, path, *is_folder))
            });
            target = found.filter(|found| !matches!(found, Target::Nothing)).unwrap_or(target);
        }
        start.clone_from(&view.source_description);
    }
    if unread && matches!(target, Target::Nothing | Target::Former(_)) {
        target = Target::Unknown(io::Error::other("the state of a set cannot be read"));
    }
    (target, start)
}

async fn answer(Shared(sets): Shared<Arc<[Server]>>, request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return (
            StatusCode::METHOD_NOT_ALLOWED,
            [(ALLOW, "GET, HEAD")],
            "only GET and HEAD are answered here\n",
        )
            .into_response();
    }
    tracing::debug!(method = %request.method(), path = request.uri().path(), "request");
    // As it was sent: an original behind a prefix has slashes, escapes and a query of its own (MEM-020).
    let wanted = request.uri().path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
    let Ok((target, start)) = tokio::task::spawn_blocking(move || resolve(&sets, &wanted)).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    match target {
        Target::Topic(topic) => answer_for(topic).await,
        Target::Package(opened) => file(&request, opened),
        Target::Document(opened) => {
            let mut response = file(&request, opened);
            if !is_of_file(&response) {
                return response;
            }
            as_document(response.headers_mut());
            gzip::offer(response, gzip::is_taken(request.headers()))
        }
        Target::Patch(opened) => {
            let mut response = file(&request, opened);
            if is_of_file(&response) {
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PATCH_TYPE));
            }
            response
        }
        // As it is, since its length and encoding stand in the lists (RS-036, RS-037).
        Target::Resource(opened, links) => {
            let mut response = file(&request, opened);
            if let Some(links) = links {
                response.headers_mut().insert(LINK, links);
            }
            response
        }
        Target::Version(past, rest) => memento::answer(past, &rest, request).await,
        Target::Former(links) => {
            let mut response = nothing(&start);
            response.headers_mut().insert(LINK, links);
            response
        }
        Target::Unknown(error) => unreadable(&error, "cannot find out what a URL stands for"),
        Target::Nothing => nothing(&start),
    }
}

/// Whether an answer is a file, a part of it, or that the client has it. A refusal has no type and no form of the file.
fn is_of_file(response: &Response) -> bool {
    matches!(response.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED)
}

fn nothing(start: &str) -> Response {
    let text = format!("nothing is published here; the Source Description is {start}\n");
    (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

/// The most recent notification, or nothing with a length of 0; in either case the links of the channel.
async fn answer_for(topic: Topic) -> Response {
    let read = tokio::task::spawn_blocking(move || {
        let mut body = Vec::new();
        if let Some(path) = topic.notification {
            Opened::at(&path)?.file.read_to_end(&mut body)?;
        }
        Ok::<_, io::Error>(body)
    });
    let body = match read.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(body) => body,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return unreadable(&error, "cannot read the last notification"),
    };
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(Body::from(body));
    as_document(response.headers_mut());
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response.headers_mut().insert(LINK, topic.links);
    response
}

/// XML, which caches must revalidate: a notified Destination must get the new version.
fn as_document(headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(XML_CONTENT_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}
