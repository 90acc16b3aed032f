//! A folder with a collection and a site, the binary, a hub that keeps what it hears, and a client that speaks bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use resync_core::{document::Document, xml};

pub(crate) const BASE: &str = "http://source.example/data";

pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// A collection of two files.
    pub(crate) fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(place.collection()).unwrap();
        place.put("a.txt", "alpha");
        place.put("sub/b c.xml", "<b/>");
        place
    }

    /// What holds the collection, the site and the configuration.
    pub(crate) fn whole(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn collection(&self) -> PathBuf {
        self.folder.path().join("collection")
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.folder.path().join("site")
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.collection().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.collection().join(name)).unwrap();
    }

    pub(crate) fn build(&self, more: &[&str]) -> Run {
        self.build_at(BASE, more)
    }

    pub(crate) fn build_at(&self, base: &str, more: &[&str]) -> Run {
        let (collection, out) = (self.collection(), self.out());
        let mut arguments = vec!["build", text(&collection), "--base-url", base, "--out", text(&out)];
        arguments.extend(more);
        run(&arguments)
    }

    pub(crate) fn notify(&self) -> Run {
        run(&["notify", "--out", text(&self.out())])
    }

    pub(crate) fn document(&self, path: &str) -> Document {
        document_in(&self.out(), path)
    }

    /// Bytes of every document.
    pub(crate) fn documents(&self) -> BTreeMap<String, Vec<u8>> {
        let paths = [
            ".well-known/resourcesync",
            "resync/capabilitylist.xml",
            "resync/resourcelist.xml",
            "resync/changelist.xml",
            "resync/changelist-1.xml",
        ];
        paths.map(|path| (path.to_owned(), fs::read(self.out().join(path)).unwrap())).into()
    }
}

/// A document of a site.
pub(crate) fn document_in(out: &Path, path: &str) -> Document {
    xml::read(&fs::read(out.join(path)).unwrap()).unwrap().into_document().unwrap()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The binary with nothing of the caller's environment that could steer it.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_resync-source"));
    for (name, _) in std::env::vars()
        .filter(|(name, _)| name.to_lowercase().contains("proxy") || name.starts_with("RESYNC_"))
    {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs it to its end; then a judge from outside sees every document of the site.
pub(crate) fn run(arguments: &[&str]) -> Run {
    let run = program(arguments).output().unwrap().into();
    judge_site(arguments);
    run
}

/// A judge from outside sees what this command may have written into its site.
pub(crate) fn judge_site(arguments: &[&str]) {
    let after = |flag| arguments.iter().skip_while(|one| **one != flag).nth(1).map(Path::new);
    let out = after("--out").map(Path::to_owned);
    let out = out.or_else(|| Some(after("--config")?.with_file_name("site")));
    let writes = ["build", "publish", "dump", "notify", "watch"].contains(&arguments[0]);
    if let Some(out) = out.filter(|out| writes && out.is_dir()) {
        // A collection may lie in the same folder.
        let is_document =
            |(name, _): &(String, _)| name.contains("resync/") || name.starts_with(".well-known/");
        let documents = resync_judge::documents_below(&out).into_iter().filter(is_document);
        resync_judge::written("site", documents);
    }
}

/// A judge from outside sees all that readers come to who begin at the Source Description, but what is among `judged`. A run that has died
/// may leave other files, to which nothing leads. Whether something is missing is for `check` to say.
pub(crate) fn judge_linked(out: &Path, judged: &mut BTreeSet<Vec<u8>>) {
    let documents: BTreeMap<_, _> = resync_judge::documents_below(out).into_iter().collect();
    let (mut linked, mut names) = (BTreeSet::new(), vec![".well-known/resourcesync".to_owned()]);
    while let Some(name) = names.pop() {
        if let Some(document) = documents.get(&name)
            && linked.insert(name)
        {
            names.extend(links_in(document));
        }
    }
    assert!(linked.contains("resync/resourcelist.xml"), "the Source Description leads to {linked:?} only");
    let new = linked.iter().map(|name| (name, &documents[name]));
    resync_judge::written("left", new.filter(|(_, document)| judged.insert((*document).clone())));
}

/// What a document names below the base URL.
fn links_in(document: &[u8]) -> Vec<String> {
    let (text, base) = (String::from_utf8_lossy(document), format!("{BASE}/"));
    let named = text.split(base.as_str()).skip(1);
    named.map(|rest| rest.split(['<', '"']).next().unwrap_or_default().to_owned()).collect()
}

pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (status, out, err) = (output.status, text(output.stdout), text(output.stderr));
        Self { code: status.code().unwrap_or_else(|| panic!("{status}: {err}")), out, err }
    }
}

