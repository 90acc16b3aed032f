//! The datetimes of ResourceSync documents: every W3C form in (RS-026), one UTC form out (RS-027).

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::civil;
use jiff::tz::Offset;
use jiff::{Timestamp, Unit};
use thiserror::Error;

/// An instant in UTC with nanosecond precision, between the years 0001 and 9999.
///
/// Reads all W3C Datetime forms; a partial form (`2026`, `2026-01`, `2026-01-03`) means the first instant of its
/// period in UTC. Prints `YYYY-MM-DDThh:mm:ss[.fraction]Z`, the fraction only when it is not zero.
///
/// ```
/// use resync_core::datetime::{DateTime, DateTimeError};
///
/// let moment: DateTime = "2026-01-03T01:30:00.50+02:00".parse()?;
/// assert_eq!(moment.to_string(), "2026-01-02T23:30:00.5Z");
/// assert_eq!("2026-01-03T01:30:00".parse::<DateTime>(), Err(DateTimeError::ZoneMissing));
/// # Ok::<(), DateTimeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateTime(Timestamp);

/// Why a text or number is no [`DateTime`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DateTimeError {
    /// Nothing but white space.
    #[error("the datetime is empty; write it as 2026-01-03T09:00:00Z")]
    Empty,
    /// None of the W3C forms.
    #[error("not a W3C datetime; write it as 2026-01-03T09:00:00Z")]
    Form,
    /// A time of day without `Z` or an offset, so the instant is not known.
    #[error("the time has no zone; end it with Z or an offset such as +02:00")]
    ZoneMissing,
    /// The month or the day does not exist in the calendar.
    #[error("no such day in the calendar")]
    Date,
    /// Hour, minute or second out of range.
    #[error("no such time of day; hours end at 23, minutes and seconds at 59")]
    Time,
    /// An offset that is not `±hh:mm` with hours up to 23 and minutes up to 59.
    #[error("the zone is neither Z nor an offset such as +02:00")]
    Zone,
    /// Outside the years 0001 to 9999 in UTC.
    #[error("the datetime lies outside the years 0001 to 9999")]
    OutOfRange,
}

impl DateTime {
    /// The current instant, truncated to milliseconds.
    pub fn now() -> Self {
        let now = Self::from_system_time(SystemTime::now());
        Self::from_unix_millis(now.unix_millis()).unwrap_or(now)
    }

    /// The instant of a file system or operating system clock; one outside the years 0001 to 9999 becomes the nearest end.
    pub fn from_system_time(time: SystemTime) -> Self {
        let timestamp = Timestamp::try_from(time)
            .unwrap_or_else(|_| if time < SystemTime::UNIX_EPOCH { Timestamp::MIN } else { Timestamp::MAX });
        Self(timestamp.max(earliest()))
    }

    /// The same instant for the standard library.
    pub fn to_system_time(self) -> SystemTime {
        self.0.into()
    }

    /// How long it is until another instant; nothing if that is earlier.
    pub fn duration_until(self, other: Self) -> Duration {
        other.to_system_time().duration_since(self.to_system_time()).unwrap_or_default()
    }

    /// An instant from milliseconds since 1970-01-01T00:00:00Z.
    pub fn from_unix_millis(millis: i64) -> Result<Self, DateTimeError> {
        Timestamp::from_millisecond(millis).map_err(|_| DateTimeError::OutOfRange).and_then(Self::in_range)
    }

    /// Whole milliseconds since 1970-01-01T00:00:00Z, rounded down.
    pub fn unix_millis(self) -> i64 {
        let below = i64::from(self.0.subsec_nanosecond() < 0 && self.0.subsec_nanosecond() % 1_000_000 != 0);
        self.0.as_millisecond() - below
    }

    /// The same instant without its fraction of a second, as HTTP dates and many file systems give it.
    #[must_use]
    pub fn truncate_to_seconds(self) -> Self {
        let rounding = jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Floor);
        self.0.round(rounding).map_or(self, Self)
    }

    /// The text that is printed, as it is needed many times over.
    pub(crate) fn text(self) -> Text {
        let civil = Offset::UTC.to_datetime(self.0);
        let mut bytes = *b"0000-00-00T00:00:00.000000000Z";
        put(&mut bytes[0..4], civil.year().unsigned_abs().into());
        put(&mut bytes[5..7], civil.month().unsigned_abs().into());
        put(&mut bytes[8..10], civil.day().unsigned_abs().into());
        put(&mut bytes[11..13], civil.hour().unsigned_abs().into());
        put(&mut bytes[14..16], civil.minute().unsigned_abs().into());
        put(&mut bytes[17..19], civil.second().unsigned_abs().into());
        let nanosecond = civil.subsec_nanosecond().unsigned_abs();
        let mut end = 19;
        if nanosecond > 0 {
            put(&mut bytes[20..29], nanosecond);
            end = bytes[..29].iter().rposition(|&byte| byte != b'0').map_or(end, |last| last + 1);
        }
        bytes[end] = b'Z';
        Text { bytes, length: end + 1 }
    }

    fn in_range(timestamp: Timestamp) -> Result<Self, DateTimeError> {
        if timestamp < earliest() { Err(DateTimeError::OutOfRange) } else { Ok(Self(timestamp)) }
    }
}

