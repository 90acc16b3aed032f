//! Topics and their logs. A log begins behind the last notification that is missing, as after retention: whoever had not got what
//! is gone is told of a gap.

use std::collections::{BTreeMap, BTreeSet};

use resync_core::datetime::DateTime;

use super::Mender;
use crate::store::embedded::check::number;
use crate::store::embedded::codec::open;
use crate::store::embedded::engine::{Keys, Space};
use crate::store::embedded::key;
use crate::store::embedded::layout::{LogRecord, Part, TopicState, TopicWatermark};
use crate::store::{Laggard, Offset, Result, Rule, Subscription, Topic, TopicId};

/// What is left of a log.
#[derive(Debug, Default)]
struct Left {
    /// Each whole notification: its bytes, when it came in, and its rule.
    whole: BTreeMap<Offset, (u64, DateTime, Rule)>,
    /// Whatever else there is.
    torn: BTreeSet<Offset>,
}

impl Mender<'_> {
    /// Topics that subscriptions are of have records.
    pub(super) fn topics(&mut self) -> Result<()> {
        for (_, subscription) in self.each::<Subscription>()? {
            let key = key::topic(subscription.topic);
            if self.batch.change(Space::Topics, &key).is_some() || self.get::<TopicState>(&key)?.is_some() {
                continue;
            }
            // Its log is looked at next.
            let topic = Topic {
                id: subscription.topic,
                url: subscription.topic_url.clone(),
                first: Offset(1),
                head: subscription.start,
                latest: Offset(0),
                posted: Offset(0),
            };
            self.put(key, &TopicState { topic, bytes: 0, oldest: None })?;
            self.remade.insert(subscription.topic);
            self.rebuilt(format!("topic {}", subscription.topic_url.as_str()));
            self.done()?;
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
            self.log(&state, &left, noted)?;
        }
        self.done()?;
        self.strays()
    }

    /// How far delivery has been of each topic. No number up to there is given to another notification: who has seen it would
    /// take that for a repetition.
    fn furthest(&self) -> Result<BTreeMap<TopicId, Offset>> {
        let mut furthest = BTreeMap::<_, Offset>::new();
        let marks = self.each::<TopicWatermark>()?.into_iter().map(|(_, TopicWatermark(topic, mark))| {
            (topic, mark.sweep.map_or(mark.done, |sweep| mark.done.max(sweep.target)))
        });
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
                    left.whole.insert(offset, (record.body.len(), record.received_at, record.rule));
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

    fn log(&mut self, state: &TopicState, left: &Left, noted: Offset) -> Result<()> {
        let Topic { id, ref url, first, head, latest, posted } = state.topic;
        let url = url.clone();
        let end = [Some(head), Some(noted), left.whole.keys().last().copied(), left.torn.last().copied()];
        let end = end.into_iter().flatten().max().unwrap_or_default();
        // A topic whose record is made anew does not know where retention had cut its log.
        let known_from = left.whole.keys().next().copied().unwrap_or(end.next());
        let first = if self.remade.contains(&id) { known_from.max(first) } else { first };
        let mut begin = end.next();
        while begin > first && left.whole.contains_key(&Offset(begin.0 - 1)) {
            begin = Offset(begin.0 - 1);
        }
        if begin > first {
            let missing: Vec<_> =
                (first.0..begin.0).filter(|offset| !left.whole.contains_key(&Offset(*offset))).collect();
            self.lost(format!(
                "notifications {first} to {} of topic {}: {}; whoever had not got them is told of a gap",
                begin.0 - 1,
                url.as_str(),
                causes(&missing, begin.0 - first.0)
            ));
        }
        let kept = || left.whole.range(begin..);
        let newest =
            |rule| kept().rfind(|(_, (.., of))| *of == rule).map_or(Offset(0), |(offset, _)| *offset);
        let topic = Topic {
            id,
            url,
            first: begin,
            head: end,
            latest: latest.max(newest(Rule::Latest)),
            posted: posted.max(newest(Rule::Every)),
        };
        let bytes = kept().map(|(_, (bytes, ..))| bytes).sum();
        let oldest = kept().next().map(|(_, (_, at, _))| *at);
        let mended = TopicState { topic, bytes, oldest };
        if mended != *state {
            if begin == first {
                self.rebuilt(format!("what topic {} notes of its log", mended.topic.url.as_str()));
            }
            self.put(key::topic(id), &mended)?;
        }
        self.forget_before(id, begin)
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

/// Which of so many notifications were missing or damaged; the others are whole, and go with them.
fn causes(missing: &[u64], all: u64) -> String {
    const NAMED: usize = 20;
    let named: Vec<_> = missing.iter().take(NAMED).map(ToString::to_string).collect();
    let more = missing.len().saturating_sub(NAMED);
    let named = if more > 0 { format!("{} and {more} more", named.join(", ")) } else { named.join(", ") };
    match all - missing.len() as u64 {
        0 => format!("{named} missing or damaged"),
        whole => format!("{named} missing or damaged, and with them {whole} whole, since a log has no holes"),
    }
}
