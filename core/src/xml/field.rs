//! The children of an entry that have text.

/// The children of an entry that have text, in their order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Loc,
    Lastmod,
    ChangeFrequency,
    Priority,
}

impl Field {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Loc => "loc",
            Self::Lastmod => "lastmod",
            Self::ChangeFrequency => "changefreq",
            Self::Priority => "priority",
        }
    }
}
