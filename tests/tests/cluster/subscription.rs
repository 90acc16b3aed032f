//! A subscription as the judge knows it: what it is owed, what came to it, and whether that may come again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::judge::Arrival;
use crate::topics::REPLAYED;
use crate::windows::Window;

/// So long arrivals are remembered: what is repeated later has no excuse.
const REMEMBERED: Duration = Duration::from_secs(120);
/// So long after the end of a subscription what was posted before it may still arrive.
const UNDER_WAY: Duration = Duration::from_secs(2);
/// So long after it was asked for a replay may begin: an operator waits 20 s for an answer.
const REPLAYED_WITHIN: Duration = Duration::from_secs(30);

/// What is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody knows whether it is in force.
    Open,
    /// It gets everything that is posted later.
    InForce(Instant),
    /// It gets nothing that is posted later.
    Ended(Instant),
}

/// The operator has asked to deliver everything again from this offset on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replay {
    pub(crate) from: u64,
    pub(crate) at: Instant,
}

/// When a notification came first, and how often it has come.
#[derive(Clone, Copy, Debug)]
struct Came {
    first: Instant,
    times: usize,
}

#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) topic: usize,
    pub(crate) state: State,
    /// This was acknowledged before it was asked for.
    asked_after: u64,
    pub(crate) first: Option<u64>,
    pub(crate) newest: u64,
    recent: BTreeMap<u64, Came>,
    /// What came although it had ended.
    pub(crate) late: usize,
}

impl Subscription {
    /// It is asked for when this is the newest offset that was acknowledged.
    pub(crate) fn new(topic: usize, asked_after: u64) -> Self {
        let recent = BTreeMap::new();
        Self { topic, state: State::Open, asked_after, first: None, newest: 0, recent, late: 0 }
    }

    /// Nothing newer than its end comes, and what is older only for as long as a request takes. A hub that stood still may then finish the one
    /// that it had begun.
    pub(crate) fn is_wanted(
        &mut self,
        arrival: &Arrival<'_>,
        made: Instant,
        windows: &[Window],
    ) -> Result<(), String> {
        let State::Ended(at) = self.state else { return Ok(()) };
        if made > at {
            return Err(format!("it had ended {:?} before this was posted", made - at));
        }
        if arrival.at > at + UNDER_WAY {
            self.late += 1;
            let is_excused = windows.iter().any(|window| window.excuses_late(arrival.at));
            if !is_excused || self.late > 1 {
                return Err(format!("it had ended {:?} before this came", arrival.at - at));
            }
        }
        Ok(())
    }

    /// Takes what has come, where it is in order; whether it came for the first time.
    pub(crate) fn take(
        &mut self,
        arrival: &Arrival<'_>,
        offset: u64,
        windows: &mut [Window],
        replays: &[Replay],
    ) -> Result<bool, String> {
        if self.first.is_some() && offset > self.newest + 1 {
            return Err(format!("after {} came {offset}: something was left out", self.newest));
        }
        if self.first.is_none() && offset <= self.asked_after && self.topic != REPLAYED {
            let before = self.asked_after;
            return Err(format!(
                "it began early with {offset}: {before} was acknowledged before it was asked for"
            ));
        }
        if !arrival.is_accepted {
            return Ok(false);
        }
        self.forget(arrival.at);
        if self.first.is_some() && offset <= self.newest {
            self.comes_again(arrival.at, offset, windows, replays)?;
            return Ok(false);
        }
        self.first.get_or_insert(offset);
        self.newest = offset;
        self.recent.insert(offset, Came { first: arrival.at, times: 1 });
        Ok(true)
    }

    fn forget(&mut self, now: Instant) {
        while self.recent.first_key_value().is_some_and(|(_, came)| came.first + REMEMBERED < now) {
            self.recent.pop_first();
        }
    }

    fn comes_again(
        &mut self,
        at: Instant,
        offset: u64,
        windows: &mut [Window],
        replays: &[Replay],
    ) -> Result<(), String> {
        let came = self.recent.get_mut(&offset);
        let first = came.as_ref().map(|came| came.first);
        let replays = if self.topic == REPLAYED { count_replays(replays, offset, first, at) } else { 0 };
        let Some(came) = came else {
            // What the operator has repeated may have come before it was remembered.
            return if replays > 0 { Ok(()) } else { Err(format!("{offset} came again after a long time")) };
        };
        came.times += 1;
        let Came { first, times } = *came;
        if replays > 0 {
            let meeting = windows.iter().filter(|window| window.meets(first, at));
            let changes: usize = meeting.map(|window| window.suffered.changes).sum();
            return at_most((1 + replays) * (1 + changes), times, offset, "what the operator asked for");
        }
        let excuse = windows.iter_mut().rev().find(|window| window.excuses_repeat(first, at));
        let excuse = excuse.ok_or_else(|| {
            format!("{offset} came again {:?} after it had come, and no fault excuses that", at - first)
        })?;
        excuse.repeats += 1;
        at_most(1 + excuse.suffered.changes, times, offset, &excuse.suffered.label)
    }
}

fn at_most(most: usize, times: usize, offset: u64, reason: &str) -> Result<(), String> {
    if times <= most {
        return Ok(());
    }
    Err(format!("{offset} came {times} times, and {reason} excuses {most}"))
}

/// How many replays may have had this offset delivered again, which came first at this moment, if that is known, and now.
fn count_replays(replays: &[Replay], offset: u64, first: Option<Instant>, now: Instant) -> usize {
    let concerns = |replay: &&Replay| {
        replay.from <= offset
            && replay.at <= now
            && first.is_none_or(|first| first <= replay.at + REPLAYED_WITHIN)
    };
    replays.iter().rev().filter(concerns).count()
}
