//! Signatures of deliveries: `X-Hub-Signature: method=hex` (section 7.1).

use std::{fmt, str::FromStr};

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

use super::{Secret, excerpt};

/// Header of a delivery that carries its [`Signature`] (W-166).
pub const X_HUB_SIGNATURE: &str = "X-Hub-Signature";

/// A recognised HMAC method (W-168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SignatureMethod {
    /// `sha1`, for subscribers that know no other.
    Sha1,
    /// `sha256`, the default (D-09).
    #[default]
    Sha256,
    /// `sha384`
    Sha384,
    /// `sha512`
    Sha512,
}

impl SignatureMethod {
    /// Every method.
    pub const ALL: [Self; 4] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512];

    /// Its name in the header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// Bytes of its HMAC; the header has twice as many hexadecimal digits.
    fn length(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => LONGEST,
        }
    }
}

impl fmt::Display for SignatureMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SignatureMethod {
    type Err = SignatureError;

    fn from_str(name: &str) -> Result<Self, SignatureError> {
        let known = |method: &Self| method.name().eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(known).ok_or_else(|| SignatureError::Method { found: excerpt(name) })
    }
}

/// Why a delivery cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// No header although a secret was given (W-193).
    #[error("the delivery carries no X-Hub-Signature although the subscription has a secret")]
    Missing,
    /// No `=` in the header.
    #[error("X-Hub-Signature must have the form method=hex: the \"=\" is missing")]
    NoMethod,
    /// A method that is none of the four (W-168).
    #[error("the signature method \"{found}\" is unknown: it must be sha1, sha256, sha384 or sha512")]
    Method {
        /// The name as sent, shortened.
        found: String,
    },
    /// Too many or too few digits for the method.
    #[error("a {method} signature has {expected} hexadecimal digits, not {found}")]
    Length {
        /// The method named.
        method: SignatureMethod,
        /// Its digits.
        expected: usize,
        /// How many bytes were there.
        found: usize,
    },
    /// Something that is no hexadecimal digit.
    #[error("the signature contains something other than hexadecimal digits")]
    NotHex,
    /// No secret to check against.
    #[error("there is no secret to check the signature with")]
    NoSecret,
    /// The body was not signed with that secret, or was changed on the way (W-171).
    #[error("the signature does not match the body: another secret, or the body was changed on the way")]
    Mismatch,
}

/// Bytes of the longest HMAC.
const LONGEST: usize = 64;

/// A signature: a method and as many bytes as it makes. Printed as `sha256=<lower-case hex>` (W-166, H-10).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    method: SignatureMethod,
    /// Zeros follow after the method's length.
    bytes: [u8; LONGEST],
}

impl Signature {
    /// Reads the header's value. Digits and method may be in upper case; white space around the value is ignored.
    pub fn parse(text: &str) -> Result<Self, SignatureError> {
        let (method, digits) = text.trim().split_once('=').ok_or(SignatureError::NoMethod)?;
        let method: SignatureMethod = method.parse()?;
        let expected = method.length() * 2;
        if digits.len() != expected {
            return Err(SignatureError::Length { method, expected, found: digits.len() });
        }
        let mut bytes = [0; LONGEST];
        hex::decode_to_slice(digits, &mut bytes[..method.length()]).map_err(|_| SignatureError::NotHex)?;
        Ok(Self { method, bytes })
    }

    /// The method named.
    pub fn method(&self) -> SignatureMethod {
        self.method
    }

    /// Whether `body` was signed with `secret`, by the method named (W-170), in constant time.
    pub fn verify(&self, secret: &Secret, body: &[u8]) -> Result<(), SignatureError> {
        SigningKey::new(self.method, secret).verify(self, body)
    }

