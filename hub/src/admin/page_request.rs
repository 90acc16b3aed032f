//! Which page of a list is wanted, and from where it goes on.

use serde::Deserialize;
use utoipa::IntoParams;

use super::Failed;

/// The most entries of a page, and how many there are by default.
const LONGEST_PAGE: usize = 1_000;
const USUAL_PAGE: usize = 100;

/// Which page of a list is wanted.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageRequest {
    /// What the page before said in `next`.
    pub after: Option<String>,
    /// The number of entries: 100 by default, at most 1,000.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

impl PageRequest {
    pub(super) fn limit(&self) -> usize {
        self.limit.unwrap_or(USUAL_PAGE).clamp(1, LONGEST_PAGE)
    }

    pub(super) fn no_place() -> Failed {
        Failed::asked("after is the value of next on the previous page")
    }

    pub(super) fn place<T>(&self, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Failed> {
        self.after.as_deref().map(|after| parse(after).ok_or_else(Self::no_place)).transpose()
    }
}
