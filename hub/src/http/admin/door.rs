//! The door of the operator's listener, be it to the API or to the pages: whoever shows the operator's token comes in, and whoever
//! shows wrong ones is not looked at for a while. That holds for one network: nobody is kept out by what others try.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tracing::warn;

use super::token::AdminToken;
use crate::buckets::{Buckets, network};
use crate::config::Rate;

/// Wrong tokens of one network: the hub's own cannot be guessed, but one that a person chose perhaps can.
const WRONG: Rate = Rate { per_second: 1.0, burst: 60 };

/// Lets the operator in.
#[derive(Clone, Debug)]
pub struct Door {
    token: AdminToken,
    wrong: Buckets,
}

/// Why somebody does not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Shut {
    /// That is not the token.
    #[error("that is not the token of this hub")]
    Wrong,
    /// Too many wrong ones have come from there, so that this one was not looked at; when it would be.
    #[error("too many wrong tokens came from this address: wait a moment")]
    Early(Duration),
}

impl Door {
    /// A door that this token opens.
    pub fn new(token: AdminToken) -> Self {
        Self { token, wrong: Buckets::new(true, WRONG) }
    }

    /// Whether somebody at this address who shows this may come in. What is wrong is counted, and told in the log.
    ///
    /// # Errors
    /// [`Shut`]
    pub(super) fn open(&self, shown: &str, client: IpAddr, now: Instant) -> Result<(), Shut> {
        let from = network(client);
        self.wrong.admit_heavy(from, 0, now).map_err(Shut::Early)?;
        if self.token.is(shown) {
            return Ok(());
        }
        self.wrong.take(from, 1, now);
        warn!(%client, "a wrong operator's token was shown");
        Err(Shut::Wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tokens_keep_out_whoever_shows_them_for_a_moment_and_nobody_else_and_right_ones_cost_nothing() {
        let (door, now) = (Door::new(AdminToken::new("right")), Instant::now());
        let (guesser, operator) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert!((0..1_000).all(|_| door.open("right", guesser, now).is_ok()));
        assert!((0..60).all(|_| door.open("guess", guesser, now) == Err(Shut::Wrong)));
        assert!(
            matches!(door.open("right", guesser, now), Err(Shut::Early(_))),
            "else one could go on guessing"
        );
        assert_eq!(door.open("right", operator, now), Ok(()));
        assert_eq!(door.open("right", guesser, now + Duration::from_secs(1)), Ok(()));
    }
}
