//! Three PostgreSQL servers, one of which is the primary and two of which stand by. The product itself elects nobody: what Patroni does in
//! production the test does here. It fences the old primary, promotes the standby that has most, has the other one follow that, and makes the
//! old one anew.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::programs::{Folder, Medium, Programs};
use super::server::{DATA, Server};
use super::session::{Rows, carry_out};
use super::{FIRST, USER, make_data};
use crate::{PATIENCE, free_address, left_out};

/// How many servers there are.
pub const SERVERS: usize = 3;
const NAMES: [&str; SERVERS] = ["a", "b", "c"];
const NEEDED: [&str; 3] = ["initdb", "pg_basebackup", "postgres"];
/// The database of the hubs.
const DATABASE: &str = "hub";
/// A commit waits for one standby. Who loses the primary notices that soon, and asks again soon.
const SETTINGS: [&str; 9] = [
    "listen_addresses=127.0.0.1",
    "wal_level=replica",
    "max_wal_senders=10",
    "wal_keep_size=64MB",
    "hot_standby=on",
    "synchronous_standby_names=ANY 1 (a, b, c)",
    "wal_sender_timeout=3s",
    "wal_receiver_timeout=3s",
    "wal_retrieve_retry_interval=200ms",
];
/// What a server has of the log, also where it never streamed any of it.
const REACHED: &str =
    "SELECT pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')";
const NO_RECEIVER: &str =
    "SELECT current_setting('primary_conninfo') = '' AND NOT EXISTS (SELECT FROM pg_stat_wal_receiver)";
const PRIMARY: &str = "SELECT NOT pg_is_in_recovery()";
const FOLLOWERS: &str = "
SELECT string_agg(application_name, ' ') FROM pg_stat_replication
WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')";

/// The servers. They end with the test program, also where that is killed.
#[derive(Debug)]
pub struct Replicated {
    programs: Programs,
    addresses: [SocketAddr; SERVERS],
    /// `None` while it is made anew.
    servers: [Option<Server>; SERVERS],
    primary: usize,
}

/// Where the primary's database is asked by SQL, for as long as it is the primary.
#[derive(Clone, Debug)]
pub struct Primary {
    socket: PathBuf,
}

impl Primary {
    /// Carries out statements there, and waits for each answer so long at most.
    ///
    /// # Errors
    /// What the server says against it, or why it says nothing.
    pub fn sql(&self, statements: &str, patience: Duration) -> Result<Rows, String> {
        carry_out(&self.socket, DATABASE, statements, patience)
    }
}

impl Replicated {
    /// Starts them, with an empty database; `None` where there is no PostgreSQL, which is said.
    ///
    /// # Panics
    /// When it is there and does not start.
    pub fn start() -> Option<Self> {
        Self::start_on(Medium::Memory)
    }

    /// Starts them with their data on a disk, which is what a measurement needs; `None` as for [`start`](Self::start).
    ///
    /// # Panics
    /// When it is there and does not start.
    pub fn start_on_disk() -> Option<Self> {
        Self::start_on(Medium::Disk)
    }

    fn start_on(medium: Medium) -> Option<Self> {
        let programs = Programs::find(&NEEDED, medium);
        let programs = programs.inspect_err(|why| left_out("failovers of PostgreSQL", why)).ok()?;
        let addresses = NAMES.map(|_| free_address());
        let folder = programs.folder();
        make_data(&programs, folder.path());
        let mut servers = Self { programs, addresses, servers: NAMES.map(|_| None), primary: 0 };
        servers.run(0, folder);
        servers.add_standby(1);
        servers.add_standby(2);
        servers.at(0).sql(FIRST, &format!("CREATE DATABASE {DATABASE}")).expect("a database can be made");
        Some(servers)
    }

    /// Where each of them listens.
    pub fn addresses(&self) -> [SocketAddr; SERVERS] {
        self.addresses
    }

    /// What `[store] url` says where the servers, or proxies before them, are at these addresses.
    pub fn url(addresses: &[SocketAddr]) -> String {
        let hosts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        format!("postgres://{USER}@{}/{DATABASE}", hosts.join(","))
    }

    /// The number of the primary, from 0.
    pub fn primary(&self) -> usize {
        self.primary
    }

    /// The numbers of the others.
    pub fn standbys(&self) -> Vec<usize> {
        (0..SERVERS).filter(|server| *server != self.primary).collect()
    }

    /// Where the primary is asked.
    pub fn at_primary(&self) -> Primary {
        Primary { socket: self.at(self.primary).socket() }
    }

    /// The machine of this server dies.
    pub fn kill(&self, server: usize) {
        self.at(server).kill();
    }

    /// The machine of this server stands still.
    pub fn pause(&self, server: usize) {
        self.at(server).pause();
    }

    /// It goes on.
    pub fn resume(&self, server: usize) {
        self.at(server).resume();
    }

