//! What is committed while somebody copies the store.

use std::sync::Mutex;

use resync_common::locks::lock;

use super::engine::{Batch, Change};
use crate::store::BackupError;
use crate::store::backup::Changes;

/// Changes that wait for whoever copies, in bytes. Far more than come in between two reads of a few records.
const MOST: usize = 256 * 1024 * 1024;
/// Changes are handed over in parts of about so many bytes.
const PART: usize = 1024 * 1024;

/// The changes since the capture was looked at last.
#[derive(Debug, Default)]
pub(super) struct Capture(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    parts: Vec<Changes>,
    bytes: usize,
}

impl Capture {
    /// Takes a whole commit in.
    pub(super) fn take(&self, batch: &Batch) {
        let mut waiting = lock(&self.0);
        if waiting.bytes > MOST {
            // The copy is lost already; it hears so when it looks next.
            waiting.parts.clear();
            return;
        }
        let mut part = Changes::default();
        for (space, key, change) in batch.iter() {
            let value = match change {
                Change::Put(value) => Some(value.as_slice()),
                Change::Remove => None,
            };
            part.push(space.tag(), key, value);
            if part.len() > PART {
                waiting.bytes += part.len();
                waiting.parts.push(std::mem::take(&mut part));
            }
        }
        waiting.bytes += part.len();
        waiting.parts.push(part);
    }

    /// Everything that has waited: whole commits, in their order.
    pub(super) fn drain(&self) -> Result<Vec<Changes>, BackupError> {
        let mut waiting = lock(&self.0);
        if waiting.bytes > MOST {
            return Err(BackupError::TooSlow(waiting.bytes));
        }
        waiting.bytes = 0;
        Ok(std::mem::take(&mut waiting.parts))
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::Space;
    use super::*;

    #[test]
    fn whoever_never_looks_is_told_that_it_is_too_slow_and_takes_no_more_memory() {
        let capture = Capture::default();
        let mut batch = Batch::default();
        batch.put(Space::Log, vec![1], vec![0; 40 * 1024 * 1024]);
        (0..10).for_each(|_| capture.take(&batch));
        assert!(matches!(capture.drain(), Err(BackupError::TooSlow(_))));
        assert!(capture.0.lock().unwrap().parts.is_empty());
    }

    #[test]
    fn what_was_handed_over_is_not_handed_over_again() {
        let capture = Capture::default();
        let mut batch = Batch::default();
        batch.put(Space::Log, vec![1], vec![2]);
        capture.take(&batch);
        assert_eq!(capture.drain().unwrap().len(), 1);
        assert!(capture.drain().unwrap().is_empty());
    }
}
