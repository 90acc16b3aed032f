//! Tables. In a narrow window each row becomes a block, in which every cell repeats its heading as a label.

use maud::{Markup, html};

/// What stands above a column.
#[derive(Clone, Copy)]
pub(in crate::http) enum Head {
    /// Of words.
    Text(&'static str),
    /// Of numbers, aligned to the right.
    Number(&'static str),
    /// Of what each row is about.
    Row(&'static str),
    /// Of what each row is about, where that is a number.
    RowNumber(&'static str),
}

impl Head {
    fn words(self) -> &'static str {
        match self {
            Self::Text(words) | Self::Number(words) | Self::Row(words) | Self::RowNumber(words) => words,
        }
    }

    fn above(self) -> Markup {
        let is_number = matches!(self, Self::Number(_));
        html! { th.number[is_number] scope="col" role="columnheader" { (self.words()) } }
    }

    fn cell(self, content: &Markup) -> Markup {
        let label = self.words();
        html! {
            @match self {
                Self::Text(_) => td role="cell" data-label=(label) { (content) },
                Self::Number(_) => td.number role="cell" data-label=(label) { (content) },
                Self::Row(_) => th scope="row" role="rowheader" data-label=(label) { (content) },
                Self::RowNumber(_) => th.number scope="row" role="rowheader" data-label=(label) { (content) },
            }
        }
    }
}

/// A table of these things.
pub(in crate::http) fn wide<const N: usize>(
    of: &str,
    heads: [Head; N],
    rows: impl IntoIterator<Item = [Markup; N]>,
) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label={ "Table: " (of) } { (narrow(heads, rows)) }
    }
}

/// A table that fits into any window. The roles are there although they say what the elements are: a browser that shows rows as blocks
/// may forget that they are rows.
pub(in crate::http) fn narrow<const N: usize>(
    heads: [Head; N],
    rows: impl IntoIterator<Item = [Markup; N]>,
) -> Markup {
    html! {
        table role="table" {
            thead role="rowgroup" { tr role="row" { @for head in heads { (head.above()) } } }
            tbody role="rowgroup" {
                @for row in rows {
                    tr role="row" { @for (head, content) in heads.iter().zip(&row) { (head.cell(content)) } }
                }
            }
        }
    }
}
