//! Digests as `rs:md/@hash` holds them: `algorithm:hex`, several in one attribute (RS-034, RS-035).

use std::fmt;
use std::io;
use std::str::FromStr;

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// A digest algorithm that ResourceSync names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// `md5`, 16 bytes.
    Md5,
    /// `sha-1`, 20 bytes.
    Sha1,
    /// `sha-256`, 32 bytes.
    Sha256,
}

impl Algorithm {
    /// Every algorithm, weakest first.
    pub const ALL: [Self; 3] = [Self::Md5, Self::Sha1, Self::Sha256];

    /// The token before the colon: `md5`, `sha-1` or `sha-256`.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha-1",
            Self::Sha256 => "sha-256",
        }
    }

    const fn size(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

impl FromStr for Algorithm {
    type Err = DigestError;

    /// Reads a token in any letter case.
    fn from_str(text: &str) -> Result<Self, DigestError> {
        Self::ALL
            .into_iter()
            .find(|algorithm| text.eq_ignore_ascii_case(algorithm.token()))
            .ok_or(DigestError::Algorithm)
    }
}

/// Why a text is no [`Digest`] or [`Algorithm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DigestError {
    /// No colon between algorithm and value.
    #[error("a digest is written algorithm:hex, such as md5:1584abdf8ebdc9802ac0c6a7402c03b6")]
    Form,
    /// An algorithm other than the three of ResourceSync.
    #[error("the algorithm is none of md5, sha-1, sha-256")]
    Algorithm,
    /// Neither the hexadecimal nor the base64 form of a digest of this algorithm.
    #[error("the value is not the hexadecimal form of a digest of this algorithm")]
    Value,
}

/// One digest: an algorithm and as many bytes as it makes.
///
/// ```
/// use resync_core::digest::{Algorithm, Digest};
///
/// let digest = Digest::of(Algorithm::Md5, b"");
/// assert_eq!(digest.to_string(), "md5:d41d8cd98f00b204e9800998ecf8427e");
/// assert_eq!("MD5:D41D8CD98F00B204E9800998ECF8427E".parse(), Ok(digest));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    /// The digest, then zeros.
    bytes: [u8; 32],
}

impl Digest {
    /// The digest of a whole content.
    pub fn of(algorithm: Algorithm, content: &[u8]) -> Self {
        let mut state = State::new(algorithm);
        state.update(content);
        state.finish()
    }

    /// Which algorithm made it.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The 16, 20 or 32 bytes of the digest.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.size()]
    }

    /// The value in lower-case hexadecimal digits.
    pub(crate) fn hex(&self) -> Hex {
        let digit = |half: u8| half + if half < 10 { b'0' } else { b'a' - 10 };
        let mut digits = [0; 64];
        // All of them, also those that do not count, so that many are made at once.
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(self.bytes) {
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        Hex { digits, length: 2 * self.algorithm.size() }
    }

    fn from_slice(algorithm: Algorithm, digest: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes[..digest.len()].copy_from_slice(digest);
        Self { algorithm, bytes }
    }
}

/// The digits of a [`Digest`].
pub(crate) struct Hex {
    digits: [u8; 64],
    length: usize,
}

impl Hex {
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.digits[..self.length]).expect("hexadecimal digits are ASCII")
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    /// Reads `algorithm:value`, the value in hexadecimal of either case or, as documents before 2017 had it (RS-035), base64.
    fn from_str(text: &str) -> Result<Self, DigestError> {
        read_digest(text).map(|(digest, _)| digest)
    }
}

/// In which form the value of a digest was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Hex,
    Base64,
}

fn read_digest(text: &str) -> Result<(Digest, Form), DigestError> {
    let (token, value) = text.split_once(':').ok_or(DigestError::Form)?;
    let algorithm: Algorithm = token.parse()?;
    let mut bytes = [0; 32];
    let size = algorithm.size();
    if unhex(value.as_bytes(), &mut bytes[..size]) {
        return Ok((Digest { algorithm, bytes }, Form::Hex));
    }
    let decoded = base64(value).filter(|decoded| decoded.len() == size).ok_or(DigestError::Value)?;
    Ok((Digest::from_slice(algorithm, &decoded), Form::Base64))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm.token())?;
        f.write_str(":")?;
        f.write_str(self.hex().as_str())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a `hash` attribute holds: at most one digest per algorithm, and the tokens that say nothing to us.