    fn new(method: SignatureMethod, mac: &[u8]) -> Self {
        let mut bytes = [0; LONGEST];
        bytes[..mac.len()].copy_from_slice(mac);
        Self { method, bytes }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.method.length()]
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; LONGEST * 2];
        let digits = &mut digits[..self.method.length() * 2];
        hex::encode_to_slice(self.as_bytes(), digits).map_err(|_| fmt::Error)?;
        write!(f, "{}={}", self.method, str::from_utf8(digits).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({self})")
    }
}

/// A secret prepared for one method: what HMAC computes from the key alone is done once, not for every body.
///
/// ```
/// use resync_core::websub::{Secret, Signature, SignatureMethod, SigningKey};
///
/// let secret = Secret::new("s3cr3t")?;
/// let signature = SigningKey::new(SignatureMethod::Sha256, &secret).sign("Grüße\n".as_bytes());
/// assert_eq!(
///     signature.to_string(),
///     "sha256=a7b730e30c5f1b3f41b47c1c24253616889a65a57a8ca56929106f55ae627bbd"
/// );
/// assert!(signature.verify(&secret, b"Gruss\n").is_err());
/// # Ok::<(), resync_core::websub::SecretError>(())
/// ```
#[derive(Clone)]
pub struct SigningKey(Prepared);

#[derive(Clone)]
enum Prepared {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
    Sha512(Hmac<Sha512>),
}

impl SigningKey {
    /// Prepares the secret.
    pub fn new(method: SignatureMethod, secret: &Secret) -> Self {
        Self(match method {
            SignatureMethod::Sha1 => Prepared::Sha1(prepare(secret)),
            SignatureMethod::Sha256 => Prepared::Sha256(prepare(secret)),
            SignatureMethod::Sha384 => Prepared::Sha384(prepare(secret)),
            SignatureMethod::Sha512 => Prepared::Sha512(prepare(secret)),
        })
    }

    /// The method it was prepared for.
    pub fn method(&self) -> SignatureMethod {
        match self.0 {
            Prepared::Sha1(_) => SignatureMethod::Sha1,
            Prepared::Sha256(_) => SignatureMethod::Sha256,
            Prepared::Sha384(_) => SignatureMethod::Sha384,
            Prepared::Sha512(_) => SignatureMethod::Sha512,
        }
    }

    /// Signs exactly these bytes (W-165, W-167): give the buffer that will be sent.
    pub fn sign(&self, body: &[u8]) -> Signature {
        let method = self.method();
        match &self.0 {
            Prepared::Sha1(key) => Signature::new(method, &over(key, body).finalize().into_bytes()),
            Prepared::Sha256(key) => Signature::new(method, &over(key, body).finalize().into_bytes()),
            Prepared::Sha384(key) => Signature::new(method, &over(key, body).finalize().into_bytes()),
            Prepared::Sha512(key) => Signature::new(method, &over(key, body).finalize().into_bytes()),
        }
    }

    fn verify(&self, signature: &Signature, body: &[u8]) -> Result<(), SignatureError> {
        let expected = signature.as_bytes();
        let same = match &self.0 {
            Prepared::Sha1(key) => over(key, body).verify_slice(expected),
            Prepared::Sha256(key) => over(key, body).verify_slice(expected),
            Prepared::Sha384(key) => over(key, body).verify_slice(expected),
            Prepared::Sha512(key) => over(key, body).verify_slice(expected),
        };
        same.map_err(|_| SignatureError::Mismatch)
    }
}

fn prepare<M: KeyInit>(secret: &Secret) -> M {
    M::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length")
}

fn over<M: Mac + Clone>(key: &M, body: &[u8]) -> M {
    let mut mac = key.clone();
    mac.update(body);
    mac
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.method())
    }
}

/// A delivered body whose signature was checked: the proof that it comes from somebody who knows the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedBody(Vec<u8>);

