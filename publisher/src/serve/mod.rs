//! Serves a site: the collection's files, the documents, and the topic URIs with their `Link` headers (FN-031, FN-032).
//!
//! The state is read again whenever it changes, so builds and notifications show at once.

mod gzip;

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State as Shared},
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
        LAST_MODIFIED, LINK, RANGE,
    },
};
use resync_common::server::{self, Limits};
use resync_core::{
    build::{Folder, LocateError, Stamp},
    document::Capability,
    websub::XML_CONTENT_TYPE,
    websub::link_header::LinkHeader,
};
use tower_http::services::ServeFile;

use crate::{
    error::Error,
    helpers::url_path,
    inventory::{PATCH_FOLDER, PATCH_TYPE, collection},
    settings::HubUrl,
    site::{CHANGES_PATH, DOCUMENT_FOLDER, SOURCE_DESCRIPTION_PATH, Site, TOPIC_PATH},
    state::{self, State},
};

/// How long open requests may take after the server was asked to stop.
pub const DRAIN: Duration = Duration::from_secs(10);

/// Connections at once. One more closes another: of the client that has most, first one without a request.
pub const CONNECTIONS: usize = 1_024;

/// How long the header of a request may take to arrive. A connection without a request is closed after the same time.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may accept no byte of its answer before its connection is closed.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// A younger file may be modified again within the second of its `Last-Modified`.
const YOUNG: Duration = Duration::from_secs(2);

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
        Some(error) if sets.iter().all(|set| set.view().is_none()) => Err(error),
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
        write_time: WRITE_TIMEOUT,
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
    stamp: Option<Stamp>,
    /// `None` until the state could be read once.
    view: Option<Arc<View>>,
}

/// The site as of one version of its state.
struct View {
    /// Paths of the URLs that the resources, the documents and the Source Description have.
    base: PathBuf,
    documents_base: PathBuf,
    described_at: PathBuf,
    description: PathBuf,
    documents: HashSet<PathBuf>,
    collection: Folder,
    topics: Vec<Topic>,
    resource_links: Option<HeaderValue>,
    source_description: String,
}

/// A channel, as readers of its topic URI see it.
#[derive(Clone)]
struct Topic {
    path: &'static str,
    links: HeaderValue,
    /// The most recent notification, if there was one.
    notification: Option<PathBuf>,
}

/// What a path stands for.
enum Target {
    Topic(Topic),
    Document(PathBuf),
    Patch(PathBuf),
    Resource(PathBuf, Option<HeaderValue>),
    /// Something may be there, but cannot be read.
    Unknown(io::Error),
    Nothing,
}

impl Server {
    fn open(out: PathBuf) -> (Self, Option<Error>) {
        let stamp = state_stamp(&out);
        let (view, error) = match View::of(&out) {
            Ok(view) => (Some(Arc::new(view)), None),
            Err(error) => (None, Some(error)),
        };
        (Self { current: Mutex::new(Current { stamp, view }), out }, error)
    }

    /// The newest view; while the state cannot be read, the last one that could.
    fn view(&self) -> Option<Arc<View>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = state_stamp(&self.out);
        if stamp != current.stamp {
            current.stamp = stamp;
            match View::of(&self.out) {
                Ok(view) => current.view = Some(Arc::new(view)),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the changed state of the site; serving with the previous one");
                }
            }
        }
        current.view.clone()
    }
}

/// Looks the path of a request up in each set, on disk if necessary; also returns the URL of the Source Description.
fn resolve(sets: &[Server], path: &str) -> (Target, String) {
    let (mut target, mut start) = (Target::Nothing, String::new());
    let path = url_path::decode(path);
    let mut unread = false;
    for set in sets {
        let Some(view) = set.view() else {
            unread = true;
            continue;
        };
        if let (Target::Nothing, Some((path, is_folder))) = (&target, &path) {
            target = view.find(&set.out, path, *is_folder);
        }
        start.clone_from(&view.source_description);
    }
    if unread && matches!(target, Target::Nothing) {
        target = Target::Unknown(io::Error::other("the state of a set cannot be read"));
    }
    (target, start)
}

