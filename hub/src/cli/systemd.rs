//! What systemd is told of a service of `Type=notify`: that the hub is ready, that it stops, and again and again that it is alive.
//!
//! These are datagrams of `NAME=value` lines to the socket that `NOTIFY_SOCKET` names (sd_notify(3)). Where the hub was started by
//! anything else, none is named and nothing is told.

use std::convert::Infallible;
use std::env;
use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

use resync_hub::Pulse;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

#[derive(Debug)]
pub(super) struct Systemd {
    socket: Option<UnixDatagram>,
    /// How long the watchdog waits for a sign of life (`WatchdogSec`).
    patience: Option<Duration>,
}

impl Systemd {
    pub(super) fn of_process() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let connected = connect(&name);
            connected.inspect_err(|error| warn!(?name, %error, "systemd cannot be told anything")).ok()
        });
        Self { socket, patience: patience(|name| env::var(name).ok()) }
    }

    /// Nobody is waited for: a hub that cannot tell how it is goes on.
    pub(super) fn tell(&self, lines: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(lines.as_bytes())) {
            warn!(lines, %error, "systemd was not told");
        }
    }

    /// Tells the watchdog that the hub is alive, twice within its patience, while every part of it answers.
    pub(super) async fn tell_of_life(&self, pulse: &Pulse) -> Infallible {
        let Some(patience) = self.patience else { return pending().await };
        let mut beats = interval((patience / 2).max(Duration::from_millis(1)));
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            match pulse.silent() {
                None => self.tell("WATCHDOG=1"),
                Some(part) => self.tell(&format!("STATUS={part} has not answered for a minute")),
            }
        }
    }
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
    use tokio::sync::watch;
    use tokio::time::timeout;

    use super::*;

    fn signs_of_life(told: &UnixDatagram) -> usize {
        let mut line = [0; 100];
        let all = std::iter::from_fn(|| told.recv(&mut line).ok().map(|length| line[..length].to_vec()));
        all.filter(|line| line == b"WATCHDOG=1").count()
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_told_of_life_twice_within_its_patience_and_not_while_a_part_is_silent() {
        let (socket, told) = UnixDatagram::pair().unwrap();
        told.set_nonblocking(true).unwrap();
        let systemd = Systemd { socket: Some(socket), patience: Some(Duration::from_secs(30)) };
        let (_stop, stopped) = watch::channel(false);
        let pulse = Pulse::default();
        tokio::spawn(pulse.clone().keep("the writer", pending::<Result<(), ()>>, stopped));
        let until = |seconds| timeout(Duration::from_secs(seconds), systemd.tell_of_life(&pulse));
        assert!(until(59).await.is_err());
        assert_eq!(signs_of_life(&told), 4);
        assert!(until(100).await.is_err());
        assert_eq!(signs_of_life(&told), 1, "it was silent from the 60th second on");
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