///
/// A token that cannot be understood, or that contradicts an earlier one of its algorithm, is *unknown*, not a
/// mismatch (RS-035), and is kept so that a document can be written again as it was; of more than sixteen, the first sixteen.
///
/// ```
/// use resync_core::digest::{Agreement, Algorithm, Hashes};
///
/// let listed = Hashes::parse("md5:900150983cd24fb0d6963f7d28e17f72 whirlpool:00");
/// assert_eq!(listed.unknown(), ["whirlpool:00"]);
/// let mut hasher = resync_core::digest::Hasher::new(Algorithm::ALL);
/// hasher.update(b"abc");
/// assert_eq!(listed.compare(&hasher.finish()), Agreement::Same);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hashes {
    known: Vec<Digest>,
    unknown: Vec<String>,
}

/// Most unknown tokens that are kept of one attribute: a short one takes many times its length in memory.
const MAX_UNKNOWN: usize = 16;

/// What comparing two [`Hashes`] says about the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Every algorithm that both have gives the same digest.
    Same,
    /// An algorithm that both have gives different digests.
    Different,
    /// No algorithm in common, so nothing can be said.
    Unknown,
}

impl Hashes {
    /// Reads an attribute value; never fails, since what is not understood is kept as unknown.
    pub fn parse(text: &str) -> Self {
        Self::parse_noting(text, |_| {})
    }

    /// The same, with a word about each token that was understood although it is in base64 (RS-035).
    pub(crate) fn parse_noting(text: &str, mut base64: impl FnMut(&str)) -> Self {
        let mut hashes = Self::default();
        // The usual value is a single digest, for which no white space need be looked for.
        if let Ok((digest, Form::Hex)) = read_digest(text) {
            hashes.insert(digest);
            return hashes;
        }
        for token in text.split_ascii_whitespace() {
            match read_digest(token) {
                Ok((digest, form)) => {
                    if form == Form::Base64 {
                        base64(token);
                    }
                    hashes.insert(digest);
                }
                Err(_) => hashes.keep_unknown(token),
            }
        }
        hashes
    }

    /// The digests that were understood, in the order given.
    pub fn iter(&self) -> std::slice::Iter<'_, Digest> {
        self.known.iter()
    }

    /// The digest of one algorithm.
    pub fn get(&self, algorithm: Algorithm) -> Option<&Digest> {
        self.known.iter().find(|digest| digest.algorithm == algorithm)
    }

    /// The tokens that were not understood, sixteen at most.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Whether there is neither a digest nor an unknown token.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.unknown.is_empty()
    }

    /// Compares by every algorithm that both sides have.
    pub fn compare(&self, other: &Self) -> Agreement {
        let mut agreement = Agreement::Unknown;
        for digest in &self.known {
            match other.get(digest.algorithm) {
                Some(theirs) if theirs == digest => agreement = Agreement::Same,
                Some(_) => return Agreement::Different,
                None => {}
            }
        }
        agreement
    }

    fn insert(&mut self, digest: Digest) {
        match self.get(digest.algorithm) {
            None => self.known.push(digest),
            Some(first) if *first == digest => {}
            Some(_) => self.keep_unknown(&digest.to_string()),
        }
    }

    fn keep_unknown(&mut self, token: &str) {
        if self.unknown.len() < MAX_UNKNOWN {
            self.unknown.push(token.to_owned());
        }
    }
}

impl FromIterator<Digest> for Hashes {
    fn from_iter<I: IntoIterator<Item = Digest>>(digests: I) -> Self {
        let mut hashes = Self::default();
        digests.into_iter().for_each(|digest| hashes.insert(digest));
        hashes
    }
}

impl From<Digest> for Hashes {
    fn from(digest: Digest) -> Self {
        Self::from_iter([digest])
    }
}

