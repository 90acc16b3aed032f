//! The secret that a subscriber shares with a hub: the HMAC key of its deliveries (section 5.1).

use std::fmt;

use super::random_hex;

/// The longest secret in bytes: it must be *shorter* than 200 (W-057).
pub const MAX_SECRET: usize = 199;

/// A secret of 1 to [`MAX_SECRET`] bytes of UTF-8, never shown by `Debug` or `Display`.
///
/// It is text because it travels in a form, which is UTF-8 (W-042).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// Why a secret was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// No bytes at all.
    #[error("the secret is empty: give 1 to {MAX_SECRET} bytes, or leave it out for unsigned deliveries")]
    Empty,
    /// 200 bytes or more (W-057).
    #[error("the secret has {length} bytes: it may have at most {MAX_SECRET}, counted in UTF-8")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// Bytes that a form cannot carry (W-042).
    #[error("the secret is not UTF-8: use text, for example random bytes written in hexadecimal")]
    NotUtf8,
}

impl Secret {
    /// Takes the secret's bytes as they are.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, SecretError> {
        let bytes = bytes.into();
        match bytes.len() {
            0 => Err(SecretError::Empty),
            length if length > MAX_SECRET => Err(SecretError::TooLong { length }),
            _ => String::from_utf8(bytes).map(|text| Self(text.into())).map_err(|_| SecretError::NotUtf8),
        }
    }

    /// A new secret of 64 hexadecimal characters, 244 of its bits random (W-054).
    pub fn random() -> Self {
        Self(random_hex().into())
    }

    /// The HMAC key.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w057_a_secret_of_199_bytes_is_accepted() {
        assert_eq!(Secret::new("k".repeat(199)).unwrap().as_bytes().len(), 199);
    }

    #[test]
    fn w057_a_secret_of_200_bytes_is_refused() {
        assert_eq!(Secret::new("k".repeat(200)), Err(SecretError::TooLong { length: 200 }));
    }

    #[test]
    fn w057_bytes_are_counted_not_characters() {
        assert_eq!(Secret::new("ü".repeat(100)), Err(SecretError::TooLong { length: 200 }));
        assert!(Secret::new("ü".repeat(99)).is_ok());
    }

    #[test]
    fn w042_a_secret_that_a_form_cannot_carry_is_refused() {
        assert_eq!(Secret::new([0xff]), Err(SecretError::NotUtf8));
    }

    #[test]
    fn an_empty_secret_is_refused() {
        assert_eq!(Secret::new(""), Err(SecretError::Empty));
    }

    #[test]
    fn w054_random_secrets_differ_and_are_64_hexadecimal_characters() {
        let (one, other) = (Secret::random(), Secret::random());
        assert_ne!(one, other);
        assert_eq!(hex::decode(one.as_bytes()).unwrap().len(), 32);
    }

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::new("s3cr3t").unwrap();
        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "[secret] [secret] Some([secret])");
        let error = Secret::new("s3cr3t".repeat(40)).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cr3t"));
    }
}
