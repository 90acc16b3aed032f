//! The door of the operator's listener, be it to the API or to the pages: whoever shows the operator's token comes in, whatever others
//! have tried from the same address. Wrong tokens of one network are counted: beyond some they are refused without a word in the log.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tracing::warn;

use super::token::AdminToken;
use crate::buckets::{Buckets, network};
use crate::config::Rate;

/// Wrong tokens of one network that are told in the log. What keeps guesses out is the token, which has to be long: to look at none for a
/// while would keep the operator out too, behind the same proxy or on the same machine.
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
    /// Nor were too many others that came from there; how long to wait.
    #[error(
        "that is not the token of this hub, and too many wrong ones came from this address: wait a moment"
    )]
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
        if self.token.is(shown) {
            return Ok(());
        }
        self.wrong.admit(network(client), now).map_err(Shut::Early)?;
        warn!(%client, "a wrong operator's token was shown");
        Err(Shut::Wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_the_token_comes_in_whatever_others_try_from_the_same_address() {
        let (door, now) = (Door::new(AdminToken::new("right")), Instant::now());
        let (proxy, elsewhere) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert!((0..1_000).all(|_| door.open("right", proxy, now).is_ok()));
        assert!(
            (0..60).all(|_| door.open("guess", proxy, now) == Err(Shut::Wrong)),
            "right ones cost nothing"
        );
        assert!((0..100).all(|_| matches!(door.open("guess", proxy, now), Err(Shut::Early(_)))));
        assert_eq!(door.open("right", proxy, now), Ok(()));
        assert_eq!(door.open("guess", elsewhere, now), Err(Shut::Wrong));
        assert_eq!(door.open("guess", proxy, now + Duration::from_secs(1)), Err(Shut::Wrong));
    }
}
