//! What an application needs that keeps a copy: `use resync_subscriber_kit::prelude::*;`.

pub use crate::fetch::{AddressPolicy, ClientOptions, Credentials};
pub use crate::listen::{Destination, DestinationBuilder, ListenError, ListenEvent};
pub use crate::receive::{Callback, CallbackOptions, Hook};
pub use crate::sync::{Report, SyncOptions};
