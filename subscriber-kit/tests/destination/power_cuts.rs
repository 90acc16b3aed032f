//! `resync-destination` on a machine that loses power before any of its syncs, and with it whatever was not synced: names, and parts of files.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::net::SocketAddr;
use std::ops::RangeFrom;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use resync_harness::{Machine, deaths_wanted, free_address, happens_within, seed};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::support::published::Published;
use crate::support::{PATIENCE, files, ok, serve, serve_slowly, signature, status};

/// How often a trial loses power; `RESYNC_TEST_DEATHS` asks for more.
const CUTS: usize = 20;

/// A command that is killed before this sync.
fn command(machine: &Machine, arguments: &[&str], sync: Option<u32>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_resync-destination"));
    command.args(arguments).kill_on_drop(true).envs(machine.environment(sync));
    command
}

/// Whether it was killed; else it has succeeded.
async fn is_killed(machine: &Machine, arguments: &[&str], sync: Option<u32>) -> bool {
    let output = tokio::time::timeout(PATIENCE, command(machine, arguments, sync).output());
    let output = output.await.expect("it ends in time").unwrap();
    let is_killed = output.status.signal() == Some(9);
    let said = || [&output.stdout[..], &output.stderr].concat();
    assert!(is_killed || output.status.success(), "{}", String::from_utf8_lossy(&said()));
    is_killed
}

/// Whether there are runs before the one that loses power.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Copies {
    New,
    Kept,
}

/// Each sync of a life that begins with nothing, and each of a later one, in any order, or so many of them.
fn cuts(machine: &mut Machine, [new, kept]: [u32; 2], most: usize) -> Vec<(Copies, u32)> {
    let each = |copies: Copies, syncs: u32| (1..=syncs).map(move |number| (copies, number));
    let mut cuts: Vec<_> = each(Copies::New, new).chain(each(Copies::Kept, kept)).collect();
    machine.rng.shuffle(&mut cuts);
    cuts.truncate(most);
    cuts
}

#[tokio::test]
async fn rs202_a_first_sync_that_loses_power_at_any_sync_has_whole_files_and_the_next_ends_in_step() {
    survive_cuts(&["--delete"], Copies::New).await;
}

#[tokio::test]
async fn rs202_so_it_is_with_a_later_one_that_reads_the_list() {
    survive_cuts(&["--delete"], Copies::Kept).await;
}

#[tokio::test]
async fn rs202_so_it_is_with_one_that_reads_the_changes() {
    survive_cuts(&["--delete", "--incremental"], Copies::Kept).await;
}

async fn survive_cuts(flags: &[&str], copies: Copies) {
    let mut source = Published::start(None).await;
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("copy");
    std::fs::create_dir(&into).unwrap();
    let mut machine = Machine::under(&into, seed());
    let url = source.url().to_owned();
    let sync = [&["sync", &url, into.to_str().unwrap()][..], flags].concat();
    is_killed(&machine, &sync, None).await;
    let mut syncs = machine.syncs();
    if copies == Copies::Kept {
        source.change();
        is_killed(&machine, &sync, None).await;
        syncs = machine.syncs();
    }
    let mut deaths = 0;
    // Once also when it has ended, and each with and without another run before the power goes.
    let cuts = machine.numbers(2 * (syncs + 1), deaths_wanted(CUTS));
    for cut in &cuts {
        if copies == Copies::New {
            std::fs::remove_dir_all(&into).unwrap();
            std::fs::create_dir(&into).unwrap();
            machine.settle();
        }
        source.change();
        deaths += usize::from(is_killed(&machine, &sync, Some(cut.div_ceil(2))).await);
        source.assert_whole(&into);
        if cut % 2 == 0 {
            is_killed(&machine, &sync, None).await;
        }
        machine.lose_power();
        source.assert_whole(&into);
        is_killed(&machine, &sync, None).await;
        assert_eq!(files(&into), source.files(), "after {cut} of {syncs}");
    }
    println!("{} cuts, {deaths} of them before the end, took {:?}", cuts.len(), machine.loss);
    assert!(
        deaths * 3 > cuts.len() && machine.loss.names + machine.loss.pages > 0,
        "{deaths} of {}, {:?}",
        cuts.len(),
        machine.loss
    );
}

