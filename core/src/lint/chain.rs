//! The Change Notifications of one channel, one after the other (CN-008).

use crate::datetime::DateTime;
use crate::document::{Capability, Header};
use crate::rules::{Place, Rule, Violations};

/// Checks that each Change Notification starts where the one before it ended; headers in the order of arrival.
///
/// Headers of other documents are passed over. A violation's place is empty: there is no one document it lies in.
///
/// ```
/// use resync_core::document::ChangeNotification;
/// use resync_core::lint::check_chain;
///
/// let hour = |hour: u8| format!("2026-01-03T{hour:02}:00:00Z").parse().unwrap();
/// let [one, two, four] =
///     [(1, 2), (2, 3), (4, 5)].map(|(from, until)| ChangeNotification::new(hour(from), hour(until)).header());
/// assert!(check_chain([&one, &two]).is_empty());
/// assert_eq!(check_chain([&one, &two, &four]).len(), 1);
/// ```
pub fn check_chain<'a>(headers: impl IntoIterator<Item = &'a Header>) -> Violations {
    let mut violations = Violations::default();
    let mut last = None;
    let notifications =
        headers.into_iter().filter(|header| header.capability() == Some(&Capability::ChangeNotification));
    for (number, header) in notifications.enumerate() {
        let (from, until) = (header.metadata.from, header.metadata.until);
        if let Some(flaw) = flaw(last, from) {
            violations.push(
                Rule::NotificationChain,
                Place::default(),
                format!("notification {}: {flaw}", number + 1),
            );
        }
        last = until.or(last);
    }
    violations
}

/// What is wrong between the end of a notification and the start of the next one.
pub(super) fn flaw(last: Option<DateTime>, from: Option<DateTime>) -> Option<String> {
    let (last, from) = last.zip(from).filter(|(last, from)| last != from)?;
    let flaw = if last < from { "there is a gap" } else { "they overlap" };
    Some(format!("it starts at {from}, the one before it ends at {last}: {flaw}"))
}
