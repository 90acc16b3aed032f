//! What a notification says about itself: its run, its number, and when it was due.

use std::time::Duration;

const NAME: &str = "resync-load";
/// What fills a body; no longer one is published.
static FILLER: [u8; 1 << 20] = [b'x'; 1 << 20];

/// How every body begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// What other runs have left is not ours.
    pub(super) run: u32,
    /// Its place among all posts.
    pub(super) post: u32,
    /// In the time of the run.
    pub(super) due: Duration,
}

impl Stamp {
    /// A body of so many bytes.
    pub(super) fn body(self, bytes: u32) -> Vec<u8> {
        let mut body = format!("{NAME} {} {} {}\n", self.run, self.post, self.due.as_micros()).into_bytes();
        body.resize(bytes as usize, b'x');
        body
    }

    /// `None` for anything else, and where a byte after it was changed.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let (line, filler) = body.split_at(memchr::memchr(b'\n', body)?);
        let mut parts = std::str::from_utf8(line).ok()?.strip_prefix(NAME)?.split(' ').skip(1);
        let (run, post) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let due = Duration::from_micros(parts.next()?.parse().ok()?);
        (filler.get(1..) == FILLER.get(..filler.len() - 1)).then_some(Self { run, post, due })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_what_it_is_and_shows_when_it_was_changed() {
        let stamp = Stamp { run: u32::MAX, post: 9_999_999, due: Duration::from_micros(3_600_000_001) };
        let mut body = stamp.body(64);
        assert_eq!((Stamp::read(&body), body.len()), (Some(stamp), 64));
        body[63] = b'y';
        assert_eq!((Stamp::read(&body), Stamp::read(b"something else\n")), (None, None));
    }
}
