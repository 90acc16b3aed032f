//! Authentication for the admin API and the pages. The right token is always accepted, whatever others tried from the same address.
//! Wrong tokens are counted per network: beyond a limit they are refused and not logged.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tracing::warn;

use super::token::AdminToken;
use crate::config::Rate;
use crate::rate_limiter::{RateLimiter, network};

/// Wrong tokens of one network that are logged. Only the token's length keeps guesses out: refusing all tokens for a while would lock
/// out the operator too, behind the same proxy or on the same machine.
const WRONG: Rate = Rate { per_second: 1.0, burst: 60 };

/// Checks the operator's token.
#[derive(Clone, Debug)]
pub struct Authentication {
    token: AdminToken,
    wrong: RateLimiter,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotAdmitted {
    /// That is not the token.
    #[error("wrong admin token: the hub's is in the file admin-token of its data folder")]
    Wrong,
    /// Nor were too many others that came from there; how long to wait.
    #[error("wrong admin token, and too many wrong ones came from this address: try again in a minute")]
    TooMany(Duration),
}

impl Authentication {
    /// Accepts this token.
    pub fn new(token: AdminToken) -> Self {
        Self { token, wrong: RateLimiter::new(true, WRONG) }
    }

    /// [`AdminToken::proof`]; `None`: the token could be guessed from it.
    pub(super) fn proof(&self, challenge: &str) -> Option<String> {
        self.token.is_long().then(|| self.token.proof(challenge))
    }

    /// Whether this token, shown by a client at this address, is the right one. A wrong one is counted and logged.
    ///
    /// # Errors
    /// [`NotAdmitted`]
    pub(super) fn check(&self, shown: &str, client: IpAddr, now: Instant) -> Result<(), NotAdmitted> {
        if self.token.is(shown) {
            return Ok(());
        }
        self.wrong.admit(network(client), now).map_err(NotAdmitted::TooMany)?;
        warn!(%client, "wrong admin token");
        Err(NotAdmitted::Wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_the_token_comes_in_whatever_others_try_from_the_same_address() {
        let (auth, now) = (Authentication::new(AdminToken::new("right")), Instant::now());
        let (proxy, elsewhere) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert!((0..1_000).all(|_| auth.check("right", proxy, now).is_ok()));
        assert!(
            (0..60).all(|_| auth.check("guess", proxy, now) == Err(NotAdmitted::Wrong)),
            "right ones cost nothing"
        );
        assert!((0..100).all(|_| matches!(auth.check("guess", proxy, now), Err(NotAdmitted::TooMany(_)))));
        assert_eq!(auth.check("right", proxy, now), Ok(()));
        assert_eq!(auth.check("guess", elsewhere, now), Err(NotAdmitted::Wrong));
        assert_eq!(auth.check("guess", proxy, now + Duration::from_secs(1)), Err(NotAdmitted::Wrong));
    }
}
