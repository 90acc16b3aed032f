//! Answers of the shards that this hub owns, which are not all shards where other hubs own the rest.

/// An answer of the shards that this hub owns. Whoever takes it says whether that is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it may be a part of the answer"]
pub struct PartialAnswer<T> {
    answer: T,
    elsewhere: usize,
}

/// This hub does not deliver for so many shards of the store, so that it cannot answer for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this hub does not deliver for {0} of the store's shards, and cannot answer for them: ask again, or ask the hub that does"
)]
pub struct Elsewhere(pub usize);

impl<T> PartialAnswer<T> {
    /// `elsewhere` is the number of shards that did not answer.
    pub(crate) fn new(answer: T, elsewhere: usize) -> Self {
        Self { answer, elsewhere }
    }

    /// Makes something else of the answer.
    pub(super) fn map<U>(self, make: impl FnOnce(T) -> U) -> PartialAnswer<U> {
        PartialAnswer { answer: make(self.answer), elsewhere: self.elsewhere }
    }

    /// The answer of this hub's shards alone, for what each hub says of itself.
    pub fn of_this_hub(self) -> T {
        self.answer
    }

    /// The answer, if it is that of all shards.
    ///
    /// # Errors
    /// [`Elsewhere`]
    pub fn of_all(self) -> Result<T, Elsewhere> {
        if self.elsewhere == 0 { Ok(self.answer) } else { Err(Elsewhere(self.elsewhere)) }
    }
}

impl<T> PartialAnswer<Option<T>> {
    /// What one shard has at most: where it was found, the others need not be asked.
    ///
    /// # Errors
    /// [`Elsewhere`] where it was not found and may be in another shard.
    pub fn found(self) -> Result<Option<T>, Elsewhere> {
        if self.answer.is_some() { Ok(self.answer) } else { self.of_all() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_the_answer_and_what_was_not_only_where_all_shards_were_asked() {
        assert_eq!(PartialAnswer::new(Some(7), 3).found(), Ok(Some(7)));
        assert_eq!(PartialAnswer::new(None::<u8>, 3).found(), Err(Elsewhere(3)));
        assert_eq!(PartialAnswer::new(None::<u8>, 0).found(), Ok(None));
    }

    #[test]
    fn a_sum_over_some_shards_is_none_over_all() {
        let some = PartialAnswer::new(2, 1).map(|subscriptions| subscriptions + 3);
        assert_eq!(some.of_all(), Err(Elsewhere(1)));
        assert_eq!(some.of_this_hub(), 5);
        assert_eq!(PartialAnswer::new(5, 0).of_all(), Ok(5));
    }
}
