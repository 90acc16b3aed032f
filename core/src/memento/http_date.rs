//! The datetimes of HTTP headers: RFC 1123 dates in GMT, in this one form (RFC 9110, section 5.6.7; MEM-027, MEM-051).

use std::{fmt, str::FromStr};

use jiff::{
    Timestamp,
    fmt::rfc2822::{DateTimeParser, DateTimePrinter},
};

use crate::datetime::DateTime;

/// Bytes of every such date.
const LENGTH: usize = 29;

const PARSER: DateTimeParser = DateTimeParser::new();
const PRINTER: DateTimePrinter = DateTimePrinter::new();

/// A moment in whole seconds, as `Accept-Datetime`, `Memento-Datetime` and the `datetime` of links write it.
///
/// It reads exactly what it prints: neither the two obsolete forms of HTTP, nor another zone, nor a wrong day of the week.
///
/// ```
/// use resync_core::datetime::DateTime;
/// use resync_core::memento::{HttpDate, HttpDateError};
///
/// let date: HttpDate = "Thu, 01 Feb 2024 00:00:00 GMT".parse()?;
/// assert_eq!(date.datetime().to_string(), "2024-02-01T00:00:00Z");
/// assert_eq!(HttpDate::from("2024-02-01T00:00:00.9Z".parse::<DateTime>().unwrap()), date);
/// assert_eq!("Thursday, 01-Feb-24 00:00:00 GMT".parse::<HttpDate>(), Err(HttpDateError));
/// # Ok::<(), HttpDateError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpDate(DateTime);

/// A text is no [`HttpDate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an HTTP date in GMT; write it as Thu, 01 Feb 2024 00:00:00 GMT")]
pub struct HttpDateError;

impl HttpDate {
    /// The same instant.
    pub fn datetime(self) -> DateTime {
        self.0
    }
}

impl From<DateTime> for HttpDate {
    /// The second in which the instant lies.
    fn from(moment: DateTime) -> Self {
        Self(moment.truncate_to_seconds())
    }
}

impl From<HttpDate> for DateTime {
    fn from(date: HttpDate) -> Self {
        date.0
    }
}

impl FromStr for HttpDate {
    type Err = HttpDateError;

    fn from_str(text: &str) -> Result<Self, HttpDateError> {
        if text.len() != LENGTH {
            return Err(HttpDateError);
        }
        let read = PARSER.parse_timestamp(text).map_err(|_| HttpDateError)?;
        let moment = DateTime::from_unix_millis(read.as_millisecond()).map_err(|_| HttpDateError)?;
        let date = Self::from(moment);
        // The parser takes all that mail headers may have.
        if date.to_string() == text { Ok(date) } else { Err(HttpDateError) }
    }
}

impl fmt::Display for HttpDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = self.0.unix_millis().div_euclid(1000);
        let timestamp = Timestamp::from_second(second).map_err(|_| fmt::Error)?;
        f.write_str(&PRINTER.timestamp_to_rfc9110_string(&timestamp).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for HttpDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mem027_only_an_rfc_1123_date_in_gmt_is_a_date() {
        assert_eq!(
            "Sun, 06 Nov 1994 08:49:37 GMT".parse::<HttpDate>().unwrap().datetime(),
            "1994-11-06T08:49:37Z".parse().unwrap()
        );
        let refused = [
            "",
            "now",
            "1994-11-06T08:49:37Z",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +00",
            "Sun, 06 Nov 1994 09:49:37 +0100",
            "sun, 06 nov 1994 08:49:37 gmt",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:60 GMT",
            " Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 06 Nov 1994 08:49 GMT(a)",
        ];
        for text in refused {
            assert_eq!(text.parse::<HttpDate>(), Err(HttpDateError), "{text:?}");
        }
    }

    #[test]
    fn mem051_a_date_is_printed_with_the_names_and_widths_of_rfc_1123() {
        let date = |text: &str| HttpDate::from(text.parse::<DateTime>().unwrap()).to_string();
        assert_eq!(date("2024-06-01T12:00:00.999Z"), "Sat, 01 Jun 2024 12:00:00 GMT");
        assert_eq!(date("1969-12-31T23:59:59.5Z"), "Wed, 31 Dec 1969 23:59:59 GMT");
        assert_eq!(date("0001-01-01"), "Mon, 01 Jan 0001 00:00:00 GMT");
    }

    proptest! {
        #[test]
        fn every_second_between_the_years_1_and_9999_is_read_as_it_was_printed(
            second in -62_135_596_800_i64..253_402_000_000,
        ) {
            let date = HttpDate::from(DateTime::from_unix_millis(second * 1000).unwrap());
            prop_assert_eq!(date.to_string().len(), LENGTH);
            prop_assert_eq!(date.to_string().parse::<HttpDate>(), Ok(date));
        }

        #[test]
        fn what_is_read_is_printed_the_same(text in "[A-Z][a-z]{2}, [0-3][0-9] (Jan|Feb|Nov) [0-9]{4} [0-2][0-9]:[0-5][0-9]:[0-6][0-9] (GMT|UTC|EST)|\\PC{0,40}") {
            if let Ok(date) = text.parse::<HttpDate>() {
                prop_assert_eq!(date.to_string(), text);
            }
        }
    }
}
