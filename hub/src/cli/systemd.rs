//! Notifies systemd of a service of `Type=notify`: that the start makes progress, that the hub is ready, that it stops, and regularly
//! that it is alive.
//!
//! These are datagrams of `NAME=value` lines to the socket that `NOTIFY_SOCKET` names (sd_notify(3)). If the hub was started by
//! anything else, there is no socket and nothing is sent.

use std::convert::Infallible;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::future::pending;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

use resync_hub::Liveness;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// How long a start may make no progress. It has no steps to report: an engine reads its journals in one.
const STANDSTILL: Duration = Duration::from_secs(300);
/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Systemd {
    socket: Option<UnixDatagram>,
    /// How long the watchdog waits (`WatchdogSec`).
    patience: Option<Duration>,
}

impl Systemd {
    pub(super) fn of_process() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let connected = connect(&name);
            connected.inspect_err(|error| warn!(?name, %error, "systemd cannot be notified")).ok()
        });
        Self { socket, patience: patience(|name| env::var(name).ok()) }
    }

    /// Does not wait: a hub that cannot notify systemd goes on.
    pub(super) fn notify(&self, lines: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(lines.as_bytes())) {
            warn!(lines, %error, "systemd not notified");
        }
    }

    /// Asks for more time to start, again and again while it makes progress. A start that makes none times out.
    pub(super) async fn ask_for_time(&self, done: impl Fn() -> Done) -> Infallible {
        if self.socket.is_none() {
            return pending().await;
        }
        let mut looks = interval(LOOK);
        let mut before = None;
        loop {
            looks.tick().await;
            let now = done();
            if before.is_none_or(|before| now.is_beyond(&before)) {
                self.notify(&format!("EXTEND_TIMEOUT_USEC={}", STANDSTILL.as_micros()));
            }
            before = Some(now);
        }
    }

    /// Notifies the watchdog twice within its time while every part of the hub answers. The checks run on the runtime's workers; this
    /// runs on the main thread, and also notices when those hang.
    pub(super) async fn feed_watchdog(&self, liveness: &Liveness, status: &str) -> Infallible {
        let Some(patience) = self.patience else { return pending().await };
        let pause = (patience / 2).max(Duration::from_millis(1));
        let mut beats = interval(pause);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut monitor, mut was_silent) = (liveness.monitor(), false);
        loop {
            beats.tick().await;
            let silent = monitor.silent(pause);
            match silent {
                None => self.notify("WATCHDOG=1"),
                Some(part) => self.notify(&format!("STATUS={part} has not answered for a minute")),
            }
            if was_silent && silent.is_none() {
                self.notify(&format!("STATUS={status}"));
            }
            was_silent = silent.is_some();
        }
    }
}

/// What the process has done so far, as the system counts it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    on_processors: Duration,
    /// Bytes that came from a disk or were written to one.
    moved: u64,
}

impl Done {
    pub(super) fn by_process() -> Self {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        let on_processors =
            Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap_or_default());
        // Where the system does not say, what takes time on processors counts.
        let moved = fs::read_to_string("/proc/self/io").map_or(0, |text| bytes_moved(&text));
        Self { on_processors, moved }
    }

    /// Whether this is more than the looking itself takes: a hundredth of the time between two looks.
    fn is_beyond(&self, before: &Self) -> bool {
        self.moved > before.moved || self.on_processors.saturating_sub(before.on_processors) > LOOK / 100
    }
}

fn bytes_moved(text: &str) -> u64 {
    let number = |line: &str| {
        let (name, number) = line.split_once(": ")?;
        ["read_bytes", "write_bytes"].contains(&name).then(|| number.parse::<u64>().ok())?
    };
    text.lines().filter_map(number).sum()
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address(name)?)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;

    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(name),
    }
}

#[cfg(not(target_os = "linux"))]
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(name)
}