impl<'a> IntoIterator for &'a Hashes {
    type Item = &'a Digest;
    type IntoIter = std::slice::Iter<'a, Digest>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Hashes {
    /// The attribute value: digests, then unknown tokens, separated by single spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for digest in &self.known {
            write!(f, "{gap}{digest}")?;
            gap = " ";
        }
        for token in &self.unknown {
            write!(f, "{gap}{token}")?;
            gap = " ";
        }
        Ok(())
    }
}

/// Reads a content to its end, piece by piece; an interrupted read is tried again. Gives its length.
pub(crate) fn read_pieces<E>(
    mut content: impl io::Read,
    unreadable: impl FnOnce(io::Error) -> E,
    mut piece: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    const BUFFER: usize = 64 * 1024;
    let (mut buffer, mut length) = (vec![0; BUFFER], 0);
    loop {
        match content.read(&mut buffer) {
            Ok(0) => return Ok(length),
            Ok(count) => {
                length += count as u64;
                piece(&buffer[..count])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
}

/// Computes several digests in one pass over a content; also an [`io::Write`], so that `io::copy` can feed it.
#[derive(Debug)]
pub struct Hasher {
    states: Vec<State>,
}

impl Hasher {
    /// A hasher for these algorithms; one named twice is computed once.
    pub fn new(algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        let mut wanted: Vec<Algorithm> = Vec::new();
        for algorithm in algorithms {
            if !wanted.contains(&algorithm) {
                wanted.push(algorithm);
            }
        }
        Self { states: wanted.into_iter().map(State::new).collect() }
    }

    /// Takes the next piece of the content.
    pub fn update(&mut self, content: &[u8]) {
        self.states.iter_mut().for_each(|state| state.update(content));
    }

    /// The digests of everything taken, in the order the algorithms were named.
    pub fn finish(self) -> Hashes {
        self.states.into_iter().map(State::finish).collect()
    }
}

impl io::Write for Hasher {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        self.update(content);
        Ok(content.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
enum State {
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl State {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Md5 => Self::Md5(Md5::new()),
            Algorithm::Sha1 => Self::Sha1(Sha1::new()),
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
        }
    }

    fn update(&mut self, content: &[u8]) {
        match self {
            Self::Md5(state) => state.update(content),
            Self::Sha1(state) => state.update(content),
            Self::Sha256(state) => state.update(content),
        }
    }

    fn finish(self) -> Digest {
        match self {
            Self::Md5(state) => Digest::from_slice(Algorithm::Md5, &state.finalize()),
            Self::Sha1(state) => Digest::from_slice(Algorithm::Sha1, &state.finalize()),
            Self::Sha256(state) => Digest::from_slice(Algorithm::Sha256, &state.finalize()),
        }
    }
}

/// Decodes hexadecimal digits of either case; gives `false` when these are none, or not as many as fit. Digests are a third of a
/// long list, and a table without branches takes a third of the time of the hex crate.
fn unhex(digits: &[u8], target: &mut [u8]) -> bool {
    /// More than any digit means.
    const NONE: u8 = 0xff;
    const DIGITS: [u8; 256] = {
        let mut table = [NONE; 256];
        let mut value: u8 = 0;
        while value < 16 {
            table[b"0123456789abcdef"[value as usize] as usize] = value;
            table[b"0123456789ABCDEF"[value as usize] as usize] = value;
            value += 1;
        }
        table
    };
    if digits.len() != 2 * target.len() {
        return false;
    }
    let mut all = 0;
    for (byte, pair) in target.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (DIGITS[usize::from(pair[0])], DIGITS[usize::from(pair[1])]);
        all |= high | low;
        *byte = high << 4 | low;
    }
    all < 16
}

/// Decodes base64 in either alphabet, padded or not, and tolerates what encoders left in the last bits.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(32);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for byte in text.trim_end_matches('=').bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(six)) & 0x3fff;
        held += 6;
        if held >= 8 {
            held -= 8;
            decoded.push(u8::try_from(bits >> held & 0xff).unwrap_or_default());
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests of `abc` as RFC 1321 and FIPS 180 publish them.
    const ABC: [&str; 3] = [
        "md5:900150983cd24fb0d6963f7d28e17f72",
        "sha-1:a9993e364706816aba3e25717850c26c9cd0d89d",
        "sha-256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    ];

    #[test]
    fn rs034_the_published_test_vectors_come_out_as_lower_case_hex() {
        for (algorithm, vector) in Algorithm::ALL.into_iter().zip(ABC) {
            assert_eq!(Digest::of(algorithm, b"abc").to_string(), vector);
        }
    }

    #[test]
    fn rs034_several_digests_may_stand_in_one_value_with_any_white_space() {
        let hashes = Hashes::parse(&format!(" {}\n\t{} ", ABC[0], ABC[2].to_uppercase()));
        assert_eq!(hashes.to_string(), format!("{} {}", ABC[0], ABC[2]));
        assert_eq!(hashes.get(Algorithm::Sha1), None);
    }

    #[test]
    fn rs035_base64_of_the_right_length_is_understood_in_both_alphabets() {
        let wanted = Digest::of(Algorithm::Sha256, b"abc");
        for text in [
            "sha-256:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=",
            "sha-256:ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0",
        ] {
            assert_eq!(text.parse(), Ok(wanted));
        }
    }

    #[test]
    fn rs035_what_cannot_be_read_is_unknown_and_not_a_mismatch() {
        let listed = Hashes::parse("sha-256:tooshort crc32:12345678 nonsense");
        assert_eq!(listed.unknown(), ["sha-256:tooshort", "crc32:12345678", "nonsense"]);
        assert_eq!(listed.compare(&Hashes::parse(ABC[2])), Agreement::Unknown);
        assert_eq!(listed.to_string(), "sha-256:tooshort crc32:12345678 nonsense");
    }

    #[test]
    fn one_differing_algorithm_outweighs_an_agreeing_one() {
        let ours = Hashes::parse(&ABC.join(" "));
        let theirs = Hashes::parse(&format!("{} sha-1:{}", ABC[0], "0".repeat(40)));
        assert_eq!(ours.compare(&theirs), Agreement::Different);
        assert_eq!(ours.compare(&Hashes::parse(ABC[1])), Agreement::Same);
    }

    #[test]
    fn a_second_digest_of_an_algorithm_is_dropped_when_equal_and_unknown_when_not() {
        let zeros = format!("md5:{}", "0".repeat(32));
        let hashes = Hashes::parse(&format!("{0} {0} {zeros}", ABC[0]));
        assert_eq!(hashes.iter().count(), 1);
        assert_eq!(hashes.unknown(), [zeros]);
    }

    #[test]
    fn of_many_unknown_tokens_the_first_are_kept_and_a_digest_behind_them_counts() {
        let contradicting = ABC[0].replace('9', "8");
        let text = format!("first {} {} {contradicting}", "a ".repeat(MAX_UNKNOWN), ABC[0]);
        let hashes = Hashes::parse(&text);
        assert_eq!(hashes.unknown().len(), MAX_UNKNOWN);
        assert_eq!(hashes.unknown()[0], "first");
        assert_eq!(hashes.compare(&Hashes::parse(ABC[0])), Agreement::Same);
    }

    #[test]
    fn a_hasher_fed_in_pieces_agrees_with_one_fed_at_once() {
        let mut hasher = Hasher::new([Algorithm::Sha256, Algorithm::Md5, Algorithm::Sha256]);
        io::copy(&mut &b"a"[..], &mut hasher).unwrap();
        hasher.update(b"bc");
        assert_eq!(hasher.finish().to_string(), format!("{} {}", ABC[2], ABC[0]));
    }

    #[test]
    fn each_bad_digest_has_a_named_cause() {
        assert_eq!("900150983cd24fb0d6963f7d28e17f72".parse::<Digest>(), Err(DigestError::Form));
        assert_eq!("sha-512:00".parse::<Digest>(), Err(DigestError::Algorithm));
        assert_eq!("md5:90015098".parse::<Digest>(), Err(DigestError::Value));
    }
}
