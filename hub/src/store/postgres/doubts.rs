//! What became of posts that were sent, where the answer was lost. It is asked for through the connection that was made anew in the place of
//! the lost one: what is not there by then never will be.

use resync_core::websub::NotificationId;

use super::line::{DEADLINE, Line};
use super::rows::Fields;
use crate::store::Result;

const BATCH: &str = "
SELECT f.topic, f.first, f.posts FROM hub.feed f WHERE f.xid >= $1::bigint::text::xid8 AND f.batch = $2";

/// A batch of posts of which nobody knows whether it is in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    /// What the batch is called.
    pub(super) batch: i64,
    /// A transaction before it.
    pub(super) since: i64,
}

impl Doubt {
    /// For each of the batch's posts, where it is in the log; those that are not there were repetitions, or the whole batch is not. `line` is the
    /// one that it was sent through.
    pub(super) async fn settle(self, line: &Line, posts: usize) -> Result<Vec<Option<NotificationId>>> {
        let rows = line.read_now(BATCH, &[&self.since, &self.batch], DEADLINE).await?;
        let mut places = vec![None; posts];
        for row in &rows {
            let fields = Fields::of("feed", row);
            let first = NotificationId { topic: fields.number("topic")?, offset: fields.number("first")? };
            put(&mut places, first, &fields.get::<Vec<i32>>("posts")?);
        }
        Ok(places)
    }
}

/// Puts these posts, which are numbered from 1, at one place behind the other.
fn put(places: &mut [Option<NotificationId>], first: NotificationId, posts: &[i32]) {
    for (offset, number) in (first.offset..).zip(posts) {
        let index = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
        if let Some(place) = index.and_then(|index| places.get_mut(index)) {
            *place = Some(NotificationId { topic: first.topic, offset });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_that_are_found_stand_one_behind_the_other_and_numbers_of_none_are_passed_over() {
        let mut places = vec![None; 4];
        put(&mut places, NotificationId { topic: 7, offset: 41 }, &[1, 4]);
        put(&mut places, NotificationId { topic: 8, offset: 1 }, &[0, -1, 3, 5]);
        let place = |topic, offset| Some(NotificationId { topic, offset });
        assert_eq!(places, [place(7, 41), None, place(8, 3), place(7, 42)]);
    }
}
