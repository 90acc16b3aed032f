//! The Change Notifications of one channel, one after the other (CN-008).

use crate::datetime::DateTime;

/// What is wrong between the end of a notification and the start of the next one.
pub(super) fn flaw(last: Option<DateTime>, from: Option<DateTime>) -> Option<String> {
    let (last, from) = last.zip(from).filter(|(last, from)| last != from)?;
    let flaw = if last < from { "there is a gap" } else { "they overlap" };
    Some(format!("it starts at {from}, the one before it ends at {last}: {flaw}"))
}
