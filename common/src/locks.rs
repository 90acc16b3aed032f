//! Locks that are used on after a panic.
//!
//! The standard library marks a lock as poisoned where a thread panics while it holds it, since what the lock guards may be half changed.
//! These functions take it all the same: they are for what is complete between any two statements that may panic. Whatever else the panic
//! broke, its own task or thread reports it.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks a mutex.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a lock for reading.
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a lock for writing.
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_of_one_holder_keeps_nobody_out() {
        let (mutex, rwlock) = (Mutex::new(1), RwLock::new(2));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let (_mutex, _rwlock) = (lock(&mutex), write(&rwlock));
            panic!("while both are held");
        }));
        assert!(panicked.is_err() && mutex.is_poisoned() && rwlock.is_poisoned());
        assert_eq!((*lock(&mutex), *read(&rwlock)), (1, 2));
        *write(&rwlock) = 3;
        assert_eq!(*read(&rwlock), 3);
    }
}
