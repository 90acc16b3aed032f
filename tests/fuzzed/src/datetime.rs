//! Any text as a datetime: no panic, and the one form that is written is read as the same instant.

use resync_core::datetime::DateTime;

/// Runs the target over one input.
pub fn run(text: &str) {
    let Ok(instant) = text.parse::<DateTime>() else { return };
    let written = instant.to_string();
    assert!(written.ends_with('Z') && written.len() >= "2026-01-03T09:00:00Z".len(), "{written}");
    assert_eq!(written.parse(), Ok(instant), "{written}");
    let seconds = instant.truncate_to_seconds();
    assert!(seconds <= instant);
    assert_eq!(seconds.to_string().parse(), Ok(seconds));
    assert_eq!(DateTime::from_system_time(instant.to_system_time()), instant);
}
