//! Commands of one kind that wait at the same time are carried out by one statement, and share its commit.
//!
//! Whoever gives one puts it into the queue of its kind, and then waits for its answer or for the connection, whichever comes first. Who gets the
//! connection carries out what is in the queue by then, for all who have put it there.
//!
//! Commands of one kind that are about one pair (those of pings: about one topic) are carried out in the order in which they were given; those
//! of one statement are about different pairs, so it may treat all of them at once. Otherwise they may overtake each other, and nobody can tell:
//! whoever relies on a command waits for its answer, and by then it is committed. So a request is there before it is put in force, which takes
//! its number. Two commands without answers are concurrent: they might have come to two hubs.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Mutex;

use resync_common::locks::lock;
use tokio::sync::oneshot;

use super::rows::Param;
use crate::store::Result;

/// Commands of one statement. Each has less than 16 kB, and locks its pair until the commit: the database has room for some thousand locks.
const MOST: usize = 128;
/// Commands that are looked at for them.
const LOOKED_AT: usize = 16 * MOST;

/// What a function says of a command: a number, or nothing where the command came too late.
pub(super) type Answer = Option<i64>;

/// Who waits for that.
pub(super) type Asker = oneshot::Sender<Result<Answer>>;

/// A command that shares a statement with others of its kind.
pub(super) trait Grouped: Sized + Send + Sync {
    /// Its function takes the line, its generation, the node, and an array for each column. The only row has an array of `answers`.
    const STATEMENT: &'static str;

    /// The digest of the topic and callback that it is about, or of the topic alone.
    fn pair(&self) -> &[u8];

    /// The columns of these commands.
    fn columns(commands: &[Self]) -> Vec<Param>;
}

/// An array for each of these fields, in the order in which a function takes them.
macro_rules! columns {
    ($commands:expr; $($field:ident),+ $(,)?) => {
        $crate::store::postgres::rows::params![
            $($commands.iter().map(|command| command.$field.clone()).collect::<Vec<_>>()),+
        ]
    };
}
pub(super) use columns;

/// Commands of one kind that wait.
pub(super) struct Group<C>(Mutex<VecDeque<(C, Asker)>>);

// Secrets are among them.
impl<C> fmt::Debug for Group<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}

impl<C> Group<C> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Has this carried out behind what was given before. The answer comes from whoever does it.
    pub(super) fn add(&self, command: C) -> oneshot::Receiver<Result<Answer>> {
        let (asker, answered) = oneshot::channel();
        lock(&self.0).push_back((command, asker));
        answered
    }
}

impl<C: Grouped> Group<C> {
    /// Of each pair what has waited longest, up to the size of a statement. Whoever gives many commands about one pair holds up nobody else.
    pub(super) fn take(&self) -> (Vec<C>, Vec<Asker>) {
        let mut waiting = lock(&self.0);
        let (mut taken, mut left, mut pairs) = (Vec::new(), VecDeque::new(), HashSet::new());
        for _ in 0..waiting.len().min(LOOKED_AT) {
            if taken.len() == MOST {
                break;
            }
            let Some(one) = waiting.pop_front() else { break };
            if pairs.insert(one.0.pair().to_vec()) { taken.push(one) } else { left.push_back(one) }
        }
        while let Some(one) = left.pop_back() {
            waiting.push_front(one);
        }
        taken.into_iter().unzip()
    }
}

/// Gives each its own answer, or all of them the error.
pub(super) fn answer(askers: impl IntoIterator<Item = Asker>, outcome: Result<Vec<Answer>>) {
    let mut answers = outcome.map(Vec::into_iter);
    for asker in askers {
        let answer = match &mut answers {
            Ok(answers) => answers.next().map(Ok),
            Err(error) => Some(Err(error.clone())),
        };
        if let Some(answer) = answer {
            // Who has gone away does not want to know.
            let _ = asker.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::store::StoreError;

    /// About the pair of this number.
    #[derive(Debug, PartialEq)]
    struct About([u8; 1]);

    impl Grouped for About {
        const STATEMENT: &'static str = "";

        fn pair(&self) -> &[u8] {
            &self.0
        }

        fn columns(_: &[Self]) -> Vec<Param> {
            Vec::new()
        }
    }

    fn about(pairs: impl IntoIterator<Item = u8>) -> Vec<About> {
        pairs.into_iter().map(|pair| About([pair])).collect()
    }

    #[test]
    fn what_waits_is_taken_in_its_order_up_to_the_size_of_a_statement() {
        let group = Group::new();
        let answered: Vec<_> = about(0..=130).into_iter().map(|command| group.add(command)).collect();
        let (first, askers) = group.take();
        assert_eq!(first, about(0..128));
        assert_eq!(group.take().0, about(128..=130));
        assert!(group.take().0.is_empty());
        answer(askers, Ok((0..).take(MOST).map(Some).collect()));
        for (number, answered) in (0..).zip(answered).take(MOST) {
            let answer = answered.now_or_never();
            assert!(matches!(answer, Some(Ok(Ok(Some(own)))) if own == number), "{number}: {answer:?}");
        }
    }

    #[test]
    fn those_of_a_statement_are_about_different_pairs_and_many_about_one_hold_up_nobody_else() {
        let group = Group::new();
        for command in about([1, 2, 1, 1, 3]) {
            drop(group.add(command));
        }
        let statements = [(); 4].map(|()| group.take().0);
        assert_eq!(statements, [about([1, 2, 3]), about([1]), about([1]), Vec::new()]);
    }

    #[test]
    fn an_error_is_told_to_all_and_an_answer_that_is_missing_to_nobody() {
        let group = Group::new();
        let [one, other] = [1, 2].map(|pair| group.add(About([pair])));
        answer(group.take().1, Err(StoreError::Closed));
        for answered in [one, other] {
            assert!(matches!(answered.now_or_never(), Some(Ok(Err(StoreError::Closed)))));
        }
        let [one, other] = [1, 2].map(|pair| group.add(About([pair])));
        answer(group.take().1, Ok(vec![None]));
        assert!(matches!(one.now_or_never(), Some(Ok(Ok(None)))));
        assert!(matches!(other.now_or_never(), Some(Err(_))), "it is told that the store is closed");
    }
}
