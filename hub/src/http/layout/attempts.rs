//! The section about recent failures of a subscription.

use maud::{Markup, html};

use super::moment;
use super::table::{
    self,
    Head::{Number, Text},
};

/// A row of the table.
pub(in crate::http) struct Attempt<'a> {
    /// When it ended.
    pub(in crate::http) at: &'a str,
    /// Whether it was delivered.
    pub(in crate::http) delivered: bool,
    /// The result, as a text.
    pub(in crate::http) came: &'a str,
    /// The number of the attempt for this notification.
    pub(in crate::http) number: u16,
    /// The notification, named by its identity.
    pub(in crate::http) notification: Markup,
}

/// The section about these, with this word above their notifications.
pub(in crate::http) fn attempts(identity: &'static str, attempts: &[Attempt<'_>]) -> Markup {
    html! {
        section aria-labelledby="attempts" {
            h2 id="attempts" { "Recent failures" }
            @if attempts.is_empty() {
                p.empty { "Nothing failed since the hub started." }
            } @else {
                (table::wide("attempts", [Text("When"), Text("Result"), Number("Attempt"), Text(identity)], attempts.iter().map(|one| [
                    moment(one.at),
                    html! { @if one.delivered { span.tag.good { (one.came) } } @else { span.about { (one.came) } } },
                    html! { (one.number) },
                    html! { (one.notification) },
                ])))
            }
        }
    }
}
