//! The moments of changes: at one moment as many as fit in one notification (CN-014).

use std::time::Duration;

use resync_core::{
    build::{BuildError, Event, Item},
    datetime::DateTime,
    document::{Change, ChangeNotification},
    rules::Violations,
    xml,
};

use super::linker::Linker;
use crate::settings::Settings;

/// Most changes of one moment,
const MOST_CHANGES: u64 = 250;
/// and most bytes of a notification of them. A hub accepts 1 MiB, and one moment stays below that.
pub(crate) const MOST_BYTES: usize = 512 * 1024;

/// Gives each change its moment.
pub(super) struct Moments {
    linker: Linker,
    moment: DateTime,
    changes: u64,
    bytes: usize,
}

impl Moments {
    /// From this moment on.
    pub(super) fn new(first: DateTime, settings: &Settings) -> Self {
        Self { linker: Linker::of(settings), moment: first, changes: 0, bytes: 0 }
    }

    /// The moment of the last change, or the first moment.
    pub(super) fn last(&self) -> DateTime {
        self.moment
    }

    /// The moment of the next change.
    pub(super) fn next(&mut self, change: Change, item: &Item) -> Result<DateTime, BuildError> {
        let bytes = self.length(change, item)?;
        if self.changes == MOST_CHANGES || self.changes > 0 && self.bytes + bytes > MOST_BYTES {
            (self.moment, self.changes, self.bytes) = (later(self.moment, 1), 0, 0);
        }
        self.changes += 1;
        self.bytes += bytes;
        Ok(self.moment)
    }

    /// Refuses a resource that no document may list.
    pub(super) fn check(&self, item: &Item) -> Result<(), BuildError> {
        self.length(Change::Updated, item).map(drop)
    }

    fn length(&self, change: Change, item: &Item) -> Result<usize, BuildError> {
        let event = self.linker.event(Ok(Event::new(change, self.moment, item.clone())))?;
        // A change may get a link to its version yet.
        let of_version = if change == Change::Deleted { 0 } else { self.linker.length_of_version(item) };
        Ok(length(event)? + of_version)
    }
}

/// The length of a notification of this change alone. Refuses what no document may list: once a run has its plan, it is too late for that.
pub(crate) fn length(event: Event) -> Result<usize, Violations> {
    let moment = event.moment;
    let notification = ChangeNotification::new(moment, moment).change(event.into()).build()?;
    Ok(xml::write(&notification).len())
}

/// Some milliseconds after a moment.
pub(super) fn later(moment: DateTime, milliseconds: u64) -> DateTime {
    DateTime::from_system_time(moment.to_system_time() + Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BaseUrl, settings::LinkTemplate};

    fn moments(links: Vec<LinkTemplate>, length: usize) -> Vec<DateTime> {
        let base_url = BaseUrl::parse("http://example.org/").unwrap();
        let settings = Settings { links, ..Settings::new("", base_url) };
        let mut moments = Moments::new(DateTime::now(), &settings);
        let name = "x".repeat(length);
        let next =
            |number| moments.next(Change::Created, &Item::new(format!("http://example.org/{number}{name}")));
        (0..500).map(next).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn cn014_a_burst_has_so_many_moments_that_it_can_be_cut() {
        let moments = moments(Vec::new(), 10);
        assert!(moments.is_sorted());
        let first = moments.iter().filter(|moment| **moment == moments[0]).count();
        assert_eq!(first, 250);
    }

    #[test]
    fn cn014_what_takes_many_bytes_with_its_links_is_told_in_more_moments() {
        let link = |host: usize| {
            LinkTemplate::new("duplicate", &format!("http://m{host}.example/{{path}}")).unwrap()
        };
        let moments = moments((0..4).map(link).collect(), 1_900);
        let of_first = moments.iter().filter(|moment| **moment == moments[0]).count();
        assert!((40..60).contains(&of_first), "about 10 kB each: {of_first}");
    }

    #[test]
    fn rs047_what_no_document_may_tell_is_refused() {
        let settings = Settings::new("", BaseUrl::parse("http://example.org/").unwrap());
        let mut moments = Moments::new(DateTime::now(), &settings);
        assert!(moments.next(Change::Created, &Item::new("records/1")).is_err());
        assert!(moments.next(Change::Deleted, &Item::new("http://example.org/a b")).is_err());
        assert!(moments.check(&Item::new("http://a/b")).is_err());
        assert!(moments.check(&Item::new("http://example.org/a")).is_ok());
    }
}
