//! The token by which a subscriber of `PubSubHubbub` 0.3 recognises the verification of its own request (C-02).

use std::fmt;

/// The longest token in bytes.
pub const MAX_VERIFY_TOKEN: usize = 512;

/// A `hub.verify_token` of 1 to [`MAX_VERIFY_TOKEN`] bytes, to be sent back as it came. It is never shown by `Debug`: who knows it could
/// pretend to be the hub.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifyToken(Box<str>);

/// A token that is empty or too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token has 1 to {MAX_VERIFY_TOKEN} bytes, not {length}")]
pub struct VerifyTokenError {
    /// Its length in bytes.
    pub length: usize,
}

impl VerifyToken {
    /// Checks the length.
    pub fn new(text: &str) -> Result<Self, VerifyTokenError> {
        match text.len() {
            1..=MAX_VERIFY_TOKEN => Ok(Self(text.into())),
            length => Err(VerifyTokenError { length }),
        }
    }

    /// The text to send back.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for VerifyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[verify token]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c02_a_token_has_1_to_512_bytes_and_is_never_printed() {
        let longest = VerifyToken::new(&"t".repeat(512)).unwrap();
        assert_eq!((longest.as_str().len(), format!("{longest:?}")), (512, "[verify token]".to_owned()));
        for length in [0, 513] {
            assert_eq!(VerifyToken::new(&"t".repeat(length)), Err(VerifyTokenError { length }));
        }
    }
}
