//! The real binaries as processes: started, watched, paused and killed.

use std::collections::HashMap;
use std::env;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;
use url::form_urlencoded::Serializer;

use super::{PATIENCE, eventually, free_address, raw};

/// How long the outputs of a process that has ended are read at most: somebody whom it has started may keep them open.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// A process whose files may not grow hears of it as an error instead of dying by a signal: see [`Process::limit_files`].
const WITHOUT_XFSZ: &str = "trap '' XFSZ";
/// Kills the process of this number when standard input ends, which is when whoever has started that has ended, however that came. One that began
/// at another moment is another process.
const KEEPER: &str = r#"trap '' INT TERM HUP
begun() {
    read -r stat <"/proc/$1/stat" || return
    set -- ${stat##*) }
    echo "${20}"
}
known=$(begun "$0")
read -r _
[ -n "$known" ] && [ "$(begun "$0")" = "$known" ] && kill -KILL "$0""#;

/// Where a binary of this workspace is: beside the test itself.
///
/// # Panics
/// When it has not been built.
pub fn binary(name: &str) -> PathBuf {
    let path = programs().join(name);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace --bins` first", path.display());
    path
}

/// The folder of the binaries: `target/PROFILE`.
pub(crate) fn programs() -> PathBuf {
    let running = env::current_exe().expect("a running program has a path");
    let beside = running.ancestors().nth(1).expect("a program is in a folder");
    // Tests run in target/PROFILE/deps, `resync-load` in target/PROFILE.
    let folder = if beside.ends_with("deps") { beside.parent().unwrap_or(beside) } else { beside };
    folder.to_owned()
}

/// A running process whose output is kept line by line. It ends with the test program, also where that is killed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    _keeper: Child,
    output: watch::Receiver<Vec<String>>,
}

impl Process {
    /// Starts a binary of this workspace; it is killed when dropped.
    pub fn start(name: &str, arguments: &[&str], environment: &HashMap<String, String>) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{WITHOUT_XFSZ}; exec \"$0\" \"$@\"")]).arg(binary(name));
        command.args(arguments).envs(environment);
        Self::run(name, &mut command)
    }

    /// The same with no more than so many file descriptors.
    pub fn start_with_files(
        files: u32,
        name: &str,
        arguments: &[&str],
        environment: &HashMap<String, String>,
    ) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]).arg(binary(name));
        command.args(arguments).envs(environment);
        Self::run(name, &mut command)
    }

    /// Runs any other program; it is killed when dropped.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn run(name: &str, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let (lines, output) = watch::channel(Vec::new());
        collect(child.stdout.take().expect("standard output is piped"), lines.clone());
        collect(child.stderr.take().expect("standard error is piped"), lines);
        let keeper = keep(child.id().expect("nobody has waited for it"));
        Self { name: name.to_owned(), child, _keeper: keeper, output }
    }

    /// Waits for a line that contains this text and returns it.
    ///
    /// # Panics
    /// When it does not come within [`PATIENCE`] or the process ends before.
    pub async fn line(&mut self, text: &str) -> String {
        self.line_number(text, 1).await
    }

    /// Waits for the n-th line that contains this text.
    ///
    /// # Panics
    /// As [`Process::line`].
    pub async fn line_number(&mut self, text: &str, number: usize) -> String {
        let mut output = self.output.clone();
        let matching =
            |lines: &Vec<String>| lines.iter().filter(|line| line.contains(text)).nth(number - 1).cloned();
        let waited = timeout(PATIENCE, output.wait_for(|lines| matching(lines).is_some())).await;
        match waited {
            Ok(Ok(lines)) => matching(&lines).expect("the condition held"),
            Ok(Err(_)) | Err(_) => {
                panic!("{} never said {text:?} (x{number}); it said:\n{}", self.name, self.said())
            }
        }
    }

    /// Waits for a line that contains this text; `Err` with everything it said when it ends before.
    ///
    /// # Errors
    /// When it ends before.
    ///
    /// # Panics
    /// When neither happens within [`PATIENCE`].
    pub async fn line_or_end(&mut self, text: &str) -> Result<(), String> {
        let mut output = self.output.clone();
        let said = |lines: &Vec<String>| lines.iter().any(|line| line.contains(text));
        let waited = timeout(PATIENCE, output.wait_for(said)).await;
        match waited.map(|found| found.is_ok()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.said()),
            Err(elapsed) => {
                panic!("{} neither said {text:?} nor ended ({elapsed}); it said:\n{}", self.name, self.said())
            }
        }
    }

    /// Waits until what it has said so far is enough; `false` when it ends before, or does not get there within [`PATIENCE`].
    pub async fn says(&self, is_enough: impl FnMut(&Vec<String>) -> bool) -> bool {
        let mut output = self.output.clone();
        let waited = timeout(PATIENCE, output.wait_for(is_enough)).await;
        matches!(waited, Ok(Ok(_)))
    }

    /// Everything it said so far, on both outputs.
    pub fn said(&self) -> String {
        self.output.borrow().iter().fold(String::new(), |mut text, line| {
            writeln!(text, "{line}").expect("writing to a string succeeds");
            text
        })
    }

    /// `kill -9`, and waits until it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("a process of ours can be killed");
    }

    /// Asks it to stop and waits for its end.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`].
    pub async fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait().await
    }

    /// Waits for its end, and until what it said last is known.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`].
    pub async fn wait(&mut self) -> ExitStatus {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let status = match ended {
            Ok(status) => status.expect("a child can be waited for"),
            Err(elapsed) => panic!("{} did not end ({elapsed}); it said:\n{}", self.name, self.said()),
        };
        let mut output = self.output.clone();
        let _ = timeout(LAST_WORDS, output.wait_for(|_| false)).await;
        status
    }

    /// Stops it as if the machine were asleep.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Wakes it up again.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Lets every write fail that reaches beyond so many bytes of a file, halfway if need be, like a disk that fills up.
    /// `None`: no longer.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let maximum = getrlimit(Resource::Fsize).maximum;
        let limit = Rlimit { current: bytes, maximum };
        prlimit(Some(self.pid()), Resource::Fsize, limit).expect("a process of ours can be limited");
    }

    /// Its number in the system.
    pub fn pid(&self) -> Pid {
        self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("the process runs")
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it does not run any more.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a process of ours takes signals");
    }
}