#[tokio::test]
async fn files_that_were_there_before_the_copy_are_as_they_were_after_any_power_cut() {
    let source = Published::start(None).await;
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("copy");
    let listed = source.files().into_keys().next().unwrap();
    let foreign = ["mine", "mine/too", &listed].map(|name| into.join(name.replace("mine/", "ours/")));
    let mut machine = None;
    let url = source.url().to_owned();
    let sync = ["sync", &url, into.to_str().unwrap()];
    for number in 1..12 {
        // Nothing is there but what is somebody's.
        let _ = std::fs::remove_dir_all(&into);
        for path in &foreign {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "of somebody").unwrap();
        }
        let machine: &mut Machine = machine.get_or_insert_with(|| Machine::under(&into, seed()));
        machine.settle();
        for before in [Some(number), None] {
            let ended = command(machine, &sync, before).output().await.unwrap();
            machine.lose_power();
            for path in &foreign {
                assert_eq!(
                    std::fs::read_to_string(path).unwrap(),
                    "of somebody",
                    "{}: {ended:?}",
                    path.display()
                );
            }
        }
        let copied =
            |(name, bytes): &(String, Vec<u8>)| *name != listed && source.files().get(name) == Some(bytes);
        assert_eq!(files(&into).into_iter().filter(copied).count(), source.files().len() - 1, "{number}");
    }
}

/// Secrets by callback, and these by topic.
type Secrets = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// What subscribers have confirmed to a hub.
#[derive(Default)]
struct Verified {
    /// How often they began with nothing: what those before have asked for is none of theirs.
    beginnings: u32,
    secrets: Secrets,
}

/// A hub that bears subscribers that die.
#[derive(Clone)]
pub(crate) struct Hub {
    address: SocketAddr,
    client: reqwest::Client,
    verified: Arc<Mutex<Verified>>,
}

impl Hub {
    pub(crate) async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let verified = Arc::<Mutex<Verified>>::default();
        let (asks, keeps) = (client.clone(), Arc::clone(&verified));
        let address = serve_slowly(move |form| {
            let [topic, callback, secret] =
                ["topic", "callback", "secret"].map(|name| form.parameter(&format!("hub.{name}")).unwrap());
            let (client, verified) = (asks.clone(), Arc::clone(&keeps));
            let beginnings = verified.lock().unwrap().beginnings;
            tokio::spawn(async move {
                let mut url = url::Url::parse(&callback).unwrap();
                url.query_pairs_mut().extend_pairs([
                    ("hub.mode", "subscribe"),
                    ("hub.topic", &topic),
                    ("hub.challenge", "c0ffee"),
                    ("hub.lease_seconds", "600"),
                ]);
                let answer = client.get(url).send().await.ok()?;
                if answer.text().await.ok()? == "c0ffee" {
                    let mut verified = verified.lock().unwrap();
                    if verified.beginnings == beginnings {
                        let callbacks = verified.secrets.entry(topic).or_default();
                        callbacks.entry(callback).or_default().insert(secret);
                    }
                }
                Some(())
            });
            std::future::ready(status("202 Accepted", ""))
        })
        .await;
        Self { address, client, verified }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/websub/", self.address)
    }

    /// Whether the topic has a subscriber.
    fn knows(&self, topic: &str) -> bool {
        self.verified.lock().unwrap().secrets.contains_key(topic)
    }

    /// The subscriber begins with nothing.
    fn forget(&self) {
        let mut verified = self.verified.lock().unwrap();
        *verified = Verified { beginnings: verified.beginnings + 1, secrets: Secrets::new() };
    }

    /// Whether the subscriber of a topic answers a delivery with a 2xx.
    pub(crate) async fn is_taken(&self, topic: &str, offset: usize, body: &str) -> bool {
        let subscriber = self.verified.lock().unwrap().secrets.get(topic).and_then(|all| {
            let (callback, secrets) = all.iter().next_back()?;
            Some((callback.clone(), secrets.iter().next_back()?.clone()))
        });
        let Some((callback, secret)) = subscriber else { return false };
        let request = self.client.post(callback).header("Content-Type", "application/xml");
        let request = request.header("X-Hub-Signature", signature(&secret, body.as_bytes()));
        let request =
            request.header("webhook-id", format!("000000000000000a.{offset}")).body(body.to_owned());
        request.send().await.is_ok_and(|answer| answer.status().is_success())
    }

    /// No subscriber has forgotten the callback or the secret that it gave for a topic.
    fn assert_each_has_one(&self) {
        for (topic, callbacks) in &self.verified.lock().unwrap().secrets {
            assert_eq!(callbacks.len(), 1, "{topic}: a callback is forgotten");
            assert!(callbacks.values().all(|secrets| secrets.len() == 1), "{topic}: a secret is forgotten");
        }
    }
}

