//! Topics and their logs. Where a notification is missing or damaged, the log notes that: whoever had not got it is told of a gap, and
//! gets the others.

use std::collections::{BTreeMap, BTreeSet};

use resync_core::datetime::DateTime;

use super::Mender;
use crate::store::embedded::check::number;
use crate::store::embedded::codec::open;
use crate::store::embedded::engine::{Keys, Space};
use crate::store::embedded::key;
use crate::store::embedded::layout::{Body, Empty, LogRecord, Part, TopicState, TopicWatermark};
use crate::store::{Laggard, Offset, Payer, Result, Rule, Subscription, Topic, TopicId};

/// What is left of a log.
#[derive(Debug, Default)]
struct Left {
    whole: BTreeMap<Offset, Whole>,
    /// Whatever else there is.
    torn: BTreeSet<Offset>,
}

/// A record of a log that is whole.
#[derive(Clone, Copy, Debug)]
struct Whole {
    places: u64,
    bytes: u64,
    received_at: DateTime,
    /// `None` where nothing is there.
    rule: Option<Rule>,
}

impl From<&LogRecord> for Whole {
    fn from(record: &LogRecord) -> Self {
        let rule = (!matches!(record.body, Body::Hole { .. })).then_some(record.rule);
        let (places, bytes) = (record.body.places(), record.weight());
        Self { places, bytes, received_at: record.received_at, rule }
    }
}

impl Left {
    fn first(&self) -> Option<Offset> {
        let (whole, torn) = (self.whole.keys().next(), self.torn.first());
        whole.into_iter().chain(torn).min().copied()
    }

    fn last(&self) -> Option<Offset> {
        let whole = self.whole.iter().next_back().map(|(offset, whole)| whole.last(*offset));
        whole.into_iter().chain(self.torn.last().copied()).max()
    }

    /// From where to where nothing whole is.
    fn missing(&self, first: Offset, end: Offset) -> Vec<(Offset, Offset)> {
        let (mut missing, mut next) = (Vec::new(), first);
        for (offset, whole) in self.whole.range(first..) {
            if next < *offset {
                missing.push((next, Offset(offset.0 - 1)));
            }
            next = next.max(whole.last(*offset).next());
        }
        if next <= end {
            missing.push((next, end));
        }
        missing
    }
}

impl Whole {
    /// The last of its places.
    fn last(&self, offset: Offset) -> Offset {
        Offset(offset.0.saturating_add(self.places - 1))
    }
}