/// Lets this process end when what is returned is dropped, or this program ends.
fn keep(process: u32) -> Child {
    let mut keeper = Command::new("sh");
    keeper.args(["-c", KEEPER, &process.to_string()]);
    keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // In a group of its own: what a terminal sends to the test program does not reach it.
    keeper.process_group(0).spawn().expect("there is a shell")
}

fn collect(stream: impl AsyncRead + Unpin + Send + 'static, lines: watch::Sender<Vec<String>>) {
    tokio::spawn(async move {
        let mut reader = BufReader::new(stream).lines();
        while let Ok(Some(line)) = reader.next_line().await {
            lines.send_modify(|all| all.push(line));
        }
    });
}

/// A hub in a process of its own, which can be killed and started again on the same data and addresses.
#[derive(Debug)]
pub struct HubProcess {
    process: Option<Process>,
    data: PathBuf,
    environment: HashMap<String, String>,
    dev: bool,
    files: Option<u32>,
    /// Where it listens.
    pub address: SocketAddr,
    admin: SocketAddr,
}

/// The operator's pages that every hub has.
pub const OPERATOR_PAGES: [&str; 6] =
    ["/", "/topics", "/subscriptions", "/deliveries", "/publishers", "/audit"];

impl HubProcess {
    /// Starts a hub in `--dev` on free loopback ports, its data in this folder.
    pub async fn start(data: &Path) -> Self {
        Self::start_with(data, &[]).await
    }

    /// The same with keys of the configuration, as environment variables without their prefix.
    pub async fn start_with(data: &Path, keys: &[(&str, &str)]) -> Self {
        let mut hub = Self::prepare(data, keys);
        hub.restart().await;
        hub
    }

