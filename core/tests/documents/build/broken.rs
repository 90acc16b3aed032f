//! A place for documents that breaks: once, as a disk that is full for a moment, or for good, as a process that is killed.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use resync_core::build::{Documents, MemoryDraft, MemorySink, Sink};

/// How a step breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// The step has no effect; the ones after it succeed.
    Once,
    /// The step takes effect, but is told to have failed; the ones after it succeed.
    Late,
    /// Nothing has any effect any more.
    ForGood,
}

#[derive(Debug)]
struct Fuse {
    left: Cell<usize>,
    how: Break,
}

impl Fuse {
    /// Runs a step, if it is not the one that breaks.
    fn step<T>(&self, step: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let full = || io::Error::new(io::ErrorKind::StorageFull, "no space left on device");
        if let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            return step();
        }
        match self.how {
            Break::Once => self.left.set(usize::MAX),
            Break::Late => {
                self.left.set(usize::MAX);
                step()?;
            }
            Break::ForGood => {}
        }
        Err(full())
    }
}

/// Documents in memory, up to the step that breaks; `after` looks at them after each step that shows.
pub(crate) struct Breaking<'a> {
    pub(crate) sink: &'a mut MemorySink,
    fuse: Rc<Fuse>,
    after: &'a mut dyn FnMut(&MemorySink),
}

impl<'a> Breaking<'a> {
    /// So many steps succeed.
    pub(crate) fn new(
        sink: &'a mut MemorySink,
        steps: usize,
        how: Break,
        after: &'a mut dyn FnMut(&MemorySink),
    ) -> Self {
        Self { sink, fuse: Rc::new(Fuse { left: Cell::new(steps), how }), after }
    }
}

pub(crate) struct BreakingDraft {
    draft: MemoryDraft,
    fuse: Rc<Fuse>,
}

impl io::Write for BreakingDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.fuse.step(|| io::Write::write(&mut self.draft, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.fuse.step(|| io::Write::flush(&mut self.draft))
    }
}

impl Documents for Breaking<'_> {
    type Published = <MemorySink as Documents>::Published;

    fn open(&self, name: &str) -> io::Result<Option<Self::Published>> {
        self.fuse.step(|| self.sink.open(name))
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.fuse.step(|| self.sink.list(prefix))
    }
}

impl Sink for Breaking<'_> {
    type Draft = BreakingDraft;
    type Staged = MemoryDraft;

    fn create(&mut self, name: &str) -> io::Result<BreakingDraft> {
        let draft = self.fuse.step(|| self.sink.create(name))?;
        Ok(BreakingDraft { draft, fuse: self.fuse.clone() })
    }

    fn stage(&mut self, draft: BreakingDraft) -> io::Result<MemoryDraft> {
        self.fuse.step(|| self.sink.stage(draft.draft))
    }

    fn publish(&mut self, staged: MemoryDraft) -> io::Result<()> {
        let outcome = self.fuse.step(|| self.sink.publish(staged));
        (self.after)(self.sink);
        outcome
    }

    fn remove(&mut self, name: &str) -> io::Result<bool> {
        let outcome = self.fuse.step(|| self.sink.remove(name));
        (self.after)(self.sink);
        outcome
    }
}
