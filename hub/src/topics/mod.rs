//! Topics: how news of a topic comes in, by posted content or by a ping, and who may bring it.

mod authority;
mod budget;
mod catch_up;
mod closed_hub;
mod discover;
mod fan_out;
mod fetch;
mod get;
mod intake;
mod oversized;
mod policy;
mod retention;
mod shares;
mod ticket;
mod turns;
mod uses;

pub(crate) use authority::replace_file;
pub use authority::{Authority, Denied, Grant, NewToken, TokenInfo, Tokens, TokensError};
pub use budget::{BodyBudget, BudgetSpent, Budgets, Reserved};
pub use catch_up::{CatchUp, List, NotRead, Page};
pub use closed_hub::ClosedHub;
pub use fan_out::{FanOut, Subscribers};
pub use fetch::{Fetching, Pinged, Pings};
pub use get::TopicClient;
pub use intake::{Announced, Intake, Refused};
pub use oversized::Oversized;
pub use policy::{EveryTopic, TopicPolicy, Verdict};
pub use retention::keep_trimming;
pub use shares::SharedLog;
pub use ticket::Tickets;
pub use uses::Uses;
