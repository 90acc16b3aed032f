//! The admin token, which allows everything.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use resync_core::websub::{Secret, SignatureMethod, SigningKey};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What a proof is over, before the challenge: the key serves nothing else.
const PROOF: &str = "the admin listener of a hub with this token\n";

/// Bytes of the shortest token that cannot be guessed; the hub makes longer ones.
const LONG: usize = 16;

/// A token that can be compared, and not read.
#[derive(Clone)]
pub struct AdminToken {
    digest: [u8; 32],
    is_long: bool,
}

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminToken([hidden])")
    }
}

impl AdminToken {
    /// The token with this text.
    pub fn new(text: &str) -> Self {
        let text = text.trim();
        Self { digest: Sha256::digest(text).into(), is_long: text.len() >= LONG }
    }

    /// Whether it is too long to be guessed.
    pub fn is_long(&self) -> bool {
        self.is_long
    }

    /// Whether this is it, in constant time.
    pub fn is(&self, presented: &str) -> bool {
        Self::new(presented).digest.ct_eq(&self.digest).into()
    }

    /// Proves to who has the token too that this is its hub. The challenge is chosen by who asks, so that no answer can be used again;
    /// nobody gets a long token by asking. A short one could be guessed from it: a hub with such a token proves nothing.
    pub fn proof(&self, challenge: &str) -> String {
        let key = Secret::new(hex::encode(self.digest)).expect("64 digits are a secret");
        SigningKey::new(SignatureMethod::Sha256, &key)
            .sign(format!("{PROOF}{challenge}").as_bytes())
            .to_string()
    }

    /// A short name for this hub's cookies, so that several hubs on one machine can be used. It shows nothing of the token.
    pub(super) fn name(&self) -> String {
        hex::encode(&Sha256::digest(self.digest)[..4])
    }

    /// What differs where the token does. A short token could be guessed from it.
    pub(super) fn fingerprint(&self) -> String {
        hex::encode(Sha256::digest(self.digest))
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

    #[test]
    fn a_token_is_long_without_what_stands_around_it() {
        assert!(AdminToken::new("0123456789abcdef\n").is_long());
        assert!(!AdminToken::new("0123456789abcde  \n").is_long());
    }
}
