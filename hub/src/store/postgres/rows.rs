//! The values of rows, and of parameters.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, TopicUrl};
use sha2::{Digest as _, Sha256};
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Column, Row};

use crate::store::encoding::fields::{since_1970, time};
use crate::store::encoding::layout::TopicState;
use crate::store::{FailureClass, Offset, Payer, Result, Shard, StoreError, Topic, TopicId};

/// A parameter of a statement.
pub(super) type Param = Box<dyn ToSql + Sync + Send>;

/// The parameters of a statement, in their order.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        Vec::<$crate::store::postgres::rows::Param>::from([$(Box::new($value) as $crate::store::postgres::rows::Param),*])
    };
}
pub(super) use params;

/// A row, read column by column. Whatever does not fit is damage, and says where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    space: &'static str,
    row: &'a Row,
}

impl<'a> Fields<'a> {
    /// `space` is what errors call the kind of record.
    pub(super) fn of(space: &'static str, row: &'a Row) -> Self {
        Self { space, row }
    }

    /// The value of a column, as the driver reads it.
    pub(super) fn get<T: FromSql<'a>>(self, column: &str) -> Result<T> {
        self.row.try_get(column).map_err(|error| self.damaged(column, error))
    }

    /// What is wrong with this row.
    pub(super) fn damaged(self, column: &str, reason: impl std::fmt::Display) -> StoreError {
        StoreError::Damaged { space: self.space, reason: format!("column {column}: {reason}") }
    }

    pub(super) fn number(self, column: &str) -> Result<u64> {
        self.maybe_number(column)?.ok_or_else(|| self.damaged(column, "there is no number"))
    }

    pub(super) fn maybe_number(self, column: &str) -> Result<Option<u64>> {
        self.maybe_small(column)
    }

    /// A whole number of any width that has to fit a type.
    pub(super) fn small<T: TryFrom<i64>>(self, column: &str) -> Result<T> {
        self.maybe_small(column)?.ok_or_else(|| self.damaged(column, "there is no number"))
    }

    pub(super) fn maybe_small<T: TryFrom<i64>>(self, column: &str) -> Result<Option<T>> {
        let known = self.row.columns().iter().find(|known| known.name() == column);
        let number = match known.map(Column::type_) {
            Some(&Type::INT2) => self.get::<Option<i16>>(column)?.map(i64::from),
            Some(&Type::INT4) => self.get::<Option<i32>>(column)?.map(i64::from),
            _ => self.get::<Option<i64>>(column)?,
        };
        let fit = |number: i64| T::try_from(number).map_err(|_| self.damaged(column, "it is out of range"));
        number.map(fit).transpose()
    }

    pub(super) fn flag(self, column: &str) -> Result<bool> {
        self.get(column)
    }

    pub(super) fn moment(self, column: &str) -> Result<DateTime> {
        self.get(column).map(DateTime::from_system_time)
    }

    pub(super) fn maybe_moment(self, column: &str) -> Result<Option<DateTime>> {
        Ok(self.get::<Option<SystemTime>>(column)?.map(DateTime::from_system_time))
    }

    /// A duration in microseconds.
    pub(super) fn duration(self, column: &str) -> Result<Duration> {
        self.number(column).map(Duration::from_micros)
    }

    pub(super) fn maybe_duration(self, column: &str) -> Result<Option<Duration>> {
        Ok(self.maybe_number(column)?.map(Duration::from_micros))
    }

    pub(super) fn bytes(self, column: &str) -> Result<Vec<u8>> {
        self.get(column)
    }

    pub(super) fn maybe_bytes(self, column: &str) -> Result<Option<Vec<u8>>> {
        self.get(column)
    }

    pub(super) fn text(self, column: &str) -> Result<String> {
        self.get(column)
    }

    pub(super) fn topic_url(self, column: &str) -> Result<TopicUrl> {
        TopicUrl::parse(self.get(column)?).map_err(|error| self.damaged(column, error))
    }

    pub(super) fn callback(self, column: &str) -> Result<CallbackUrl> {
        CallbackUrl::parse(self.get(column)?).map_err(|error| self.damaged(column, error))
    }

    pub(super) fn address(self, column: &str) -> Result<Option<IpAddr>> {
        self.get(column)
    }

    /// A topic with the bounds of its log: the columns `id, url, first, head, latest, posted`.
    pub(super) fn topic(self) -> Result<Topic> {
        Ok(Topic {
            id: TopicId(self.number("id")?),
            url: self.topic_url("url")?,
            first: Offset(self.number("first")?),
            head: Offset(self.number("head")?),
            latest: Offset(self.number("latest")?),
            posted: Offset(self.number("posted")?),
        })
    }

    /// The record of a topic: also the columns `bytes, oldest, for_publishers, network`.
    pub(super) fn topic_state(self) -> Result<TopicState> {
        let payer = if self.flag("for_publishers")? {
            Payer::Publishers
        } else {
            Payer::Strangers(self.address("network")?)
        };
        let (bytes, oldest) = (self.number("bytes")?, self.maybe_moment("oldest")?);
        Ok(TopicState { topic: self.topic()?, bytes, oldest, payer })
    }

    pub(super) fn class(self, column: &str) -> Result<FailureClass> {
        class_of(self.small(column)?).ok_or_else(|| self.damaged(column, "this class of failure is unknown"))
    }
}

