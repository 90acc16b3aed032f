//! What happens to a copy that is kept in step.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use resync_common::words::Lasting;
use resync_core::datetime::DateTime;
use resync_core::websub::key::TopicUrl;

use crate::sync::{Report, VersionsReport};

/// What happens to a copy that is kept in step.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ListenEvent {
    /// The callback server is up.
    Listening {
        /// Its address.
        address: SocketAddr,
    },
    /// The hub granted a lease.
    Subscribed {
        /// The topic.
        topic: TopicUrl,
        /// When the lease ends.
        until: DateTime,
    },
    /// A notification asks for a synchronisation.
    Notified,
    /// Change Notifications are missing before one that arrived (CN-016). The Change List is read instead.
    Gap {
        /// Up to when all changes are known.
        known_until: DateTime,
        /// Since when changes are known again.
        from: DateTime,
    },
    /// A synchronisation ended.
    Synchronised(Box<Report>),
    /// Versions that the last synchronisations were told of were fetched, or failed.
    VersionsFetched(Box<VersionsReport>),
    /// The hook succeeded for a notification.
    HookDone,
    /// The hook failed; it is run for the same notification again before any other.
    HookFailed {
        /// Why.
        cause: String,
        /// After how long.
        retry_in: Duration,
    },
    /// The copy cannot be kept any longer. Other copies continue.
    Stopped {
        /// Why.
        cause: String,
    },
    /// A synchronisation failed, for example because the Source is unreachable; it is tried again.
    SyncFailed {
        /// Why.
        cause: String,
        /// After how long it is tried again.
        retry_in: Duration,
    },
}

impl ListenEvent {
    /// Its name for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Listening { .. } => "listening",
            Self::Subscribed { .. } => "subscribed",
            Self::Notified => "notified",
            Self::Gap { .. } => "gap",
            Self::Synchronised(_) => "synchronised",
            Self::VersionsFetched(_) => "versions-fetched",
            Self::HookDone => "command-done",
            Self::HookFailed { .. } => "command-failed",
            Self::Stopped { .. } => "stopped",
            Self::SyncFailed { .. } => "sync-failed",
        }
    }
}

impl fmt::Display for ListenEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Scripts may wait for these two.
            Self::Listening { address } => write!(f, "listening on http://{address}"),
            Self::Subscribed { topic, until } => write!(f, "subscribed to {} until {until}", topic.as_str()),
            Self::Notified => f.write_str("notified: the Source changed"),
            Self::Gap { known_until, from } => {
                write!(f, "notifications from {known_until} to {from} are missing; reading the lists")
            }
            Self::Synchronised(report) => {
                let Report { created, updated, deleted, failed, .. } = &**report;
                let verdict = if report.in_step() { "in step" } else { "not in step" };
                write!(
                    f,
                    "{verdict}: {created} created, {updated} updated, {deleted} deleted, {failed} failed"
                )
            }
            Self::VersionsFetched(report) => {
                let VersionsReport { kept, waiting, failed, lost, .. } = &**report;
                write!(f, "versions: {kept} kept, {failed} failed, {lost} lost, {waiting} waiting")
            }
            Self::HookDone => f.write_str("the command is done"),
            Self::HookFailed { cause, retry_in } => {
                write!(f, "the command failed: {cause}; next try in {}", Lasting(*retry_in))
            }
            Self::Stopped { cause } => write!(f, "stopped: {cause}"),
            Self::SyncFailed { cause, retry_in } => {
                write!(f, "not in step: {cause}; next try in {}", Lasting(*retry_in))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_an_address_and_a_pause_as_the_command_line_does() {
        let address = SocketAddr::from(([127, 0, 0, 1], 8092));
        assert_eq!(ListenEvent::Listening { address }.to_string(), "listening on http://127.0.0.1:8092");
        let (cause, retry_in) = ("it is away".to_owned(), Duration::from_secs(300));
        let failed = ListenEvent::SyncFailed { cause, retry_in };
        assert_eq!(failed.to_string(), "not in step: it is away; next try in 5 min 0 s");
    }
}
