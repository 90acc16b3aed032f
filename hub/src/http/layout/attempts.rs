//! What became of the last attempts to deliver to a subscription, as far as something failed.

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
    /// Whether the notification was taken.
    pub(in crate::http) delivered: bool,
    /// What came of it, in words.
    pub(in crate::http) came: &'a str,
    /// Its number among those for the notification.
    pub(in crate::http) number: u16,
    /// The identity of the notification.
    pub(in crate::http) notification: &'a str,
}

/// The section about these, with this word above their notifications.
pub(in crate::http) fn attempts(identity: &'static str, attempts: &[Attempt<'_>]) -> Markup {
    html! {
        section aria-labelledby="attempts" {
            h2 id="attempts" { "What failed lately" }
            @if attempts.is_empty() {
                p.empty { "Nothing failed since the hub was started." }
            } @else {
                (table::wide("attempts", &[Text("When"), Text("What came of it"), Number("Attempt"), Text(identity)], &html! {
                    @for one in attempts {
                        tr {
                            td { (moment(one.at)) }
                            td { @if one.delivered { span.tag.good { (one.came) } } @else { span.about { (one.came) } } }
                            td.number { (one.number) }
                            td { code { (one.notification) } }
                        }
                    }
                }))
            }
        }
    }
}