/// A [`DateTime`] as it is printed.
pub(crate) struct Text {
    bytes: [u8; 30],
    length: usize,
}

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("digits and the marks between them are ASCII")
    }
}

impl FromStr for DateTime {
    type Err = DateTimeError;

    fn from_str(text: &str) -> Result<Self, DateTimeError> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(DateTimeError::Empty);
        }
        let mut rest = Scanner(text.as_bytes());
        let civil = civil_date(&mut rest)?;
        let (time, offset) = if rest.0.is_empty() {
            (civil::Time::midnight(), Offset::UTC)
        } else {
            time_and_zone(&mut rest)?
        };
        offset
            .to_timestamp(civil.to_datetime(time))
            .map_err(|_| DateTimeError::OutOfRange)
            .and_then(Self::in_range)
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl fmt::Debug for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn earliest() -> Timestamp {
    const YEAR_ONE: i64 = -62_135_596_800;
    Timestamp::from_second(YEAR_ONE).unwrap_or(Timestamp::MIN)
}

#[inline]
fn put(digits: &mut [u8], mut number: u32) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

fn civil_date(rest: &mut Scanner<'_>) -> Result<civil::Date, DateTimeError> {
    let year = rest.number(4).ok_or(DateTimeError::Form)?;
    let month = rest.part_after_dash()?;
    let day = if month.is_some() { rest.part_after_dash()? } else { None };
    if day.is_none() && !rest.0.is_empty() {
        return Err(DateTimeError::Form);
    }
    civil::Date::new(year, month.unwrap_or(1), day.unwrap_or(1)).map_err(|_| DateTimeError::Date)
}

fn time_and_zone(rest: &mut Scanner<'_>) -> Result<(civil::Time, Offset), DateTimeError> {
    rest.byte(b'T').ok_or(DateTimeError::Form)?;
    let hour = rest.small(2).ok_or(DateTimeError::Form)?;
    rest.byte(b':').ok_or(DateTimeError::Form)?;
    let minute = rest.small(2).ok_or(DateTimeError::Form)?;
    let (mut second, mut nanosecond) = (0, 0);
    if rest.byte(b':').is_some() {
        second = rest.small(2).ok_or(DateTimeError::Form)?;
        if rest.byte(b'.').is_some() {
            nanosecond = rest.fraction().ok_or(DateTimeError::Form)?;
        }
    }
    let time = civil::Time::new(hour, minute, second, nanosecond).map_err(|_| DateTimeError::Time)?;
    Ok((time, zone(rest)?))
}

fn zone(rest: &mut Scanner<'_>) -> Result<Offset, DateTimeError> {
    let sign = match rest.0 {
        [] => return Err(DateTimeError::ZoneMissing),
        [b'Z'] => return Ok(Offset::UTC),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return Err(DateTimeError::Zone),
    };
    rest.0 = &rest.0[1..];
    let (hours, minutes) = rest
        .number(2)
        .and_then(|hours| rest.byte(b':').and_then(|()| rest.number(2)).map(|minutes| (hours, minutes)))
        .filter(|&(hours, minutes)| hours < 24 && minutes < 60 && rest.0.is_empty())
        .ok_or(DateTimeError::Zone)?;
    Offset::from_seconds(sign * (i32::from(hours) * 3600 + i32::from(minutes) * 60))
        .map_err(|_| DateTimeError::Zone)
}

/// What is left of the text.
struct Scanner<'a>(&'a [u8]);

