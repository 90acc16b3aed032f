//! Tables. One that is wider than the window scrolls, also by keyboard.

use maud::{Markup, html};

/// What stands above a column.
pub(in crate::http) enum Head {
    /// Of words.
    Text(&'static str),
    /// Of numbers, aligned to the right.
    Number(&'static str),
}

/// A table of these things.
pub(in crate::http) fn wide(of: &str, heads: &[Head], rows: &Markup) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label={ "Table: " (of) } { (narrow(heads, rows)) }
    }
}

/// A table that fits into any window.
pub(in crate::http) fn narrow(heads: &[Head], rows: &Markup) -> Markup {
    html! {
        table {
            thead {
                tr {
                    @for head in heads {
                        @match head {
                            Head::Text(words) => th scope="col" { (words) },
                            Head::Number(words) => th.number scope="col" { (words) },
                        }
                    }
                }
            }
            tbody { (rows) }
        }
    }
}
