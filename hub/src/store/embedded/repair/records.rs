//! Records that cannot be read. Each goes, and what it stood for is named as far as its place tells; those from whose place something
//! follows stay for the step that writes them anew.

use super::Mender;
use crate::store::embedded::check::{number, readable, used_numbers};
use crate::store::embedded::engine::Space;
use crate::store::embedded::key;
use crate::store::embedded::layout::{Counters, Floor, TopicState};
use crate::store::{Result, TopicId};

impl Mender<'_> {
    /// Removes what cannot be read. What follows from other records is made anew by later steps.
    pub(super) fn unreadable(&mut self) -> Result<()> {
        for space in Space::ALL {
            let mut damaged = Vec::new();
            for record in self.all(space) {
                let (key, value) = record?;
                if readable::read(space, self.keys, &key, &value).is_err() && !says_something(space, &key) {
                    damaged.push(key);
                }
            }
            for key in damaged {
                self.give_up(space, &key)?;
                self.remove(space, &key)?;
            }
        }
        self.done()
    }

    fn give_up(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let topic = |place| number(key, place).map_or_else(|| "?".to_owned(), |id| self.name(TopicId(id)));
        let of = |place| number(key, place).unwrap_or_default();
        match space {
            Space::Meta if key.starts_with(key::PAUSED) => {
                let topic = topic(key::PAUSED.len());
                self.lost(format!("that topic {topic} is paused: it is delivered"));
            }
            Space::Meta if key == key::UPTIME => {
                self.lost("when the hub was up: retention counts from the next start on");
            }
            Space::Meta if key.starts_with(key::EPOCH) => {
                self.rebuilt("who owned a part of the subscriptions last");
            }
            Space::Requests => self.lost(format!(
                "request {} of a subscriber that waited for verification: its subscriber has to ask again",
                of(0)
            )),
            Space::Subscriptions => {
                let topic = topic(2);
                self.lost(format!(
                    "subscription {} of topic {topic}: its subscriber has to subscribe again",
                    of(10)
                ));
            }
            Space::Pings => self.lost("a ping that waited: its topic is fetched when it is pinged again"),
            Space::Skips => {
                let topic = topic(2);
                self.lost(format!(
                    "the note that notification {} of topic {topic} was given up for subscription {}",
                    of(10),
                    of(18)
                ));
            }
            Space::Idempotency => {
                let topic = topic(0);
                self.lost(format!(
                    "what a publisher called a notification of topic {topic}: repeated under that key, it counts as a new one"
                ));
            }
            Space::IdempotencyExpiry => {
                let name = key::idempotency_of_expiry(key);
                self.remove(Space::Idempotency, &name)?;
                self.lost(
                    "what a publisher called a notification: repeated under that key, it counts as a new one",
                );
            }
            Space::Chains => {
                let topic = topic(0);
                self.lost(format!(
                    "how the Change Notifications of topic {topic} followed each other so far"
                ));
            }
            Space::Validators => {
                let topic = topic(0);
                self.lost(format!("what topic {topic} said of its content: the next fetch takes all of it"));
            }
            // Most are made anew; the others led to nobody.
            Space::SubscriptionIndex => self.unreadable_entries += 1,
            Space::Denials => self.lost(format!("denial {} that was not told yet", of(0))),
            Space::Gaps => self.lost("the note that a subscription has lost notifications"),
            // What these hold follows from other records, and the steps that look at it say what is lost.
            Space::Meta
            | Space::Topics
            | Space::Log
            | Space::Bodies
            | Space::Watermarks
            | Space::Laggards => {}
        }
        Ok(())
    }

    /// The next numbers are beyond those that are in use.
    pub(super) fn numbers(&mut self) -> Result<()> {
        let noted: Option<Counters> = self.get(key::COUNTERS)?;
        let used = used_numbers(self.engine, self.keys, noted.unwrap_or_default());
        if noted.unwrap_or_default() != used {
            self.put(key::COUNTERS.to_vec(), &used)?;
            self.rebuilt("the numbers that were given out last");
        }
        self.done()
    }

    /// Logs of new topics begin behind all that are known, and so far behind that what was forgotten is passed as well.
    pub(super) fn floor(&mut self) -> Result<()> {
        let is_there = self.engine.get(Space::Meta, key::FLOOR)?.is_some();
        if is_there && self.get::<Floor>(key::FLOOR)?.is_none() {
            let heads = self.each::<TopicState>()?.into_iter().map(|(_, state)| state.topic.head);
            let highest = heads.max().unwrap_or_default();
            self.put(key::FLOOR.to_vec(), &Floor(highest.leap()))?;
            self.rebuilt("where the logs of new topics begin: far behind all that are known");
        }
        self.done()
    }
}

/// Whether something follows from the mere place of a record.
fn says_something(space: Space, key: &[u8]) -> bool {
    match space {
        Space::Meta => key == key::FLOOR,
        Space::Topics => key.len() == 8,
        Space::Watermarks => key.len() == 10,
        Space::Log => key.len() == 16,
        Space::Laggards => key.len() == 18,
        _ => false,
    }
}
