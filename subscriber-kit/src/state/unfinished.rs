//! What an earlier run received and did not handle, from the state file and the journal.

use std::collections::HashMap;

use resync_core::websub::signature::SignedBody;

use super::journal::{Arrival, Event};
use super::state_file::Record;
use super::window::{Identity, Stage, Window};

/// A notification that an earlier run received and did not handle.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) arrival: Arrival,
    pub(crate) body: SignedBody,
    /// Its slot in the window, if it has an id.
    pub(crate) slot: Option<u64>,
}

impl Unfinished {
    pub(crate) fn bytes(&self) -> u64 {
        self.arrival.bytes(&self.body)
    }
}

/// The windows by the tokens of their subscriptions, and what is unfinished, from the saved records and the journal.
pub(super) fn resume(records: &[Record], events: Vec<Event>) -> (HashMap<String, Window>, Vec<Unfinished>) {
    let windows = records.iter().map(|record| (record.token.clone(), Window::resume(&record.handled)));
    let mut windows: HashMap<String, Window> = windows.collect();
    let mut unfinished: Vec<Unfinished> = Vec::new();
    for event in events {
        match event {
            Event::Arrived(arrival, body) => {
                let identity = arrival.id.map(|id| Identity::new(id, body.body()));
                let window = windows.entry(arrival.token.clone()).or_default();
                if identity.is_some_and(|identity| window.stage(identity) == Some(Stage::Done)) {
                    continue;
                }
                let slot = identity.map(|identity| window.push(identity, Stage::Open));
                if let Some(id) = arrival.id {
                    window.set_arrived(id);
                }
                window.add_unhandled();
                unfinished.push(Unfinished { arrival, body, slot });
            }
            Event::Done(numbers) => unfinished.retain(|one| {
                let is_done = numbers.contains(&one.arrival.number);
                if let (true, Some(window)) = (is_done, windows.get_mut(&one.arrival.token)) {
                    if let Some(slot) = one.slot {
                        window.done(slot);
                    }
                    window.remove_unhandled();
                }
                !is_done
            }),
        }
    }
    (windows, unfinished)
}
