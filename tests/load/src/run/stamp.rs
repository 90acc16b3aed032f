//! What a notification says about itself: its run, its number, and when it was due.

use std::time::Duration;

const NAME: &str = "resync-load";

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

    /// `None` for anything else.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let line = &body[..memchr::memchr(b'\n', body)?];
        let mut parts = std::str::from_utf8(line).ok()?.strip_prefix(NAME)?.split(' ').skip(1);
        let (run, post) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { run, post, due: Duration::from_micros(parts.next()?.parse().ok()?) })
    }

    /// Whether nothing in it was changed.
    pub(super) fn is_whole(body: &[u8]) -> bool {
        let filler = memchr::memchr(b'\n', body).map_or(body, |end| &body[end + 1..]);
        filler.iter().all(|byte| *byte == b'x')
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
        assert!(Stamp::is_whole(&body));
        body[63] = b'y';
        assert!(!Stamp::is_whole(&body));
        assert_eq!(Stamp::read(b"something else\n"), None);
    }
}
