//! The identity of a notification: the same on every attempt and on every node, so that a subscriber can de-duplicate.

use std::{fmt, num::ParseIntError, str::FromStr};

/// Header of a delivery that carries the [`NotificationId`].
pub const WEBHOOK_ID: &str = "webhook-id";
/// Header of a delivery that carries the number of the attempt, from 1.
pub const WEBHOOK_ATTEMPT: &str = "webhook-attempt";

/// Header of a test delivery, which a subscriber asked for: it is no notification.
pub const WEBHOOK_TEST: &str = "webhook-test";

/// Which notification of which topic: printed as `<topic, 16 lower-case hexadecimal digits>.<offset, decimal>`.
///
/// Offsets of one topic only grow, so a subscriber that remembers the last one knows what it has already seen.
/// Exactly one spelling of an id is accepted, so equal ids are equal texts.
///
/// ```
/// use resync_core::websub::NotificationId;
///
/// let id: NotificationId = "00000000000000ff.42".parse()?;
/// assert_eq!(id, NotificationId { topic: 255, offset: 42 });
/// assert_eq!(id.to_string(), "00000000000000ff.42");
/// # Ok::<(), resync_core::websub::NotificationIdError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotificationId {
    /// The hub's number for the topic.
    pub topic: u64,
    /// The notification's place in the topic's log.
    pub offset: u64,
}

/// Why a text is no [`NotificationId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotificationIdError {
    /// Nothing separates topic and offset.
    #[error("a notification id has the form <topic>.<offset>: the dot is missing")]
    NoDot,
    /// The part before the dot is wrong.
    #[error("the topic of a notification id must be 16 lower-case hexadecimal digits")]
    Topic,
    /// The part after the dot is wrong.
    #[error(
        "the offset of a notification id must be a decimal number up to {} without leading zeros",
        u64::MAX
    )]
    Offset,
}

impl fmt::Display for NotificationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{}", self.topic, self.offset)
    }
}

impl FromStr for NotificationId {
    type Err = NotificationIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (topic, offset) = text.split_once('.').ok_or(NotificationIdError::NoDot)?;
        Ok(Self {
            topic: canonical(topic, |t| u64::from_str_radix(t, 16), |n| format!("{n:016x}"))
                .ok_or(NotificationIdError::Topic)?,
            offset: canonical(offset, str::parse, |n| n.to_string()).ok_or(NotificationIdError::Offset)?,
        })
    }
}

fn canonical(
    text: &str,
    read: impl Fn(&str) -> Result<u64, ParseIntError>,
    write: impl Fn(u64) -> String,
) -> Option<u64> {
    read(text).ok().filter(|&number| write(number) == text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_other_spelling_is_refused_by_its_cause() {
        use NotificationIdError::{NoDot, Offset, Topic};
        let cases = [
            ("", NoDot),
            ("0000000000000001", NoDot),
            (".1", Topic),
            ("1.1", Topic),
            ("00000000000000FF.1", Topic),
            ("+00000000000000f.1", Topic),
            ("10000000000000000.1", Topic),
            ("0000000000000001.", Offset),
            ("0000000000000001.01", Offset),
            ("0000000000000001.+1", Offset),
            ("0000000000000001.-1", Offset),
            ("0000000000000001.1.1", Offset),
            ("0000000000000001.18446744073709551616", Offset),
        ];
        for (text, cause) in cases {
            assert_eq!(text.parse::<NotificationId>(), Err(cause), "{text}");
        }
    }

    #[test]
    fn ids_of_a_topic_are_ordered_by_offset() {
        assert!(NotificationId { topic: 7, offset: 9 } < NotificationId { topic: 7, offset: 10 });
    }

    proptest! {
        #[test]
        fn printing_then_parsing_gives_the_same_id(topic: u64, offset: u64) {
            let id = NotificationId { topic, offset };
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn what_is_accepted_prints_as_it_was_written(text in "[0-9a-f]{15,17}\\.[0-9]{0,21}|\\PC{0,40}") {
            if let Ok(id) = text.parse::<NotificationId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
