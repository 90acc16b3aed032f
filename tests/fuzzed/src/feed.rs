//! Any bytes as two versions of a feed, with a zero byte between them: no panic; what is left out makes the feed shorter, and
//! leaves nothing more to be left out.

use resync_hub::delivery::without_known_entries;

/// Runs the target over one input.
pub fn run(bytes: &[u8]) {
    let (old, new) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, bytes),
    };
    if let Some(shortened) = without_known_entries(old, new) {
        assert!(shortened.len() < new.len());
        assert_eq!(without_known_entries(old, &shortened), None);
    }
}