/// A program that listens until it is killed.
struct Listening {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Listening {
    fn start(machine: &Machine, arguments: &[&str], sync: Option<u32>) -> Self {
        let mut child = command(machine, arguments, sync).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits for a line that begins so; whether it came before the program died.
    async fn says(&mut self, beginning: &str) -> bool {
        let line = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.starts_with(beginning) {
                    return true;
                }
            }
            false
        };
        tokio::time::timeout(PATIENCE, line).await.unwrap_or_else(|_| panic!("{beginning:?} in time"))
    }

    fn has_died(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    assert!(happens_within(PATIENCE, || ready(condition())).await, "{what}");
}

/// A copy that listens to a Source, and what it took.
struct Mirror {
    hub: Hub,
    source: Published,
    folder: TempDir,
    address: String,
    offsets: RangeFrom<usize>,
    taken: usize,
}

impl Mirror {
    async fn start() -> Self {
        let hub = Hub::start().await;
        let source = Published::start(Some(hub.url())).await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("copy")).unwrap();
        Self { hub, source, folder, address: free_address().to_string(), offsets: 1.., taken: 0 }
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    fn begin_anew(&self, machine: &mut Machine) {
        std::fs::remove_dir_all(self.copy()).unwrap();
        std::fs::create_dir(self.copy()).unwrap();
        machine.settle();
        self.hub.forget();
    }

    fn listen(&self, machine: &Machine, sync: Option<u32>) -> Listening {
        let into = self.copy();
        let (url, into) = (self.source.url(), into.to_str().unwrap());
        let listen = ["listen", url, "--into", into, "--delete", "--listen", &self.address];
        Listening::start(machine, &listen, sync)
    }

    /// A life with some changes, at whose end it is killed if it has not died before this sync; how often it synced.
    async fn live(&mut self, machine: &Machine, sync: Option<u32>) -> u32 {
        let mut listening = self.listen(machine, sync);
        let topic = format!("{}resync/changes/", self.source.url());
        let mut lives = listening.says("in step").await;
        if lives {
            until("the hub hears of it", || self.hub.knows(&topic) || listening.has_died()).await;
        }
        for offset in self.offsets.by_ref().take(3) {
            self.source.change();
            let body = self.source.change_notification();
            if self.hub.is_taken(&topic, offset, &body).await {
                self.taken += usize::from(!machine.is_killing());
                lives = lives && listening.says("in step").await;
            }
        }
        listening.kill().await;
        machine.syncs()
    }
}

#[tokio::test]
async fn a_copy_that_listens_and_loses_power_at_any_sync_keeps_its_subscriptions_and_comes_in_step() {
    let mut mirror = Mirror::start().await;
    let into = mirror.copy();
    let mut machine = Machine::under(&into, seed());
    let first_lives = [mirror.live(&machine, None).await, mirror.live(&machine, None).await];
    let mut deaths = 0;
    let cuts = cuts(&mut machine, first_lives, deaths_wanted(CUTS / 2));
    for &(copies, number) in &cuts {
        if copies == Copies::New {
            mirror.begin_anew(&mut machine);
        }
        mirror.live(&machine, Some(number)).await;
        deaths += usize::from(machine.is_killing());
        machine.lose_power();
        mirror.source.assert_whole(&into);
        let mut listening = mirror.listen(&machine, None);
        assert!(listening.says("listening on").await, "it starts again after {number}, {copies:?}");
        until("the copy comes in step", || files(&into) == mirror.source.files()).await;
        assert!(listening.says("subscribed to").await);
        listening.kill().await;
        mirror.hub.assert_each_has_one();
    }
    let taken = mirror.taken;
    println!("{deaths} deaths in {} lives, {taken} notifications taken, {:?}", cuts.len(), machine.loss);
    assert!(deaths * 2 > cuts.len() && taken > 0, "{deaths} deaths of {}, {taken} taken", cuts.len());
}

/// A subscriber with its state: what it answered with a 2xx, and what it handed over.
struct Subscribed {
    hub: Hub,
    topic: String,
    folder: TempDir,
    address: String,
    offsets: RangeFrom<usize>,
    taken: BTreeSet<String>,
}

impl Subscribed {
    async fn start() -> Self {
        let hub = Hub::start().await;
        let links = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&links);
        let topic = format!("http://{}/news", serve(move |_| ok(&shown.lock().unwrap(), b"news")).await);
        *links.lock().unwrap() = format!("Link: <{}>; rel=\"hub\", <{topic}>; rel=\"self\"\r\n", hub.url());
        let folder = tempfile::tempdir().unwrap();
        for name in ["states", "handed"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let (address, taken) = (free_address().to_string(), BTreeSet::new());
        Self { hub, topic, folder, address, offsets: 1.., taken }
    }

