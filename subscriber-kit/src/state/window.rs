//! Which notifications of a subscription were received and handled: a window over the last ones, by which repetitions are
//! recognised.

use std::collections::VecDeque;

use resync_core::digest::{Algorithm, Digest};
use resync_core::websub::identity::NotificationId;
use serde::{Deserialize, Serialize};

use crate::text;

/// How many handled notifications of a subscription are remembered.
pub const REMEMBERED: usize = 256;

/// Identifies a notification: its id, which is not signed, and its body, which is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: NotificationId,
    /// The beginning of the body's SHA-256.
    pub(crate) body: u128,
}

impl Identity {
    pub(crate) fn new(id: NotificationId, body: &[u8]) -> Self {
        let digest = Digest::of(Algorithm::Sha256, body);
        let body = digest.as_bytes().iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte));
        Self { id, body }
    }

    fn parse(text: &str) -> Option<Self> {
        let (id, body) = text.split_once(' ')?;
        Some(Self { id: id.parse().ok()?, body: u128::from_str_radix(body, 16).ok()? })
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:032x}", self.id, self.body)
    }
}

/// A [`Window`] as it is saved.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Handled {
    /// The last notification before which all received ones are handled, itself included.
    #[serde(with = "text::option")]
    pub(super) last: Option<NotificationId>,
    /// The identities of the last handled ones, oldest first.
    handled: Vec<String>,
}

/// The notifications of a subscription in the order of their arrival: those being handled, and a bounded number of those that
/// were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    slots: VecDeque<Slot>,
    next: u64,
    last: Option<NotificationId>,
    /// The last one that arrived.
    arrived: Option<NotificationId>,
    /// How many are not handled. Those without an id have no slot, and count too.
    unhandled: u64,
    /// Its subscription is being forgotten.
    is_closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    identity: Identity,
    stage: Stage,
}

/// How far a notification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is being written to the journal.
    Writing,
    /// It is saved and not handled.
    Open,
    /// It is handled.
    Done,
}

impl Window {
    pub(super) fn resume(handled: &Handled) -> Self {
        let mut window = Self { last: handled.last, arrived: handled.last, ..Self::default() };
        for identity in handled.handled.iter().filter_map(|text| Identity::parse(text)) {
            window.push(identity, Stage::Done);
        }
        window
    }

    pub(super) fn handled(&self) -> Handled {
        let handled = self.slots.iter().filter(|slot| slot.is_done()).map(|slot| slot.identity.to_string());
        Handled { last: self.last, handled: handled.collect() }
    }

    /// Counts one that is to be handled.
    pub(crate) fn add_unhandled(&mut self) {
        self.unhandled += 1;
    }

    /// One is handled, or nothing of it is left.
    pub(crate) fn remove_unhandled(&mut self) {
        self.unhandled = self.unhandled.saturating_sub(1);
    }

    /// Whether one is written or waits, or waits for the next run.
    pub(super) fn has_unhandled(&self) -> bool {
        self.unhandled > 0
    }

    /// Takes nothing more, if nothing is unhandled; whether that is so.
    pub(super) fn close(&mut self) -> bool {
        self.is_closed = !self.has_unhandled();
        self.is_closed
    }

    /// Its subscription stays.
    pub(super) fn reopen(&mut self) {
        self.is_closed = false;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The last notification before which all received ones are handled, itself included.
    pub(crate) fn last(&self) -> Option<NotificationId> {
        self.last
    }

    /// How far it is; `None` if it is not known.
    pub(crate) fn stage(&self, identity: Identity) -> Option<Stage> {
        self.slots.iter().find(|slot| slot.identity == identity).map(|slot| slot.stage)
    }

    /// Records the arrival of a notification; returns how many are missing between the last one and it. There are none before a
    /// late one, or one of a topic that is numbered anew.
    pub(crate) fn skipped(&mut self, id: NotificationId) -> u64 {
        let before = self.arrived.replace(id).filter(|before| before.topic == id.topic);
        before.map_or(0, |before| id.offset.saturating_sub(before.offset.saturating_add(1)))
    }

    /// Records what an earlier run received last.
    pub(super) fn set_arrived(&mut self, id: NotificationId) {
        self.arrived = Some(id);
    }

    /// It is on disk.
    pub(crate) fn written(&mut self, number: u64) {
        self.set(number, Stage::Open);
    }

    /// It is handled. `last` moves only over handled ones, in the order of arrival.
    pub(crate) fn done(&mut self, number: u64) {
        self.set(number, Stage::Done);
        let through = self.slots.iter().take_while(|slot| slot.is_done()).last();
        self.last = through.map(|slot| slot.identity.id).or(self.last);
        let surplus = self.slots.iter().filter(|slot| slot.is_done()).count().saturating_sub(REMEMBERED);
        for _ in 0..surplus {
            if let Some(oldest) = self.slots.iter().position(Slot::is_done) {
                self.slots.remove(oldest);
            }
        }
    }

    /// It was dropped without being handled.
    pub(crate) fn forget(&mut self, number: u64) {
        self.slots.retain(|slot| slot.number != number || slot.is_done());
    }

    /// Adds a new notification; returns the number of its slot.
    pub(crate) fn push(&mut self, identity: Identity, stage: Stage) -> u64 {
        let number = self.next;
        self.next += 1;
        self.slots.push_back(Slot { number, identity, stage });
        number
    }

    fn set(&mut self, number: u64, stage: Stage) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.number == number) {
            slot.stage = stage;
        }
    }
}

