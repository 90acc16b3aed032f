//! Whether a file need be sent, by the conditions of a request (RFC 9110, section 13).

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE},
};
use httpdate::HttpDate;

/// What a file is known by to those who have it already.
pub(super) struct Validator {
    /// A strong one.
    tag: HeaderValue,
    /// When it was modified, to the second; `None` where that says nothing.
    modified: Option<HttpDate>,
    /// Whether this second tells its versions apart, too.
    is_told_apart: bool,
}

impl Validator {
    /// A strong tag alone.
    pub(super) fn tag(tag: HeaderValue) -> Self {
        Self { tag, modified: None, is_told_apart: false }
    }

    /// A strong tag, and when the file was modified. `is_young`: it may be modified again within that second.
    pub(super) fn with_time(tag: HeaderValue, modified: Option<HttpDate>, is_young: bool) -> Self {
        Self { tag, modified, is_told_apart: !is_young }
    }

    /// What `ETag` says.
    pub(super) fn entity_tag(&self) -> &HeaderValue {
        &self.tag
    }

    /// What `Last-Modified` says: nothing where several versions may have the same second (RFC 9110, section 8.8.2.2).
    pub(super) fn last_modified(&self) -> Option<HttpDate> {
        self.modified.filter(|_| self.is_told_apart)
    }