/// A number as the database has it. What is larger than any that was given out stays larger than all of them.
pub(super) fn big(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A limit as the database has it.
pub(super) fn at_most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A duration in microseconds.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A moment as the database has it: whole microseconds since 1970.
pub(super) fn micros_of(moment: DateTime) -> i64 {
    let (seconds, nanos) = since_1970(moment.to_system_time());
    seconds.saturating_mul(1_000_000).saturating_add(i64::from(nanos / 1_000))
}

/// A number that is in the database.
pub(super) fn whole(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// A shard as the database has it: there are never more than it can count.
pub(super) fn shard_number(shard: Shard) -> i16 {
    i16::try_from(shard.0).unwrap_or(i16::MAX)
}

pub(super) fn shard_numbers(shards: &[Shard]) -> Vec<i16> {
    shards.iter().copied().map(shard_number).collect()
}

/// The row of a statement that always gives one.
pub(super) fn the_only(rows: &[Row]) -> Result<&Row> {
    rows.first().ok_or_else(|| StoreError::Read("a statement gave no row".to_owned()))
}

/// By what a topic is found.
pub(super) fn topic_key(url: &TopicUrl) -> Vec<u8> {
    Sha256::digest(url.key().as_bytes()).to_vec()
}

/// An identity that nobody else has.
pub(super) fn random_id() -> i64 {
    big(TopicId::random().0)
}

pub(super) fn class_tag(class: FailureClass) -> i16 {
    class.tag().into()
}

fn class_of(tag: i16) -> Option<FailureClass> {
    u8::try_from(tag).ok().and_then(FailureClass::of_tag)
}

/// A moment to the nanosecond, in twelve bytes that compare like it.
pub(super) fn exactly(moment: DateTime) -> Vec<u8> {
    let (seconds, nanos) = since_1970(moment.to_system_time());
    [(seconds ^ i64::MIN).to_be_bytes().as_slice(), &nanos.to_be_bytes()].concat()
}

/// The moment that was written so.
pub(super) fn moment_of(written: &[u8]) -> Option<DateTime> {
    let (seconds, nanos) = written.split_first_chunk()?;
    let (seconds, nanos) = (i64::from_be_bytes(*seconds), u32::from_be_bytes(nanos.try_into().ok()?));
    time(seconds ^ i64::MIN, nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_exact_moment_comes_back_and_compares_like_itself(
            one in (-60_000_000_000_i64..250_000_000_000, 0..1_000_000_000_u32),
            other in (-60_000_000_000_i64..250_000_000_000, 0..1_000_000_000_u32),
        ) {
            let [one, other] = [one, other].map(|(seconds, nanos)| time(seconds, nanos).unwrap());
            prop_assert_eq!(moment_of(&exactly(one)), Some(one));
            prop_assert_eq!(exactly(one).cmp(&exactly(other)), one.cmp(&other));
        }
    }

    #[test]
    fn every_class_of_failure_comes_back_and_no_other() {
        for class in [
            FailureClass::NotFailed,
            FailureClass::Refused,
            FailureClass::Trouble,
            FailureClass::Gone,
            FailureClass::Unsent,
        ] {
            assert_eq!(class_of(class_tag(class)), Some(class));
        }
        assert_eq!(class_of(5), None);
        assert_eq!(moment_of(&[0; 11]), None);
    }
}
