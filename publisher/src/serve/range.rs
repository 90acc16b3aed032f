//! Which part of a file a request wants, by its `Range` (RFC 9110, section 14).

use http::{
    HeaderMap, HeaderValue,
    header::{IF_RANGE, RANGE},
};

/// What a request wants of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    /// From the first to the last byte, both counted from 0.
    Bytes {
        first: u64,
        last: u64,
    },
    /// The file has none of the bytes.
    Unsatisfiable,
}

impl Part {
    /// Of a file of so many bytes. What is not understood, and more ranges than one, is answered with the whole, as servers may.
    pub(super) fn of(headers: &HeaderMap, tag: &HeaderValue, length: u64) -> Self {
        if headers.get(IF_RANGE).is_some_and(|version| version != tag) {
            return Self::Whole;
        }
        let mut values = headers.get_all(RANGE).into_iter();
        match (values.next().and_then(|value| value.to_str().ok()), values.next()) {
            (Some(value), None) => Self::parse(value, length).unwrap_or(Self::Whole),
            _ => Self::Whole,
        }
    }

    fn parse(value: &str, length: u64) -> Option<Self> {
        let (unit, range) = value.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let end = length.checked_sub(1);
        let (first, last) = match (first, last) {
            ("", suffix) => match number(suffix)? {
                0 => return Some(Self::Unsatisfiable),
                suffix => (length.saturating_sub(suffix), end?),
            },
            (first, "") => (number(first)?, u64::MAX),
            (first, last) => (number(first)?, number(last)?),
        };
        if first > last {
            return None;
        }
        Some(match end {
            Some(end) if first <= end => Self::Bytes { first, last: last.min(end) },
            _ => Self::Unsatisfiable,
        })
    }
}

/// Digits alone.
fn number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(value: &'static str, length: u64) -> Part {
        let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static(value))]);
        Part::of(&headers, &HeaderValue::from_static("\"a\""), length)
    }

    #[test]
    fn one_range_of_bytes_is_cut_to_what_the_file_has() {
        let bytes = |first, last| Part::Bytes { first, last };
        for (value, expected) in [
            ("bytes=0-0", bytes(0, 0)),
            ("bytes=1-2", bytes(1, 2)),
            ("Bytes=1-99", bytes(1, 3)),
            ("bytes=3-", bytes(3, 3)),
            ("bytes=-1", bytes(3, 3)),
            ("bytes=-9", bytes(0, 3)),
        ] {
            assert_eq!(part(value, 4), expected, "{value}");
        }
        assert_eq!(part("bytes=0-18446744073709551615", u64::MAX), bytes(0, u64::MAX - 1));
    }

    #[test]
    fn a_range_behind_the_end_or_of_nothing_is_unsatisfiable() {
        for (value, length) in [("bytes=4-", 4), ("bytes=4-9", 4), ("bytes=-0", 4), ("bytes=0-", 0)] {
            assert_eq!(part(value, length), Part::Unsatisfiable, "{value}");
        }
    }

    #[test]
    fn what_is_not_understood_or_more_than_one_range_is_answered_with_the_whole() {
        for value in
            ["bytes=2-1", "bytes=0-1,3-3", "bytes=a-b", "bytes=+1-2", "bytes=-", "bytes", "lines=1-2", ""]
        {
            assert_eq!(part(value, 4), Part::Whole, "{value}");
        }
        assert_eq!(part("bytes=-1", 0), Part::Whole);
        let twice = [(RANGE, "bytes=0-1"), (RANGE, "bytes=2-3")];
        let mut headers = HeaderMap::new();
        for (name, value) in twice {
            headers.append(name, HeaderValue::from_static(value));
        }
        assert_eq!(Part::of(&headers, &HeaderValue::from_static("\"a\""), 4), Part::Whole);
    }

    #[test]
    fn a_part_of_another_version_is_the_whole() {
        let tag = HeaderValue::from_static("\"a\"");
        for (version, expected) in [("\"a\"", Part::Bytes { first: 0, last: 1 }), ("\"b\"", Part::Whole)] {
            let headers = [(RANGE, "bytes=0-1"), (IF_RANGE, version)];
            let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
            assert_eq!(Part::of(&HeaderMap::from_iter(headers), &tag, 4), expected);
        }
    }
}