/// The watchdog may be that of another process, which handed its environment on.
fn patience(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let is_ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == process::id().to_string());
    let microseconds = variable("WATCHDOG_USEC")?.parse().ok().filter(|number| *number > 0)?;
    is_ours.then(|| Duration::from_micros(microseconds))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;
    use std::pin::pin;
    use std::sync::{Arc, Barrier};

    use tokio::runtime;
    use tokio::sync::{Notify, watch};
    use tokio::time::timeout;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const ALMOST_FOUR_MINUTES: Duration = Duration::from_secs(239);
    const SIGN: &str = "WATCHDOG=1";

    /// A watchdog with 30 s, and its messages.
    fn watched() -> (Systemd, UnixDatagram) {
        let (socket, told) = UnixDatagram::pair().unwrap();
        told.set_nonblocking(true).unwrap();
        (Systemd { socket: Some(socket), patience: Some(MINUTE / 2) }, told)
    }

    fn all(told: &UnixDatagram) -> Vec<String> {
        let mut line = [0; 100];
        let next = || told.recv(&mut line).ok().map(|length| String::from_utf8_lossy(&line[..length]).into());
        std::iter::from_fn(next).collect()
    }

    fn signs_of_life(told: &UnixDatagram) -> usize {
        all(told).iter().filter(|line| *line == SIGN).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_gets_more_time_for_as_long_as_it_gets_on_and_none_while_it_stands_still() {
        const MORE: &str = "EXTEND_TIMEOUT_USEC=300000000";
        let (systemd, told) = watched();
        let done = Cell::new(Done::default());
        let mut asking = pin!(systemd.ask_for_time(|| done.get()));
        let second = Duration::from_secs(1);
        assert!(timeout(second, asking.as_mut()).await.is_err());
        assert_eq!(all(&told), [MORE], "it has begun");
        for (on_processors, moved, is_getting_on) in [
            // To ask takes some time itself.
            (LOOK / 200, 0, false),
            (LOOK / 50, 0, true),
            (LOOK / 50, 0, false),
            (LOOK / 50, 1, true),
            (LOOK / 50, 1, false),
        ] {
            done.set(Done { on_processors, moved });
            assert!(timeout(LOOK, asking.as_mut()).await.is_err());
            assert_eq!(all(&told).len(), usize::from(is_getting_on), "{on_processors:?}, {moved}");
        }
    }

    #[test]
    fn a_process_that_computes_gets_on() {
        let before = Done::by_process();
        let rounds = 0..100_000_u64;
        let busy = |round: u64| (0..1_000_000).fold(round, |sum, number| std::hint::black_box(sum ^ number));
        assert!(rounds.map(busy).any(|_| Done::by_process().is_beyond(&before)));
        let told =
            "rchar: 9\nwchar: 9\nsyscr: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 9\n";
        assert_eq!(bytes_moved(told), 12_288);
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_told_of_life_twice_within_its_patience_and_not_while_a_part_is_silent() {
        let (systemd, told) = watched();
        let (_stop, stopped) = watch::channel(false);
        let (liveness, answer) = (Liveness::default(), Arc::new(Notify::new()));
        let part = Arc::clone(&answer);
        let ask = move || {
            let part = Arc::clone(&part);
            async move {
                part.notified().await;
                Ok::<_, Infallible>(())
            }
        };
        tokio::spawn(liveness.clone().check_until("the writer", ask, stopped));
        let mut alive = pin!(systemd.feed_watchdog(&liveness, "serving"));
        let until = |seconds| Duration::from_secs(seconds);
        assert!(timeout(until(59), alive.as_mut()).await.is_err());
        assert_eq!(all(&told), [SIGN; 4]);
        assert!(timeout(until(18), alive.as_mut()).await.is_err());
        answer.notify_one();
        let last = all(&told).pop().unwrap();
        assert_eq!(last, "STATUS=the writer has not answered for a minute");
        assert!(timeout(until(28), alive).await.is_err());
        assert_eq!(all(&told), [SIGN, "STATUS=serving", SIGN], "it answers again");
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_told_of_life_for_as_long_as_every_part_answers() {
        let (systemd, told) = watched();
        let (_stop, stopped) = watch::channel(false);
        let liveness = Liveness::default();
        tokio::spawn(liveness.clone().check_until("the writer", || ready(Ok::<_, Infallible>(())), stopped));
        assert!(timeout(ALMOST_FOUR_MINUTES, systemd.feed_watchdog(&liveness, "serving")).await.is_err());
        assert_eq!(signs_of_life(&told), 16);
    }

    /// The thread that tells is none of them, and would go on for ever.
    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_told_of_no_life_while_all_workers_of_the_runtime_hang() {
        let (systemd, told) = watched();
        let workers = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let gate = Arc::new(Barrier::new(3));
        for _ in 0..2 {
            let gate = Arc::clone(&gate);
            workers.spawn(async move {
                gate.wait();
                gate.wait();
            });
        }
        gate.wait();
        let (_stop, stopped) = watch::channel(false);
        let liveness = Liveness::default();
        workers.spawn(liveness.clone().check_until("the writer", || ready(Ok::<_, Infallible>(())), stopped));
        let endless = timeout(ALMOST_FOUR_MINUTES, systemd.feed_watchdog(&liveness, "serving")).await;
        gate.wait();
        workers.shutdown_background();
        assert!(endless.is_err());
        assert_eq!(signs_of_life(&told), 4, "those of the first minute");
    }

    #[test]
    fn the_watchdog_of_another_process_is_not_ours() {
        let asked = |usec: &str, pid: Option<String>| {
            patience(|name| if name == "WATCHDOG_USEC" { Some(usec.to_owned()) } else { pid.clone() })
        };
        assert_eq!(asked("1500000", None), Some(Duration::from_millis(1_500)));
        assert_eq!(asked("1500000", Some(process::id().to_string())), Some(Duration::from_millis(1_500)));
        assert_eq!(asked("1500000", Some("0".to_owned())), None);
        assert_eq!(asked("0", None), None);
    }
}
