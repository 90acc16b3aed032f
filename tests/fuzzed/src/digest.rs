//! Any text as a digest and as what a hash attribute holds: no panic, and what is written is read as the same.

use resync_core::digest::{Agreement, Digest, Hashes};

/// Runs the target over one input.
pub fn run(text: &str) {
    if let Ok(digest) = text.parse::<Digest>() {
        let written = digest.to_string();
        assert_eq!(written, written.to_ascii_lowercase());
        assert_eq!(written.parse(), Ok(digest));
    }
    let hashes = Hashes::parse(text);
    assert_eq!(Hashes::parse(&hashes.to_string()), hashes, "{hashes}");
    let expected = if hashes.iter().next().is_some() { Agreement::Same } else { Agreement::Unknown };
    assert_eq!(hashes.compare(&hashes), expected);
}
