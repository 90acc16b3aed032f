//! `priority` of the sitemap protocol, kept for a round trip.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A number from 0.0 to 1.0, to a thousandth.
///
/// ```
/// use resync_core::document::{Priority, PriorityError};
///
/// let priority: Priority = "0.80".parse()?;
/// assert_eq!(priority.to_string(), "0.8");
/// assert!("1.1".parse::<Priority>().is_err());
/// # Ok::<(), PriorityError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u16);

/// A `priority` that is no number from 0.0 to 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a priority is a number from 0.0 to 1.0")]
pub struct PriorityError;

impl Priority {
    /// A priority in thousandths, at most 1000.
    pub const fn from_thousandths(thousandths: u16) -> Result<Self, PriorityError> {
        if thousandths <= 1000 { Ok(Self(thousandths)) } else { Err(PriorityError) }
    }

    /// The priority in thousandths.
    pub const fn thousandths(self) -> u16 {
        self.0
    }
}

impl FromStr for Priority {
    type Err = PriorityError;

    /// Reads a decimal number; what lies below a thousandth is cut off.
    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let text = text.trim_ascii();
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
            return Err(PriorityError);
        }
        let parts = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
        let thousandths = parts.fold(0, |sum, byte| sum * 10 + u16::from(byte - b'0'));
        match (whole.trim_start_matches('0'), fraction.trim_end_matches('0')) {
            ("", _) => Ok(Self(thousandths)),
            ("1", "") => Ok(Self(1000)),
            _ => Err(PriorityError),
        }
    }
}

impl fmt::Display for Priority {
    /// With one to three places.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        match (rest % 10, rest % 100) {
            (_, 0) => write!(f, "{whole}.{}", rest / 100),
            (0, _) => write!(f, "{whole}.{:02}", rest / 10),
            _ => write!(f, "{whole}.{rest:03}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_priority_is_read_back() {
        for thousandths in 0..=1000 {
            let priority = Priority::from_thousandths(thousandths).unwrap();
            assert_eq!(priority.to_string().parse(), Ok(priority));
        }
        assert_eq!(Priority::from_thousandths(1001), Err(PriorityError));
    }

    #[test]
    fn decimals_are_read_and_everything_else_is_refused() {
        for (text, thousandths) in
            [("1", 1000), ("1.00", 1000), ("0", 0), (".5", 500), ("0.1239", 123), (" 0.5 ", 500)]
        {
            assert_eq!(text.parse(), Priority::from_thousandths(thousandths), "{text:?}");
        }
        for text in ["", ".", "-0.1", "1.001", "2", "10", "0,5", "high", "0.5.1"] {
            assert_eq!(text.parse::<Priority>(), Err(PriorityError), "{text:?}");
        }
    }
}
