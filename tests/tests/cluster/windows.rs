//! The times in which something is done to the hubs or their database, until all was well again: what that excuses, and how much of it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::subscribers::HOSTS;

/// Progress that is older has been saved.
///
/// Saves take a second at most: a hub starts nothing more while one takes longer. A span of checkpoints takes a second and a half: it ends with
/// the first checkpoint after half a second, and the save of the one before may begin just in time. A delivery is in the checkpoint that ends
/// the next span after its own. So these are two spans and one save.
pub(crate) const SAVED_WITHIN: Duration = Duration::from_secs(4);
/// What is repeated after a fault comes before all is well again, or shortly afterwards.
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_secs(2);
/// The deliveries of so long may be unsaved at once.
const UNSAVED: Duration = SAVED_WITHIN;
/// Requests that may be under way: a host has one owner, who sends it eight at once (`delivery.per_host`).
const UNDER_WAY: usize = HOSTS * 8;
/// So long arrivals are remembered.
const REMEMBERED: Duration = Duration::from_secs(120);

/// What is done at once.
#[derive(Clone, Debug)]
pub(crate) struct Suffered {
    pub(crate) label: String,
    /// A hub may stand still, or be cut off, with a request that it has begun.
    pub(crate) freezes: bool,
    /// So often at most a shard changes its owner, or its owner forgets what it has not saved.
    pub(crate) changes: usize,
}

/// A time in which that was done.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) suffered: Suffered,
    pub(crate) opened: Instant,
    pub(crate) closed: Option<Instant>,
    pub(crate) repeats: usize,
}

impl Window {
    pub(crate) fn open(suffered: Suffered, opened: Instant) -> Self {
        Self { suffered, opened, closed: None, repeats: 0 }
    }

    /// Whether at this moment it goes on, or was over a moment ago.
    fn is_on(&self, at: Instant) -> bool {
        self.opened <= at && self.closed.is_none_or(|closed| at <= closed + SETTLED_WITHIN)
    }

    /// Whether what came first at one moment may come again at the other: the first was in the window, or so shortly before it that it may not
    /// have been saved.
    pub(crate) fn excuses_repeat(&self, first: Instant, again: Instant) -> bool {
        self.is_on(again)
            && self.opened <= first + SAVED_WITHIN
            && self.closed.is_none_or(|closed| first <= closed)
    }

    /// Whether at this moment something may come to a subscription that has ended.
    pub(crate) fn excuses_late(&self, at: Instant) -> bool {
        self.suffered.freezes && self.is_on(at)
    }

    /// Whether it began before this moment, and was not over long before that one.
    pub(crate) fn meets(&self, from: Instant, until: Instant) -> bool {
        self.opened <= until && self.closed.is_none_or(|closed| from <= closed + SETTLED_WITHIN)
    }

    /// So many deliveries may come again at most.
    pub(crate) fn most_repeats(&self, firsts: &Firsts) -> usize {
        let until = self.closed.map_or_else(Instant::now, |closed| closed + SETTLED_WITHIN);
        self.suffered.changes * (UNDER_WAY + firsts.busiest(UNSAVED, self.opened, until))
    }
}

/// When deliveries came for the first time, and to which host.
#[derive(Debug, Default)]
pub(crate) struct Firsts(VecDeque<(Instant, usize)>);

impl Firsts {
    pub(crate) fn add(&mut self, at: Instant, host: usize) {
        self.0.push_back((at, host));
        while self.0.front().is_some_and(|(first, _)| *first + REMEMBERED < at) {
            self.0.pop_front();
        }
    }

    /// The longest time between these moments in which nothing came to some host, and that host.
    pub(crate) fn longest_pause(&self, from: Instant, until: Instant) -> (Duration, usize) {
        let of_host = |host: usize| {
            let moments = self.0.iter().filter(|(_, of)| *of == host).map(|(at, _)| *at);
            (longest_pause(moments, from, until), host)
        };
        (0..HOSTS).map(of_host).max().unwrap_or_default()
    }

    /// How many came in the busiest time of this length, of those that came between these moments or might not have been saved before.
    fn busiest(&self, length: Duration, from: Instant, until: Instant) -> usize {
        let moments = self.0.iter().map(|(at, _)| *at);
        let mut moments: Vec<_> = moments.filter(|at| *at + SAVED_WITHIN >= from && *at <= until).collect();
        moments.sort_unstable();
        let within = |(number, begin): (usize, &Instant)| {
            moments[number..].partition_point(|at| *at <= *begin + length)
        };
        moments.iter().enumerate().map(within).max().unwrap_or_default()
    }
}

/// The longest time between two of these that are between the moments, or between one of them and a moment.
pub(crate) fn longest_pause(
    moments: impl Iterator<Item = Instant>,
    from: Instant,
    until: Instant,
) -> Duration {
    let mut all = vec![from, until];
    all.extend(moments.filter(|at| (from..=until).contains(at)));
    all.sort_unstable();
    all.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn window(opened: Instant, lasted: Duration) -> Window {
        let suffered = Suffered { label: "a fault".to_owned(), freezes: false, changes: 2 };
        Window { closed: Some(opened + lasted), ..Window::open(suffered, opened) }
    }

    #[test]
    fn a_fault_excuses_what_came_in_it_or_shortly_before_until_shortly_after_it() {
        let begun = Instant::now();
        let at = |second| begun + SECOND * second;
        let window = window(at(10), 5 * SECOND);
        for (first, again) in [(8, 11), (10, 15), (15, 17)] {
            assert!(window.excuses_repeat(at(first), at(again)), "{first} {again}");
        }
        // Before it, long before it, after it, and in the calm.
        for (first, again) in [(8, 9), (5, 11), (16, 17), (14, 18)] {
            assert!(!window.excuses_repeat(at(first), at(again)), "{first} {again}");
        }
    }

    #[test]
    fn so_much_is_repeated_at_most_as_was_under_way_and_unsaved_for_each_change() {
        let begun = Instant::now();
        let mut firsts = Firsts::default();
        // The three before the last pause are the most in four seconds.
        for millis in [100, 4_000, 5_000, 5_900, 9_950, 30_000] {
            firsts.add(begun + Duration::from_millis(millis), 3);
        }
        let window = window(begun + 5 * SECOND, 5 * SECOND);
        assert_eq!(window.most_repeats(&firsts), 2 * (UNDER_WAY + 3));
        let (pause, host) = firsts.longest_pause(begun, begun + 6 * SECOND);
        assert_eq!((pause, host), (6 * SECOND, HOSTS - 1), "nothing came there at all");
    }
}
