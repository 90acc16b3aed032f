//! Topics: how notifications come in, by posted content or by a ping, and who may publish them.

mod authority;
mod budget;
mod catch_up;
mod closed_hub;
mod discover;
mod fan_out;
mod fetch;
mod intake;
mod length_limits;
mod log_shares;
mod policy;
mod redirect_limit;
mod retention;
mod single_flight;
mod ticket;
mod token_uses;
mod tokens;
mod topic_client;

pub use authority::{Authority, Denied, Grant};
pub use budget::{BodyBudget, BudgetExhausted, Budgets, FormBudget, Reservation};
pub use catch_up::{CatchUp, CatchUpError, List, Page, WriteNotification};
pub use closed_hub::ClosedHub;
pub use fan_out::FanOutLimit;
pub use fetch::{AcceptedPing, Fetcher, Pings};
pub use intake::{Intake, PostHeader, Refused};
pub use length_limits::Oversized;
pub use log_shares::LogShares;
pub use policy::{EveryTopic, TopicPolicy, Verdict};
pub use redirect_limit::RedirectLimit;
pub use retention::keep_trimming;
pub use ticket::Tickets;
pub use token_uses::TokenUses;
pub use tokens::{NewToken, TokenInfo, Tokens, TokensError};
pub use topic_client::TopicClient;
