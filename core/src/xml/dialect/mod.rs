//! The forms that ResourceSync had before 1.1, and how each becomes the model of 1.1.

mod alpha;
mod dlib;
mod translator;
mod v1_0;

pub(super) use alpha::Child;
pub(super) use dlib::attribute as metadata_attribute;
pub(super) use translator::Translator;

use std::fmt;

use crate::datetime::DateTime;
use crate::document::{Capability, Entry, Header, Root};

/// The form in which a document was written.
///
/// All but the first are reported by one violation, [`Rule::Dialect`](crate::rules::Rule::Dialect) or
/// [`Rule::NotificationToken`](crate::rules::Rule::NotificationToken).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// ResourceSync 1.1.
    #[default]
    V1_1,
    /// ResourceSync 1.0, where the `lastmod` of a changed resource was the moment of the change (V-2).
    ///
    /// Its documents are documents of 1.1, so nothing is put elsewhere; [`change_time`](Self::change_time) knows where
    /// to look.
    V1_0,
    /// Change Notification 0.9, whose token was another (CN-017).
    Notification0_9,
    /// The technical framework in D-Lib Magazine, January 2013 (DL-005): another namespace, `modified` for `at`, `top`
    /// for `up`, `up` for `index`, the newest change first. Its `etag` and `modified` are kept as foreign attributes.
    DLib2013,
    /// The alpha draft 0.1 of August 2012 (ALPHA-001 to ALPHA-032): Sitemap, Change Set and manifest.
    ///
    /// It has no Capability Lists and thus no `up` link, so that what is read is not yet a document of 1.1.
    Alpha0_1,
    /// A Sitemap that says nothing of ResourceSync. It may be used as a Resource List (RS-050), but does not claim to
    /// be one, so that it has no capability.
    Sitemap,
}

impl Dialect {
    /// When an entry's resource changed: its `datetime` or, where the form had none, its `lastmod`.
    pub fn change_time(self, entry: &Entry) -> Option<DateTime> {
        let metadata = entry.metadata.as_ref()?;
        metadata.change?;
        metadata.datetime.or(entry.lastmod.filter(|_| self == Self::V1_0))
    }

    /// Whether the changes of the document may come in any order (ALPHA-019, DL-006).
    pub(super) fn has_no_order(self, header: &Header) -> bool {
        self.lists_changes(header) && header.root == Root::UrlSet
    }

    /// Whether the document lists changes in a form that had no interval for them.
    fn lists_changes(self, header: &Header) -> bool {
        matches!(self, Self::Alpha0_1 | Self::DLib2013)
            && matches!(header.capability(), Some(Capability::ChangeList | Capability::ChangeDumpManifest))
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1_1 => "ResourceSync 1.1",
            Self::V1_0 => "ResourceSync 1.0",
            Self::Notification0_9 => "Change Notification 0.9",
            Self::DLib2013 => "the D-Lib paper of 2013",
            Self::Alpha0_1 => "the alpha draft 0.1",
            Self::Sitemap => "a plain Sitemap",
        })
    }
}

/// Puts the changes of an older document into the order of time (ALPHA-031, DL-006).
pub(super) fn put_in_order(dialect: Dialect, header: &Header, entries: &mut Vec<Entry>) {
    if !dialect.has_no_order(header) {
        return;
    }
    let time = |entry: &Entry| entry.metadata.as_ref().and_then(|metadata| metadata.datetime);
    let mut known = entries.iter().filter_map(time);
    // Of changes at the same moment, the one that such a list names last came first.
    if known.next().zip(known.next_back()).is_some_and(|(first, last)| last < first) {
        entries.reverse();
    }
    // What has no time keeps its place behind the one before it.
    let mut latest = None;
    let mut timed: Vec<_> = std::mem::take(entries)
        .into_iter()
        .map(|entry| {
            latest = time(&entry).or(latest);
            (latest, entry)
        })
        .collect();
    timed.sort_by_key(|&(time, _)| time);
    entries.extend(timed.into_iter().map(|(_, entry)| entry));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Change, Metadata};

    #[test]
    fn alpha031_a_change_without_a_time_keeps_its_place_behind_the_one_before_it() {
        let header = Header::new(Root::UrlSet, Capability::ChangeList);
        let entry = |name: &str, day: Option<u8>| {
            let datetime = day.map(|day| format!("2013-01-{day:02}").parse().unwrap());
            let metadata = Metadata { change: Some(Change::Updated), datetime, ..Metadata::default() };
            Entry::with_metadata(name, metadata)
        };
        let order = |entries: &[(&str, Option<u8>)]| {
            let mut entries: Vec<_> = entries.iter().map(|&(name, day)| entry(name, day)).collect();
            put_in_order(Dialect::Alpha0_1, &header, &mut entries);
            entries.into_iter().map(|entry| entry.loc).collect::<String>()
        };
        assert_eq!(
            order(&[("a", Some(1)), ("b", Some(3)), ("?", None), ("c", Some(2)), ("d", Some(4))]),
            "acb?d"
        );
        assert_eq!(order(&[("d", Some(4)), ("?", None), ("a", Some(1))]), "a?d");
    }

    #[test]
    fn v2_the_moment_of_a_change_is_its_datetime_and_in_1_0_its_lastmod() {
        let moment: DateTime = "2013-01-03T09:00:00Z".parse().unwrap();
        let mut entry = Entry::with_metadata(
            "http://example.org/a",
            Metadata { change: Some(Change::Updated), ..Metadata::default() },
        );
        entry.lastmod = Some(moment);
        assert_eq!(Dialect::V1_0.change_time(&entry), Some(moment));
        assert_eq!(Dialect::V1_1.change_time(&entry), None);
        let later: DateTime = "2013-01-03T09:00:01Z".parse().unwrap();
        entry.metadata.as_mut().unwrap().datetime = Some(later);
        assert_eq!(Dialect::V1_0.change_time(&entry), Some(later));
        assert_eq!(Dialect::V1_0.change_time(&Entry::new("http://example.org/a")), None);
    }
}
