//! A version's place in time as URIs have it: 14 digits, and how many versions came before it in the same second (MEM-032).

use std::{fmt, str::FromStr};

use crate::datetime::DateTime;

use super::HttpDate;

/// The digits of year, month, day, hour, minute and second.
const DIGITS: usize = 14;

/// Names one version of a resource, and never another one.
///
/// HTTP dates have whole seconds: of the versions of one second the first has the bare digits, the next one `-1`, the next
/// one `-2`.
///
/// ```
/// use resync_core::memento::{Stamp, StampError};
///
/// let stamp: Stamp = "20240601120000-1".parse()?;
/// assert_eq!(stamp, Stamp::new("2024-06-01T12:00:00.5Z".parse().unwrap(), 1));
/// assert_eq!(stamp.at.to_string(), "Sat, 01 Jun 2024 12:00:00 GMT");
/// assert_eq!(stamp.to_string(), "20240601120000-1");
/// # Ok::<(), StampError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The second in which the version came to be.
    pub at: HttpDate,
    /// How many versions of the resource came earlier in this second.
    pub ordinal: u64,
}

/// A text is no [`Stamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a moment in 14 digits, such as 20240601120000")]
pub struct StampError;

impl Stamp {
    /// The version that came to be at `moment` after `ordinal` others in the same second.
    pub fn new(moment: DateTime, ordinal: u64) -> Self {
        Self { at: moment.into(), ordinal }
    }
}

impl FromStr for Stamp {
    type Err = StampError;

    fn from_str(text: &str) -> Result<Self, StampError> {
        let (digits, rest) = text.split_at_checked(DIGITS).ok_or(StampError)?;
        let stamp = Self { at: date(digits).ok_or(StampError)?, ordinal: ordinal(rest).ok_or(StampError)? };
        // Each version has one URI.
        if stamp.to_string() == text { Ok(stamp) } else { Err(StampError) }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.at.datetime().text();
        for digit in text.as_str().split(['-', 'T', ':', 'Z']) {
            f.write_str(digit)?;
        }
        if self.ordinal > 0 { write!(f, "-{}", self.ordinal) } else { Ok(()) }
    }
}

fn date(digits: &str) -> Option<HttpDate> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (day, time) = digits.split_at(8);
    let (year, day) = day.split_at(4);
    let (month, day) = day.split_at(2);
    let (hour, rest) = time.split_at(2);
    let (minute, second) = rest.split_at(2);
    let text = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    text.parse::<DateTime>().ok().map(HttpDate::from)
}

fn ordinal(rest: &str) -> Option<u64> {
    if rest.is_empty() { Some(0) } else { rest.strip_prefix('-')?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mem032_the_later_of_two_versions_in_one_second_has_the_digits_and_a_number() {
        let at: HttpDate = "Sat, 01 Jun 2024 12:00:00 GMT".parse().unwrap();
        assert_eq!(Stamp { at, ordinal: 0 }.to_string(), "20240601120000");
        assert_eq!(Stamp { at, ordinal: 1 }.to_string(), "20240601120000-1");
        assert_eq!("20240601120000-12".parse(), Ok(Stamp { at, ordinal: 12 }));
    }

    #[test]
    fn mem020_what_is_not_14_digits_of_a_moment_is_no_stamp() {
        let refused = [
            "",
            "2024",
            "2024060112000",
            "202406011200000",
            "20240601120000-",
            "20240601120000-0",
            "20240601120000-01",
            "20240601120000-+1",
            "20240601120000-18446744073709551616",
            "20240601120000id_",
            "20241301120000",
            "20240631120000",
            "20240601240000",
            "20240601120060",
            "0000010100000\u{660}",
            "2024060112000\u{fc}",
            "+0240601120000",
        ];
        for text in refused {
            assert_eq!(text.parse::<Stamp>(), Err(StampError), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_stamp_is_read_as_it_was_printed(second in -62_135_596_800_i64..253_402_000_000, ordinal in any::<u64>()) {
            let at = HttpDate::from(DateTime::from_unix_millis(second * 1000).unwrap());
            let stamp = Stamp { at, ordinal };
            prop_assert_eq!(stamp.to_string().parse::<Stamp>(), Ok(stamp));
        }
    }
}
