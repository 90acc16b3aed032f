//! States as short texts.

use std::time::Duration;

pub use resync_common::words::{Lasting, Size, counted};

use crate::delivery::WaitsFor;
use crate::store::{ContentKind, FailureClass};

/// Why something is late.
pub(super) fn class(class: FailureClass) -> &'static str {
    match class {
        FailureClass::NotFailed => "slow",
        FailureClass::Refused => "refused",
        FailureClass::Trouble => "trouble",
        FailureClass::Gone => "gone",
        FailureClass::Unsent => "unsent",
    }
}

/// How content of a topic comes in.
pub(super) fn kind(kind: ContentKind) -> &'static str {
    match kind {
        ContentKind::Posted => "posted",
        ContentKind::Fetched => "fetched",
    }
}

/// What a subscription waits for, as a sentence.
pub(super) fn waits(waits: WaitsFor, breaker_open_for: Option<Duration>, paused: bool) -> String {
    match (waits, breaker_open_for) {
        (WaitsFor::Nothing, _) => "Nothing waits for it.".to_owned(),
        _ if paused => "Its topic is paused: nothing is delivered until it is resumed.".to_owned(),
        (WaitsFor::UnderWay, _) => "A request is under way.".to_owned(),
        (_, Some(pause)) => {
            format!("The circuit breaker of its host is open; the next attempt is in {}.", Lasting(pause))
        }
        (WaitsFor::Attempt(pause), None) => format!("The next attempt is in {}.", Lasting(pause)),
        (WaitsFor::Host, None) => "It waits for the concurrency limit of its host.".to_owned(),
        (WaitsFor::Sweep, None) => "It waits for its turn in the current sweep.".to_owned(),
    }
}
