//! Whether a file is still the one that was read, as far as that can be seen without reading it again.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use thiserror::Error;

use super::Item;

/// Rest that a file system with times finer than seconds needs, so that another change would have another time.
const FINE: Duration = Duration::from_millis(50);
/// The same for whole seconds, of which some file systems only have every second one.
const COARSE: Duration = Duration::from_secs(3);
/// In nanoseconds.
const SECOND: i128 = 1_000_000_000;

/// What a file was like when it was read: length, times of its content and of its record, and number.
///
/// Two equal stamps of one path mean that nobody has written to it in between. There is none for a file that had changed so shortly before
/// it was read that another change could have left the same times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    length: u64,
    modified: i128,
    changed: i128,
    number: u64,
}

/// A resource as an earlier walk found it, and how to see that its file is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The resource.
    pub item: Item,
    /// Its file, if that had come to rest.
    pub stamp: Option<Stamp>,
}

/// A text that is no [`Stamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a file stamp: write it as it was printed, four numbers separated by `:`")]
pub struct StampError;

impl Stamp {
    /// The stamp of a file now, whether or not it has come to rest.
    pub fn of(metadata: &Metadata) -> io::Result<Self> {
        let (changed, number) = record(metadata);
        Ok(Self { length: metadata.len(), modified: nanoseconds(metadata.modified()?), changed, number })
    }

    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn of_status(status: &rustix::fs::Stat) -> Self {
        // Which integers they are depends on the architecture.
        fn time(seconds: impl Into<i128>, rest: impl Into<i128>) -> i128 {
            seconds.into() * SECOND + rest.into()
        }
        Self {
            length: status.st_size.cast_unsigned(),
            modified: time(status.st_mtime, status.st_mtime_nsec),
            changed: time(status.st_ctime, status.st_ctime_nsec),
            number: status.st_ino,
        }
    }

    /// In bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// When the content was last modified.
    pub(super) fn modified(&self) -> SystemTime {
        let part = |nanoseconds: u128| u64::try_from(nanoseconds).unwrap_or(u64::MAX);
        let (distance, second) = (self.modified.unsigned_abs(), SECOND.unsigned_abs());
        let distance = Duration::from_secs(part(distance / second))
            .saturating_add(Duration::from_nanos(part(distance % second)));
        let time = if self.modified < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(distance)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(distance)
        };
        time.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Whether nobody has written to it in between, going by length and time.
    pub(super) fn is_same_content(&self, later: &Self) -> bool {
        (self.length, self.modified) == (later.length, later.modified)
    }

    /// Whether a file that was read from this moment on had come to rest before.
    pub(super) fn is_at_rest(&self, reading: SystemTime) -> bool {
        let last = self.modified.max(self.changed);
        let is_coarse = [self.modified, self.changed].iter().all(|time| time % SECOND == 0);
        let rest = if is_coarse { COARSE } else { FINE };
        last + i128::try_from(rest.as_nanos()).unwrap_or(i128::MAX) < nanoseconds(reading)
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { length, modified, changed, number } = self;
        // Times of our centuries; wider numbers take several times as long to print.
        match (i64::try_from(*modified), i64::try_from(*changed)) {
            (Ok(modified), Ok(changed)) => write!(f, "{length}:{modified}:{changed}:{number}"),
            _ => write!(f, "{length}:{modified}:{changed}:{number}"),
        }
    }
}

impl FromStr for Stamp {
    type Err = StampError;

    fn from_str(text: &str) -> Result<Self, StampError> {
        fn part<T: FromStr>(part: Option<&str>) -> Result<T, StampError> {
            part.and_then(|part| part.parse().ok()).ok_or(StampError)
        }
        let mut parts = text.splitn(4, ':');
        Ok(Self {
            length: part(parts.next())?,
            modified: part(parts.next())?,
            changed: part(parts.next())?,
            number: part(parts.next())?,
        })
    }
}

fn nanoseconds(time: SystemTime) -> i128 {
    let signed = |duration: Duration| i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => signed(since),
        Err(before) => -signed(before.duration()),
    }
}

/// When the file's record last changed, which nobody can set back, and its number.
#[cfg(unix)]
fn record(metadata: &Metadata) -> (i128, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (i128::from(metadata.ctime()) * SECOND + i128::from(metadata.ctime_nsec()), metadata.ino())
}

#[cfg(not(unix))]
fn record(_: &Metadata) -> (i128, u64) {
    (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_printed_and_nothing_else_is() {
        let stamp = Stamp { length: 5, modified: -7, changed: 1_800_000_000_123_456_789, number: u64::MAX };
        assert_eq!(stamp.to_string().parse(), Ok(stamp));
        for text in ["", "1:2:3", "1:2:3:4:5", "-1:2:3:4", "a:b:c:d"] {
            assert_eq!(text.parse::<Stamp>(), Err(StampError), "{text}");
        }
    }

    #[test]
    fn times_before_1970_and_centuries_from_now_are_those_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let far = Duration::new(20_000_000_000, 7);
        for time in [SystemTime::UNIX_EPOCH - Duration::new(5, 3), SystemTime::UNIX_EPOCH + far] {
            let stamp = Stamp {
                modified: nanoseconds(time),
                ..Stamp::of(&file.as_file().metadata().unwrap()).unwrap()
            };
            assert_eq!(stamp.modified(), time);
        }
    }

    #[test]
    fn a_file_that_changed_just_before_it_was_read_is_not_at_rest() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let written = metadata.modified().unwrap();
        let stamp = Stamp::of(&metadata).unwrap();
        assert!(!stamp.is_at_rest(written));
        assert!(stamp.is_at_rest(written + Duration::from_secs(10)));
        assert_eq!(stamp.modified(), written);
    }
}
