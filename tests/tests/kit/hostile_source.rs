//! A hostile Source against the real program: every attack ends soon, with exit code 1 and a named error, in little memory,
//! and leaves the copy as it was, byte for byte.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use resync_harness::tree::differences;
use resync_harness::{PATIENCE, binary};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// What the process may have at once, in KiB: less than each of these attacks would fill.
const MOST: u64 = 48 * 1024;

const OK: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
const LIST: &str = "/resourcelist.xml";

/// How a path is answered: this, and then something for ever, one piece every so often.
#[derive(Clone)]
struct Answer {
    begin: Vec<u8>,
    piece: Vec<u8>,
    pause: Duration,
}

impl Answer {
    fn whole(bytes: impl Into<Vec<u8>>) -> Self {
        Self { begin: bytes.into(), piece: Vec::new(), pause: Duration::ZERO }
    }

    fn page(body: impl AsRef<[u8]>) -> Self {
        Self::whole([OK.as_bytes(), body.as_ref()].concat())
    }

    fn endless(begin: impl Into<Vec<u8>>, piece: &str) -> Self {
        Self { piece: piece.repeat(65_536 / piece.len()).into_bytes(), ..Self::whole(begin) }
    }

    fn dripping(begin: impl Into<Vec<u8>>) -> Self {
        Self { piece: b" ".to_vec(), pause: Duration::from_millis(20), ..Self::whole(begin) }
    }

    async fn send(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.write_all(&self.begin).await?;
        while !self.piece.is_empty() {
            stream.write_all(&self.piece).await?;
            tokio::time::sleep(self.pause).await;
        }
        stream.shutdown().await
    }
}

struct Source {
    address: SocketAddr,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
}

impl Source {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let answers: Arc<Mutex<HashMap<String, Answer>>> = Arc::default();
        let known = Arc::clone(&answers);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let known = Arc::clone(&known);
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let length = stream.read(&mut request).await.unwrap_or(0);
                    let request = String::from_utf8_lossy(&request[..length]).into_owned();
                    let path = request.split(' ').nth(1).unwrap_or_default();
                    let answer = known.lock().unwrap().get(path).cloned();
                    let none = Answer::whole("HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n");
                    // Who is attacked goes away.
                    let _ = answer.unwrap_or(none).send(&mut stream).await;
                });
            }
        });
        let source = Self { address, answers };
        let entry = format!("<url><loc>{}</loc><rs:md capability=\"resourcelist\"/></url>", source.url(LIST));
        let (capabilities, list) = (document("capabilitylist", &entry), source.list_of("/a"));
        for honest in [&capabilities, &list] {
            resync_judge::fixture("hostile", honest);
        }
        source.put("/capabilitylist.xml", Answer::page(capabilities));
        source.put("/a", Answer::page("good"));
        source.put(LIST, Answer::page(list));
        source
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn put(&self, path: &str, answer: Answer) {
        self.answers.lock().unwrap().insert(path.to_owned(), answer);
    }

    fn list_of(&self, path: &str) -> String {
        document("resourcelist", &format!("<url><loc>{}</loc></url>", self.url(path)))
    }
}

fn begin(capability: &str) -> String {
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
         <rs:md capability=\"{capability}\" at=\"2026-11-20T09:00:00Z\"/>"
    )
}

fn document(capability: &str, entries: &str) -> String {
    format!("{}{entries}</urlset>", begin(capability))
}

