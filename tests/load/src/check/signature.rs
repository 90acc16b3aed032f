//! Signatures by `ring`, of copies that are checked and of the bare loop's requests: the hub signs with another implementation.

use ring::hmac::{HMAC_SHA256, Key, sign, verify};

/// What a field begins with that names SHA-256.
const METHOD: &str = "sha256=";
/// By their values.
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Signs with a secret that is prepared once, as a hub may do too.
pub(in super::super) struct Signer(Key);

impl Signer {
    pub(in super::super) fn new(secret: &str) -> Self {
        Self(Key::new(HMAC_SHA256, secret.as_bytes()))
    }

    /// The value of the field that goes with this body.
    pub(in super::super) fn field(&self, body: &[u8]) -> Vec<u8> {
        let signature = sign(&self.0, body);
        let mut field = Vec::with_capacity(METHOD.len() + 2 * signature.as_ref().len());
        field.extend_from_slice(METHOD.as_bytes());
        for byte in signature.as_ref() {
            field.extend([byte >> 4, byte & 0xf].map(|value| DIGITS[usize::from(value)]));
        }
        field
    }
}

/// Out of a field that names SHA-256.
pub(in super::super) fn read(field: &str) -> Option<[u8; 32]> {
    let digits = field.strip_prefix(METHOD)?.as_bytes();
    let mut signature = [0; 32];
    if digits.len() != 2 * signature.len() {
        return None;
    }
    for (byte, pair) in signature.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(signature)
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Whether somebody who knows the secret signed this body.
pub(in super::super) fn is_signed(secret: &str, body: &[u8], signature: &[u8; 32]) -> bool {
    verify(&Key::new(HMAC_SHA256, secret.as_bytes()), body, signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_rfc_4231_and_no_other() {
        // Test case 2 of RFC 4231.
        let signed = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let signature = read(signed).unwrap();
        assert!(is_signed("Jefe", b"what do ya want for nothing?", &signature));
        assert!(!is_signed("Jefe", b"what do ya want for nothing!", &signature));
        assert!(!is_signed("jefe", b"what do ya want for nothing?", &signature));
        assert_eq!(Signer::new("Jefe").field(b"what do ya want for nothing?"), signed.as_bytes());
        assert_eq!(read(&signed.to_uppercase().replace("SHA256", "sha256")), Some(signature));
        assert!(read(&signed[..70]).is_none() && read(&signed.replace('5', "g")).is_none());
    }
}
