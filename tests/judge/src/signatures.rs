//! Signatures by two implementations that are not the products': `ring`, and Python's `hmac` and `hashlib`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use ring::hmac::{self, Algorithm, Key};

/// What `X-Hub-Signature` is for a body, by `ring`.
///
/// # Panics
/// When the method is none of the four.
pub fn signature(method: &str, secret: &str, body: &[u8]) -> String {
    let key = key(method, secret).unwrap_or_else(|| panic!("{method} is no method of signatures"));
    format!("{method}={}", hex::encode(hmac::sign(&key, body)))
}

/// Whether a value of `X-Hub-Signature` is right, by `ring` and the method that it names.
pub fn is_signature(value: &str, secret: &str, body: &[u8]) -> bool {
    let Some((method, digits)) = value.split_once('=') else { return false };
    let (Some(key), Ok(tag)) = (key(method, secret), hex::decode(digits)) else { return false };
    hmac::verify(&key, body, &tag).is_ok()
}

fn key(method: &str, secret: &str) -> Option<Key> {
    let algorithm: Algorithm = match method {
        "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => hmac::HMAC_SHA256,
        "sha384" => hmac::HMAC_SHA384,
        "sha512" => hmac::HMAC_SHA512,
        _ => return None,
    };
    Some(Key::new(algorithm, secret.as_bytes()))
}

/// What is to be signed.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// `sha1`, `sha256`, `sha384` or `sha512`.
    pub method: &'a str,
    /// The secret as it stands in a form: Python decodes it, too.
    pub secret: &'a str,
    /// The body.
    pub body: &'a [u8],
}

/// What `X-Hub-Signature` is for each of these, by Python.
///
/// # Panics
/// When there is no `python3`.
pub fn signatures_of_python(all: &[Signed<'_>]) -> Vec<String> {
    let lines = all.iter().fold(String::new(), |mut lines, Signed { method, secret, body }| {
        writeln!(lines, "{method} {secret} {}", hex::encode(body)).expect("writing to a string succeeds");
        lines
    });
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let input = folder.path().join("input");
    fs::write(&input, lines).expect("a file can be written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers/signatures.py");
    let output = Command::new("python3").arg(script).arg(input).output();
    let output = output.expect("python3 is installed: tests/run does it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let signatures: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    assert_eq!(signatures.len(), all.len());
    signatures
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231 and RFC 2202, test case 2: the key is "Jefe".
    #[test]
    fn w168_both_implementations_know_the_published_test_vectors() {
        let body = b"what do ya want for nothing?";
        let published = [
            ("sha1", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
            ("sha256", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (
                "sha384",
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                "sha512",
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ];
        let asked = published.map(|(method, _)| Signed { method, secret: "%4Aefe", body });
        let expected = published.map(|(method, digits)| format!("{method}={digits}"));
        assert_eq!(signatures_of_python(&asked), expected);
        for ((method, _), expected) in published.iter().zip(&expected) {
            assert_eq!(&signature(method, "Jefe", body), expected);
            assert!(is_signature(expected, "Jefe", body) && !is_signature(expected, "Jefe", b"else"));
        }
    }
}