impl Slot {
    fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(offset: u64, body: &str) -> Identity {
        Identity::new(NotificationId { topic: 1, offset }, body.as_bytes())
    }

    fn take(window: &mut Window, offset: u64) -> u64 {
        window.push(identity(offset, "x"), Stage::Open)
    }

    fn knows(window: &Window, identity: Identity) -> bool {
        window.stage(identity).is_some()
    }

    #[test]
    fn a_jump_of_the_hubs_numbers_is_a_gap_and_a_late_one_or_a_new_hub_is_none() {
        let mut window = Window::default();
        let mut skipped = |topic, offset| window.skipped(NotificationId { topic, offset });
        assert_eq!(skipped(1, 700), 0, "a subscription begins anywhere");
        assert_eq!([skipped(1, 701), skipped(1, 705), skipped(1, 703)], [0, 3, 0]);
        assert_eq!([skipped(2, 9), skipped(2, 10)], [0, 0]);
        assert_eq!(
            [skipped(2, u64::MAX), skipped(2, 11)],
            [u64::MAX - 11, 0],
            "no overflow, no lasting harm"
        );
    }

    fn last(window: &Window) -> Option<u64> {
        window.last().map(|id| id.offset)
    }

    #[test]
    fn a_forged_offset_mutes_nothing_else() {
        let mut window = Window::default();
        let forged = take(&mut window, u64::MAX);
        window.done(forged);
        assert!(!knows(&window, identity(1, "x")) && !knows(&window, identity(u64::MAX - 1, "x")));
        let genuine = take(&mut window, 7);
        window.done(genuine);
        assert_eq!(last(&window), Some(7));
        assert!(!knows(&Window::resume(&window.handled()), identity(8, "x")), "also after a restart");
    }

    #[test]
    fn a_hub_that_counts_its_offsets_again_is_heard() {
        let mut window = Window::default();
        let number = window.push(identity(900, "before the backup"), Stage::Open);
        window.done(number);
        let window = Window::resume(&window.handled());
        assert!(knows(&window, identity(900, "before the backup")));
        assert!(
            !knows(&window, identity(900, "after it")) && !knows(&window, identity(3, "before the backup"))
        );
    }

    #[test]
    fn last_moves_only_over_what_came_and_is_handled() {
        let mut window = Window::default();
        let [one, two, nine] = [1, 2, 9].map(|offset| take(&mut window, offset));
        window.done(two);
        assert_eq!(last(&window), None, "1 is still open");
        window.done(one);
        assert_eq!(last(&window), Some(2), "and not 8, which nobody has seen");
        window.done(nine);
        window.done(nine);
        assert_eq!(last(&window), Some(9));
    }

    #[test]
    fn what_is_let_go_is_handed_over_again_and_holds_up_nothing() {
        let mut window = Window::default();
        let (one, two) = (take(&mut window, 1), take(&mut window, 2));
        window.forget(one);
        window.done(two);
        assert_eq!(last(&window), Some(2));
        assert!(!knows(&window, identity(1, "x")) && knows(&window, identity(2, "x")));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_open_ones_are_never_dropped() {
        let mut window = Window::default();
        take(&mut window, 0);
        for offset in 1..=2 * REMEMBERED as u64 {
            let number = take(&mut window, offset);
            window.done(number);
        }
        assert_eq!(window.slots.len(), REMEMBERED + 1);
        assert!(knows(&window, identity(0, "x")) && !knows(&window, identity(1, "x")));
        assert_eq!(window.handled().handled.len(), REMEMBERED);
    }
}