impl Mender<'_> {
    /// Topics that subscriptions are of have records.
    pub(super) fn topics(&mut self) -> Result<()> {
        let mut unknown = BTreeMap::<_, Subscription>::new();
        for (_, subscription) in self.each::<Subscription>()? {
            if self.get::<TopicState>(&key::topic(subscription.topic))?.is_none() {
                let known = unknown.entry(subscription.topic).or_insert_with(|| subscription.clone());
                known.start = known.start.max(subscription.start);
            }
        }
        let furthest = self.furthest()?;
        for (id, Subscription { topic_url: url, start, .. }) in &unknown {
            let noted = furthest.get(id).copied().unwrap_or_default().max(*start);
            // Its log is looked at next. Where retention had cut it nobody knows.
            let first = self.left(*id)?.first().unwrap_or(noted.next());
            let (latest, posted) = Default::default();
            let topic = Topic { id: *id, url: url.clone(), first, head: noted, latest, posted };
            let payer = Payer::Strangers(None);
            self.put(key::topic(*id), &TopicState { topic, bytes: 0, oldest: None, payer })?;
            self.rebuilt(format!("topic {}", url.as_str()));
        }
        self.done()?;
        for key in self.damaged::<TopicState>()? {
            self.remove(Space::Topics, &key)?;
        }
        self.done()
    }

    pub(super) fn logs(&mut self) -> Result<()> {
        let furthest = self.furthest()?;
        let states: BTreeMap<_, _> =
            self.each::<TopicState>()?.into_iter().map(|(_, state)| (state.topic.id, state)).collect();
        self.logs_of_nobody(&states)?;
        for (id, state) in states {
            let left = self.left(id)?;
            let noted = furthest.get(&id).copied().unwrap_or_default();
            self.log(&state, left, noted)?;
        }
        self.done()?;
        self.strays()
    }

    /// How far delivery has been of each topic. No number up to there is given to another notification: who has seen it would
    /// take that for a repetition.
    fn furthest(&self) -> Result<BTreeMap<TopicId, Offset>> {
        let mut furthest = BTreeMap::<_, Offset>::new();
        let marks = self
            .each::<TopicWatermark>()?
            .into_iter()
            .map(|(_, TopicWatermark(topic, mark))| (topic, mark.furthest()));
        let laggards =
            self.each::<Laggard>()?.into_iter().map(|(_, laggard)| (laggard.topic, laggard.cursor));
        for (topic, offset) in marks.chain(laggards) {
            let known = furthest.entry(topic).or_default();
            *known = offset.max(*known);
        }
        Ok(furthest)
    }

    fn left(&self, topic: TopicId) -> Result<Left> {
        let mut left = Left::default();
        for record in self.engine.scan(Space::Log, &Keys::prefix(key::topic(topic))) {
            let (place, value) = record?;
            let Some(offset) = key::offset_of_log(&place) else { continue };
            match open::<LogRecord>(self.keys, &place, &value).ok() {
                Some(record) if self.has_parts(topic, offset, record.body.parts())? => {
                    left.whole.insert(offset, Whole::from(&record));
                }
                _ => drop(left.torn.insert(offset)),
            }
        }
        Ok(left)
    }

    fn has_parts(&self, topic: TopicId, offset: Offset, parts: u64) -> Result<bool> {
        for part in 0..parts {
            if self.get::<Part>(&key::body(topic, offset, part))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn log(&mut self, state: &TopicState, mut left: Left, noted: Offset) -> Result<()> {
        let Topic { id, ref url, first, head, latest, posted } = state.topic;
        let end = left.last().unwrap_or_default().max(head).max(noted);
        let missing = left.missing(first, end);
        for (from, to) in &missing {
            // A restore leaps to places like this one; whatever stood there was damaged.
            let torn = left.torn.range(*from..=*to).next_back();
            let leaps = to.0 > 0 && Offset(to.0 - 1).leap() == *to;
            let lost = if leaps { torn.copied() } else { Some(*to) };
            let leapt = lost.map_or(*from, Offset::next);
            if let Some(lost) = lost {
                self.note(&mut left, id, (*from, lost), Empty::Lost)?;
                let which = if *from == lost { format!("{from}") } else { format!("{from} to {lost}") };
                self.lost(format!(
                    "notification {which} of topic {}: missing or damaged; whoever had not got it is told of a gap",
                    url.as_str()
                ));
            }
            if leapt <= *to {
                self.note(&mut left, id, (leapt, *to), Empty::Leapt)?;
                self.rebuilt(format!("that a restore leaped to notification {to} of topic {}", url.as_str()));
            }
        }
        let kept = || left.whole.range(first..);
        let newest = |rule| kept().rfind(|(_, whole)| whole.rule == Some(rule)).map(|(offset, _)| *offset);
        let topic = Topic {
            id,
            url: url.clone(),
            first,
            head: end,
            latest: latest.max(newest(Rule::Latest).unwrap_or_default()),
            posted: posted.max(newest(Rule::Every).unwrap_or_default()),
        };
        let bytes = kept().map(|(_, whole)| whole.bytes).sum();
        let oldest = kept().next().map(|(_, whole)| whole.received_at);
        // Who has posted speaks for it, whatever was noted.
        let payer = match TopicState::payer_by_log(&topic) {
            Payer::Publishers => Payer::Publishers,
            Payer::Strangers(_) => state.payer,
        };
        let mended = TopicState { topic, bytes, oldest, payer };
        if mended != *state {
            if missing.is_empty() {
                self.rebuilt(format!("what topic {} notes of its log", url.as_str()));
            }
            self.put(key::topic(id), &mended)?;
        }
        self.forget_before(id, first)
    }

    /// Notes in a log that nothing is at these places. It counts as old as what is before it, or else as what is behind it.
    fn note(
        &mut self,
        left: &mut Left,
        topic: TopicId,
        (from, to): (Offset, Offset),
        why: Empty,
    ) -> Result<()> {
        let neighbour = left.whole.range(..from).next_back().or_else(|| left.whole.range(from..).next());
        let received_at = neighbour.map_or_else(DateTime::now, |(_, whole)| whole.received_at);
        let hole = LogRecord::hole(to.0 - from.0 + 1, why, received_at);
        left.whole.insert(from, Whole::from(&hole));
        self.put(key::log(topic, from), &hole)?;
        for torn in left.torn.range(from.next()..=to.max(from.next())) {
            if *torn <= to {
                self.remove(Space::Log, &key::log(topic, *torn))?;
            }
        }
        Ok(())
    }

    /// What was before the first notification of a log goes, skips included, as retention does it.
    fn forget_before(&mut self, topic: TopicId, first: Offset) -> Result<()> {
        for space in [Space::Log, Space::Bodies] {
            let range = Keys::between(key::topic(topic), key::log(topic, first));
            for record in self.engine.scan(space, &range) {
                self.remove(space, &record?.0)?;
            }
        }
        for shard in self.shards()? {
            let range = Keys::between(key::shard_topic(shard, topic), key::skips_from(shard, topic, first));
            for record in self.engine.scan(Space::Skips, &range) {
                self.remove(Space::Skips, &record?.0)?;
            }
        }
        Ok(())
    }

    /// Logs of topics that nobody knows and nobody is subscribed to.
    fn logs_of_nobody(&mut self, states: &BTreeMap<TopicId, TopicState>) -> Result<()> {
        let mut strays = BTreeMap::<u64, u64>::new();
        for record in self.all(Space::Log) {
            let (key, _) = record?;
            let topic = number(&key, 0).filter(|_| key.len() == 16);
            if topic.is_none_or(|topic| !states.contains_key(&TopicId(topic))) {
                *strays.entry(topic.unwrap_or_default()).or_default() += 1;
                self.batch.remove(Space::Log, key.to_vec());
            }
        }
        for (topic, count) in strays {
            self.lost(format!(
                "{count} notifications of topic {topic:016x}, whose URL is lost and which nobody is subscribed to"
            ));
        }
        self.done()
    }

    /// Parts of bodies that are in no log.
    fn strays(&mut self) -> Result<()> {
        let mut strays = Vec::new();
        for record in self.all(Space::Bodies) {
            let (key, _) = record?;
            let parts = match key.get(..16) {
                Some(log) => self.get::<LogRecord>(log)?.map_or(0, |record| record.body.parts()),
                None => 0,
            };
            if number(&key, 16).is_none_or(|part| part >= parts) {
                strays.push(key);
            }
        }
        if !strays.is_empty() {
            self.rebuilt(format!("the bodies of logs, without {} parts of what is gone", strays.len()));
        }
        strays.iter().try_for_each(|key| self.remove(Space::Bodies, key))?;
        self.done()
    }

    /// How a topic is called, as far as that is known.
    pub(super) fn name(&self, id: TopicId) -> String {
        let state = self.get::<TopicState>(&key::topic(id)).ok().flatten();
        state.map_or_else(|| format!("{:016x}", id.0), |state| state.topic.url.as_str().to_owned())
    }
}