impl Run {
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    pub(crate) fn failed_with(self, code: i32, words: &str) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        assert!(self.err.contains(words), "`{words}` is not in: {}", self.err);
        self
    }
}

/// A request as it came over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Heard {
    pub(crate) fn is_of_changes(&self) -> bool {
        self.headers["link"].contains("resync/changes/>; rel=\"self\"")
    }

    /// A judge from outside sees what was sent.
    fn judge(&self) {
        if self.line.starts_with("POST") {
            resync_judge::written("sent", [("notification", &self.body)]);
        }
    }
}

/// A hub that keeps every request and gives the answer it is told to give.
pub(crate) struct Hub {
    pub(crate) address: SocketAddr,
    heard: Receiver<Heard>,
    answer: Arc<Mutex<&'static str>>,
}

pub(crate) const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Come back in an hour.
pub(crate) const BUSY: &str =
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 3600\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

impl Hub {
    pub(crate) fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub(crate) fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let (hears, heard) = channel();
        let answer = Arc::new(Mutex::new(ACCEPTED));
        let given = Arc::clone(&answer);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = read_request(&stream);
                let reply = *given.lock().unwrap();
                if hears.send(request).is_err() {
                    return;
                }
                stream.write_all(reply.as_bytes()).ok();
            }
        });
        Self { address, heard, answer }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/websub/", self.address)
    }

    pub(crate) fn answers(&self, answer: &'static str) {
        *self.answer.lock().unwrap() = answer;
    }

    /// The next Framework Notification.
    pub(crate) fn next(&self) -> Heard {
        loop {
            let heard = self.next_of_any();
            if !heard.is_of_changes() {
                return heard;
            }
        }
    }

    pub(crate) fn next_of_any(&self) -> Heard {
        let heard = self.heard.recv_timeout(Duration::from_secs(20)).expect("the hub hears something");
        heard.judge();
        heard
    }

    /// All that it has heard and was not asked for. For use after the senders have ended: what they sent has been heard by then.
    pub(crate) fn all_heard(&self) -> Vec<Heard> {
        let all: Vec<_> = self.heard.try_iter().collect();
        all.iter().for_each(Heard::judge);
        all
    }

    /// For use after the sender has ended: what it sent is heard before what is sent now.
    pub(crate) fn heard_nothing_more(&self) {
        const LAST: &str = "GET /last HTTP/1.1";
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(format!("{LAST}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(self.next_of_any().line, LAST);
    }
}

pub(crate) fn read_request(stream: &TcpStream) -> Heard {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let headers = read_headers(&mut reader);
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Heard { line: line.trim_end().to_owned(), headers, body: String::from_utf8(body).unwrap() }
}

fn read_headers(reader: &mut impl BufRead) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.split_once(':') else { return headers };
        let value = value.trim().to_owned();
        let twice = headers.insert(name.to_lowercase(), value);
        assert_eq!(twice, None, "header {name} is given once");
    }
}

/// A running `resync-source serve`; it is killed when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(place: &Place) -> Self {
        Self::start_at(place, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(crate) fn start_at(place: &Place, address: SocketAddr) -> Self {
        let out = place.out();
        let mut child = program(&["serve", "--out", text(&out), "--listen", &address.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(['/', ',']).nth(2).unwrap().parse().unwrap();
        Self { child, address }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// One request over its own connection; `headers` are whole lines.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: source.example\r\nConnection: close\r\n{headers}\r\n"
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let headers = read_headers(&mut reader);
        let mut body = Vec::new();
        reader.read_to_end(&mut body).unwrap();
        Answer { status: line.split(' ').nth(1).unwrap().parse().unwrap(), headers, body }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}
