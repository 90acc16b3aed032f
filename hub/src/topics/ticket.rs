//! Tickets: unguessable parts of the URLs at which a publisher sees the state of its notification, or a subscriber that of its
//! subscription. The URL is all that is needed to see it.

use std::fmt;
use std::sync::Arc;

use resync_core::websub::{Secret, Signature, SignatureMethod, SigningKey};

/// Makes and checks tickets. The same key makes the same tickets, so they stay valid across restarts.
#[derive(Clone, Debug)]
pub struct Tickets(Arc<Secret>);

impl Tickets {
    /// `key` is the hub's own secret.
    pub fn new(key: Secret) -> Self {
        Self(Arc::new(key))
    }

    /// The ticket for this name: 64 hexadecimal digits. Names of different kinds must differ.
    pub fn of(&self, name: impl fmt::Display) -> String {
        let signature = SigningKey::new(SignatureMethod::Sha256, &self.0).sign(name.to_string().as_bytes());
        let text = signature.to_string();
        text.split_once('=').map_or(text.clone(), |(_, digits)| digits.to_owned())
    }

    /// Whether this is the ticket for this name, compared in constant time.
    pub fn admits(&self, ticket: &str, name: impl fmt::Display) -> bool {
        Signature::parse(&format!("{}={ticket}", SignatureMethod::Sha256))
            .is_ok_and(|signature| signature.verify(&self.0, name.to_string().as_bytes()).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use resync_core::websub::NotificationId;

    use super::*;

    #[test]
    fn a_ticket_admits_to_its_notification_only_and_only_at_its_hub() {
        let (hub, other) = (Tickets::new(Secret::random()), Tickets::new(Secret::random()));
        let id = NotificationId { topic: 7, offset: 1 };
        let ticket = hub.of(id);
        assert!(ticket.len() == 64 && hub.admits(&ticket, id));
        assert!(!hub.admits(&ticket, NotificationId { topic: 7, offset: 2 }));
        assert!(!other.admits(&ticket, id));
        assert!(!hub.admits("", id) && !hub.admits(&ticket[1..], id));
    }
}
