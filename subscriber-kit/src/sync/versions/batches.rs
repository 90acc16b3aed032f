//! Reads versions from files, some at a time, since each time wakes a thread.

use std::collections::VecDeque;
use std::io;

use crate::blocking::blocking;
use crate::sync::reading::told::{ToldVersion, VersionLines};

/// How many are read at a time.
const AT_ONCE: usize = 64;

/// Versions, one after another.
pub(super) struct Batches {
    some: VecDeque<ToldVersion>,
    /// `None` at the end.
    lines: Option<VersionLines>,
}

impl Batches {
    pub(super) fn of(lines: VersionLines) -> Self {
        Self { some: VecDeque::new(), lines: Some(lines) }
    }

    /// The next version; not to be called after an error, nor cancelled.
    pub(super) async fn next(&mut self) -> io::Result<Option<ToldVersion>> {
        if self.some.is_empty()
            && let Some(mut lines) = self.lines.take()
        {
            let (lines, some) = blocking(move || {
                let some: io::Result<VecDeque<_>> = lines.by_ref().take(AT_ONCE).collect();
                (lines, some)
            })
            .await;
            self.some = some?;
            self.lines = (!self.some.is_empty()).then_some(lines);
        }
        Ok(self.some.pop_front())
    }
}
