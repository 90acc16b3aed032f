//! What subscribers missed: given up after all attempts, or lost to retention.

use maud::{Markup, html};

use super::moment;
use super::table::{
    self,
    Head::{Number, Row, Text},
};
use crate::admin::{Lost, Skipped};

/// Why this was given up.
pub(super) fn why(one: &Skipped) -> Markup {
    html! { (one.class) @if let Some(status) = one.status { " (" (status) ")" } }
}

/// Gaps of any subscriptions.
pub(super) fn lost(gaps: &[Lost]) -> Markup {
    html! {
        (table::wide("notifications lost to retention", [Row("From notification"), Number("Through number"), Number("Subscription"), Text("Found")], gaps.iter().map(|gap| [
            html! { code { (gap.first) } },
            html! { (gap.last) },
            html! { a href={ "/subscriptions/" (gap.subscription) } { (gap.subscription) } },
            moment(&gap.at),
        ])))
    }
}
