//! Changes from notifications that no list contains yet: the last of each resource, saved over restarts.
//!
//! An older list, or a late notification, would otherwise revert them (CN-009). They are saved as one Change Notification.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use resync_core::datetime::DateTime;
use resync_core::document::{ChangeNotification, Entry, ForeignAttribute, Link, Metadata};
use resync_core::xml::{WriteError, Writer};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::notification::{DatedChange, changes};

/// How many are saved. Beyond this, the oldest are forgotten; they have been applied.
const MAX_COUNT: usize = 10_000;

/// How many bytes of them are saved, as in memory. A change larger than a thousandth of that is applied and not saved; no honest
/// change is that large.
const MAX_BYTES: usize = 16 << 20;
const MAX_BYTES_OF_ONE: usize = MAX_BYTES / 1_000;

/// The Source's clock may differ from ours, so its times are compared only with each other. A time this many milliseconds ahead of
/// our clock is an error and not saved; otherwise all changes until then would count as late.
const MAX_CLOCK_SKEW: i64 = 24 * 3_600_000;

/// By the URI as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotifiedChanges(BTreeMap<String, DatedChange>);

impl NotifiedChanges {
    /// Adds new changes, oldest first, and returns those to apply: none that is older than a known one of the same resource.
    ///
    /// A change with a time far in the future is applied once and not saved.
    pub(crate) fn take<'t>(
        &mut self,
        notified: impl IntoIterator<Item = &'t DatedChange>,
    ) -> Vec<DatedChange> {
        let (mut new_changes, now) = (Vec::new(), DateTime::now());
        for change in notified {
            let DatedChange { at, entry } = change;
            let loc = &entry.loc;
            if is_beyond_clock_skew(*at, now) {
                tracing::warn!(loc, %at, "the time of a notified change is far in the future; check the clocks");
                new_changes.push(change.clone());
            } else if weight(entry) > MAX_BYTES_OF_ONE {
                tracing::warn!(%at, "a notified change is too long to be saved");
                new_changes.push(change.clone());
            } else if self.0.get(loc).is_none_or(|last| last.at <= *at) {
                self.0.insert(loc.clone(), change.clone());
                new_changes.push(change.clone());
            } else {
                tracing::debug!(loc, %at, "ignored a notified change that is older than a known one");
            }
        }
        self.forget_the_oldest();
        new_changes
    }

    /// All, oldest first.
    pub(crate) fn in_order(&self) -> Vec<&DatedChange> {
        let mut all: Vec<_> = self.0.values().collect();
        all.sort_by_key(|change| change.at);
        all
    }

    /// The saved changes after this time.
    pub(crate) fn since(&self, moment: DateTime) -> Self {
        let since = self.0.iter().filter(|(_, change)| change.at > moment);
        Self(since.map(|(loc, change)| (loc.clone(), change.clone())).collect())
    }

    fn forget_the_oldest(&mut self) {
        let bytes: usize = self.0.values().map(|change| weight(&change.entry)).sum();
        if self.0.len() <= MAX_COUNT && bytes <= MAX_BYTES {
            return;
        }
        let mut newest: Vec<_> = std::mem::take(&mut self.0).into_iter().collect();
        newest.sort_by_key(|(_, change)| Reverse(change.at));
        let mut bytes = 0;
        let fits = |(_, change): &(String, DatedChange)| {
            bytes += weight(&change.entry);
            bytes <= MAX_BYTES
        };
        self.0 = newest.into_iter().take(MAX_COUNT).take_while(fits).collect();
    }

    /// Whether a change of this resource is saved.
    pub(crate) fn knows(&self, loc: &str) -> bool {
        self.0.contains_key(loc)
    }

    /// The URIs of the changed resources, and whether they were deleted.
    pub(crate) fn resources(&self) -> impl Iterator<Item = (&str, bool)> {
        self.0.iter().map(|(loc, change)| (loc.as_str(), change.is_deletion()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn written(&self) -> Result<String, WriteError> {
        let all = self.in_order();
        let (Some(first), Some(last)) = (all.first(), all.last()) else { return Ok(String::new()) };
        let mut writer = Writer::new(Vec::new(), &ChangeNotification::new(first.at, last.at).header())?;
        for DatedChange { entry, .. } in all {
            match writer.entry(entry) {
                // Cannot happen: each came in a valid notification.
                Err(WriteError::Violations(broken)) => {
                    tracing::warn!(loc = entry.loc, %broken, "cannot save a notified change");
                }
                written => written?,
            }
        }
        Ok(String::from_utf8_lossy(&writer.finish()?).into_owned())
    }
}

/// How much memory an entry takes, about, in bytes.
fn weight(entry: &Entry) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let foreign = |all: &[ForeignAttribute]| -> usize {
        all.iter()
            .map(|one| {
                size_of::<ForeignAttribute>()
                    + one.namespace.len()
                    + one.prefix.len()
                    + one.name.len()
                    + one.value.len()
            })
            .sum()
    };
    let of_link = |link: &Link| {
        let texts =
            [&link.encoding, &link.path, &link.media_type, &link.profile].map(text).iter().sum::<usize>();
        size_of::<Link>() + link.rel.as_str().len() + link.href.len() + texts + foreign(&link.foreign)
    };
    let of_metadata = |metadata: &Metadata| {
        let texts =
            [&metadata.encoding, &metadata.path, &metadata.media_type].map(text).iter().sum::<usize>();
        texts + foreign(&metadata.foreign)
    };
    let links: usize = entry.links.iter().map(of_link).sum();
    // The URI is the key too.
    size_of::<Entry>() + 2 * entry.loc.len() + links + entry.metadata.as_ref().map_or(0, of_metadata)
}

/// Whether this time is too far in the future to be believed.
pub(crate) fn is_beyond_clock_skew(at: DateTime, now: DateTime) -> bool {
    at.unix_millis() > now.unix_millis().saturating_add(MAX_CLOCK_SKEW)
}

impl Serialize for NotifiedChanges {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.written().map_err(S::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for NotifiedChanges {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = String::deserialize(from)?;
        let mut notified = Self::default();
        notified.take(&changes(&[written.into_bytes()]));
        Ok(notified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::document::ResourceChange;

    fn second(second: i64) -> DateTime {
        DateTime::from_unix_millis(1_795_000_000_000 + second * 1000).unwrap()
    }

    fn change(change: ResourceChange, at: i64) -> DatedChange {
        DatedChange { at: second(at), entry: change.datetime(second(at)).into() }
    }

    fn updated(path: &str, at: i64) -> DatedChange {
        change(ResourceChange::updated(format!("http://a.example/{path}")).length(7), at)
    }

    #[test]
    fn cn009_what_is_told_late_is_no_news_and_what_is_told_twice_is_done_again() {
        let mut notified = NotifiedChanges::default();
        assert_eq!(notified.take(&[updated("a", 3), updated("b", 4)]).len(), 2);
        let new_changes = notified.take(&[updated("a", 2), updated("b", 4), updated("c", 1)]);
        assert_eq!(new_changes, [updated("b", 4), updated("c", 1)]);
        assert_eq!(notified.since(second(1)).in_order(), [&updated("a", 3), &updated("b", 4)]);
    }

    #[test]
    fn a_change_of_a_time_that_has_slipped_is_done_and_makes_nothing_late() {
        let mut notified = NotifiedChanges::default();
        let slipped = updated("a", 400 * 24 * 3600);
        assert_eq!(notified.take(std::slice::from_ref(&slipped)), [slipped]);
        assert!(!notified.knows("http://a.example/a"));
        assert_eq!(notified.take(&[updated("a", 3)]), [updated("a", 3)]);
    }

    #[test]
    fn what_was_told_is_read_as_it_was_written() {
        let mut notified = NotifiedChanges::default();
        let gone = change(ResourceChange::deleted("http://a.example/?a&b"), 2);
        notified.take(&[updated("a", 3), gone, updated("b", 3)]);
        let kept = serde_json::to_string(&notified).unwrap();
        assert_eq!(serde_json::from_str::<NotifiedChanges>(&kept).unwrap(), notified);
        assert_eq!(serde_json::from_str::<NotifiedChanges>("\"torn\"").unwrap(), NotifiedChanges::default());
    }

    #[test]
    fn what_is_told_is_remembered_up_to_so_many_bytes_and_nothing_enormous_is() {
        let mut notified = NotifiedChanges::default();
        let long = updated(&"x".repeat(MAX_BYTES_OF_ONE / 2), 1);
        assert_eq!(notified.take(std::slice::from_ref(&long)), [long], "it is done");
        assert!(notified.is_empty());
        let all: Vec<_> = (0..4_000).map(|at| updated(&format!("{at}{}", "x".repeat(7_000)), at)).collect();
        notified.take(&all);
        let bytes: usize = notified.0.values().map(|change| weight(&change.entry)).sum();
        assert!(bytes <= MAX_BYTES && bytes > MAX_BYTES * 9 / 10, "{bytes}");
        assert!(notified.knows(&all[3_999].entry.loc) && !notified.knows(&all[0].entry.loc), "the newest");
    }

    #[test]
    fn of_what_is_told_without_end_the_newest_is_remembered() {
        let mut notified = NotifiedChanges::default();
        let most = i64::try_from(MAX_COUNT).unwrap();
        let all: Vec<_> = (0..most + 5).map(|at| updated(&at.to_string(), at)).collect();
        notified.take(&all);
        let since = notified.since(second(-1));
        assert_eq!((since.0.len(), since.in_order()[0]), (MAX_COUNT, &all[5]));
    }
}