impl View {
    fn of(out: &Path) -> Result<Self, Error> {
        let state = State::load(out)?;
        let collection = collection::open(&state.settings, out)?;
        let site = Site::of(&state.settings);
        let root = state.settings.root.as_ref().map_or(&state.settings.base_url, |root| &root.base_url);
        let capability_list = state.document(&Capability::CapabilityList);
        let resource_links = capability_list
            .map(|list| header(&LinkHeader::default().push(&list.url, "resourcesync")))
            .transpose()?;
        Ok(Self {
            base: state.settings.base_url.folder().to_owned(),
            documents_base: site.base().folder().to_owned(),
            described_at: root.folder().join(SOURCE_DESCRIPTION_PATH),
            description: out.join(site.source_description().path),
            documents: state.documents.iter().map(|record| PathBuf::from(&record.path)).collect(),
            collection,
            topics: topics(out, &state, &site)?,
            resource_links,
            source_description: site.source_description().url,
        })
    }

    fn find(&self, out: &Path, path: &Path, is_folder: bool) -> Target {
        let wanted = path.strip_prefix(&self.documents_base).ok();
        if is_folder {
            let is_topic = |topic: &&Topic| wanted == Some(Path::new(topic.path));
            return self.topics.iter().find(is_topic).cloned().map_or(Target::Nothing, Target::Topic);
        }
        if path == self.described_at || path == Path::new(SOURCE_DESCRIPTION_PATH) {
            return Target::Document(self.description.clone());
        }
        let is_patch =
            |wanted: &&Path| wanted.parent() == Some(Path::new(PATCH_FOLDER)) && out.join(wanted).is_file();
        if let Some(wanted) = wanted.filter(is_patch) {
            return Target::Patch(out.join(wanted));
        }
        let is_document = |wanted: &&Path| self.documents.contains(*wanted) || was_document(out, wanted);
        if let Some(wanted) = wanted.filter(is_document) {
            return Target::Document(out.join(wanted));
        }
        let Ok(path) = path.strip_prefix(&self.base) else { return Target::Nothing };
        match self.collection.locate(path) {
            Ok(file) if file.is_file() => Target::Resource(file, self.resource_links.clone()),
            Err(LocateError::Unknown(error)) => Target::Unknown(error),
            _ => Target::Nothing,
        }
    }
}

/// The channels of a site with a hub.
fn topics(out: &Path, state: &State, site: &Site) -> Result<Vec<Topic>, Error> {
    if state.settings.hubs.is_empty() {
        return Ok(Vec::new());
    }
    let framework = (TOPIC_PATH, site.topic(), &state.notified_on, state::notification_path(out));
    let changes =
        (CHANGES_PATH, site.change_topic(), &state.changes_on, state::change_notification_path(out));
    let topic = |(path, url, notified_on, file): (&'static str, String, &Option<String>, PathBuf)| {
        let hubs = state.settings.hubs.iter().map(HubUrl::as_str);
        let links = hubs.fold(LinkHeader::default().push(&url, "self"), |links, hub| links.push(hub, "hub"));
        let notification = (notified_on.as_ref() == Some(&url)).then_some(file);
        Ok(Topic { path, links: header(&links)?, notification })
    };
    [framework, changes].into_iter().map(topic).collect()
}

/// Whether it is a document that an index lists, or listed a moment ago, and that stays for present readers.
fn was_document(out: &Path, wanted: &Path) -> bool {
    let name = wanted.file_name().unwrap_or_default().as_encoded_bytes();
    let stems = [&b"resourcelist-"[..], b"changelist-", b"resourcedump-", b"changedump-"];
    let is_list = stems.iter().any(|stem| name.starts_with(stem))
        && [&b".xml"[..], b".zip"].iter().any(|end| name.ends_with(end));
    is_list && wanted.parent() == Some(Path::new(DOCUMENT_FOLDER)) && out.join(wanted).is_file()
}

fn state_stamp(out: &Path) -> Option<Stamp> {
    Stamp::of(&fs::metadata(state::path(out)).ok()?).ok()
}

