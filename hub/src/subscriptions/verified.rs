//! Proofs: requests whose subscriber has confirmed that it meant them. Only verification of intent makes them.

use std::net::IpAddr;
use std::time::Duration;

use resync_core::datetime::DateTime;

use crate::store::PendingRequest;

/// A subscribe request that the subscriber confirmed (W-116), with the lease that was granted to it.
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
    /// `asked_at` is the moment when the verification request was sent: the lease counts from there (W-111). At `peer` it was
    /// confirmed.
    pub(super) fn new(request: PendingRequest, lease: Duration, asked_at: DateTime, peer: IpAddr) -> Self {
        let address = request.callback.url().domain().map(|_| peer);
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

    /// When the verification request was sent.
    pub fn asked_at(&self) -> DateTime {
        self.asked_at
    }

    /// Where it was confirmed, if the callback names no address itself.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// For tests of other rooms, which have no subscriber to ask.
    #[cfg(test)]
    pub(crate) fn assumed(request: PendingRequest, lease: Duration, asked_at: DateTime) -> Self {
        Self::new(request, lease, asked_at, IpAddr::from([192, 0, 2, 1]))
    }

    /// As hubs kept it before they knew addresses.
    #[cfg(test)]
    pub(crate) fn without_address(self) -> Self {
        Self { address: None, ..self }
    }
}

impl VerifiedUnsubscription {
    pub(super) fn new(request: PendingRequest) -> Self {
        Self { request }
    }

    /// The request that was confirmed.
    pub fn request(&self) -> &PendingRequest {
        &self.request
    }

    /// For tests of other rooms, which have no subscriber to ask.
    #[cfg(test)]
    pub(crate) fn assumed(request: PendingRequest) -> Self {
        Self::new(request)
    }
}