impl Scanner<'_> {
    fn byte(&mut self, wanted: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[wanted])?;
        Some(())
    }

    fn number(&mut self, digits: usize) -> Option<i16> {
        let (head, tail) = self.0.split_at_checked(digits)?;
        let value = head
            .iter()
            .try_fold(0_i16, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i16::from(byte - b'0')))?;
        self.0 = tail;
        Some(value)
    }

    fn small(&mut self, digits: usize) -> Option<i8> {
        self.number(digits).and_then(|number| i8::try_from(number).ok())
    }

    fn part_after_dash(&mut self) -> Result<Option<i8>, DateTimeError> {
        match self.byte(b'-') {
            None => Ok(None),
            Some(()) => self.small(2).map(Some).ok_or(DateTimeError::Form),
        }
    }

    /// Any number of digits as nanoseconds; what lies below a nanosecond is cut off.
    fn fraction(&mut self) -> Option<i32> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, tail) = self.0.split_at(count);
        self.0 = tail;
        let nine = digits.iter().copied().chain(std::iter::repeat(b'0')).take(9);
        (count > 0).then(|| nine.fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> String {
        text.parse::<DateTime>().unwrap().to_string()
    }

    #[test]
    fn it_is_some_time_until_a_later_instant_and_none_until_an_earlier_one() {
        let [first, second] =
            ["2026-01-03T01:30:00Z", "2026-01-03T01:30:00.5Z"].map(|text| text.parse::<DateTime>().unwrap());
        assert_eq!(first.duration_until(second), Duration::from_millis(500));
        assert_eq!(second.duration_until(first), Duration::ZERO);
    }

    #[test]
    fn rs026_every_w3c_form_is_read_and_a_partial_form_means_its_first_instant() {
        assert_eq!(utc("2013"), "2013-01-01T00:00:00Z");
        assert_eq!(utc("2013-02"), "2013-02-01T00:00:00Z");
        assert_eq!(utc("2013-02-03"), "2013-02-03T00:00:00Z");
        assert_eq!(utc("2013-02-03T04:05Z"), "2013-02-03T04:05:00Z");
        assert_eq!(utc("2013-02-03T04:05:06Z"), "2013-02-03T04:05:06Z");
        assert_eq!(utc(" 2013-02-03T04:05:06.789Z\n"), "2013-02-03T04:05:06.789Z");
    }

    #[test]
    fn rs029_an_offset_east_of_utc_is_subtracted() {
        assert_eq!(utc("2013-01-01T23:00+01:00"), "2013-01-01T22:00:00Z");
        assert_eq!(utc("2013-01-01T23:00:00-01:30"), "2013-01-02T00:30:00Z");
        assert_eq!(utc("2013-01-01T23:00:00-00:00"), "2013-01-01T23:00:00Z");
    }

    #[test]
    fn rs026_a_time_without_zone_has_its_own_cause() {
        assert_eq!("2013-01-03T09:00:00".parse::<DateTime>(), Err(DateTimeError::ZoneMissing));
        assert_eq!("2013-01-03T09:00".parse::<DateTime>(), Err(DateTimeError::ZoneMissing));
    }

    #[test]
    fn rs026_each_kind_of_nonsense_has_a_named_cause() {
        let cases = [
            ("", DateTimeError::Empty),
            ("  \t", DateTimeError::Empty),
            ("yesterday", DateTimeError::Form),
            ("13-01-03", DateTimeError::Form),
            ("2013-1-3", DateTimeError::Form),
            ("2013T09:00Z", DateTimeError::Form),
            ("2013-01-03 09:00:00Z", DateTimeError::Form),
            ("2013-01-03T09Z", DateTimeError::Form),
            ("2013-01-03T09:00:00.Z", DateTimeError::Form),
            ("2013-02-29", DateTimeError::Date),
            ("2013-13", DateTimeError::Date),
            ("2013-01-03T24:00Z", DateTimeError::Time),
            ("2013-01-03T09:00:60Z", DateTimeError::Time),
            ("2013-01-03T09:00:00z", DateTimeError::Zone),
            ("2013-01-03T09:00:00+0100", DateTimeError::Zone),
            ("2013-01-03T09:00:00+24:00", DateTimeError::Zone),
            ("2013-01-03T09:00:00+01:00x", DateTimeError::Zone),
            ("0000-01-01", DateTimeError::OutOfRange),
            ("9999-12-31", DateTimeError::OutOfRange),
        ];
        for (text, cause) in cases {
            assert_eq!(text.parse::<DateTime>(), Err(cause), "{text:?}");
        }
    }

    #[test]
    fn rs027_the_fraction_is_printed_without_trailing_zeros_and_cut_at_nanoseconds() {
        assert_eq!(utc("2013-01-03T09:00:00.000Z"), "2013-01-03T09:00:00Z");
        assert_eq!(utc("2013-01-03T09:00:10.500Z"), "2013-01-03T09:00:10.5Z");
        assert_eq!(utc("2013-01-03T09:00:00.1234567899Z"), "2013-01-03T09:00:00.123456789Z");
        assert_eq!(utc("0001-01-01"), "0001-01-01T00:00:00Z");
    }

    #[test]
    fn milliseconds_round_down_on_both_sides_of_1970() {
        let before: DateTime = "1969-12-31T23:59:59.9995Z".parse().unwrap();
        assert_eq!(before.unix_millis(), -1);
        let after: DateTime = "1970-01-01T00:00:00.0015Z".parse().unwrap();
        assert_eq!(after.unix_millis(), 1);
        assert_eq!(DateTime::from_unix_millis(i64::MAX), Err(DateTimeError::OutOfRange));
        assert_eq!(
            DateTime::from_unix_millis(1_357_203_600_250).unwrap().to_string(),
            "2013-01-03T09:00:00.25Z"
        );
    }

    #[test]
    fn system_times_survive_the_way_there_and_back() {
        let now = DateTime::now();
        assert_eq!(DateTime::from_system_time(now.to_system_time()), now);
        assert_eq!(DateTime::from_unix_millis(now.unix_millis()).unwrap(), now);
        assert_eq!(now.truncate_to_seconds().unix_millis() % 1000, 0);
    }
}
