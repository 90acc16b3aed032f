//! A line of the table: where its figure stands in what a command says, and what is promised.

/// A line of the table.
pub(super) struct Figure {
    pub(super) what: &'static str,
    pub(super) at: At,
    pub(super) unit: &'static str,
    pub(super) bar: Option<Bar>,
}

/// Where a figure stands in what a command says.
#[derive(Clone, Copy)]
pub(super) enum At {
    /// A number, in JSON.
    Json(&'static str),
    /// The word before this text.
    Before(&'static str),
    /// The word after this text.
    After(&'static str),
    /// 1 where what was measured ended well, 0 where it ran and did not.
    Ended,
}

/// What is promised.
#[derive(Clone, Copy)]
pub(super) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    pub(super) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl Figure {
    pub(super) const fn new(what: &'static str, at: &'static str, unit: &'static str) -> Self {
        Self { what, at: At::Json(at), unit, bar: None }
    }

    pub(super) const fn said(what: &'static str, at: At, unit: &'static str) -> Self {
        Self { what, at, unit, bar: None }
    }

    pub(super) const fn at_least(self, bound: f64) -> Self {
        Self { bar: Some(Bar::AtLeast(bound)), ..self }
    }

    pub(super) const fn at_most(self, bound: f64) -> Self {
        Self { bar: Some(Bar::AtMost(bound)), ..self }
    }
}
