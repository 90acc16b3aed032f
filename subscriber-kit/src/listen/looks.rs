//! When to look at a Source because of a notification that is no clear order (FN-012): at once, and ever more seldom while such
//! looks find nothing. So whoever sends many of them does not make a Destination fetch without end.

use resync_common::backoff::Backoff;
use tokio::time::Instant;

use crate::timing::{LONGEST_RETRY, pauses};

/// The looks of one copy.
#[derive(Debug)]
pub(super) struct Looks {
    /// Whether the next synchronisation is one.
    is_asked_for: bool,
    /// Whether the running one is.
    is_looking: bool,
    not_before: Option<Instant>,
    pause: Backoff,
}

impl Default for Looks {
    fn default() -> Self {
        Self { is_asked_for: false, is_looking: false, not_before: None, pause: pauses(LONGEST_RETRY) }
    }
}

impl Looks {
    /// When to look; `None` if that is decided already, so that one look serves all that ask for it.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Instant> {
        let is_new = !std::mem::replace(&mut self.is_asked_for, true);
        is_new.then(|| self.not_before.map_or(now, |at| at.max(now)))
    }

    /// A synchronisation begins. It is a look too, if one was asked for.
    pub(super) fn begin(&mut self) {
        self.is_looking = std::mem::take(&mut self.is_asked_for);
    }

    /// The synchronisation that began last has ended.
    pub(super) fn end(&mut self, now: Instant, found_changes: bool) {
        match (std::mem::take(&mut self.is_looking), found_changes) {
            (false, _) => {}
            (true, true) => *self = Self { is_asked_for: self.is_asked_for, ..Self::default() },
            (true, false) => self.not_before = Some(now + self.pause.after_failure()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Asks again as soon as the last look has ended; returns when each look began.
    fn asked_without_rest(
        looks: &mut Looks,
        begin: Instant,
        hours: u64,
        found_changes: bool,
    ) -> Vec<Instant> {
        let (mut now, mut begun) = (begin, Vec::new());
        while now < begin + Duration::from_secs(hours * 3600) {
            now = looks.ask(now).unwrap();
            assert_eq!(looks.ask(now), None, "one look serves all");
            looks.begin();
            begun.push(now);
            now += Duration::from_secs(1);
            looks.end(now, found_changes);
        }
        begun
    }

    #[test]
    fn fn012_whoever_asks_without_rest_gets_few_looks_unless_they_find_something() {
        let (mut looks, begin) = (Looks::default(), Instant::now());
        let begun = asked_without_rest(&mut looks, begin, 24, false);
        assert_eq!(begun[0], begin, "the first one at once");
        assert!(begun[1] - begin < Duration::from_secs(5), "the second one soon");
        // One in five minutes, a fifth less at the least.
        assert!((240..=370).contains(&begun.len()), "{}", begun.len());

        let later = *begun.last().unwrap() + Duration::from_secs(3600);
        let begun = asked_without_rest(&mut looks, later, 1, true);
        assert_eq!(begun.len(), 3600, "each found something");
        assert!(begun[0] == later);
    }

    #[test]
    fn fn012_what_asks_during_a_look_gets_another_one() {
        let (mut looks, now) = (Looks::default(), Instant::now());
        looks.ask(now);
        looks.begin();
        assert!(looks.ask(now).is_some(), "it may have come too late for the first");
        looks.end(now, true);
        assert_eq!(looks.ask(now), None);
        looks.begin();
        looks.end(now, false);
        looks.begin();
        looks.end(now, false);
        assert!(
            looks.ask(now).is_some_and(|at| at < now + Duration::from_secs(3)),
            "what is no look slows none"
        );
    }
}