    /// A hub as an operator runs it, with all limits on, except that loopback may be contacted and anybody may publish.
    pub async fn start_public(data: &Path, keys: &[(&str, &str)]) -> Self {
        let mut hub = Self::prepare_public(data, keys);
        hub.restart().await;
        hub
    }

    /// The same, not yet started.
    pub fn prepare_public(data: &Path, keys: &[(&str, &str)]) -> Self {
        let mut all =
            vec![("EGRESS_ALLOW", "[\"127.0.0.0/8\"]"), ("EGRESS_PORTS", "[]"), ("PUBLISH_POLICY", "open")];
        all.extend_from_slice(keys);
        Self { dev: false, ..Self::prepare(data, &all) }
    }

    /// A hub in `--dev` that has no more than so many file descriptors.
    pub async fn start_with_files(data: &Path, files: u32) -> Self {
        let mut hub = Self { files: Some(files), ..Self::prepare(data, &[]) };
        hub.restart().await;
        hub
    }

    /// A hub in `--dev`, not yet started.
    pub fn prepare(data: &Path, keys: &[(&str, &str)]) -> Self {
        let (address, admin) = (free_address(), free_address());
        let mut environment: HashMap<_, _> =
            keys.iter().map(|(key, value)| (format!("RESYNC_HUB_{key}"), (*value).to_owned())).collect();
        environment.insert("RESYNC_HUB_ADMIN_LISTEN".to_owned(), admin.to_string());
        Self { process: None, data: data.to_owned(), environment, dev: true, files: None, address, admin }
    }