    /// The status that answers the conditions, where the file need not be sent. The order is that of RFC 9110, section 13.2.2.
    pub(super) fn unsent(&self, headers: &HeaderMap) -> Option<StatusCode> {
        let date = |name: HeaderName| headers.get(name)?.to_str().ok()?.parse::<HttpDate>().ok();
        let is_wanted = if headers.contains_key(IF_MATCH) {
            tags(headers, IF_MATCH).any(|tag| self.has_tag(tag))
        } else {
            // Also while the file is young: no version that was sent with a time has the same second.
            let since = date(IF_UNMODIFIED_SINCE).zip(self.modified);
            since.is_none_or(|(since, modified)| modified <= since)
        };
        if !is_wanted {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
        let is_known = if headers.contains_key(IF_NONE_MATCH) {
            tags(headers, IF_NONE_MATCH).any(|tag| self.has_tag(tag.strip_prefix(b"W/").unwrap_or(tag)))
        } else {
            let since = date(IF_MODIFIED_SINCE).zip(self.last_modified());
            since.is_some_and(|(since, modified)| modified <= since)
        };
        is_known.then_some(StatusCode::NOT_MODIFIED)
    }

    /// The strong comparison (RFC 9110, section 8.8.3.2), and a star.
    fn has_tag(&self, tag: &[u8]) -> bool {
        tag == b"*" || tag == self.tag.as_bytes()
    }
}

/// The tags that a header lists.
fn tags(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(name).into_iter();
    values.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "Wed, 31 Jan 2024 23:59:59 GMT";
    const MODIFIED: &str = "Thu, 01 Feb 2024 00:00:00 GMT";
    const AFTER: &str = "Thu, 01 Feb 2024 00:00:01 GMT";

    fn tag() -> HeaderValue {
        HeaderValue::from_static("\"a\"")
    }

    fn with_time(is_young: bool) -> Validator {
        Validator::with_time(tag(), Some(MODIFIED.parse().unwrap()), is_young)
    }

    /// The conditions of a request, and the status that answers them, or 200 where the file is sent.
    type Row<'a> = (&'a [(HeaderName, &'static str)], u16);

    fn holds(validator: &Validator, table: &[Row<'_>]) {
        for (conditions, expected) in table {
            let mut headers = HeaderMap::new();
            for &(ref name, value) in *conditions {
                headers.append(name, HeaderValue::from_static(value));
            }
            let status = validator.unsent(&headers).map_or(200, |status| status.as_u16());
            assert_eq!(status, *expected, "{conditions:?}");
        }
    }

    #[test]
    fn each_condition_is_judged_by_itself() {
        holds(
            &with_time(false),
            &[
                (&[], 200),
                (&[(IF_MATCH, "\"a\"")], 200),
                (&[(IF_MATCH, "\"b\" , \"a\"")], 200),
                (&[(IF_MATCH, "\"b\""), (IF_MATCH, "\"a\"")], 200),
                (&[(IF_MATCH, "*")], 200),
                (&[(IF_MATCH, "\"b\"")], 412),
                (&[(IF_MATCH, "W/\"a\"")], 412),
                (&[(IF_MATCH, "")], 412),
                (&[(IF_UNMODIFIED_SINCE, BEFORE)], 412),
                (&[(IF_UNMODIFIED_SINCE, MODIFIED)], 200),
                (&[(IF_UNMODIFIED_SINCE, AFTER)], 200),
                (&[(IF_UNMODIFIED_SINCE, "yesterday")], 200),
                (&[(IF_NONE_MATCH, "\"a\"")], 304),
                (&[(IF_NONE_MATCH, "\"b\", W/\"a\"")], 304),
                (&[(IF_NONE_MATCH, "*")], 304),
                (&[(IF_NONE_MATCH, "\"b\"")], 200),
                (&[(IF_NONE_MATCH, "")], 200),
                (&[(IF_MODIFIED_SINCE, BEFORE)], 200),
                (&[(IF_MODIFIED_SINCE, MODIFIED)], 304),
                (&[(IF_MODIFIED_SINCE, AFTER)], 304),
                (&[(IF_MODIFIED_SINCE, "yesterday")], 200),
            ],
        );
    }

    #[test]
    fn a_tag_counts_instead_of_a_time_and_what_fails_comes_before_what_is_known() {
        holds(
            &with_time(false),
            &[
                (&[(IF_MATCH, "\"a\""), (IF_UNMODIFIED_SINCE, BEFORE)], 200),
                (&[(IF_MATCH, "\"b\""), (IF_UNMODIFIED_SINCE, AFTER)], 412),
                (&[(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, AFTER)], 200),
                (&[(IF_NONE_MATCH, "\"a\""), (IF_MODIFIED_SINCE, BEFORE)], 304),
                (&[(IF_MATCH, "\"b\""), (IF_NONE_MATCH, "\"a\"")], 412),
                (&[(IF_MATCH, "\"a\""), (IF_NONE_MATCH, "\"a\"")], 304),
                (&[(IF_MATCH, "\"a\""), (IF_MODIFIED_SINCE, AFTER)], 304),
                (&[(IF_UNMODIFIED_SINCE, BEFORE), (IF_NONE_MATCH, "\"a\"")], 412),
                (&[(IF_UNMODIFIED_SINCE, AFTER), (IF_NONE_MATCH, "\"a\"")], 304),
                (&[(IF_UNMODIFIED_SINCE, BEFORE), (IF_MODIFIED_SINCE, AFTER)], 412),
            ],
        );
    }

    #[test]
    fn the_time_of_a_young_file_shows_that_it_is_another_one_and_never_that_it_is_the_same() {
        assert!(with_time(true).last_modified().is_none());
        holds(
            &with_time(true),
            &[
                (&[(IF_UNMODIFIED_SINCE, BEFORE)], 412),
                (&[(IF_UNMODIFIED_SINCE, MODIFIED)], 200),
                (&[(IF_MODIFIED_SINCE, AFTER)], 200),
                (&[(IF_NONE_MATCH, "\"a\"")], 304),
            ],
        );
    }

    #[test]
    fn without_a_time_conditions_about_times_are_ignored() {
        holds(
            &Validator::tag(tag()),
            &[
                (&[(IF_UNMODIFIED_SINCE, BEFORE)], 200),
                (&[(IF_MODIFIED_SINCE, AFTER)], 200),
                (&[(IF_MATCH, "\"b\"")], 412),
                (&[(IF_NONE_MATCH, "\"a\"")], 304),
            ],
        );
    }
}
