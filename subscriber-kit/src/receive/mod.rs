//! Receiving notifications: the callback that hubs send them to, and the inbox that hands each over once.
//!
//! # What is guaranteed
//! * **Nothing acknowledged is lost.** If the state is kept in a folder, a notification is on disk before its 2xx. It is handed
//!   over again, soon or after a restart, unless [`Delivery::done`] was called. If it cannot be written, the answer is 503.
//! * **Every authentic notification is handed over**, in the order of delivery, those of an earlier run first. One is left out
//!   only as a repetition: its [`NotificationId`](resync_core::websub::identity::NotificationId) *and* its body equal those of
//!   one that is being handled, or of the last [`REMEMBERED`] that were. The id is not signed, so nothing is concluded from it
//!   alone. A forged id suppresses nothing else, and a hub that was restored from a backup and repeats its offsets is believed.
//! * **It may be handed over again**: after a crash, after more than [`REMEMBERED`] others, if the hub sends no id, or if it
//!   was dropped without [`Delivery::done`].
//! * **Gaps are reported**: [`Delivery::skipped`] counts the notifications that are missing before this one by the hub's
//!   numbers.
//! * What remains to a forger with a captured delivery: to have it handed over again under other ids, and to announce the id
//!   of a future notification whose body is the same byte for byte. To be safe from that, read the Source's lists now and then
//!   too, as [`listen`](crate::listen) does.
//! * What waits is limited in number and bytes. Beyond that the answer is 503, and the hub tries again.

mod callback;
mod hook;
mod hook_queue;
mod inbox;
mod incoming_bytes;
mod server;

pub use callback::{BadSignature, Callback, CallbackOptions};
pub(crate) use hook::Notification;
pub use hook::{Hook, HookError};
pub(crate) use hook_queue::{HookQueue, HookResult};
pub use inbox::{Deliveries, Delivery, Receipt};
pub(crate) use server::{CallbackServer, end_subscriptions};
pub use server::{ServiceOptions, StartError};

pub use crate::state::REMEMBERED;
