//! Any text as the moment of a version, as headers and URIs have it: no panic, and each moment is written in one way only.

use resync_core::memento::{HttpDate, Stamp};

/// Runs the target over one input.
pub fn run(text: &str) {
    if let Ok(date) = text.parse::<HttpDate>() {
        assert_eq!(date.to_string(), text);
        assert_eq!(HttpDate::from(date.datetime()), date);
        let stamp = Stamp { at: date, ordinal: 0 };
        assert_eq!(stamp.to_string().parse::<Stamp>(), Ok(stamp));
    }
    if let Ok(stamp) = text.parse::<Stamp>() {
        assert_eq!(stamp.to_string(), text);
        assert_eq!(stamp.at.to_string().parse::<HttpDate>(), Ok(stamp.at));
        let later = Stamp { ordinal: stamp.ordinal.saturating_add(1), ..stamp };
        assert!(stamp <= later && later.to_string().parse::<Stamp>() == Ok(later));
    }
}
