//! Topics: how news of a topic comes in, by posted content or by a ping, and who may bring it.

mod authority;
mod budget;
mod fetch;
mod intake;
mod retention;
mod ticket;

pub use authority::{Authority, Denied, NewToken, TokenInfo, Tokens, TokensError};
pub use budget::{BodyBudget, BudgetSpent, Reserved};
pub use fetch::{Fetching, Pings};
pub use intake::{Announced, Intake, Refused};
pub use retention::keep_trimming;
pub use ticket::Tickets;