impl SignedBody {
    /// Checks the value of `X-Hub-Signature` against a body, by the method that the header names (W-193). While a secret
    /// is being replaced (W-061) give the old and the new one: any of them will do.
    pub fn check(
        header: Option<&str>,
        secrets: &[Secret],
        body: impl Into<Vec<u8>>,
    ) -> Result<Self, SignatureError> {
        if secrets.is_empty() {
            return Err(SignatureError::NoSecret);
        }
        let signature = Signature::parse(header.ok_or(SignatureError::Missing)?)?;
        let body = body.into();
        if secrets.iter().any(|secret| signature.verify(secret, &body).is_ok()) {
            Ok(Self(body))
        } else {
            Err(SignatureError::Mismatch)
        }
    }

    /// The bytes that were signed.
    pub fn body(&self) -> &[u8] {
        &self.0
    }

    /// The bytes that were signed, to keep.
    pub fn into_body(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BODY: &[u8] = b"\x47\x72\xc3\xbc\xc3\x9f\x65\x0a";
    const VECTORS: [&str; 4] = [
        "sha1=85d17e07812df431009cd622463771a113f77672",
        "sha256=a7b730e30c5f1b3f41b47c1c24253616889a65a57a8ca56929106f55ae627bbd",
        "sha384=e7af1d1725896252b1264477386f484a6bfd54f1c24ff466068160249191e63b315db1b1476805fff72c9b0b74ed4ae0",
        "sha512=902ea4aafa00a361c5689ce6078adcadd081092e0a509813305ee4ad913c24c60adbb35ca2de815917293f256330533c\
         34ea97f7e071685c0d96190623d36e16",
    ];

    fn secret(text: &str) -> Secret {
        Secret::new(text).unwrap()
    }

    #[test]
    fn w166_w168_d09_all_four_methods_sign_the_test_vectors_in_lower_case() {
        for (method, expected) in SignatureMethod::ALL.into_iter().zip(VECTORS) {
            let key = SigningKey::new(method, &secret("s3cr3t"));
            assert_eq!(key.sign(BODY).to_string(), expected);
            assert_eq!(key.sign(BODY).to_string(), expected, "a key can sign again");
            assert_eq!(key.method(), method);
        }
    }

    #[test]
    fn w170_the_test_vectors_verify_by_the_method_they_name() {
        for vector in VECTORS {
            let signature = Signature::parse(vector).unwrap();
            assert_eq!(signature.verify(&secret("s3cr3t"), BODY), Ok(()));
            assert_eq!(signature.verify(&secret("s3cr3T"), BODY), Err(SignatureError::Mismatch));
            assert_eq!(signature.verify(&secret("s3cr3t"), b"Gruss\n"), Err(SignatureError::Mismatch));
            assert_eq!(signature.method().name(), vector.split_once('=').unwrap().0);
        }
    }

    #[test]
    fn rfc4231_case_2_and_rfc2202_case_2_agree() {
        let (key, body) = (secret("Jefe"), b"what do ya want for nothing?");
        assert_eq!(
            SigningKey::new(SignatureMethod::Sha256, &key).sign(body).to_string(),
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            SigningKey::new(SignatureMethod::Sha1, &key).sign(body).to_string(),
            "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
        );
    }

    #[test]
    fn h10_upper_case_is_read_and_lower_case_written() {
        let upper = VECTORS[1].to_ascii_uppercase();
        assert_eq!(Signature::parse(&format!(" {upper}\t")).unwrap().to_string(), VECTORS[1]);
    }

    #[test]
    fn d09_the_default_method_is_sha256() {
        assert_eq!(SignatureMethod::default().to_string(), "sha256");
    }

    #[test]
    fn d09_bytes_of_one_method_under_the_label_of_another_are_refused() {
        let mislabelled = VECTORS[1].replace("sha256", "sha1");
        assert_eq!(
            Signature::parse(&mislabelled),
            Err(SignatureError::Length { method: SignatureMethod::Sha1, expected: 40, found: 64 })
        );
    }

    #[test]
    fn every_refusal_has_its_cause() {
        assert_eq!(Signature::parse(""), Err(SignatureError::NoMethod));
        assert_eq!(Signature::parse("sha256"), Err(SignatureError::NoMethod));
        assert_eq!(Signature::parse("md5=00"), Err(SignatureError::Method { found: "md5".into() }));
        assert_eq!(Signature::parse("=00"), Err(SignatureError::Method { found: String::new() }));
        assert_eq!(Signature::parse(&VECTORS[0].replace('8', "g")), Err(SignatureError::NotHex));
        for shift in ["", "0000"] {
            let digits = format!("sha1={shift}{}", &VECTORS[0]["sha1=".len() + 1..]);
            assert!(matches!(Signature::parse(&digits), Err(SignatureError::Length { .. })), "{digits}");
        }
    }

    #[test]
    fn w193_a_missing_signature_is_a_failure() {
        assert_eq!(SignedBody::check(None, &[secret("s3cr3t")], BODY), Err(SignatureError::Missing));
    }

    #[test]
    fn w171_only_a_body_that_matches_becomes_a_signed_body() {
        let secrets = [secret("s3cr3t")];
        let checked = SignedBody::check(Some(VECTORS[3]), &secrets, BODY).unwrap();
        assert_eq!(checked.body(), BODY);
        assert_eq!(checked.into_body(), BODY);
        assert_eq!(SignedBody::check(Some(VECTORS[3]), &secrets, &BODY[1..]), Err(SignatureError::Mismatch));
        assert_eq!(
            SignedBody::check(Some(&format!("{}0000", VECTORS[1])), &secrets, BODY),
            Err(SignatureError::Length { method: SignatureMethod::Sha256, expected: 64, found: 68 })
        );
        assert_eq!(SignedBody::check(Some(VECTORS[3]), &[], BODY), Err(SignatureError::NoSecret));
    }

    #[test]
    fn w063_while_a_secret_is_replaced_the_old_and_the_new_one_count() {
        for secrets in [["old", "s3cr3t"], ["s3cr3t", "new"]].map(|pair| pair.map(secret)) {
            assert!(SignedBody::check(Some(VECTORS[0]), &secrets, BODY).is_ok());
        }
        assert!(SignedBody::check(Some(VECTORS[0]), &[secret("old"), secret("new")], BODY).is_err());
    }

    #[test]
    fn no_secret_is_in_debug() {
        let key = SigningKey::new(SignatureMethod::Sha384, &secret("s3cr3t"));
        assert_eq!(format!("{key:?}"), "SigningKey(sha384)");
    }

    fn methods() -> impl Strategy<Value = SignatureMethod> {
        prop::sample::select(&SignatureMethod::ALL[..])
    }

    proptest! {
        #[test]
        fn b21_w167_any_secret_signs_any_body_so_that_only_it_verifies(
            method in methods(),
            text in "\\PC{1,49}|[a-z]{199}",
            body in prop::collection::vec(any::<u8>(), 0..300),
            flipped: prop::sample::Index,
        ) {
            let secret = secret(&text);
            let signature = SigningKey::new(method, &secret).sign(&body);
            let read = Signature::parse(&signature.to_string()).unwrap();
            prop_assert_eq!(read, signature);
            prop_assert_eq!(read.method(), method);
            prop_assert_eq!(read.verify(&secret, &body), Ok(()));
            let mut forged = signature.to_string().into_bytes();
            let at = forged.len() - 1 - flipped.index(method.length() * 2);
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            let forged = Signature::parse(str::from_utf8(&forged).unwrap()).unwrap();
            prop_assert_eq!(forged.verify(&secret, &body), Err(SignatureError::Mismatch));
        }

        #[test]
        fn no_text_makes_parsing_panic(text in "\\PC{0,200}|sha(1|256|384|512)=[0-9a-fA-Fü]{0,140}") {
            if let Ok(signature) = Signature::parse(&text) {
                prop_assert_eq!(signature.to_string(), text.trim().to_ascii_lowercase());
            }
        }
    }
}