    fn states(&self) -> PathBuf {
        self.folder.path().join("states")
    }

    /// Its state goes. By then everything in it was handed over.
    fn begin_anew(&self, machine: &mut Machine) {
        assert!(self.has_handed_over(), "what a state has is not lost by the trial");
        // It may have died before it made one.
        let _ = std::fs::remove_dir_all(self.states().join("new"));
        machine.settle();
        self.hub.forget();
    }

    fn listen(&self, machine: &Machine, sync: Option<u32>) -> Listening {
        let handed = self.folder.path().join("handed");
        // What is cut short by a death has no whole file, and what two lives write at once does not mix.
        let exec = format!("new=$(mktemp {}/XXXXXX) && cat > $new && mv $new $new.whole", handed.display());
        // Made by the program.
        let state = self.states().join("new/state");
        let (topic, state) = (self.topic.as_str(), state.to_str().unwrap());
        let subscribe = ["subscribe", topic, "--state", state, "--exec", &exec, "--listen", &self.address];
        Listening::start(machine, &subscribe, sync)
    }

    /// A life with some notifications, until they are handed over or it has died before this sync; how often it synced.
    async fn live(&mut self, machine: &Machine, sync: Option<u32>) -> u32 {
        let mut listening = self.listen(machine, sync);
        if listening.says("subscribed to").await {
            until("the hub hears of it", || self.hub.knows(&self.topic) || listening.has_died()).await;
        }
        for offset in self.offsets.by_ref().take(6) {
            let body = format!("notification {offset}: {}", "long ".repeat(offset % 3 * 1500));
            if self.hub.is_taken(&self.topic, offset, &body).await && !machine.is_killing() {
                self.taken.insert(body);
            }
        }
        until("what was taken is handed over", || listening.has_died() || self.has_handed_over()).await;
        listening.kill().await;
        machine.syncs()
    }

    /// Whether all was handed over that was taken, once at least.
    fn has_handed_over(&self) -> bool {
        let handed = self.folder.path().join("handed");
        let files = std::fs::read_dir(handed).unwrap().map(|file| file.unwrap().path());
        let whole = files.filter(|path| path.extension().is_some_and(|extension| extension == "whole"));
        let bodies: BTreeSet<_> = whole.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        self.taken.is_subset(&bodies)
    }
}

#[tokio::test]
async fn no_notification_that_was_answered_with_2xx_is_forgotten_by_any_power_cut() {
    let mut subscribed = Subscribed::start().await;
    let mut machine = Machine::under(&subscribed.states(), seed());
    let first_lives = [subscribed.live(&machine, None).await, subscribed.live(&machine, None).await];
    let mut deaths = 0;
    let cuts = cuts(&mut machine, first_lives, deaths_wanted(CUTS));
    for &(copies, number) in &cuts {
        if copies == Copies::New {
            subscribed.begin_anew(&mut machine);
        }
        subscribed.live(&machine, Some(number)).await;
        deaths += usize::from(machine.is_killing());
        machine.lose_power();
        let mut listening = subscribed.listen(&machine, None);
        assert!(listening.says("subscribed to").await, "it starts again after {number}, {copies:?}");
        until("what was taken is handed over", || subscribed.has_handed_over()).await;
        listening.kill().await;
        subscribed.hub.assert_each_has_one();
    }
    let taken = subscribed.taken.len();
    println!("{deaths} deaths in {} lives, {taken} notifications taken, {:?}", cuts.len(), machine.loss);
    assert!(
        deaths * 2 > cuts.len() && taken > cuts.len(),
        "{deaths} deaths of {}, {taken} taken",
        cuts.len()
    );
}
