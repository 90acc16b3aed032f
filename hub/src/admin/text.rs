//! Durations, sizes and states as short texts.

use std::fmt;
use std::time::Duration;

use crate::delivery::WaitsFor;
use crate::store::{ContentKind, FailureClass};

/// A length of time in its two largest units.
#[derive(Clone, Copy, Debug)]
pub struct Lasting(pub Duration);

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
        match (days, hours, minutes, seconds % 60) {
            (0, 0, 0, 0) => write!(f, "{} ms", self.0.as_millis()),
            (0, 0, 0, seconds) => write!(f, "{seconds} s"),
            (0, 0, minutes, seconds) => write!(f, "{minutes} min {seconds} s"),
            (0, hours, minutes, _) => write!(f, "{hours} h {minutes} min"),
            (days, hours, ..) => write!(f, "{days} d {hours} h"),
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&bytesize::ByteSize(self.0).display().iec(), f)
    }
}

/// A number with what is counted, in singular or plural.
pub fn counted(count: impl TryInto<u64> + fmt::Display, one: &str, many: &str) -> String {
    let number = count.to_string();
    let what = if count.try_into().ok() == Some(1) { one } else { many };
    format!("{number} {what}")
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_told_otherwise_than_many() {
        let told = |count: usize| counted(count, "host", "hosts");
        assert_eq!([told(0), told(1), told(21)], ["0 hosts", "1 host", "21 hosts"]);
    }

    #[test]
    fn times_are_told_in_their_two_largest_units() {
        let told = |millis| Lasting(Duration::from_millis(millis)).to_string();
        assert_eq!(
            [told(7), told(59_000), told(61_000), told(3_720_000), told(90_000_000)],
            ["7 ms", "59 s", "1 min 1 s", "1 h 2 min", "1 d 1 h"]
        );
    }
}