    /// Starts it again after it was killed.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn restart(&mut self) {
        self.try_restart().await.unwrap_or_else(|said| panic!("the hub did not come up; it said:\n{said}"));
    }

    /// The same for a hub that may have reasons not to come up.
    ///
    /// # Errors
    /// When it ends instead; with everything it said.
    pub async fn try_restart(&mut self) -> Result<(), String> {
        let (listen, data) = (self.address.to_string(), self.data.display().to_string());
        let mut arguments = vec!["--listen", &listen, "--data-dir", &data];
        arguments.extend(self.dev.then_some("--dev"));
        let mut process = match self.files {
            Some(files) => Process::start_with_files(files, "resync-hub", &arguments, &self.environment),
            None => Process::start("resync-hub", &arguments, &self.environment),
        };
        process.line_or_end("listening on").await?;
        self.process = Some(process);
        Ok(())
    }

    /// A new token for topics with this prefix.
    pub async fn add_token(&self, name: &str, prefix: &str) -> String {
        let data = self.data.display().to_string();
        let add = ["token", "add", name, "--topic-prefix", prefix, "--data-dir", &data];
        Process::start("resync-hub", &add, &HashMap::new()).line("rsh_").await
    }

    /// `kill -9`.
    pub async fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    /// Asks it to stop and does not wait for its end.
    pub fn ask_to_stop(&mut self) {
        self.process().signal(Signal::TERM);
    }

    /// Asks it to stop; returns what it had said.
    pub async fn stop(&mut self) -> (ExitStatus, String) {
        let mut process = self.process.take().expect("the hub runs");
        process.signal(Signal::TERM);
        let status = process.wait().await;
        (status, process.said())
    }

    /// The environment of its process, for the next start and for other commands on the same hub.
    pub fn environment(&mut self) -> &mut HashMap<String, String> {
        &mut self.environment
    }

    /// The running process.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the hub runs")
    }

    /// Everything that its process has said so far; nothing where it does not run.
    pub fn said(&self) -> String {
        self.process.as_ref().map_or_else(String::new, Process::said)
    }

    /// The URL of its endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/websub/", self.address)
    }

    /// Where its admin API listens.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// An answer of the admin API.
    ///
    /// # Panics
    /// When the hub does not answer.
    pub async fn admin(&self, path: &str) -> raw::Answer {
        self.order("GET", path, "").await
    }

    /// An answer of the admin API to a body.
    ///
    /// # Panics
    /// When the hub does not answer.
    pub async fn admin_post(&self, path: &str, body: &str) -> raw::Answer {
        self.order("POST", path, body).await
    }

    /// An answer of the admin API to any request.
    ///
    /// # Panics
    /// When the hub does not answer.
    pub async fn order(&self, method: &str, path: &str, body: &str) -> raw::Answer {
        let token = self.admin_token();
        let bytes = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.admin,
            body.len()
        );
        raw::request(self.admin, bytes.as_bytes()).await.expect("a running hub answers its operator")
    }

    /// Logs in at the operator's pages, and returns the cookie of the new session.
    ///
    /// # Panics
    /// When the hub does not let its operator in.
    pub async fn log_in(&self) -> String {
        let form = Serializer::new(String::new()).append_pair("token", &self.admin_token()).finish();
        let bytes = format!(
            "POST /login HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{form}",
            self.admin,
            form.len()
        );
        let answer =
            raw::request(self.admin, bytes.as_bytes()).await.expect("a running hub answers its operator");
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{}", answer.text());
        let cookie = answer.header("set-cookie").expect("a session has a cookie");
        cookie.split(';').next().unwrap_or_default().to_owned()
    }

    fn admin_token(&self) -> String {
        let token = std::fs::read_to_string(self.data.join("admin-token"));
        token.expect("a started hub has an admin token").trim().to_owned()
    }

    /// Waits until it says that it is ready.
    pub async fn until_ready(&self) {
        eventually("the hub is ready", || async { self.admin("/readyz").await.status == 200 }).await;
    }

    /// Waits until it waits for no callback any more: each request to subscribe or unsubscribe was confirmed, or refused.
    pub async fn until_judged(&self) {
        eventually("all requests are judged", || async {
            self.admin("/api/v1/drain").await.text().contains("\"to_verify\":0,")
        })
        .await;
    }

    /// Waits until it has nothing left to do: what has not been sent by then is not sent.
    pub async fn until_done(&self) {
        eventually("the hub has nothing left to do", || async {
            self.admin("/api/v1/drain").await.text().contains("\"nothing_left\":true")
        })
        .await;
    }

    /// Waits until so many subscriptions are in force.
    pub async fn until_subscribed(&self, count: usize) {
        eventually(&format!("{count} subscriptions in force"), || async {
            self.admin("/api/v1/status").await.text().contains(&format!("\"subscriptions\":{count},"))
        })
        .await;
    }

    /// Subscribes and waits until the subscription is in force as the n-th.
    ///
    /// # Panics
    /// When the hub refuses.
    pub async fn subscribe(&self, topic: &str, callback: &str, more: &[(&str, &str)], count: usize) {
        let mut parameters =
            vec![("hub.mode", "subscribe"), ("hub.topic", topic), ("hub.callback", callback)];
        parameters.extend_from_slice(more);
        let answer = raw::form(self.address, &parameters).await.expect("a running hub answers");
        assert_eq!(answer.status, 202, "{}", answer.text());
        self.until_subscribed(count).await;
    }

    /// Posts plain content for a topic.
    ///
    /// # Errors
    /// When the hub dies meanwhile.
    pub async fn publish(&self, topic: &str, body: &str) -> std::io::Result<raw::Answer> {
        let link = format!("<{topic}>; rel=\"self\", <{}>; rel=\"hub\"", self.url());
        raw::post(self.address, &[("Content-Type", "text/plain"), ("Link", &link)], body.as_bytes()).await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[tokio::test]
    async fn a_process_ends_with_whoever_has_started_it() {
        let mut child = Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
        drop(keep(child.id().unwrap()));
        let status = timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
        assert_eq!(status.signal(), Some(9), "SIGKILL");
    }

    #[tokio::test]
    async fn whoever_waits_for_the_end_of_a_process_knows_its_last_words() {
        let mut process = Process::run("seq", Command::new("seq").arg("20000"));
        assert!(process.wait().await.success());
        assert!(process.said().ends_with("\n20000\n"));
    }
}
