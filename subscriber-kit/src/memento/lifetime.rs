//! How long a state of a resource lasted, by which a memento is recognised where no hash tells (MEM-056).

use resync_core::datetime::DateTime;
use resync_core::memento::HttpDate;

/// How long the wanted state of a resource lasted, as far as the lists tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// From when on it is known to be this state: the change that made it. `None` if that is unknown.
    pub(crate) since: Option<DateTime>,
    /// The next change; `None` if it is the last state so far.
    pub(crate) until: Option<DateTime>,
}

impl Lifetime {
    /// Whether a state of this datetime is certainly the wanted one. HTTP dates have whole seconds: one in the second of the next
    /// change may be of before it or after it.
    pub(crate) fn includes(&self, datetime: HttpDate) -> bool {
        self.since.is_some_and(|since| HttpDate::from(since) <= datetime)
            && self.until.is_none_or(|until| datetime < HttpDate::from(until))
    }

    /// The time to ask a TimeGate for, which is `moment` if possible. Of two states of one second it gives the later, so where the next
    /// change is in that of the moment, it is asked for the second before.
    pub(crate) fn time_to_ask(&self, moment: DateTime) -> DateTime {
        let second = HttpDate::from(moment);
        let is_shared = self.until.is_some_and(|until| HttpDate::from(until) <= second);
        let before = DateTime::from_unix_millis(second.datetime().unix_millis() - 1000).ok();
        let lasted =
            |time: &DateTime| self.since.is_none_or(|since| HttpDate::from(since) <= HttpDate::from(*time));
        before.filter(|time| is_shared && lasted(time)).unwrap_or(moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(second: &str) -> DateTime {
        format!("2024-02-01T00:00:{second}Z").parse().unwrap()
    }

    #[test]
    fn mem032_where_the_next_change_is_in_the_second_of_the_moment_the_one_before_is_asked_for() {
        let asked = |since: &str, until: &str, at: &str| {
            Lifetime { since: Some(moment(since)), until: Some(moment(until)) }.time_to_ask(moment(at))
        };
        assert_eq!(asked("10", "20.5", "19.9"), moment("19.9"));
        assert_eq!(asked("10", "20.5", "20.2"), moment("19"));
        assert_eq!(asked("20.1", "20.5", "20.2"), moment("20.2"), "then only the list's own link helps");
    }

    #[test]
    fn mem056_without_a_hash_a_state_counts_only_from_the_change_wanted_to_the_next() {
        let is_wanted = |since: Option<&str>, until: Option<&str>, datetime: &str| {
            Lifetime { since: since.map(moment), until: until.map(moment) }.includes(moment(datetime).into())
        };
        for (datetime, expected) in
            [("09", false), ("10", true), ("15", true), ("19", true), ("20", false), ("30", false)]
        {
            assert_eq!(is_wanted(Some("10.5"), Some("20.5"), datetime), expected, "{datetime}");
        }
        assert!(is_wanted(Some("10"), None, "59"), "it is the last");
        assert!(!is_wanted(None, Some("20"), "15"), "it may have changed between the two");
        assert!(
            !is_wanted(Some("10.2"), Some("10.7"), "10"),
            "of two in one second nobody knows which it is"
        );
    }
}
