//! What was lost to retention, as a table.

use maud::{Markup, html};

use super::moment;
use crate::operator::Gap;

/// Gaps of any subscriptions.
pub(super) fn table(gaps: &[Gap]) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Table: notifications lost to retention" {
            table {
                thead { tr { th scope="col" { "From notification" } th.number scope="col" { "Through number" } th.number scope="col" { "Subscription" } th scope="col" { "Found" } } }
                tbody {
                    @for gap in gaps {
                        tr {
                            th scope="row" { code { (gap.first) } }
                            td.number { (gap.last) }
                            td.number { a href={ "/subscriptions/" (gap.subscription) } { (gap.subscription) } }
                            td { (moment(&gap.at)) }
                        }
                    }
                }
            }
        }
    }
}