fn header(links: &LinkHeader) -> Result<HeaderValue, Error> {
    let text = links.to_string();
    HeaderValue::from_str(&text).map_err(|_| Error::Link(text))
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
    let path = request.uri().path().to_owned();
    let Ok((target, start)) = tokio::task::spawn_blocking(move || resolve(&sets, &path)).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    match target {
        Target::Topic(topic) => answer_for(topic).await,
        Target::Document(path) if path.extension().is_some_and(|extension| extension == "zip") => {
            file(request, &path).await
        }
        Target::Document(path) => {
            let takes_gzip = gzip::is_taken(request.headers());
            let mut response = file(request, &path).await;
            as_document(response.headers_mut());
            gzip::offer(response, takes_gzip)
        }
        Target::Patch(path) => {
            let mut response = file(request, &path).await;
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PATCH_TYPE));
            response
        }
        // As it is, since its length and encoding stand in the lists (RS-036, RS-037).
        Target::Resource(path, links) => {
            let mut response = file(request, &path).await;
            if let Some(links) = links {
                response.headers_mut().insert(LINK, links);
            }
            response
        }
        Target::Unknown(error) => unreadable(&error, "cannot find out what a URL stands for"),
        Target::Nothing => nothing(&start),
    }
}

fn nothing(start: &str) -> Response {
    let text = format!("nothing is published here; the Source Description is {start}\n");
    (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

/// The most recent notification, or nothing with a length of 0; in either case the links of the channel.
async fn answer_for(topic: Topic) -> Response {
    let read = match topic.notification {
        Some(path) => tokio::fs::read(path).await,
        None => Ok(Vec::new()),
    };
    let body = match read {
        Ok(body) => body,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
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

/// A file, streamed; with `ETag`, so that `If-None-Match` and `If-Range` work to the nanosecond. Times of a second distinguish two versions only if the
/// older one was not young when it was requested (RFC 9110, section 8.8.2.2).
async fn file(mut request: Request, path: &Path) -> Response {
    let tagged = tokio::fs::metadata(path)
        .await
        .and_then(|metadata| Ok((entity_tag(&metadata)?, is_young(metadata.modified()?, SystemTime::now()))));
    let (tag, is_young) = match tagged {
        Ok(tagged) => tagged,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return StatusCode::NOT_FOUND.into_response();
        }
        Err(error) => return unreadable(&error, "cannot read a file"),
    };
    let headers = request.headers_mut();
    if headers.contains_key(IF_NONE_MATCH) {
        if matches(headers, &tag) {
            return (StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response();
        }
        headers.remove(IF_MODIFIED_SINCE);
    }
    if is_young {
        headers.remove(IF_MODIFIED_SINCE);
    }
    if headers.get(IF_RANGE).is_some_and(|version| version != tag) {
        headers.remove(RANGE);
    }
    match ServeFile::new(path).try_call(request).await {
        Ok(response) => {
            let mut response = response.map(Body::new);
            response.headers_mut().insert(ETAG, tag);
            if is_young {
                response.headers_mut().remove(LAST_MODIFIED);
            }
            response
        }
        Err(error) => unreadable(&error, "cannot read a file"),
    }
}

/// It may exist, so this is no 404, after which a Destination might delete its copy.
fn unreadable(error: &io::Error, what: &str) -> Response {
    tracing::error!(%error, "{what}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

fn is_young(modified: SystemTime, now: SystemTime) -> bool {
    now.duration_since(modified).map_or(true, |age| age < YOUNG)
}

fn entity_tag(metadata: &fs::Metadata) -> io::Result<HeaderValue> {
    let modified = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let tag = format!("\"{:x}-{:x}\"", modified.as_nanos(), metadata.len());
    HeaderValue::from_str(&tag).map_err(io::Error::other)
}

fn matches(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let listed = headers
        .get_all(IF_NONE_MATCH)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    let mut tags = listed.map(<[u8]>::trim_ascii).map(|one| one.strip_prefix(b"W/").unwrap_or(one));
    tags.any(|one| one == b"*" || one == tag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_tag_is_found_in_a_list_and_by_a_star() {
        let tag = HeaderValue::from_static("\"a-1\"");
        let asks = |value: &'static str| {
            matches(&HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static(value))]), &tag)
        };
        assert!(asks("\"b-1\", W/\"a-1\"") && asks("*"));
        assert!(!asks("\"a-2\"") && !asks(""));
    }

    #[test]
    fn a_file_is_young_for_two_seconds_and_while_its_time_is_to_come() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let is_young = |age: i64| {
            let by = Duration::from_millis(age.unsigned_abs());
            is_young(if age < 0 { now + by } else { now - by }, now)
        };
        assert!(is_young(0) && is_young(1_999) && is_young(-1));
        assert!(!is_young(2_000));
    }
}
