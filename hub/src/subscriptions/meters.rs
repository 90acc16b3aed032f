//! What verifications come to, for the operator's graphs.

use prometheus_client::registry::Registry;

use crate::egress::Reply;
use crate::meters::CounterFamily;

/// The meters of verification.
#[derive(Clone, Debug)]
pub struct VerificationMeters(CounterFamily<Ending>);

/// How the verification of a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The callback agreed.
    Confirmed,
    /// The callback answered otherwise, or may not be asked.
    Refused,
    /// The callback did not answer.
    Unreachable,
    /// The topic is not one that may be subscribed to, or could not be looked at.
    Topic,
}

impl Ending {
    /// What a reply of the callback comes to.
    pub(super) fn of(reply: &Reply) -> Self {
        match reply {
            Reply::Confirmed(_) => Self::Confirmed,
            Reply::Refused(_) => Self::Refused,
            Reply::Unreachable(_) => Self::Unreachable,
        }
    }
}

impl Default for VerificationMeters {
    fn default() -> Self {
        Self(CounterFamily::new(
            "result",
            &[
                (Ending::Confirmed, "confirmed"),
                (Ending::Refused, "refused"),
                (Ending::Unreachable, "unreachable"),
                (Ending::Topic, "topic"),
            ],
        ))
    }
}

impl VerificationMeters {
    /// A request's verification is over.
    pub(super) fn ended(&self, ending: Ending) {
        self.0.count(ending);
    }
}

impl crate::meters::Meters for VerificationMeters {
    fn register(&self, registry: &mut Registry) {
        let help = "Requests to subscribe, renew or unsubscribe, by how their verification ended";
        self.0.register(registry, "verifications", help);
    }
}
