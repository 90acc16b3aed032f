//! The digests of several short contents at once.
//!
//! Each step of MD5 (RFC 1321) waits for the one before, and a processor with nothing else to do waits too: three contents side by side take little
//! more time than one. The other algorithms have instructions of their own on the processors of today.

use super::{Algorithm, Digest, Hashes};

/// How many contents are digested side by side: with more, their words have no room in the registers of a processor.
const LANES: usize = 3;
const BLOCK: usize = 64;

/// The same word of each content.
type Words = [u32; LANES];
/// The state after some blocks, or what is added to it.
type State = [Words; 4];

/// The digests of each content, as [`Hasher`](super::Hasher) gives them one by one.
pub(crate) fn of_each(algorithms: &[Algorithm], contents: &[&[u8]]) -> Vec<Hashes> {
    let md5 = if algorithms.contains(&Algorithm::Md5) { md5_of_each(contents) } else { Vec::new() };
    let of_one = |(number, content): (usize, &&[u8])| {
        let digests = algorithms.iter().map(|&algorithm| match md5.get(number) {
            Some(digest) if algorithm == Algorithm::Md5 => *digest,
            _ => Digest::of(algorithm, content),
        });
        digests.collect()
    };
    contents.iter().enumerate().map(of_one).collect()
}

fn md5_of_each(contents: &[&[u8]]) -> Vec<Digest> {
    let mut digests = vec![Digest { algorithm: Algorithm::Md5, bytes: [0; 32] }; contents.len()];
    // Those of about the same length go together, so that none waits long for another.
    let mut order: Vec<usize> = (0..contents.len()).collect();
    order.sort_unstable_by_key(|&number| contents[number].len());
    for few in order.chunks(LANES) {
        let content = |lane: usize| few.get(lane).map_or(&[][..], |&number| contents[number]);
        let made = md5_of_few(std::array::from_fn(content));
        for (&number, digest) in few.iter().zip(made) {
            digests[number] = Digest::from_slice(Algorithm::Md5, &digest);
        }
    }
    digests
}

fn md5_of_few(contents: [&[u8]; LANES]) -> [[u8; 16]; LANES] {
    let contents = contents.map(Padded::new);
    let most = contents.iter().map(Padded::blocks).max().unwrap_or_default();
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476].map(|word| [word; LANES]);
    let mut digests = [[0; 16]; LANES];
    for number in 0..most {
        let blocks: [&[u8; BLOCK]; LANES] = std::array::from_fn(|lane| contents[lane].block(number));
        state = add(state, mixed(state, &words_of(blocks)));
        for (lane, digest) in digests.iter_mut().enumerate() {
            // What comes into a lane after its last block is of no interest.
            if contents[lane].blocks() == number + 1 {
                for (bytes, words) in digest.as_chunks_mut::<4>().0.iter_mut().zip(&state) {
                    *bytes = words[lane].to_le_bytes();
                }
            }
        }
    }
    digests
}

/// A content, and after it a single bit, zeros and its length in bits.
struct Padded<'a> {
    whole: &'a [[u8; BLOCK]],
    rest: [[u8; BLOCK]; 2],
    blocks: usize,
}

impl<'a> Padded<'a> {
    fn new(content: &'a [u8]) -> Self {
        let (whole, left) = content.as_chunks();
        let mut rest = [[0; BLOCK]; 2];
        let bytes = rest.as_flattened_mut();
        bytes[..left.len()].copy_from_slice(left);
        bytes[left.len()] = 0x80;
        let more = if left.len() < BLOCK - 8 { 1 } else { 2 };
        let bits = u64::try_from(content.len()).unwrap_or(u64::MAX).wrapping_mul(8);
        bytes[more * BLOCK - 8..more * BLOCK].copy_from_slice(&bits.to_le_bytes());
        Self { whole, rest, blocks: whole.len() + more }
    }

    fn blocks(&self) -> usize {
        self.blocks
    }

    /// The block of this number; any after the last one.
    fn block(&self, number: usize) -> &[u8; BLOCK] {
        self.whole.get(number).unwrap_or_else(|| &self.rest[(number - self.whole.len()).min(1)])
    }
}

