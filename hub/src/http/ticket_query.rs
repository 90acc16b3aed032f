//! The ticket in a URL that opens something to whoever has it.

use serde::Deserialize;

/// The query of such a URL.
#[derive(Debug, Deserialize)]
pub(super) struct TicketQuery {
    /// Empty where there is none.
    #[serde(default)]
    pub(super) ticket: String,
}
