//! The four times of a `rs:md` that say which snapshot or interval it is about.

use crate::datetime::DateTime;
use crate::model::Metadata;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) at: Option<DateTime>,
    pub(crate) completed: Option<DateTime>,
    pub(crate) from: Option<DateTime>,
    pub(crate) until: Option<DateTime>,
}

impl Times {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let Metadata { at, completed, from, until, .. } = *metadata;
        Self { at, completed, from, until }
    }

    /// An interval that has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.from.is_some() && self.until.is_none()
    }
}
