//! Checks the signature of each copy on a thread of the lowest priority, so that what is measured does not pay for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use resync_common::locks::lock;
use rustix::process::nice;
use tokio::time::sleep;

use crate::check::{Copy, is_signed};
use crate::scenario::Post;
use crate::stamp::Stamp;

/// Connections that keep copies at once hardly ever meet.
const SHELVES: usize = 16;
/// Between two looks at what was kept.
const LOOK: Duration = Duration::from_millis(5);
/// The last of all.
const LAST: i32 = 19;

/// The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Checker(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    shelves: [Mutex<Vec<Copy>>; SHELVES],
    /// Taken from the shelves and not checked yet.
    is_busy: AtomicBool,
    /// Subscriber and post of those that are wrong.
    wrong: Mutex<Vec<(u32, u32)>>,
    is_over: AtomicBool,
}

impl Checker {
    pub(super) fn start(run: u32, posts: &[Post]) -> Self {
        let (shared, posts) = (Arc::<Shared>::default(), posts.to_vec());
        let its = Arc::clone(&shared);
        thread::spawn(move || {
            // On Linux this is about the thread. Where it is not allowed, the checks cost what they cost.
            let _ = nice(LAST);
            while !its.is_over.load(Ordering::SeqCst) {
                its.look(run, &posts);
                thread::sleep(LOOK);
            }
        });
        Self(shared)
    }

    /// `hint` tells apart those who keep something at once.
    pub(super) fn keep(&self, hint: u64, copy: Copy) {
        let shelf = usize::try_from(hint).unwrap_or(0) % SHELVES;
        lock(&self.0.shelves[shelf]).push(copy);
    }

    /// Waits until everything that was kept is checked; what is wrong since this was asked last.
    pub(super) async fn finish(&self) -> Vec<(u32, u32)> {
        // In this order: what is on no shelf any more is checked, or somebody is busy with it.
        while self.0.shelves.iter().any(|one| !lock(one).is_empty()) || self.0.is_busy.load(Ordering::SeqCst)
        {
            sleep(LOOK).await;
        }
        std::mem::take(&mut *lock(&self.0.wrong))
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}

impl Shared {
    fn look(&self, run: u32, posts: &[Post]) {
        self.is_busy.store(true, Ordering::SeqCst);
        for shelf in &self.shelves {
            // Bodies of the posts that are under way at the moment.
            let mut bodies: HashMap<u32, Vec<u8>> = HashMap::new();
            for copy in std::mem::take(&mut *lock(shelf)) {
                let Some((stamp, post)) =
                    copy.stamp.and_then(|one| Some((one, posts.get(one.post as usize)?)))
                else {
                    continue;
                };
                let body =
                    bodies.entry(stamp.post).or_insert_with(|| Stamp { run, ..stamp }.body(post.bytes));
                if !is_signed(&secret(copy.subscriber as usize), body, &copy.signature) {
                    lock(&self.wrong).push((copy.subscriber, stamp.post));
                }
            }
        }
        self.is_busy.store(false, Ordering::SeqCst);
    }
}

/// The secret that a subscriber and the hub share.
pub(super) fn secret(subscriber: usize) -> String {
    format!("secret of subscriber {subscriber}")
}
