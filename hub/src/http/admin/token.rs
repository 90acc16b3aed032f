//! The admin token, which allows everything.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A token that can be compared, and not read.
#[derive(Clone)]
pub struct AdminToken([u8; 32]);

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminToken([hidden])")
    }
}

impl AdminToken {
    /// The token with this text.
    pub fn new(text: &str) -> Self {
        Self(Sha256::digest(text.trim()).into())
    }

    /// Whether this is it, in constant time.
    pub fn is(&self, presented: &str) -> bool {
        Self::new(presented).0.ct_eq(&self.0).into()
    }

    /// A short name for this hub's cookies, so that several hubs on one machine can be used. It shows nothing of the token.
    pub(super) fn name(&self) -> String {
        hex::encode(&Sha256::digest(self.0)[..4])
    }
}

/// The bearer token that a request shows.
pub(super) fn shown(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_the_token() {
        let token = AdminToken::new("a long and random text\n");
        assert!(token.is("a long and random text"));
        for other in ["", "a long and random tex", "A long and random text", "a long and random textt"] {
            assert!(!token.is(other), "{other:?}");
        }
    }
}
