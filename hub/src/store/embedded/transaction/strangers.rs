//! Making room among topics that no publisher speaks for.

use super::Transaction;
use super::retention::Cut;
use crate::store::Result;
use crate::store::room::{Group, aim, to_the_last};

impl Transaction<'_> {
    /// Removes notifications of strangers while theirs take more than this; true when one command may not remove any more.
    pub(super) fn make_strangers_room(&self, cut: &mut Cut, most: u64, limit: usize) -> Result<bool> {
        if cut.left.strangers <= cut.aim.unwrap_or(most) {
            return Ok(false);
        }
        let aim = *cut.aim.get_or_insert(aim(most));
        let mut all = self.by_owner(cut);
        while cut.left.strangers > aim && !all.is_empty() {
            if cut.is_full(limit) {
                return Ok(true);
            }
            all.lighten(&mut |topic| {
                let before = cut.left.strangers;
                let left = to_the_last(self.shorten(cut, topic)?, self.is_subscribed(topic));
                cut.trimmed.early += 1;
                Ok((before.saturating_sub(cut.left.strangers), left))
            })?;
        }
        Ok(false)
    }

    fn by_owner(&self, cut: &Cut) -> Group {
        let states = self.states().map(|state| cut.changed.get(&state.topic.id).unwrap_or(state));
        Group::of_strangers(states.map(|state| {
            let id = state.topic.id;
            (state, self.is_subscribed(id), self.topics.accounts.founder(id))
        }))
    }
}
