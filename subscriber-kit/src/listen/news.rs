//! What Change Notifications tell of a Source that has no document which tells of changes: they alone bring the copy in step.

use crate::notification::Interval;

/// How many bytes of notifications are held until the copy is in step with them.
const MAX_BYTES: usize = 32 << 20;

/// Notifications whose changes are not in the copy yet.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    told: Vec<(Interval, Vec<u8>)>,
}

impl News {
    /// Takes one more; `false` where that would be too many, and nothing is held any more.
    pub(super) fn take(&mut self, interval: Interval, body: &[u8]) -> bool {
        let held: usize = self.told.iter().map(|(_, body)| body.len()).sum();
        if held + body.len() > MAX_BYTES {
            self.told.clear();
            return false;
        }
        self.told.push((interval, body.to_vec()));
        true
    }

    /// Those that could not be dealt with, to be dealt with again.
    pub(super) fn again(&mut self, undone: Self) {
        for (interval, body) in undone.told {
            self.take(interval, &body);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// In the order in which they tell, whatever came first.
    pub(super) fn into_bodies(mut self) -> Vec<Vec<u8>> {
        self.told.sort_by_key(|(interval, _)| (interval.from, interval.until));
        self.told.into_iter().map(|(_, body)| body).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: i64) -> Interval {
        let at = |second: i64| resync_core::datetime::DateTime::from_unix_millis(second * 1000).unwrap();
        Interval { from: at(second), until: at(second + 1) }
    }

    #[test]
    fn cn009_what_came_late_or_is_tried_again_is_dealt_with_in_its_turn() {
        let (mut news, mut undone) = (News::default(), News::default());
        assert!(undone.take(second(1), b"one"));
        assert!(news.take(second(3), b"three") && news.take(second(2), b"two"));
        news.again(undone);
        assert_eq!(news.into_bodies(), [&b"one"[..], b"two", b"three"]);
    }

    #[test]
    fn what_is_too_much_is_not_held() {
        let mut news = News::default();
        assert!(news.take(second(1), b"one"));
        assert!(!news.take(second(2), &vec![0; MAX_BYTES]));
        assert!(news.is_empty());
    }
}