fn words_of(blocks: [&[u8; BLOCK]; LANES]) -> [Words; 16] {
    let blocks = blocks.map(|block| block.as_chunks::<4>().0);
    std::array::from_fn(|word| std::array::from_fn(|lane| u32::from_le_bytes(blocks[lane][word])))
}

#[inline]
fn each(one: Words, other: Words, of: impl Fn(u32, u32) -> u32) -> Words {
    std::array::from_fn(|lane| of(one[lane], other[lane]))
}

fn add(one: State, other: State) -> State {
    std::array::from_fn(|word| each(one[word], other[word], u32::wrapping_add))
}

/// One step: the state with one word of it made new, and the names of its words moved on.
#[inline]
fn step([a, b, c, d]: State, mixed: Words, word: Words, sine: u32, turn: u32) -> State {
    let sum =
        each(each(a, mixed, u32::wrapping_add), word, |sum, word| sum.wrapping_add(word.wrapping_add(sine)));
    [d, each(sum, b, |sum, b| sum.rotate_left(turn).wrapping_add(b)), b, c]
}

/// The steps of one round, written out: as a loop they take twice as long.
macro_rules! steps {
    ($state:ident, $words:ident, $mix:expr, $from:literal, [$($word:literal $turn:literal),*]) => {
        let mut number = $from;
        $(
            let mixed = std::array::from_fn(|lane| $mix($state[1][lane], $state[2][lane], $state[3][lane]));
            $state = step($state, mixed, $words[$word], SINES[number], $turn);
            number += 1;
        )*
        debug_assert_eq!(number % 16, 0);
    };
}

fn mixed(mut state: State, words: &[Words; 16]) -> State {
    let choose = |b: u32, c: u32, d: u32| d ^ (b & (c ^ d));
    steps!(state, words, choose, 0, [
        0 7, 1 12, 2 17, 3 22, 4 7, 5 12, 6 17, 7 22, 8 7, 9 12, 10 17, 11 22, 12 7, 13 12, 14 17, 15 22
    ]);
    let choose = |b: u32, c: u32, d: u32| c ^ (d & (b ^ c));
    steps!(state, words, choose, 16, [
        1 5, 6 9, 11 14, 0 20, 5 5, 10 9, 15 14, 4 20, 9 5, 14 9, 3 14, 8 20, 13 5, 2 9, 7 14, 12 20
    ]);
    let parity = |b: u32, c: u32, d: u32| b ^ c ^ d;
    steps!(state, words, parity, 32, [
        5 4, 8 11, 11 16, 14 23, 1 4, 4 11, 7 16, 10 23, 13 4, 0 11, 3 16, 6 23, 9 4, 12 11, 15 16, 2 23
    ]);
    let last = |b: u32, c: u32, d: u32| c ^ (b | !d);
    steps!(state, words, last, 48, [
        0 6, 7 10, 14 15, 5 21, 12 6, 3 10, 10 15, 1 21, 8 6, 15 10, 6 15, 13 21, 4 6, 11 10, 2 15, 9 21
    ]);
    state
}

/// The whole parts of 2^32 times the sines of 1 to 64.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_contents_have_the_digests_that_each_has_alone() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|number| number.to_le_bytes()[0] ^ 0x5a).collect();
        // All lengths around the ends of blocks, in no order, and groups of any size.
        let lengths: Vec<usize> =
            (0..300).map(|number| number * 7_919 % 300).chain([4_096, 1, 20_000, 0, 63]).collect();
        let contents: Vec<&[u8]> = lengths
            .iter()
            .enumerate()
            .map(|(start, &length)| &bytes[start.min(20_000 - length)..][..length])
            .collect();
        for group in [0, 1, 3, 4, 7, 305] {
            for contents in contents.chunks(group.max(1)) {
                let expected: Vec<Hashes> = contents
                    .iter()
                    .map(|content| {
                        Algorithm::ALL.map(|algorithm| Digest::of(algorithm, content)).into_iter().collect()
                    })
                    .collect();
                assert_eq!(of_each(&Algorithm::ALL, contents), expected);
            }
        }
        assert_eq!(of_each(&[Algorithm::Sha256], &[b"abc"]), [Digest::of(Algorithm::Sha256, b"abc").into()]);
        assert_eq!(of_each(&[], &[b"abc"]), [Hashes::default()]);
    }
}
