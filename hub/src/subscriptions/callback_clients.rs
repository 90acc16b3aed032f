//! The HTTP clients for requests to callbacks.

use crate::concurrency::ClientClass;
use crate::egress::EgressClient;

/// HTTP clients for requests to callbacks. Each counts its connections by network, so strangers use up nothing of what trusted
/// clients have (B-33).
#[derive(Clone, Debug)]
pub struct CallbackClients {
    /// For requests of trusted clients.
    pub trusted: EgressClient,
    /// For requests of strangers.
    pub strangers: EgressClient,
}

impl CallbackClients {
    pub(super) fn of(&self, class: ClientClass) -> &EgressClient {
        match class {
            ClientClass::Trusted => &self.trusted,
            ClientClass::Stranger => &self.strangers,
        }
    }
}