/// 256 MB in 1 MB, packed by Python, which is quick at it.
fn bomb(begin: &str, piece: &str) -> Vec<u8> {
    let script = "import gzip, sys; begin, piece = (text.encode() for text in sys.argv[1:]); \
                  sys.stdout.buffer.write(gzip.compress(begin + piece * (256_000_000 // len(piece)), 1))";
    let output = std::process::Command::new("python3").args(["-c", script, begin, piece]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// What a run says, its exit code, and the most memory that it had, in KiB.
async fn sync(source: &Source, copy: &Path) -> (String, i32, u64) {
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/peak.py"));
    command.arg(binary("resync-destination")).args(["sync", &source.url("/capabilitylist.xml")]).arg(copy);
    command.args(["--delete", "--retries=0", "--idle-timeout=500ms", "--max-resource-size=8 MiB"]);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("it ends soon").unwrap();
    let [said, complained] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let (said, peak) = said.rsplit_once("peak:").unwrap();
    (format!("{said}{complained}"), output.status.code().unwrap(), peak.trim().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn rs201_whatever_a_source_sends_a_run_ends_soon_in_little_memory_and_leaves_the_copy_as_it_was() {
    let source = Source::start().await;
    let folder = TempDir::new().unwrap();
    let [copy, good] = ["copy", "good"].map(|name| folder.path().join(name));
    let (said, code, _) = sync(&source, &copy).await;
    assert_eq!(code, 0, "{said}");
    std::fs::create_dir(&good).unwrap();
    std::fs::write(good.join("a"), "good").unwrap();

    let list = begin("resourcelist");
    let open = format!("{OK}{list}");
    let entry = format!("<url><loc>{}</loc></url>", source.url("/x"));
    let ten_gigabytes = "HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n";
    let circle = format!("HTTP/1.1 302 Found\r\nLocation: {}\r\nConnection: close\r\n\r\n", source.url(LIST));
    let away = "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data\r\nConnection: close\r\n\r\n";
    let laughs =
        format!("<!DOCTYPE x [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;&a;&a;\">]>{}", source.list_of("/&b;"));
    let attacks = [
        ("a bomb of blanks", LIST, Answer::page(bomb(&list, " ")), "cannot read"),
        ("a bomb of entries", LIST, Answer::page(bomb(&list, &entry)), "cannot read"),
        ("a bomb of elements in each other", LIST, Answer::page(bomb(&list, "<a>")), "cannot read"),
        ("entities", LIST, Answer::page(laughs), "cannot read"),
        ("a list without end", LIST, Answer::endless(open.as_str(), &entry), "is larger than"),
        ("a URI without end", LIST, Answer::endless(format!("{open}<url><loc>"), "x"), "is larger than"),
        ("headers without end", LIST, Answer::endless("HTTP/1.1 200 OK\r\n", "X-A: a\r\n"), "cannot reach"),
        ("a list of ten gigabytes", LIST, Answer::endless(ten_gigabytes, &entry), "is larger than"),
        ("a list that drips", LIST, Answer::dripping(open.as_str()), "KiB per second"),
        ("redirects in a circle", LIST, Answer::whole(circle), "redirects more than"),
        ("a list that is elsewhere", LIST, Answer::whole(away), "not a public address"),
        ("a resource without end", "/x", Answer::endless(OK, "x"), "it is larger than"),
        ("a resource of ten gigabytes", "/x", Answer::endless(ten_gigabytes, "x"), "it is larger than"),
        ("a resource that drips", "/x", Answer::dripping(OK), "KiB per second"),
        ("a resource that leads away", "/x", Answer::whole(away), "another origin"),
        ("a path that leads away", "/%2e%2e/%2e%2e%2fx", Answer::page("evil"), "leave the directory"),
    ];
    for (name, path, answer, named) in attacks {
        // The old file is listed too, so that nobody may take it for gone.
        let entries =
            format!("<url><loc>{}</loc></url><url><loc>{}</loc></url>", source.url("/a"), source.url(path));
        source.put(LIST, Answer::page(document("resourcelist", &entries)));
        source.put(path, answer);
        let begun = Instant::now();
        let (said, code, peak) = sync(&source, &copy).await;
        println!("{name}: {peak} KiB, {:.1?}", begun.elapsed());
        assert!(code == 1 && said.contains(named), "{name}: {code}: {said}");
        assert!(peak < MOST, "{name} took {peak} KiB");
        assert_eq!(differences(&copy, &good).unwrap(), Vec::<std::path::PathBuf>::new(), "{name}");
        assert!(!copy.join(".resync-destination/work").exists(), "{name}: nothing unfinished is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b32_neither_redirects_nor_links_nor_hubs_lead_from_a_source_out_there_to_this_machine() {
    const OUT_THERE: &str = "http://93.184.216.34";
    let trap = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    trap.set_nonblocking(true).unwrap();
    let inside = format!("http://{}/admin", trap.local_addr().unwrap());
    // As a proxy, so that it has an address out there.
    let source = Source::start().await;
    let page = |path: &str, answer| source.put(&format!("{OUT_THERE}{path}"), answer);
    let located = |loc: &str, metadata: &str| format!("<url><loc>{loc}</loc>{metadata}</url>");
    let list = located(&format!("{OUT_THERE}{LIST}"), "<rs:md capability=\"resourcelist\"/>");
    page("/capabilitylist.xml", Answer::page(document("capabilitylist", &list)));
    let links = format!("Link: <{inside}>; rel=\"hub\", <{OUT_THERE}/topic>; rel=\"self\"\r\n");
    page("/topic", Answer::whole(format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{links}\r\n")));
    let redirect = format!("HTTP/1.1 302 Found\r\nLocation: {inside}\r\nConnection: close\r\n\r\n");
    let folder = TempDir::new().unwrap();
    let run = async |arguments: &[&str]| {
        let mut command = Command::new(binary("resync-destination"));
        command.args(arguments).arg("--idle-timeout=500ms").current_dir(&folder).kill_on_drop(true);
        command.env("HTTP_PROXY", format!("http://{}", source.address)).env("NO_PROXY", "127.0.0.1");
        let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("it ends soon").unwrap();
        let [said, complained] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (format!("{said}{complained}"), output.status.code().unwrap())
    };
    let capability_list = format!("{OUT_THERE}/capabilitylist.xml");
    let sync = ["sync", &capability_list, "copy", "--retries=0", "--any-origin"];
    let topic = format!("{OUT_THERE}/topic");
    let subscribe = ["subscribe", &topic, "--state=state", "--listen=127.0.0.1:0"];
    for (name, answer, arguments) in [
        ("a link", Answer::page(document("resourcelist", &located(&inside, ""))), &sync[..]),
        ("a redirect", Answer::whole(redirect), &sync[..]),
        ("a hub", Answer::page(""), &subscribe[..]),
    ] {
        page(LIST, answer);
        let (said, code) = run(arguments).await;
        assert!(code == 1 && said.contains("is not a public address"), "{name}: {code}: {said}");
        assert!(trap.accept().is_err(), "{name}: nobody was asked");
    }
    page(LIST, Answer::page(document("resourcelist", &located(&inside, ""))));
    let (said, code) = run(&[&sync[..], &["--any-address"]].concat()).await;
    assert!(code == 1 && trap.accept().is_ok(), "who is trusted leads there: {said}");
}