    /// Whatever became of the primary, it acknowledges nothing any more, since no standby follows it; the standby that has most takes its place,
    /// and the other one follows. Returns the number of the old primary.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn promote(&mut self) -> usize {
        let standbys = self.standbys();
        for standby in &standbys {
            self.follow(*standby, None);
        }
        for standby in &standbys {
            self.until(*standby, "it follows nobody", NO_RECEIVER, |said| said == "t");
        }
        let most = standbys.iter().copied().max_by_key(|standby| self.reached(*standby));
        let new = most.expect("there are standbys");
        self.at(new).sql(FIRST, "SELECT pg_promote(true, 50)").expect("a standby can be promoted");
        self.until(new, "it is the primary", PRIMARY, |said| said == "t");
        let old = std::mem::replace(&mut self.primary, new);
        for standby in standbys.into_iter().filter(|standby| *standby != new) {
            self.follow(standby, Some(new));
            self.until_followed_by(standby);
        }
        old
    }

    /// A server that is dead, or was the primary, is made anew as a standby.
    ///
    /// # Panics
    /// When that fails.
    pub fn rejoin(&mut self, server: usize) {
        assert_ne!(server, self.primary, "it is the primary");
        if let Some(old) = self.servers[server].take() {
            old.kill();
            old.end();
        }
        self.add_standby(server);
    }

    /// Waits until both others follow the primary, for example after they stood still.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn until_followed(&self) {
        for standby in self.standbys() {
            self.until_followed_by(standby);
        }
    }

    /// The primary is shut down in order, another one takes its place, and it comes back as a standby.
    ///
    /// # Panics
    /// As [`Replicated::promote`] and [`Replicated::rejoin`].
    pub fn switch_over(&mut self) {
        self.at(self.primary).shut_down();
        let old = self.promote();
        self.rejoin(old);
    }

    fn at(&self, server: usize) -> &Server {
        self.servers[server].as_ref().expect("it is there but while it is made anew")
    }

    fn run(&mut self, server: usize, folder: Folder) {
        // By this name the primary knows it.
        let name = format!("cluster_name={}", NAMES[server]);
        let settings: Vec<_> = SETTINGS.iter().map(|setting| (*setting).to_owned()).chain([name]).collect();
        let port = self.addresses[server].port();
        self.servers[server] = Some(Server::start(&self.programs, folder, port, &settings));
    }

    /// Makes a server of a copy of the primary, and waits until it follows.
    fn add_standby(&mut self, server: usize) {
        let folder = self.programs.folder();
        let data = folder.path().join(DATA).display().to_string();
        let from = self.connection_to(self.primary);
        let arguments = [
            "--pgdata",
            &data,
            "--dbname",
            &from,
            "--checkpoint=fast",
            "--wal-method=stream",
            "--write-recovery-conf",
            "--no-sync",
        ];
        self.programs.run("pg_basebackup", &arguments, folder.path());
        self.run(server, folder);
        self.until_followed_by(server);
    }

    /// Has a standby follow this server, or nobody.
    fn follow(&self, standby: usize, whom: Option<usize>) {
        let whom = whom.map_or_else(String::new, |server| self.connection_to(server));
        let set = format!("ALTER SYSTEM SET primary_conninfo = '{whom}'");
        for statement in [set.as_str(), "SELECT pg_reload_conf()"] {
            self.at(standby).sql(FIRST, statement).expect("a standby takes settings");
        }
    }

    fn connection_to(&self, server: usize) -> String {
        let address = self.addresses[server];
        format!("host={} port={} user={USER}", address.ip(), address.port())
    }

    /// How far a standby is in the log, in bytes.
    fn reached(&self, standby: usize) -> u64 {
        self.said(standby, REACHED).and_then(|said| said.parse().ok()).expect("a standby knows how far it is")
    }

    fn until_followed_by(&self, standby: usize) {
        let name = NAMES[standby];
        self.until(self.primary, "a standby follows it", FOLLOWERS, |said| {
            said.split(' ').any(|of| of == name)
        });
    }

    fn until(&self, server: usize, what: &str, query: &str, is_it: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !self.said(server, query).is_some_and(|said| is_it(&said)) {
            let name = NAMES[server];
            assert!(Instant::now() < deadline, "it never happened of PostgreSQL {name}: {what}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The one value that it answers.
    fn said(&self, server: usize, query: &str) -> Option<String> {
        self.at(server).sql(FIRST, query).ok()?.into_iter().flatten().next()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was written is there, whoever is the primary.
    fn holds(servers: &Replicated, words: &[&str]) {
        let kept = servers.at_primary().sql("SELECT word FROM kept ORDER BY word", PATIENCE).unwrap();
        let kept: Vec<_> = kept.into_iter().flatten().flatten().collect();
        assert_eq!(kept, words);
    }

    fn write(servers: &Replicated, word: &str) {
        servers.at_primary().sql(&format!("INSERT INTO kept VALUES ('{word}')"), PATIENCE).unwrap();
    }

    #[test]
    fn what_was_acknowledged_outlives_a_primary_that_dies_one_that_stands_still_and_a_switchover() {
        let Some(mut servers) = Replicated::start() else { return };
        servers.at_primary().sql("CREATE TABLE kept (word text)", PATIENCE).unwrap();
        write(&servers, "1");
        servers.kill(servers.primary());
        let old = servers.promote();
        holds(&servers, &["1"]);
        write(&servers, "2");
        servers.rejoin(old);

        let zombie = servers.primary();
        servers.pause(zombie);
        assert_eq!(servers.promote(), zombie);
        write(&servers, "3");
        servers.resume(zombie);
        servers.rejoin(zombie);
        holds(&servers, &["1", "2", "3"]);

        servers.switch_over();
        write(&servers, "4");
        holds(&servers, &["1", "2", "3", "4"]);
    }
}
