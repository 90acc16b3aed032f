//! Proofs: requests whose subscriber has confirmed that it meant them. Only the comparison of its answer with the challenge makes them.

use std::net::IpAddr;
use std::time::Duration;

use http::StatusCode;
use resync_core::datetime::DateTime;
use resync_core::websub::Challenge;

use super::records::{PendingRequest, after};

/// A callback has answered a challenge as WebSub section 5.3 demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    peer: IpAddr,
}

/// An answer that confirms nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotConfirmed {
    /// Its status is not 2xx.
    #[error("the callback answered {} instead of 2xx", .0.as_u16())]
    Status(StatusCode),
    /// Its body is not the challenge.
    #[error("the callback's answer is not the challenge")]
    Body,
}

impl Confirmation {
    /// Compares the answer that came from `peer` with the challenge (W-116).
    ///
    /// # Errors
    /// [`NotConfirmed`]
    pub fn check(
        challenge: &Challenge,
        status: StatusCode,
        body: &[u8],
        peer: IpAddr,
    ) -> Result<Self, NotConfirmed> {
        if !status.is_success() {
            return Err(NotConfirmed::Status(status));
        }
        if body == challenge.as_str().as_bytes() { Ok(Self { peer }) } else { Err(NotConfirmed::Body) }
    }

    /// The address that answered.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }
}

/// A subscribe request that the subscriber confirmed, with the lease that was granted to it.
#[derive(Clone, Debug)]
pub struct VerifiedSubscription {
    request: PendingRequest,
    lease: Duration,
    asked_at: DateTime,
    address: Option<IpAddr>,
}

/// An unsubscribe request that the subscriber confirmed.
#[derive(Clone, Debug)]
pub struct VerifiedUnsubscription {
    request: PendingRequest,
}

impl VerifiedSubscription {
    /// `asked_at` is the moment when the verification request was sent: the lease counts from there (W-111).
    pub fn new(
        request: PendingRequest,
        lease: Duration,
        asked_at: DateTime,
        confirmation: Confirmation,
    ) -> Self {
        let address = request.callback.url().domain().map(|_| confirmation.peer);
        Self { request, lease, asked_at, address }
    }

    /// The request that was confirmed.
    pub fn request(&self) -> &PendingRequest {
        &self.request
    }

    /// The lease that the subscriber was told.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// When the lease ends.
    pub(super) fn lease_end(&self) -> DateTime {
        after(self.asked_at, self.lease)
    }

    /// When the verification request was sent.
    pub fn asked_at(&self) -> DateTime {
        self.asked_at
    }

    /// Where it was confirmed, if the callback names no address itself.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// For tests, which have no subscriber to ask.
    #[cfg(test)]
    pub(crate) fn assumed(request: PendingRequest, lease: Duration, asked_at: DateTime) -> Self {
        Self::new(request, lease, asked_at, Confirmation { peer: IpAddr::from([192, 0, 2, 1]) })
    }

    /// As hubs stored it before they knew addresses.
    #[cfg(test)]
    pub(crate) fn without_address(self) -> Self {
        Self { address: None, ..self }
    }
}

impl VerifiedUnsubscription {
    /// The confirmation is not stored: an end needs no address.
    pub fn new(request: PendingRequest, _: Confirmation) -> Self {
        Self { request }
    }

    /// The request that was confirmed.
    pub fn request(&self) -> &PendingRequest {
        &self.request
    }

    /// For tests, which have no subscriber to ask.
    #[cfg(test)]
    pub(crate) fn assumed(request: PendingRequest) -> Self {
        Self { request }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w116_only_the_challenge_in_a_successful_answer_confirms() {
        let (challenge, peer) = (Challenge::random(), IpAddr::from([192, 0, 2, 1]));
        let check = |status, body: &str| Confirmation::check(&challenge, status, body.as_bytes(), peer);
        assert_eq!(
            check(StatusCode::OK, challenge.as_str()).map(|confirmation| confirmation.peer()),
            Ok(peer)
        );
        assert_eq!(check(StatusCode::OK, &format!("{}\n", challenge.as_str())), Err(NotConfirmed::Body));
        assert_eq!(check(StatusCode::OK, ""), Err(NotConfirmed::Body));
        let elsewhere = StatusCode::FOUND;
        assert_eq!(check(elsewhere, challenge.as_str()), Err(NotConfirmed::Status(elsewhere)));
    }
}
