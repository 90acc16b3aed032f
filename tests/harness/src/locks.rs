//! Locks that are used on after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also where somebody has panicked who had it: that test or task says why, and the others still end as they should.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
